"""ALiBi families whose code is published beside their weights: MosaicBERT and DNABERT-2, Jina's v2
encoders, Baichuan, Jais and BTLM, Refact, MPT of llm-foundry.

They are recognised by their modules' names, not by where they were imported from. Two things of each
are replaced: the attention of its layers, and the method that makes the bias, an array [heads, n, n]. In
its place the layers get the spans of the padding, or nothing.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Optional

import torch
from torch import Tensor, nn

import plsh.torch
from plsh._decay import alibi_slopes
from plsh._fused import split
from plsh.hf._adapters import Adapter, Attend, _adapters
from plsh.hf._mask import Refused

# Padding of the pass that a model is in, from its forward to the method that makes its bias.
_padding: ContextVar[Optional[Tensor]] = ContextVar("padding", default=None)


def _reach(module: Any, path: str) -> Any:
    """The part of a module at a path, with numbers for entries of lists; None where there is none."""
    for name in path.split("."):
        if name.isdigit():
            if not isinstance(module, nn.ModuleList) or len(module) <= int(name):
                return None
            module = module[int(name)]
        else:
            module = getattr(module, name, None)
    return module


def _has(module: nn.Module, *paths: str) -> bool:
    return all(_reach(module, path) is not None for path in paths)


def _stacked(fused: Tensor, heads: int) -> Sequence[Tensor]:
    """q, k, v [batch, heads, n, dim] of a projection with the queries of all heads, the keys, the values."""
    return split(fused, lambda x: x.view(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0))


def _joined(o: Tensor) -> Tensor:
    """[batch, heads, n, dim] to [batch, n, heads * dim]."""
    return o.transpose(1, 2).flatten(2)


def _spans(mask: Any, name: str) -> Optional[Tensor]:
    """The spans of a padding mask [batch, n] of any dtype, 1 at tokens; None without padding."""
    if mask is None:
        return None
    if mask.dim() != 2:
        raise Refused(f"{name}: an attention mask of shape {tuple(mask.shape)}; plsh serves padding "
                      "masks [batch, n]")
    tokens = mask != 0
    return None if bool(tokens.all()) else plsh.torch.padding_spans(tokens)


def _appended(past: Any, k: Tensor, v: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Keys and values after those of a cache in the form of the published code, (k, v)."""
    if past is None:
        return k, v
    if not isinstance(past, (tuple, list)) or len(past) != 2:
        raise Refused(f"{name}: a cache of type {type(past).__name__}; its own code has pairs (k, v)")
    return torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)


# ---- MosaicBERT, DNABERT-2, DNABERT-S --------------------------------------------------------------

def _is_mosaic(module: nn.Module) -> bool:
    return _has(module, "layer.0.attention.self.Wqkv", "layer.0.mlp.gated_layers", "rebuild_alibi_tensor")


def _mosaic_encoder(encoder: Any, attend: Attend, hidden_states: Tensor, attention_mask: Tensor,
                    output_all_encoded_layers: Optional[bool] = True,
                    subset_mask: Optional[Tensor] = None) -> list[Tensor]:
    """The encoder's forward pass without the bias, on all tokens packed without padding."""
    batch, rows = hidden_states.shape[:2]
    tokens = attention_mask != 0
    _spans(attention_mask, attend.name)  # the tokens of a row are adjacent, or refused
    indices = tokens.flatten().nonzero().flatten()
    edges = nn.functional.pad(tokens.sum(1).cumsum(0), (1, 0)).to(torch.int32)
    hidden = hidden_states.flatten(0, 1)[indices]
    made = []
    for n, layer in enumerate(encoder.layer):
        last = n + 1 == len(encoder.layer)
        subset = subset_mask[tokens].nonzero().flatten() if last and subset_mask is not None else None
        hidden = layer(hidden, edges, rows, subset, indices, attn_mask=attention_mask, bias=None)
        if output_all_encoded_layers and not (last and subset is not None):
            made.append(hidden)
    if subset_mask is None:
        whole = hidden.new_zeros(batch * rows, hidden.shape[-1])
        hidden = whole.index_copy(0, indices, hidden).view(batch, rows, -1)
    if not output_all_encoded_layers:
        made.append(hidden)
    return made


def _mosaic_attention(layer: Any, attend: Attend, hidden_states: Tensor, cu_seqlens: Tensor,
                      *_: Any, **__: Any) -> Tensor:
    q, k, v = _stacked(layer.Wqkv(hidden_states)[None], layer.num_attention_heads)
    o = attend(q, k, v, causal=False, slopes="alibi", offsets=cu_seqlens,
               dropout=layer.p_dropout if layer.training else 0.0)
    return _joined(o)[0]


