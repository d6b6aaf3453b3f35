"""BLOOM, MPT and Falcon, which do their own attention; and the check of every other class."""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import GenerationMixin, PreTrainedModel
from transformers.masking_utils import create_masks_for_generate
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.falcon import modeling_falcon as falcon
from transformers.models.mpt import modeling_mpt as mpt
from transformers.utils import logging

from plsh._decay import alibi_slopes
from plsh._fused import split
from plsh.hf import _options
from plsh.hf._attend import attend, calls, refuse_mask
from plsh.hf._cache import chooses_cache
from plsh.hf._mask import Mask, Refused, owners

_log = logging.get_logger(__name__)
Forward = Callable[..., Any]


def _heads(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Mask, past: Any, scale: float,
           dropout: float, own: Any = None) -> Tensor:
    """Attention of the heads, [batch, n, heads * dim]; the cache is brought up to date before."""
    if past is not None:
        k, v = past.update(k, v, module.layer_idx)
    o, _ = attend(module, q, k, v, mask, dropout if module.training else 0.0, scale, own=own)
    return o.reshape(*o.shape[:2], -1)


def _groups(fused: Tensor, groups: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of a projection that has, for each group of heads, its queries, its key, its value."""
    heads = fused.view(*fused.shape[:2], groups, -1, dim)
    q, k, v = heads[:, :, :, :-2].flatten(2, 3), heads[:, :, :, -2], heads[:, :, :, -1]
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def _stacked(fused: Tensor, heads: int, dim: int) -> tuple[Tensor, ...]:
    """q, k, v of a projection that has the queries of all heads, their keys, their values."""
    split = fused.view(*fused.shape[:2], 3, heads, dim)
    return tuple(x.transpose(1, 2) for x in split.unbind(2))


def _bloom(self: Any, hidden_states: Tensor, residual: Tensor, alibi: Any, attention_mask: Mask,
           layer_past: Any = None, **_: Any) -> tuple[Tensor, None]:
    if self.pretraining_tp > 1 and self.slow_but_exact:
        raise Refused("BloomAttention: slow_but_exact; set config.slow_but_exact = False")
    q, k, v = split(self.query_key_value(hidden_states),
                    partial(_groups, groups=self.num_heads, dim=self.head_dim))
    o = _heads(self, q, k, v, attention_mask, layer_past, self.inv_norm_factor,
               self.attention_dropout.p)
    return bloom.dropout_add(self.dense(o), residual, self.hidden_dropout, self.training), None


def _bloom_block(self: Any, hidden_states: Tensor, alibi: Any, attention_mask: Mask,
                 **arguments: Any) -> tuple[Tensor, None]:
    """BloomBlock's forward pass, with a choice of the GELU."""
    after_norm = self.apply_residual_connection_post_layernorm
    normed = self.input_layernorm(hidden_states)
    hidden, _ = self.self_attention(normed, normed if after_norm else hidden_states,
                                    attention_mask=attention_mask, alibi=alibi, **arguments)
    normed = self.post_attention_layernorm(hidden)
    fused = {"fused": True} if attention_mask.fused_gelu and type(self.mlp) is bloom.BloomMLP else {}
    return self.mlp(normed, normed if after_norm else hidden, **fused), None


def _bloom_mlp(own: Forward) -> Forward:
    """BloomMLP's forward pass; `fused`: with torch's GELU."""
    @functools.wraps(own)
    def forward(self: Any, hidden_states: Tensor, residual: Tensor, fused: bool = False) -> Any:
        if not fused or type(self.gelu_impl) is not bloom.BloomGelu:
            return own(self, hidden_states, residual)
        inner = self.gelu_impl(self.dense_h_to_4h(hidden_states), fused=True)
        return bloom.dropout_add(self.dense_4h_to_h(inner), residual, self.hidden_dropout,
                                 self.training)
    return forward


def _bloom_gelu(own: Forward) -> Forward:
    """BloomGelu's forward pass, or the same formula as one operation of torch's.

    BLOOM writes it as 9 operations, and its gradient as 18, each on [n, 4 hidden]: where attention is
    near-linear that is a large part of a training step. The two differ by rounding.
    """
    @functools.wraps(own)
    def forward(self: Any, x: Tensor, fused: bool = False) -> Any:
        return functional.gelu(x, approximate="tanh") if fused else own(self, x)
    return forward


def _mpt(self: Any, hidden_states: Tensor, position_bias: Any, past_key_values: Any = None,
         attention_mask: Any = None, **_: Any) -> tuple[Tensor, None]:
    mixed = self.Wqkv(hidden_states)
    if self.clip_qkv:
        mixed = mixed.clamp(min=-self.clip_qkv, max=self.clip_qkv)
    q, k, v = split(mixed, partial(_stacked, heads=self.n_heads, dim=self.head_dim))
    o = _heads(self, q, k, v, attention_mask, past_key_values, self.softmax_scale,
               self.attn_dropout_p)
    return self.out_proj(o), None


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _falcon_sigmas(heads: int, head_dim: int) -> tuple[float, ...]:
    """Falcon adds its bias before it scales, and rounds its slopes to bfloat16."""
    bits = alibi_slopes(heads).astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)  # to even
    return tuple((math.sqrt(head_dim) / rounded.view(np.float32).astype(np.float64)).tolist())


