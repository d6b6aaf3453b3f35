"""plsh.Model gives what the program gives, to the bit; sessions, streams, threads and errors."""

import json
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import plsh
from conftest import GOLDEN, TOP
from plsh._library import models

try:
    models()
except plsh.UnsupportedError as missing:
    pytest.skip(str(missing), allow_module_level=True)

PROGRAM = pathlib.Path(os.environ.get("PLSH_PROGRAM", TOP / "build/plsh"))
WRITE = TOP / "tests/support/write_model.py"
DATA = GOLDEN.parent / "data/models"
needs_program = pytest.mark.skipif(not PROGRAM.exists(), reason="the program is not built")
if not WRITE.exists():
    pytest.skip("the writer of tiny models is not beside the tests", allow_module_level=True)

PROMPT = "line 7 of a text"
TEXTS = ["one", "Two words", "", "a third text that is somewhat longer than the others", "five"]


def program(*arguments, text=None):
    """What the program prints with --json."""
    run = subprocess.run([PROGRAM, *map(str, arguments), "--json", "--quiet"], check=True,
                         capture_output=True, input=text)
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tiny models with bytes as tokens: llama, bert, classifier, reranker."""
    made = tmp_path_factory.mktemp("models")
    for kind in ("llama", "bert", "classifier", "reranker"):
        subprocess.run([sys.executable, WRITE, made / kind, kind], check=True)
    template = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
                "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
                "{{ '<|im_start|>assistant\n' }}{% endif %}")
    (made / "llama/tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return made


@pytest.fixture(scope="module")
def llama(folder):
    return plsh.Model(folder / "llama")


def test_facts(folder, llama):
    assert llama.facts.family == "Llama" and llama.facts.causal and llama.facts.rope
    assert (llama.facts.layers, llama.facts.heads, llama.facts.vocabulary) == (2, 4, 257)
    assert "Llama decoder" in repr(llama)
    assert len(plsh.Model(folder / "classifier").labels) > 1


def test_tokens_there_and_back(llama):
    ids = llama.tokenize("héllo\n")
    assert bytes(ids) == "héllo\n".encode() and llama.tokenize("héllo\n".encode()) == ids
    assert llama.detokenize(ids) == "héllo\n" and llama.detokenize(np.array(ids)) == "héllo\n"
    assert llama.tokenize("") == [] and llama.detokenize([]) == ""


GENERATE = [
    ({}, []),
    ({"temperature": 1.5, "seed": 7, "top_k": 50, "top_p": 0.9, "min_p": 0.01},
     ["--temperature", 1.5, "--seed", 7, "--top-k", 50, "--top-p", 0.9, "--min-p", 0.01]),
    ({"repetition_penalty": 1.3, "temperature": 0.7},
     ["--repetition-penalty", 1.3, "--temperature", 0.7]),
    ({"ignore_end": True, "bos": False}, ["--ignore-end", "--no-bos"]),
]


@needs_program
@pytest.mark.parametrize("options, words", GENERATE)
def test_generate_as_the_program(folder, llama, options, words):
    theirs = program("generate", "--model", folder / "llama", "--prompt", PROMPT, "--tokens", 40,
                     "--logprobs", 3, *words)
    ours = llama.generate(PROMPT, max_tokens=40, logprobs=3, **options)
    assert (ours.text, ours.ids) == (theirs["text"], theirs["ids"]) and len(ours.ids) == 40
    assert ours.prompt_tokens == theirs["prompt_tokens"] and ours.finish_reason == "length"
    assert [[x.id, x.logprob, [list(y) for y in x.top]] for x in ours.logprobs] == \
        [[x["id"], x["logprob"], [[y["id"], y["logprob"]] for y in x["top"]]]
         for x in theirs["logprobs"]]


@needs_program
@pytest.mark.parametrize("attention", [
    {"attention": "exact", "sigma": [2.0, 4.0, 8.0, 16.0], "rope": "drop"},
    {"attention": "plsh", "samples": 5, "seed": 3},
    {"attention": ["original", "window"], "window": 9, "kv": "float16"}])
def test_attention_as_the_program(folder, attention):
    words = [x for name, value in attention.items() for x in (
        f"--{name}", ",".join(map(str, value)) if isinstance(value, list) else value)]
    theirs = program("generate", "--model", folder / "llama", "--prompt", PROMPT, "--tokens", 30, *words)
    ours = plsh.Model(folder / "llama", **attention)
    assert ours.generate(PROMPT, max_tokens=30).ids == theirs["ids"]
    assert ours.generate(PROMPT, max_tokens=30).ids != plsh.Model(folder / "llama").generate(
        PROMPT, max_tokens=30).ids


def test_stream_gives_the_parts(llama):
    whole = llama.generate(PROMPT, max_tokens=60, temperature=1.0, logprobs=0)
    chunks = list(llama.generate(PROMPT, max_tokens=60, temperature=1.0, logprobs=0, stream=True))
    assert "".join(x.text for x in chunks) == whole.text
    assert [x.id for x in chunks if x.id is not None] == whole.ids
    assert [x.likely for x in chunks if x.likely] == whole.logprobs
    assert [x.finish_reason for x in chunks] == [None] * (len(chunks) - 1) + [whole.finish_reason]
    assert llama.generate(PROMPT, max_tokens=60, temperature=1.0, seed=2).text != whole.text
    assert llama.generate(PROMPT, max_tokens=5, echo=True).text.startswith(PROMPT)
    assert llama.generate(llama.tokenize(PROMPT), max_tokens=5).prompt_tokens == len(PROMPT)


def test_stop(llama):
    text = llama.generate(PROMPT, max_tokens=60, temperature=1.0).text
    stop = text[20:23]
    chunks = list(llama.generate(PROMPT, max_tokens=60, temperature=1.0, stop=["no such", stop],
                                 stream=True))
    assert "".join(x.text for x in chunks) == text[:text.index(stop)]
    assert chunks[-1].finish_reason == "stop"
    never = text[-1] + "a text that does not come"  # held back until the end, then given
    assert llama.generate(PROMPT, max_tokens=60, temperature=1.0, stop=never).text == text


def test_end_token_stops(llama):
    first = llama.generate(PROMPT, max_tokens=10).ids
    llama._opened["ends"] = frozenset({first[4]})
    try:
        done = llama.generate(PROMPT, max_tokens=10)
        assert done.ids == first[:first.index(first[4])] and done.finish_reason == "stop"
        assert llama.generate(PROMPT, max_tokens=10, ignore_end=True).ids == first
    finally:
        del llama._opened["ends"]


def test_sessions_fork_truncate_and_save(llama, tmp_path):
    ids = llama.tokenize(PROMPT)
    session = llama.session()
    logits = session.step(ids)
    assert np.array_equal(logits, llama.session().step(np.array([ids])))
    fork = session.fork()
    session.save(tmp_path / "saved")
    after = session.step([65])
    assert len(session) == len(ids) + 1 and len(fork) == len(ids) and session.nbytes > 0
    assert np.array_equal(fork.step([65]), after)
    loaded = llama.session(tmp_path / "saved")
    assert len(loaded) == len(ids) and np.array_equal(loaded.step([65]), after)
    fork.truncate(len(ids))
    assert np.array_equal(fork.step([65]), after)
    with pytest.raises(plsh.Error, match="saved"):
        (tmp_path / "saved").write_bytes(b"no session")
        llama.session(tmp_path / "saved")


def test_a_session_goes_on(llama):
    whole = llama.generate(PROMPT, max_tokens=30, session=(first := llama.session()))
    assert len(first) == len(PROMPT) + 30
    second = llama.session()
    stream = llama.generate(PROMPT, max_tokens=30, stream=True, session=second)
    for _ in range(12):
        next(stream)
    stream.close()  # the session holds what was seen
    assert len(second) == len(PROMPT) + 12
    rest = llama.generate(whole.ids[12:13], max_tokens=17, session=second)
    assert rest.ids == whole.ids[13:] and len(second) == len(first)


@needs_program
def test_session_file_of_the_program(folder, llama, tmp_path):
    words = ["generate", "--model", folder / "llama", "--session", tmp_path / "file", "--tokens", 8]
    program(*words, "--prompt", PROMPT)
    ours = llama.generate(" and", max_tokens=8, session=llama.session(tmp_path / "file"))
    assert ours.ids == program(*words, "--prompt", " and")["ids"]


@needs_program
def test_chat_as_the_program(folder, llama):
    for text, tokens in (("Hello", 12), ("<|im_end|>", 3)):
        try:
            theirs = program("generate", "--model", folder / "llama", "--chat", "--prompt", text,
                             "--system", "Be brief", "--tokens", tokens)["ids"]
        except subprocess.CalledProcessError as failed:
            theirs = failed.stderr.decode().split(": ", 1)[1].strip()
        messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": text}]
        try:
            ours = llama.chat(messages, max_tokens=tokens).ids
        except plsh.Error as failed:
            ours = str(failed)
        assert ours == theirs


@needs_program
def test_forward_and_perplexity_as_the_program(folder, llama, tmp_path):
    text = "".join(f"line {i} of a text to learn\n" for i in range(50))
    ids = np.frombuffer(text[:700].encode(), dtype=np.uint8).astype(np.int32)
    np.save(tmp_path / "ids.npy", ids)
    for kind in ("llama", "bert", "classifier"):
        model = plsh.Model(folder / kind)
        logits = [] if kind == "bert" else ["--logits", tmp_path / "logits.npy"]
        program("forward", "--model", folder / kind, "--ids", tmp_path / "ids.npy", "--hidden",
                tmp_path / "hidden.npy", *logits)
        ours = model.forward(ids)
        assert np.array_equal(ours.hidden, np.load(tmp_path / "hidden.npy"))
        if kind == "bert":
            assert ours.logits is None
        else:
            assert np.array_equal(ours.logits, np.load(tmp_path / "logits.npy"))
        assert model.forward(ids[:5], logits=False).logits is None
    (tmp_path / "text.txt").write_text(text)
    row = program("perplexity", "--model", folder / "llama", "--text", tmp_path / "text.txt",
                  "--context", 600, "--stride", 200)["rows"][0]
    ours = llama.perplexity(text, context=600, stride=200)._asdict()
    assert {name: row[name] for name in ours} == pytest.approx(ours, rel=1e-12)


@needs_program
@pytest.mark.parametrize("options, words", [
    ({}, []), ({"normalize": False, "pooling": "max"}, ["--no-normalize", "--pooling", "max"]),
    ({"pooling": "none"}, ["--pooling", "none"]), ({"batch": 20}, ["--batch", 20])])
def test_embed_as_the_program(folder, tmp_path, options, words):
    model = plsh.Model(folder / "bert")
    (tmp_path / "lines").write_text("".join(x + "\n" for x in TEXTS))
    program("embed", "--model", folder / "bert", "--text", tmp_path / "lines", "--out",
            tmp_path / "rows.npy", *words)
    theirs = np.load(tmp_path / "rows.npy")
    if options.get("pooling") == "none":
        listed = model.embed_tokens(TEXTS)
        assert [len(x) for x in listed] == [len(x) for x in TEXTS]
        assert np.array_equal(np.concatenate(listed), theirs)
    else:
        assert np.array_equal(model.embed(TEXTS, **options), theirs)


def test_embed_one_and_none(folder):
    model = plsh.Model(folder / "bert")
    assert model.embed("one").shape == (32,) and model.embed([]).shape == (0, 32)
    assert np.array_equal(model.embed("one"), model.embed([b"one"])[0])


@needs_program
def test_classify_and_rerank_as_the_program(folder):
    texts = [x for x in TEXTS if x]
    lines = "".join(x + "\n" for x in texts).encode()
    for words, options in (([], {}), (["--probabilities"], {"probabilities": True})):
        model = plsh.Model(folder / "classifier")
        theirs = program("classify", "--model", folder / "classifier", *words, text=lines)["rows"]
        ours = model.classify(texts, **options)
        assert ours.labels == [x["label"] for x in theirs]
        assert [dict(zip(model.labels, x)) for x in ours.scores.tolist()] == \
            [x["scores"] for x in theirs]
        theirs = program("rerank", "--model", folder / "reranker", "--query", "words", "--top", 3, *words,
                         text=lines)["rows"]
        ours = plsh.Model(folder / "reranker").rerank("words", texts, top=3, **options)
        assert [(x.index, x.score) for x in ours] == [(x["index"], x["score"]) for x in theirs]


def test_threads_share_a_model(folder, llama):
    encoder = plsh.Model(folder / "bert")
    wanted = [llama.generate(PROMPT, max_tokens=20, temperature=1.0, seed=i).ids for i in range(4)]
    rows = encoder.embed(TEXTS)
    found = {}

    def work(i):
        made = llama.generate(PROMPT, max_tokens=20, temperature=1.0, seed=i).ids
        found[i] = made == wanted[i] and np.array_equal(encoder.embed(TEXTS), rows)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), True)


def test_a_session_outlives_the_name_of_its_model(folder):
    model = plsh.Model(folder / "llama")
    session = model.session()
    wanted = session.step([65, 66])
    fork = session.fork()
    del model, session
    fork.truncate(1)
    assert np.array_equal(fork.step([66]), wanted)


def test_errors(folder, llama, tmp_path):
    with pytest.raises(plsh.Error, match="nowhere"):
        plsh.Model(tmp_path / "nowhere")
    with pytest.raises(plsh.Error, match="some/model"):
        os.environ["HF_HUB_CACHE"] = str(tmp_path)
        try:
            plsh.Model("some/model")
        finally:
            del os.environ["HF_HUB_CACHE"]
    (tmp_path / "broken.gguf").write_bytes(b"GGUF and nothing else")
    with pytest.raises(plsh.Error, match="broken.gguf"):
        plsh.Model(tmp_path / "broken.gguf")
    encoder = plsh.Model(folder / "bert")
    for call, error in (
            (lambda: encoder.generate("a"), plsh.UnsupportedError),
            (lambda: encoder.session(), plsh.UnsupportedError),
            (lambda: encoder.classify(["a"]), plsh.UnsupportedError),
            (lambda: plsh.Model(folder / "classifier").rerank("a", ["b"]), plsh.UnsupportedError),
            (lambda: llama.embed(["a"]), plsh.Error),
            (lambda: llama.forward([1, 257]), ValueError),
            (lambda: llama.forward([]), ValueError),
            (lambda: llama.generate("", bos=False), ValueError),
            (lambda: llama.generate("a", top_p=0.5), ValueError),
            (lambda: llama.generate("a", temperature=1.0, top_p=2.0), plsh.InvalidError),
            (lambda: llama.generate("a", temperatur=1.0), TypeError),
            (lambda: llama.generate("a", max_tokens=-1), ValueError),
            (lambda: llama.generate("a", stop=[3], stream=True), TypeError),
            (lambda: llama.generate("a", session=plsh.Model(folder / "llama").session()), ValueError),
            (lambda: llama.chat([{"role": "user"}]), ValueError),
            (lambda: llama.chat([{"role": "other", "content": "a"}]), plsh.Error),
            (lambda: encoder.embed(["a"], pooling="median"), ValueError),
            (lambda: encoder.embed(["a"], pooling="none"), ValueError),
            (lambda: encoder.embed([3]), TypeError),
            (lambda: plsh.Model(folder / "llama", family="other"), plsh.Error),
            (lambda: plsh.Model(folder / "llama", window=3), ValueError),
            (lambda: plsh.Model(folder / "llama", attention=["exact"] * 3), ValueError),
            (lambda: plsh.Model(folder / "llama", attention="exact", samples=3), ValueError),
            (lambda: plsh.Model(folder / "llama", attention="exactly"), ValueError)):
        with pytest.raises(error):
            call()


def test_bad_values_name_their_argument(folder, llama):
    """Every value of a wrong kind or out of range is refused in words that name it, before any work."""
    encoder, reranker = plsh.Model(folder / "bert"), plsh.Model(folder / "reranker")
    nan, huge = float("nan"), 2**80
    for name, call in (
            ("undo", lambda: plsh.Model(folder / "llama", undo=huge)),
            ("undo", lambda: plsh.Model(folder / "llama", undo=-1)),
            ("chunk", lambda: plsh.Model(folder / "llama", chunk=True)),
            ("isa", lambda: plsh.Model(folder / "llama", isa=None)),
            ("family", lambda: plsh.Model(folder / "llama", family=None)),
            ("kv", lambda: plsh.Model(folder / "llama", kv=[])),
            ("attention", lambda: plsh.Model(folder / "llama", attention=None)),
            ("eps", lambda: plsh.Model(folder / "llama", attention="exact", eps=nan)),
            ("text", lambda: llama.tokenize("\ud800")),
            ("prompt", lambda: llama.generate([[1, 2], [3]])),
            ("prompt", lambda: llama.generate([2**64])),
            ("session", lambda: llama.generate("a", session=5)),
            ("stop", lambda: llama.generate("a", stop=5)),
            ("stop", lambda: llama.generate("a", stop=b"a")),
            ("max_tokens", lambda: llama.generate("a", max_tokens=None)),
            ("max_tokens", lambda: llama.generate("a", max_tokens=huge)),
            ("temperature", lambda: llama.generate("a", temperature=nan)),
            ("temperature", lambda: llama.generate("a", temperature=None)),
            ("temperature", lambda: llama.generate("a", temperature=-1)),
            ("top_p", lambda: llama.generate("a", temperature=1, top_p=nan)),
            ("min_p", lambda: llama.generate("a", temperature=1, min_p=1.5)),
            ("top_k", lambda: llama.generate("a", temperature=1, top_k=huge)),
            ("repetition_penalty", lambda: llama.generate("a", repetition_penalty=None)),
            ("repetition_penalty", lambda: llama.generate("a", repetition_penalty=0)),
            ("seed", lambda: llama.generate("a", seed=None)),
            ("logprobs", lambda: llama.generate("a", logprobs=True)),
            ("messages", lambda: llama.chat(None)),
            ("messages", lambda: llama.chat("hello")),
            ("messages", lambda: llama.chat({"role": "user", "content": "a"})),
            ("length", lambda: llama.session(length=huge)),
            ("length", lambda: llama.session().truncate(None)),
            ("context", lambda: llama.perplexity("abc", context=None)),
            ("context", lambda: llama.perplexity("abc", context=1)),
            ("stride", lambda: llama.perplexity("abc", context=2, stride=3)),
            ("texts", lambda: encoder.embed(None)),
            ("texts", lambda: encoder.embed(5)),
            ("texts", lambda: encoder.embed_tokens("one text, not three letters")),
            ("batch", lambda: encoder.embed(["a"], batch=nan)),
            ("normalize", lambda: encoder.embed(["a"], normalize="yes")),
            ("pooling", lambda: encoder.embed(["a"], pooling=[])),
            ("prompt_name", lambda: encoder.embed(["a"], prompt_name=5)),
            ("documents", lambda: reranker.rerank("a", "one document, not letters")),
            ("documents", lambda: reranker.rerank("a", None)),
            ("top", lambda: reranker.rerank("a", ["b"], top=-1))):
        with pytest.raises((ValueError, TypeError), match=f"^{name}"):
            call()
    assert llama.generate("a", max_tokens=3, stop=None).ids == llama.generate("a", max_tokens=3).ids


def test_closed(folder):
    """close frees the model when its last session is gone; what is called later says so."""
    with plsh.Model(folder / "llama") as model:
        wanted = model.session().step([65, 66])
        session = model.session()
        fork = session.fork()
    assert np.array_equal(session.step([65, 66]), wanted)
    for call in (lambda: model.generate("a"), lambda: model.tokenize("a"), lambda: model.forward([1]),
                 model.session):
        with pytest.raises(ValueError, match="closed"):
            call()
    model.close()
    with session:
        pass
    assert "closed" in repr(session)
    for call in (lambda: session.step([65]), session.fork, lambda: len(session)):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert np.array_equal(fork.step([65, 66]), wanted)
    for it in (model, fork):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(it)


def test_gil_is_released(folder):
    """Another thread counts while one call of the library runs. With switches a minute apart it gets its turn
    only where the GIL is given up, not from the interpreter's own clock."""
    encoder, counted, seen = plsh.Model(folder / "bert", threads=1), [0], []
    ids = np.resize(np.array([65, 66, 67], np.int32), 6000)

    def compute():
        before = counted[0]
        encoder.forward(ids)
        seen.append(counted[0] - before)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        thread = threading.Thread(target=compute)
        thread.start()
        while not seen:
            counted[0] += 1
            if counted[0] % 1000 == 0:
                time.sleep(0)  # so that the other thread ever starts
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert seen[0] > 1000


@pytest.mark.skipif(not DATA.is_dir(), reason="no reference data; PLSH_SHARED points at it")
def test_real_models():
    wanted = json.loads((GOLDEN / "stories260k/generate.json").read_text())
    stories = plsh.Model(DATA / "stories260k")
    made = stories.generate(wanted["ids"], max_tokens=len(wanted["greedy"]))
    assert made.ids == wanted["greedy"]
    assert stories.tokenize(wanted["prompt"]) == wanted["ids"][1:]
    logits = stories.forward(wanted["ids"]).logits
    assert np.abs(logits - np.load(GOLDEN / "stories260k/logits.npy")).max() < 5e-5
    sentences = json.loads((GOLDEN / "minilm/sentences.json").read_text())["sentences"]
    rows = plsh.Model(DATA / "minilm-l6-v2-fp16").embed(sentences)
    assert np.abs(rows - np.load(GOLDEN / "minilm/embeddings.npy")).max() < 1e-5
