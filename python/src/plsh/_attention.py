"""Attention on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict, Union, overload

import numpy as np
import numpy.typing as npt

from plsh._decay import Decay, DecayLike, alibi_slopes, as_decay
from plsh._library import ffi, lib
from plsh._options import (
    USED, as_count, as_number, as_scale, as_truth, check_one_bias, check_positive, check_slopes, check_used, heads_of,
)
from plsh._partition import check_labels
from plsh._plan import (
    DTYPES, Array, Call, Settings, cached_call, method_words, refuse_unaligned,
)
from plsh._positions import PointsCall, point_shape, radius_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["AttentionOptions", "Attended", "attend", "attention", "isa_available"]

Numbers = Union[float, Sequence[float], npt.NDArray[np.floating[Any]]]
Integers = Union[int, Sequence[int], npt.NDArray[np.integer[Any]]]
Float32 = npt.NDArray[np.float32]


class AttentionOptions(TypedDict, total=False):
    """The options of :func:`attention` that do not change what it returns."""

    sigma: Union[Numbers, Literal["alibi"], None]
    slopes: Optional[Numbers]
    decay: Union[DecayLike, Sequence[DecayLike], None]
    causal: bool
    scale: Optional[float]
    method: Union[str, Sequence[str]]
    eps: Optional[float]
    window: Union[Integers, Numbers, None]
    block: Optional[Integers]
    scheme: Optional[str]
    design: Optional[str]
    samples: Optional[int]
    seed: Optional[int]
    labels: Optional[npt.NDArray[np.int32]]
    query_offsets: Optional[Integers]
    key_offsets: Optional[Integers]
    threads: int
    isa: str
    check_finite: bool
    out: Optional[npt.NDArray[Any]]
    positions: Optional[npt.NDArray[np.floating[Any]]]
    query_positions: Optional[npt.NDArray[np.floating[Any]]]


_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(AttentionOptions.__annotations__), "causal": True, "method": "exact", "threads": 0,
    "isa": "", "check_finite": False}
_ADDRESS = ffi.typeof("uintptr_t")


def _complete(options: Any) -> dict[str, Any]:
    """The options, with defaults for those that are not given."""
    given = {**_DEFAULTS, **options}
    if len(given) > len(_DEFAULTS):
        wrong = next(name for name in given if name not in _DEFAULTS)
        raise TypeError(f"{wrong}: not an option; the options are {', '.join(_DEFAULTS)}, return_lse, certificate")
    return given


def describe(name: str, array: Any) -> Array:
    """Shape and strides of an argument, checked."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{name}: is {type(array).__name__}, must be a numpy array")
    if array.dtype.name not in DTYPES:
        raise TypeError(f"{name}: dtype {array.dtype.name}, must be float32, float16 or bfloat16; "
                        f"convert with {name}.astype(numpy.float32)")
    if not array.dtype.isnative:
        raise TypeError(f"{name}: its bytes are in foreign order; convert with "
                        f"{name}.astype({name}.dtype.newbyteorder('='))")
    if array.ndim not in (3, 4):
        raise ValueError(f"{name}: shape {array.shape}, must be [heads, n, dim] or "
                         "[batch, heads, n, dim]")
    size, strides = array.itemsize, array.strides
    if array.shape[-1] > 1 and strides[-1] != size and array.size:
        raise ValueError(f"{name}: its last dimension has stride {strides[-1]} bytes, must be "
                         f"{size} (adjacent elements); numpy.ascontiguousarray({name}) copies it so")
    if not array.flags.aligned:
        refuse_unaligned({name: address(array)}, size)
    if any(x % size for x in strides):
        raise ValueError(f"{name}: strides {strides} are not multiples of its element, {size} bytes")
    if array.size and any(n > 1 and x <= 0 for n, x in zip(array.shape, strides)):
        raise ValueError(f"{name}: repeated or reversed heads or rows (strides {strides}); "
                         f"numpy.ascontiguousarray({name}) copies it")
    shape = array.shape if array.ndim == 4 else (1, *array.shape)
    steps = [x // size for x in strides] if array.ndim == 4 else [0, *(x // size for x in strides)]
    return Array(*shape, *steps[:3])


def _floats(name: str, values: Numbers) -> tuple[float, ...]:
    try:
        flat = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise TypeError(f"{name}: must be one number, or one per head") from problem
    if flat.ndim > 1 or flat.size == 0:
        raise ValueError(f"{name}: shape {flat.shape}, must be one number, or one per head")
    return tuple(flat.ravel().tolist())


def integers(name: str, values: Union[Integers, Numbers, None]) -> tuple[int, ...]:
    if values is None:
        return ()
    flat = np.asarray(values)
    if flat.ndim > 1 or not np.issubdtype(flat.dtype, np.integer):
        raise TypeError(f"{name}: must be one integer, or a list of them")
    made: tuple[int, ...] = tuple(flat.ravel().tolist())
    if name in ("window", "block"):
        check_positive(name, made)
    return made


@lru_cache(maxsize=64)
def standard_sigmas(heads: int) -> tuple[float, ...]:
    """The standard ALiBi series as sigmas."""
    return tuple((1.0 / alibi_slopes(heads)).tolist())


def decays_of(heads: int, sigma: Union[Numbers, Literal["alibi"], None], slopes: Optional[Numbers],
              decay: Union[DecayLike, Sequence[DecayLike], None],
              ) -> Union[tuple[float, ...], tuple[Decay, ...]]:
    """The decays of sigma, slopes or decay; at most one of them is given."""
    check_one_bias(sigma, slopes, decay)
    if slopes is not None:
        values = _floats("slopes", slopes)
        check_slopes(values)
        return tuple(1.0 / x for x in values)
    if decay is None or decay == "alibi":
        if sigma is None or (isinstance(sigma, str) and sigma == "alibi"):
            return standard_sigmas(heads)
        return _floats("sigma", sigma)
    listed = [decay] if isinstance(decay, (Decay, str)) else list(decay)
    return tuple(as_decay(x) for x in listed)


@dataclass(frozen=True)
class Attended:
    """What :func:`attend` computed and did."""

    o: Float32  #: the output, [..., heads, queries, value_dim]; `out`, where one was given
    lse: Optional[Float32]  #: log-sum-exp of the scores with the bias, [..., heads, queries]
    #: for each row of o a proven bound on the largest entry of its error, [..., heads, queries]
    certificate: Optional[Float32]
    pairs: int  #: (query, key) pairs scored
    error_bound: float  #: the largest certificate entry
    methods: tuple[str, ...]  #: the method of each head, "auto" resolved
    reasons: tuple[str, ...]  #: for "auto": why
    isa: str  #: the instruction set used
    _call: Union[Call, PointsCall]
    _inputs: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
    _points: tuple[Optional[tuple[int, ...]], Optional[tuple[int, ...]]] = (None, None)  # their shapes

    def backward(self, do: Float32) -> Gradients:
        """Gradients of sum(o * do) by q, k, v and the parameters of the decays.

        The arrays given to :func:`attend` must be unchanged, and lse asked for.

        >>> rng = np.random.default_rng(0)
        >>> q, k, v = (rng.standard_normal((2, 50, 8), dtype=np.float32) for _ in range(3))
        >>> done = attend(q, k, v, sigma=[4.0, 16.0], return_lse=True)
        >>> gradients = done.backward(np.ones_like(done.o))
        >>> gradients.dq.shape, gradients.dsigma.shape
        ((2, 50, 8), (2,))
        """
        if self.lse is None:
            raise ValueError("backward: needs the log-sum-exp; call attend(..., return_lse=True)")
        if self.o.dtype != np.float32:
            raise ValueError(f"backward: needs o as float32; out was {self.o.dtype}")
        if not isinstance(do, np.ndarray) or do.dtype != np.float32 or do.shape != self.o.shape:
            raise ValueError(f"do: must be a float32 array of shape {self.o.shape}, as o")
        if do.strides != self.o.strides:
            raise ValueError(f"do: strides {do.strides}, must be those of o, {self.o.strides}")
        made = [_gradient_like(x) for x in self._inputs]
        ddecay = np.zeros((self._call.heads, 2))
        q, k, v = map(address, self._inputs)
        dq, dk, dv = map(address, made)
        o, lse, size = address(self.o), address(self.lse), self._inputs[0].itemsize
        if isinstance(self._call, PointsCall):
            wanted = not any(x in ("plsh", "masks", "mean") for x in self.methods)
            keys, queries, pairs = self._call.backward((q, k, v, o, lse, address(do)), (dq, dk, dv), ddecay,
                                                       wanted, size)
            return Gradients(made[0], made[1], made[2], ddecay, pairs, _folded(keys, self._points[0]),
                             _folded(queries, self._points[1]))
        outcome = self._call.backward(q, k, v, o, lse, address(do), dq, dk, dv, ddecay, size)
        return Gradients(made[0], made[1], made[2], ddecay, outcome.pairs)


@dataclass(frozen=True)
class Gradients:
    """Gradients of sum(o * do), float32."""

    dq: Float32
    dk: Float32
    dv: Float32
    ddecay: npt.NDArray[np.float64]  #: [heads, 2]: by the decay's two parameters
    pairs: int  #: (query, key) pairs scored
    #: by positions and query_positions, of their shapes; None without them, and for sampled methods,
    #: whose outputs are constant in them almost everywhere
    dpositions: Optional[Float32] = None
    dquery_positions: Optional[Float32] = None

    @property
    def dsigma(self) -> npt.NDArray[np.float64]:
        """By ALiBi's sigma: the first parameter of the decay."""
        return self.ddecay[:, 0]


def _folded(gradient: Optional[Float32], shape: Optional[tuple[int, ...]]) -> Optional[Float32]:
    """The gradient by positions of this shape: summed over batch entries or heads that share them."""
    if gradient is None or shape is None:
        return None
    full = (*shape, 1) if len(shape) == 1 else shape
    full = (1,) * (4 - len(full)) + full
    axes = tuple(i for i in (0, 1) if full[i] == 1 and gradient.shape[i] > 1)
    return np.asarray(gradient.sum(axis=axes, keepdims=True) if axes else gradient).reshape(shape)


def address(array: npt.NDArray[Any]) -> int:
    """The address of the first element; by the buffer protocol, which is faster, if the array supports it."""
    if array.flags.c_contiguous:
        return int(ffi.cast(_ADDRESS, ffi.from_buffer(array)))
    return int(array.__array_interface__["data"][0])


def _gradient_like(array: npt.NDArray[Any]) -> Float32:
    """An uninitialised float32 array with the strides, in elements, of `array`."""
    span = sum((n - 1) * x // array.itemsize for n, x in zip(array.shape, array.strides)) + 1
    memory = np.empty(span if array.size else 0, dtype=np.float32)
    steps = [4 * x // array.itemsize for x in array.strides]
    return np.lib.stride_tricks.as_strided(memory, array.shape, steps)


def attend(q: npt.NDArray[Any], k: npt.NDArray[Any], v: npt.NDArray[Any], *, return_lse: bool = False,
           certificate: bool = False, **options: Unpack[AttentionOptions]) -> Attended:
    """Attention with its statistics and gradients; :func:`attention` is the short form.

    Takes what :func:`attention` takes and returns an :class:`Attended`.

    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((8, 2048, 64), dtype=np.float32) for _ in range(3))
    >>> done = attend(q, k, v, method="exact")
    >>> done.pairs < 8 * 2048 * 2049 // 2       # less than every pair
    True
    >>> done.methods[0]
    'exact'
    """
    given = _complete(options)
    if given["positions"] is not None or given["query_positions"] is not None:
        return _attend_points((q, k, v), return_lse, certificate, given)
    call, o = _prepare(q, k, v, given)
    lse = np.empty(o.shape[:-1], dtype=np.float32) if return_lse else None
    bound = np.empty(o.shape[:-1], dtype=np.float32) if certificate else None
    outcome = call.forward(address(q), address(k), address(v), address(o), 0 if lse is None else address(lse),
                           0 if bound is None else address(bound), q.itemsize)
    heads = [call.plans[0].head(h) for h in range(call.heads)]
    return Attended(o, lse, bound, outcome.pairs, outcome.error_bound,
                    tuple(x for x, _ in heads), tuple(x for _, x in heads), call.plans[0].isa,
                    call, (q, k, v))


def _points(name: str, x: Any, rows: int, what: str, q: Array) -> Float32:
    """Positions as contiguous float32 [batch or 1, heads or 1, rows, dim]."""
    if not isinstance(x, np.ndarray) or not np.issubdtype(x.dtype, np.floating):
        raise TypeError(f"{name}: must be a numpy array of floats")
    return np.ascontiguousarray(x, dtype=np.float32).reshape(
        point_shape(name, x.shape, rows, what, q.batch, q.heads))


def _attend_points(inputs: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]], return_lse: bool,
                   certificate: bool, use: dict[str, Any]) -> Attended:
    """attend with positions. Each call makes a plan, because the order of its rows depends on them."""
    (q, k, v), positions, query_positions, out = inputs, use["positions"], use["query_positions"], use["out"]
    if positions is None:
        raise ValueError("query_positions: needs positions, of the keys")
    check_numbers(use["causal"], use["scale"], use["eps"], use["samples"], use["seed"], use["threads"])
    qa, ka, va = describe("q", q), describe("k", k), describe("v", v)
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q, k, v: dtypes {q.dtype}, {k.dtype}, {v.dtype}; must be equal")
    words, shape = method_words(use["method"]), (*q.shape[:-1], v.shape[-1])
    for name in ("labels", "block"):
        if use[name] is not None:
            raise ValueError(f"{name}: are of row numbers, not of positions; give one or the other")
    check_used(words, {name: use[name] for name in USED})
    if out is None:
        out = _output(shape, qa)
    else:
        _check_out(out, shape, inputs)
    keys_at = _points("positions", positions, ka.rows, "keys", qa)
    queries_at = None if query_positions is None else \
        _points("query_positions", query_positions, qa.rows, "queries", qa)
    options = heads_of(words, decays_of(qa.heads, use["sigma"], use["slopes"], use["decay"]), use["eps"], (), (),
                       use["scheme"] or "hyperplanes", use["design"], use["samples"], use["seed"],
                       radius_of(use["window"]))
    settings = Settings(use["causal"], as_scale(use["scale"]),
                        DTYPES[q.dtype.name], use["threads"], use["isa"], use["check_finite"],
                        integers("query_offsets", use["query_offsets"]),
                        integers("key_offsets", use["key_offsets"]), o_dtype=DTYPES[out.dtype.name])
    call = PointsCall((qa, ka, va, describe("out", out)), settings, options, keys_at, queries_at)
    lse = np.empty(shape[:-1], dtype=np.float32) if return_lse else None
    bound = np.empty(shape[:-1], dtype=np.float32) if certificate else None
    done = call.forward(address(q), address(k), address(v), address(out), 0 if lse is None else address(lse),
                        0 if bound is None else address(bound), q.itemsize, out.itemsize)
    heads = [call.plans[0].head(h) for h in range(call.heads)]
    return Attended(out, lse, bound, done.pairs, done.error_bound, tuple(x for x, _ in heads),
                    tuple(x for _, x in heads), call.plans[0].isa, call, inputs,
                    (positions.shape, None if query_positions is None else query_positions.shape))


def _hashable(option: Any) -> Any:
    """An option as part of a key: equal keys mean the same."""
    if isinstance(option, np.ndarray):
        return option.dtype.num, option.shape, option.tobytes()
    return tuple(option) if isinstance(option, (list, tuple)) else option


_calls: dict[Any, tuple[Call, Any]] = {}
_PLAIN = ("causal", "scale", "eps", "scheme", "design", "samples", "seed", "threads", "isa", "check_finite")
_LISTS = ("sigma", "slopes", "decay", "method", "window", "block", "query_offsets", "key_offsets")


def _prepare(q: npt.NDArray[Any], k: npt.NDArray[Any], v: npt.NDArray[Any],
             given: dict[str, Any]) -> tuple[Call, Float32]:
    """The call for these arguments, cached if they were checked before, and its output array."""
    if given["out"] is not None or given["labels"] is not None or not (
            type(q) is type(k) is type(v) is np.ndarray):  # noqa: E721 - subclasses are checked
        return _make(q, k, v, given)
    key = (q.shape, q.strides, q.dtype, k.shape, k.strides, k.dtype, v.shape, v.strides, v.dtype,
           *[given[name] for name in _PLAIN], *[_hashable(given[name]) for name in _LISTS])
    try:
        call, order = _calls[key]
    except TypeError:  # an option that is not hashable is refused, and the message names it
        return _make(q, k, v, given)
    except KeyError:
        call, o = _make(q, k, v, given)
        if len(_calls) >= 1024:
            _calls.clear()
        _calls[key] = call, o.flags.c_contiguous
        return call, o
    if order:
        return call, np.empty((*q.shape[:-1], v.shape[-1]), np.float32)
    return call, _rows_first((*q.shape[:-1], v.shape[-1]))


def check_numbers(causal: Any, scale: Any, eps: Any, samples: Any, seed: Any, threads: Any) -> None:
    as_count("threads", threads)
    for name, value in (("seed", seed), ("samples", samples)):
        if value is not None:
            as_count(name, value)
    if eps is not None:
        as_number("eps", eps)
    as_scale(scale)
    as_truth("causal", causal)


def _make(q: npt.NDArray[Any], k: npt.NDArray[Any], v: npt.NDArray[Any],
          use: dict[str, Any]) -> tuple[Call, Float32]:
    """Checks everything; the call for these arguments, and its output array."""
    check_numbers(use["causal"], use["scale"], use["eps"], use["samples"], use["seed"], use["threads"])
    qa, ka, va = describe("q", q), describe("k", k), describe("v", v)
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q, k, v: dtypes {q.dtype}, {k.dtype}, {v.dtype}; must be equal")
    if not q.ndim == k.ndim == v.ndim:
        raise ValueError(f"q, k, v: {q.ndim}, {k.ndim} and {v.ndim} dimensions; must be equal")
    shape, out, labels = (*q.shape[:-1], v.shape[-1]), use["out"], use["labels"]
    if out is None:
        out = _output(shape, qa)
    else:
        _check_out(out, shape, (q, k, v))
    words = method_words(use["method"])
    check_used(words, {name: use[name] for name in USED})
    options = heads_of(words, decays_of(qa.heads, use["sigma"], use["slopes"], use["decay"]), use["eps"],
                       integers("window", use["window"]), integers("block", use["block"]), use["scheme"],
                       use["design"], use["samples"], use["seed"])
    settings = Settings(use["causal"], as_scale(use["scale"]), DTYPES[q.dtype.name], use["threads"],
                        use["isa"], use["check_finite"], integers("query_offsets", use["query_offsets"]),
                        integers("key_offsets", use["key_offsets"]), o_dtype=DTYPES[out.dtype.name])
    oa = describe("out", out)
    if labels is None:
        return cached_call(qa, ka, va, oa, settings, options), out
    heads = check_labels(labels, 3)[0]
    if heads not in (1, qa.heads):
        raise ValueError(f"labels: of {heads} heads, must be of 1 or of all {qa.heads}")
    return Call(qa, ka, va, oa, settings, options, labels), out


def _check_out(out: Any, shape: tuple[int, ...], inputs: tuple[npt.NDArray[Any], ...]) -> None:
    if not isinstance(out, np.ndarray) or out.shape != shape or \
            out.dtype not in (np.float32, inputs[0].dtype):
        kinds = " or ".join(dict.fromkeys(("float32", inputs[0].dtype.name)))
        raise ValueError(f"out: must be a {kinds} array of shape {shape}")
    if not out.flags.writeable:
        raise ValueError("out: is read-only")
    for name, x in zip("qkv", inputs):
        if np.shares_memory(out, x):
            raise ValueError(f"out: shares memory with {name}; it needs memory of its own")


def _output(shape: tuple[int, ...], q: Array) -> Float32:
    """A new output array, heads and rows in memory as they are in q."""
    if q.head_stride < q.row_stride and q.heads > 1 and q.rows > 1:
        return _rows_first(shape)
    return np.empty(shape, dtype=np.float32)


def _rows_first(shape: tuple[int, ...]) -> Float32:
    """[..., heads, rows, dim] that lies in memory as [..., rows, heads, dim]."""
    order = (*shape[:-3], shape[-2], shape[-3], shape[-1])
    return np.empty(order, dtype=np.float32).swapaxes(-2, -3)


@overload
def attention(q: npt.NDArray[Any], k: npt.NDArray[Any], v: npt.NDArray[Any], *,
              return_lse: Literal[False] = ..., certificate: Literal[False] = ...,
              **options: Unpack[AttentionOptions]) -> Float32: ...
@overload
def attention(q: npt.NDArray[Any], k: npt.NDArray[Any], v: npt.NDArray[Any], *,
              return_lse: Literal[True], certificate: Literal[False] = ...,
              **options: Unpack[AttentionOptions]) -> tuple[Float32, Float32]: ...
@overload
def attention(q: npt.NDArray[Any], k: npt.NDArray[Any], v: npt.NDArray[Any], *,
              return_lse: Literal[False] = ..., certificate: Literal[True],
              **options: Unpack[AttentionOptions]) -> tuple[Float32, Float32]: ...
@overload
def attention(q: npt.NDArray[Any], k: npt.NDArray[Any], v: npt.NDArray[Any], *,
              return_lse: Literal[True], certificate: Literal[True],
              **options: Unpack[AttentionOptions]) -> tuple[Float32, Float32, Float32]: ...
def attention(q: npt.NDArray[Any], k: npt.NDArray[Any], v: npt.NDArray[Any], *, return_lse: bool = False,
              certificate: bool = False, **options: Unpack[AttentionOptions],
              ) -> Union[Float32, tuple[Float32, ...]]:
    """softmax(scale q k^T + log k(|i - j|)) v, near-linear in the context length.

    Arrays are [heads, n, dim] or [batch, heads, n, dim], float32, float16 or bfloat16, of any
    strides except in the last dimension, whose elements are adjacent; they are not copied. k and v
    may have fewer heads (grouped queries) and more rows (the queries are the last positions). The
    output is float32, or written to the array `out`: float32, or the type of q. The GIL is released
    during the call.

    Options have the names of the command line:

    - `sigma`, one number or one per head, or `slopes` = 1/sigma, or `decay`; without any of them
      the standard ALiBi series for the number of heads.
    - `method`: "exact" (to float rounding), "dense", "plsh" (sampled, `samples` partitions of `scheme`,
      `design` and `seed`; without them 20, "integer", "stratified" and 1), "masks", "mean",
      "window" (of `window` positions; without it 27 sigma), "fixed" (blocks of `block`; without it
      2 sigma; no bias), "none" (no bias), "auto"; one, or one per head. Options that none of these
      methods uses are refused.
    - `eps`: what "exact" may leave out, relative to a row's sum; 0 means 2^-24.
    - `labels`: int32 [heads, samples, n], partitions of your own for the sampled methods.
    - `query_offsets`, `key_offsets`: packed sequences; x has rows offsets[x]..offsets[x+1]-1.
    - `check_finite`: refuse NaN and Inf, naming the first one.
    - `positions` of the keys, [n], [n, D], [heads, n, D] or [batch, heads, n, D] with D = 1 to 3: the bias
      is log k(|x_i - y_j|) of the Euclidean distance; `query_positions` are those of the queries,
      otherwise the last keys'. NaN is no position: bias 0. `window` is then a radius, a real number, and
      the scheme "hyperplanes". Causality remains a matter of the row.

    Returns o, or (o, lse), (o, certificate), (o, lse, certificate) as asked for. The certificate
    of a row is a proven bound on the largest entry of its error, max |o - exact| over the row,
    float rounding included.

    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((4, 1000, 32), dtype=np.float32) for _ in range(3))
    >>> o = attention(q, k, v, sigma=[4, 16, 64, 256])
    >>> o.shape
    (4, 1000, 32)
    >>> sampled, bound = attention(q, k, v, sigma=[4, 16, 64, 256], method="plsh", samples=64,
    ...                            certificate=True)
    >>> bool((abs(sampled - o).max(axis=-1) <= bound + 1e-6).all())
    True
    """
    given = _complete(options)
    if given["positions"] is not None or given["query_positions"] is not None:
        done = _attend_points((q, k, v), return_lse, certificate, given)
        parts = tuple(x for x in (done.o, done.lse, done.certificate) if x is not None)
        return parts if len(parts) > 1 else done.o
    call, o = _prepare(q, k, v, given)
    lse = np.empty(o.shape[:-1], dtype=np.float32) if return_lse else None
    bound = np.empty(o.shape[:-1], dtype=np.float32) if certificate else None
    call.forward(address(q), address(k), address(v), address(o), 0 if lse is None else address(lse),
                 0 if bound is None else address(bound), q.itemsize)
    if lse is None and bound is None:
        return o
    return tuple(x for x in (o, lse, bound) if x is not None)


def isa_available() -> list[str]:
    """The instruction sets this machine can run, best first.

    >>> isa_available()[-1]
    'reference'
    """
    names = lib.plsh_isa_available()
    found: list[str] = []
    while names[len(found)] != ffi.NULL:
        found.append(ffi.string(names[len(found)]).decode())
    return found
