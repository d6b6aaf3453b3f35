#!/usr/bin/env python3
"""plsh serve beside servers that people use, in one run: requests or tokens per second, time of a request and of its first token, peak
memory of the server.

    bench/serve.py --minilm DIR --smollm2 FILE.gguf [--tables sentences,documents,streams] [--parts 0,1] [--rows rows.jsonl] [--seconds 90] [--alone]

sentences: 2,000 sentences, one a request, from 16 clients: all-MiniLM-L6-v2; infinity-emb (its own environment, build/venv-infinity), and
    sentence-transformers behind FastAPI.
documents: 20 texts of 512 to 8,192 tokens, mixed, from 8 clients: random weights of Jina-v2-small's shape; torch with SDPA, and llama.cpp with
    flash attention, behind FastAPI.
streams: 8 clients that stream 32 completions of 64 tokens: SmolLM2-135M in Q4_1; llama_cpp.server of llama-cpp-python.
The requests of a table are cut into parts, and the servers take turns with each part: a row is one server with one part, at most two minutes.
--rows keeps the rows, and a run goes on where it was stopped; --parts makes some only; --seconds begins no row after so long. --alone measures plsh only, in any Python.
The machine has to be quiet."""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
INFINITY = ROOT / "build" / "venv-infinity"
INFINITY_PACKAGES = ("infinity-emb[torch,server]", "torch==2.13.0", "transformers<5", "click<8.2")
PARTS = {"sentences": 2, "documents": 2, "streams": 2}
CLIENTS = {"sentences": 16, "documents": 8, "streams": 8}
PACKAGES = ("sentence-transformers", "fastapi", "uvicorn", "sse-starlette", "starlette-context", "pydantic-settings")

# The peer of encoders: one worker, as people run it; FastAPI gives plain functions to threads.
APP = '''
import sys, threading, torch
from fastapi import FastAPI
torch.set_num_threads(int(sys.argv[3]))
app, lock = FastAPI(), threading.Lock()
if sys.argv[1] == "sentences":
    from sentence_transformers import SentenceTransformer, models
    words = models.Transformer(sys.argv[2])
    encode = SentenceTransformer(modules=[words, models.Pooling(words.get_word_embedding_dimension()), models.Normalize()]).encode
elif sys.argv[2].endswith(".gguf"):
    import llama, numpy
    model = llama.Llama(sys.argv[2], 8192, int(sys.argv[3]), flash=True, encoder=True)
    def encode(ids):
        model.feed(numpy.array(ids, dtype=numpy.int32), 0, True)
        return model.outputs(len(ids)).mean(axis=0)
else:
    import pathlib, jina
    run = jina.load(pathlib.Path(sys.argv[2]))
    encode = lambda ids: run(torch.tensor([ids]))[0]
@app.post("/embed")
def embed(body: dict):
    with lock, torch.inference_mode():
        return [encode(body["inputs"]).tolist()]
@app.get("/health")
def health():
    return {}
import uvicorn
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[4]), log_level="error")
'''


class Server:
    """A process that answers on a port; its peak of memory is read before it is ended."""

    def __init__(self, command: list, port: int, ready: str):
        self.port = port
        # Nothing is looked for on the hub: its models are folders here.
        path = os.pathsep.join([str(ROOT / "bench"), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        end = time.monotonic() + 300
        while True:
            try:
                if self.ready(ready):
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"{command[0]} did not start")
            time.sleep(0.1)

    def ready(self, path: str) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", path)
        return connection.getresponse().status == 200

    def close(self) -> int:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        self.process.terminate()
        self.process.wait()
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def sentences() -> list[dict]:
    draw = random.Random(1)
    words = "the of and to in is was for on that with as by at from his her they which had not but one all were when".split()
    return [{"inputs": " ".join(draw.choices(words, k=draw.randint(6, 30)))} for _ in range(2000)]


def documents() -> list[dict]:
    """In each part the same number of each length."""
    draw, found = random.Random(2), []
    for _ in range(PARTS["documents"]):
        lengths = [512, 1024, 2048, 4096, 8192] * 2
        draw.shuffle(lengths)
        found += [{"inputs": draw.choices(range(1000, 30000), k=n)} for n in lengths]
    return found


def streams() -> list[dict]:
    return [{"prompt": f"Number {i}. Once upon a time there was", "max_tokens": 64, "temperature": 0, "stream": True} for i in range(32)]


def read(answer: http.client.HTTPResponse, began: float) -> tuple[bytes, float | None, int]:
    """The body; of a stream also when its first text came, and its parts that have text: one a token."""
    if "event-stream" not in (answer.getheader("Content-Type") or ""):
        return answer.read(), None, 0
    first, tokens = None, 0
    for line in answer:
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:]).get("choices")
            if choices and choices[0].get("text"):
                first, tokens = first or time.perf_counter() - began, tokens + 1
    return b"", first, tokens


