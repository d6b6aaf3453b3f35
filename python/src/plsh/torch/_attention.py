"""The operators torch.ops.plsh.attention and attention_backward, and the function that calls them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Optional, Union, cast, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd import forward_ad

from plsh import _fused
from plsh._decay import DecayLike
from plsh._fused import nothing_watches
from plsh._options import DEFAULT, as_count, as_number, as_scale, as_truth, check_used
from plsh._plan import Call, Options, Settings, method_words
from plsh._torch_cache import Cache
from plsh.torch._positions import PointOptions, attend_points
from plsh._torch_options import (
    TORCH_DTYPES, Form, Integers, Numbers, Offsets, TorchOptions, as_dropout_seed, as_integer,
    as_integers, as_labels, as_offsets, autocast, check_inputs, check_numbers,
    check_spans, decays_of, describe, edges_of, floats_as, head_decays,
    is_one_decay, new_outputs, signed_seed, unexpanded,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["attention", "merge", "padding_spans", "segment_spans"]

# The arguments of both operators beside their arrays.
#
# parameters      the numbers of the decays as a tensor, of each head: ALiBi's sigmas, or a and b
# constants       or as numbers: sigmas, or limit, a, b and table of one decay; none: standard series
# spans           int64 [batch, 3], see padding_spans, or [batch, n, 1], see segment_spans
# .._offsets      int64
# labels          int32 [heads or 1, samples, n]
# dropout_seed    one element
# decay           the word of head_decays
#
# Every option is an argument of its own, so that torch.compile can follow it when it changes from
# call to call.
_COMMON = ("Tensor? parameters, Tensor? spans, Tensor? query_offsets, Tensor? key_offsets, "
           "Tensor? labels, Tensor? dropout_seed, float[] constants, float scale, float dropout, "
           "float eps, SymInt seed, SymInt samples, "
           "SymInt[] window, SymInt[] block, SymInt threads, str[] method, str decay, "
           "bool causal, str scheme, str design")
# The first _TENSORS of these arguments are tensors; the others are indices among them.
_TENSORS, _SEED, _SCALE, _DROPOUT = 6, 5, 7, 8

_library: Any = torch.library.Library("plsh", "DEF")  # type: ignore[no-untyped-call]
_library.define(f"attention(Tensor q, Tensor k, Tensor v, {_COMMON}) -> (Tensor o, Tensor lse)")
_library.define("attention_backward(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, "
                f"Tensor lse, bool need_parameters, {_COMMON}) "
                "-> (Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_parameters)")
_library.define(f"certify(Tensor q, Tensor k, Tensor v, {_COMMON}) "
                "-> (Tensor o, Tensor lse, Tensor certificate)")
_library.define("padding_spans(Tensor mask, Tensor? length) -> Tensor")


class _Common(NamedTuple):
    """What both operators take beside their arrays, as a key."""

    numbers: tuple[float, ...]  # of the decays
    constant: bool  # they came as constants
    edges: tuple[tuple[int, ...], ...]  # of the sequences of each batch entry
    keys: int  # in use; 0: all
    query_offsets: tuple[int, ...]
    key_offsets: tuple[int, ...]
    scale: float
    eps: float
    seed: int
    samples: int
    window: tuple[int, ...]
    block: tuple[int, ...]
    threads: int
    method: tuple[str, ...]
    decay: str
    causal: bool
    scheme: str
    design: str


def _make_call(q: Form, k: Form, v: Form, o: Form, common: _Common,
               labels: Optional[npt.NDArray[np.int32]] = None) -> Call:
    """The call for arrays of these forms."""
    qa, ka, va, oa = (describe(name, *x) for name, x in zip("qkvo", (q, k, v, o)))
    if not q[2] == k[2] == v[2]:
        raise TypeError(f"q, k, v: {q[2]}, {k[2]}, {v[2]}; must be equal")
    check_numbers(common.samples, common.eps, common.window, common.block)
    settings = Settings(common.causal, common.scale, TORCH_DTYPES[q[2]], common.threads, "", False,
                        common.query_offsets, common.key_offsets, common.edges)
    if common.edges and len(common.edges) != qa.batch:
        raise ValueError(f"spans: of {len(common.edges)} batch entries, must be of {qa.batch}")
    if common.keys > ka.rows:
        raise ValueError(f"spans: {common.keys} keys in use, must be at most the {ka.rows} of k")
    if common.keys:
        ka, va = ka._replace(rows=common.keys), va._replace(rows=common.keys)
    return Call(qa, ka, va, oa, settings, Options(
        common.method, head_decays(common.decay, qa.heads, common.numbers, common.constant),
        common.eps, common.window, common.block, common.scheme, common.design, common.samples,
        common.seed % 2**64), labels)


_find_call = lru_cache(maxsize=256)(_make_call)  # made once


def _form(x: Tensor) -> Form:
    return x.shape, x.stride(), x.dtype


def _call_of(q: Tensor, k: Tensor, v: Tensor, o: Tensor, parameters: Optional[Tensor],
             spans: Optional[Tensor], query_offsets: Optional[Tensor],
             key_offsets: Optional[Tensor], labels: Optional[Tensor],
             dropout_seed: Optional[Tensor], constants: Sequence[float], scale: float,
             dropout: float, eps: float, seed: int, samples: int, window: Sequence[int], block: Sequence[int], threads: int,
             method: Sequence[str], decay: str, causal: bool, scheme: str, design: str) -> Call:
    """The call for the arguments of the operators."""
    edges, keys = ((), 0) if spans is None else edges_of(spans)
    common = _Common(tuple(constants if parameters is None else parameters.reshape(-1).tolist()),
                     parameters is None, edges, keys,
                     () if query_offsets is None else tuple(query_offsets.tolist()),
                     () if key_offsets is None else tuple(key_offsets.tolist()), scale, eps, seed,
                     samples, tuple(window), tuple(block),
                     torch.get_num_threads() if threads < 0 else threads, tuple(method), decay,
                     causal, scheme, design)
    forms = _form(q), _form(k), _form(v), _form(o)
    if labels is None:
        return _find_call(*forms, common)
    return _make_call(*forms, common, np.ascontiguousarray(labels.numpy()))


def _dropout_of(common: Sequence[Any]) -> tuple[float, int]:
    """Probability and seed."""
    seed = common[_SEED]
    return (0.0, 0) if seed is None else (common[_DROPOUT], int(seed))


def _forward(q: Tensor, k: Tensor, v: Tensor, *common: Any) -> tuple[Tensor, Tensor]:
    o, lse = new_outputs(q, k, v)
    _call_of(q, k, v, o, *common).forward(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(),
                                          lse.data_ptr(), 0, q.element_size(),
                                          _dropout_of(common))
    return o, lse


def _certify(q: Tensor, k: Tensor, v: Tensor, *common: Any) -> tuple[Tensor, Tensor, Tensor]:
    o, lse = new_outputs(q, k, v)
    bound = torch.empty_like(lse)
    _call_of(q, k, v, o, *common).forward(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(),
                                          lse.data_ptr(), bound.data_ptr(), q.element_size())
    return o, lse, bound


def _certify_fake(q: Tensor, k: Tensor, v: Tensor,
                  *common: Any) -> tuple[Tensor, Tensor, Tensor]:
    o, lse = new_outputs(q, k, v)
    return o, lse, torch.empty_like(lse)


def _gradients_like(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return floats_as(q), floats_as(k), floats_as(v)


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
                  q.element_size(), _dropout_of(common))
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
        q, k, v, *common = inputs
        ctx.numbers = common[_TENSORS:]
        o, lse = _forward(*inputs) if keys is None else _below_autograd(keys, *inputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, o, lse, *common[:_TENSORS])
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
        return (None, *found, *[None] * (_TENSORS - 1 + len(ctx.numbers)))


class _Once(torch.autograd.Function):
    """The gradients. They have no derivative of their own; asking for one is an error."""

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
    """Below autograd, forward-mode derivatives would silently be 0: refuses them."""
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
            raise NotImplementedError("torch.ops.plsh.attention: has no derivatives by torch.func; "
                                      "plsh.torch.attention has")
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
    """The gradients of q, k and the parameters through the log-sum-exp: dS_ij = P_ij d_lse_i.

    dQ is scale d_lse_i sum_j P_ij k_j: attention to the keys themselves. The rest is a backward
    pass on values 1 with d_o = d_lse, in which o is passed as 0 (it is 1, which would cancel d_lse).
    The log-sum-exp is that of all keys: dropout has no part in it.
    """
    common = (*common[:_SEED], None, *common[_SEED + 1:])
    scale = common[_SCALE] or q.shape[3] ** -0.5
    weight = d_lse.unsqueeze(3).to(torch.float32)
    mean = torch.ops.plsh.attention(q, k, k, *common)[0]
    one = torch.ones_like(k[..., :1])
    o = new_outputs(q, k, one)[0].zero_()
    _, d_k, _, d_parameters = torch.ops.plsh.attention_backward(
        weight, q, k, one, o, lse, need_parameters, *common)
    return (scale * weight * mean).to(q.dtype), d_k, None, d_parameters


def _tokens_of(mask: Tensor) -> Tensor:
    """True at tokens. As for torch's own attention, the dtype determines the meaning of a mask."""
    if mask.dtype == torch.bool:
        return mask
    tokens, padding = (mask == 0, mask <= -1e4) if mask.is_floating_point() else (mask == 1, mask == 0)
    other = ~(tokens | padding)
    if bool(other.any()):
        found = mask[other].flatten()[0].item()
        if mask.is_floating_point():
            raise ValueError(f"mask: has {found}; floats are added to the scores, 0 where a token is "
                             "and -inf (-1e4 or less) where padding is. If 1 is where a token is, "
                             "pass mask.bool()")
        raise ValueError(f"mask: has {found}; integers are 1 where a token is, else 0")
    return tokens


