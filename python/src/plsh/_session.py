"""Sessions: one sequence that goes through a causal model, token after token."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

import numpy as np
import numpy.typing as npt

from plsh._library import check, ffi, models, owned
from plsh._options import as_integer
from plsh._tokenizer import Ids, as_ids

if TYPE_CHECKING:
    from plsh._model import Model

__all__ = ["Forward", "Session"]

Float32 = npt.NDArray[np.float32]
_MOST = 2**62  # the largest length that is passed on; the library checks the real limit
_LOGIT_ROWS = 64  # rows of logits at once, as plsh forward and plsh perplexity have it: the same bits


class Forward(NamedTuple):
    """What :meth:`plsh.Model.forward` computed."""

    hidden: Float32  #: the last hidden states, after the last norm, [n, hidden]
    #: [n, vocabulary] of a language model or a masked one, [1, labels] of a classifier
    logits: Optional[Float32]


def floats(array: Float32) -> Any:
    return ffi.from_buffer("float[]", array, require_writable=True)


class Session:
    """The tokens of one sequence, with their keys and values; :meth:`plsh.Model.session` makes it.

    A session belongs to one thread at a time: calls from several wait for each other. Its forks are
    independent.
    """

    def __init__(self, model: Model, path: Optional[bytes] = None, length: int = 0, *,
                 _pointer: Any = None) -> None:
        self.model = model
        self._lock = threading.Lock()
        if _pointer is None:
            made, error = ffi.new("plsh_session **"), ffi.new("plsh_error *")
            if not hasattr(model, "_session_options"):
                raise TypeError("plsh.Session: model.session() makes one")
            lm, options = models(), ffi.new("plsh_session_options *", model._session_options[0])
            options.length = as_integer("length", length, 0, _MOST)
            check(lm.plsh_session_create(made, model._pointer, options, error) if path is None else
                  lm.plsh_session_load(made, model._pointer, options, path, error), error)
            _pointer = made[0]
        self._open: Any = owned(_pointer, models().plsh_session_destroy, model._pointer)

    @property
    def _pointer(self) -> Any:
        if self._open is None:
            raise ValueError("this session is closed")
        return self._open

    def close(self) -> None:
        """Frees its memory now; forks are not affected. Otherwise it is freed when nothing refers to it."""
        with self._lock:
            self._open = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a plsh.Session cannot be pickled: save and model.session(path) keep it in a file")

    def __repr__(self) -> str:
        if self._open is None:
            return "<plsh.Session, closed>"
        return f"<plsh.Session of {len(self)} tokens, {self.nbytes} bytes>"

    def __len__(self) -> int:
        """Tokens so far."""
        return int(models().plsh_session_length(self._pointer))

    def __copy__(self) -> Session:
        return self.fork()

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return int(models().plsh_session_cache_bytes(self._pointer))

    def step(self, ids: Ids) -> Float32:
        """Appends tokens; the logits of the last one, [vocabulary].

        Between chunks of the model's `chunk` tokens, Ctrl-C and other threads get their turn.
        """
        given = as_ids("ids", ids, self.model.facts.vocabulary)
        if not given.size:
            raise ValueError("ids: there is no token in it")
        logits, start = np.empty(self.model.facts.vocabulary, dtype=np.float32), len(self)
        for at in range(0, len(given), self.model.chunk):
            chunk = given[at:at + self.model.chunk]
            self._step(chunk, None, logits if at + len(chunk) == len(given) else None, start + len(given))
        return logits

    def forward(self, ids: Ids, *, logits: bool = True) -> Forward:
        """Appends tokens; the hidden states and logits of all of them."""
        given = as_ids("ids", ids, self.model.facts.vocabulary)
        return self._forward(given, logits, len(self) + len(given))

    def _forward(self, given: npt.NDArray[np.int32], logits: bool, length: int) -> Forward:
        facts = self.model.facts
        hidden = np.empty((len(given), facts.hidden), dtype=np.float32)
        out = np.empty((len(given), facts.vocabulary), dtype=np.float32) if logits else None
        for at in range(0, len(given), self.model.chunk):
            chunk = given[at:at + self.model.chunk]
            self._step(chunk, hidden[at:at + len(chunk)], None, length)
            for row in range(at, at + len(chunk) if out is not None else at, _LOGIT_ROWS):
                rows = slice(row, min(row + _LOGIT_ROWS, at + len(chunk)))
                assert out is not None
                self._logits(hidden[rows], out[rows])
        return Forward(hidden, out)

    def _step(self, ids: npt.NDArray[np.int32], hidden: Optional[Float32],
              logits: Optional[Float32], length: int = 0) -> None:
        """`length` is that of the text, where further steps append the rest of it."""
        step = ffi.new("plsh_step *", {
            "ids": ffi.from_buffer("int32_t[]", ids), "count": len(ids), "length": length,
            "hidden": ffi.NULL if hidden is None else floats(hidden),
            "logits": ffi.NULL if logits is None else floats(logits)})
        error = ffi.new("plsh_error *")
        with self._lock:
            check(models().plsh_session_step(self._pointer, step, error), error)

    def _logits(self, hidden: Float32, out: Float32) -> None:
        error = ffi.new("plsh_error *")
        with self._lock:
            check(models().plsh_session_logits(self._pointer, floats(hidden), len(hidden),
                                               floats(out), error), error)

    def fork(self) -> Session:
        """A second session with the same tokens; memory is shared until one of them writes to it."""
        made, error = ffi.new("plsh_session **"), ffi.new("plsh_error *")
        with self._lock:
            check(models().plsh_session_fork(self._pointer, made, error), error)
        return Session(self.model, _pointer=made[0])

    def truncate(self, length: int) -> None:
        """Drops all tokens from position `length` on."""
        kept, error = as_integer("length", length, 0, _MOST), ffi.new("plsh_error *")
        with self._lock:
            check(models().plsh_session_truncate(self._pointer, kept, error), error)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """One file, whole or not at all; `model.session(path)` and `plsh generate --session` read it."""
        error = ffi.new("plsh_error *")
        with self._lock:
            check(models().plsh_session_save(self._pointer, os.fsencode(path), error), error)
