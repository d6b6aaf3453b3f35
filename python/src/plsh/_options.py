"""The options of attention: the methods that use each of them, and the defaults.

An option that is given is either used or refused; none is silently ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import numpy as np

from plsh._decay import Decay
from plsh._partition import DESIGNS, SCHEMES, word
from plsh._plan import METHODS, Options

_SAMPLED = ("plsh", "masks", "mean")
# The methods that use an option; the results of the others do not depend on it. The decay is not
# listed: it is never refused, and "none" and "fixed" are the ways to leave it out.
_USERS: dict[str, tuple[str, ...]] = {
    "samples": _SAMPLED, "scheme": _SAMPLED, "design": _SAMPLED, "seed": _SAMPLED,
    "labels": _SAMPLED, "window": ("window",), "block": ("fixed",), "eps": ("exact", "auto"),
}
USED = tuple(_USERS)  # the options that not every method uses
DEFAULT = Options((), ())  # what is not given
SCALAR = (int, float, np.number)
_RANGES = {"seed": (0, 64), "samples": (1, 63), "threads": (0, 31)}  # the least value, and the bits
_WORDS = {"scheme": SCHEMES, "design": DESIGNS}
_DRAWN = ("samples", "scheme", "design", "seed")  # labels are partitions: nothing is drawn


def is_used(name: str, methods: Sequence[str]) -> bool:
    """Does one of the methods use the option of this name?"""
    users = _USERS.get(name)
    return users is None or any([x in users for x in methods])


def check_used(methods: Sequence[str], options: Mapping[str, Any]) -> None:
    """Refuses options that are given (not None) and that none of the heads' methods uses."""
    for method in methods:
        word("method", method, METHODS)
    for name, value in options.items():
        if value is None:
            continue
        if not is_used(name, methods):
            raise ValueError(f"{_shown(name, value)}: goes with method {' or '.join(_USERS[name])}; the "
                             f"method is {', '.join(dict.fromkeys(methods))}")
        if name in _DRAWN and options.get("labels") is not None:
            raise ValueError(f"{_shown(name, value)}: labels are partitions of their own; give one "
                             "or the other")
        if name in _WORDS:
            word(name, value, _WORDS[name])


def as_truth(name: str, value: Any) -> bool:
    """True or False, of Python or NumPy, or 1 or 0."""
    if not isinstance(value, (bool, int, np.bool_)) or value not in (0, 1):
        raise TypeError(f"{name}={value!r}: must be True or False")
    return bool(value)


def as_count(name: str, value: Any) -> int:
    """A seed, a number of samples or of threads."""
    least, bits = _RANGES[name]
    if not isinstance(value, (int, np.integer)) or not least <= value < 2**bits:
        raise ValueError(f"{name}={value}: must be an integer, {least} or more, of {bits} bits")
    return int(value)


def as_integer(name: str, value: Any, least: int, most: int) -> int:
    """An integer of Python or NumPy in a range."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}={value!r}: must be an integer")
    if not least <= value <= most:
        raise ValueError(f"{name}={value}: must lie between {least} and {most}")
    return int(value)


def as_number(name: str, value: Any) -> float:
    if not isinstance(value, SCALAR):
        raise TypeError(f"{name}={value!r}: must be a number")
    return float(value)


def as_scale(scale: Any) -> float:
    """0 where it is not given, which stands for 1 / sqrt(dim)."""
    if scale is None:
        return 0.0
    made = as_number("scale", scale)
    if not (made > 0 or made < 0):
        raise ValueError(f"scale={scale}: is a number other than 0")
    return made


def check_positive(name: str, values: Sequence[int]) -> None:
    """Of a window or a block."""
    if any([x < 1 for x in values]):
        raise ValueError(f"{name}={','.join(map(str, values))}: is positive")


def check_one_bias(sigma: Any, slopes: Any, decay: Any) -> None:
    if (sigma is not None) + (slopes is not None) + (decay is not None) > 1:
        raise ValueError("sigma, slopes, decay: give at most one of the three")


def check_slopes(slopes: Sequence[float]) -> None:
    if not all([0 < x < math.inf for x in slopes]):
        raise ValueError(f"slopes={list(slopes)}: are positive (method='none' has no bias)")


def _shown(name: str, value: Any) -> str:
    return f"{name}={value!r}" if isinstance(value, (int, float, str)) else name


def heads_of(method: tuple[str, ...], decay: Union[tuple[float, ...], tuple[Decay, ...]],
             eps: Optional[float], window: tuple[int, ...], block: tuple[int, ...],
             scheme: Optional[str], design: Optional[str], samples: Optional[int],
             seed: Optional[int], radius: tuple[float, ...] = ()) -> Options:
    """The settings of the heads; None stands for the default."""
    return Options(method, decay, DEFAULT.eps if eps is None else float(eps), window, block,
                   DEFAULT.scheme if scheme is None else scheme,
                   DEFAULT.design if design is None else design,
                   DEFAULT.samples if samples is None else int(samples),
                   DEFAULT.seed if seed is None else int(seed), radius=radius)
