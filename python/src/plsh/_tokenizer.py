"""A model's tokenizer: text to ids and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from plsh._library import check, ffi, models, owned

__all__ = ["Ids", "Text", "TokenStream", "Tokenizer", "as_ids", "texts_of", "utf8"]

Text = Union[str, bytes]
Ids = Union[Sequence[int], npt.NDArray[np.integer[Any]]]


def utf8(name: str, text: Any) -> bytes:
    """The bytes of a text."""
    if not isinstance(text, (str, bytes)):
        raise TypeError(f"{name}={text!r}: must be a text, str or bytes in UTF-8")
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as problem:
        raise ValueError(f"{name}: half of a surrogate pair at character {problem.start}, which UTF-8 cannot "
                         "hold") from None


def texts_of(name: str, texts: Any) -> list[Text]:
    """A list of texts; one text is not taken for a list of its letters."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        shown = repr(texts) if texts is None or len(repr(texts)) < 60 else f"of type {type(texts).__name__}"
        raise TypeError(f"{name}={shown}: must be a list of texts")
    return list(texts)


def as_ids(name: str, ids: Any, vocabulary: int) -> npt.NDArray[np.int32]:
    """Token ids as the library takes them: [n], or [1, n] as others have it."""
    try:
        given = np.asarray(ids)
    except (ValueError, OverflowError):  # lists of different lengths, for one
        given = np.empty((), dtype=object)
    if given.ndim == 2 and given.shape[0] == 1:
        given = given[0]
    if given.dtype == object and given.ndim == 1 and all(isinstance(x, int) for x in given):
        raise ValueError(f"{name}: a token does not fit 64 bits; this model has 0 to {vocabulary - 1}")
    if given.ndim != 1 or (given.size and not np.issubdtype(given.dtype, np.integer)):
        raise TypeError(f"{name}: must be a list of integers, or an array of them, [n] or [1, n]")
    wrong = np.flatnonzero((given < 0) | (given >= vocabulary))
    if wrong.size:
        raise ValueError(f"{name}: token {wrong[0]} is {given[wrong[0]]}; this model has 0 to "
                         f"{vocabulary - 1}")
    return np.ascontiguousarray(given, dtype=np.int32)


class _List:
    """A plsh_token_ids."""

    def __init__(self) -> None:
        self.pointer = owned(ffi.new("plsh_token_ids *"), models().plsh_token_ids_free)

    def values(self) -> list[int]:
        made = self.pointer
        return ffi.unpack(made.ids, made.count) if made.count else []


class _Bytes:
    """A plsh_token_text."""

    def __init__(self) -> None:
        self.pointer = owned(ffi.new("plsh_token_text *"), models().plsh_token_text_free)

    def take(self) -> str:
        """The text, which is removed."""
        made = self.pointer
        text = bytes(ffi.buffer(made.bytes, made.length)) if made.length else b""
        made.length = 0
        return text.decode("utf-8", "replace")


class Tokenizer:
    """plsh_tokenizer: constant, so that threads may share it."""

    def __init__(self, path: str) -> None:
        made, error = ffi.new("plsh_tokenizer **"), ffi.new("plsh_error *")
        check(models().plsh_tokenizer_open(made, os.fsencode(path), error), error)
        self.pointer = owned(made[0], models().plsh_tokenizer_free)

    def encode(self, text: bytes, special: bool) -> list[int]:
        out, error = _List(), ffi.new("plsh_error *")
        check(models().plsh_tokenizer_encode(self.pointer, ffi.from_buffer(text), len(text), special,
                                             out.pointer, error), error)
        return out.values()

    def begin(self) -> list[int]:
        """The tokens that begin a text."""
        out, error = _List(), ffi.new("plsh_error *")
        check(models().plsh_tokenizer_begin(self.pointer, out.pointer, error), error)
        return out.values()

    def pair(self, first: bytes, second: bytes, most: int) -> tuple[list[int], list[int]]:
        """The ids of two texts, and their types; `most` as plsh_tokenizer_encode_pair has it."""
        ids, types, error = _List(), _List(), ffi.new("plsh_error *")
        texts = [(ffi.from_buffer(x), len(x)) for x in (first, second)]
        check(models().plsh_tokenizer_encode_pair(self.pointer, *texts, most, ids.pointer,
                                                  types.pointer, error), error)
        return ids.values(), types.values()

    def sentence(self, sentence: Any, text: bytes, truncate: bool) -> list[int]:
        """The ids of a text behind the prompt of a plsh_sentence."""
        out, error = _List(), ffi.new("plsh_error *")
        check(models().plsh_sentence_ids(sentence, self.pointer, ffi.from_buffer(text), len(text),
                                         truncate, out.pointer, error), error)
        return out.values()

    def chat(self, chat: Any, messages: Sequence[tuple[bytes, bytes]]) -> list[int]:
        """The ids of roles and contents under a plsh_chat, and of the begin of a reply."""
        out, error = _List(), ffi.new("plsh_error *")
        keep = [(ffi.new("char[]", role), ffi.from_buffer(content)) for role, content in messages]
        listed = ffi.new("plsh_chat_message[]", [
            {"role": role, "content": (content, len(content))} for role, content in keep])
        check(models().plsh_chat_ids(chat, listed, len(keep), True, out.pointer, error), error)
        return out.values()

    def decode(self, ids: npt.NDArray[np.int32], skip_special: bool) -> str:
        out, error = _Bytes(), ffi.new("plsh_error *")
        check(models().plsh_tokenizer_decode(self.pointer, ffi.from_buffer("int32_t[]", ids), len(ids),
                                             skip_special, out.pointer, error), error)
        return out.take()

    @property
    def end(self) -> int:
        """The token that ends a text, -1: none."""
        return int(models().plsh_tokenizer_roles(self.pointer).end)


class TokenStream:
    """The text of ids that come one by one, behind a prompt."""

    def __init__(self, tokenizer: Tokenizer, prompt: npt.NDArray[np.int32]) -> None:
        made, self._error = ffi.new("plsh_token_stream **"), ffi.new("plsh_error *")
        check(models().plsh_token_stream_create(made, tokenizer.pointer, True, self._error), self._error)
        self._pointer = owned(made[0], models().plsh_token_stream_free, tokenizer.pointer)
        self._out = _Bytes()
        check(models().plsh_token_stream_follow(self._pointer, ffi.from_buffer("int32_t[]", prompt),
                                                len(prompt), self._error), self._error)

    def next(self, token: Optional[int]) -> str:
        """The text that this token completes; None: what is held back."""
        lm, out = models(), self._out.pointer
        status = (lm.plsh_token_stream_finish(self._pointer, out, self._error) if token is None else
                  lm.plsh_token_stream_next(self._pointer, token, out, self._error))
        check(status, self._error)
        return self._out.take()
