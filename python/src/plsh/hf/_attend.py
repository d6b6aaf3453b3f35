"""The attention function that transformers' layers call."""

from __future__ import annotations

import threading
from typing import Any, Optional
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

import plsh.torch
from plsh._torch_options import NO_BIAS
from plsh.hf._cache import layer_of
from plsh.hf._mask import Mask, Refused
from plsh.hf._options import only_used

# Arguments of models that do not change scores.
HARMLESS = frozenset({
    "cache_position", "logits_to_keep", "num_items_in_batch", "output_attentions",
    "output_hidden_states", "position_ids",
    "return_dict", "use_cache",
})


class Calls(threading.local):
    """How often layers called plsh in this thread, and how often they had when a model began its
    pass: a model none of whose layers calls plsh is refused. Threads may share a model."""

    def __init__(self) -> None:
        self.count = 0
        self.begun: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()


calls = Calls()


def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any,
           dropout: float = 0.0, scaling: Optional[float] = None, *,
           is_causal: Optional[bool] = None, sliding_window: Optional[int] = None,
           own: Optional[dict[str, Any]] = None, **others: Any) -> tuple[Tensor, None]:
    """[batch, heads, n, dim] to [batch, n, heads, dim].

    Causality and sliding windows are those of the mask that the model asked for; the module's
    is_causal and the argument sliding_window are hints for other implementations. `own` are the
    model's own slopes, where it has some.
    """
    name = type(module).__name__
    if not isinstance(attention_mask, Mask):
        refuse_mask(name, attention_mask)
    _refuse_others(name, others)
    if not torch.compiler.is_compiling():
        calls.count += 1
    tracing = torch.compiler.is_compiling()
    layer = None if tracing else layer_of(key)
    window = attention_mask.window
    if window is not None and not tracing and layer is None and attention_mask.keys <= window:
        window = None
    method, options = settled(name, attention_mask.method, attention_mask.options, own, window)
    if layer is not None:
        if dropout:
            raise Refused(f"{name}: attention dropout {dropout} with a cache; model.eval() turns it off")
        o = layer.attend(query, key, value, attention_mask, method, scaling, options)
        return o.transpose(1, 2), None
    if key.shape[2] != attention_mask.keys:
        raise Refused(f"{name}: {key.shape[2]} keys, but its mask was made for "
                      f"{attention_mask.keys}: cross-attention, or a cache that plsh does not know")
    o = plsh.torch.attention(query, key, value, causal=attention_mask.causal, scale=scaling,
                             method=method, spans=attention_mask.spans, dropout=dropout, **options)
    return o.transpose(1, 2), None


def refuse_mask(name: str, mask: Any) -> None:
    if mask is None:
        raise Refused(f"{name}: asks for no mask, so whether it is causal is not known; plsh serves "
                      "layers whose model makes its mask with transformers' mask functions")
    shape = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
    raise Refused(f"{name}: an attention mask of its own ({shape}); plsh serves padding masks "
                  "[batch, n], causality and sliding windows, not masks of single pairs")


def _refuse_others(name: str, others: dict[str, Any]) -> None:
    for key, value in others.items():
        if value is None or value is False or key in HARMLESS:
            continue
        raise Refused(f"{name}: passes {key} to its attention, which plsh does not serve")


def settled(name: str, method: str, options: dict[str, Any], own: Optional[dict[str, Any]],
            window: Optional[int]) -> tuple[str, dict[str, Any]]:
    """Method and options of a layer that has slopes of its `own`, and a sliding `window`."""
    if own and method != "none" and not {"sigma", "slopes", "decay"} & options.keys():
        options = {**own, **options}
    if window is None:
        return method, options
    found, reach = _slide(name, method, window, options.get("window"))
    options = {**only_used(found, options), "window": reach}
    return found, {**options, "sigma": NO_BIAS} if method == "none" else options


def _slide(name: str, method: str, sliding: int, window: Any) -> tuple[str, Any]:
    """Method and window for a model with a sliding window: exact inside it, or without a bias."""
    if method in ("exact", "none"):
        return "window", sliding
    if method == "window" and isinstance(window, int):
        return "window", min(window, sliding)
    raise Refused(
        f"{name}: sliding_window={sliding}; goes with plsh_exact, plsh_none, or plsh_window and its "
        "window: set config.sliding_window = None for the others, ALiBi fades by itself")
