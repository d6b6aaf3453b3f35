"""Functions with the signatures of flash-attn and of torch's own attention: one import changes."""

from __future__ import annotations

from typing import Any, Optional, Union

import torch
from torch import Tensor

from plsh._torch_options import NO_BIAS
from plsh.torch._attention import attention
from plsh.torch._masks import Seen, recognise

__all__ = ["flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "scaled_dot_product_attention"]

Returned = Union[Tensor, tuple[Tensor, Tensor, None]]


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0,
                    softmax_scale: Optional[float] = None, causal: bool = False,
                    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                    alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                    return_attn_probs: bool = False) -> Returned:
    """flash-attn's function of this name: q is [batch, n, heads, dim], k and v [batch, m, kv heads, dim].

    `alibi_slopes` is [heads] or [batch, heads]; a slope of 0 is a head without a bias. As there,
    causality is aligned to the last key, and `window_size` = (left, right) counts keys beside the own
    one, -1: all. A window is symmetric, or causal; others are refused, and so is softcap.
    Gradients are the same in every run, whether `deterministic` or not. With return_attn_probs the
    result is o, its log-sum-exp [batch, heads, n], and None: there is no n x n array to return.

    >>> q, k, v = (torch.randn(2, 50, 4, 16) for _ in range(3))
    >>> flash_attn_func(q, k, v, causal=True, alibi_slopes=torch.tensor([.5, .25, .1, .05])).shape
    torch.Size([2, 50, 4, 16])
    """
    _check_ranks((("q", q), ("k", k), ("v", v)), 4, "[batch, n, heads, dim]")
    options = _options(softmax_scale, causal, window_size, softcap, max(q.shape[1], k.shape[1]))
    arrays = [x.transpose(1, 2) for x in (q, k, v)]
    slopes = _slopes(alibi_slopes, q.shape[0], q.shape[2])
    if slopes is None or slopes.dim() == 1:
        o, lse = attention(*arrays, return_lse=True, dropout=dropout_p, **_bias(slopes, options))
    else:
        each = [attention(*(x[b:b + 1] for x in arrays), return_lse=True, dropout=dropout_p,
                          **_bias(slopes[b], options)) for b in range(q.shape[0])]
        o, lse = torch.cat([x[0] for x in each]), torch.cat([x[1] for x in each])
    o = o.transpose(1, 2)
    return (o, lse, None) if return_attn_probs else o


def flash_attn_qkvpacked_func(qkv: Tensor, dropout_p: float = 0.0,
                              softmax_scale: Optional[float] = None, causal: bool = False,
                              window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                              alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                              return_attn_probs: bool = False) -> Returned:
    """:func:`flash_attn_func` of q, k and v in one tensor [batch, n, 3, heads, dim]. Nothing is copied."""
    if not isinstance(qkv, Tensor) or qkv.dim() != 5 or qkv.shape[2] != 3:
        shape = tuple(qkv.shape) if isinstance(qkv, Tensor) else type(qkv).__name__
        raise ValueError(f"qkv: {shape}, must be a tensor [batch, n, 3, heads, dim]")
    q, k, v = qkv.unbind(2)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap,
                           alibi_slopes, deterministic, return_attn_probs)


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor,
                           cu_seqlens_k: Tensor, max_seqlen_q: Any = None, max_seqlen_k: Any = None,
                           dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                           causal: bool = False, window_size: tuple[int, int] = (-1, -1),
                           softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
                           deterministic: bool = False, return_attn_probs: bool = False,
                           block_table: None = None) -> Returned:
    """flash-attn's function of this name: packed sequences, q is [total, heads, dim].

    `cu_seqlens_q` and `cu_seqlens_k` are int32 tensors of the sequences' edges, from 0 to the total;
    the largest lengths are not needed. Otherwise as :func:`flash_attn_func`; the log-sum-exp is
    [heads, total]. A block_table is refused: :class:`plsh.torch.Cache` keeps keys and values.

    >>> q = torch.randn(30, 4, 16)
    >>> edges = torch.tensor([0, 10, 30], dtype=torch.int32)
    >>> flash_attn_varlen_func(q, q, q, edges, edges, 20, 20, causal=True).shape
    torch.Size([30, 4, 16])
    """
    if block_table is not None:
        raise NotImplementedError("block_table: paged keys are not served; plsh.torch.Cache keeps them")
    _check_ranks((("q", q), ("k", k), ("v", v)), 3, "[total, heads, dim]")
    ends = [_edges(name, x, len(y)) for name, x, y in (
        ("cu_seqlens_q", cu_seqlens_q, q), ("cu_seqlens_k", cu_seqlens_k, k))]
    if len(ends[0]) != len(ends[1]):
        raise ValueError(f"cu_seqlens_k: {len(ends[1])} edges, must be as many as cu_seqlens_q has, "
                         f"{len(ends[0])}")
    options = _options(softmax_scale, causal, window_size, softcap, max(len(q), len(k)))
    arrays = [x.transpose(0, 1) for x in (q, k, v)]
    slopes = _slopes(alibi_slopes, len(ends[0]) - 1, q.shape[1])
    if slopes is None or slopes.dim() == 1:
        o, lse = attention(*arrays, return_lse=True, dropout=dropout_p, query_offsets=ends[0],
                           key_offsets=ends[1], **_bias(slopes, options))
    else:
        each = []
        for b, (i, m, j, n) in enumerate(zip(ends[0], ends[0][1:], ends[1], ends[1][1:])):
            each.append(attention(arrays[0][:, i:m], arrays[1][:, j:n], arrays[2][:, j:n],
                                  return_lse=True, dropout=dropout_p, **_bias(slopes[b], options)))
        o, lse = torch.cat([x[0] for x in each], 1), torch.cat([x[1] for x in each], 1)
    o = o.transpose(0, 1)
    return (o, lse, None) if return_attn_probs else o


