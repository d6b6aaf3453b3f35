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

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Optional, Union, overload

import numpy as np
import torch
from torch import Tensor, nn

from plsh._attention import standard_sigmas
from plsh._decay import Decay, DecayLike, parse_decay
from plsh._plan import DTYPES, Array, Call, Options, Settings, cached_call

__all__ = ["ALiBiAttention", "attention", "padding_spans"]

Numbers = Union[float, Sequence[float], Tensor]
Integers = Union[int, Sequence[int]]

_DTYPES = {
    torch.float32: DTYPES["float32"],
    torch.float16: DTYPES["float16"],
    torch.bfloat16: DTYPES["bfloat16"],
}

# What both operators take beside their arrays: `parameters` is [heads, 2], the a and b of each
# head's decay, or [0, 2] for the standard ALiBi series; `spans` int64 [batch, 3]: see
# padding_spans; `options` are the words of _Words. One string, because torch's dispatcher takes
# about 5 us for each argument when gradients are recorded.
_COMMON = "Tensor parameters, Tensor? spans, str options"

_library: Any = torch.library.Library("plsh", "DEF")  # type: ignore[no-untyped-call]
_library.define(f"attention(Tensor q, Tensor k, Tensor v, {_COMMON}) -> (Tensor o, Tensor lse)")
_library.define("attention_backward(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, "
                f"{_COMMON}, bool need_parameters) "
                "-> (Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_parameters)")
_library.define("padding_spans(Tensor mask, int length) -> Tensor")


class _Words(NamedTuple):
    """The options of the operators."""

    decay: str
    limit: float
    table: tuple[float, ...]
    threads: int  # -1: as many as torch has
    settings: Settings
    options: Options


def _write(method: list[str], decay: str, limit: float, table: list[float], causal: bool,
           scale: float, eps: float, window: list[int], block: list[int], scheme: str, design: str,
           samples: int, seed: int, threads: int, query_offsets: list[int],
           key_offsets: list[int]) -> str:
    """The options as one string; numbers are written so that they are read back to the bit."""
    return (f"{_join(method)} {decay} {limit} {_join(table)} {int(causal)} {scale} {eps} "
            f"{_join(window)} {_join(block)} {scheme} {design} {samples} {seed} {threads} "
            f"{_join(query_offsets)} {_join(key_offsets)}")


def _join(values: Union[list[str], list[int], list[float]]) -> str:
    return "[" + ",".join([str(x) for x in values]) + "]"


@lru_cache(maxsize=256)
def _read(words: str) -> _Words:
    """What _write wrote."""
    fields = words.split(" ")
    if len(fields) != 16:
        raise ValueError(f"options: {words!r}; they are made by plsh.torch.attention")
    lists = {i: tuple(x for x in fields[i][1:-1].split(",") if x) for i in (0, 3, 7, 8, 14, 15)}
    whole = {i: tuple(map(int, lists[i])) for i in (7, 8, 14, 15)}
    settings = Settings(fields[4] == "1", float(fields[5]), 0, 0, "", False, whole[14], whole[15])
    options = Options(lists[0], (), float(fields[6]), whole[7], whole[8], fields[9], fields[10],
                      int(fields[11]), int(fields[12]))
    return _Words(fields[1], float(fields[2]), tuple(map(float, lists[3])), int(fields[13]),
                  settings, options)


def _describe(name: str, x: Tensor) -> Array:
    """Shape and strides of an argument, checked."""
    if x.device.type != "cpu":
        raise ValueError(f"{name}: on {x.device}, must be on the CPU; move it with {name}.cpu()")
    if x.dtype not in _DTYPES:
        raise TypeError(f"{name}: {x.dtype}, must be float32, float16 or bfloat16; convert with "
                        f"{name}.float()")
    if x.dim() != 4:
        raise ValueError(f"{name}: shape {tuple(x.shape)}, must be [batch, heads, n, dim]")
    batch, heads, rows, dim = x.shape
    strides = x.stride()
    if dim > 1 and strides[3] != 1 and x.numel():
        raise ValueError(f"{name}: its last dimension has stride {strides[3]}, must be 1 (adjacent "
                         f"elements); {name}.contiguous() copies it so")
    if 0 in strides and x.numel() and any(n > 1 and not s for n, s in zip(x.shape, strides)):
        raise ValueError(f"{name}: repeated (expanded) heads or rows; pass fewer heads as they are, "
                         f"groups of queries share them, or {name}.contiguous()")
    return Array(batch, heads, rows, dim, strides[0], strides[1], strides[2])


def _new_output(q: Tensor, v: Tensor) -> Tensor:
    """float32 [batch, heads, rows, value_dim], heads and rows in memory as they are in q."""
    batch, heads, rows, _ = q.shape
    if q.stride(1) < q.stride(2):
        return q.new_empty((batch, rows, heads, v.shape[3]), dtype=torch.float32).transpose(1, 2)
    return q.new_empty((batch, heads, rows, v.shape[3]), dtype=torch.float32)