def _falcon(self: Any, hidden_states: Tensor, alibi: Any, attention_mask: Mask,
            position_ids: Any = None, layer_past: Any = None, position_embeddings: Any = None,
            **_: Any) -> tuple[Tensor, None]:
    groups = self.num_kv_heads if self.new_decoder_architecture else \
        1 if self.multi_query else self.num_heads
    parts = partial(_groups, groups=groups, dim=self.head_dim)
    fused = self.query_key_value(hidden_states)
    # Queries of groups of several are no view: they are copied.
    q, k, v = split(fused, parts) if groups in (1, self.num_heads) else parts(fused)
    own = None
    if alibi is None:
        rotate: Any = falcon.apply_rotary_pos_emb
        q, k = rotate(q, k, *position_embeddings)
    else:
        own = {"sigma": _falcon_sigmas(self.num_heads, self.head_dim)}
    o = _heads(self, q, k, v, attention_mask, layer_past, self.inv_norm_factor,
               self.attention_dropout.p if alibi is not None else 0.0, own)
    return self.dense(o), None


def _falcon_masks(self: Any, config: Any, **arguments: Any) -> Any:
    """For static caches: as BLOOM, Falcon makes its bias from a mask [batch, n]."""
    if config._attn_implementation in _options.METHODS:
        return bloom.BloomForCausalLM.create_masks_for_generate(self, config, **arguments)
    return create_masks_for_generate(config, **arguments)


def _where_plsh(own: Forward, ours: Forward) -> Forward:
    """A layer's forward pass: ours where the model's mask is ours, else its own."""
    @functools.wraps(own)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, Mask) for x in args) or \
                isinstance(kwargs.get("attention_mask"), Mask):
            return ours(self, *args, **kwargs)
        return own(self, *args, **kwargs)
    return forward


def install() -> None:
    """Replaces forward passes of the three families; has every other model checked when it is made."""
    if hasattr(PreTrainedModel.get_correct_attn_implementation, "__wrapped__"):
        return
    for layer, ours in ((bloom.BloomAttention, _bloom), (bloom.BloomBlock, _bloom_block),
                        (mpt.MptAttention, _mpt), (falcon.FalconAttention, _falcon)):
        setattr(layer, "forward", _where_plsh(layer.forward, ours))
    setattr(bloom.BloomMLP, "forward", _bloom_mlp(bloom.BloomMLP.forward))
    setattr(bloom.BloomGelu, "forward", _bloom_gelu(bloom.BloomGelu.forward))
    for name in _options.METHODS:
        falcon.FALCON_ATTENTION_CLASSES[name] = falcon.FalconAttention
    for base in (bloom.BloomPreTrainedModel, mpt.MptPreTrainedModel, falcon.FalconPreTrainedModel):
        setattr(base, "_can_set_attn_implementation_cached_value", True)
    setattr(falcon.FalconForCausalLM, "create_masks_for_generate", _falcon_masks)
    setattr(GenerationMixin, "_prepare_cache_for_generation",
            chooses_cache(GenerationMixin._prepare_cache_for_generation))
    setattr(PreTrainedModel, "get_correct_attn_implementation",
            _checked(PreTrainedModel.get_correct_attn_implementation))


# Options of plsh.hf.register: written into the configuration of each model that is made.
defaults: dict[str, Any] = {}


