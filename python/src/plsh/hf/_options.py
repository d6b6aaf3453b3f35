"""The options of a model: kept in its configuration, so that they are saved and loaded with it."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Optional, TypedDict, Union

import torch
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import plsh.torch
from plsh._decay import Decay, DecayLike
from plsh._options import is_used
from plsh._torch_options import Integers, Numbers

# The names in transformers' attention interface: plsh_ and the method.
METHODS = {f"plsh_{method}": method for method in ("exact", "plsh", "window", "fixed", "none")}
FIRST = "plsh_exact"
RENAMED = {"plsh_sampled": "plsh_plsh"}  # before 0.2.0
# Of BLOOM's MLP: torch's GELU in the place of the model's own, which is the same to rounding.
FUSED_GELU = "fused_gelu"


class Options(TypedDict, total=False):
    """The options of a model."""

    sigma: Union[Numbers, Literal["alibi"]]
    slopes: Numbers
    decay: DecayLike
    eps: float
    window: Integers
    block: Integers
    scheme: str
    design: str
    samples: int
    seed: int
    threads: Optional[int]
    fused_gelu: bool


NAMES = tuple(Options.__annotations__)
NOTE = "attention by plsh: import plsh.hf; plsh.hf.register() before the model is loaded"
NO_ROPE = "plsh_none"
# Families whose own attention is ALiBi, so that plsh_exact computes what they compute without plsh.
OWN_ALIBI = ("bloom", "falcon", "mpt")


def implementation(method: str) -> str:
    """The name in transformers' attention interface of a method."""
    full: str = renamed(method if method.startswith("plsh_") else f"plsh_{method}")
    if full not in METHODS:
        raise ValueError(f"method={method!r}: is one of {', '.join(METHODS.values())}, own")
    return full


def renamed(name: Any) -> Any:
    """The name of today of an implementation, with a warning where it was another one."""
    if not isinstance(name, str) or name not in RENAMED:
        return name
    now = RENAMED[name]
    warnings.warn(f"{name!r} is now {now!r}, and as a method \"plsh\", as everywhere in plsh; the old "
                  "name will be removed", FutureWarning, stacklevel=4)
    return now


def check(options: Any) -> dict[str, Any]:
    """Converts options to JSON values; refuses unknown names."""
    for name in options:
        if name not in NAMES:
            raise TypeError(f"{name}: not an option; the options are {', '.join(NAMES)}")
    return {name: _plain(name, value) for name, value in options.items()}


def only_used(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Those options that a method uses; `name` is the method or its implementation."""
    method = (METHODS.get(name, name),)
    return {key: x for key, x in options.items() if is_used(key, method)}


def try_out(name: str, options: dict[str, Any], config: Any = None) -> None:
    """Refuses options that the implementation does not use, or that are out of range: by a call with
    an empty batch and the model's number of heads."""
    given = {key: x for key, x in plain_options(options).items() if key != FUSED_GELU}
    heads = getattr(config, "num_attention_heads", None)
    if not isinstance(heads, int):
        heads = max([1, *(len(x) for x in given.values() if isinstance(x, (list, tuple)))])
    if given:
        q = torch.empty(0, heads, 1, 8, dtype=torch.float32, device="cpu")
        plsh.torch.attention(q, q, q, method=METHODS[name], **given)


def try_each(options: dict[str, Any]) -> None:
    """The same for options without a method: checks each with an implementation that uses it."""
    for key, x in options.items():
        try_out(next(name for name in METHODS if only_used(name, {key: x})), {key: x})


def _plain(name: str, value: Any) -> Any:
    if name == FUSED_GELU and not isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: is True or False")
    if isinstance(value, torch.Tensor) and value.requires_grad:
        raise TypeError(f"{name}: a tensor that requires a gradient is not an option of a configuration; "
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
    if is_own(config, name, options):
        config.__dict__.pop("attn_implementation", None)
    else:
        config.attn_implementation = name


def is_own(config: Any, name: str, options: dict[str, Any]) -> bool:
    """Does the model compute what it computes without plsh?"""
    if name == "plsh_none":
        return not own_alibi(config)
    return name == "plsh_exact" and not options.keys() - {FUSED_GELU} and own_alibi(config)


def read(config: Any) -> dict[str, Any]:
    """The options of a configuration, as plsh.torch.attention takes them."""
    return plain_options((getattr(config, "plsh", None) or {}).get("options", {}))


def plain_options(saved: dict[str, Any]) -> dict[str, Any]:
    """Converts saved options to those that plsh.torch.attention takes."""
    options = dict(saved)
    if isinstance(options.get("decay"), dict):
        options["decay"] = Decay(**{**options["decay"], "entries": tuple(options["decay"]["entries"])})
    return options


def erase(config: PreTrainedConfig) -> None:
    for name in ("plsh", "attn_implementation"):
        config.__dict__.pop(name, None)


def own_alibi(config: Any) -> bool:
    """Does the model have ALiBi of its own?"""
    return config.model_type in OWN_ALIBI and getattr(config, "alibi", True) is not False


def own(config: Any) -> str:
    """The implementation that computes what the model computes without plsh."""
    return FIRST if own_alibi(config) else "plsh_none"


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
