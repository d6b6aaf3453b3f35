"""The options of attention on tensors: words, numbers and spans, checked, in the form that plans take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, Optional, TypedDict, Union

import numpy as np
import torch
from torch import Tensor

from plsh._attention import standard_sigmas
from plsh._decay import Decay, DecayLike, as_decay, parse_decay
from plsh._options import SCALAR, as_count, check_one_bias, check_positive, check_slopes
from plsh._plan import DTYPES, Array

Numbers = Union[float, Sequence[float], Tensor]
Integers = Union[int, Sequence[int], Tensor]
Offsets = Union[Sequence[int], Tensor]
NO_BIAS = 1e15  # the largest sigma: -|i - j| / sigma is below 1e-9 up to a million tokens
Form = tuple[torch.Size, tuple[int, ...], torch.dtype]
TORCH_DTYPES = {
    torch.float32: DTYPES["float32"],
    torch.float16: DTYPES["float16"],
    torch.bfloat16: DTYPES["bfloat16"],
}


class TorchOptions(TypedDict, total=False):
    """The options of :func:`plsh.torch.attention` that do not change what it returns."""

    sigma: Union[Numbers, Literal["alibi"], None]
    slopes: Optional[Numbers]
    decay: Union[DecayLike, Sequence[DecayLike], None]
    parameters: Optional[Tensor]
    causal: bool
    scale: Optional[float]
    method: Union[str, Sequence[str], None]
    eps: Optional[float]
    window: Union[Integers, Numbers, None]  # under positions a radius
    block: Optional[Integers]
    scheme: Optional[str]
    design: Optional[str]
    samples: Optional[int]
    seed: Optional[int]
    labels: Optional[Tensor]
    spans: Optional[Tensor]
    query_offsets: Optional[Offsets]
    key_offsets: Optional[Offsets]
    dropout: float
    dropout_seed: Union[int, Tensor, None]
    threads: Optional[int]
    positions: Optional[Tensor]
    query_positions: Optional[Tensor]


def head_decays(word: str, heads: int, numbers: tuple[float, ...], constant: bool,
                ) -> Union[tuple[float, ...], tuple[Decay, ...]]:
    """The decays of the heads. If the word is "sigma" or "slopes", the numbers are ALiBi's sigmas;
    else it is the kind, or the kinds of all heads. Numbers that are `constant` are the limit, a, b
    and the table of one decay, for several kinds each after the number of its entries; others are
    the a and b of each head."""
    if word in ("sigma", "slopes"):
        if word == "slopes":
            check_slopes([1.0 / x if x else math.inf for x in numbers])
        return numbers or standard_sigmas(heads)
    if "," in word:
        return tuple(_listed_decays(word, numbers))
    if constant:
        limit, a, b, *table = numbers
        return (Decay(word, a, b, limit, tuple(table)),)
    return tuple(Decay(word, a, b) for a, b in zip(numbers[::2], numbers[1::2]))


def _listed_decays(word: str, numbers: tuple[float, ...]) -> Iterator[Decay]:
    at = 0
    for kind in word.split(",")[:-1]:
        entries = int(numbers[at])
        limit, a, b, *table = numbers[at + 1:at + 4 + entries]
        at += 4 + entries
        yield Decay(kind, a, b, limit, tuple(table))


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

    If every entry is a single sequence, the result has no sequences: the call needs no offsets.
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
    """Sigma, slopes, decay and parameters in the form that the operators take."""

    parameters: Optional[Tensor] = None
    word: str = "sigma"  # as in head_decays
    constants: Sequence[float] = ()


def decays_of(heads: int, sigma: Union[Numbers, Literal["alibi"], None], slopes: Optional[Numbers],
              decay: Union[DecayLike, Sequence[DecayLike], None],
              parameters: Optional[Tensor]) -> Decays:
    check_one_bias(sigma, slopes, decay)
    if parameters is not None:
        if not isinstance(parameters, Tensor) or not isinstance(decay, str) or \
                parameters.shape != (heads, 2):
            raise ValueError(f"parameters: must be a tensor [heads, 2] = [{heads}, 2], with decay "
                             "the name of a kind, as 'kerple-log'")
        if decay == "alibi":
            return Decays(parameters[:, 0].to(torch.float64))
        return Decays(parameters.to(torch.float64), decay)
    if isinstance(decay, Decay):
        return Decays(None, decay.kind, [decay.limit, decay.a, decay.b, *decay.entries])
    if decay is not None and not isinstance(decay, str):
        return _decays_listed(heads, decay)
    if decay is not None and decay != "alibi":
        kind, a, b = parse_decay(decay)
        return Decays(None, kind, [0.0, a, b])
    name, values = ("sigma", sigma) if slopes is None else ("slopes", slopes)
    if values is None or (isinstance(values, str) and values == "alibi"):
        return Decays()
    if isinstance(values, Tensor):
        x = values.to(torch.float64).reshape(-1)
        _check_count(name, x.shape[0], heads)
        return Decays((x if slopes is None else 1.0 / x).expand(heads), name)
    try:
        listed = [float(x) for x in ([values] if isinstance(values, SCALAR) else values)]
    except (TypeError, ValueError):
        raise TypeError(f"{name}: must be one number, or one per head") from None
    _check_count(name, len(listed), heads)
    if slopes is not None:
        check_slopes(listed)
    return Decays(None, name, listed if slopes is None else [1.0 / x for x in listed])


def is_one_decay(decay: Any) -> bool:
    return decay is None or isinstance(decay, (str, Decay))


def _decays_listed(heads: int, decay: Any) -> Decays:
    """The decays of a list, one per head; the word is their kinds, each followed by a comma."""
    if not isinstance(decay, (list, tuple)) or not all(isinstance(x, (str, Decay)) for x in decay):
        raise TypeError(f"decay: is {type(decay).__name__}, must be a plsh.Decay or its words, one "
                        "for all heads, or a list of one per head")
    _check_count("decay", len(decay), heads)
    numbers: list[float] = []
    kinds = ""
    for x in map(as_decay, decay if len(decay) == heads else [*decay] * heads):
        numbers += [len(x.entries), x.limit, x.a, x.b, *x.entries]
        kinds += f"{x.kind},"
    return Decays(None, kinds, numbers)


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


def as_integer(name: str, value: Any) -> int:
    if not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}={value}: must be an integer")
    return int(value)


def as_integers(name: str, values: Union[Integers, Numbers, None]) -> list[int]:
    """One integer, or one per head; none where it is not given."""
    if values is None:
        return []
    if isinstance(values, (Tensor, np.ndarray)):
        values = values.tolist()
    listed = [values] if isinstance(values, SCALAR) else values
    return [as_integer(name, x) for x in listed]


def as_offsets(name: str, values: Optional[Offsets]) -> Optional[Tensor]:
    """Where packed sequences begin and end, as int64."""
    if values is None:
        return None
    made = values if isinstance(values, Tensor) else \
        torch.tensor([as_integer(name, x) for x in values], dtype=torch.int64)
    if made.dim() != 1 or made.shape[0] < 2 or made.is_floating_point() or \
            made.is_complex() or made.dtype == torch.bool:
        raise TypeError(f"{name}: {made.dtype} of shape {tuple(made.shape)}, must be the integers "
                        "where each packed sequence begins, and where the last one ends")
    return made.to(torch.int64)


def as_labels(labels: Any, heads: int) -> Optional[Tensor]:
    """Partitions of one's own, checked."""
    if labels is None:
        return None
    if not isinstance(labels, Tensor) or labels.dtype != torch.int32 or labels.dim() != 3:
        shown = f"{labels.dtype} of shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else \
            type(labels).__name__
        raise TypeError(f"labels: {shown}, must be an int32 tensor [heads or 1, samples, n]")
    if labels.shape[0] not in (1, heads):
        raise ValueError(f"labels: of {labels.shape[0]} heads, must be of 1 or of all {heads}")
    return labels.detach()


