"""Language models and encoders from Hugging Face folders and GGUF files."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Literal, NamedTuple, Optional, Union, overload

import numpy as np
import numpy.typing as npt

from plsh._attention import Integers, Numbers, check_numbers, decays_of, integers
from plsh._decay import DecayLike
from plsh._generate import Chunk, Completion, GenerateOptions, Request, complete, generate
from plsh._library import UnsupportedError, check, ffi, models, names, owned
from plsh._options import as_integer, as_truth, check_used, heads_of
from plsh._partition import word
from plsh._plan import DTYPES, head_array
from plsh._session import Float32, Forward, Session, floats
from plsh._tokenizer import Ids, Text, Tokenizer, as_ids, texts_of, utf8

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Classified", "Model", "ModelFacts", "Perplexity", "Ranked"]

_COMPUTE = {name[len("PLSH_COMPUTE_"):].lower(): value
            for value, name in ffi.typeof("plsh_compute").elements.items()}
_BATCH = 4096  # tokens that encoders compute together, as plsh embed has it


class ModelFacts(NamedTuple):
    """What a model is."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    context: int  #: positions it was made for; 0: any number
    alibi_length: int  #: slopes depend on the length of texts beyond it; 0: they do not
    causal: bool  #: False: an encoder
    rope: bool
    alibi: bool
    masked: bool  #: an encoder with a masked-LM head
    parameters: int
    nbytes: int  #: of the weights as stored


class Perplexity(NamedTuple):
    """How well a model predicts a text; plsh perplexity prints the same."""

    context: int
    stride: int
    tokens: int  #: scored
    nll: float
    perplexity: float
    accuracy: float
    top10: float
    top100: float
    mrr: float
    entropy: float


class Classified(NamedTuple):
    """Labels of texts."""

    labels: list[str]  #: the one with the largest score, of each text
    scores: Float32  #: [texts, labels]; model.labels has their names


@dataclass(frozen=True)
class Ranked:
    """A document and its score."""

    index: int
    score: float