def scaled_dot_product_attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
        enable_gqa: bool = False, *, alibi_slopes: Optional[Tensor] = None,
        window: Optional[int] = None) -> Tensor:
    """torch's function of this name with ALiBi: [batch, heads, n, dim], no n x n bias.

    `attn_mask` is padding ([batch, n] or [batch, 1, 1, n]), or causality, a window, packed
    sequences and padding together ([n, n] or [batch, 1, n, n]). True, 1 or 0.0 is where a key takes
    part, by the dtype (bool, integer, float), as in torch; it is recognised, or refused.
    ALiBi is given by `alibi_slopes`, [heads] or [batch, heads], never as a mask. `window` w: keys at a
    distance less than w, with the bias or without. Tokens of padding attend to padding alone.

    torch aligns `is_causal` to the first key, which differs from the last one if there are fewer
    queries than keys: that is refused.

    >>> q, k, v = (torch.randn(2, 4, 50, 16) for _ in range(3))
    >>> o = scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> own = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> bool((o - own).abs().max() < 1e-5)
    True
    """
    _check_ranks((("query", query), ("key", key), ("value", value)), 4, "[batch, heads, n, dim]")
    batch, heads, queries, keys = *query.shape[:3], key.shape[2]
    if is_causal and queries != keys:
        raise ValueError(f"is_causal=True: {queries} queries, {keys} keys: torch aligns them at the first "
                         "key. plsh.torch.attention(causal=True) aligns at the last one, as decoding does")
    if heads != key.shape[1] and not enable_gqa:
        raise ValueError(f"key: {key.shape[1]} heads, query: {heads}; enable_gqa=True lets them differ")
    seen = Seen(is_causal, None, None)
    if attn_mask is not None:
        seen = recognise(attn_mask, batch, heads, queries, keys, is_causal)
    options = {"causal": seen.causal, "scale": scale, "method": "exact", "spans": seen.spans}
    reach = min(x for x in (window, seen.window, keys + queries) if x is not None)
    if reach < 1:
        raise ValueError(f"window={window}: must be positive")
    if reach < keys + queries:
        options |= {"method": "window", "window": reach}
    slopes = _slopes(alibi_slopes, batch, heads)
    if slopes is None or slopes.dim() == 1:
        o: Tensor = attention(query, key, value, dropout=dropout_p, **_bias(slopes, options))
        return o
    return torch.cat([attention(
        query[b:b + 1], key[b:b + 1], value[b:b + 1], dropout=dropout_p,
        **_bias(slopes[b], {**options, "spans": None if seen.spans is None else seen.spans[b:b + 1]}))
        for b in range(batch)])


def _check_ranks(given: Any, rank: int, form: str) -> None:
    for name, x in given:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: is {type(x).__name__}, must be a torch tensor")
        if x.dim() != rank:
            raise ValueError(f"{name}: shape {tuple(x.shape)}, must be {form}")


def _options(scale: Optional[float], causal: bool, window_size: Any, softcap: float,
             longest: int) -> dict[str, Any]:
    """flash-attn's arguments as options of :func:`attention`."""
    if softcap:
        raise NotImplementedError(f"softcap={softcap}: is not served; leave it 0")
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise ValueError(f"window_size={window_size}: must be (left, right)")
    left, right = (x if 0 <= x < longest - 1 else None for x in map(int, window_size))
    if right == 0:
        causal = True  # as in flash-attn
    if causal:
        right = left
    options = {"causal": causal, "scale": scale, "method": "exact"}
    if left == right is None:
        return options
    if left != right:
        raise NotImplementedError(f"window_size={tuple(window_size)}: is not served; a window is symmetric, "
                                  "(w, w), or causal, (w, 0)")
    assert left is not None
    return {**options, "method": "window", "window": left + 1}


def _slopes(slopes: Optional[Tensor], batch: int, heads: int) -> Optional[Tensor]:
    """[heads], or [batch, heads] where batch entries differ."""
    if slopes is None:
        return None
    if not isinstance(slopes, Tensor) or tuple(slopes.shape) not in ((heads,), (batch, heads)):
        shape = tuple(slopes.shape) if isinstance(slopes, Tensor) else type(slopes).__name__
        raise ValueError(f"alibi_slopes: {shape}, must be a tensor [{heads}] or [{batch}, {heads}]")
    if not slopes.requires_grad:
        if slopes.dim() == 2 and bool((slopes == slopes[:1]).all()):
            slopes = slopes[0] if batch else slopes.new_full((heads,), 1.0)
        slopes = torch.where(slopes == 0, 1 / NO_BIAS, slopes.double())
    return slopes


def _bias(slopes: Optional[Tensor], options: dict[str, Any]) -> dict[str, Any]:
    if slopes is not None:
        return {**options, "slopes": slopes}
    if options["method"] == "window":
        return {**options, "sigma": NO_BIAS}
    return {**options, "method": "none"}


def _edges(name: str, edges: Any, total: int) -> list[int]:
    if not isinstance(edges, Tensor) or edges.dim() != 1 or edges.is_floating_point() or len(edges) < 2:
        raise TypeError(f"{name}: must be an int32 tensor of the sequences' edges")
    ends: list[int] = edges.tolist()
    if ends[0] != 0 or ends[-1] != total or any(x > y for x, y in zip(ends, ends[1:])):
        raise ValueError(f"{name}: must rise from 0 to {total}, the number of rows")
    return ends