def _padding_spans(mask: Tensor, length: Optional[Tensor]) -> Tensor:
    if mask.dim() != 2:
        raise ValueError(f"mask: shape {tuple(mask.shape)}, must be [batch, n], 1 where a token is")
    valid = _tokens_of(mask)
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
_library.impl("certify", _certify, "CPU")
_library.impl("padding_spans", _padding_spans, "CPU")
torch.library.register_fake("plsh::attention", new_outputs, lib=_library)
torch.library.register_fake("plsh::attention_backward", _backward_fake, lib=_library)
torch.library.register_fake("plsh::certify", _certify_fake, lib=_library)
torch.library.register_fake("plsh::padding_spans", _padding_spans_fake, lib=_library)
_library.impl("attention", _autograd, "Autograd", with_keyset=True)
_library.impl("attention_backward", _backward_autograd, "Autograd", with_keyset=True)
_operator = torch.ops.plsh.attention.default
_backward_operator = torch.ops.plsh.attention_backward.default


def padding_spans(mask: Tensor) -> Tensor:
    """The argument `spans` of :func:`attention` for a padding mask [batch, n].

    Booleans and integers are 1 where a token is, else 0. Floats are what is added to scores, as for
    torch's scaled_dot_product_attention: 0 where a token is, -inf (or -1e4 and below) where padding
    is. Other values are refused.

    int64 [batch, 3]: first token, end of the tokens, number of keys in use. Tokens of a row must
    be adjacent: padding on the left, on the right, or both.

    >>> padding_spans(torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]]))
    tensor([[1, 4, 4],
            [0, 2, 4]])
    """
    spans: Tensor = torch.ops.plsh.padding_spans(mask, None)
    return spans


