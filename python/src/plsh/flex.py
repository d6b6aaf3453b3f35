"""The methods as FlexAttention functions: partitions of the library, kernels compiled by torch.

    score, blocks = plsh.flex.sampled(partitions, n)        # a plsh.Partition for each head
    o = flex_attention(q, k, v, score_mod=score, block_mask=blocks)

For tensors that are not on the CPU, where plsh has no kernel of its own: :func:`attention`, which
:func:`plsh.torch.attention` calls for them. The partitions are those of the CPU, to the bit: their
edges come from the library. Tested on the CPU as far as FlexAttention goes there, which is the
forward pass; not tested on a GPU.

For every method here the keys that a row sees are an interval, first <= j < end. Blocks of queries
and keys are laid out from these intervals: nothing of size n x n is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Optional

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from plsh._attention import decays_of, integers
from plsh._decay import alibi
from plsh._options import check_used, heads_of
from plsh._partition import Partition
from plsh._plan import Options, head_array, method_words

__all__ = ["Functions", "alibi_bias", "attention", "fixed", "sampled"]

Score = Callable[[Tensor, Any, Any, Any, Any], Tensor]
Rows = npt.NDArray[np.int64]  # [heads, queries]
_NONE = np.iinfo(np.int32).max  # beyond every position


class Functions(NamedTuple):
    """What flex_attention takes: score_mod and block_mask."""

    score: Optional[Score]
    blocks: BlockMask


def sampled(partitions: Sequence[Partition], n: int, *, queries: Optional[int] = None,
            causal: bool = True, block_size: int = 128,
            device: torch.device | str = "cpu") -> Functions:
    """M~ of each head's partition: scores plus log(count / s), inside the union of the blocks.

    The count of pair (i, j), j <= i, is the number of blocks around i that begin at or before j; it
    is found by bisection in the sorted beginnings of row i.

    >>> from plsh import Partition
    >>> score, blocks = sampled([Partition(8.0, samples=4, head=h) for h in range(2)], 300)
    >>> blocks.seq_lengths
    (300, 300)
    """
    rows = n if queries is None else queries
    edges = [_edges(x, n, rows) for x in partitions]
    begins, ends = (np.stack([x[side] for x in edges]) for side in (0, 1))  # [heads, rows, samples]
    position = np.arange(n - rows, n)
    end = np.broadcast_to(position + 1, begins.shape[:2]) if causal else ends.max(axis=2)
    samples = {x.samples for x in partitions}
    if len(samples) != 1:
        raise ValueError(f"partitions: of {sorted(samples)} samples, must be of as many each")
    before = _table(begins, device)
    after = None if causal else _table(-ends, device)  # an end beyond j is -end < -j
    steps, scale, offset = before.shape[2].bit_length(), math.log(samples.pop()), n - rows

    def counted(table: Tensor, h: Any, i: Any, key: Any) -> Any:
        found = i * 0
        for bit in reversed(range(steps)):
            step = 1 << bit
            found = torch.where(table[h, i, found + (step - 1)] <= key, found + step, found)
        return found

    def score(value: Tensor, b: Any, h: Any, i: Any, j: Any) -> Tensor:
        count = counted(before, h, i, j)
        if after is not None:
            count = torch.where(j <= i + offset, count, counted(after, h, i, -j - 1))
        return value + (torch.log(count.clamp(min=1).to(value.dtype)) - scale)

    return Functions(score, _blocks(begins.min(axis=2), end, n, block_size, device))


def alibi_bias(sigma: Sequence[float], n: int, *, window: Optional[Sequence[int]] = None,
               queries: Optional[int] = None, causal: bool = True, block_size: int = 128,
               device: torch.device | str = "cpu") -> Functions:
    """ALiBi of each head, of all pairs or of those nearer than the head's window.

    >>> alibi_bias([2.0, 8.0], 300, window=[54, 216]).blocks.seq_lengths
    (300, 300)
    """
    rows = n if queries is None else queries
    slopes = torch.tensor([1.0 / x for x in sigma], dtype=torch.float32, device=device)
    offset = n - rows

    def score(value: Tensor, b: Any, h: Any, i: Any, j: Any) -> Tensor:
        return value - torch.abs(i + offset - j) * slopes[h]

    reach = np.full(len(sigma), n) if window is None else np.asarray(window)
    position = np.arange(offset, n)[None]
    first = np.maximum(position - reach[:, None] + 1, 0)
    end = position + (1 if causal else reach[:, None])
    return Functions(score, _blocks(first, np.broadcast_to(end, first.shape), n, block_size, device))


def fixed(block: Sequence[int], n: int, *, queries: Optional[int] = None, causal: bool = True,
          block_size: int = 128, device: torch.device | str = "cpu") -> Functions:
    """Blocks of equal size, one size per head, and no bias: the paper's baseline."""
    rows = n if queries is None else queries
    position, size = np.arange(n - rows, n)[None], np.asarray(block)[:, None]
    first = position // size * size
    end = np.broadcast_to(position + 1, first.shape) if causal else first + size
    return Functions(None, _blocks(first, end, n, block_size, device))