def as_dropout_seed(dropout: Any, seed: Any) -> Optional[Tensor]:
    """The seed of dropout as a tensor; None where nothing is dropped."""
    if isinstance(dropout, SCALAR) and dropout == 0 and seed is None:
        return None
    if not isinstance(dropout, SCALAR) or not 0 <= dropout < 1:
        raise ValueError(f"dropout={dropout}: is a probability, 0 or more and less than 1")
    if seed is None:
        return torch.randint(2**63 - 1, (1,))
    if isinstance(seed, Tensor):
        if seed.numel() != 1 or seed.is_floating_point():
            raise TypeError("dropout_seed: must be one integer")
        return seed.detach().reshape(1).to(torch.int64)
    if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise ValueError(f"dropout_seed={seed}: must be an integer, 0 or more, of 63 bits")
    return torch.tensor([int(seed)])


def unexpanded(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Copies of tensors that were expanded (stride 0). If all heads of k and v are one expanded head,
    they become one head, unless gradients by k or v are needed."""
    shared = k.stride(1) == v.stride(1) == 0 and k.shape[1] == v.shape[1] > 1
    if shared and not (torch.is_grad_enabled() and (k.requires_grad or v.requires_grad)):
        k, v = k[:, :1], v[:, :1]
    q, k, v = (x.contiguous() if any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride())) else x
               for x in (q, k, v))
    return q, k, v


def check_numbers(samples: int, eps: float, window: Sequence[int], block: Sequence[int]) -> None:
    """Are they in range? The library checks what depends on other arguments."""
    as_count("samples", samples)
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps={eps}: must be a number, 0 or more")
    check_positive("window", window)
    check_positive("block", block)


def autocast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Under torch.autocast, q, k and v in its dtype, as torch's own attention casts them."""
    kind = q.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return q, k, v
    dtype = torch.get_autocast_dtype(kind)
    q, k, v = (x if x.dtype == torch.float64 else x.to(dtype) for x in (q, k, v))
    return q, k, v


def signed_seed(seed: int) -> int:
    """A seed as the operators take it: 64 bits with a sign."""
    made = as_count("seed", seed)
    return made if made < 2**63 else made - 2**64


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