def segment_spans(segments: Tensor) -> Tensor:
    """The argument `spans` of :func:`attention` for packed sequences.

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
    """Merges the outputs of s masks: o of their mean M~, and its log-sum-exp.

    `outputs` is [s, ..., n, dim] and `lses` [s, ..., n], the log-sum-exps of the rows: the results of
    s calls of any attention without a bias, one for the blocks of each draw
    (:meth:`plsh.Partition.cu_seqlens`). Gradients propagate to both.

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


def _usual(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_cpu and x.dim() == 4


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[False] = ...,
              certificate: Literal[False] = ..., cache: Optional[Cache] = ...,
              **options: Unpack[TorchOptions]) -> Tensor: ...
@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[True],
              certificate: Literal[False] = ..., cache: Optional[Cache] = ...,
              **options: Unpack[TorchOptions]) -> tuple[Tensor, Tensor]: ...
@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[False] = ...,
              certificate: Literal[True], cache: Optional[Cache] = ...,
              **options: Unpack[TorchOptions]) -> tuple[Tensor, Tensor]: ...
@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[True],
              certificate: Literal[True], cache: Optional[Cache] = ...,
              **options: Unpack[TorchOptions]) -> tuple[Tensor, Tensor, Tensor]: ...
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, sigma: Union[Numbers, Literal["alibi"], None] = None,
    slopes: Optional[Numbers] = None,
    decay: Union[DecayLike, Sequence[DecayLike], None] = None,
    parameters: Optional[Tensor] = None, causal: bool = True, scale: Optional[float] = None,
    method: Union[str, Sequence[str], None] = None, eps: Optional[float] = None,
    window: Union[Integers, Numbers, None] = None, block: Optional[Integers] = None,
    scheme: Optional[str] = None, design: Optional[str] = None, samples: Optional[int] = None,
    seed: Optional[int] = None, labels: Optional[Tensor] = None, spans: Optional[Tensor] = None,
    query_offsets: Optional[Offsets] = None, key_offsets: Optional[Offsets] = None,
    dropout: float = 0.0, dropout_seed: Union[int, Tensor, None] = None,
    threads: Optional[int] = None, positions: Optional[Tensor] = None,
    query_positions: Optional[Tensor] = None, return_lse: bool = False, certificate: bool = False,
    cache: Optional[Cache] = None,
) -> Union[Tensor, tuple[Tensor, ...]]:
    """softmax(scale q k^T + log k(|i - j|)) v, with gradients.

    `positions` of the keys, a float tensor [n], [n, D], [heads, n, D] or [batch, heads, n, D] with D =
    1 to 3, makes the bias log k(|x_i - y_j|) of the Euclidean distance; `query_positions` are those of
    the queries, otherwise the last keys'. NaN is no position: bias 0 to and from everything. `window` is
    then a radius, a real number. Causality remains a matter of the row. Gradients by positions too, but
    for the sampled methods, whose outputs are constant in them almost everywhere.

    The library's kernels are for CPU tensors; others go through :mod:`plsh.flex`.

    Tensors are [batch, heads, n, dim] or [heads, n, dim]; strides, grouped heads, lengths and
    options are as in :func:`plsh.attention`; the method is "exact" unless given. The output has the
    dtype of q. Under torch.autocast q, k and v are cast as for torch's own attention. Offsets of
    packed sequences may be tensors, as `cu_seqlens` are.

    Learnable: `sigma` or `slopes` as a tensor, one per head; for another decay its name and
    `parameters`, [heads, 2]. `spans` leaves padding out, or packs sequences: see
    :func:`padding_spans` and :func:`segment_spans`. `labels`, int32 [heads or 1, samples, n], are
    partitions of your own. A `certificate`, [batch, heads, n], bounds the error of each row, and
    has no gradient. `dropout` is the probability that a weight becomes 0, in training; its seed is
    drawn from torch's generator unless given (`dropout_seed`), so that torch.manual_seed repeats it.

    Few queries after many keys: "exact" reads all of k in each call, for the bounds on what it
    leaves out; it cannot know that k has not changed since the last call (a tensor's version counter
    does not count writes by NumPy or through `.data`). A `cache` keeps the keys and their summaries:
    k and v are the new tokens alone, and a call reads only the older keys that matter; the options
    are those of the :class:`Cache`.

    >>> q, k, v = (torch.randn(2, 4, 100, 16) for _ in range(3))
    >>> slopes = torch.tensor([0.5, 0.25, 0.1, 0.02], requires_grad=True)
    >>> attention(q, k, v, slopes=slopes).square().sum().backward()
    >>> slopes.grad.shape
    torch.Size([4])
    """
    given: dict[str, Any] = {"eps": eps, "window": window, "block": block, "scheme": scheme,
                             "design": design, "samples": samples, "seed": seed, "labels": labels}
    if cache is not None:
        given = {**given, "sigma": sigma, "slopes": slopes, "decay": decay, "scale": scale,
                 "parameters": parameters, "method": method, "spans": spans, "threads": threads,
                 "query_offsets": query_offsets, "key_offsets": key_offsets,
                 "positions": positions, "query_positions": query_positions,
                 "dropout": dropout or None, "certificate": certificate or None}
        _refuse_beside_cache([name for name, x in given.items() if x is not None], causal, return_lse)
        return cache.step(q, k, v)
    words = method_words("exact" if method is None else method)
    if any([x is not None for x in given.values()]):
        check_used(words, given)
    squeeze = q.dim() == 3 if isinstance(q, Tensor) else False
    if squeeze or not (_usual(q) and _usual(k) and _usual(v)):
        check_inputs(q, k, v)
    if squeeze:
        q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
    q, k, v = autocast(q, k, v)
    if 0 in k.stride() or 0 in v.stride() or 0 in q.stride():
        q, k, v = unexpanded(q, k, v)
    if not (q.is_cpu or q.is_meta):
        for name, x in (("spans", spans), ("query_offsets", query_offsets), ("eps", eps),
                        ("key_offsets", key_offsets), ("parameters", parameters),
                        ("threads", threads), ("labels", labels), ("dropout", dropout or None),
                        ("certificate", certificate or None), ("positions", positions),
                        ("decays, one per head", None if is_one_decay(decay) else decay)):
            if x is not None:
                raise NotImplementedError(f"{name}: is not served on {q.device}, where q is; move it "
                                          "with q.cpu(), or leave it out")
        import plsh.flex
        found = plsh.flex.attention(
            q, k, v, sigma=sigma, slopes=slopes, decay=cast(Optional[DecayLike], decay),
            causal=causal, scale=scale, method=words, window=window, block=block, scheme=scheme, design=design,
            samples=samples, seed=seed, return_lse=return_lse)
        both = found if return_lse else (found, found)
        o, lse = (x.squeeze(0) for x in both) if squeeze else both
        return (o, lse) if return_lse else o
    check_spans(spans)
    decays = decays_of(q.shape[1], sigma, slopes, decay, parameters)
    if positions is not None:
        for name, x in (("block", block), ("labels", labels), ("dropout", dropout or None),
                        ("certificate", certificate or None)):
            if x is not None:
                raise ValueError(f"{name}: not served with positions")
        o, lse = attend_points(q, k, v, positions, query_positions, decays, PointOptions(
            words, causal, scale, eps, window, scheme, design, samples, seed, spans, query_offsets,
            key_offsets, threads))
        o = o.to(q.dtype)
        if squeeze:
            o, lse = o.squeeze(0), lse.squeeze(0)
        return (o, lse) if return_lse else o
    if query_positions is not None:
        raise ValueError("query_positions: needs positions, of the keys")
    inputs = (q, k, v, decays.parameters, spans, as_offsets("query_offsets", query_offsets),
              as_offsets("key_offsets", key_offsets), as_labels(labels, q.shape[1]),
              as_dropout_seed(dropout, dropout_seed), decays.constants,
              as_scale(scale), dropout,
              DEFAULT.eps if eps is None else as_number("eps", eps),
              DEFAULT.seed if seed is None else signed_seed(seed),
              DEFAULT.samples if samples is None else as_integer("samples", samples),
              as_integers("window", window), as_integers("block", block),
              -1 if threads is None else as_count("threads", threads),
              words, decays.word, as_truth("causal", causal),
              DEFAULT.scheme if scheme is None else scheme,
              DEFAULT.design if design is None else design)
    results = _run(inputs, as_truth("certificate", certificate))
    if q.dtype != torch.float32:
        results = (results[0].to(q.dtype), *results[1:])
    if squeeze:
        results = tuple([x.squeeze(0) for x in results])
    if not return_lse:
        results = (results[0], *results[2:])
    return results if len(results) > 1 else results[0]


