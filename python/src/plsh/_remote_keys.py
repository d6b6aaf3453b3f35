"""Which keys of other ranks can matter to `exact` attention over a sharded sequence.

Row i of this rank has a sum D_i >= exp(s_ii), the weight of its own key (k(0) = 1). A piece of
another rank's keys weighs at most

    exp(max_j s_ij) * sum_j k(|i - j|),    s_ij <= scale q_i.m + |scale| |q_i| max_j |k_j - m|,

where m is any vector, here the mean of that rank's keys (Cauchy and Schwarz; what all keys have in
common then cancels against s_ii). So every rank tells the others m and the radii max |k_j - m| of a
few pieces of its keys, which grow with the distance from its ends: about 50 numbers for a million
keys. Pieces that weigh together at most eps/2 of D_i, for all rows of this rank, are not fetched; the
walk over the keys that are there leaves out at most another eps/2 (`SHARE`). Together a row leaves out
at most eps of its sum, as in one process. Bidirectional attention halves the first part by sides.

Nothing here asks for the certificates of the library: that they stay below 2 max|v| eps/(1-eps)
follows from the same sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plsh._decay import Decay
from plsh._shard_layout import Span

__all__ = ["SHARE", "Seeker", "summary_of", "summary_width"]

SHARE = 0.5  # of eps, for what is not fetched; the rest is for the walk
_PIECE = 64  # keys of the nearest pieces; the others are a fifth of their distance or more


def _cuts(rows: int, part: int) -> list[int]:
    """0 = c_0 < c_1 < ... = rows: pieces of a part-th of their distance, or _PIECE."""
    cuts = [0]
    while cuts[-1] < rows:
        step = max(_PIECE, cuts[-1] // part // _PIECE * _PIECE)
        cuts.append(min(rows, cuts[-1] + step))
    return cuts


def _key_cuts(rows: int) -> list[int]:
    return _cuts(rows, 5)


def _slack(dim: int) -> float:
    """Rounding of a product of `dim` floats, relative to the product of the norms, with room."""
    return (dim + 8) * 2.0**-23


def summary_width(rows: Sequence[int], dim: int) -> int:
    """Numbers of a summary: the mean, and the radii from the right end and from the left one."""
    return dim + 2 * max(len(_key_cuts(n)) - 1 for n in rows)


def summary_of(k: Tensor, width: int) -> Tensor:
    """[heads, batch, width] of the keys [batch, heads, rows, dim] of one rank."""
    batch, heads, rows, dim = k.shape
    summary = k.new_zeros((heads, batch, width), dtype=torch.float32)
    cuts = _key_cuts(rows)
    for h in range(heads if rows else 0):
        x = k[:, h].float()
        mean = x.mean(dim=1)
        summary[h, :, :dim] = mean
        radius = torch.linalg.vector_norm(x - mean[:, None], dim=2) * (1 + _slack(dim))
        for i, (near, far) in enumerate(zip(cuts, cuts[1:])):
            summary[h, :, dim + 2 * i] = radius[:, rows - far:rows - near].amax(dim=1)
            summary[h, :, dim + 2 * i + 1] = radius[:, near:far].amax(dim=1)
    return summary


def _log_tails(decay: Decay, distance: npt.NDArray[np.int64], count: npt.NDArray[np.int64],
               ) -> npt.NDArray[np.float64]:
    """log of a bound on the sum of k over `count` distances, none below `distance`."""
    if decay.kind == "alibi" and not decay.limit:
        total = np.log(-np.expm1(-count / decay.a)) - math.log(-math.expm1(-1 / decay.a))
        return np.asarray(total - distance / decay.a)
    if decay.kind == "table":  # may rise: the most that is still to come
        most = np.maximum.accumulate(np.array(decay.entries)[::-1])[::-1]
        value = decay.limit + (1 - decay.limit) * most[np.minimum(distance, len(most) - 1)]
        bound = value * count
    else:
        flat = [decay.tail(int(t), int(c)) for t, c in zip(
            distance.ravel(), np.broadcast_to(count, distance.shape).ravel())]
        bound = np.array(flat).reshape(distance.shape)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(bound))


class _Pieces(NamedTuple):
    """Pieces of other ranks' keys on one side, nearest first."""

    rank: list[int]
    number: list[int]  # of its rank's pieces, from its nearer end
    near: list[int]  # the key next to us, and the end of the piece beyond it
    far: list[int]


