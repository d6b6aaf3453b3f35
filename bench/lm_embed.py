#!/usr/bin/env python3
"""Embeddings of many short texts: plsh beside sentence-transformers and llama.cpp, on the same threads.

    bench/lm_embed.py --minilm all-MiniLM-L6-v2
    bench/lm_embed.py --rows rows.jsonl        keeps rows there; those it has are not measured again

1,000 sentences of 5 to 60 tokens of this repository's own texts. "seconds" of plsh are those of the whole program: start,
model, tokens, embeddings, file. Those of the peers are of a call with the loaded model: sentence-transformers' encode (batches of
32, sorted by length), and for llama.cpp the passes alone, of tokens that it is given, in batches of up to 512. The
median of --reps calls after a first one. "difference" is the largest one from sentence-transformers' vectors, of unit length. Makes an
environment of its own first (see lm_environment.py), and adds sentence-transformers to it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import lm_environment
import lm_peers

Row = dict[str, Any]
OURS = {"plsh": [], "plsh bfloat16": ["--compute", "bfloat16"], "plsh avx2": ["--isa", "avx2"]}
PEERS = ("sentence-transformers", "llama.cpp")
COUNT, SHORTEST, LONGEST, BATCH = 1000, 5, 60, 512


def folder_of(o: argparse.Namespace) -> pathlib.Path:
    """With the name of weights that transformers looks for."""
    def copy(path: pathlib.Path) -> None:
        path.mkdir()
        for file in o.minilm.iterdir():
            shutil.copyfile(file, path / ("model.safetensors" if file.suffix == ".safetensors" else file.name))
    return lm_peers.made("minilm", copy)


def tokens_of(o: argparse.Namespace, lines: list[str]) -> list[list[int]]:
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(str(folder_of(o) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return [tokenizer.encode(line).ids for line in lines]


def sentences_of(o: argparse.Namespace) -> pathlib.Path:
    """Words of the texts in their order, cut where a sentence has a length drawn evenly."""
    def write(path: pathlib.Path) -> None:
        files = ("README.md", "CONTRIBUTING.md", "docs/guide.md", "docs/mathematics.md", "docs/scale.md")
        words = re.findall(r"[A-Za-z][A-Za-z'-]*[.,]?", " ".join((lm_peers.ROOT / x).read_text(encoding="utf-8") for x in files))
        draw, lines, at = random.Random(1), [], 0
        for _ in range(2 * COUNT):
            count = draw.randint(3, 45)
            lines.append(" ".join(words[at % (len(words) - count):][:count]))
            at += count
        lines = [line for line, ids in zip(lines, tokens_of(o, lines)) if SHORTEST <= len(ids) <= LONGEST]
        path.write_text("\n".join(lines[:COUNT]) + "\n", encoding="utf-8")
    return lm_peers.made("sentences.txt", write)


def vectors_of(contender: str, threads: int) -> pathlib.Path:
    return lm_peers.ROOT / "build" / "lm-peers" / f"vectors-{contender.replace(' ', '-')}-{threads}.npy"


def median_of(call: Callable[[], float], reps: int) -> float:
    call()
    return statistics.median(call() for _ in range(reps))


def measure_plsh(o: argparse.Namespace, contender: str, threads: int) -> Row:
    def run() -> float:
        wall: float = lm_peers.plsh("embed", "--model", folder_of(o), "--text", sentences_of(o), "--out", vectors_of(contender, threads),
                                    "--threads", threads, *OURS[contender])["wall"]
        return wall
    return {"seconds": median_of(run, o.reps)}


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure_sentence_transformers(o: argparse.Namespace, threads: int) -> Row:
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer, models
    torch.set_num_threads(threads)
    words = models.Transformer(str(folder_of(o)))
    modules = [words, models.Pooling(words.get_word_embedding_dimension()), models.Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu").float()
    lines = sentences_of(o).read_text(encoding="utf-8").splitlines()
    np.save(vectors_of("sentence-transformers", threads), model.encode(lines, show_progress_bar=False))
    return {"seconds": median_of(lambda: timed(lambda: model.encode(lines, show_progress_bar=False)), o.reps)}


def measure_llama(o: argparse.Namespace, threads: int) -> Row:
    import ctypes

    import numpy as np

    import llama
    file = lm_peers.converted(folder_of(o), "f16", "minilm-f16.gguf")
    lines = sentences_of(o).read_text(encoding="utf-8").splitlines()
    lists = tokens_of(o, lines)
    c = llama.c
    c.llama_log_set(llama.say_nothing, ctypes.c_void_p(0))
    c.llama_backend_init()
    model = c.llama_model_load_from_file(str(file).encode(), c.llama_model_default_params())
    if not model:
        return {"why": "llama.cpp does not load the file"}
    options = c.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = BATCH
    options.n_seq_max = 256
    options.kv_unified = True
    options.n_threads = options.n_threads_batch = threads
    options.embeddings, options.pooling_type = True, 1  # mean
    context = c.llama_init_from_model(model, options)
    if not context:
        return {"why": "llama.cpp makes no context"}
    width, rows = c.llama_model_n_embd(model), np.zeros((len(lists), c.llama_model_n_embd(model)), dtype=np.float32)
    order = sorted(range(len(lists)), key=lambda i: len(lists[i]))

    def run_batch(some: list[int]) -> None:
        batch = c.llama_batch_init(BATCH, 0, 1)
        for number, i in enumerate(some):
            for at, token in enumerate(lists[i]):
                n = batch.n_tokens
                batch.token[n], batch.pos[n], batch.n_seq_id[n], batch.logits[n] = token, at, 1, True
                batch.seq_id[n][0] = number
                batch.n_tokens = n + 1
        if c.llama_encode(context, batch):
            raise RuntimeError("llama.cpp stops")
        for number, i in enumerate(some):
            rows[i] = np.ctypeslib.as_array(c.llama_get_embeddings_seq(context, number), shape=(width,))
        c.llama_batch_free(batch)

    def run() -> float:
        some: list[int] = []
        start = time.perf_counter()
        for i in order:
            if len(some) == options.n_seq_max or sum(len(lists[j]) for j in [*some, i]) > BATCH:
                run_batch(some)
                some = []
            some.append(i)
        run_batch(some)
        return time.perf_counter() - start
    row = {"seconds": median_of(run, o.reps)}
    np.save(vectors_of("llama.cpp", threads), rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return row


def measure_apart(o: argparse.Namespace, contender: str, threads: int) -> Row:
    command = [sys.executable, __file__, "--one", json.dumps([contender, threads]), "--minilm", o.minilm, "--reps", o.reps]
    run = subprocess.run([str(x) for x in command], stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        return {"why": f"ends with code {run.returncode}, see above"}
    found: Row = json.loads(run.stdout.splitlines()[-1])
    return found


def difference_of(contender: str, threads: int) -> float:
    import numpy as np
    a, b = (np.load(vectors_of(x, threads)) for x in (contender, PEERS[0]))
    return float(abs(a - b).max())


def print_rows(rows: dict[str, Row]) -> None:
    print(f"{'threads':9}{'contender':24}{'seconds':>9}{'sentences/s':>13}{'x fastest peer':>16}{'difference':>12}")
    for threads in (1, 2):
        found = {x: rows[json.dumps([x, threads])] for x in (*OURS, *PEERS) if json.dumps([x, threads]) in rows}
        fastest = min((found[x]["seconds"] for x in PEERS if "seconds" in found.get(x, {})), default=float("nan"))
        for name, row in found.items():
            if "why" in row:
                print(f"{threads:<9}{name:24}  {row['why']}")
                continue
            line = f"{threads:<9}{name:24}{row['seconds']:9.3f}{COUNT / row['seconds']:13.0f}"
            line += f"{fastest / row['seconds']:16.2f}" if name in OURS else f"{'':16}"
            print(line + (f"{row['difference']:12.1e}" if "difference" in row else ""))
    print()


def main() -> None:
    lm_environment.enter()
    if importlib.util.find_spec("sentence_transformers") is None:
        lm_environment.run_pip("install", "sentence-transformers")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minilm", type=lambda x: pathlib.Path(x).resolve(), required=True)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--rows", type=pathlib.Path, help="a file that keeps what was measured")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.one:
        contender, threads = json.loads(o.one)
        print(json.dumps((measure_llama if contender == "llama.cpp" else measure_sentence_transformers)(o, threads)))
        return
    rows: dict[str, Row] = {}
    if o.rows and o.rows.exists():
        rows = dict(json.loads(x) for x in o.rows.read_text(encoding="utf-8").splitlines())
    for contender, threads in ((x, threads) for threads in (1, 2) for x in (*PEERS, *OURS)):
        text = json.dumps([contender, threads])
        if text in rows:
            continue
        print(f"  {text}", file=sys.stderr)
        rows[text] = (measure_plsh if contender in OURS else measure_apart)(o, contender, threads)
        if "seconds" in rows[text] and contender != PEERS[0] and vectors_of(PEERS[0], threads).exists():
            rows[text]["difference"] = difference_of(contender, threads)
        if o.rows:
            with open(o.rows, "a", encoding="utf-8") as file:
                file.write(json.dumps([text, rows[text]]) + "\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
