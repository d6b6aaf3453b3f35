"""Decays: how attention fades with distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from plsh._library import check, ffi, lib, names

__all__ = ["Decay", "DecayLike", "alibi", "alibi_slopes", "kerple_log", "kerple_power", "table",
           "triangle"]

_KINDS = names(lib.plsh_decay_names())
_PARAMETERS = {name: int(lib.plsh_decay_parameters(kind)) for name, kind in _KINDS.items()
               if name != "table"}


def _distance(name: str, value: Any) -> int:
    """A distance, or a number of them: an integer from 0 on."""
    if not isinstance(value, (int, np.integer)) or not 0 <= value < 2**63:
        raise ValueError(f"{name}={value}: must be an integer, 0 or more, of 63 bits")
    return int(value)


@dataclass(frozen=True)
class Decay:
    """A function k(t) of the distance t = 0, 1, 2, ... with k(0) = 1.

    Make one with :func:`alibi`, :func:`kerple_log`, :func:`kerple_power`, :func:`triangle` or
    :func:`table`. `limit` = l > 0 makes it l + (1 - l) k(t), which is never below l.

    >>> decay = alibi(64.0)
    >>> round(decay(44), 3)
    0.503
    >>> kerple_power(0.1, 2.0).sampleable   # a Gaussian is not convex
    False
    """

    kind: str
    a: float = 0.0
    b: float = 0.0
    limit: float = 0.0
    entries: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"kind={self.kind!r}: is one of {', '.join(_KINDS)}")
        used = _PARAMETERS.get(self.kind, 0)
        for name, number, value in (("a", 1, self.a), ("b", 2, self.b)):
            if used < number and value:
                raise ValueError(f"{name}={value}: {self.kind} has {used or 'no'} parameter(s)")
        if self.entries and self.kind != "table":
            raise ValueError(f"entries: are those of a table, and the kind is {self.kind}")
        error = ffi.new("plsh_error *")
        check(lib.plsh_decay_check(self.c_struct()[0], error), error)

    def c_struct(self) -> tuple[Any, Any]:
        """The plsh_decay * and what must be kept alive for as long as it is used."""
        entries = ffi.new("double[]", list(self.entries)) if self.entries else ffi.NULL
        decay = ffi.new("plsh_decay *", {
            "kind": _KINDS[self.kind], "a": self.a, "b": self.b, "limit": self.limit,
            "table": entries, "table_size": len(self.entries),
        })
        return decay, entries

    def __call__(self, t: int) -> float:
        """k(t)."""
        decay, _keep = self.c_struct()
        return float(lib.plsh_decay_value(decay, _distance("t", t)))

    def log(self, t: int) -> float:
        """log k(t); -inf where k is 0.

        >>> alibi(4.0).log(10)
        -2.5
        """
        decay, _keep = self.c_struct()
        return float(lib.plsh_decay_log(decay, _distance("t", t)))

    def values(self, n: int) -> npt.NDArray[np.float64]:
        """k(0), ..., k(n-1).

        >>> triangle(4.0).values(5)
        array([1.  , 0.75, 0.5 , 0.25, 0.  ])
        """
        decay, _keep = self.c_struct()
        return np.array([lib.plsh_decay_value(decay, t) for t in range(_distance("n", n))])

    def tail(self, t: int, count: int) -> float:
        """An upper bound of k(t) + ... + k(t+count-1), tight for ALiBi."""
        decay, _keep = self.c_struct()
        return float(lib.plsh_decay_tail(decay, _distance("t", t), _distance("count", count)))

    @property
    def at_infinity(self) -> float:
        """The limit of k(t): the part of the weight that does not fade."""
        decay, _keep = self.c_struct()
        return float(lib.plsh_decay_infinity(decay))

    @property
    def sampleable(self) -> bool:
        """Is it convex and decreasing, so that random blocks can have it as their mean?"""
        decay, _keep = self.c_struct()
        return bool(lib.plsh_decay_check_convex(decay, ffi.NULL) == lib.PLSH_STATUS_OK)

    def check_convex(self) -> None:
        """Raises with the first t that breaks convexity or decrease, if there is one."""
        decay, _keep = self.c_struct()
        error = ffi.new("plsh_error *")
        check(lib.plsh_decay_check_convex(decay, error), error)

    def reach(self, weight: float) -> int:
        """The first t with k(t) <= weight, found by doubling and bisection.

        >>> alibi(64.0).reach(1e-6)
        885
        """
        if not self.at_infinity < weight < 1.0:
            raise ValueError(f"weight={weight}: lies between k(infinity)={self.at_infinity} and 1")
        high = 1
        while self(high) > weight:
            high *= 2
            if high > 1 << 61:
                raise ValueError(f"weight={weight}: not reached before t = 2^61")
        low = high // 2
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self(middle) <= weight else (middle + 1, high)
        return low


DecayLike = Union[Decay, str]


def alibi(sigma: float, *, limit: float = 0.0) -> Decay:
    """exp(-t / sigma); sigma = 1 / slope."""
    return Decay("alibi", float(sigma), 0.0, limit)


def kerple_log(r1: float, r2: float, *, limit: float = 0.0) -> Decay:
    """(1 + r2 t)^-r1.

    >>> kerple_log(1.0, 0.5)(2)
    0.5
    """
    return Decay("kerple-log", float(r1), float(r2), limit)


def kerple_power(a: float, p: float, *, limit: float = 0.0) -> Decay:
    """exp(-a t^p), 0 < p <= 2; it can be sampled for p <= 1."""
    return Decay("kerple-power", float(a), float(p), limit)


def triangle(w: float, *, limit: float = 0.0) -> Decay:
    """max(0, 1 - t / w)."""
    return Decay("triangle", float(w), 0.0, limit)


def table(values: Sequence[float] | npt.NDArray[np.floating[Any]], *,
          limit: float = 0.0) -> Decay:
    """values[t], then the last value from there on; values[0] = 1.

    >>> table([1.0, 0.5, 0.25])(100)
    0.25
    """
    return Decay("table", limit=limit, entries=tuple(float(x) for x in values))


def parse_decay(text: str, name: str = "decay") -> tuple[str, float, float]:
    """Kind and parameters of a decay in the syntax of `--decay`, as "kerple-log:1,0.5"."""
    kind, _, numbers = text.partition(":")
    if kind not in _PARAMETERS:
        raise ValueError(f"{name}={text!r}: is one of {', '.join(_PARAMETERS)} with its "
                         'parameters, as "kerple-log:1,0.5"')
    try:
        values = [float(x) for x in numbers.split(",")]
    except ValueError:
        values = []
    if len(values) != _PARAMETERS[kind] or not all(map(math.isfinite, values)):
        raise ValueError(f"{name}={text!r}: {kind} takes {_PARAMETERS[kind]} number(s) after ':'")
    return kind, values[0], values[1] if len(values) > 1 else 0.0


def as_decay(decay: DecayLike, name: str = "decay") -> Decay:
    """A Decay, from a Decay or from the syntax of `--decay`."""
    return decay if isinstance(decay, Decay) else Decay(*parse_decay(decay, name))


def alibi_slopes(heads: int) -> npt.NDArray[np.float64]:
    """The standard ALiBi slopes of a model with this many heads; sigma = 1 / slope.

    >>> 1 / alibi_slopes(4)
    array([  4.,  16.,  64., 256.])
    >>> alibi_slopes(6)[-2:]                # no power of two
    array([0.5  , 0.125])
    """
    if heads < 1:
        raise ValueError(f"heads={heads}: is at least 1")
    slopes = np.empty(heads, dtype=np.float64)
    error = ffi.new("plsh_error *")
    check(lib.plsh_alibi_slopes(heads, ffi.from_buffer("double[]", slopes), error), error)
    return slopes
