"""Which keys of other ranks can matter to `exact` attention over a sharded sequence.

Row i of this rank has a sum D_i >= exp(s_ii), the weight of its own key (k(0) = 1). A piece of
another rank's keys weighs at most

    exp(max_j s_ij) * sum_j k(|i - j|),    s_ij <= scale q_i.m + |scale| |q_i| max_j |k_j - m|,

where m is any vector, here the mean of that rank's keys (Cauchy and Schwarz; what all keys have in
common then cancels against s_ii). So every rank tells the others m and the radii max |k_j - m| of a
few pieces of its keys, which grow with the distance from its ends: about 50 numbers for a million
keys. Pieces that weigh together at most eps/2 of D_i, for all rows of this rank, are not fetched; the
walk over the keys that are there leaves out at most another eps/2 (`SHARE`). Together a row leaves out
at most eps of its sum, as in one process, and its output is off by at most 2 max|v| eps/(1-eps).
Bidirectional attention halves the first part by sides. NaN satisfies no comparison, so it rules out
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Optional

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plsh._decay import Decay
from plsh._shard_layout import Span

__all__ = ["SHARE", "Seeker", "summary_of", "summary_width"]

SHARE = 0.5  # of eps, for what is not fetched; the rest is for the walk
_PIECE = 64  # keys of the nearest pieces; the others have a fifth of their distance


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


class _Stretches(NamedTuple):
    """Stretches of other ranks' keys on one side, nearest first: ranks, or pieces of theirs."""

    rank: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]  # of its rank's pieces, from its nearer end
    near: npt.NDArray[np.int64]  # distances of the nearest key and of the last one from our end
    far: npt.NDArray[np.int64]


class _Rows(NamedTuple):
    """Rows of ours, and what the bounds ask about them, by batch entry."""

    first: int  # distance from our end
    q: Tensor
    own: Tensor  # scores of the rows' own keys
    q_norm: Tensor  # the largest, times |scale|
    k_norm: Tensor


class Seeker:
    """Looks for what one rank needs. `offsets` are the rows of all ranks, `limits` the keys that
    its rows may see at all, `summaries` [ranks, kv heads, batch, width].

    Far ranks are ruled out together by |q| (|m| + radius) alone, for half of the share; what is left,
    mostly a neighbour or two, is looked at piece by piece for the other half.
    """

    def __init__(self, offsets: Sequence[int], rank: int, limits: Span, causal: bool, scale: float,
                 eps: float, summaries: Tensor) -> None:
        self.offsets, self.rank, self.limits = offsets, rank, limits
        self.begin, self.end = offsets[rank], offsets[rank + 1]
        self.scale, self.summaries = scale, summaries
        self.sides = 1 if causal else 2
        self.log_limit = math.log(eps * SHARE / self.sides / 2)
        self.around = [self._ranks(side) for side in range(self.sides)]

    def span(self, q: Tensor, k: Tensor, kv_head: int, decay: Decay) -> Span:
        """The keys that a head of q and its keys, [batch, rows, dim], need: a range that holds
        those of this rank."""
        begin, end = self.begin, self.end
        if begin == end:
            return begin, end
        q, k = q.float(), k.float()
        begin -= self._reach(0, q, k, kv_head, decay)
        if self.sides == 2:
            end += self._reach(1, q.flip(1), k.flip(1), kv_head, decay)
        return begin, end

    def _stretch(self, side: int, keys: Span) -> Span:
        """Distances of the nearest and the last of some keys that can be seen."""
        if side == 0:
            return self.begin - keys[1] + 1, self.begin - max(keys[0], self.limits[0])
        return keys[0] - self.end + 1, min(keys[1], self.limits[1]) - self.end

    def _ranks(self, side: int) -> _Stretches:
        """The ranks before us, or after us."""
        size = len(self.offsets) - 1
        order = range(self.rank - 1, -1, -1) if side == 0 else range(self.rank + 1, size)
        found = [(r, 0, *self._stretch(side, (self.offsets[r], self.offsets[r + 1])))
                 for r in order if self.offsets[r] < self.offsets[r + 1]]
        return _table([x for x in found if x[2] <= x[3]])

    def _pieces(self, side: int, ranks: npt.NDArray[np.int64]) -> _Stretches:
        """The pieces of ranks on one side."""
        found = []
        for rank in ranks.tolist():
            first, last = self.offsets[rank], self.offsets[rank + 1]
            cuts = _key_cuts(last - first)
            for i, (near, far) in enumerate(zip(cuts, cuts[1:])):
                keys = (last - far, last - near) if side == 0 else (first + near, first + far)
                found.append((rank, i, *self._stretch(side, keys)))
        return _table([x for x in found if x[2] <= x[3]])

    def _reach(self, side: int, q: Tensor, k: Tensor, kv_head: int, decay: Decay) -> int:
        """How many keys beyond this rank's end; row 0 is the one at that end."""
        dim, around = q.shape[2], self.around[side]
        if not len(around.rank):
            return 0
        cuts = _cuts(q.shape[1], 2)
        rows = [self._look_at(a, q[:, a:b], k[:, a:b]) for a, b in zip(cuts, cuts[1:])]
        summary = self.summaries[:, kv_head]
        radii = summary[around.rank, :, dim + side::2].amax(dim=2).double()
        radii += torch.linalg.vector_norm(summary[around.rank, :, :dim], dim=2) * (1 + _slack(dim))
        count = self._count(around, decay, rows, radii, None)
        if count == 0:
            return 0
        pieces = self._pieces(side, around.rank[:count])
        radii = summary[pieces.rank, :, dim + 2 * pieces.number + side].double()
        count = self._count(pieces, decay, rows, radii, summary[:, :, :dim])
        return int(pieces.far[count - 1]) if count else 0

    def _look_at(self, first: int, q: Tensor, k: Tensor) -> _Rows:
        own = self.scale * (q * k).sum(dim=2)
        q_norm = torch.linalg.vector_norm(q, dim=2).amax(dim=1).double() * abs(self.scale)
        return _Rows(first, q, own, q_norm, torch.linalg.vector_norm(k, dim=2).amax(dim=1).double())

    def _count(self, keys: _Stretches, decay: Decay, rows: Sequence[_Rows], radii: Tensor,
               means: Optional[Tensor]) -> int:
        """How many of the stretches can matter to a row; `radii` [stretches, batch] are around the
        `means` [ranks, batch, dim], or around 0."""
        worst = torch.full((len(keys.rank),), -math.inf, dtype=torch.float64)
        near, at = np.unique(keys.rank, return_inverse=True)
        for x in rows:
            slack = _slack(x.q.shape[2])
            along = -x.own.double().amin(dim=1)[None]
            rounding = x.q_norm * x.k_norm
            if means is not None:
                mean = means[near]
                along = (self.scale * torch.einsum("bnd,rbd->rbn", x.q, mean) - x.own).amax(dim=2)
                along = along.double()[at]
                rounding = x.q_norm * (torch.linalg.vector_norm(mean, dim=2) + x.k_norm)[at]
            tails = torch.from_numpy(_log_tails(decay, keys.near + x.first, keys.far - keys.near + 1))
            bound = along + slack * rounding + (1 + slack) * x.q_norm * radii + tails[:, None]
            beyond = torch.logcumsumexp(bound.flip(0), dim=0).flip(0).amax(dim=1)
            worst = torch.maximum(worst, beyond)
        needed = (~(worst <= self.log_limit)).nonzero().flatten()  # NaN too
        return int(needed[-1]) + 1 if len(needed) else 0


def _table(rows: Sequence[tuple[int, ...]]) -> _Stretches:
    return _Stretches(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)
