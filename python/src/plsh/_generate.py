"""Generating text: options, results, and the loop that generates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, TypedDict, Union

import numpy as np
import numpy.typing as npt

from plsh._library import InvalidError, check, ffi, models
from plsh._options import as_integer, as_number
from plsh._session import Float32, Session, floats
from plsh._tokenizer import TokenStream

__all__ = ["Chunk", "Completion", "GenerateOptions", "Likely", "Request", "complete", "generate"]

_LIKELY_MOST = 100


class GenerateOptions(TypedDict, total=False):
    """The options of :meth:`plsh.Model.generate` and :meth:`plsh.Model.chat`."""

    max_tokens: int
    temperature: float
    top_k: Optional[int]
    top_p: Optional[float]
    min_p: Optional[float]
    repetition_penalty: float
    stop: Union[str, Sequence[str], None]
    seed: int
    logprobs: Optional[int]
    ignore_end: bool


class Likely(NamedTuple):
    """One generated token, and the tokens that were most likely in its place."""

    id: int
    logprob: float
    top: list[tuple[int, float]]  #: ids and logarithms of probabilities, the most likely first


class Chunk(NamedTuple):
    """A part of a text as it comes: a token and the text that it completes, often a word."""

    text: str
    id: Optional[int]  #: None: the chunk has no token, but text of the prompt or text that was held back
    likely: Optional[Likely]  #: with `logprobs`
    finish_reason: Optional[str]  #: of the last chunk: "stop" or "length"


@dataclass(frozen=True)
class Completion:
    """A generated text."""

    text: str
    ids: list[int]  #: the generated tokens, without the end token
    finish_reason: str  #: "stop": an end token or a text of `stop`; "length": `max_tokens`
    prompt_tokens: int
    logprobs: Optional[list[Likely]]  #: of each token, with `logprobs`


@dataclass(frozen=True)
class Request:
    """The options, checked as those of plsh generate are."""

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: Optional[int] = None
    top_p: Optional[float] = None
    min_p: Optional[float] = None
    repetition_penalty: float = 1.0
    stop: Union[str, Sequence[str], None] = None
    seed: int = 1
    logprobs: Optional[int] = None
    ignore_end: bool = False

    def __post_init__(self) -> None:
        for name, least, most in (("max_tokens", 0, 2**62), ("top_k", 0, 2**62), ("seed", 0, 2**64 - 1),
                                  ("logprobs", 0, _LIKELY_MOST)):
            value = getattr(self, name)
            if value is not None or name not in ("top_k", "logprobs"):
                as_integer(name, value, least, most)
        for name, bound in (("temperature", 1e9), ("top_p", 1.0), ("min_p", 1.0)):
            value = getattr(self, name)
            if value is not None or name == "temperature":
                if not 0 <= as_number(name, value) <= bound:
                    raise InvalidError(f"{name}={value}: must lie between 0 and {bound:g}")
        if not 0 < as_number("repetition_penalty", self.repetition_penalty) < math.inf:
            raise InvalidError(f"repetition_penalty={self.repetition_penalty}: must be above 0, and finite")
        given = [name for name in ("top_k", "top_p", "min_p") if getattr(self, name) is not None]
        if self.temperature == 0 and given:
            raise ValueError(f"{given[0]}={getattr(self, given[0])}: needs a temperature above 0; at 0 "
                             "the most likely token is taken")

    @property
    def stops(self) -> list[str]:
        given = () if self.stop is None else self.stop
        if isinstance(given, bytes) or not isinstance(given, Iterable) or not all(
                isinstance(x, str) for x in given):
            raise TypeError(f"stop={self.stop!r}: must be a text, or a list of texts")
        listed = [given] if isinstance(given, str) else list(given)
        return [x for x in listed if x]

    def sampler(self) -> Any:
        """A plsh_sampler; the library checks its ranges."""
        return ffi.new("plsh_sampler *", {
            "temperature": self.temperature, "top_k": self.top_k or 0,
            "top_p": 1.0 if self.top_p is None else self.top_p, "min_p": self.min_p or 0.0,
            "seed": self.seed})


class _Held:
    """Holds back the end of the text while it may be the beginning of a stop text."""

    def __init__(self, stops: list[str]) -> None:
        self._stops, self._text = stops, ""

    def add(self, text: str, final: bool = False) -> tuple[str, bool]:
        """The text that can be returned now, and whether a stop text follows it."""
        self._text += text
        earliest, whole = len(self._text), False
        for stop in self._stops:
            for at in range(earliest):
                if stop.startswith(self._text[at:at + len(stop)]):
                    earliest, whole = at, len(self._text) - at >= len(stop)
                    break
        if final and not whole:
            earliest = len(self._text)
        given, self._text = self._text[:earliest], self._text[earliest:]
        return given, whole


class _Chooser:
    """Chooses tokens from logits, which it overwrites."""

    def __init__(self, request: Request, prompt: npt.NDArray[np.int32]) -> None:
        self._request, self._sampler = request, request.sampler()
        self._seen = prompt
        self._token, self._error = ffi.new("int32_t *"), ffi.new("plsh_error *")

    def choose(self, logits: Float32, index: int) -> tuple[int, Optional[Likely]]:
        lm, count, buffer = models(), len(logits), floats(logits)
        penalty = ffi.new("plsh_penalty *", {
            "factor": self._request.repetition_penalty,
            "ids": ffi.from_buffer("int32_t[]", self._seen), "count": len(self._seen)})
        check(lm.plsh_sampler_penalise(penalty, buffer, count, self._error), self._error)
        wanted, copy = self._request.logprobs, None
        top: list[tuple[int, float]] = []
        if wanted is not None:
            ids, values = ffi.new("int32_t[]", wanted + 1), ffi.new("double[]", wanted + 1)
            found = lm.plsh_model_likely(buffer, count, wanted, ids, values)
            top, copy = [(ids[i], values[i]) for i in range(found)], logits.copy()
        check(lm.plsh_sampler_choose(self._sampler, buffer, count, index, self._token, self._error),
              self._error)
        token = int(self._token[0])
        if copy is None:
            return token, None
        return token, Likely(token, -lm.plsh_model_score(floats(copy), count, token).nll, top)

    def keep(self, token: int) -> None:
        if self._request.repetition_penalty != 1:
            self._seen = np.append(self._seen, np.int32(token))


def generate(session: Session, prompt: npt.NDArray[np.int32], request: Request, echo: str,
             keep: bool) -> Iterator[Chunk]:
    """Appends the prompt to the session, and yields the text that follows chunk by chunk. `keep`: at the
    end the session holds all of it, even if the caller stops iterating."""
    model, first = session.model, len(session) + len(prompt)
    chooser, held = _Chooser(request, prompt), _Held(request.stops)
    stream = TokenStream(model._tokenizer, prompt)
    ends = frozenset() if request.ignore_end else model._ends
    if echo:
        yield Chunk(echo, None, None, None)
    logits = session.step(prompt)
    reason, made = "length", 0
    fed = np.empty(0, dtype=np.int32)  # the last token, until it goes through the model
    try:
        while made < request.max_tokens:
            if fed.size:
                session._step(fed, None, logits)
                fed = fed[:0]
            token, likely = chooser.choose(logits, first + made)
            if token in ends:
                reason = "stop"
                break
            made, fed = made + 1, np.array([token], dtype=np.int32)
            chooser.keep(token)
            text, stopped = held.add(stream.next(token))
            yield Chunk(text, token, likely, "stop" if stopped else None)
            if stopped:
                return
        text, stopped = held.add(stream.next(None), final=True)
        yield Chunk(text, None, None, "stop" if stopped else reason)
    finally:
        if keep and fed.size:
            session._step(fed, None, None)


def complete(chunks: Iterator[Chunk], prompt_tokens: int, logprobs: bool) -> Completion:
    """All chunks as one."""
    listed = list(chunks)
    return Completion(
        "".join(x.text for x in listed), [x.id for x in listed if x.id is not None],
        listed[-1].finish_reason or "", prompt_tokens,
        [x.likely for x in listed if x.likely is not None] if logprobs else None)