def _decays(words: _Words, parameters: Tensor, heads: int,
            ) -> Union[tuple[float, ...], tuple[Decay, ...]]:
    """The decays of the heads; numbers are ALiBi's sigmas."""
    pairs: list[list[float]] = parameters.tolist()
    if not pairs:
        return standard_sigmas(heads)
    if words.decay == "alibi" and not words.limit:
        return tuple(a for a, _ in pairs)
    return tuple(Decay(words.decay, a, b, words.limit, words.table) for a, b in pairs)


def _call_of(q: Tensor, k: Tensor, v: Tensor, o: Tensor, parameters: Tensor,
             spans: Optional[Tensor], options: str) -> Call:
    """The call for the arguments of the operators."""
    qa, ka, va, oa = _describe("q", q), _describe("k", k), _describe("v", v), _describe("o", o)
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q, k, v: {q.dtype}, {k.dtype}, {v.dtype}; must be equal")
    words = _read(options)
    threads = torch.get_num_threads() if words.threads < 0 else words.threads
    settings = words.settings._replace(dtype=_DTYPES[q.dtype], threads=threads)
    if spans is not None:
        listed = spans.tolist()
        if len(listed) != qa.batch:
            raise ValueError(f"spans: of {len(listed)} batch entries, must be of {qa.batch}")
        ka, va = ka._replace(rows=listed[0][2]), va._replace(rows=listed[0][2])
        settings = settings._replace(spans=tuple((begin, end) for begin, end, _ in listed))
    return cached_call(qa, ka, va, oa, settings,
                       words.options._replace(decay=_decays(words, parameters, qa.heads)))


def _forward(q: Tensor, k: Tensor, v: Tensor, parameters: Tensor, spans: Optional[Tensor],
             options: str) -> tuple[Tensor, Tensor]:
    o = _new_output(q, v)
    call = _call_of(q, k, v, o, parameters, spans, options)
    lse = torch.empty(q.shape[:3], dtype=torch.float32)
    call.forward(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse.data_ptr(), 0,
                 q.element_size())
    return o, lse


def _forward_fake(q: Tensor, k: Tensor, v: Tensor, parameters: Tensor, spans: Optional[Tensor],
                  options: str) -> tuple[Tensor, Tensor]:
    return _new_output(q, v), q.new_empty(q.shape[:3], dtype=torch.float32)


