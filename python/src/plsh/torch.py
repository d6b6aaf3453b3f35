"""Attention on PyTorch tensors: a registered operator with gradients.

    >>> import torch, plsh.torch
    >>> q, k, v = (torch.randn(1, 8, 512, 64, requires_grad=True) for _ in range(3))
    >>> o = plsh.torch.attention(q, k, v)           # ALiBi, exact, causal
    >>> o.sum().backward()
    >>> q.grad.shape
    torch.Size([1, 8, 512, 64])

The operators are `torch.ops.plsh.attention` and `torch.ops.plsh.attention_backward`. They have
fake kernels, so torch.compile takes them into its graphs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Optional, Union, overload

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from plsh import _fused
from plsh._attention import standard_sigmas
from plsh._decay import Decay, DecayLike, parse_decay
from plsh._fused import nothing_watches
from plsh._plan import DTYPES, Array, Call, Options, Settings, method_words
from plsh._torch_cache import Cache

__all__ = ["ALiBiAttention", "Cache", "attention", "merge", "padding_spans",
           "segment_spans"]

Numbers = Union[float, Sequence[float], Tensor]
Integers = Union[int, Sequence[int]]
_SCALAR = (int, float, np.number)
Form = tuple[torch.Size, tuple[int, ...], torch.dtype]

_DTYPES = {
    torch.float32: DTYPES["float32"],
    torch.float16: DTYPES["float16"],
    torch.bfloat16: DTYPES["bfloat16"],
}

# What both operators take beside their arrays: the numbers of the decays, as a tensor
# (`parameters`) or not (`constants`): ALiBi's sigma, or the a and b of another decay, of one head or
# of each, or none for the standard series; `spans`: int64 [batch, 3], see padding_spans, or
# [batch, n, 1], see segment_spans. The numbers that a program may change from call to call are
# arguments, so that torch.compile can follow them; the other options are the words of _Words in one
# string, because an argument costs the dispatcher about a microsecond.
_COMMON = ("Tensor? parameters, Tensor? spans, float[] constants, float scale, SymInt seed, "
           "str options")

_library: Any = torch.library.Library("plsh", "DEF")  # type: ignore[no-untyped-call]
_library.define(f"attention(Tensor q, Tensor k, Tensor v, {_COMMON}) -> (Tensor o, Tensor lse)")
_library.define("attention_backward(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, "
                f"Tensor lse, bool need_parameters, {_COMMON}) "
                "-> (Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_parameters)")
_library.define("padding_spans(Tensor mask, Tensor? length) -> Tensor")


class _Words(NamedTuple):
    """The options of the operators."""

    decay: str
    limit: float
    table: tuple[float, ...]
    threads: Optional[int]  # None: as many as torch has
    settings: Settings
    options: Options


def _write(method: Sequence[str], decay: str, limit: float, table: Sequence[float], causal: bool,
           eps: float, window: Sequence[int], block: Sequence[int], scheme: str, design: str,
           samples: int, threads: Optional[int], query_offsets: Sequence[int],
           key_offsets: Sequence[int]) -> str:
    """The options as one string; numbers are written so that they are read back to the bit."""
    return (f"{_join(method)} {decay} {limit} {_join(table)} {causal} {eps} {_join(window)} "
            f"{_join(block)} {scheme} {design} {samples} {threads} {_join(query_offsets)} "
            f"{_join(key_offsets)}")


def _join(values: Union[Sequence[str], Sequence[int], Sequence[float]]) -> str:
    return ",".join([str(x) for x in values])


_FIELDS = ("method", "decay", "limit", "table", "causal", "eps", "window", "block", "scheme",
           "design", "samples", "threads", "query_offsets", "key_offsets")
_TRUTH = {"True": True, "1": True, "False": False, "0": False}


@lru_cache(maxsize=256)
def _read(words: str) -> _Words:
    """What _write wrote, checked."""
    text = dict(zip(_FIELDS, words.split(" ")))
    if words.count(" ") + 1 != len(_FIELDS):
        raise ValueError(f"options {words!r}: have {len(_FIELDS)} fields, {', '.join(_FIELDS)}")

    def numbers(name: str, kind: type = int) -> tuple[Any, ...]:
        try:
            return tuple(map(kind, text[name].split(","))) if text[name] else ()
        except ValueError:
            wanted = "an integer" if kind is int else "a number"
            raise TypeError(f"{name}={text[name]}: must be {wanted}") from None

    if text["causal"] not in _TRUTH:
        raise TypeError(f"causal={text['causal']}: must be True or False")
    for name in ("window", "block"):
        if any(x < 1 for x in numbers(name)):
            raise ValueError(f"{name}={text[name]}: is positive")
    settings = Settings(_TRUTH[text["causal"]], 0.0, 0, 0, "", False, numbers("query_offsets"),
                        numbers("key_offsets"))
    options = Options(tuple(text["method"].split(",")), (), numbers("eps", float)[0],
                      numbers("window"), numbers("block"), text["scheme"], text["design"],
                      numbers("samples")[0])
    return _Words(text["decay"], numbers("limit", float)[0], numbers("table", float),
                  None if text["threads"] == "None" else numbers("threads")[0], settings, options)


def _describe(name: str, shape: torch.Size, strides: tuple[int, ...], dtype: torch.dtype) -> Array:
    """Shape and strides of an argument, checked."""
    if dtype not in _DTYPES:
        raise TypeError(f"{name}: {dtype}, must be float32, float16 or bfloat16; convert with "
                        f"{name}.float()")
    if len(shape) != 4:
        raise ValueError(f"{name}: shape {tuple(shape)}, must be [batch, heads, n, dim]")
    some = 0 not in shape
    if shape[3] > 1 and strides[3] != 1 and some:
        raise ValueError(f"{name}: its last dimension has stride {strides[3]}, must be 1 (adjacent "
                         f"elements); {name}.contiguous() copies it so")
    if some and any(n > 1 and not s for n, s in zip(shape, strides)):
        raise ValueError(f"{name}: repeated (expanded) heads or rows; pass fewer heads as they "
                         f"are, groups of queries share them, or {name}.contiguous()")
    return Array(*shape, *strides[:3])


def _new_outputs(q: Tensor, k: Tensor, v: Tensor, *common: Any) -> tuple[Tensor, Tensor]:
    """o, float32, heads and rows in memory as they are in q, and the log-sum-exp of its rows."""
    batch, heads, rows, _ = q.shape
    lse = q.new_empty((batch, heads, rows), dtype=torch.float32)
    if q.stride(1) < q.stride(2):
        o = q.new_empty((batch, rows, heads, v.shape[3]), dtype=torch.float32)
        return o.transpose(1, 2), lse
    return q.new_empty((batch, heads, rows, v.shape[3]), dtype=torch.float32), lse


class _Common(NamedTuple):
    """What both operators take beside their arrays, as a key."""

    numbers: tuple[float, ...]  # of the decays
    edges: tuple[tuple[int, ...], ...]  # of the sequences of each batch entry
    keys: int  # in use; 0: all
    scale: float
    seed: int
    options: str
    threads: int  # of torch

    def decays(self, heads: int, words: _Words) -> Union[tuple[float, ...], tuple[Decay, ...]]:
        """The decays of the heads; numbers are ALiBi's sigmas."""
        if words.decay == "alibi" and not words.limit:
            return self.numbers or standard_sigmas(heads)
        return tuple(Decay(words.decay, a, b, words.limit, words.table)
                     for a, b in zip(self.numbers[::2], self.numbers[1::2]))