# ---- Jina's v2 encoders, their code variant, their rerankers ---------------------------------------

def _is_jina(module: nn.Module) -> bool:
    return _has(module, "layer.0.attention.self.query", "layer.0.attention.self.key",
                "rebuild_alibi_tensor") and not getattr(_reach(module, "layer.0"), "is_decoder", False)


def _jina_encoder(encoder: Any, attend: Attend, hidden_states: Tensor, *args: Any,
                  **kwargs: Any) -> Any:
    if hasattr(encoder, "alibi"):  # some revisions keep a table
        size = max(hidden_states.shape[1], encoder._current_alibi_size)
        encoder.alibi = _no_bias(encoder, size, hidden_states.dtype)
        encoder._current_alibi_size = size
    return type(encoder).forward(encoder, hidden_states, *args, **kwargs)


def _no_bias(encoder: Any, size: int, dtype: torch.dtype) -> Tensor:
    """A tensor of the shape of the bias that occupies one element."""
    return torch.zeros(1, 1, 1, 1, dtype=dtype).expand(1, encoder.num_attention_heads, size, size)


def _jina_bias(encoder: Any, attend: Attend, size: int, device: Any = None) -> Tensor:
    encoder._current_alibi_size = size
    return _no_bias(encoder, size, next(encoder.parameters()).dtype)


def _jina_undo(encoder: Any) -> None:
    if hasattr(encoder, "alibi"):
        encoder.alibi = encoder.alibi[:, :, :0, :0]
        encoder._current_alibi_size = 0  # its own code makes the table anew


def _jina_attention(layer: Any, attend: Attend, *args: Any, **kwargs: Any) -> tuple[Tensor]:
    given = attend.arguments(args, kwargs, ("hidden_states", "attention_mask", "bias"))
    x, mask = given["hidden_states"], given.get("attention_mask")
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    if hasattr(layer, "layer_norm_q"):  # the code variant: over all heads together
        q, k = layer.layer_norm_q(q), layer.layer_norm_k(k)
    q, k, v = (y.unflatten(-1, (layer.num_attention_heads, -1)).transpose(1, 2) for y in (q, k, v))
    o = attend(q, k, v, causal=False, slopes="alibi", mask=_added(mask, attend.name),
               dropout=layer.dropout.p if layer.training else 0.0)
    return (_joined(o),)


def _added(mask: Optional[Tensor], name: str) -> Optional[Tensor]:
    """The tokens, [batch, n], of a mask [batch, 1, 1, n] that is added to the scores."""
    if mask is None:
        return None
    if mask.dim() != 4 or mask.shape[1:3] != (1, 1):
        raise Refused(f"{name}: an attention mask of shape {tuple(mask.shape)}; plsh serves padding "
                      "masks [batch, n]")
    return mask[:, 0, 0] == 0


# ---- Baichuan --------------------------------------------------------------------------------------

def _is_baichuan(module: nn.Module) -> bool:
    return _has(module, "embed_tokens", "layers.0.self_attn.W_pack", "get_alibi_mask")


def _baichuan(model: Any, attend: Attend, *args: Any, **kwargs: Any) -> Any:
    given = attend.named(args, kwargs)
    model.alibi_mask = None  # kept by its own code if the length is the same
    token = _padding.set(_spans(given.pop("attention_mask", None), attend.name))
    try:
        return type(model).forward(model, **given)
    finally:
        _padding.reset(token)


def _baichuan_bias(model: Any, attend: Attend, *_: Any) -> Tensor:
    """The mask that the model passes to its layers: the spans, empty without padding."""
    spans = _padding.get()
    return torch.empty(0, 3, dtype=torch.int64) if spans is None else spans


