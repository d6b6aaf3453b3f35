"""The attention mask that layers get: a description of the mask, not a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
)

import plsh.torch
from plsh.hf import _options

Function = Callable[..., Any]


class Refused(NotImplementedError, AttributeError):
    """Raised for models and options that plsh does not support."""


# The class of the model that was last made with a configuration of a class, for messages.
owners: dict[type, str] = {}


class Mask:
    """Which keys the queries may see: what transformers passes to the layers as attention_mask.

    It is not a tensor, on purpose. A model that passes it on to the attention interface works. A model
    that computes with it has attention code of its own, and is refused with its name.
    """

    ndim = 0
    shape = ()

    def __init__(self, owner: str, method: str, options: dict[str, Any], causal: bool,
                 window: Optional[int], keys: int, spans: Optional[Tensor]) -> None:
        self.owner, self.method = owner, method
        self.options = {name: x for name, x in options.items() if name != _options.FUSED_GELU}
        self.fused_gelu = options.get(_options.FUSED_GELU, True)
        self.causal, self.window = causal, window
        self.keys, self.spans = keys, spans  # the number of keys; which are tokens

    def to(self, *_: Any, **__: Any) -> Mask:
        return self

    def contiguous(self) -> Mask:
        return self

    def refuse(self, what: str) -> None:
        raise Refused(f"{self.owner}: does its own attention ({what} on its mask) and does not call "
                      "plsh; load it with another attn_implementation")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Refused(f"{self.__dict__.get('owner')}: does its own attention (.{name} of its mask) "
                      "and does not call plsh; load it with another attn_implementation")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        for x in (*args, *(kwargs or {}).values()):
            if isinstance(x, Mask):
                x.refuse(getattr(function, "__name__", str(function)))
        raise Refused("a model does its own attention and does not call plsh")


def _operator(name: str) -> Function:
    def refused(self: Mask, *_: Any) -> Any:
        self.refuse(name)
    return refused


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "and", "rand",
              "or", "ror", "invert", "neg", "eq", "ne", "lt", "le", "gt", "ge", "getitem", "len", "iter", "bool"):
    setattr(Mask, f"__{_name}__", _operator(_name))


def make(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
         mask_function: Function = causal_mask_function, attention_mask: Optional[Tensor] = None,
         config: Any = None, *, method: str, **hints: Any) -> Mask:
    """The mask function of transformers' mask interface."""
    if isinstance(attention_mask, Mask):  # prepared before the model was called
        return attention_mask
    owner = owners.get(type(config), type(config).__name__)
    if torch.compiler.is_compiling():
        causal, window, packed = _hinted(owner, mask_function, config, hints)
        if attention_mask is not None or isinstance(q_offset, Tensor) or q_offset or \
                q_length != kv_length:
            packed = None
    else:
        causal, window, packed = _inspected(owner, mask_function)
    if not causal and q_length != kv_length:
        raise Refused(f"{owner}: {q_length} queries of {kv_length} keys without a causal mask, which "
                      "is cross-attention; plsh serves self-attention")
    spans: Optional[Tensor]
    if packed is not None:
        segments = packed if isinstance(packed, Tensor) else _segments(packed, batch_size, q_length)
        spans = plsh.torch.segment_spans(segments)
    else:
        spans = _spans(batch_size, q_length, kv_length, q_offset, kv_offset, attention_mask)
    return Mask(owner, method, _options.read(config), causal, window, kv_length, spans)


def _inside(function: Function, name: str) -> Any:
    """The value of a variable in the closure of a mask function of transformers."""
    return dict(zip(function.__code__.co_freevars, function.__closure__ or ()))[name].cell_contents


def _parts(function: Function) -> list[Function]:
    """The mask functions whose conjunction this one is. From transformers 5.23 on, those of packed
    sequences count positions from the begin of each sequence; this does not change masks of
    distances."""
    name = getattr(function, "__qualname__", "")
    if name.startswith("remap_positions_for_packed_sequence."):
        return _parts(_inside(function, "mask_function"))
    if not name.startswith("and_masks."):
        return [function]
    return [x for part in _inside(function, "mask_functions") for x in _parts(part)]


def _inspected(owner: str, function: Function) -> tuple[bool, Optional[int], Any]:
    """Is it causal, its sliding window, its packed sequences: read from the function itself."""
    causal, window, packed = None, None, None
    for part in _parts(function):
        name = getattr(part, "__qualname__", str(part)).split(".")[0]
        if part is causal_mask_function or part is bidirectional_mask_function:
            causal = part is causal_mask_function
        elif name == "sliding_window_overlay":  # distance < window
            window = int(_inside(part, "sliding_window"))
        elif name == "sliding_window_bidirectional_overlay":  # distance <= window
            window = int(_inside(part, "sliding_window")) + 1
        elif name == "packed_sequence_mask_function":
            packed = _inside(part, "packed_sequence_mask")
        else:
            _refuse_function(owner, name)
    if causal is None:
        _refuse_function(owner, getattr(function, "__qualname__", str(function)))
    return bool(causal), window, packed


def _hinted(owner: str, function: Function, config: Any, hints: dict[str, Any],
            ) -> tuple[bool, Optional[int], Any]:
    """The same while torch traces the model, where closures cannot be looked into: from what
    transformers' mask makers say to sdpa and eager. Sequences are then read off the function's
    values: transformers names some whenever it traces."""
    if function is causal_mask_function or function is bidirectional_mask_function:
        return function is causal_mask_function, None, None
    causal = "allow_is_bidirectional_skip" not in hints
    local = hints.get("local_size")
    if hints.get("use_vmap") or not function.__qualname__.startswith("and_masks.") or \
            getattr(config, "attention_chunk_size", None) is not None:
        _refuse_function(owner, function.__qualname__)
    window = None if local is None else local if causal else local + 1
    return causal, window, function


def _segments(function: Function, batch: int, n: int) -> Tensor:
    """A number per sequence, [batch, n]: a new one where a token may not see the one before it."""
    query = torch.arange(1, n)[None]
    seen = function(torch.arange(batch)[:, None], torch.zeros(1, 1, dtype=torch.int64), query,
                    query - 1)
    breaks = (~seen).to(torch.int64).expand(batch, n - 1)
    return torch.cat([torch.zeros(batch, 1, dtype=torch.int64), breaks.cumsum(1)], dim=1)


def _refuse_function(owner: str, name: str) -> None:
    raise Refused(f"{owner}: attention mask {name}; plsh serves causal and bidirectional masks, "
                  "sliding windows, padding and packed sequences: use another attn_implementation")


def _spans(batch: int, queries: int, keys: int, q_offset: Any, kv_offset: int,
           mask: Optional[Tensor]) -> Optional[Tensor]:
    """The spans without padding and without keys that are not in use yet; None if all are tokens."""
    length = q_offset + queries - kv_offset
    fixed = not isinstance(length, Tensor)
    if mask is None:
        if fixed and length == keys:
            return None
        end = torch.full((), length, dtype=torch.int64) if fixed else length.to(torch.int64)
        return torch.stack([torch.zeros_like(end), end, end]).expand(batch, 3)
    if mask.is_floating_point():  # transformers' masks are 1 where a token is, of any dtype
        mask = mask.to(torch.int64)
    if kv_offset:
        mask = mask[:, kv_offset:]
    if fixed and mask.shape[1] == length:
        if length == keys and not torch.compiler.is_compiling() and bool(mask.all()):
            return None
        return plsh.torch.padding_spans(mask)
    used: Tensor = torch.ops.plsh.padding_spans(
        mask, torch.full((), length, dtype=torch.int64) if fixed else length)
    return used