def _run(inputs: tuple[Any, ...], certificate: bool) -> tuple[Tensor, ...]:
    """o, its log-sum-exp and, if asked for, the certificate."""
    if torch._C._are_functorch_transforms_active() and not torch.compiler.is_compiling():
        if certificate:
            raise NotImplementedError("certificate=True: not under a transform of torch.func")
        from plsh.torch import _functional
        return _functional.attend(inputs)
    if certificate:
        if inputs[3 + _SEED] is not None:
            raise ValueError("certificate=True: not together with dropout")
        with torch.no_grad():
            certified: tuple[Tensor, ...] = torch.ops.plsh.certify(*inputs)
        if not (torch.is_grad_enabled() and any(
                isinstance(x, Tensor) and x.requires_grad for x in inputs)):
            return certified
    run = _directly if nothing_watches(*inputs[:3]) else _operator
    o, lse = run(*inputs)
    return (o, lse, certified[2]) if certificate else (o, lse)


def _refuse_beside_cache(given: Sequence[str], causal: bool, return_lse: bool) -> None:
    if given:
        raise ValueError(f"{', '.join(given)}: a cache has the options it was made with; give them "
                         "to plsh.torch.Cache")
    if not causal:
        raise ValueError("causal=False: a cache is causal: it has no later tokens")
    if return_lse:
        raise ValueError("return_lse=True: a cache has no log-sum-exp")
