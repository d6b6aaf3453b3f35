"""Positional LSH: random partitions whose mean mask is the decay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from plsh._decay import Decay, DecayLike, alibi, as_decay
from plsh._library import check, ffi, lib, names

__all__ = ["DESIGNS", "SCHEMES", "Partition", "draw"]

SCHEMES = names(lib.plsh_scheme_names())
DESIGNS = names(lib.plsh_design_names())


def word(name: str, value: str, words: dict[str, int]) -> int:
    """The C enumerator of an option's word."""
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{name}={value!r}: is one of {', '.join(words)}")
    return words[value]


def word_of(value: int, words: dict[str, int]) -> str:
    """The word of a C enumerator."""
    return list(words)[value]


class Partition:
    """A set of s random partitions of the positions into contiguous blocks.

    It is a value, not an array: every question is answered from the parameters alone, at any
    64-bit position. `decay` is a :class:`Decay`, a text in the syntax of `--decay`, or a number:
    ALiBi's sigma. Defaults: 20 samples, scheme "integer", design "stratified", seed 1. With design
    "auto", the attribute `design` is the one that was chosen. `labels`, int32
    [samples, n], are partitions of your own instead.

    >>> set_ = Partition(64.0, samples=20)
    >>> begin, end = set_.block(7, 123456789)
    >>> begin <= 123456789 < end
    True
    >>> set_.labels(1000).shape
    (20, 1000)

    The mean mask M~ converges to the decay:

    >>> many = Partition(4.0, samples=4096).mean_mask(8)
    >>> bool(abs(many[0] - alibi(4.0).values(8)).max() < 0.02)
    True
    """

    def __init__(self, decay: DecayLike | float, samples: int | None = None, *,
                 scheme: str | None = None, design: str | None = None, seed: int | None = None,
                 head: int = 0, labels: npt.NDArray[np.int32] | None = None) -> None:
        self.decay = alibi(decay) if isinstance(decay, (int, float)) else as_decay(decay)
        self._labels = labels
        if labels is not None:
            for name, value in (("samples", samples), ("scheme", scheme), ("design", design),
                                ("seed", seed)):
                if value is not None:
                    raise ValueError(f"{name}={value}: labels are partitions of their own; give one "
                                     "or the other")
            scheme, samples = "labels", check_labels(labels, 2)[0]
        samples, scheme = 20 if samples is None else samples, scheme or "integer"
        design, seed = design or "stratified", 1 if seed is None else seed
        self.samples, self.scheme, self.design = samples, scheme, design
        self.seed, self.head = seed, head
        decay_struct, self._keep = self.decay.c_struct()
        self._set = ffi.new("plsh_partition *", {
            "scheme": word("scheme", scheme, SCHEMES), "design": word("design", design, DESIGNS),
            "decay": decay_struct[0], "samples": samples, "seed": seed, "head": head,
            "labels": ffi.NULL if labels is None else ffi.from_buffer("int32_t[]", labels),
            "label_count": 0 if labels is None else labels.shape[1],
        })
        if labels is None:
            self._set.design = lib.plsh_design_choose(self._set)
            self.design = word_of(self._set.design, DESIGNS)
        error = ffi.new("plsh_error *")
        check(lib.plsh_partition_check(self._set, error), error)

    def __reduce__(self) -> tuple[Any, ...]:
        drawn = (self.samples, self.scheme, self.design, self.seed) if self._labels is None else \
            (None,) * 4
        return _make, (self.decay, *drawn, self.head, self._labels)

    def __repr__(self) -> str:
        if self._labels is not None:
            return (f"Partition({self.decay!r}, labels=<int32 {list(self._labels.shape)}>, "
                    f"head={self.head})")
        return (f"Partition({self.decay!r}, samples={self.samples}, scheme={self.scheme!r}, "
                f"design={self.design!r}, seed={self.seed}, head={self.head})")

    def c_struct(self) -> Any:
        """The plsh_partition *; it lives as long as this object."""
        return self._set

    def _sample(self, sample: int) -> int:
        if not 0 <= sample < self.samples:
            raise IndexError(f"sample={sample}: is one of 0..{self.samples - 1}")
        return sample

    def _has_draws(self) -> None:
        if self.design == "golden-shifted" and self._labels is None:
            raise ValueError("design golden-shifted has no single partitions: its blocks overlap and "
                             "are counted (count, mean_mask); design golden has")

    def _position(self, name: str, position: int) -> int:
        count = None if self._labels is None else self._labels.shape[1]
        if count is not None and not 0 <= position < count:
            raise IndexError(f"{name}={position}: the labels are of positions 0..{count - 1}")
        if abs(position) >= 1 << 62:
            raise IndexError(f"{name}={position}: is smaller than 2^62 in size")
        return position

    def block(self, sample: int, position: int) -> tuple[int, int]:
        """[begin, end) of the block of that draw that holds the position."""
        self._has_draws()
        block = ffi.new("plsh_range *")
        lib.plsh_partition_block(self._set, self._sample(sample),
                                 self._position("position", position), block)
        return block.begin, block.end

    def blocks(self, sample: int, n: int) -> list[tuple[int, int]]:
        """The blocks that positions 0..n-1 fall into, cut to this range.

        >>> blocks = Partition(8.0, samples=2).blocks(0, 100)
        >>> blocks[0][0], blocks[-1][1]
        (0, 100)
        """
        found, position = [], 0
        while position < n:
            end = min(self.block(sample, position)[1], n)
            found.append((position, end))
            position = end
        return found

    def same(self, sample: int, i: int, j: int) -> bool:
        """Do two positions share a block in that draw?"""
        self._has_draws()
        return bool(lib.plsh_partition_same(self._set, self._sample(sample),
                                            self._position("i", i), self._position("j", j)))

    def draw(self, sample: int) -> tuple[float, float]:
        """Width b and offset c of one draw (b = 0: one block holds everything).

        Draws of the scheme "cuts", labels and the designs "golden" and "golden-shifted" are not grids and have
        no width.
        """
        if self.scheme not in ("binning", "integer") or self.design in ("golden", "golden-shifted"):
            raise ValueError("draws of cuts, labels, golden and golden-shifted are not grids and have no width")
        b, c = ffi.new("double *"), ffi.new("double *")
        lib.plsh_partition_draw(self._set, self._sample(sample), b, c)
        return b[0], c[0]

    def count(self, i: int, j: int) -> int:
        """In how many of the draws i and j share a block: s times M~_ij."""
        return int(lib.plsh_partition_count(self._set, self._position("i", i),
                                            self._position("j", j)))

    def labels(self, n: int) -> npt.NDArray[np.int32]:
        """int32 [samples, n]: the block of each position, counted from position 0's."""
        out = np.empty((self.samples, n), dtype=np.int32)
        error = ffi.new("plsh_error *")
        base = ffi.from_buffer("int32_t[]", out)
        for sample in range(self.samples):
            check(lib.plsh_partition_labels(self._set, sample, n, base + sample * n, error), error)
        return out

    def cu_seqlens(self, n: int, sample: int = 0) -> npt.NDArray[np.int32]:
        """The edges of the blocks of one draw in 0..n-1, from 0 to n.

        Kernels for sequences of varying length (FlashAttention's varlen, torch's) take them as they
        are: each block is a sequence. :func:`plsh.torch.merge` joins the outputs of the draws.

        >>> edges = Partition(8.0, samples=2).cu_seqlens(100)
        >>> int(edges[0]), int(edges[-1])
        (0, 100)
        """
        row = np.empty(n, dtype=np.int32)
        error = ffi.new("plsh_error *")
        check(lib.plsh_partition_labels(self._set, self._sample(sample), n,
                                        ffi.from_buffer("int32_t[]", row), error), error)
        begins = np.flatnonzero(np.diff(row)) + 1
        if self._labels is not None and len(np.unique(row)) != len(begins) + 1:
            raise ValueError(f"labels: those of draw {sample} recur, so that their blocks are not "
                             "contiguous and have no edges")
        return np.concatenate([[0], begins, [n]]).astype(np.int32)

    def mask(self, sample: int, n: int) -> npt.NDArray[np.bool_]:
        """[n, n]: 1 where two positions share a block in that draw."""
        row = self.labels(n)[self._sample(sample)]
        equal: npt.NDArray[np.bool_] = row[:, None] == row[None, :]
        return equal

    def mean_mask(self, n: int) -> npt.NDArray[np.float64]:
        """[n, n]: M~, the mean of the masks. For inspection; it takes n^2 memory.

        >>> mean = Partition(4.0, samples=10).mean_mask(6)
        >>> bool((mean.diagonal() == 1).all())
        True
        """
        if self.design == "golden-shifted" and self._labels is None:
            return np.array([[self.count(i, j) for j in range(n)] for i in range(n)],
                            dtype=np.float64) / self.samples
        total = np.zeros((n, n), dtype=np.int64)
        for row in self.labels(n):
            total += row[:, None] == row[None, :]
        return total / self.samples