def _edges(partition: Partition, n: int, rows: int) -> tuple[Rows, Rows]:
    """Beginning and end of the block around each of the last rows, [rows, samples]."""
    begins, ends = (np.empty((rows, partition.samples), dtype=np.int64) for _ in range(2))
    for m in range(partition.samples):
        edges = partition.cu_seqlens(n, m)
        at = np.searchsorted(edges, np.arange(n - rows, n), side="right")
        begins[:, m], ends[:, m] = edges[at - 1], edges[at]
    return begins, ends


def _table(values: npt.NDArray[np.int64], device: torch.device | str) -> Tensor:
    """Sorted along the samples and filled up to 2^k - 1, [heads, rows, 2^k - 1] int32."""
    heads, rows, samples = values.shape
    full = np.full((heads, rows, (1 << samples.bit_length()) - 1), _NONE, dtype=np.int32)
    full[:, :, :samples] = np.sort(values, axis=2)
    return torch.from_numpy(full).to(device)


def _blocks(first: Rows, end: Rows, n: int, size: int, device: torch.device | str) -> BlockMask:
    """FlexAttention's mask of the pairs first_i <= j < end_i, which grow with i."""
    heads, rows = first.shape
    first, end = np.ascontiguousarray(first), np.minimum(end, n)
    low = torch.from_numpy(first.astype(np.int32)).to(device)
    high = torch.from_numpy(end.astype(np.int32)).to(device)

    def visible(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (j >= low[h, i]) & (j < high[h, i])

    starts = np.arange(0, rows, size)
    lasts = np.minimum(starts + size, rows) - 1
    # Key blocks that some row of a block of queries sees, and those that every row sees whole.
    some = first[:, starts] // size, -(-end[:, lasts] // size)
    whole_end = np.where(end[:, starts] == n, -(-n // size), end[:, starts] // size)
    begin = -(-first[:, lasts] // size)
    every = begin, np.maximum(begin, whole_end)
    keys = -(-n // size)
    lists = _listed(some, every), _listed(_transposed(some, keys), _transposed(every, keys))
    arrays: Any = [x for pair, length in zip(lists, (keys, len(starts))) for number, index in pair
              for x in (_tensor(number, device), _wide(index, length, device))]
    make: Any = BlockMask
    blocks: BlockMask = make((rows, n), *arrays, BLOCK_SIZE=(size, size), mask_mod=visible)
    return blocks


def _tensor(values: Rows, device: torch.device | str) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values[None], dtype=np.int32)).to(device)


def _wide(index: Rows, length: int, device: torch.device | str) -> Tensor:
    """Indices as rows of `length`: FlexAttention requires rows of this length, but reads only
    their first entries. So the rows overlap, and take the memory of these entries only."""
    flat = _tensor(index, device)
    _, heads, rows, width = flat.shape
    padded = torch.cat([flat.flatten(), flat.new_zeros(length)])
    return padded.as_strided((1, heads, rows, length), (heads * rows * width, rows * width, width, 1))


Interval = tuple[Rows, Rows]


def _listed(some: Interval, every: Interval) -> tuple[Interval, Interval]:
    """Counts and indices of the blocks in `some` but not in `every`, and of those in `every`."""
    (a, b), (c, d) = some, every
    c, d = np.clip(c, a, b), np.clip(d, a, b)
    d = np.maximum(c, d)
    step = np.arange(max(1, int((b - a).max(initial=0))))
    left = (c - a)[..., None]
    partial = np.where(step < left, a[..., None] + step, d[..., None] + step - left)
    number, inner = b - a - (d - c), d - c
    return ((number, np.where(step < number[..., None], partial, 0)),
            (inner, np.where(step < inner[..., None], c[..., None] + step, 0)))


def _transposed(interval: Interval, keys: int) -> Interval:
    """The transposed lists: for each key block, the interval of query blocks whose interval has it.

    Begins and ends never decrease."""
    begin, end = interval
    columns = np.arange(keys)
    first = np.stack([np.searchsorted(x, columns, side="right") for x in end])
    last = np.stack([np.searchsorted(x, columns, side="right") for x in begin])
    return first, np.maximum(first, last)


_compiled: Any = torch.compile(flex_attention, dynamic=False)


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, sigma: Any = None, slopes: Any = None, decay: Any = None,
    causal: bool = True, scale: Optional[float] = None, method: str | Sequence[str] = "exact",
    window: Any = None, block: Any = None, scheme: Optional[str] = None,
    design: Optional[str] = None, samples: Optional[int] = None, seed: Optional[int] = None,
    return_lse: bool = False,
) -> Any:
    """:func:`plsh.torch.attention` by compiled FlexAttention, on any device that has it.

    Options have their meanings there. "exact" and "dense" score every pair here; "plsh", "window"
    and "fixed" are near-linear. q, k, v are [batch, heads, n, dim].

    On the CPU FlexAttention has neither a backward pass nor the log-sum-exp.
    """
    for x in (sigma, slopes):
        if isinstance(x, Tensor) and x.requires_grad:
            raise NotImplementedError("sigma, slopes: are learned on the CPU only")
    sigma, slopes = (x.tolist() if isinstance(x, Tensor) else x for x in (sigma, slopes))
    words = method_words(method)
    check_used(words, {"window": window, "block": block, "scheme": scheme, "design": design,
                       "samples": samples, "seed": seed})
    options = heads_of(words, decays_of(q.shape[1], sigma, slopes, decay), None,
                       integers("window", window), integers("block", block), scheme, design,
                       samples, seed)
    functions = _functions(options, q.shape[1], q.shape[2], k.shape[2], causal, str(q.device))
    found = _compiled(q, k, v, score_mod=functions.score, block_mask=functions.blocks, scale=scale,
                      enable_gqa=q.shape[1] != k.shape[1],
                      return_aux=AuxRequest(lse=True) if return_lse else None)
    return (found[0], found[1].lse) if return_lse else found


@lru_cache(maxsize=64)
def _functions(options: Options, heads: int, rows: int, n: int, causal: bool,
               device: str) -> Functions:
    """The functions for one kind of call, made once."""
    array, _ = head_array(options, heads, 1, None)
    methods = set(options.method)
    common: dict[str, Any] = {"queries": rows, "causal": causal, "device": device}
    decays = [x if not isinstance(x, float) else alibi(x) for x in options.decay]
    decays = decays * heads if len(decays) == 1 else decays
    if methods <= {"plsh", "masks"}:
        return sampled([Partition(decays[h], options.samples, scheme=options.scheme,
                                  design=options.design, seed=options.seed, head=h)
                        for h in range(heads)], n, **common)
    if methods == {"fixed"}:
        return fixed([array[h].block for h in range(heads)], n, **common)
    if methods == {"none"}:
        return alibi_bias([math.inf] * heads, n, **common)
    if not methods <= {"exact", "dense", "window"} or len(methods) > 1 or \
            any(x.kind != "alibi" or x.limit for x in decays):
        raise NotImplementedError(f"method={options.method}: off the CPU there are plsh, masks, fixed, "
                                  "none, and for ALiBi exact, dense and window, one for all heads")
    window = [array[h].window for h in range(heads)] if methods == {"window"} else None
    return alibi_bias([x.a for x in decays], n, window=window, **common)