def measure(server: Server, path: str, bodies: list[dict], clients: int) -> dict:
    """All bodies from so many clients, each with one connection."""
    times, firsts, tokens, wrong, lock, left = [], [], [0], [], threading.Lock(), list(bodies)

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=3600)
        while True:
            with lock:
                if not left or wrong:
                    return
                body = json.dumps(left.pop(0))
            began = time.perf_counter()
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text, first, count = read(answer, began)
            with lock:
                times.append(time.perf_counter() - began)
                firsts.extend([] if first is None else [first])
                tokens[0] += count
                if answer.status != 200:
                    wrong.append(f"{path}: {answer.status} {text[:200]!r}")

    threads = [threading.Thread(target=work) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if wrong or len(times) != len(bodies):
        sys.exit(f"{path}: {len(times)} of {len(bodies)} requests were answered; {wrong}")
    return {"seconds": seconds, "tokens": tokens[0], "times": times, "firsts": firsts}


def jina_folder(minilm: pathlib.Path) -> pathlib.Path:
    """Its requests are token ids; a server wants a tokenizer all the same."""
    folder = ROOT / "build" / "bench-serve-jina"
    if not folder.exists():
        subprocess.run([sys.executable, "-c", f"import jina, pathlib; jina.save_random(pathlib.Path({str(folder)!r}), 30528)"], check=True,
                       cwd=ROOT / "bench")
        shutil.copyfile(minilm / "tokenizer.json", folder / "tokenizer.json")
    return folder


def jina_file(plsh: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """The same for llama.cpp."""
    file = folder.with_suffix(".gguf")
    if not file.exists():
        subprocess.run([plsh, "convert", "--model", folder, "--type", "f32", "--out", file, "--quiet"], check=True)
    return file


def minilm_folder(source: pathlib.Path) -> pathlib.Path:
    """With the name of weights that transformers looks for."""
    folder = ROOT / "build" / "bench-serve-minilm"
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        name = "model.safetensors" if file.suffix == ".safetensors" else file.name
        if not (folder / name).exists():
            shutil.copyfile(file, folder / name)
    return folder


def infinity() -> pathlib.Path | None:
    """Its program, in an environment of its own: it wants older libraries. None where it does not install."""
    program = INFINITY / "bin" / "infinity_emb"
    if not program.exists():
        try:
            venv.create(INFINITY, with_pip=True)
            subprocess.run([INFINITY / "bin" / "python", "-m", "pip", "--quiet", "install", *INFINITY_PACKAGES], check=True)
        except subprocess.CalledProcessError as problem:
            print(f"infinity-emb does not install: {problem}", file=sys.stderr)
            return None
    return program


def servers(table: str, o: argparse.Namespace, port: int) -> dict:
    """server: (command, path that answers when it is ready, path of requests, a change to their bodies)"""
    model = {"sentences": lambda: minilm_folder(o.minilm), "documents": lambda: jina_folder(o.minilm), "streams": lambda: o.smollm2}[table]()
    route = "/v1/completions" if table == "streams" else "/embed"
    found = {"plsh serve": ([o.plsh, "serve", "--model", model, "--port", port, "--threads", o.threads, "--quiet"], "/health", route, dict)}
    if o.alone:
        return found
    if table == "streams":
        # One request after the other; without the last option a new request ends the one before it.
        found["llama_cpp.server"] = ([sys.executable, "-m", "llama_cpp.server", "--model", model, "--n_threads", o.threads, "--n_threads_batch",
                                      o.threads, "--port", port, "--n_ctx", "2048", "--verbose", "false", "--interrupt_requests", "false"],
                                     "/v1/models", route, dict)
        return found
    app = ROOT / "build" / "bench_serve_app.py"
    app.write_text(APP, encoding="utf-8")
    name = "sentence-transformers, FastAPI" if table == "sentences" else "torch SDPA, FastAPI"
    found[name] = ([sys.executable, app, table, model, o.threads, port], "/health", route, dict)
    if table == "documents":
        found["llama.cpp, FastAPI"] = ([sys.executable, app, table, jina_file(o.plsh, model), o.threads, port], "/health", route, dict)
    program = infinity() if table == "sentences" else None
    if program:
        found["infinity-emb"] = ([program, "v2", "--model-id", model, "--engine", "torch", "--device", "cpu", "--port", port, "--no-bettertransformer",
                                  "--served-model-name", "m", "--log-level", "error"], "/health", "/embeddings",
                                 lambda body: {"model": "m", "input": body["inputs"]})
    return found


def at(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def show(table: str, rows: list[dict]) -> None:
    """All parts of each server; x peers: relative to the best of the others."""
    print(f"\n{'table':10} {'server':32} {'requests/s':>10} {'tokens/s':>9} {'p50 s':>8} {'p99 s':>8} {'first s':>8} {'peak MB':>8} {'x peers':>8}")
    speeds, lines = {}, {}
    for name in dict.fromkeys(r["server"] for r in rows):
        parts = [r for r in rows if r["server"] == name]
        seconds, tokens = sum(r["seconds"] for r in parts), sum(r["tokens"] for r in parts)
        times, firsts = [x for r in parts for x in r["times"]], [x for r in parts for x in r["firsts"]]
        speeds[name] = (tokens or len(times)) / seconds
        lines[name] = (f"{table:10} {name:32} {len(times) / seconds:10.2f} " + (f"{tokens / seconds:9.1f}" if tokens else f"{'-':>9}") +
                       f" {at(times, 0.5):8.3f} {at(times, 0.99):8.3f} " + (f"{at(firsts, 0.5):8.3f}" if firsts else f"{'-':>8}") +
                       f" {max(r['peak_bytes'] for r in parts) / 1e6:8.0f}")
    for name, line in lines.items():
        others = [x for other, x in speeds.items() if other != "plsh serve"]
        print(line + (f" {speeds[name] / max(others):8.2f}" if name == "plsh serve" and others else ""), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plsh", type=pathlib.Path, default=ROOT / "build" / "plsh")
    parser.add_argument("--minilm", type=pathlib.Path, required=True)
    parser.add_argument("--smollm2", type=pathlib.Path, required=True)
    parser.add_argument("--tables", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--parts", type=lambda text: [int(word) for word in text.split(",")], default=[0, 1])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--alone", action="store_true")
    o = parser.parse_args()
    if not o.alone:
        import lm_environment
        lm_environment.enter()
        if any(importlib.util.find_spec(name) is None for name in ("sentence_transformers", "fastapi", "starlette_context")):
            lm_environment.run_pip("install", *PACKAGES)
    # Torch and OpenMP take as many threads as plsh.
    os.environ.update(OMP_NUM_THREADS=str(o.threads), MKL_NUM_THREADS=str(o.threads))
    end = time.monotonic() + o.seconds
    done = [json.loads(line) for line in o.rows.read_text().splitlines()] if o.rows and o.rows.exists() else []
    print("threads:", o.threads)
    for table in o.tables:
        port, clients = free_port(), CLIENTS[table]
        bodies = {"sentences": sentences, "documents": documents, "streams": streams}[table]()
        size = len(bodies) // PARTS[table]
        for part in o.parts:
            for name, (command, ready, path, change) in servers(table, o, port).items():
                if any((r["table"], r["server"], r["part"]) == (table, name, part) for r in done) or time.monotonic() > end:
                    continue
                asked = [change(body) for body in bodies[part * size:(part + 1) * size]]
                server = Server(command, port, ready)
                short = sorted(asked, key=lambda body: len(str(body)))
                measure(server, path, short[:2 if table == "documents" else clients], clients)  # warm-up
                row = {"table": table, "server": name, "part": part, **measure(server, path, asked, clients), "peak_bytes": server.close()}
                done.append(row)
                if o.rows:
                    with o.rows.open("a") as out:
                        out.write(json.dumps(row) + "\n")
        show(table, [r for r in done if r["table"] == table])


if __name__ == "__main__":
    main()
