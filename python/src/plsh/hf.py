"""Hugging Face models with ALiBi attention in near-linear time.

    import plsh.hf
    plsh.hf.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="plsh_exact")

adds to transformers' attention interface:

- `plsh_exact`: ALiBi to float rounding,
- `plsh_sampled`: ALiBi by random partitions (the paper),
- `plsh_window`: ALiBi cut off at a window,
- `plsh_fixed`: blocks of equal size, no bias (the paper's baseline).

They serve decoders of the common kind (Llama, Mistral, Qwen3, ...) for prefill, training and
generation with their cache; the model's own causality, scale, grouped heads and, unless
:func:`drop_rope` removes it, RoPE are kept. The standard ALiBi series gives the sigmas;
:func:`configure` sets them, the samples and so on for one model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Optional

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import (
    AttentionMaskInterface,
    bidirectional_mask_function,
    causal_mask_function,
)

import plsh.torch

__all__ = ["configure", "drop_rope", "register"]

_METHODS = {
    "plsh_exact": "exact",
    "plsh_sampled": "plsh",
    "plsh_window": "window",
    "plsh_fixed": "fixed",
}
_OPTIONS = ("sigma", "slopes", "decay", "eps", "window", "block", "scheme", "design", "samples",
            "seed", "threads")


def register(**options: Any) -> None:
    """Adds the four implementations to transformers; call it before the model is made.

    The options are defaults for every model: sigma, slopes, decay, eps, window, block, scheme,
    design, samples, seed, threads, with the meaning they have in :func:`plsh.torch.attention`.

    >>> register(samples=64)
    """
    _check(options)
    for name, method in _METHODS.items():
        AttentionInterface.register(name, partial(_attend, method=method, defaults=options))
        AttentionMaskInterface.register(name, _mask)


def configure(model: nn.Module, **options: Any) -> None:
    """Sets options, as those of :func:`register`, for one model's attention layers."""
    _check(options)
    layers = [x for x in model.modules() if _is_attention(x)]
    if not layers:
        raise ValueError(f"model: {type(model).__name__} has no attention layer with the interface "
                         "of transformers (num_key_value_groups, scaling)")
    for layer in layers:
        layer.plsh_options = dict(options)  # type: ignore[assignment]


def drop_rope(model: nn.Module) -> None:
    """Removes the rotary embedding, so that ALiBi is the only positional information.

    Every rotation of the model becomes the identity (cos = 1, sin = 0).
    """
    rotary = [x for x in model.modules() if hasattr(x, "inv_freq")]
    if not rotary:
        raise ValueError(f"model: {type(model).__name__} has no rotary embedding to drop")
    for module in rotary:
        module.inv_freq.zero_()  # type: ignore[operator]
        if hasattr(module, "original_inv_freq"):
            module.original_inv_freq = torch.zeros_like(module.inv_freq)  # type: ignore[arg-type]


def _check(options: dict[str, Any]) -> None:
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"{name}: is no option; those are {', '.join(_OPTIONS)}")


def _is_attention(module: nn.Module) -> bool:
    return hasattr(module, "num_key_value_groups") and hasattr(module, "scaling")


def _parts(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """What a mask function of transformers is the conjunction of."""
    if not getattr(function, "__qualname__", "").startswith("and_masks."):
        return [function]
    parts: list[Callable[..., Any]] = []
    for cell in function.__closure__ or ():
        for part in cell.cell_contents:
            parts += _parts(part)
    return parts


def _refuse_other_masks(function: Callable[..., Any]) -> None:
    """Causal and bidirectional masks are served, and sliding windows; packing and others not."""
    for part in _parts(function):
        name = getattr(part, "__qualname__", str(part))
        if part not in (causal_mask_function, bidirectional_mask_function) and \
                not name.startswith("sliding_window_overlay."):
            raise NotImplementedError(
                f"attention mask {name}: plsh attention serves causal masks with padding alone; "
                "give packed sequences as a padded batch, or use another attn_implementation")


def _mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
          mask_function: Callable[..., Any] = causal_mask_function,
          attention_mask: Optional[Tensor] = None, **_: Any) -> Optional[Tensor]:
    """The mask that the layers get: None, or the spans of plsh.torch.padding_spans."""
    _refuse_other_masks(mask_function)
    length = int(q_offset) + q_length - kv_offset
    if attention_mask is None:
        if length == kv_length:
            return None
        return torch.tensor([[0, length, length]]).expand(batch_size, 3)
    used = attention_mask[:, kv_offset:kv_offset + length]
    if used.shape[1] != length:
        raise ValueError(f"attention_mask: of {attention_mask.shape[1]} tokens, must be of all "
                         f"{kv_offset + length}, those in the cache too")
    if length == kv_length and not torch.compiler.is_compiling() and bool(used.all()):
        return None
    return plsh.torch.padding_spans(used)


def _attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
            attention_mask: Optional[Tensor], dropout: float = 0.0,
            scaling: Optional[float] = None, is_causal: Optional[bool] = None,
            sliding_window: Optional[int] = None, *, method: str, defaults: dict[str, Any],
            **others: Any) -> tuple[Tensor, None]:
    """The attention function of transformers: [batch, heads, n, dim] to [batch, n, heads, dim]."""
    if dropout:
        raise NotImplementedError(f"dropout={dropout}: plsh attention has none; set "
                                  "config.attention_dropout = 0")
    for name in ("softcap", "s_aux", "position_bias"):
        if others.get(name) is not None:
            raise NotImplementedError(f"{name}: is not served by plsh attention")
    if attention_mask is not None and (attention_mask.dtype != torch.int64
                                       or attention_mask.dim() != 2):
        raise NotImplementedError(
            f"attention_mask: {attention_mask.dtype} of shape {tuple(attention_mask.shape)}; plsh "
            "attention serves padding masks [batch, n] alone")
    options = {**defaults, **getattr(module, "plsh_options", {})}
    if sliding_window is not None and key.shape[2] > sliding_window:
        method, options["window"] = _slide(method, sliding_window, options.get("window"))
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    o = plsh.torch.attention(query, key, value, causal=bool(causal), scale=scaling, method=method,
                             spans=attention_mask, **options)
    return o.transpose(1, 2), None


def _slide(method: str, sliding: int, window: Any) -> tuple[str, Any]:
    """Method and window of a model's sliding window: exact inside it."""
    if method == "exact":
        return "window", sliding
    if method == "window" and isinstance(window, int):
        return "window", min(window, sliding)
    raise NotImplementedError(
        f"sliding_window={sliding}: goes with plsh_exact, or plsh_window and its window; set "
        "config.sliding_window = None for the others, ALiBi fades by itself")
