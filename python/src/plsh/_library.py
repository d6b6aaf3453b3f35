"""The loaded C library, and its statuses as exceptions."""

from __future__ import annotations

import pathlib
from functools import partial
from typing import Any

from plsh import _binding
from plsh._binding import ffi

__all__ = ["Error", "InvalidError", "NotFiniteError", "UnsupportedError", "check", "ffi", "lib",
           "pointer"]


def _load() -> Any:
    # Beside the generated binding: both are built, and an editable install leaves this file apart.
    here = pathlib.Path(str(_binding.__file__)).parent
    found = sorted(here.glob("libplsh.*"))
    if not found:
        raise ImportError(f"no libplsh in {here}: install the package with pip, not by copying it")
    return ffi.dlopen(str(found[0]))


lib: Any = _load()
pointer: Any = partial(ffi.cast, ffi.typeof("void *"))  # of an address


class Error(Exception):
    """A call of the library failed; the message names the problem and the valid values."""


class InvalidError(Error, ValueError):
    """An argument is out of its range, or two disagree."""


class NotFiniteError(Error, ValueError):
    """NaN or Inf in an array that was checked for it."""


class UnsupportedError(Error, NotImplementedError):
    """This machine, build or method cannot do it."""


class _MemoryError(Error, MemoryError):
    """An allocation failed."""


_EXCEPTIONS: dict[int, type[Error]] = {
    lib.PLSH_STATUS_INVALID: InvalidError,
    lib.PLSH_STATUS_NOT_FINITE: NotFiniteError,
    lib.PLSH_STATUS_OVERFLOW: _MemoryError,
    lib.PLSH_STATUS_NO_MEMORY: _MemoryError,
    lib.PLSH_STATUS_UNSUPPORTED: UnsupportedError,
}


def names(listed: Any) -> dict[str, int]:
    """The words of an enum, from a list of the library that ends with NULL."""
    words: dict[str, int] = {}
    while listed[len(words)] != ffi.NULL:
        words[ffi.string(listed[len(words)]).decode()] = len(words)
    return words


def check(status: int, error: Any) -> None:
    """Raises what the status says; `error` is the plsh_error of the call."""
    if status != lib.PLSH_STATUS_OK:
        message = ffi.string(error.message).decode("utf-8", "replace")
        raise _EXCEPTIONS.get(status, Error)(message)