class Seeker:
    """Looks for what one rank needs. `offsets` are the rows of all ranks, `limits` the keys that
    its rows may see at all, `summaries` [ranks, kv heads, batch, width]."""

    def __init__(self, offsets: Sequence[int], rank: int, limits: Span, causal: bool, scale: float,
                 eps: float, summaries: Tensor) -> None:
        self.offsets, self.rank, self.limits = offsets, rank, limits
        self.begin, self.end = offsets[rank], offsets[rank + 1]
        self.scale, self.summaries = scale, summaries
        self.sides = 1 if causal else 2
        self.log_limit = math.log(eps * SHARE / self.sides)

    def span(self, q: Tensor, k: Tensor, kv_head: int, decay: Decay) -> Span:
        """The keys that a head of q and its keys, [batch, rows, dim], need: a range that holds
        those of this rank."""
        begin, end = self.begin, self.end
        if begin == end:
            return begin, end
        q, k = q.float(), k.float()
        begin -= self._reach(q, k, kv_head, decay, self._pieces_before())
        if self.sides == 2:
            end += self._reach(q.flip(1), k.flip(1), kv_head, decay, self._pieces_after())
        return begin, end

    def _pieces_before(self) -> _Pieces:
        pieces = _Pieces([], [], [], [])
        for rank in range(self.rank - 1, -1, -1):
            last = self.offsets[rank + 1]
            cuts = _key_cuts(last - self.offsets[rank])
            for i, (near, far) in enumerate(zip(cuts, cuts[1:])):
                if last - near > self.limits[0]:
                    _add(pieces, rank, i, self.begin - (last - near - 1),
                         self.begin - max(self.limits[0], last - far))
        return pieces

    def _pieces_after(self) -> _Pieces:
        pieces = _Pieces([], [], [], [])
        for rank in range(self.rank + 1, len(self.offsets) - 1):
            first = self.offsets[rank]
            cuts = _key_cuts(self.offsets[rank + 1] - first)
            for i, (near, far) in enumerate(zip(cuts, cuts[1:])):
                if first + near < self.limits[1]:
                    _add(pieces, rank, i, first + near - (self.end - 1),
                         min(self.limits[1], first + far) - self.end)
        return pieces

    def _reach(self, q: Tensor, k: Tensor, kv_head: int, decay: Decay, pieces: _Pieces) -> int:
        """How many keys beyond this rank's end; row 0 is the one at that end."""
        if not pieces.rank:
            return 0
        dim, slack = q.shape[2], _slack(q.shape[2])
        side = 1 if pieces.rank[0] > self.rank else 0
        at = torch.tensor(pieces.rank)
        number = torch.tensor(pieces.number)
        summary = self.summaries[:, kv_head].double()
        radius = summary[at, :, dim + 2 * number + side]  # [pieces, batch]
        near, far = np.array(pieces.near), np.array(pieces.far)
        count = far - near + 1
        worst = torch.full((len(pieces.rank),), -math.inf, dtype=torch.float64)
        cuts = _cuts(q.shape[1], 2)
        for first, last in zip(cuts, cuts[1:]):
            rows, keys = q[:, first:last], k[:, first:last]
            norm = torch.linalg.vector_norm(rows, dim=2).amax(dim=1).double() * abs(self.scale)
            own = self.scale * (rows * keys).sum(dim=2)
            mean = self.summaries[:, kv_head, :, :dim]
            along = (self.scale * torch.einsum("bnd,rbd->rbn", rows, mean) - own).amax(dim=2)
            most = torch.linalg.vector_norm(keys, dim=2).amax(dim=1)
            rounding = slack * norm * (torch.linalg.vector_norm(mean, dim=2) + most)
            tails = torch.from_numpy(_log_tails(decay, near + first, count))
            bound = (along + rounding)[at] + (1 + slack) * norm * radius + tails[:, None]
            beyond = torch.logcumsumexp(bound.flip(0), dim=0).flip(0).amax(dim=1)
            worst = torch.maximum(worst, beyond)
        needed = (~(worst <= self.log_limit)).nonzero().flatten()  # NaN too
        return int(far[int(needed[-1])]) if len(needed) else 0


def _add(pieces: _Pieces, rank: int, number: int, near: int, far: int) -> None:
    for column, value in zip(pieces, (rank, number, near, far)):
        column.append(value)
