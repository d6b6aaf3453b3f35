"""The options of attention on tensors: words, numbers and spans, checked, for whoever calls a plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Optional, Union

import numpy as np
import torch
from torch import Tensor

from plsh._attention import standard_sigmas
from plsh._decay import Decay, DecayLike, parse_decay
from plsh._plan import DTYPES, Array, Options, Settings

Numbers = Union[float, Sequence[float], Tensor]
Integers = Union[int, Sequence[int]]
_SCALAR = (int, float, np.number)
Form = tuple[torch.Size, tuple[int, ...], torch.dtype]
TORCH_DTYPES = {
    torch.float32: DTYPES["float32"],
    torch.float16: DTYPES["float16"],
    torch.bfloat16: DTYPES["bfloat16"],
}


class Words(NamedTuple):
    """The options of the operators."""

    decay: str
    limit: float
    table: tuple[float, ...]
    threads: Optional[int]  # None: as many as torch has
    settings: Settings
    options: Options

    def decays(self, heads: int, numbers: tuple[float, ...],
               ) -> Union[tuple[float, ...], tuple[Decay, ...]]:
        """The decays of the heads; numbers are ALiBi's sigmas."""
        if self.decay == "alibi" and not self.limit:
            return numbers or standard_sigmas(heads)
        return tuple(Decay(self.decay, a, b, self.limit, self.table)
                     for a, b in zip(numbers[::2], numbers[1::2]))


def write_words(method: Sequence[str], decay: str, limit: float, table: Sequence[float],
                causal: bool, eps: float, window: Sequence[int], block: Sequence[int], scheme: str,
                design: str, samples: int, threads: Optional[int], query_offsets: Sequence[int],
                key_offsets: Sequence[int]) -> str:
    """The options as one string; numbers are written so that they are read back to the bit."""
    return (f"{_join(method)} {decay} {limit} {_join(table)} {causal} {eps} {_join(window)} "
            f"{_join(block)} {scheme} {design} {samples} {threads} {_join(query_offsets)} "
            f"{_join(key_offsets)}")


def _join(values: Union[Sequence[str], Sequence[int], Sequence[float]]) -> str:
    return ",".join([str(x) for x in values])


_FIELDS = ("method", "decay", "limit", "table", "causal", "eps", "window", "block", "scheme",
           "design", "samples", "threads", "query_offsets", "key_offsets")
_TRUTH = {"True": True, "1": True, "False": False, "0": False}


@lru_cache(maxsize=256)
def read_words(words: str) -> Words:
    """What write_words wrote, checked."""
    text = dict(zip(_FIELDS, words.split(" ")))
    if words.count(" ") + 1 != len(_FIELDS):
        raise ValueError(f"options {words!r}: have {len(_FIELDS)} fields, {', '.join(_FIELDS)}")

    def numbers(name: str, kind: type = int) -> tuple[Any, ...]:
        try:
            return tuple(map(kind, text[name].split(","))) if text[name] else ()
        except ValueError:
            wanted = "an integer" if kind is int else "a number"
            raise TypeError(f"{name}={text[name]}: must be {wanted}") from None

    if text["causal"] not in _TRUTH:
        raise TypeError(f"causal={text['causal']}: must be True or False")
    for name in ("window", "block"):
        if any(x < 1 for x in numbers(name)):
            raise ValueError(f"{name}={text[name]}: is positive")
    settings = Settings(_TRUTH[text["causal"]], 0.0, 0, 0, "", False, numbers("query_offsets"),
                        numbers("key_offsets"))
    options = Options(tuple(text["method"].split(",")), (), numbers("eps", float)[0],
                      numbers("window"), numbers("block"), text["scheme"], text["design"],
                      numbers("samples")[0])
    return Words(text["decay"], numbers("limit", float)[0], numbers("table", float),
                  None if text["threads"] == "None" else numbers("threads")[0], settings, options)


def describe(name: str, shape: torch.Size, strides: tuple[int, ...], dtype: torch.dtype) -> Array:
    """Shape and strides of an argument, checked."""
    if dtype not in TORCH_DTYPES:
        raise TypeError(f"{name}: {dtype}, must be float32, float16 or bfloat16; convert with "
                        f"{name}.float()")
    if len(shape) != 4:
        raise ValueError(f"{name}: shape {tuple(shape)}, must be [batch, heads, n, dim]")
    some = 0 not in shape
    if shape[3] > 1 and strides[3] != 1 and some:
        raise ValueError(f"{name}: its last dimension has stride {strides[3]}, must be 1 (adjacent "
                         f"elements); {name}.contiguous() copies it so")
    if some and any(n > 1 and not s for n, s in zip(shape, strides)):
        raise ValueError(f"{name}: repeated (expanded) heads or rows; pass fewer heads as they "
                         f"are, groups of queries share them, or {name}.contiguous()")
    return Array(*shape, *strides[:3])


