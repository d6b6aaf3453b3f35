"""Decoding: the keys and values of the tokens so far, and attention over them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import Any, Literal, Optional, Union, cast

import numpy as np
import numpy.typing as npt

from plsh._attention import (
    Float32, Integers, Numbers, address, check_numbers, decays_of, describe, integers,
)
from plsh._decay import DecayLike
from plsh._library import check, ffi, lib, pointer
from plsh._options import check_used, heads_of
from plsh._plan import DTYPES, METHOD_WORDS, head_array, layout, method_words
from plsh._positions import point_shape, radius_of

__all__ = ["Cache"]


class Cache:
    """The tokens of one sequence in one layer; each step appends some and attends for them.

    The result is that of one causal pass over the whole sequence. Keys that no head can
    reach any more are dropped, so that "plsh", "window" and "fixed" decode in constant memory and
    time per token. Options are those of :func:`plsh.attention`; `dtype` is the type in which keys
    and values are stored; the last `undo` tokens can always be truncated. A cache belongs to one thread
    at a time, its forks are independent.

    With `position_dim` 1 to 3 positions are points, as in :func:`plsh.attention`: every token brings its own
    (`positions=` of :meth:`step` and :meth:`append`), shared by all heads or, with `position_sets=heads`, one
    set per head. `window` is then a radius, the sampled methods are refused, and all keys are kept.

    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((4, 100, 16), dtype=np.float32) for _ in range(3))
    >>> cache = Cache(heads=4, head_dim=16)
    >>> rows = [cache.step(q[:, t:t+1], k[:, t:t+1], v[:, t:t+1]) for t in range(100)]
    >>> import plsh
    >>> np.allclose(np.concatenate(rows, axis=1), plsh.attention(q, k, v), atol=1e-5)
    True
    """

    def __init__(
        self, heads: int, head_dim: int, *, kv_heads: Optional[int] = None,
        value_dim: Optional[int] = None, sigma: Union[Numbers, Literal["alibi"], None] = None,
        slopes: Optional[Numbers] = None,
        decay: Union[DecayLike, Sequence[DecayLike], None] = None,
        method: Union[str, Sequence[str]] = "exact", scale: Optional[float] = None,
        eps: Optional[float] = None, window: Union[Integers, Numbers, None] = None,
        block: Optional[Integers] = None, scheme: Optional[str] = None,
        design: Optional[str] = None, samples: Optional[int] = None, seed: Optional[int] = None,
        dtype: str = "float32", undo: int = 0, position_dim: int = 0, position_sets: int = 1,
        threads: int = 0, isa: str = "",
        path: Union[str, os.PathLike[str], None] = None,
    ) -> None:
        """`path` reads the tokens from a file that :meth:`save` wrote, with the same options."""
        self._options: dict[str, Any] = {
            "kv_heads": kv_heads, "value_dim": value_dim, "sigma": sigma, "slopes": slopes,
            "decay": decay, "method": method, "scale": scale, "eps": eps, "window": window,
            "block": block, "scheme": scheme, "design": design, "samples": samples, "seed": seed,
            "dtype": dtype, "undo": undo, "position_dim": position_dim,
            "position_sets": position_sets, "threads": threads, "isa": isa}
        if dtype not in DTYPES:
            raise ValueError(f"dtype={dtype!r}: is one of {', '.join(DTYPES)}")
        check_numbers(True, scale, eps, samples, seed, threads)
        words = method_words(method)
        check_used(words, {"eps": eps, "window": window, "block": block, "scheme": scheme,
                           "design": design, "samples": samples, "seed": seed})
        radius = radius_of(window) if position_dim else ()
        width = () if position_dim else integers("window", cast(Optional[Integers], window))
        options = heads_of(words, decays_of(heads, sigma, slopes, decay), eps, width,
                           integers("block", block), scheme, design, samples, seed, radius)
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.head_dim, self.value_dim = head_dim, value_dim or head_dim
        self.dtype = dtype
        self.position_dim, self.position_sets = position_dim, position_sets
        head, self._keep = head_array(options, heads, 1, None)
        name = ffi.new("char[]", isa.encode()) if isa else ffi.NULL
        config = ffi.new("plsh_cache_config *", {
            "heads": heads, "kv_heads": self.kv_heads, "head_dim": head_dim,
            "value_dim": self.value_dim, "dtype": DTYPES[dtype], "scale": scale or 0.0,
            "head": head, "head_count": heads, "undo": undo, "position_dim": position_dim,
            "position_sets": position_sets, "threads": threads, "isa": name,
        })
        made, error = ffi.new("plsh_cache **"), ffi.new("plsh_error *")
        if path is None:
            check(lib.plsh_cache_create(config, made, error), error)
        else:
            check(lib.plsh_cache_load(config, os.fsencode(path), made, error), error)
        self._own(made[0])

    def _own(self, pointer: Any) -> None:
        self.pointer = ffi.gc(pointer, lib.plsh_cache_destroy)

    def __repr__(self) -> str:
        method = self._options["method"]
        return (f"<Cache of {len(self)} tokens: heads={self.heads}, kv_heads={self.kv_heads}, "
                f"head_dim={self.head_dim}, value_dim={self.value_dim}, method={method!r}, "
                f"dtype={self.dtype!r}, {self.nbytes} bytes>")

    def __copy__(self) -> Cache:
        return self.fork()

    def __deepcopy__(self, _: Any) -> Cache:
        return self.fork()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as the file that :meth:`save` writes, and the options."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cache")
            self.save(path)
            with open(path, "rb") as file:
                return _load, (self.heads, self.head_dim, self._options, file.read())

    def __len__(self) -> int:
        """Tokens so far, dropped ones included."""
        return int(lib.plsh_cache_length(self.pointer))

    def _tokens(self, **arrays: Optional[npt.NDArray[Any]]) -> Any:
        """plsh_tokens of the arrays given, which must have the same number of rows."""
        shapes = {"q": (self.heads, self.head_dim), "k": (self.kv_heads, self.head_dim),
                  "v": (self.kv_heads, self.value_dim), "o": (self.heads, self.value_dim)}
        given = {name: x for name, x in arrays.items() if x is not None}
        rows = {x.shape[-2] for x in given.values() if isinstance(x, np.ndarray) and x.ndim == 3}
        tokens = ffi.new("plsh_tokens *")
        for name, x in given.items():
            found = describe(name, x)
            if x.ndim != 3 or (found.heads, found.dim) != shapes[name] or len(rows) != 1:
                heads, dim = shapes[name]
                raise ValueError(f"{name}: shape {x.shape}, must be [{heads}, tokens, {dim}] with as "
                                 "many tokens in all arrays")
            if name != "o" and x.dtype.name not in ("float32", self.dtype):
                raise TypeError(f"{name}: dtype {x.dtype.name}, must be float32, or the cache's own "
                                f"{self.dtype}")
            setattr(tokens, f"{name}_layout", layout(name, found, found.heads))
            setattr(tokens, name, pointer(address(x)))
        kinds = {x.dtype.name for name, x in given.items() if name != "o"}
        if len(kinds) != 1:
            raise TypeError(f"q, k, v: dtypes {', '.join(sorted(kinds))}; must be equal")
        tokens.count, tokens.dtype = rows.pop(), DTYPES[kinds.pop()]
        return tokens

    def _points(self, tokens: Any, positions: Optional[npt.ArrayLike]) -> Any:
        """Sets the positions of plsh_tokens; returns their array, which must live as long as the tokens."""
        if positions is None:
            return None
        if not self.position_dim:
            raise ValueError("positions: the cache counts rows; make it with position_dim=")
        points = np.asarray(positions, dtype=np.float32)
        found = point_shape("positions", points.shape, tokens.count, "tokens", 1, self.heads)
        if (found.sets, found.dim) != (self.position_sets, self.position_dim):
            raise ValueError(f"positions: {found.sets} sets of {found.dim} coordinates; the cache has "
                             f"{self.position_sets} of {self.position_dim}")
        points = np.ascontiguousarray(points)
        tokens.positions = pointer(address(points))
        return points

    def append(self, k: npt.NDArray[Any], v: npt.NDArray[Any], *,
               positions: Optional[npt.ArrayLike] = None) -> None:
        """Appends tokens, k [kv_heads, tokens, head_dim] and v, without attending."""
        error = ffi.new("plsh_error *")
        tokens = self._tokens(k=k, v=v)
        kept = self._points(tokens, positions)
        check(lib.plsh_cache_append(self.pointer, tokens, error), error)
        del kept

    def attend(self, q: npt.NDArray[Any]) -> Float32:
        """Attention of the queries of the last tokens, [heads, tokens, head_dim]."""
        return self._run(lib.plsh_cache_attend, q, None, None)

    def step(self, q: npt.NDArray[Any], k: npt.NDArray[Any], v: npt.NDArray[Any], *,
             positions: Optional[npt.ArrayLike] = None) -> Float32:
        """Appends tokens and attends for them: [heads, tokens, value_dim].

        `positions`, where they are points: [tokens], [tokens, D] or [heads, tokens, D].
        """
        return self._run(lib.plsh_cache_step, q, k, v, positions)

    def _run(self, function: Any, q: npt.NDArray[Any], k: Optional[npt.NDArray[Any]],
             v: Optional[npt.NDArray[Any]], positions: Optional[npt.ArrayLike] = None) -> Float32:
        rows = q.shape[1] if isinstance(q, np.ndarray) and q.ndim == 3 else 0
        o = np.empty((self.heads, rows, self.value_dim), dtype=np.float32)
        tokens = self._tokens(q=q, k=k, v=v, o=o)
        kept = self._points(tokens, positions)
        error = ffi.new("plsh_error *")
        check(function(self.pointer, tokens, ffi.NULL, error), error)
        del kept
        return o

    def fork(self) -> Cache:
        """A second cache with the same tokens; memory is shared until one of them writes to it."""
        made, error = ffi.new("plsh_cache **"), ffi.new("plsh_error *")
        check(lib.plsh_cache_fork(self.pointer, made, error), error)
        fork = Cache.__new__(Cache)
        fork.__dict__.update(self.__dict__)
        fork._own(made[0])
        return fork

    def truncate(self, length: int) -> None:
        """Forgets all tokens from position `length` on; not before :attr:`earliest`.

        >>> cache = Cache(heads=1, head_dim=4)
        >>> cache.append(np.ones((1, 5, 4), np.float32), np.ones((1, 5, 4), np.float32))
        >>> cache.truncate(3)
        >>> len(cache)
        3
        """
        error = ffi.new("plsh_error *")
        check(lib.plsh_cache_truncate(self.pointer, length, error), error)

    @property
    def earliest(self) -> int:
        """The shortest length that :meth:`truncate` can make."""
        return int(lib.plsh_cache_earliest(self.pointer))

    @property
    def nbytes(self) -> int:
        """Memory in use, shared with forks included."""
        return int(lib.plsh_cache_bytes(self.pointer))

    def first(self, head: int) -> int:
        """The first position whose key the head still has."""
        if not 0 <= head < self.heads:
            raise IndexError(f"head={head}: is one of 0..{self.heads - 1}")
        return int(lib.plsh_cache_first(self.pointer, head))

    @property
    def methods(self) -> tuple[str, ...]:
        """The method of each head, "auto" resolved."""
        return tuple(METHOD_WORDS[lib.plsh_cache_head(self.pointer, h, ffi.NULL).method]
                     for h in range(self.heads))

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the cache to a file, whole or not at all; Cache(..., path=...) reads it."""
        error = ffi.new("plsh_error *")
        check(lib.plsh_cache_save(self.pointer, os.fsencode(path), error), error)


def _load(heads: int, head_dim: int, options: dict[str, Any], data: bytes) -> Cache:
    """A cache from what :meth:`Cache.__reduce__` gave."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cache")
        with open(path, "wb") as file:
            file.write(data)
        return Cache(heads, head_dim, path=path, **options)