def _make(decay: Decay, samples: Any, scheme: Any, design: Any, seed: Any, head: int,
          labels: Any) -> Partition:
    """A partition from what :meth:`Partition.__reduce__` gave."""
    return Partition(decay, samples, scheme=scheme, design=design, seed=seed, head=head,
                     labels=labels)


def check_labels(labels: npt.NDArray[np.int32], dimensions: int) -> tuple[int, ...]:
    """The shape of an array of user labels, if it is one."""
    if not isinstance(labels, np.ndarray) or labels.dtype != np.int32:
        raise TypeError(f"labels: are {getattr(labels, 'dtype', type(labels).__name__)}, must be an "
                        "int32 array; convert with labels.astype(numpy.int32)")
    if not labels.flags.aligned:
        raise ValueError("labels: their memory is not aligned to int32; pass a copy")
    if labels.ndim != dimensions or not labels.flags.c_contiguous:
        shape = "[heads, samples, n]" if dimensions == 3 else "[samples, n]"
        raise ValueError(f"labels: shape {labels.shape}, must be {shape}, C-contiguous; "
                         "numpy.ascontiguousarray makes it so")
    return labels.shape


def draw(sigma: float | Sequence[float] | npt.NDArray[np.floating[Any]] | None = None, *, n: int,
         samples: int = 20, decay: DecayLike | Sequence[DecayLike] | None = None,
         scheme: str = "integer", design: str = "stratified",
         seed: int = 1) -> npt.NDArray[np.int32]:
    """Block labels int32 [heads, samples, n], a head per sigma: what `plsh draw` writes.

    >>> draw([2.0, 64.0], n=1000, samples=5).shape
    (2, 5, 1000)
    """
    if (sigma is None) == (decay is None):
        raise ValueError("sigma, decay: give one of the two")
    decays: list[Decay]
    if sigma is not None:
        decays = [alibi(x) for x in np.atleast_1d(np.asarray(sigma, dtype=np.float64)).tolist()]
    else:
        listed = [decay] if isinstance(decay, (Decay, str)) else list(decay or ())
        decays = [as_decay(x) for x in listed]
    return np.stack([
        Partition(x, samples, scheme=scheme, design=design, seed=seed, head=head).labels(n)
        for head, x in enumerate(decays)
    ])
