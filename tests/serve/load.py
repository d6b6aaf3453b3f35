#!/usr/bin/env python3
"""Mixed load and attack on plsh serve, every answer compared: clients that leave, send half a request, garbage, bodies that are too
long, many connections one after the other and at once. The short form is a test. With --seconds it is the soak: rounds of load, each
with a crowd at its end; the memory after every later round is compared with that after the first, which warms up.
usage: load.py PLSH [--requests N | --seconds S] [--round S] [--threads N] [--crowd N]"""
import argparse
import base64
import json
import random
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

from client import Server, events, write_model

TEXTS = [("word %d " % i) * n for i, n in enumerate((1, 2, 3, 5, 8, 20, 60, 150, 400))]
PROMPTS = ["Once upon a time", "A", "shared beginning of several prompts, long enough to be kept: " * 3 + "x",
           "shared beginning of several prompts, long enough to be kept: " * 3 + "y"]
HEAD = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class Load:
    def __init__(self, encoder: Server, generator: Server, options):
        self.encoder, self.generator, self.options = encoder, generator, options
        self.failures: list[str] = []
        self.done = 0
        self.counts: dict[str, int] = {}
        self.answers = {200: 0, 429: 0}
        self.lock = threading.Lock()
        self.end = time.monotonic() + options.seconds if options.seconds else None
        self.rows = {text: encoder.post("/embed", {"inputs": text})[2][0] for text in TEXTS}
        self.made = {prompt: generator.post("/v1/completions", self.prompt(prompt))[2]["choices"][0]["text"] for prompt in PROMPTS}
        self.said = {prompt: generator.post("/v1/chat/completions", self.chat(prompt))[2]["choices"][0]["message"] for prompt in PROMPTS}

    @staticmethod
    def prompt(text: str) -> dict:
        return {"prompt": text, "max_tokens": 12, "temperature": 0}

    @staticmethod
    def chat(text: str) -> dict:
        return {"messages": [{"role": "user", "content": text}], "max_tokens": 12, "temperature": 0}

    def take(self, status: int, answer) -> bool:
        """Is there an answer to compare?"""
        assert status in (200, 429), (status, answer)
        with self.lock:
            self.answers[status] += 1
        return status == 200

    def goes_on(self) -> bool:
        with self.lock:
            self.done += 1
            return not self.failures and (time.monotonic() < self.end if self.end else self.done <= self.options.requests)

    # ---- clients that behave ----

    def embeds(self, draw) -> None:
        texts = draw.sample(TEXTS, draw.randint(1, 4))
        status, _, rows = self.encoder.post("/embed", {"inputs": texts})
        for text, row in zip(texts, rows if self.take(status, rows) else []):
            assert max(abs(a - b) for a, b in zip(row, self.rows[text])) < 1e-5, f"another row for {text[:20]}"

    def embeds_as_openai(self, draw) -> None:
        text = draw.choice(TEXTS)
        status, _, got = self.encoder.post("/v1/embeddings", {"input": text, "encoding_format": "base64"})
        if self.take(status, got):
            row = struct.unpack(f"<{len(self.rows[text])}f", base64.b64decode(got["data"][0]["embedding"]))
            assert max(abs(a - b) for a, b in zip(row, self.rows[text])) < 1e-5, f"another row for {text[:20]}"

    def completes(self, draw) -> None:
        prompt = draw.choice(PROMPTS)
        status, _, got = self.generator.post("/v1/completions", self.prompt(prompt))
        if self.take(status, got):
            assert got["choices"][0]["text"] == self.made[prompt], (got, self.made[prompt])

    def chats(self, draw) -> None:
        prompt = draw.choice(PROMPTS)
        status, _, got = self.generator.post("/v1/chat/completions", self.chat(prompt))
        if self.take(status, got):
            assert got["choices"][0]["message"] == self.said[prompt], (got, self.said[prompt])

    def streams(self, draw) -> None:
        prompt = draw.choice(PROMPTS)
        status, _, got = self.generator.post("/v1/completions", {**self.prompt(prompt), "stream": True})
        if self.take(status, got):
            assert "".join(e["choices"][0]["text"] for e in events(got)) == self.made[prompt]

    # ---- clients that do not ----

    def server(self, draw) -> tuple[Server, bytes, bytes]:
        """A server, and a whole request for it."""
        if draw.random() < 0.5:
            path, body = b"/embed", {"inputs": [draw.choice(TEXTS) for _ in range(8)]}
        else:
            path, body = b"/v1/completions", {"prompt": draw.choice(PROMPTS), "max_tokens": 500, "stream": draw.random() < 0.5}
        data = json.dumps(body).encode()
        return (self.encoder if path == b"/embed" else self.generator), HEAD % (path, len(data)), data

    def leaves(self, draw) -> None:
        server, head, body = self.server(draw)
        with server.socket() as line:
            line.sendall(head + body)
            if draw.random() < 0.5:
                line.recv(draw.randint(1, 500))

    def sends_half(self, draw) -> None:
        server, head, body = self.server(draw)
        whole = head + body
        with server.socket() as line:
            line.sendall(whole[:draw.randint(1, len(whole) - 1)])

    def sends_garbage(self, draw) -> None:
        server, head, body = self.server(draw)
        with server.socket() as line:
            line.sendall(draw.randbytes(300) if draw.random() < 0.3 else head + draw.randbytes(len(body)))
            try:
                line.shutdown(socket.SHUT_WR)
                answer = line.recv(100)
            except ConnectionError:
                answer = b""
        assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4", b"HTTP/1.1 505")), answer

    def sends_much(self, draw) -> None:
        """100 MB, announced or in chunks."""
        server, _, _ = self.server(draw)
        announced = draw.random() < 0.5
        with server.socket() as line:
            try:
                if announced:
                    line.sendall(HEAD % (b"/tokenize", 100_000_000))
                else:
                    line.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
                for _ in range(100):
                    line.sendall(b"x" * 1_000_000 if announced else b"F4240\r\n" + b"x" * 1_000_000 + b"\r\n")
                assert False, "a body of 100 MB was read"
            except ConnectionError:
                pass

    def work(self, seed: int) -> None:
        draw = random.Random(seed)
        good = [self.embeds] * 4 + [self.embeds_as_openai] * 2 + [self.completes] * 2 + [self.chats] * 2 + [self.streams] * 2
        bad = [self.leaves] * 3 + [self.sends_half] * 3 + [self.sends_garbage] * 2 + [self.sends_much]
        while self.goes_on():
            action = draw.choice(good if draw.random() < 0.7 else bad)
            try:
                action(draw)
            except Exception as error:
                self.failures.append(f"{action.__name__}: {error!r}")
            with self.lock:
                self.counts[action.__name__] = self.counts.get(action.__name__, 0) + 1

    def run(self) -> None:
        threads = [threading.Thread(target=self.work, args=(seed,)) for seed in range(self.options.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def crowd(self) -> None:
        """Many connections one after the other, then at once; the server still answers."""
        for server in (self.encoder, self.generator):
            for _ in range(20 * self.options.crowd):
                server.socket().close()
            lines = [server.socket() for _ in range(self.options.crowd)]
            for line in lines:
                line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            answers = [line.recv(1000)[:12] for line in lines]
            assert set(answers) == {b"HTTP/1.1 200"}, set(answers)
            for line in lines:
                line.close()


def fill_prefixes(generator: Server) -> None:
    """The server keeps the caches of up to 32 texts. Each measurement of memory finds the same ones."""
    for first in range(0, 32, 8):
        body = {"prompt": [f"{first + i} is kept" for i in range(8)], "max_tokens": 500, "temperature": 0.9, "seed": 1}
        assert generator.post("/v1/completions", body)[0] == 200


def memory(load: Load) -> list[float]:
    """When nothing runs: the server returns what is free within two seconds."""
    rest(load.encoder)
    rest(load.generator)
    if load.options.seconds:
        fill_prefixes(load.generator)
        time.sleep(3)
    return [server.metric("resident_bytes") for server in (load.encoder, load.generator)]


def rest(server: Server) -> None:
    """Nothing is left of the requests that were given up."""
    while server.metric("queue_requests") > 0:
        time.sleep(0.05)
    for name in ("queue_tokens", "body_bytes", "reserved_bytes"):
        assert server.metric(name) == 0, name


def soak(load: Load) -> None:
    """Rounds of load. Prints a line for each."""
    warm, began, end = [], time.monotonic(), load.end
    while not load.failures and (load.goes_on() or not warm):
        load.end = min(time.monotonic() + load.options.round, end) if warm else time.monotonic() + load.options.round
        load.run()
        load.crowd()
        load.end = end
        now = memory(load)
        print(json.dumps({"seconds": round(time.monotonic() - began), "requests": sum(load.counts.values()), "compared": load.answers[200],
                          "resident_bytes": now}), flush=True)
        warm = warm or now
        grown = max(b / a - 1 for a, b in zip(warm, now))
        if grown > 0.05:
            load.failures.append(f"memory has grown by {grown:.1%}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("plsh")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--round", type=float, default=300)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--crowd", type=int, default=25)
    options = parser.parse_args()
    # In a soak the machine may be suspended for minutes: those are not a client's that stalls.
    more = ["--threads", "1", "--patience", "600"] if options.seconds else []
    with tempfile.TemporaryDirectory() as scratch:
        bert, llama = (write_model(Path(scratch) / kind, kind) for kind in ("bert", "llama"))
        with Server(options.plsh, bert, "--quiet", *more) as encoder, Server(options.plsh, llama, "--quiet", *more) as generator:
            load = Load(encoder, generator, options)
            if options.seconds:
                soak(load)
            else:
                load.run()
                load.crowd()
                memory(load)
            print(json.dumps({"actions": load.counts, "compared": load.answers[200], "refused": load.answers[429]}))
    for failure in load.failures:
        print(failure)
    return 1 if load.failures else 0


if __name__ == "__main__":
    sys.exit(main())