def _checked(original: Forward) -> Forward:
    """transformers' choice of an implementation for a model, with ours admitted or refused."""
    @functools.wraps(original)
    def choose(self: PreTrainedModel, requested_attention: Any,
               is_init_check: bool = False) -> Any:
        saved = getattr(self.config, "plsh", None)
        if saved and requested_attention is None and is_init_check:
            requested_attention = saved["implementation"]
        found = original(self, _options.renamed(requested_attention), is_init_check)
        if found in _options.METHODS:
            admit(self, found)
        elif saved and not is_init_check:
            _options.erase(self.config)
        elif saved and not _options.is_own(self.config, saved["implementation"], saved["options"]):
            _log.warning(f"{type(self).__name__}: was saved with {saved['implementation']} "
                         f"attention and is loaded with {found}: it is another model")
        return found
    return choose


def admit(model: PreTrainedModel, name: str, options: Optional[dict[str, Any]] = None) -> None:
    """Refuses a model or options that plsh does not support; writes the implementation and the options
    (None: those it was saved with, or the defaults) in the configuration."""
    config, owner = model.config, type(model).__name__
    if getattr(config, "is_encoder_decoder", False) or \
            getattr(config, "add_cross_attention", False):
        raise Refused(f"{owner}: has cross-attention; plsh serves self-attention")
    if not type(model)._can_set_attn_implementation() or _has_classes(type(model).__module__):
        raise Refused(f"{owner}: its layers do their own attention and would not call plsh; load it "
                      "with another attn_implementation")
    owners[type(config)] = owner
    saved = getattr(config, "plsh", None)
    if options is None:
        options = _options.only_used(name, saved["options"] if saved else defaults)
    _options.try_out(name, options, config)
    if not saved:
        _warn_of_alibi(owner, config, name, options)
    _options.write(config, name, options)
    if not any(hook is _after for hook in model._forward_hooks.values()):
        model.register_forward_pre_hook(_before, with_kwargs=True)
        model.register_forward_hook(_after)


_warned: set[str] = set()  # the classes with a warning so far


def _warn_of_alibi(owner: str, config: Any, name: str, options: dict[str, Any]) -> None:
    """Warns once per class that a model without ALiBi gets it, unless the options ask for it."""
    if name in ("plsh_fixed", "plsh_none") or _options.own_alibi(config) or owner in _warned or \
            {"sigma", "slopes", "decay"} & options.keys():
        return
    _warned.add(owner)
    warnings.warn(f"{owner}: has no ALiBi of its own, and {name} adds it: its outputs change. If that is "
                  "meant, pass sigma=\"alibi\" (the standard slopes), or sigma, slopes or decay of "
                  "your own, to plsh.hf.register or plsh.hf.apply", stacklevel=3)


@functools.lru_cache(maxsize=None)
def _has_classes(name: str) -> bool:
    """Does a module choose the class of its layers by the implementation's name? It does not know ours."""
    module = sys.modules.get(name)
    if module is None or module is falcon:
        return False
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):  # made in an interpreter
        return False
    return re.search(r"_CLASSES\[\w*\.?config\._attn_implementation\]", source) is not None


def _before(model: Any, _: Any, arguments: dict[str, Any]) -> None:
    if not _has_plsh(model):
        return
    asked = arguments.get("output_attentions")
    if model.config.output_attentions if asked is None else asked:
        raise Refused(f"{type(model).__name__}: output_attentions=True; plsh never forms the n x n "
                      "weights, that is what makes it fast: plsh.hf.remove(model), or load it with "
                      "attn_implementation=\"eager\", to see them")
    if torch.compiler.is_compiling():
        return
    mask = arguments.get("attention_mask")
    if isinstance(mask, Tensor) and mask.dim() > 2:
        refuse_mask(type(model).__name__, mask)
    calls.begun[model] = calls.count


def _after(model: Any, _: Any, __: Any) -> None:
    """A model none of whose layers called plsh is refused after its first run."""
    if not torch.compiler.is_compiling() and _has_plsh(model) and \
            calls.begun.pop(model, None) == calls.count:
        raise Refused(f"{type(model).__name__}: none of its layers called plsh; load it with another "
                      "attn_implementation")


def _has_plsh(model: Any) -> bool:
    return model.config._attn_implementation in _options.METHODS