def _baichuan_attention(layer: Any, attend: Attend, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    given = attend.arguments(args, kwargs, ("hidden_states", "attention_mask", "past_key_value"))
    q, k, v = _stacked(layer.W_pack(given["hidden_states"]), layer.num_heads)
    k, v = _appended(given.get("past_key_value"), k, v, attend.name)
    spans = given.get("attention_mask")
    o = attend(q, k, v, causal=True, slopes="alibi", spans=spans if spans is not None and len(spans) else None)
    return layer.o_proj(_joined(o)), None, (k, v) if given.get("use_cache") else None


# ---- Jais and BTLM ---------------------------------------------------------------------------------

def _is_jais(module: nn.Module) -> bool:
    return _has(module, "wte", "h.0.attn.c_attn", "relative_pe.slopes")


def _jais_bias(relative: Any, attend: Attend, *_: Any) -> Tensor:
    return torch.empty(0)


def _jais_slopes(model: Any, keys: int) -> Tensor:
    """Those in its file, divided by `alibi_scaling`: a factor, or how much longer the text is than in training."""
    slopes: Tensor = model.relative_pe.slopes.detach().double().flatten()
    scaling = getattr(model.relative_pe, "alibi_scaling", None) or \
        getattr(getattr(model, "config", None), "alibi_scaling", None)
    if not scaling:
        return slopes
    factor, trained = scaling.get("factor"), scaling.get("train_seq_len")
    if factor is None and trained is None:
        raise Refused(f"{type(model).__name__}: alibi_scaling={scaling}; plsh serves factor and train_seq_len")
    return slopes / float(factor if factor is not None else max(1.0, keys / trained))


def _jais_attention(layer: Any, attend: Attend, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    given = attend.arguments(args, kwargs, ("hidden_states", "attention_mask", "layer_past",
                                            "position_bias"))
    q, k, v = _stacked(layer.c_attn(given["hidden_states"]), layer.num_heads)
    k, v = _appended(given.get("layer_past"), k, v, attend.name)
    scale = q.shape[3] ** -layer.attn_scale_power if layer.scale_attn_weights else 1.0
    if layer.scale_attn_by_inverse_layer_idx:
        scale /= layer.layer_idx + 1
    o = attend(q, k, v, causal=True, slopes=_jais_slopes(attend.owner, k.shape[2]), scale=scale,
               mask=_added(given.get("attention_mask"), attend.name),
               dropout=layer.attn_dropout.p if layer.training else 0.0)
    return layer.resid_dropout(layer.c_proj(_joined(o))), (k, v) if given.get("use_cache") else None


# ---- Refact ----------------------------------------------------------------------------------------

_REFACT_BIAS = "get_alibi_biases"  # a function of its module


def _is_refact(module: nn.Module) -> bool:
    return _has(module, "wte", "h.0.attn.q", "h.0.attn.c_proj", "h.0.mlp.c_proj") and \
        (_has(module, "h.0.attn.kv") or _has(module, "h.0.attn.k", "h.0.attn.v")) and \
        _REFACT_BIAS in inspect.unwrap(type(module).forward).__globals__


def _refact(model: Any, attend: Attend, *args: Any, **kwargs: Any) -> Any:
    given = attend.named(args, kwargs)
    token = _padding.set(_spans(given.pop("attention_mask", None), attend.name))
    try:
        return _elsewhere(inspect.unwrap(type(model).forward), {_REFACT_BIAS: _refact_bias})(model, **given)
    finally:
        _padding.reset(token)


def _elsewhere(function: Any, names: dict[str, Any]) -> Any:
    """A copy of a function in which some global names of its module have other values."""
    made = types.FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__,
                              function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _refact_bias(*_: Any, **__: Any) -> Tensor:
    """The spans as [batch, 1, 1, 3], because the model takes the last rows of the third dimension."""
    spans = _padding.get()
    return torch.empty(0, 1, 1, 3, dtype=torch.int64) if spans is None else spans[:, None, None]


def _refact_mask(model: Any, attend: Attend, *_: Any, **__: Any) -> Tensor:
    """Replaces the mask [n, n], which is not needed."""
    return torch.empty(0, 0, dtype=torch.bool)


def _refact_attention(layer: Any, attend: Attend, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    given = attend.arguments(args, kwargs, ("hidden_states", "attention_mask", "layer_past", "alibi"))
    x, alibi = given["hidden_states"], given.get("alibi")
    if alibi is None or alibi.is_floating_point():
        raise Refused(f"{attend.name}: is not called by the model it was found in")
    q = layer.q(x).unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)
    k, v = layer.kv(x).chunk(2, -1) if hasattr(layer, "kv") else (layer.k(x), layer.v(x))
    k, v = _appended(given.get("layer_past"), k[:, None], v[:, None], attend.name)  # one head
    o = attend(q, k, v, causal=True, slopes="alibi", spans=alibi[:, 0, 0] if len(alibi) else None)
    return layer.c_proj(_joined(o)), (k, v) if given.get("use_cache") else None


# ---- MPT of llm-foundry ----------------------------------------------------------------------------

def _is_mpt(module: nn.Module) -> bool:
    return _has(module, "wte", "blocks.0.attn.out_proj", "_attn_bias", "alibi_bias_max") and \
        (_has(module, "blocks.0.attn.Wqkv") or _has(module, "blocks.0.attn.Wq", "blocks.0.attn.Wk")) and \
        bool(getattr(module, "alibi", False))


def _mpt_bias(model: Any, attend: Attend, *args: Any, **kwargs: Any) -> tuple[Optional[Tensor], None]:
    given = attend.arguments(args, kwargs, ("device", "dtype", "attention_mask", "sequence_id"))
    mask, sequences = given.get("attention_mask"), given.get("sequence_id")
    if sequences is None or not model.attn_uses_sequence_id:
        return _spans(mask, attend.name), None
    if mask is not None:
        sequences = torch.where(mask != 0, sequences, -1)
    return plsh.torch.segment_spans(sequences), None


# What newer revisions have: (attribute, its value where it is not used).
_MPT_UNSERVED = (("sliding_window_size", -1), ("attn_logit_softcapping", None), ("reuse_kv_layer_idx", None),
                 ("reuse_kv_x_layer_idx", None), ("attn_temperature_tuning", None))


def _mpt_attention(layer: Any, attend: Attend, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    given = attend.arguments(args, kwargs, ("x", "past_key_value", "attn_bias", "is_causal",
                                            "flash_attn_padding_info", "pos_id_within_seq"))
    for name, unused in _MPT_UNSERVED:
        if getattr(layer, name, unused) != unused:
            raise Refused(f"{attend.name}: {name}={getattr(layer, name)}, which plsh does not serve")
    q, k, v = _mpt_projected(layer, given["x"])
    past = given.get("past_key_value")
    plain = layer.attn_impl == "torch"  # keys are [batch, heads, dim, n] in its cache
    if past is not None and len(past):
        if not plain:
            raise Refused(f"{attend.name}: a cache under attn_impl={layer.attn_impl!r}; set attn_impl: torch")
        k, v = _appended((past[0].transpose(2, 3), past[1]), k, v, attend.name)
    o = attend(q, k, v, causal=given.get("is_causal", True), spans=given.get("attn_bias"),
               slopes=(alibi_slopes(layer.n_heads) ** (attend.owner.alibi_bias_max / 8)).tolist(),
               scale=layer.softmax_scale, dropout=layer.attn_dropout_p if layer.training else 0.0)
    kept = (k.transpose(2, 3), v) if past is not None and plain else None
    return layer.out_proj(_joined(o)), None, kept


def _mpt_projected(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    """q, k and v: clamped, normalised, their heads apart."""
    fused = hasattr(layer, "Wqkv")
    made: Any = layer.Wqkv(x) if fused else (layer.Wq(x), layer.Wk(x), layer.Wv(x))
    if fused:
        width = layer.n_heads * (getattr(layer, "head_dim", None) or layer.d_model // layer.n_heads)
        rest = (made.shape[-1] - width) // 2
        made = made.split([width, rest, rest], -1)
    if layer.clip_qkv:
        made = [y.clamp(-layer.clip_qkv, layer.clip_qkv) for y in made]
    q, k, v = made
    dim = q.shape[-1] // layer.n_heads
    if getattr(layer, "qk_ln", False):
        q, k = layer.q_ln(q).to(q.dtype), layer.k_ln(k).to(k.dtype)
    q, k, v = (y.unflatten(-1, (-1, dim)) for y in (q, k, v))
    if getattr(layer, "qk_gn", False):
        q, k = layer.q_ln(q).to(q.dtype), layer.k_ln(k).to(k.dtype)
    return tuple(y.transpose(1, 2) for y in (q, k, v))


_adapters += [
    Adapter(_is_mosaic, _mosaic_encoder),
    Adapter(_is_mosaic, _mosaic_attention, inside=lambda x: [y.attention.self for y in x.layer]),
    Adapter(_is_jina, _jina_encoder, undo=_jina_undo),
    Adapter(_is_jina, _jina_bias, "rebuild_alibi_tensor"),
    Adapter(_is_jina, _jina_attention, inside=lambda x: [y.attention.self for y in x.layer]),
    Adapter(_is_baichuan, _baichuan),
    Adapter(_is_baichuan, _baichuan_bias, "get_alibi_mask"),
    Adapter(_is_baichuan, _baichuan_attention, inside=lambda x: [y.self_attn for y in x.layers]),
    Adapter(_is_jais, _jais_bias, inside=lambda x: [x.relative_pe]),
    Adapter(_is_jais, _jais_attention, inside=lambda x: [y.attn for y in x.h]),
    Adapter(_is_refact, _refact),
    Adapter(lambda x: _is_refact(x) and hasattr(x, "_make_mask"), _refact_mask, "_make_mask"),
    Adapter(_is_refact, _refact_attention, inside=lambda x: [y.attn for y in x.h]),
    Adapter(_is_mpt, _mpt_bias, "_attn_bias"),
    Adapter(_is_mpt, _mpt_attention, inside=lambda x: [y.attn for y in x.blocks]),
]
