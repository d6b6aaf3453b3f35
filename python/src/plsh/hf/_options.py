"""The options of a model: kept in its configuration, so that they are saved and loaded with it."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from plsh._decay import Decay

METHODS = {
    "plsh_exact": "exact",
    "plsh_sampled": "plsh",
    "plsh_window": "window",
    "plsh_fixed": "fixed",
}
# Of BLOOM's MLP: torch's GELU in the place of the model's own, which is the same to rounding.
FUSED_GELU = "fused_gelu"
NAMES = ("sigma", "slopes", "decay", "eps", "window", "block", "scheme", "design", "samples",
         "seed", "threads", FUSED_GELU)
NOTE = "attention by plsh: import plsh.hf; plsh.hf.register() before the model is loaded"
NO_ROPE = "plsh_none"
# Families whose own attention is ALiBi, so that plsh_exact computes what they compute without plsh.
OWN_ALIBI = ("bloom", "falcon", "mpt")


def implementation(method: str) -> str:
    """The name in transformers' attention interface of a method."""
    for name, word in METHODS.items():
        if method in (word, name, name.removeprefix("plsh_")):
            return name
    known = ", ".join(x.removeprefix("plsh_") for x in METHODS)
    raise ValueError(f"method={method!r}: is one of {known}")


def check(options: dict[str, Any]) -> dict[str, Any]:
    """The options as values that JSON has; what is no option is refused."""
    for name in options:
        if name not in NAMES:
            raise TypeError(f"{name}: is no option; those are {', '.join(NAMES)}")
    return {name: _plain(name, value) for name, value in options.items()}


def _plain(name: str, value: Any) -> Any:
    if name == FUSED_GELU and not isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: is True or False")
    if isinstance(value, torch.Tensor) and value.requires_grad:
        raise TypeError(f"{name}: a tensor that requires a gradient is no option of a configuration; "
                        "plsh.torch.attention learns slopes")
    if isinstance(value, Decay):
        return {"kind": value.kind, "a": value.a, "b": value.b, "limit": value.limit,
                "entries": list(value.entries)}
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def write(config: PreTrainedConfig, name: str, options: dict[str, Any]) -> None:
    """Writes the implementation and options into a configuration.

    Where plsh changes what the model computes, config.json names the implementation, so that
    transformers refuses to load the model without plsh; and a note says what is missing.
    """
    config.plsh = {"note": NOTE, "implementation": name, "options": dict(options)}
    if name == "plsh_exact" and not options.keys() - {FUSED_GELU} and own_alibi(config):
        config.__dict__.pop("attn_implementation", None)
    else:
        config.attn_implementation = name


def read(config: Any) -> dict[str, Any]:
    """The options of a configuration, as plsh.torch.attention takes them."""
    options = dict((getattr(config, "plsh", None) or {}).get("options", {}))
    if isinstance(options.get("decay"), dict):
        options["decay"] = Decay(**{**options["decay"], "entries": tuple(options["decay"]["entries"])})
    return options


def erase(config: PreTrainedConfig) -> None:
    for name in ("plsh", "attn_implementation"):
        config.__dict__.pop(name, None)


def own_alibi(config: Any) -> bool:
    """Does the model have ALiBi of its own?"""
    return config.model_type in OWN_ALIBI and getattr(config, "alibi", True) is not False


def _no_rotation(config: PreTrainedConfig, device: Any = None, seq_len: Any = None,
                 layer_type: Any = None, **_: Any) -> tuple[torch.Tensor, float]:
    """The frequencies of a rotary embedding that rotates nothing: cos = 1, sin = 0."""
    parameters = config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rotated = int(dim * (parameters.get("partial_rotary_factor") or 1.0))
    return torch.zeros(rotated // 2 + rotated % 2, device=device), 1.0


ROPE_INIT_FUNCTIONS[NO_ROPE] = _no_rotation


def drop_rope(config: PreTrainedConfig) -> None:
    """Names no rotation in the configuration: transformers then makes the model without it."""
    parameters = config.rope_parameters
    nested = [x for x in parameters.values() if isinstance(x, dict)]
    for entry in nested or [parameters]:
        entry["rope_type"] = NO_ROPE
