#!/usr/bin/env python3
"""plsh serve beside servers that people use, in one run: requests or tokens per second, median and 99th percentile of the time of a
request, peak memory of the server.

    bench/serve.py --minilm DIR --smollm2 FILE.gguf [--tables sentences,documents,streams] [--rows rows.jsonl] [--alone]

sentences: 2,000 sentences, one a request, from 16 clients: all-MiniLM-L6-v2; sentence-transformers behind FastAPI.
documents: 64 texts of 512 to 8,192 tokens, mixed, from 8 clients: random weights of Jina-v2-small's shape; torch with SDPA behind FastAPI.
streams: 8 clients that each stream 4 completions of 64 tokens: SmolLM2-135M in Q4_1; llama_cpp.server of llama-cpp-python.
--alone measures plsh only, in any Python. Runs go on where they were stopped (--rows). The machine has to be quiet."""

from __future__ import annotations

import argparse
import http.client
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
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
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "bench")}
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        end = time.monotonic() + 300
        while True:
            try:
                if self.request("GET", ready)[0] == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"{command[0]} did not start")
            time.sleep(0.1)

    def request(self, method: str, path: str, body=None, connection=None):
        own = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        own.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        answer = own.getresponse()
        return answer.status, answer.read()

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
    draw = random.Random(2)
    lengths = [512, 1024, 2048, 4096, 8192] * 13
    draw.shuffle(lengths)
    return [{"inputs": draw.choices(range(1000, 30000), k=n)} for n in lengths[:64]]


def streams() -> list[dict]:
    return [{"prompt": f"Number {i}. Once upon a time there was", "max_tokens": 64, "temperature": 0, "stream": True} for i in range(32)]


def measure(server: Server, path: str, bodies: list[dict], clients: int) -> dict:
    """All bodies from so many clients, each with one connection."""
    times, tokens, lock, left = [], [0], threading.Lock(), list(enumerate(bodies))

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=3600)
        while True:
            with lock:
                if not left:
                    return
                _, body = left.pop()
            began = time.perf_counter()
            status, answer = server.request("POST", path, body, connection)
            with lock:
                times.append(time.perf_counter() - began)
                tokens[0] += answer.count(b'"text"')
            if status != 200:
                raise SystemExit(f"{path}: {status} {answer[:200]}")

    threads = [threading.Thread(target=work) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if len(times) != len(bodies):
        sys.exit(f"{path}: {len(times)} of {len(bodies)} requests were answered")
    times.sort()
    return {"requests_per_second": len(bodies) / seconds, "tokens_per_second": tokens[0] / seconds if tokens[0] else None,
            "p50": times[len(times) // 2], "p99": times[min(len(times) - 1, len(times) * 99 // 100)]}


def jina_folder(minilm: pathlib.Path) -> pathlib.Path:
    """Its requests are token ids; a server wants a tokenizer all the same."""
    folder = ROOT / "build" / "bench-serve-jina"
    if not folder.exists():
        subprocess.run([sys.executable, "-c", f"import jina, pathlib; jina.save_random(pathlib.Path({str(folder)!r}), 30528)"], check=True,
                       cwd=ROOT / "bench")
        shutil.copyfile(minilm / "tokenizer.json", folder / "tokenizer.json")
    return folder


def minilm_folder(source: pathlib.Path) -> pathlib.Path:
    """With the name of weights that transformers looks for."""
    folder = ROOT / "build" / "bench-serve-minilm"
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        name = "model.safetensors" if file.suffix == ".safetensors" else file.name
        if not (folder / name).exists():
            shutil.copyfile(file, folder / name)
    return folder


def tables(o: argparse.Namespace) -> dict:
    """table: (path, bodies, clients, {server: command})"""
    port, app = free_port(), ROOT / "build" / "bench_serve_app.py"
    found = {}
    for table in o.tables:
        bodies = {"sentences": sentences, "documents": documents, "streams": streams}[table]()
        model = {"sentences": lambda: minilm_folder(o.minilm), "documents": lambda: jina_folder(o.minilm), "streams": lambda: o.smollm2}[table]()
        commands = {"plsh serve": [o.plsh, "serve", "--model", model, "--port", port, "--threads", o.threads, "--quiet"]}
        if not o.alone and table == "streams":
            commands["llama_cpp.server"] = [sys.executable, "-m", "llama_cpp.server", "--model", model, "--n_threads", o.threads, "--n_threads_batch",
                                            o.threads, "--port", port, "--n_ctx", "2048", "--verbose", "false"]
        elif not o.alone:
            app.write_text(APP, encoding="utf-8")
            name = "sentence-transformers, FastAPI" if table == "sentences" else "torch SDPA, FastAPI"
            commands[name] = [sys.executable, app, table, model, o.threads, port]
        clients = {"sentences": 16, "documents": 8, "streams": 8}[table]
        found[table] = ("/v1/completions" if table == "streams" else "/embed", bodies, clients, commands, port)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plsh", type=pathlib.Path, default=ROOT / "build" / "plsh")
    parser.add_argument("--minilm", type=pathlib.Path, required=True)
    parser.add_argument("--smollm2", type=pathlib.Path, required=True)
    parser.add_argument("--tables", type=lambda text: text.split(","), default=["sentences", "documents", "streams"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=pathlib.Path)
    parser.add_argument("--alone", action="store_true")
    o = parser.parse_args()
    if not o.alone:
        import lm_environment
        lm_environment.enter()
        lm_environment.run_pip("install", *PACKAGES)
    done = [json.loads(line) for line in o.rows.read_text().splitlines()] if o.rows and o.rows.exists() else []
    print(f"{'table':10} {'server':32} {'requests/s':>10} {'tokens/s':>9} {'p50 s':>8} {'p99 s':>8} {'peak MB':>8}")
    for table, (path, bodies, clients, commands, port) in tables(o).items():
        for name, command in commands.items():
            row = next((r for r in done if r["table"] == table and r["server"] == name), None)
            if row is None:
                ready = "/v1/models" if name == "llama_cpp.server" else "/health"
                server = Server(command, port, ready)
                measure(server, path, bodies[:clients], clients)  # warm-up
                row = {"table": table, "server": name, **measure(server, path, bodies, clients), "peak_bytes": server.close()}
                if o.rows:
                    with o.rows.open("a") as out:
                        out.write(json.dumps(row) + "\n")
            tokens = f"{row['tokens_per_second']:9.1f}" if row["tokens_per_second"] else f"{'-':>9}"
            print(f"{table:10} {name:32} {row['requests_per_second']:10.2f} {tokens} {row['p50']:8.3f} {row['p99']:8.3f} "
                  f"{row['peak_bytes'] / 1e6:8.0f}", flush=True)


if __name__ == "__main__":
    main()
