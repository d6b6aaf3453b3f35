"""The loaded C libraries, and their statuses as exceptions."""

from __future__ import annotations

import pathlib
from functools import lru_cache, partial
from typing import Any

from plsh import _binding
from plsh._binding import ffi

__all__ = ["Error", "InvalidError", "NotFiniteError", "UnsupportedError", "check", "ffi", "lib",
           "models", "owned", "pointer"]

# The libraries lie beside the generated binding. In an editable install this file lies elsewhere.
_FOLDER = pathlib.Path(str(_binding.__file__)).parent


def _load() -> Any:
    found = sorted(_FOLDER.glob("libplsh.*"))
    if not found:
        raise ImportError(f"no libplsh in {_FOLDER}: install the package with pip, not by copying it")
    return ffi.dlopen(str(found[0]))


lib: Any = _load()


@lru_cache(maxsize=1)
def models() -> Any:
    """libplsh_lm, loaded when a model is first asked for."""
    found = sorted(_FOLDER.glob("libplsh_lm.*"))
    if not found:
        raise UnsupportedError("this build of plsh has no models: jansson, PCRE2 and utf8proc were "
                               "not found when it was built")
    return ffi.dlopen(str(found[0]))
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


class _FileError(Error, OSError):
    """The system refused to open, read or write a file."""


class _FormatError(Error, ValueError):
    """A file is not what it claims to be."""


_EXCEPTIONS: dict[int, type[Error]] = {
    lib.PLSH_STATUS_INVALID: InvalidError,
    lib.PLSH_STATUS_NOT_FINITE: NotFiniteError,
    lib.PLSH_STATUS_OVERFLOW: _MemoryError,
    lib.PLSH_STATUS_NO_MEMORY: _MemoryError,
    lib.PLSH_STATUS_IO: _FileError,
    lib.PLSH_STATUS_FORMAT: _FormatError,
    lib.PLSH_STATUS_UNSUPPORTED: UnsupportedError,
}


def _destroy(destroy: Any, _needed: Any, it: Any) -> None:
    destroy(it)


def owned(it: Any, destroy: Any, *needed: Any) -> Any:
    """A pointer that is destroyed when nothing refers to it, and before anything that it needs."""
    return ffi.gc(it, partial(_destroy, destroy, needed))


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