def _gradients_like(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Uninitialised float32 tensors with the strides of the inputs, as the library wants them."""
    d_q, d_k, d_v = (torch.empty_strided(x.shape, x.stride(), dtype=torch.float32, device=x.device)
                     for x in (q, k, v))
    return d_q, d_k, d_v


def _backward(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
              parameters: Tensor, spans: Optional[Tensor], options: str,
              need_parameters: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    call = _call_of(q, k, v, o, parameters, spans, options)
    lse = lse.contiguous()
    if d_o.stride() != o.stride() or d_o.dtype != torch.float32:
        d_o = torch.empty_strided(o.shape, o.stride(), dtype=torch.float32).copy_(d_o)
    d_q, d_k, d_v = _gradients_like(q, k, v)
    if spans is not None and call.keys < k.shape[2]:
        d_k.zero_()
        d_v.zero_()
    d_decay = np.zeros((call.heads, 2)) if need_parameters else None
    call.backward(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse.data_ptr(),
                  d_o.data_ptr(), d_q.data_ptr(), d_k.data_ptr(), d_v.data_ptr(), d_decay,
                  q.element_size())
    d_parameters = torch.zeros_like(parameters) if d_decay is None else torch.from_numpy(d_decay)
    return d_q.to(q.dtype), d_k.to(k.dtype), d_v.to(v.dtype), d_parameters


def _backward_fake(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
                   parameters: Tensor, spans: Optional[Tensor], options: str,
                   need_parameters: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_q, d_k, d_v = _gradients_like(q, k, v)
    return d_q.to(q.dtype), d_k.to(k.dtype), d_v.to(v.dtype), torch.empty_like(parameters)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, parameters, spans, ctx.options = inputs
    o, lse = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, o, lse, parameters, spans)


def _differentiate(ctx: Any, d_o: Optional[Tensor], d_lse: Optional[Tensor]) -> Any:
    """Gradients of the operator's inputs: q, k, v and parameters have them."""
    q, k, v, o, lse, parameters, spans = ctx.saved_tensors
    common = (parameters, spans, ctx.options)
    found: list[Optional[Tensor]] = [None] * 4
    if d_o is not None:
        found = list(torch.ops.plsh.attention_backward(
            d_o.to(torch.float32), q, k, v, o, lse, *common, ctx.needs_input_grad[3]))
    if d_lse is not None:
        more = _differentiate_lse(d_lse, q, k, lse, common, ctx.needs_input_grad[3])
        found = [x if y is None else y if x is None else x + y for x, y in zip(found, more)]
    return (*found, None, None)


def _differentiate_lse(d_lse: Tensor, q: Tensor, k: Tensor, lse: Tensor, common: Any,
                       need_parameters: bool) -> tuple[Tensor, Tensor, None, Tensor]:
    """What the log-sum-exp adds to the gradients of q, k and the parameters: dS_ij = P_ij d_lse_i.

    dQ is scale d_lse_i sum_j P_ij k_j: attention to the keys themselves. The rest is a backward
    pass on values 1 with d_o = d_lse, told that o is 0 (the truth is 1, and would cancel it).
    """
    scale = _read(common[2]).settings.scale or q.shape[3] ** -0.5
    weight = d_lse.unsqueeze(3).to(torch.float32)
    mean = torch.ops.plsh.attention(q, k, k, *common)[0]
    one = torch.ones_like(k[..., :1])
    o = _new_output(q, one).zero_()
    _, d_k, _, d_parameters = torch.ops.plsh.attention_backward(
        weight, q, k, one, o, lse, *common, need_parameters)
    return (scale * weight * mean).to(q.dtype), d_k, None, d_parameters


def _padding_spans(mask: Tensor, length: int) -> Tensor:
    if mask.dim() != 2:
        raise ValueError(f"mask: shape {tuple(mask.shape)}, must be [batch, n], 1 where a token is")
    valid = mask.to(torch.bool)[:, :length].to(torch.int64)
    count = valid.sum(dim=1)
    begin = torch.where(count > 0, valid.argmax(dim=1), 0)
    end = begin + count
    position = torch.arange(valid.shape[1])
    if not torch.equal(valid.bool(), (position >= begin[:, None]) & (position < end[:, None])):
        row = int((valid.bool() != ((position >= begin[:, None]) & (position < end[:, None])))
                  .any(dim=1).nonzero()[0])
        raise ValueError(f"mask: row {row} has tokens on both sides of padding; the tokens of a row "
                         "must be adjacent (padding to the left or to the right)")
    return torch.stack([begin, end, torch.full_like(begin, valid.shape[1])], dim=1)


def _padding_spans_fake(mask: Tensor, length: int) -> Tensor:
    return mask.new_empty((mask.shape[0], 3), dtype=torch.int64)


_library.impl("attention", _forward, "CPU")
_library.impl("attention_backward", _backward, "CPU")
_library.impl("padding_spans", _padding_spans, "CPU")
torch.library.register_fake("plsh::attention", _forward_fake, lib=_library)
torch.library.register_fake("plsh::attention_backward", _backward_fake, lib=_library)
torch.library.register_fake("plsh::padding_spans", _padding_spans_fake, lib=_library)
torch.library.register_autograd("plsh::attention", _differentiate, setup_context=_save,
                                lib=_library)


def padding_spans(mask: Tensor) -> Tensor:
    """What the `spans` of :func:`attention` are for a padding mask [batch, n], 1 where a token is.

    int64 [batch, 3]: first token, end of the tokens, number of keys in use. Tokens of a row must
    be adjacent: padding on the left, on the right, or both.

    >>> padding_spans(torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]]))
    tensor([[1, 4, 4],
            [0, 2, 4]])
    """
    spans: Tensor = torch.ops.plsh.padding_spans(mask, mask.shape[1])
    return spans


def _per_head(name: str, values: Numbers, heads: int) -> Tensor:
    """float64 [heads] of one number or one per head; a tensor keeps its graph."""
    x = values if isinstance(values, Tensor) else torch.tensor(values, dtype=torch.float64)
    x = x.to(torch.float64).reshape(-1)
    if x.shape[0] == 1:
        return x.expand(heads)
    if x.shape[0] != heads:
        raise ValueError(f"{name}: {x.shape[0]} values for {heads} heads; give one, or one per head")
    return x


def _parameters(heads: int, sigma: Optional[Numbers], slopes: Optional[Numbers],
                decay: Optional[DecayLike], parameters: Optional[Tensor],
                ) -> tuple[Tensor, str, float, list[float]]:
    """The operator's parameters, kind of decay, limit and table."""
    if sum(x is not None for x in (sigma, slopes, decay)) > 1:
        raise ValueError("sigma, slopes, decay: give at most one of the three")
    if parameters is not None:
        if not isinstance(decay, str) or parameters.shape != (heads, 2):
            raise ValueError(f"parameters: must be [heads, 2] = [{heads}, 2], with decay the name of "
                             "a kind, as 'kerple-log'")
        return parameters.to(torch.float64), decay, 0.0, []
    if isinstance(decay, Decay):
        return _pair(decay.a, decay.b, heads), decay.kind, decay.limit, list(decay.entries)
    if decay is not None and decay != "alibi":
        kind, a, b = parse_decay(decay)
        return _pair(a, b, heads), kind, 0.0, []
    if slopes is not None:
        x = 1.0 / _per_head("slopes", slopes, heads)
    elif sigma is not None:
        x = _per_head("sigma", sigma, heads)
    else:  # no rows: the operator takes the standard series
        return torch.empty((0, 2), dtype=torch.float64), "alibi", 0.0, []
    return torch.stack([x, torch.zeros_like(x)], dim=1), "alibi", 0.0, []


def _pair(a: float, b: float, heads: int) -> Tensor:
    return torch.tensor([[a, b]], dtype=torch.float64).expand(heads, 2)


def _list(values: Optional[Integers]) -> list[int]:
    return [] if values is None else [values] if isinstance(values, int) else list(values)


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[False] = ...,
              **options: Any) -> Tensor: ...
