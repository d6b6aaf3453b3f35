"""A forward pass on torch's meta device, by which `apply` finds out whether plsh supports a model."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from plsh.hf._mask import Refused

_TOKENS = 4


def run(model: nn.Module, parts: Sequence[PreTrainedModel]) -> None:
    """Runs a forward pass of copies of the parts on torch's meta device, and raises Refused if plsh
    does. That device has shapes but no data, so this takes no memory and does not change the model. The
    model's first run finds what depends on data."""
    for part in [model] if isinstance(model, PreTrainedModel) else parts:
        try:
            copied = _without_numbers(part)
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                copied(**_inputs(part))
        except Refused:
            raise
        except Exception:  # e.g. code that reads data, or needs other inputs
            continue


def _without_numbers(model: nn.Module) -> Any:
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(parameter.to("meta"), requires_grad=False)
    for buffer in model.buffers():
        memo[id(buffer)] = buffer.to("meta")
    return copy.deepcopy(model, memo)


def _inputs(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    if model.main_input_name != "input_ids":
        raise TypeError("not a model of tokens")
    return {"input_ids": torch.zeros(1, _TOKENS, dtype=torch.int64, device="meta")}