def edges_of(spans: Tensor) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Where the sequences of each batch entry end, and the number of keys in use.

    Entries that are one sequence each are no sequences at all: such a call is the plain one.
    """
    if spans.dim() == 3:
        keys = spans.shape[1]
        listed = [tuple((row.diff(dim=0).flatten().nonzero().flatten() + 1).tolist())
                  for row in spans]
    else:
        rows = spans.tolist()
        keys = rows[0][2] if rows else 0
        for begin, end, used in rows:
            if not 0 <= begin <= end <= used == keys:
                raise ValueError(f"spans: {[begin, end, used]}; must be first token, end of the "
                                 "tokens, number of keys in use, the same for all")
        listed = [(begin, end) for begin, end, _ in rows]
    if all(not 0 < x < keys for entry in listed for x in entry):
        listed = []
    return tuple(listed), keys


def check_spans(spans: Optional[Tensor]) -> None:
    """Are they what padding_spans and segment_spans make?"""
    if spans is not None and (not isinstance(spans, Tensor) or spans.dtype != torch.int64 or
                              spans.dim() not in (2, 3) or
                              spans.shape[-1] != (3 if spans.dim() == 2 else 1)):
        raise TypeError("spans: must be an int64 tensor, as padding_spans and segment_spans make it")


class Decays(NamedTuple):
    """What sigma, slopes, decay and parameters say together, as the operators take it."""

    parameters: Optional[Tensor] = None
    kind: str = "alibi"
    constants: Sequence[float] = ()
    limit: float = 0.0
    table: Sequence[float] = ()


def decays_of(heads: int, sigma: Union[Numbers, Literal["alibi"], None], slopes: Optional[Numbers],
               decay: Optional[DecayLike], parameters: Optional[Tensor]) -> Decays:
    if (sigma is not None) + (slopes is not None) + (decay is not None) > 1:
        raise ValueError("sigma, slopes, decay: give at most one of the three")
    if parameters is not None:
        if not isinstance(parameters, Tensor) or not isinstance(decay, str) or \
                parameters.shape != (heads, 2):
            raise ValueError(f"parameters: must be a tensor [heads, 2] = [{heads}, 2], with decay "
                             "the name of a kind, as 'kerple-log'")
        numbers = parameters[:, 0] if decay == "alibi" else parameters
        return Decays(numbers.to(torch.float64), decay)
    if isinstance(decay, Decay):
        pair = [decay.a] if decay.kind == "alibi" and not decay.limit else [decay.a, decay.b]
        return Decays(None, decay.kind, pair, decay.limit, decay.entries)
    if decay is not None and not isinstance(decay, str):
        raise TypeError(f"decay: is {type(decay).__name__}, must be a plsh.Decay or its words, one "
                        "for all heads")
    if decay is not None and decay != "alibi":
        kind, a, b = parse_decay(decay)
        return Decays(None, kind, [a] if kind == "alibi" else [a, b])
    name, values = ("sigma", sigma) if slopes is None else ("slopes", slopes)
    if values is None or (isinstance(values, str) and values == "alibi"):
        return Decays()
    if isinstance(values, Tensor):
        x = values.to(torch.float64).reshape(-1)
        _check_count(name, x.shape[0], heads)
        return Decays((x if slopes is None else 1.0 / x).expand(heads))
    try:
        listed = [float(x) for x in ([values] if isinstance(values, _SCALAR) else values)]
    except (TypeError, ValueError):
        raise TypeError(f"{name}: must be one number, or one per head") from None
    _check_count(name, len(listed), heads)
    if slopes is not None and not all(x > 0 for x in listed):
        raise ValueError(f"slopes={listed}: are positive (method='none' has no bias)")
    return Decays(constants=listed if slopes is None else [1.0 / x for x in listed])


def _check_count(name: str, count: int, heads: int) -> None:
    if count not in (1, heads):
        raise ValueError(f"{name}: {count} values for {heads} heads; give one, or one per head")


def check_inputs(q: Any, k: Any, v: Any) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: is {type(x).__name__}, must be a torch tensor")
        if x.device != q.device:
            raise ValueError(f"{name}: on {x.device}, must be on {q.device} as q")
        if x.dim() not in (3, 4) or x.dim() != q.dim():
            raise ValueError(f"{name}: shape {tuple(x.shape)}, must be [batch, heads, n, dim], or "
                             "for all three [heads, n, dim]")


def as_list(values: Optional[Integers]) -> Sequence[int]:
    return () if values is None else (values,) if isinstance(values, _SCALAR) else values


def checked_scale(scale: float) -> float:
    if not isinstance(scale, _SCALAR) or not (scale > 0 or scale < 0):
        raise ValueError(f"scale={scale}: is a number other than 0")
    return float(scale)


def signed_seed(seed: int) -> int:
    """A seed as the operators take it: 64 bits with a sign."""
    if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
        raise ValueError(f"seed={seed}: must be an integer, 0 or more, of 64 bits")
    return int(seed) if seed < 2**63 else int(seed) - 2**64


def floats_as(x: Tensor) -> Tensor:
    """Uninitialised float32 with the strides of x, as the library wants gradients."""
    return torch.empty_strided(x.shape, x.stride(), dtype=torch.float32, device=x.device)


def new_outputs(q: Tensor, k: Tensor, v: Tensor, *common: Any) -> tuple[Tensor, Tensor]:
    """o, float32, heads and rows in memory as they are in q, and the log-sum-exp of its rows."""
    batch, heads, rows, _ = q.shape
    lse = q.new_empty((batch, heads, rows), dtype=torch.float32)
    if q.stride(1) < q.stride(2):
        o = q.new_empty((batch, rows, heads, v.shape[3]), dtype=torch.float32)
        return o.transpose(1, 2), lse
    return q.new_empty((batch, heads, rows, v.shape[3]), dtype=torch.float32), lse