@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[True],
              **options: Any) -> tuple[Tensor, Tensor]: ...
def attention(  # type: ignore[misc]  # the overloads name only what changes the result's type
    q: Tensor, k: Tensor, v: Tensor, *, sigma: Optional[Numbers] = None,
    slopes: Optional[Numbers] = None, decay: Optional[DecayLike] = None,
    parameters: Optional[Tensor] = None, causal: bool = True, scale: Optional[float] = None,
    method: Union[str, Sequence[str]] = "exact", eps: float = 0.0,
    window: Optional[Integers] = None, block: Optional[Integers] = None, scheme: str = "integer",
    design: str = "stratified", samples: int = 20, seed: int = 1, spans: Optional[Tensor] = None,
    query_offsets: Optional[Sequence[int]] = None, key_offsets: Optional[Sequence[int]] = None,
    threads: Optional[int] = None, return_lse: bool = False,
) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """softmax(scale q k^T + log k(|i - j|)) v on CPU tensors, with gradients.

    Tensors are [batch, heads, n, dim] or [heads, n, dim]; strides, grouped heads, lengths and
    options are as in :func:`plsh.attention`. The output has the dtype of q.

    Learnable: `sigma` or `slopes` as a tensor, one per head; for another decay its name and
    `parameters`, [heads, 2]. `spans` leaves padding out: see :func:`padding_spans`.

    >>> q, k, v = (torch.randn(2, 4, 100, 16) for _ in range(3))
    >>> slopes = torch.tensor([0.5, 0.25, 0.1, 0.02], requires_grad=True)
    >>> attention(q, k, v, slopes=slopes).square().sum().backward()
    >>> slopes.grad.shape
    torch.Size([4])
    """
    if q.dim() == 3:
        q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
        squeeze = True
    else:
        squeeze = False
    if scale == 0:
        raise ValueError("scale=0: is a number other than 0")
    pair, kind, limit, table = _parameters(q.shape[1], sigma, slopes, decay, parameters)
    options = _write(
        [method] if isinstance(method, str) else list(method), kind, limit, table, causal,
        0.0 if scale is None else scale, eps, _list(window), _list(block), scheme, design, samples,
        seed, -1 if threads is None else threads, _list(query_offsets), _list(key_offsets))
    o, lse = torch.ops.plsh.attention(q, k, v, pair, spans, options)
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
        width = (heads + 2 * self.kv_heads) * self.head_dim
        self.qkv = nn.Linear(embed_dim, width, bias=bias)
        self.out = nn.Linear(heads * self.head_dim, embed_dim, bias=bias)
        slopes = 1.0 / torch.tensor(standard_sigmas(heads) if sigma is None else sigma,
                                    dtype=torch.float64)
        log_slopes = slopes.log().to(torch.float32)
        if learn_slopes:
            self.log_slopes = nn.Parameter(log_slopes)
        else:
            self.register_buffer("log_slopes", log_slopes)

    def forward(self, x: Tensor, spans: Optional[Tensor] = None) -> Tensor:
        """x is [batch, n, embed_dim]; `spans` as in :func:`attention`."""
        batch, rows, _ = x.shape
        split = self.qkv(x).view(batch, rows, -1, self.head_dim).transpose(1, 2)
        q, k, v = split.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        o = attention(q, k, v, slopes=self.log_slopes.double().exp(), causal=self.causal,
                      spans=spans, **self.options)
        out: Tensor = self.out(o.transpose(1, 2).reshape(batch, rows, -1))
        return out

    def extra_repr(self) -> str:
        return f"heads={self.heads}, kv_heads={self.kv_heads}, causal={self.causal}"
