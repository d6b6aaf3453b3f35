"""Decoding on torch tensors: a batch of sequences, and what is kept of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from plsh._cache import Cache as Sequence_
from plsh._library import check, ffi, lib
from plsh._plan import DTYPES

__all__ = ["Cache"]

_TOKENS, _ERROR = ffi.typeof("plsh_tokens *"), ffi.typeof("plsh_error *")


class Cache:
    """The tokens of a batch of sequences in one layer; each step appends some and attends for them.

    The result is that of one causal pass over everything so far, and a step reads only what it
    needs: "exact" what its bounds cannot rule out, from summaries of the keys that are kept;
    "plsh", "window" and "fixed" forget what is out of reach. Options are those of
    :func:`attention`, and `undo`: so many of the last tokens can always be truncated away. There
    are no gradients.

    >>> q, k, v = (torch.randn(2, 4, 100, 16) for _ in range(3))
    >>> cache = Cache()
    >>> rows = [cache.step(*(x[:, :, t:t+1] for x in (q, k, v))) for t in range(100)]
    >>> import plsh.torch
    >>> torch.allclose(torch.cat(rows, dim=2), plsh.torch.attention(q, k, v), atol=1e-5)
    True
    """

    def __init__(self, *, undo: int = 0, **options: Any) -> None:
        self.options = {**options, "undo": undo}
        self.sequences: list[Sequence_] = []
        self._tokens = ffi.new(_TOKENS)

    def __len__(self) -> int:
        """Tokens of the longest sequence so far, forgotten ones included."""
        return max(map(len, self.sequences), default=0)

    @property
    def nbytes(self) -> int:
        """Memory in use, what sequences share counted for each."""
        return sum(x.nbytes for x in self.sequences)

    def step(self, q: Tensor, k: Tensor, v: Tensor,
             begins: Optional[Sequence[int]] = None) -> Tensor:
        """Appends tokens, [batch, heads, n, dim], and attends for them: as q, but v's dim.

        `begins`: the first row of each sequence that is no padding; the output there is 0.
        """
        q, k, v = self._checked(q, k, v)
        batch, heads, rows, _ = q.shape
        if not self.sequences:
            self._make(q, k, v)
        first = self.sequences[0]
        if (len(self.sequences), first.heads, first.kv_heads, first.head_dim, first.value_dim) != \
                (batch, heads, k.shape[1], k.shape[3], v.shape[3]):
            raise ValueError(f"q, k, v: shapes {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}; "
                             f"the cache is of {len(self.sequences)} sequences of {first.heads} heads "
                             f"({first.kv_heads} of keys), {first.head_dim} and {first.value_dim} wide")
        o = torch.empty((batch, rows, heads, v.shape[3]), dtype=torch.float32).transpose(1, 2)
        for b, sequence in enumerate(self.sequences):
            begin = begins[b] if begins else 0
            if begin:
                o[b, :, :begin] = 0
            if begin < rows:
                self._step(sequence, q, k, v, o, b, begin)
        return o if q.dtype == torch.float32 else o.to(q.dtype)

    def _checked(self, *arrays: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        checked = []
        for name, x in zip("qkv", arrays):
            if not isinstance(x, Tensor) or x.dim() != 4 or not x.is_cpu:
                raise TypeError(f"{name}: must be a tensor [batch, heads, n, dim] on the CPU")
            if x.shape[2] != arrays[0].shape[2] or x.dtype != arrays[0].dtype:
                raise ValueError(f"{name}: {x.shape[2]} tokens of {x.dtype}, must be as in q: "
                                 f"{arrays[0].shape[2]} of {arrays[0].dtype}")
            if torch.is_grad_enabled() and x.requires_grad:
                raise NotImplementedError(f"{name}: requires a gradient, which a cache has not; call "
                                          "it under torch.no_grad(), or train without a cache")
            checked.append(x if x.stride(3) == 1 or x.shape[3] == 1 else x.contiguous())
        return checked[0], checked[1], checked[2]

    def _make(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        dtype = str(q.dtype).removeprefix("torch.")
        threads = self.options.get("threads") or torch.get_num_threads()
        self._dtype = q.dtype
        self.sequences = [
            Sequence_(q.shape[1], q.shape[3], kv_heads=k.shape[1], value_dim=v.shape[3], dtype=dtype,
                      **{**self.options, "threads": threads}) for _ in range(q.shape[0])]

    def _step(self, sequence: Sequence_, q: Tensor, k: Tensor, v: Tensor, o: Tensor, b: int,
              begin: int) -> None:
        tokens, error = self._tokens, ffi.new(_ERROR)
        tokens.count = q.shape[2] - begin
        tokens.dtype = DTYPES[str(q.dtype).removeprefix("torch.")]
        for name, x in (("q", q), ("k", k), ("v", v), ("o", o)):
            strides = x.stride()
            address = x.data_ptr() + (b * strides[0] + begin * strides[2]) * x.element_size()
            setattr(tokens, name, ffi.cast("float *" if name == "o" else "void *", address))
            setattr(tokens, f"{name}_layout", _layout(x))
        check(lib.plsh_cache_step(sequence.pointer, tokens, ffi.NULL, error), error)

    def select(self, rows: Sequence[int]) -> None:
        """Keeps the sequences of these numbers, in this order; one may be kept more than once."""
        forked = [self.sequences[b].fork() for b in rows]
        self.sequences = forked

    def truncate(self, count: int) -> None:
        """Forgets the last `count` tokens of every sequence."""
        for sequence in self.sequences:
            sequence.truncate(len(sequence) - count)


def _layout(x: Tensor) -> tuple[int, int]:
    """Distances between heads and rows; a plain value for those that no step is made with."""
    _, heads, rows, dim = x.shape
    _, head, row, _ = x.stride()
    row = row if rows > 1 else dim
    return (head if heads > 1 else rows * row), row