class Model:
    """A model: a folder (config.json, safetensors, tokenizer.json), a .gguf file, or the name
    owner/name of one in the local Hugging Face cache.

        model = plsh.Model("model.gguf")
        print(model.generate("Once upon a time", max_tokens=100).text)
        for chunk in model.chat([{"role": "user", "content": "Hello"}], stream=True):
            print(chunk.text, end="", flush=True)
        rows = plsh.Model("encoder").embed(["one text", "another"])

    Arguments are named like the options of the command line, and results are those of `plsh generate`,
    `embed`, `forward`, `classify`, `rerank` and `perplexity` to the bit. `attention` replaces the
    model's own: a method, or one per layer ("original" keeps a layer's); `sigma` and the others go
    with it as in :func:`plsh.attention`. A model is constant: threads may share it, and the GIL is
    released while the library computes.
    """

    def __init__(
        self, path: Union[str, os.PathLike[str]], *,
        adapter: Union[str, os.PathLike[str], None] = None,
        tokenizer: Union[str, os.PathLike[str], None] = None, family: str = "",
        attention: Union[str, Sequence[str]] = "original", rope: Literal["keep", "drop"] = "keep",
        sigma: Union[Numbers, Literal["alibi"], None] = None, slopes: Optional[Numbers] = None,
        decay: Union[DecayLike, Sequence[DecayLike], None] = None, eps: Optional[float] = None,
        window: Optional[Integers] = None, block: Optional[Integers] = None,
        scheme: Optional[str] = None, design: Optional[str] = None, samples: Optional[int] = None,
        seed: Optional[int] = None, compute: str = "auto", kv: str = "float32", chunk: int = 512,
        undo: int = 0, threads: int = 0, isa: str = "",
    ) -> None:
        check_numbers(True, None, eps, samples, seed, threads)
        word("compute", compute, _COMPUTE)
        word("kv", kv, DTYPES)
        as_integer("chunk", chunk, 1, 65536)
        as_integer("undo", undo, 0, 65536)
        for name, value in (("isa", isa), ("family", family)):
            if not isinstance(value, str):
                raise TypeError(f"{name}={value!r}: must be a text")
        if eps is not None and not 0 <= eps < 1:
            raise ValueError(f"eps={eps}: must be at least 0 and below 1")
        self.path, self.chunk = _find(os.fspath(path)), int(chunk)
        self._tokenizer_path = self.path if tokenizer is None else _find(os.fspath(tokenizer))
        self._open(adapter, family, threads, isa, _COMPUTE[compute])
        options = {"eps": eps, "window": window, "block": block, "scheme": scheme, "design": design,
                   "samples": samples, "seed": seed}
        decays = (sigma, slopes, decay)
        self._attention, self._keep = self._layers(attention, rope, decays, options)
        self._session_options = ffi.new("plsh_session_options *", {
            "attention": self._attention, "attention_count": len(self._attention), "kv": DTYPES[kv],
            "chunk": self.chunk, "undo": undo})
        self._lock = threading.Lock()  # of what is opened when it is first asked for
        self._opened: dict[Any, Any] = {}

    def _open(self, adapter: Union[str, os.PathLike[str], None], family: str, threads: int, isa: str,
              compute: int) -> None:
        keep = [ffi.new("char[]", x) if x else ffi.NULL for x in (
            os.fsencode(adapter) if adapter is not None else b"", isa.encode(), family.encode())]
        options = ffi.new("plsh_model_options *", {
            "adapter": keep[0], "threads": threads, "isa": keep[1], "compute": compute,
            "family": keep[2]})
        made, error = ffi.new("plsh_model **"), ffi.new("plsh_error *")
        check(models().plsh_model_open(made, os.fsencode(self.path), options, error), error)
        self._open_model: Any = owned(made[0], models().plsh_model_close)
        facts = models().plsh_model_describe(self._pointer)
        named = {name: getattr(facts, name) for name in ModelFacts._fields
                 if name not in ("family", "nbytes")}
        self.facts = ModelFacts(family=ffi.string(facts.family).decode(), nbytes=facts.bytes, **named)
        self.labels = tuple(ffi.string(models().plsh_model_label(self._pointer, i)).decode()
                            for i in range(facts.labels))

    def _layers(self, attention: Union[str, Sequence[str]], rope: str, decays: tuple[Any, Any, Any],
                options: dict[str, Any]) -> tuple[Any, list[Any]]:
        """plsh_layer_attention of every layer, and what it borrows."""
        count, heads = self.facts.layers, self.facts.heads
        words = [attention] * count if isinstance(attention, str) else [
            str(x) for x in texts_of("attention", attention)]
        if len(words) != count:
            raise ValueError(f"attention: {len(words)} methods for {count} layers; give one, or one per "
                             "layer")
        methods = [x for x in words if x != "original"]
        given = [name for name, value in (*zip(("sigma", "slopes", "decay"), decays), *options.items())
                 if value is not None]
        if rope not in ("keep", "drop"):
            raise ValueError(f"rope={rope!r}: is one of keep, drop")
        if not methods and (given or rope == "drop"):
            raise ValueError(f"{(given or ['rope'])[0]}: goes with an attention that takes the place of "
                             "the model's own, such as exact")
        if methods:
            check_used(methods, options)
        array, keep = ffi.new("plsh_layer_attention[]", count), []
        for layer, method in enumerate(words):
            array[layer].original = method == "original"
            if method == "original":
                continue
            own = all(x is None for x in decays)
            listed = self._sigmas(layer) if own else decays_of(heads, *decays)
            head, kept = head_array(heads_of(
                (method,), listed, options["eps"], integers("window", options["window"]),
                integers("block", options["block"]), options["scheme"], options["design"],
                options["samples"], options["seed"])._replace(first_head=layer * heads), heads, 1, None)
            array[layer].drop_rope, array[layer].head = rope == "drop", head
            array[layer].head_count = heads
            keep += [head, kept]
        return array, keep

    def _sigmas(self, layer: int) -> tuple[float, ...]:
        return tuple(1.0 / models().plsh_model_slope(self._pointer, layer, h)
                     for h in range(self.facts.heads))

    @property
    def _pointer(self) -> Any:
        if self._open_model is None:
            raise ValueError(f"{self.path}: this model is closed")
        return self._open_model

    def close(self) -> None:
        """Closes its files and frees its memory, as soon as its last session is gone too. Without it
        that happens when nothing refers to the model. `with plsh.Model(..) as model:` calls it."""
        with self._lock:
            self._open_model = None
            self._opened.clear()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a plsh.Model cannot be pickled: open it in each process; the pages of its file are "
                        "shared")

    def __repr__(self) -> str:
        kind = "decoder" if self.facts.causal else "encoder"
        return (f"<plsh.Model {self.path!r}: {self.facts.family} {kind}, {self.facts.layers} layers, "
                f"{self.facts.parameters} parameters>")

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        with self._lock:
            self._pointer  # noqa: B018 (a closed model opens nothing)
            if key not in self._opened:
                self._opened[key] = make()
            return self._opened[key]

    # ---- Tokens ----

    @property
    def _tokenizer(self) -> Tokenizer:
        made: Tokenizer = self._once("tokenizer", lambda: Tokenizer(self._tokenizer_path))
        return made

    def tokenize(self, text: Text, *, special: bool = False) -> list[int]:
        """The ids of a text; `special` adds the tokens that the tokenizer puts around it."""
        return self._tokenizer.encode(utf8("text", text), special)

    def detokenize(self, ids: Ids, *, skip_special: bool = False) -> str:
        """The text of ids."""
        return self._tokenizer.decode(as_ids("ids", ids, 2**31), skip_special)

    @property
    def _ends(self) -> frozenset[int]:
        """The tokens at which a text ends."""
        def find() -> frozenset[int]:
            ends, error = ffi.new("plsh_model_ends *"), ffi.new("plsh_error *")
            check(models().plsh_model_end_tokens(self._pointer, ends, error), error)
            return frozenset(ffi.unpack(ends.ids, ends.count)) if ends.count else frozenset()
        found: frozenset[int] = self._once("ends", find)
        return found | {self._tokenizer.end}

    # ---- Causal models ----

    def _need_causal(self, what: str) -> None:
        if not self.facts.causal:
            raise UnsupportedError(f"{self.path}: an encoder has no {what}; see embed and forward")

    def session(self, path: Union[str, os.PathLike[str], None] = None, *, length: int = 0) -> Session:
        """A sequence of no tokens, or the one that :meth:`Session.save` or `plsh generate --session`
        left in a file. `length`: tokens that it is to hold, used only by models with an
        `alibi_length`; 0: their slopes stay as they were trained."""
        self._need_causal("sessions")
        return Session(self, None if path is None else os.fsencode(path), length)

    def _prompt(self, prompt: Union[Text, Ids], bos: bool) -> npt.NDArray[np.int32]:
        """The ids of a prompt. The tokens that begin a text are put before it, unless it begins with them."""
        if not isinstance(prompt, (str, bytes)):
            return as_ids("prompt", prompt, self.facts.vocabulary)
        first = self._tokenizer.begin() if bos else []
        ids = self._tokenizer.encode(utf8("prompt", prompt), False)
        if not first or ids[:len(first)] != first:
            ids = first + ids
        return as_ids("prompt", ids, self.facts.vocabulary)

    def _generate(self, prompt: npt.NDArray[np.int32], stream: bool, session: Optional[Session],
                  echo: str, request: Request) -> Union[Completion, Iterator[Chunk]]:
        if session is not None and not isinstance(session, Session):
            raise TypeError(f"session={session!r}: must be a plsh.Session")
        if session is not None and session.model is not self:
            raise ValueError("session: is one of another model")
        if not prompt.size:
            raise ValueError("prompt: there is no token in it")
        request.stops  # noqa: B018 (refuses what is no text now, not when the first chunk is asked for)
        self._tokenizer, self._ends  # noqa: B018
        whole = len(prompt) + request.max_tokens
        held = self.session(length=whole) if session is None else session
        chunks = generate(held, prompt, request, echo, session is not None)
        return chunks if stream else complete(chunks, len(prompt), request.logprobs is not None)

    @overload
    def generate(self, prompt: Union[Text, Ids], *, stream: Literal[False] = False, echo: bool = False,
                 bos: bool = True, session: Optional[Session] = None,
                 **options: Unpack[GenerateOptions]) -> Completion: ...

    @overload
    def generate(self, prompt: Union[Text, Ids], *, stream: Literal[True], echo: bool = False,
                 bos: bool = True, session: Optional[Session] = None,
                 **options: Unpack[GenerateOptions]) -> Iterator[Chunk]: ...

    def generate(self, prompt: Union[Text, Ids], *, stream: bool = False, echo: bool = False,
                 bos: bool = True, session: Optional[Session] = None,
                 **options: Unpack[GenerateOptions]) -> Union[Completion, Iterator[Chunk]]:
        """Continues a prompt, a text or token ids.

        `max_tokens` (128), `temperature` (0: the most likely token), `top_k`, `top_p`, `min_p`,
        `repetition_penalty`, `seed` (1: the same call gives the same text), `stop` (texts, which are
        not returned), `logprobs` (N: of every token and of the N most likely ones), `ignore_end`
        (continue after the model's end tokens). `stream` gives an iterator of :class:`Chunk`. `echo`
        puts the prompt before the text. `bos=False` leaves out the token that begins a text.
        `session`: the prompt is appended to its text, and it holds the whole text afterwards.
        """
        self._need_causal("text to generate")
        request = Request(**options)
        ids = self._prompt(prompt, bos and not (isinstance(session, Session) and len(session)))
        shown = "" if not echo else (
            utf8("prompt", prompt).decode("utf-8", "replace") if isinstance(prompt, (str, bytes))
            else self.detokenize(ids))
        return self._generate(ids, stream, session, shown, request)

    @overload
    def chat(self, messages: Sequence[Mapping[str, str]], *, stream: Literal[False] = False,
             **options: Unpack[GenerateOptions]) -> Completion: ...

    @overload
    def chat(self, messages: Sequence[Mapping[str, str]], *, stream: Literal[True],
             **options: Unpack[GenerateOptions]) -> Iterator[Chunk]: ...

    def chat(self, messages: Sequence[Mapping[str, str]], *, stream: bool = False,
             **options: Unpack[GenerateOptions]) -> Union[Completion, Iterator[Chunk]]:
        """The answer to messages, {"role": "user", "content": "Hello"}, under the model's template.

        Roles are system, user and assistant. Other options are those of :meth:`generate`. Text in a
        message never becomes a special token.
        """
        self._need_causal("conversations")
        if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
            raise TypeError(f"messages={messages!r}: must be a list of messages, "
                            '{"role": "user", "content": "Hello"}')
        listed = []
        for i, message in enumerate(messages):
            if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
                raise ValueError(f"messages[{i}]: must have a role and a content, and nothing else")
            listed.append((utf8(f"messages[{i}] role", message["role"]),
                           utf8(f"messages[{i}] content", message["content"])))
        ids = self._tokenizer.chat(self._chat_template(), listed)
        return self._generate(as_ids("messages", ids, self.facts.vocabulary), stream, None, "",
                              Request(**options))

    def _chat_template(self) -> Any:
        tokenizer = self._tokenizer

        def make() -> Any:
            made, error = ffi.new("plsh_chat **"), ffi.new("plsh_error *")
            check(models().plsh_chat_open(made, self._pointer, tokenizer.pointer, error), error)
            return owned(made[0], models().plsh_chat_close, self._pointer, tokenizer.pointer)
        return self._once("chat", make)

    def perplexity(self, text: Union[Text, Ids], *, context: int = 1024, stride: int = 0,
                   bos: bool = False) -> Perplexity:
        """How well the model predicts a text, or ids, in windows of `context` tokens.

        `stride`: tokens scored of each window, 0: all. `bos`: every window begins with the token that
        begins a text, in the place of its first one.
        """
        self._need_causal("predictions of a next token")
        ids = as_ids("text", self.tokenize(text) if isinstance(text, (str, bytes)) else text,
                     self.facts.vocabulary)
        as_integer("stride", stride, 0, as_integer("context", context, 2, 2**62))
        length = min(context, len(ids))
        if length < 2:
            raise ValueError(f"text: {len(ids)} tokens; at least 2")
        step = stride if 0 < stride < length else length
        first = length - step if step < length else 1
        total, tokens = np.zeros(6), 0
        for at in range(0, len(ids) - length + 1, step):
            window = ids[at:at + length].copy()
            if bos:
                window[0] = self._begin()
            scored, sums = self._score(window, first)
            tokens, total = tokens + scored, total + sums
        nll, entropy, mrr, one, ten, hundred = (total / tokens).tolist()
        return Perplexity(context, step, tokens, nll, math.exp(nll), one, ten, hundred, mrr, entropy)

    def _begin(self) -> int:
        first = self._tokenizer.begin()
        token = first[0] if first else int(
            models().plsh_tokenizer_roles(self._tokenizer.pointer).begin)
        if not 0 <= token < self.facts.vocabulary:
            raise ValueError("bos: the tokenizer names no token that begins a text")
        return token

    def _score(self, ids: npt.NDArray[np.int32], first: int) -> tuple[int, npt.NDArray[np.float64]]:
        """Sums over ids[first:]: nll, entropy, 1 / (rank + 1), ranks below 1, 10 and 100."""
        lm, session, vocabulary = models(), self.session(length=len(ids)), self.facts.vocabulary
        total = np.zeros(6)
        for at in range(0, len(ids), self.chunk):
            logits = session._forward(ids[at:at + self.chunk], True, len(ids)).logits
            assert logits is not None
            for row in range(max(at, first - 1), min(at + len(logits), len(ids) - 1)):
                one = lm.plsh_model_score(floats(logits[row - at]), vocabulary, int(ids[row + 1]))
                if not (math.isfinite(one.nll) and math.isfinite(one.entropy)):
                    raise ValueError(f"{self.path}: the logits for token {row + 1} are not finite")
                total += (one.nll, one.entropy, 1.0 / (one.rank + 1), one.rank < 1, one.rank < 10,
                          one.rank < 100)
        return len(ids) - first, total

    def forward(self, ids: Ids, *, logits: bool = True) -> Forward:
        """Hidden states and logits of tokens; `logits=False` leaves them out, [n, vocabulary] may be
        large. Encoders without a head have none."""
        given = as_ids("ids", ids, self.facts.vocabulary)
        if not given.size:
            raise ValueError("ids: there is no token in it")
        if self.facts.causal:
            return self.session(length=len(given)).forward(given, logits=logits)
        hidden = self._encode(given, np.zeros_like(given), [0, len(given)])
        if not logits or not (self.facts.masked or self.labels):
            return Forward(hidden, None)
        if not self.facts.masked:
            return Forward(hidden, self._classify(hidden)[None])
        out, error = np.empty((len(given), self.facts.vocabulary), np.float32), ffi.new("plsh_error *")
        check(models().plsh_model_token_logits(self._pointer, floats(hidden), len(given), floats(out),
                                               error), error)
        return Forward(hidden, out)

    # ---- Encoders ----

    def _encode(self, ids: npt.NDArray[np.int32], types: npt.NDArray[np.int32],
                offsets: Sequence[int]) -> Float32:
        """The last hidden states of packed texts."""
        hidden = np.empty((len(ids), self.facts.hidden), dtype=np.float32)
        edges = ffi.new("int64_t[]", list(offsets))
        encoding = ffi.new("plsh_encoding *", {
            "ids": ffi.from_buffer("int32_t[]", ids), "types": ffi.from_buffer("int32_t[]", types),
            "offsets": edges, "sequences": len(offsets) - 1, "count": len(ids),
            "attention": self._attention, "attention_count": len(self._attention),
            "hidden": floats(hidden)})
        error = ffi.new("plsh_error *")
        if len(ids):
            check(models().plsh_model_encode(self._pointer, encoding, error), error)
        return hidden

    def _texts(self, texts: Sequence[tuple[list[int], list[int]]], batch: int) -> Iterator[Float32]:
        """The hidden states of every text, given by ids and types; texts of up to `batch` tokens
        in all are computed together."""
        first = 0
        while first < len(texts):
            last, count = first + 1, len(texts[first][0])
            while last < len(texts) and count + len(texts[last][0]) <= batch:
                count, last = count + len(texts[last][0]), last + 1
            offsets = [0]
            for ids, _ in texts[first:last]:
                offsets.append(offsets[-1] + len(ids))
            packed = [np.array([x for text in texts[first:last] for x in text[part]], dtype=np.int32)
                      for part in (0, 1)]
            hidden = self._encode(packed[0], packed[1], offsets)
            for begin, end in zip(offsets, offsets[1:]):
                yield hidden[begin:end]
            first = last

    def _sentence(self, pooling: int, prompt: Optional[str]) -> Any:
        """The modules after the encoder, a plsh_sentence."""
        def make() -> Any:
            made, error = ffi.new("plsh_sentence **"), ffi.new("plsh_error *")
            check(models().plsh_sentence_open(made, self._pointer, pooling, error), error)
            sentence = owned(made[0], models().plsh_sentence_close, self._pointer)
            if prompt is not None:
                name = ffi.new("char[]", prompt.encode())
                check(models().plsh_sentence_prompt(sentence, name, error), error)
            return sentence
        return self._once(("sentence", pooling, prompt), make)

    def _sentence_ids(self, sentence: Any, texts: Sequence[Text], truncate: bool, batch: int,
                      ) -> list[tuple[list[int], list[int]]]:
        as_integer("batch", batch, 1, 2**62)
        listed = []
        for i, text in enumerate(texts):
            ids = self._tokenizer.sentence(sentence, utf8(f"texts[{i}]", text), truncate)
            self._check_length(f"texts[{i}]", sentence, ids)
            listed.append((ids, [0] * len(ids)))
        return listed

    def _check_length(self, name: str, sentence: Any, ids: list[int]) -> None:
        most = models().plsh_sentence_describe(sentence).longest
        if 0 < most < len(ids):
            raise ValueError(f"{name}: {len(ids)} tokens; this model takes {most}: truncate=True leaves "
                             "the others out")

    def _pooled(self, pooling: Optional[str], prompt_name: Optional[str]) -> Any:
        poolings = names(models().plsh_pooling_names())
        wanted = models().PLSH_POOLING_COUNT
        if pooling is not None:
            word("pooling", pooling, poolings)
            wanted = poolings[pooling]
        if prompt_name is not None and not isinstance(prompt_name, str):
            raise TypeError(f"prompt_name={prompt_name!r}: must be a text")
        return self._sentence(wanted, prompt_name)

    def embed(self, texts: Union[Text, Sequence[Text]], *, pooling: Optional[str] = None,
              normalize: Optional[bool] = None, truncate: bool = False,
              prompt_name: Optional[str] = None, batch: int = _BATCH) -> Float32:
        """A row per text, [texts, columns]; of a single text its row.

        `pooling` ("mean", "cls", "max", ..) and `normalize` are those that the model's files ask for
        unless they are given. `truncate` cuts texts that are longer than the model takes, which are
        errors otherwise. `prompt_name`: a prompt of the model's files, "" for none. `batch`: tokens
        that are computed together.
        """
        sentence, lm = self._pooled(pooling, prompt_name), models()
        facts = lm.plsh_sentence_describe(sentence)
        if facts.pooling == lm.PLSH_POOLING_NONE:
            raise ValueError("pooling='none': embed_tokens gives the rows of all tokens")
        listed = [texts] if isinstance(texts, (str, bytes)) else texts_of("texts", texts)
        tokens = self._sentence_ids(sentence, listed, truncate, batch)
        how = lm.PLSH_NORMALISE_AS_ASKED if normalize is None else (
            lm.PLSH_NORMALISE_ALWAYS if as_truth("normalize", normalize) else lm.PLSH_NORMALISE_NEVER)
        rows, error = np.empty((len(listed), facts.columns), np.float32), ffi.new("plsh_error *")
        for row, hidden in zip(rows, self._texts(tokens, batch)):
            check(lm.plsh_sentence_row(sentence, floats(hidden), len(hidden), how, floats(row), error),
                  error)
        one: Float32 = rows[0] if isinstance(texts, (str, bytes)) else rows
        return one

    def embed_tokens(self, texts: Sequence[Text], *, normalize: Optional[bool] = None,
                     truncate: bool = False, prompt_name: Optional[str] = None, batch: int = _BATCH,
                     ) -> list[Float32]:
        """The rows of the tokens of every text, [tokens, hidden], as plsh embed --pooling none."""
        sentence = self._pooled("none", prompt_name)
        facts = models().plsh_sentence_describe(sentence)
        divide = facts.normalises if normalize is None else as_truth("normalize", normalize)
        tokens = self._sentence_ids(sentence, texts_of("texts", texts), truncate, batch)
        return [_normalised(x) if divide else x.copy() for x in self._texts(tokens, batch)]

    def _classify(self, hidden: Float32) -> Float32:
        out, error = np.empty(len(self.labels), dtype=np.float32), ffi.new("plsh_error *")
        check(models().plsh_model_classify(self._pointer, floats(hidden), floats(out), error), error)
        return out

    def _need_labels(self, one: bool) -> Any:
        if not self.labels or (one and len(self.labels) != 1):
            raise UnsupportedError(
                f"{self.path}: has {len(self.labels)} labels; " +
                ("a reranker is a classifier of one" if one else "this model has no classifier"))
        return self._sentence(models().PLSH_POOLING_CLS, None)  # for its tokens

    def _probabilities(self, scores: Float32) -> Float32:
        """Softmax over the labels, or of each by itself, as the model's problem_type says."""
        lm, problem = models(), models().plsh_model_problem(self._pointer)
        if problem == lm.PLSH_PROBLEM_REGRESSION and len(scores) > 1:
            return scores
        values = scores.tolist()
        if problem != lm.PLSH_PROBLEM_SINGLE_LABEL or len(values) == 1:
            return np.array([1.0 / (1.0 + _exp(-x)) for x in values], dtype=np.float32)
        weights = [_exp(x - max(values)) for x in values]
        total = 0.0
        for weight in weights:  # sum() of Python 3.12 rounds differently
            total += weight
        return np.array([x / total for x in weights], dtype=np.float32)

    def classify(self, texts: Sequence[Text], *, probabilities: bool = False, truncate: bool = False,
                 batch: int = _BATCH) -> Classified:
        """Labels of texts: logits, or `probabilities`."""
        sentence = self._need_labels(False)
        listed = [texts] if isinstance(texts, (str, bytes)) else texts_of("texts", texts)
        tokens = self._sentence_ids(sentence, listed, truncate, batch)
        for i, (ids, _) in enumerate(tokens):
            if not ids:
                raise ValueError(f"texts[{i}]: has no tokens to classify")
        scores = np.empty((len(listed), len(self.labels)), dtype=np.float32)
        for i, hidden in enumerate(self._texts(tokens, batch)):
            row = self._classify(hidden)
            scores[i] = self._probabilities(row) if probabilities else row
        return Classified([self.labels[i] for i in scores.argmax(axis=1)], scores)

    def rerank(self, query: Text, documents: Sequence[Text], *, top: int = 0,
               probabilities: bool = False, truncate: bool = False, batch: int = _BATCH,
               ) -> list[Ranked]:
        """Documents by how well they answer a query, best first; `top`: only so many."""
        sentence = self._need_labels(True)
        most = models().plsh_sentence_describe(sentence).longest if truncate else 0
        as_integer("top", top, 0, 2**62)
        as_integer("batch", batch, 1, 2**62)
        tokens = []
        for i, document in enumerate(texts_of("documents", documents)):
            pair = self._tokenizer.pair(utf8("query", query), utf8(f"documents[{i}]", document), most)
            self._check_length(f"documents[{i}] with the query", sentence, pair[0])
            tokens.append(pair)
        rows = [self._classify(hidden) for hidden in self._texts(tokens, batch)]
        scores = [float((self._probabilities(x) if probabilities else x)[0]) for x in rows]
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
        return [Ranked(i, scores[i]) for i in (order[:top] if top > 0 else order)]


def _normalised(rows: Float32) -> Float32:
    wide = rows.astype(np.float64)
    # Sums from left to right, as the program has them; np.sum would add in pairs.
    squares = np.add.accumulate(wide * wide, axis=1)[:, -1:]
    return (wide / np.sqrt(np.where(squares > 0, squares, 1.0))).astype(np.float32)


def _exp(x: float) -> float:
    """exp(x), infinity where it overflows, as in C."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _find(path: str) -> str:
    """A path that exists stays; otherwise owner/name is looked for in the local hub cache."""
    if os.path.exists(path) or not models().plsh_hub_is_name(os.fsencode(path)):
        return path
    out, error = ffi.new("char[]", 4096), ffi.new("plsh_error *")
    check(models().plsh_hub_find(os.fsencode(path), out, error), error)
    return os.fsdecode(ffi.string(out))
