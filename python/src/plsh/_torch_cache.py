"""Decoding on torch tensors: a batch of sequences, and what is kept of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Optional, Union

import numpy as np
import torch
from torch import Tensor

from plsh._cache import Cache as Sequence_
from plsh._decay import DecayLike
from plsh._library import check, ffi, lib, pointer
from plsh._plan import DTYPES, refuse_unaligned, workspace
from plsh._torch_options import Integers, Numbers, autocast

__all__ = ["Cache"]

_TOKENS, _CACHES = ffi.typeof("plsh_tokens[]"), ffi.typeof("plsh_cache *[]")
_ERROR, _SIZE = ffi.typeof("plsh_error *"), ffi.typeof("size_t *")


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

    def __init__(
        self, *, undo: int = 0, sigma: Union[Numbers, Literal["alibi"], None] = None,
        slopes: Optional[Numbers] = None,
        decay: Union[DecayLike, Sequence[DecayLike], None] = None,
        method: Union[str, Sequence[str]] = "exact", scale: Optional[float] = None,
        eps: Optional[float] = None, window: Optional[Integers] = None,
        block: Optional[Integers] = None, scheme: Optional[str] = None,
        design: Optional[str] = None, samples: Optional[int] = None, seed: Optional[int] = None,
        threads: Optional[int] = None,
    ) -> None:
        self.options = {
            "undo": undo, "sigma": _plain(sigma), "slopes": _plain(slopes), "decay": decay,
            "method": method, "scale": scale, "eps": eps, "window": _plain(window),
            "block": _plain(block), "scheme": scheme, "design": design, "samples": samples,
            "seed": seed, "threads": threads}
        # Checks them; the number of heads is not known yet, except from options with one value per head.
        lists = [x for x in self.options.values() if isinstance(x, (list, tuple, np.ndarray))]
        Sequence_(max([1, *map(len, lists)]), 8, **{**self.options, "threads": threads or 0})
        self.sequences: list[Sequence_] = []
        self._bytes: dict[tuple[int, int], int] = {}  # of workspace, by sequences and tokens

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={x!r}" for name, x in self.options.items()
                          if x is not None and (name, x) != ("undo", 0))
        return f"<Cache of {len(self.sequences)} sequences, {len(self)} tokens: {given}>"

    def __len__(self) -> int:
        """Tokens of the longest sequence so far, dropped ones included."""
        return max(map(len, self.sequences), default=0)

    @property
    def nbytes(self) -> int:
        """Memory in use; memory that sequences share is counted for each."""
        return sum(x.nbytes for x in self.sequences)

    def step(self, q: Tensor, k: Tensor, v: Tensor,
             begins: Optional[Sequence[int]] = None) -> Tensor:
        """Appends tokens, [batch, heads, n, dim], and attends for them: as q, but v's dim.

        `begins`: the first row of each sequence that is no padding; the output there is 0.
        """
        q, k, v = self._checked(q, k, v)
        batch, heads, rows, _ = q.shape
        if not self.sequences and not batch:
            return q.new_empty((batch, heads, rows, v.shape[3]))
        if not self.sequences:
            self._make(q, k, v)
        first = self.sequences[0]
        if (len(self.sequences), first.heads, first.kv_heads, first.head_dim, first.value_dim) != \
                (batch, heads, k.shape[1], k.shape[3], v.shape[3]):
            raise ValueError(f"q, k, v: shapes {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}; "
                             f"the cache is of {len(self.sequences)} sequences of {first.heads} heads "
                             f"({first.kv_heads} of keys), {first.head_dim} and {first.value_dim} wide")
        o = torch.empty((batch, rows, heads, v.shape[3]), dtype=q.dtype).transpose(1, 2)
        first_rows = [(b, begins[b] if begins else 0) for b in range(batch)]
        for b, begin in first_rows:
            if begin:
                o[b, :, :begin] = 0
        self._step([x for x in first_rows if x[1] < rows], q, k, v, o)
        return o

    def _checked(self, *arrays: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        checked = []
        if all(isinstance(x, Tensor) for x in arrays):
            arrays = autocast(*arrays)
        for name, x in zip("qkv", arrays):
            if not isinstance(x, Tensor) or x.dim() != 4 or not x.is_cpu:
                raise TypeError(f"{name}: must be a tensor [batch, heads, n, dim] on the CPU")
            if x.shape[2] != arrays[0].shape[2] or x.dtype != arrays[0].dtype:
                raise ValueError(f"{name}: {x.shape[2]} tokens of {x.dtype}, must be as in q: "
                                 f"{arrays[0].shape[2]} of {arrays[0].dtype}")
            if torch.is_grad_enabled() and x.requires_grad:
                raise NotImplementedError(f"{name}: requires a gradient, which a cache has not; call "
                                          "it under torch.no_grad(), or train without a cache")
            refuse_unaligned({name: x.data_ptr()}, x.element_size())
            checked.append(x if x.stride(3) == 1 or x.shape[3] == 1 else x.contiguous())
        return checked[0], checked[1], checked[2]

    def _make(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        dtype = str(q.dtype).removeprefix("torch.")
        threads = self.options.get("threads") or torch.get_num_threads()
        self._dtype = q.dtype
        self.sequences = [
            Sequence_(q.shape[1], q.shape[3], kv_heads=k.shape[1], value_dim=v.shape[3], dtype=dtype,
                      **{**self.options, "threads": threads}) for _ in range(q.shape[0])]

    def _step(self, first_rows: list[tuple[int, int]], q: Tensor, k: Tensor, v: Tensor,
              o: Tensor) -> None:
        """The steps of the sequences, from their first rows on, all at once."""
        count, rows = len(first_rows), q.shape[2]
        if not count:
            return
        caches = ffi.new(_CACHES, [self.sequences[b].pointer for b, _ in first_rows])
        tokens, error = ffi.new(_TOKENS, count), ffi.new(_ERROR)
        dtype = DTYPES[str(q.dtype).removeprefix("torch.")]  # of o, too
        for token, (b, begin) in zip(tokens, first_rows):
            token.count, token.dtype, token.o_dtype = rows - begin, dtype, dtype
            token.q, token.q_layout = _address(q, b, begin), _layout(q)
            token.k, token.k_layout = _address(k, b, begin), _layout(k)
            token.v, token.v_layout = _address(v, b, begin), _layout(v)
            token.o, token.o_layout = _address(o, b, begin), _layout(o)
        size = self._bytes.get((count, rows))
        if size is None:
            found = ffi.new(_SIZE)
            check(lib.plsh_cache_workspace(caches, count, rows, found, error), error)
            size = self._bytes[count, rows] = int(found[0])
        tokens[0].workspace, tokens[0].workspace_bytes = workspace(size), size
        check(lib.plsh_cache_step_batch(caches, tokens, count, ffi.NULL, error), error)

    def select(self, rows: Sequence[int]) -> None:
        """Keeps the sequences of these numbers, in this order; one may be kept more than once."""
        forked = [self.sequences[b].fork() for b in rows]
        self.sequences = forked

    def truncate(self, count: int) -> None:
        """Removes the last `count` tokens of every sequence."""
        for sequence in self.sequences:
            sequence.truncate(len(sequence) - count)


def _plain(values: Any) -> Any:
    """Numbers of a tensor as a list."""
    return values.tolist() if isinstance(values, Tensor) else values


def _address(x: Tensor, b: int, row: int) -> Any:
    strides = x.stride()
    return pointer(x.data_ptr() + (b * strides[0] + row * strides[2]) * x.element_size())


def _layout(x: Tensor) -> tuple[int, int]:
    """Strides of heads and rows. That of a dimension of length 1 may be anything: it is replaced."""
    _, heads, rows, dim = x.shape
    _, head, row, _ = x.stride()
    row = row if rows > 1 else dim
    return (head if heads > 1 else rows * row), row