@lru_cache(maxsize=256)
def _find_call(q: Form, k: Form, v: Form, o: Form, common: _Common) -> Call:
    """The call for arrays of these forms, made once."""
    qa, ka, va, oa = (_describe(name, *x) for name, x in zip("qkvo", (q, k, v, o)))
    if not q[2] == k[2] == v[2]:
        raise TypeError(f"q, k, v: {q[2]}, {k[2]}, {v[2]}; must be equal")
    words = _read(common.options)
    settings = words.settings._replace(
        dtype=_DTYPES[q[2]], scale=common.scale, edges=common.edges,
        threads=common.threads if words.threads is None else words.threads)
    if common.edges and len(common.edges) != qa.batch:
        raise ValueError(f"spans: of {len(common.edges)} batch entries, must be of {qa.batch}")
    if common.keys > ka.rows:
        raise ValueError(f"spans: {common.keys} keys in use, must be at most the {ka.rows} of k")
    if common.keys:
        ka, va = ka._replace(rows=common.keys), va._replace(rows=common.keys)
    return Call(qa, ka, va, oa, settings, words.options._replace(
        decay=common.decays(qa.heads, words), seed=common.seed % 2**64))


def _form(x: Tensor) -> Form:
    return x.shape, x.stride(), x.dtype


def _edges_of(spans: Tensor) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Where the sequences of each batch entry end, and the number of keys in use.

    Entries that are one sequence each are no sequences at all: such a call is the plain one.
    """
    if spans.dim() == 3:
        keys = spans.shape[1]
        listed = [tuple((row.diff(dim=0).flatten().nonzero().flatten() + 1).tolist())
                  for row in spans]
    else:
        rows = spans.tolist()
        keys = rows[0][2] if rows else 0
        for begin, end, used in rows:
            if not 0 <= begin <= end <= used == keys:
                raise ValueError(f"spans: {[begin, end, used]}; must be first token, end of the "
                                 "tokens, number of keys in use, the same for all")
        listed = [(begin, end) for begin, end, _ in rows]
    if all(not 0 < x < keys for entry in listed for x in entry):
        listed = []
    return tuple(listed), keys


def _call_of(q: Tensor, k: Tensor, v: Tensor, o: Tensor, parameters: Optional[Tensor],
             spans: Optional[Tensor], constants: Sequence[float], scale: float, seed: int,
             options: str) -> Call:
    """The call for the arguments of the operators."""
    edges, keys = ((), 0) if spans is None else _edges_of(spans)
    common = _Common(tuple(constants if parameters is None else parameters.reshape(-1).tolist()),
                     edges, keys, scale, seed, options, torch.get_num_threads())
    return _find_call(_form(q), _form(k), _form(v), _form(o), common)


def _forward(q: Tensor, k: Tensor, v: Tensor, *common: Any) -> tuple[Tensor, Tensor]:
    o, lse = _new_outputs(q, k, v)
    _call_of(q, k, v, o, *common).forward(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(),
                                          lse.data_ptr(), 0, q.element_size())
    return o, lse


def _gradients_like(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Uninitialised float32 tensors with the strides of the inputs, as the library wants them."""
    d_q, d_k, d_v = (torch.empty_strided(x.shape, x.stride(), dtype=torch.float32, device=x.device)
                     for x in (q, k, v))
    return d_q, d_k, d_v


def _differentiate(gradients: Sequence[Tensor], d_o: Tensor, q: Tensor, k: Tensor, v: Tensor,
                   o: Tensor, lse: Tensor, need_parameters: bool, *common: Any) -> Tensor:
    """Writes the gradients of q, k and v, and returns that of the parameters."""
    call = _call_of(q, k, v, o, *common)
    lse = lse.contiguous()
    if d_o.stride() != o.stride() or d_o.dtype != torch.float32:
        d_o = torch.empty_strided(o.shape, o.stride(), dtype=torch.float32).copy_(d_o)
    d_q, d_k, d_v = gradients
    if call.keys < k.shape[2]:  # of a longer cache: spans say how many are in use
        d_k.zero_()
        d_v.zero_()
    d_decay = np.zeros((call.heads, 2)) if need_parameters else None
    call.backward(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse.data_ptr(),
                  d_o.data_ptr(), d_q.data_ptr(), d_k.data_ptr(), d_v.data_ptr(), d_decay,
                  q.element_size())
    parameters = common[0]
    return torch.from_numpy(np.empty(0) if d_decay is None else
                            d_decay[:, 0].copy() if parameters.dim() == 1 else d_decay)


def _backward(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor,
              *more: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_q, d_k, d_v = _gradients_like(q, k, v)
    d_parameters = _differentiate((d_q, d_k, d_v), d_o, q, k, v, *more)
    return d_q.to(q.dtype), d_k.to(k.dtype), d_v.to(v.dtype), d_parameters


def _backward_directly(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor,
                       *more: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same; where q, k and v fill the rows of one tensor, their gradients fill another's."""
    rows = _fused.find((q, k, v))
    if rows is None:
        return _backward(d_o, q, k, v, *more)
    begin, width = rows
    whole = torch.empty((q.shape[0], q.shape[2], width), dtype=torch.float32)
    d_parameters = _differentiate(_fused.views(whole, (q, k, v), begin), d_o, q, k, v, *more)
    d_q, d_k, d_v = _fused.views(whole.to(q.dtype), (q, k, v), begin)
    return d_q, d_k, d_v, d_parameters


def _backward_fake(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
                   need_parameters: bool, *common: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_q, d_k, d_v = _gradients_like(q, k, v)
    d_parameters = q.new_empty(common[0].shape if need_parameters else 0, dtype=torch.float64)
    return d_q.to(q.dtype), d_k.to(k.dtype), d_v.to(v.dtype), d_parameters


class _Recorded(torch.autograd.Function):
    """The operator, its gradients recorded."""

    @staticmethod
    def forward(ctx: Any, keys: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        q, k, v, parameters, spans, *ctx.numbers = inputs
        o, lse = _forward(*inputs) if keys is None else _below_autograd(keys, *inputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, o, lse, parameters, spans)
        return o, lse

    @staticmethod
    def backward(ctx: Any, d_o: Optional[Tensor], d_lse: Optional[Tensor]) -> Any:
        q, k, v, o, lse, *tensors = ctx.saved_tensors
        more = (ctx.needs_input_grad[4], *tensors, *ctx.numbers)
        found: list[Optional[Tensor]] = [None] * 4
        if d_o is not None:
            run = _backward_directly if nothing_watches(d_o) and not torch.is_grad_enabled() else \
                torch.ops.plsh.attention_backward
            found = list(run(d_o.to(torch.float32), q, k, v, o, lse, *more))
        if d_lse is not None:
            added = _differentiate_lse(d_lse, q, k, lse, *more)
            found = [x if y is None else y if x is None else x + y for x, y in zip(found, added)]
        if not ctx.needs_input_grad[4]:
            found[3] = None
        return (None, *found, *[None] * (1 + len(ctx.numbers)))


class _Once(torch.autograd.Function):
    """The gradients, which have no derivative of their own: whoever asks for it is told."""

    @staticmethod
    def forward(ctx: Any, keys: Any, *inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return _backward_operator.redispatch(keys & torch._C._after_autograd_keyset, *inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError("plsh.torch.attention: has first derivatives only; a second one "
                                  "(hessian, hvp, a gradient penalty) needs another attention")


def _below_autograd(keys: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
    with torch._C._AutoDispatchBelowAutograd():
        o, lse = _operator.redispatch(keys & torch._C._after_autograd_keyset, *inputs)
    return o, lse


def _refuse_tangents(inputs: Sequence[Any]) -> None:
    """Forward-mode derivatives would be dropped below autograd, which is to say 0."""
    unpack: Any = forward_ad.unpack_dual
    if any(isinstance(x, Tensor) and unpack(x).tangent is not None for x in inputs):
        raise NotImplementedError("plsh.torch.attention: has no forward-mode derivative (jvp, "
                                  "jacfwd); gradients by backward() and torch.autograd.grad it has")


def _autograd(keys: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
    """What torch.library.register_autograd would make, without the 15 us it takes per call."""
    if forward_ad._current_level >= 0:
        _refuse_tangents(inputs)
    if torch.is_grad_enabled() and torch._C._any_requires_grad(*inputs):
        if torch._C._are_functorch_transforms_active():
            raise NotImplementedError("plsh.torch.attention: has no derivatives by torch.func (grad, vjp, "
                                      "jacrev, hessian); those of backward(), torch.autograd.grad and "
                                      "torch.autograd.functional it has")
        return _Recorded.apply(keys, *inputs)  # type: ignore[no-any-return, no-untyped-call]
    return _below_autograd(keys, *inputs)


def _backward_autograd(keys: Any, *inputs: Any) -> Any:
    return _Once.apply(keys, *inputs)  # type: ignore[no-untyped-call]


def _directly(*inputs: Any) -> tuple[Tensor, Tensor]:
    """The operator without torch's dispatcher, which takes about as long as the rest of a call."""
    if torch.is_grad_enabled() and torch._C._any_requires_grad(*inputs):
        return _Recorded.apply(None, *inputs)  # type: ignore[no-any-return, no-untyped-call]
    return _forward(*inputs)


def _differentiate_lse(d_lse: Tensor, q: Tensor, k: Tensor, lse: Tensor, need_parameters: bool,
                       *common: Any) -> tuple[Tensor, Tensor, None, Tensor]:
    """What the log-sum-exp adds to the gradients of q, k and the parameters: dS_ij = P_ij d_lse_i.

    dQ is scale d_lse_i sum_j P_ij k_j: attention to the keys themselves. The rest is a backward
    pass on values 1 with d_o = d_lse, told that o is 0 (the truth is 1, and would cancel it).
    """
    scale = common[3] or q.shape[3] ** -0.5
    weight = d_lse.unsqueeze(3).to(torch.float32)
    mean = torch.ops.plsh.attention(q, k, k, *common)[0]
    one = torch.ones_like(k[..., :1])
    o = _new_outputs(q, k, one)[0].zero_()
    _, d_k, _, d_parameters = torch.ops.plsh.attention_backward(
        weight, q, k, one, o, lse, need_parameters, *common)
    return (scale * weight * mean).to(q.dtype), d_k, None, d_parameters


def _padding_spans(mask: Tensor, length: Optional[Tensor]) -> Tensor:
    if mask.dim() != 2:
        raise ValueError(f"mask: shape {tuple(mask.shape)}, must be [batch, n], 1 where a token is")
    valid = mask.to(torch.bool)
    if length is not None:
        if not 0 <= int(length) <= mask.shape[1]:
            raise ValueError(f"mask: of {mask.shape[1]} tokens, must be of all {int(length)}, those "
                             "in the cache too")
        valid = valid[:, :int(length)]
    count = valid.sum(dim=1)
    begin = torch.where(count > 0, valid.to(torch.uint8).argmax(dim=1), 0) if valid.shape[1] else count
    end = begin + count
    position = torch.arange(valid.shape[1])
    wrong = (valid != ((position >= begin[:, None]) & (position < end[:, None]))).any(dim=1)
    if bool(wrong.any()):
        raise ValueError(f"mask: row {int(wrong.nonzero()[0])} has tokens on both sides of padding; "
                         "the tokens of a row must be adjacent (padding to the left or to the right)")
    return torch.stack([begin, end, torch.full_like(begin, valid.shape[1])], dim=1)


def _padding_spans_fake(mask: Tensor, length: Optional[Tensor]) -> Tensor:
    return mask.new_empty((mask.shape[0], 3), dtype=torch.int64)


_library.impl("attention", _forward, "CPU")
_library.impl("attention_backward", _backward, "CPU")
_library.impl("padding_spans", _padding_spans, "CPU")
torch.library.register_fake("plsh::attention", _new_outputs, lib=_library)
torch.library.register_fake("plsh::attention_backward", _backward_fake, lib=_library)
torch.library.register_fake("plsh::padding_spans", _padding_spans_fake, lib=_library)
_library.impl("attention", _autograd, "Autograd", with_keyset=True)
_library.impl("attention_backward", _backward_autograd, "Autograd", with_keyset=True)
_operator = torch.ops.plsh.attention.default
_backward_operator = torch.ops.plsh.attention_backward.default


def padding_spans(mask: Tensor) -> Tensor:
    """What the `spans` of :func:`attention` are for a padding mask [batch, n], 1 where a token is.

    int64 [batch, 3]: first token, end of the tokens, number of keys in use. Tokens of a row must
    be adjacent: padding on the left, on the right, or both.

    >>> padding_spans(torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]]))
    tensor([[1, 4, 4],
            [0, 2, 4]])
    """
    spans: Tensor = torch.ops.plsh.padding_spans(mask, None)
    return spans


def segment_spans(segments: Tensor) -> Tensor:
    """What the `spans` of :func:`attention` are for packed sequences.

    `segments` is an integer tensor [batch, n], the same number for adjacent tokens that belong
    together. A token attends to its own sequence alone.

    >>> segment_spans(torch.tensor([[0, 0, 0, 1, 1]])).shape
    torch.Size([1, 5, 1])
    """
    if segments.dim() != 2 or segments.is_floating_point():
        raise TypeError(f"segments: {segments.dtype} of shape {tuple(segments.shape)}, must be "
                        "integers [batch, n]")
    return segments.to(torch.int64).unsqueeze(2)


def merge(outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs of the s masks made one: o of M~, and its log-sum-exp.

    `outputs` is [s, ..., n, dim] and `lses` [s, ..., n], the log-sum-exps of the rows: what s passes
    of any attention without a bias give, one pass for the blocks of each draw
    (:meth:`plsh.Partition.cu_seqlens`). With gradients.

    >>> o, lse = merge(torch.ones(3, 2, 5, 8), torch.zeros(3, 2, 5))
    >>> o.shape, lse.shape
    (torch.Size([2, 5, 8]), torch.Size([2, 5]))
    """
    if outputs.shape[:-1] != lses.shape:
        raise ValueError(f"lses: shape {tuple(lses.shape)}, must be that of outputs but for the last "
                         f"dimension, {tuple(outputs.shape[:-1])}")
    lse = lses.float().logsumexp(dim=0)
    weight = (lses.float() - lse).exp().unsqueeze(-1)
    return (weight * outputs).sum(dim=0).to(outputs.dtype), lse - math.log(lses.shape[0])


class _Decays(NamedTuple):
    """What sigma, slopes, decay and parameters say together, as the operators take it."""

    parameters: Optional[Tensor] = None
    kind: str = "alibi"
    constants: Sequence[float] = ()
    limit: float = 0.0
    table: Sequence[float] = ()


def _decays_of(heads: int, sigma: Union[Numbers, Literal["alibi"], None], slopes: Optional[Numbers],
               decay: Optional[DecayLike], parameters: Optional[Tensor]) -> _Decays:
    if (sigma is not None) + (slopes is not None) + (decay is not None) > 1:
        raise ValueError("sigma, slopes, decay: give at most one of the three")
    if parameters is not None:
        if not isinstance(parameters, Tensor) or not isinstance(decay, str) or \
                parameters.shape != (heads, 2):
            raise ValueError(f"parameters: must be a tensor [heads, 2] = [{heads}, 2], with decay "
                             "the name of a kind, as 'kerple-log'")
        numbers = parameters[:, 0] if decay == "alibi" else parameters
        return _Decays(numbers.to(torch.float64), decay)
    if isinstance(decay, Decay):
        pair = [decay.a] if decay.kind == "alibi" and not decay.limit else [decay.a, decay.b]
        return _Decays(None, decay.kind, pair, decay.limit, decay.entries)
    if decay is not None and not isinstance(decay, str):
        raise TypeError(f"decay: is {type(decay).__name__}, must be a plsh.Decay or its words, one "
                        "for all heads")
    if decay is not None and decay != "alibi":
        kind, a, b = parse_decay(decay)
        return _Decays(None, kind, [a] if kind == "alibi" else [a, b])
    name, values = ("sigma", sigma) if slopes is None else ("slopes", slopes)
    if values is None or (isinstance(values, str) and values == "alibi"):
        return _Decays()
    if isinstance(values, Tensor):
        x = values.to(torch.float64).reshape(-1)
        _check_count(name, x.shape[0], heads)
        return _Decays((x if slopes is None else 1.0 / x).expand(heads))
    try:
        listed = [float(x) for x in ([values] if isinstance(values, _SCALAR) else values)]
    except (TypeError, ValueError):
        raise TypeError(f"{name}: must be one number, or one per head") from None
    _check_count(name, len(listed), heads)
    if slopes is not None and not all(x > 0 for x in listed):
        raise ValueError(f"slopes={listed}: are positive (method='none' has no bias)")
    return _Decays(constants=listed if slopes is None else [1.0 / x for x in listed])


def _check_count(name: str, count: int, heads: int) -> None:
    if count not in (1, heads):
        raise ValueError(f"{name}: {count} values for {heads} heads; give one, or one per head")


def _usual(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_cpu and x.dim() == 4


def _check_inputs(q: Any, k: Any, v: Any) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: is {type(x).__name__}, must be a torch tensor")
        if x.device != q.device:
            raise ValueError(f"{name}: on {x.device}, must be on {q.device} as q")
        if x.dim() not in (3, 4) or x.dim() != q.dim():
            raise ValueError(f"{name}: shape {tuple(x.shape)}, must be [batch, heads, n, dim], or "
                             "for all three [heads, n, dim]")


def _list(values: Optional[Integers]) -> Sequence[int]:
    return () if values is None else (values,) if isinstance(values, _SCALAR) else values


def _scale(scale: float) -> float:
    if not isinstance(scale, _SCALAR) or not (scale > 0 or scale < 0):
        raise ValueError(f"scale={scale}: is a number other than 0")
    return float(scale)


def _seed(seed: int) -> int:
    """A seed as the operators take it: 64 bits with a sign."""
    if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
        raise ValueError(f"seed={seed}: must be an integer, 0 or more, of 64 bits")
    return int(seed) if seed < 2**63 else int(seed) - 2**64


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[False] = ...,
              **options: Any) -> Tensor: ...
@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[True],
              **options: Any) -> tuple[Tensor, Tensor]: ...
def attention(  # type: ignore[misc]  # the overloads name only what changes the result's type
    q: Tensor, k: Tensor, v: Tensor, *, sigma: Union[Numbers, Literal["alibi"], None] = None,
    slopes: Optional[Numbers] = None, decay: Optional[DecayLike] = None,
    parameters: Optional[Tensor] = None, causal: bool = True, scale: Optional[float] = None,
    method: Union[str, Sequence[str]] = "exact", eps: float = 0.0,
    window: Optional[Integers] = None, block: Optional[Integers] = None, scheme: str = "integer",
    design: str = "stratified", samples: int = 20, seed: int = 1, spans: Optional[Tensor] = None,
    query_offsets: Optional[Sequence[int]] = None, key_offsets: Optional[Sequence[int]] = None,
    threads: Optional[int] = None, return_lse: bool = False, cache: Optional[Cache] = None,
) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """softmax(scale q k^T + log k(|i - j|)) v, with gradients.

    The library's kernels are for CPU tensors; others go through :mod:`plsh.flex`.

    Tensors are [batch, heads, n, dim] or [heads, n, dim]; strides, grouped heads, lengths and
    options are as in :func:`plsh.attention`. The output has the dtype of q.

    Learnable: `sigma` or `slopes` as a tensor, one per head; for another decay its name and
    `parameters`, [heads, 2]. `spans` leaves padding out, or packs sequences: see
    :func:`padding_spans` and :func:`segment_spans`.

    Few queries after many keys: "exact" looks at all of k in each call, for the bounds on what it
    leaves out; nothing tells it that k is what it was in the last call (a tensor's version does not
    count what NumPy or `.data` writes). With a `cache` the summaries of the keys are kept: k and v
    are the new tokens alone, and what came before is read as far as it matters; the options are
    the :class:`Cache`'s own.

    >>> q, k, v = (torch.randn(2, 4, 100, 16) for _ in range(3))
    >>> slopes = torch.tensor([0.5, 0.25, 0.1, 0.02], requires_grad=True)
    >>> attention(q, k, v, slopes=slopes).square().sum().backward()
    >>> slopes.grad.shape
    torch.Size([4])
    """
    if cache is not None:
        if return_lse or any(x is not None for x in (sigma, slopes, decay, parameters, scale, window,
                                                     block, spans, query_offsets, key_offsets)):
            raise ValueError("cache: its options are those it was made with; give them there")
        return cache.step(q, k, v)
    squeeze = q.dim() == 3 if isinstance(q, Tensor) else False
    if squeeze or not (_usual(q) and _usual(k) and _usual(v)):
        _check_inputs(q, k, v)
    if squeeze:
        q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
    if not (q.is_cpu or q.is_meta):
        if any(x is not None for x in (spans, query_offsets, key_offsets, parameters)):
            raise NotImplementedError(f"q: on {q.device}, where spans, query_offsets, key_offsets and "
                                      "parameters are not served; move it with q.cpu()")
        import plsh.flex
        found = plsh.flex.attention(
            q, k, v, sigma=sigma, slopes=slopes, decay=decay, causal=causal, scale=scale,
            method=method, window=window, block=block, scheme=scheme, design=design,
            samples=samples, seed=seed, return_lse=return_lse)
        both = found if return_lse else (found, found)
        o, lse = (x.squeeze(0) for x in both) if squeeze else both
        return (o, lse) if return_lse else o
    if spans is not None and (not isinstance(spans, Tensor) or spans.dtype != torch.int64 or
                              spans.dim() not in (2, 3) or spans.shape[-1] != (3 if spans.dim() == 2 else 1)):
        raise TypeError("spans: must be an int64 tensor, as padding_spans and segment_spans make it")
    decays = _decays_of(q.shape[1], sigma, slopes, decay, parameters)
    options = _write(
        method_words(method), decays.kind, decays.limit, decays.table, causal, eps, _list(window),
        _list(block), scheme, design, samples, threads, _list(query_offsets), _list(key_offsets))
    run = _directly if nothing_watches(q, k, v) else _operator
    o, lse = run(q, k, v, decays.parameters, spans, decays.constants,
                 0.0 if scale is None else _scale(scale), _seed(seed), options)
    if q.dtype != torch.float32:
        o = o.to(q.dtype)
    if squeeze:
        o, lse = o.squeeze(0), lse.squeeze(0)
    return (o, lse) if return_lse else o


class ALiBiAttention(nn.Module):
    """Multi-head self-attention with ALiBi in near-linear time, [batch, n, embed_dim] to the same.

    `learn_slopes` makes the slopes parameters (kept positive by their logarithm); the other
    options are those of :func:`attention`.

    >>> layer = ALiBiAttention(64, heads=4, kv_heads=2)
    >>> layer(torch.randn(3, 50, 64)).shape
    torch.Size([3, 50, 64])
    """

    def __init__(self, embed_dim: int, heads: int, kv_heads: Optional[int] = None,
                 head_dim: Optional[int] = None, *, bias: bool = False, causal: bool = True,
                 sigma: Optional[Sequence[float]] = None, learn_slopes: bool = False,
                 **options: Any) -> None:
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads or heads
        if head_dim is None and embed_dim % heads:
            raise ValueError(f"heads={heads}: must divide embed_dim={embed_dim}, or give head_dim")
        self.head_dim = head_dim or embed_dim // heads
        self.causal, self.options = causal, options
        self.sigma = standard_sigmas(heads) if sigma is None else tuple(sigma)
        width = (heads + 2 * self.kv_heads) * self.head_dim
        self.qkv = nn.Linear(embed_dim, width, bias=bias)
        self.out = nn.Linear(heads * self.head_dim, embed_dim, bias=bias)
        self.log_slopes: Optional[nn.Parameter] = None
        if learn_slopes:
            self.log_slopes = nn.Parameter(-torch.tensor(self.sigma).log())

    def forward(self, x: Tensor, spans: Optional[Tensor] = None) -> Tensor:
        """x is [batch, n, embed_dim]; `spans` as in :func:`attention`."""
        batch, rows, _ = x.shape
        q, k, v = _fused.split(self.qkv(x), self._parts)
        sigma = self.sigma if self.log_slopes is None else (-self.log_slopes.double()).exp()
        o = attention(q, k, v, sigma=sigma, causal=self.causal, spans=spans, **self.options)
        out: Tensor = self.out(o.transpose(1, 2).reshape(batch, rows, -1))
        return out

    def _parts(self, fused: Tensor) -> Sequence[Tensor]:
        heads = fused.view(*fused.shape[:2], -1, self.head_dim).transpose(1, 2)
        return torch.split(heads, [self.heads, self.kv_heads, self.kv_heads], dim=1)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, kv_heads={self.kv_heads}, causal={self.causal}"
