#!/usr/bin/env python3
"""plsh serve, route by route: answers equal those of the commands, errors have the forms that clients expect, everything is bounded.
usage: routes.py PLSH [encoder|generator|limits]"""
import base64
import http.client
import json
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from client import Server, embed, events, rows32, run, write_model

PLSH = sys.argv[1]
LINES = ["hello world", "a", "the quick brown fox jumps over the lazy dog", "ALiBi " * 40]


def check_fault(answer, status: int, word: str, openai: bool) -> None:
    """The status, the form, and a message that names what is wrong."""
    assert answer[0] == status, answer
    error = answer[2]["error"]
    message = error["message"] if openai else error
    assert word in message, (word, message)
    if openai:
        assert set(error) == {"message", "type", "param", "code"}, error
    else:
        assert isinstance(answer[2]["error_type"], str), answer[2]


def embeddings(server: Server, model: Path) -> None:
    want = embed(PLSH, model, LINES)
    status, _, got = server.post("/v1/embeddings", {"input": LINES, "model": "any"})
    assert status == 200 and got["object"] == "list" and got["data"][1]["index"] == 1
    assert rows32([d["embedding"] for d in got["data"]]) == want, "not the rows of plsh embed"
    assert got["usage"]["prompt_tokens"] == sum(len(line.encode()) for line in LINES)
    one = embed(PLSH, model, [LINES[2]])
    got = server.post("/v1/embeddings", {"input": LINES[2], "encoding_format": "base64"})[2]
    raw = base64.b64decode(got["data"][0]["embedding"])
    assert [list(struct.unpack(f"<{len(raw) // 4}f", raw))] == one
    ids = list(LINES[2].encode())
    assert rows32([server.post("/v1/embeddings", {"input": ids})[2]["data"][0]["embedding"]]) == one
    both = server.post("/v1/embeddings", {"input": [ids, [104, 105]]})[2]
    assert len(both["data"]) == 2
    assert rows32(server.post("/embed", {"inputs": LINES})[2]) == want
    assert rows32(server.post("/embed", {"inputs": LINES[2]})[2]) == rows32(server.post("/", {"inputs": LINES[2]})[2]) == one
    short = server.post("/v1/embeddings", {"input": LINES[2], "dimensions": 8})[2]["data"][0]["embedding"]
    assert len(short) == 8 and abs(sum(x * x for x in short) - 1) < 1e-5
    plain = server.post("/embed", {"inputs": LINES[2], "normalize": False})[2][0]
    assert abs(sum(x * x for x in plain) - 1) > 1e-3, "normalize: false did nothing"


def facts(server: Server) -> None:
    assert server.get("/health")[2] == {"status": "ok"}
    info = server.get("/info")[2]
    assert info["model_type"] == {"embedding": {"pooling": "mean"}} and info["max_input_length"] > 0
    assert server.get("/v1/models")[2]["data"][0]["id"] == "bert"
    status, headers, page = server.get("/")
    assert status == 200 and "default-src 'none'" in headers["Content-Security-Policy"] and "</html>" in page
    tokens = server.post("/tokenize", {"inputs": "hi"})[2]
    assert [t["id"] for t in tokens[0]] == [104, 105] and tokens[0][0]["text"] == "h"
    before = server.metric("requests_total")
    assert server.metric("requests_total") == before + 1
    assert server.metric("pass_seconds_count") > 0


def faults(server: Server) -> None:
    post, get = server.post, server.get
    check_fault(post("/v1/embeddings", b"{"), 400, "not JSON", True)
    check_fault(post("/embed", b"\xff"), 400, "not JSON", False)
    check_fault(post("/embed", b'{"inputs": "a", "truncate": NaN}'), 400, "not JSON", False)
    for number in (b"99999999999999999999", b"1e999"):
        check_fault(post("/v1/embeddings", b'{"input": "a", "dimensions": %s}' % number), 422, "too large", True)
    check_fault(post("/v1/embeddings", {}), 422, "input is missing", True)
    check_fault(post("/v1/embeddings", [1]), 422, "object", True)
    check_fault(post("/v1/embeddings", {"input": {"a": 1}}), 422, "input", True)
    check_fault(post("/v1/embeddings", {"input": []}), 422, "empty", True)
    check_fault(post("/v1/embeddings", {"input": ["a", 3]}), 422, "input", True)
    check_fault(post("/v1/embeddings", {"input": [999]}), 422, "999", True)
    check_fault(post("/v1/embeddings", {"input": "a", "encoding_format": "x"}), 422, "encoding_format", True)
    check_fault(post("/v1/embeddings", {"input": "a", "dimensions": 99}), 422, "dimensions", True)
    check_fault(post("/v1/embeddings", b"[" * 40 + b"]" * 40), 422, "deep", True)
    check_fault(post("/v1/embeddings", {"input": ["a"] * 3000}), 413, "3000", True)
    check_fault(post("/embed", {"inputs": "a", "truncate": 3}), 422, "truncate", False)
    check_fault(post("/embed", {"inputs": "a", "truncation_direction": "Left"}), 422, "Right", False)
    assert post("/embed", {"inputs": "a", "truncation_direction": "Right"})[0] == 200
    check_fault(post("/embed", {"inputs": "a", "prompt_name": "query"}), 422, "prompt_name", False)
    check_fault(post("/embed", {"inputs": ""}), 422, "no tokens", False)
    check_fault(post("/rerank", {"query": "a", "texts": ["b"]}), 422, "reranker", False)
    check_fault(post("/predict", {"inputs": "a"}), 422, "classifier", False)
    check_fault(post("/v1/completions", {"prompt": "a"}), 422, "encoder", True)
    check_fault(post("/generate", {"inputs": "a"}), 422, "encoder", False)
    check_fault(get("/nowhere"), 404, "/nowhere", False)
    check_fault(get("/v1/nowhere"), 404, "/v1/nowhere", True)
    check_fault(get("/v1/embeddings"), 405, "POST", True)
    check_fault(post("/info", {}), 405, "GET", False)
    assert get("/v1/embeddings")[1]["Allow"] == "POST" and post("/info", {})[1]["Allow"] == "GET, HEAD"
    check_fault(post("/embed", {"inputs": "a"}, headers={"Content-Type": "text/plain"}), 415, "JSON", False)


def connections(server: Server) -> None:
    """Keep-alive, pipelining, a body in chunks, a client that waits for 100-continue."""
    kept = server.connect()
    for text in ("a", "b", "c"):
        assert server.post("/embed", {"inputs": text}, connection=kept)[0] == 200
    assert server.metric("connections") >= 1
    kept.close()
    body = b'{"inputs": "pipelined"}'
    one = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with server.socket() as line:
        line.sendall(one * 3)
        got = b""
        while got.count(b"HTTP/1.1 200") < 3 or got.count(b"]]") < 3:
            part = line.recv(65536)
            assert part, got
            got += part
    chunked = server.connect()
    chunked.request("POST", "/embed", iter([b'{"inp', b'uts": "x"}']), {"Content-Type": "application/json"}, encode_chunked=True)
    assert chunked.getresponse().status == 200
    chunked.close()
    with server.socket() as line:
        line.sendall(one.split(b"\r\n\r\n")[0] + b"\r\nExpect: 100-continue\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 100")
        line.sendall(body)
        assert line.recv(100).startswith(b"HTTP/1.1 200")


def long_and_short(server: Server, model: Path) -> None:
    """A short text is answered while a long one is under way, and both are right."""
    text, done = "x y " * 5000, []
    want = embed(PLSH, model, [text])
    long = threading.Thread(target=lambda: done.append(server.post("/embed", {"inputs": text})))
    long.start()
    while server.metric("queue_tokens") < 20000 and not done:
        pass
    short = server.post("/embed", {"inputs": LINES[2]})
    assert not done, "the short text waited for the long one"
    long.join()
    assert rows32(short[2]) == embed(PLSH, model, [LINES[2]])
    assert rows32(done[0][2]) == want


def many_and_one(server: Server, model: Path) -> None:
    """Texts of other clients go through the model before the end of a long list."""
    texts, done = [f"{i} and more words of a text " * 9 for i in range(2000)], []
    end = server.metric("pass_tokens_total") + sum(len(text) for text in texts)  # a token a byte
    many = threading.Thread(target=lambda: done.append(server.post("/embed", {"inputs": texts})))
    many.start()
    while server.metric("queue_tokens") < 100000 and not done:
        pass
    # The first does not fit into the gaps that the list leaves in passes, the second not beside the list's part.
    for text in ("another text, " * 20, "another text, " * 130):
        one = server.post("/embed", {"inputs": text})
        assert server.metric("pass_tokens_total") < end, "one text waited for a list of 2,000"
        assert max(abs(a - b) for a, b in zip(one[2][0], embed(PLSH, model, [text])[0])) < 1e-5
    many.join()
    assert done[0][0] == 200 and len(done[0][2]) == 2000


def encoder(folder: Path) -> None:
    model = write_model(folder / "bert", "bert")
    with Server(PLSH, model) as server:
        embeddings(server, model)
        facts(server)
        faults(server)
        connections(server)
        long_and_short(server, model)
        many_and_one(server, model)
    classifier = write_model(folder / "classifier", "classifier")
    with Server(PLSH, classifier) as server:
        want = json.loads(run(PLSH, "classify", "--model", str(classifier), "--probabilities", "--json", text="hello\n"))["rows"][0]
        got = server.post("/predict", {"inputs": "hello"})[2]
        assert got[0]["label"] == want["label"] and [g["score"] for g in got] == sorted((g["score"] for g in got), reverse=True)
        assert all(abs(g["score"] - want["scores"][g["label"]]) < 1e-6 for g in got)
        assert server.post("/predict", {"inputs": ["hello"]})[2] == server.post("/", {"inputs": "hello"})[2] == got
        check_fault(server.post("/predict", {"inputs": ["a", "b", "c"]}), 422, "pair", False)
        raw = server.post("/predict", {"inputs": [["hello"], ["b"]], "raw_scores": True})[2]
        assert len(raw) == 2 and abs(sum(g["score"] for g in raw[0]) - 1) > 1e-3
    reranker = write_model(folder / "reranker", "reranker")
    with Server(PLSH, reranker) as server:
        texts = ["they sleep", "b", "a longer text of several words"]
        want = json.loads(run(PLSH, "rerank", "--model", str(reranker), "--query", "who", "--json", text="\n".join(texts) + "\n"))["rows"]
        got = server.post("/rerank", {"query": "who", "texts": texts, "raw_scores": True, "return_text": True})[2]
        assert [g["index"] for g in got] == [w["index"] for w in want]
        assert [g["index"] for g in server.post("/", {"query": "who", "texts": texts})[2]] == [w["index"] for w in want]
        pair = server.post("/predict", {"inputs": ["who", texts[0]], "raw_scores": True})[2]  # one pair, as TEI has it
        assert abs(pair[0]["score"] - next(g["score"] for g in got if g["index"] == 0)) < 1e-6
        assert server.post("/predict", {"inputs": [["who", texts[0]]], "raw_scores": True})[2] == [pair]
        assert all(abs(g["score"] - w["score"]) < 1e-6 and g["text"] == w["text"] for g, w in zip(got, want))


def generate(model: Path, prompt: str, tokens: int, *options: str) -> dict:
    return json.loads(run(PLSH, "generate", "--model", str(model), "--prompt", prompt, "--tokens", str(tokens), "--json", *options))


def completions(server: Server, model: Path) -> None:
    prompt = "Once upon a time"
    want = generate(model, prompt, 24, "--logprobs", "3")
    status, _, got = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 24, "temperature": 0, "logprobs": 3})
    choice = got["choices"][0]
    assert status == 200 and choice["text"] == want["text"] and choice["finish_reason"] == "length"
    assert got["usage"] == {"prompt_tokens": len(prompt), "completion_tokens": 24, "total_tokens": len(prompt) + 24}
    for mine, theirs in zip(choice["logprobs"]["token_logprobs"], want["logprobs"]):
        assert abs(mine - theirs["logprob"]) < 1e-4
    drawn = {"prompt": prompt, "max_tokens": 24, "temperature": 0.9, "top_p": 0.95, "top_k": 40, "seed": 7}
    want = generate(model, prompt, 24, "--temperature", "0.9", "--top-p", "0.95", "--top-k", "40", "--seed", "7")
    text = server.post("/v1/completions", drawn)[2]["choices"][0]["text"]
    assert text == want["text"], (text, want["text"])
    assert "".join(e["choices"][0]["text"] for e in server.events("/v1/completions", drawn)) == text
    ids = list(prompt.encode())
    assert server.post("/v1/completions", {**drawn, "prompt": ids})[2]["choices"][0]["text"] == text
    stop = text[5:8]
    cut = server.post("/v1/completions", {**drawn, "stop": [stop]})[2]["choices"][0]
    assert cut["text"] == text[:text.index(stop)] and cut["finish_reason"] == "stop"
    several = server.post("/v1/completions", {**drawn, "prompt": [prompt, "b"], "n": 2})[2]["choices"]
    assert [c["index"] for c in several] == [0, 1, 2, 3] and several[0]["text"] == text
    events = server.events("/v1/completions", {**drawn, "stream_options": {"include_usage": True}})
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 24


def chats(server: Server) -> None:
    body = {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    status, _, got = server.post("/v1/chat/completions", body)
    assert status == 200, got
    choice = got["choices"][0]
    assert choice["message"]["role"] == "assistant" and len(choice["logprobs"]["content"][0]["top_logprobs"]) == 2
    events = server.events("/v1/chat/completions", body)
    assert events[0]["choices"][0]["delta"]["role"] == "assistant" and events[-1]["choices"][0]["finish_reason"] == "length"
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == choice["message"]["content"]
    check_fault(server.post("/v1/chat/completions", {"messages": []}), 422, "messages", True)
    check_fault(server.post("/v1/chat/completions", {"messages": [{"role": "x", "content": "a"}]}), 422, "role", True)
    check_fault(server.post("/v1/chat/completions", {**body, "tools": [{}]}), 422, "tools", True)


def tgi_events(server: Server, path: str, body: dict) -> list[dict]:
    """The events of a stream in TGI's form, which has no mark of its end."""
    status, headers, text = server.post(path, body)
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream") and text.endswith("}\n\n"), (status, text)
    return [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n")[:-1]]


def tgi(server: Server, model: Path) -> None:
    """Text generation in the form of text-generation-inference."""
    prompt = "Once upon a time"
    want = generate(model, prompt, 24, "--logprobs", "1")
    body = {"inputs": prompt, "parameters": {"max_new_tokens": 24, "details": True}}  # the likeliest tokens unless told otherwise
    status, _, got = server.post("/generate", body)
    details = got["details"]
    assert status == 200 and got["generated_text"] == want["text"] and [t["id"] for t in details["tokens"]] == want["ids"], got
    assert details["finish_reason"] == "length" and details["generated_tokens"] == 24 and details["input_length"] == len(prompt)
    assert all(abs(t["logprob"] - w["logprob"]) < 1e-4 for t, w in zip(details["tokens"], want["logprobs"]))
    plain = {"inputs": prompt, "parameters": {"max_new_tokens": 24, "do_sample": False, "top_n_tokens": None}}
    assert server.post("/generate", plain)[2] == {"generated_text": want["text"]}
    assert server.post("/", plain)[2] == [{"generated_text": want["text"]}]
    assert server.post("/", {**plain, "parameters": {"max_new_tokens": 24, "return_full_text": True}})[2][0]["generated_text"] == prompt + want["text"]
    for path, stream in (("/generate_stream", False), ("/generate", True), ("/", True)):
        events = tgi_events(server, path, {**body, "stream": stream})
        assert [e["index"] for e in events] == list(range(1, 25)) and [e["token"]["id"] for e in events] == want["ids"]
        assert "".join(e["token"]["text"] for e in events) == events[-1]["generated_text"] == want["text"]
        assert all(e["generated_text"] is None and e["details"] is None for e in events[:-1])
        assert events[-1]["details"] == {"finish_reason": "length", "generated_tokens": 24, "input_length": len(prompt), "seed": None}
    drawn = {"temperature": 0.9, "top_p": 0.95, "top_k": 40, "seed": 7}
    text = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 24, **drawn})[2]["choices"][0]["text"]
    got = server.post("/generate", {"inputs": prompt, "parameters": {"max_new_tokens": 24, "do_sample": True, "details": True, **drawn}})[2]
    assert got["generated_text"] == text and got["details"]["seed"] == 7
    assert server.post("/generate", {"inputs": prompt, "parameters": {"max_new_tokens": 24, **drawn}})[2]["generated_text"] == text
    free = [server.post("/generate", {"inputs": prompt, "parameters": {"do_sample": True}})[2]["generated_text"] for _ in range(2)]
    assert free[0] != free[1], "do_sample did not draw"
    stop = text[5:8]
    got = server.post("/generate", {"inputs": prompt, "parameters": {"max_new_tokens": 24, "stop": [stop], "details": True, **drawn}})[2]
    assert got["generated_text"] == text[:text.index(stop)] and got["details"]["finish_reason"] == "stop_sequence"
    for wrong, word in (({"inputs": [prompt]}, "inputs"), ({}, "inputs"), ({"inputs": prompt, "parameters": []}, "parameters"),
                        ({"inputs": prompt, "parameters": {"max_new_tokens": -1}}, "max_new_tokens"),
                        ({"inputs": prompt, "parameters": {"truncate": 5}}, "truncate"),
                        ({"inputs": prompt, "parameters": {"best_of": 2}}, "best_of"),
                        ({"inputs": prompt, "stream": 1}, "stream")):
        answer = server.post("/generate", wrong)
        check_fault(answer, 422, word, False)
        assert answer[2]["error_type"] == "validation"
    check_fault(server.request("PUT", "/", {}), 405, "GET, HEAD, POST", False)
    assert server.request("PUT", "/", {})[1]["Allow"] == "GET, HEAD, POST"


def tgi_end(folder: Path, ids: list[int]) -> None:
    """A model whose end token is one of a text: it is a token of the answer, and not of its text."""
    at = max(i for i, token in enumerate(ids) if token not in ids[:i])
    assert at > 0
    model = write_model(folder / "ends", "llama")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "eos_token_id": ids[at]}))
    with Server(PLSH, model) as server:
        body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 24, "details": True}}
        got = server.post("/generate", body)[2]
        assert [t["id"] for t in got["details"]["tokens"]] == ids[:at + 1] and got["details"]["generated_tokens"] == at + 1, got
        assert got["details"]["finish_reason"] == "eos_token"
        events = tgi_events(server, "/generate_stream", body)
        assert [e["token"]["id"] for e in events] == ids[:at + 1] and events[-1]["details"]["finish_reason"] == "eos_token"
        assert "".join(e["token"]["text"] for e in events) == events[-1]["generated_text"] == got["generated_text"]


def shared_beginnings(server: Server) -> None:
    """A prompt that begins like an earlier one computes only the rest, with the same result."""
    beginning = "A long beginning that several prompts have in common. " * 8
    body = {"max_tokens": 8, "temperature": 0}
    first = [server.post("/v1/completions", {**body, "prompt": beginning + end})[2]["choices"][0]["text"] for end in "xyz"]
    shared = server.metric("shared_tokens_total")
    assert shared >= 2 * len(beginning), shared
    with Server(PLSH, Path(server.command[3])) as fresh:
        assert fresh.post("/v1/completions", {**body, "prompt": beginning + "z"})[2]["choices"][0]["text"] == first[2]


def clients_that_leave(server: Server) -> None:
    before = server.metric("clients_left_total")
    body = json.dumps({"prompt": "a", "max_tokens": 2000, "temperature": 0.5, "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    for stream in (True, False):
        with server.socket() as line:
            line.sendall(head + body if stream else (head + body).replace(b'"stream": true', b'"stream": null'))
            if stream:
                assert b"data:" in line.recv(65536) + line.recv(65536)
    while server.metric("clients_left_total") < before + 2:
        pass
    assert server.metric("queue_requests") == 0 and server.metric("queue_tokens") == 0


def late_reader(server: Server) -> None:
    """A client that reads its stream once all of it was made."""
    body = {"prompt": "a", "max_tokens": 2000, "temperature": 0.8, "seed": 5}
    want = server.post("/v1/completions", body)[2]["choices"][0]["text"]
    data = json.dumps({**body, "stream": True}).encode()
    before = server.metric("request_seconds_count")
    with server.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        while server.metric("request_seconds_count") == before:
            pass
        answer = http.client.HTTPResponse(line)
        answer.begin()
        got = events(answer.read().decode())
    assert len(got) > 1000 and "".join(e["choices"][0]["text"] for e in got) == want


def generator(folder: Path) -> None:
    model = write_model(folder / "llama", "llama")
    with Server(PLSH, model) as server:
        completions(server, model)
        chats(server)
        tgi(server, model)
        shared_beginnings(server)
        clients_that_leave(server)
        late_reader(server)
        longer = server.post("/v1/completions", {"prompt": "a", "max_tokens": 99999})
        check_fault(longer, 413, "max_tokens", True)
        assert longer[2]["error"]["code"] == "context_length_exceeded"
        check_fault(server.post("/v1/completions", {"prompt": "a", "stream_options": 3}), 422, "stream_options", True)
        assert server.post("/v1/completions", {"prompt": []})[2]["error"]["param"] == "prompt"
        check_fault(server.post("/v1/completions", {"prompt": "a", "temperature": -1}), 422, "temperature", True)
        check_fault(server.post("/v1/completions", {"prompt": "a", "echo": True}), 422, "echo", True)
        check_fault(server.post("/embed", {"inputs": "a"}), 422, "no encoder", False)
    tgi_end(folder, generate(model, "Once upon a time", 24)["ids"])


def keys(folder: Path, model: Path) -> None:
    with Server(PLSH, model, env={"PLSH_API_KEY": "secret"}) as server:
        body = {"inputs": "a"}
        assert server.get("/health")[0] == 200
        for header in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "Bearer secrets"}, {"Authorization": "secret"}, {"Authorization": "Bearer "}):
            check_fault(server.post("/embed", body, headers=header), 401, "key", False)
        check_fault(server.get("/metrics"), 401, "key", False)
        assert server.post("/embed", body, headers={"Authorization": "Bearer secret"})[0] == 200
        assert server.post("/embed", body, headers={"Authorization": "bearer secret"})[0] == 200
        assert server.post("/v1/embeddings", body)[2]["error"]["code"] == "invalid_api_key"


def bounds(folder: Path, model: Path) -> None:
    options = ["--max-body", "20000", "--max-tokens", "300", "--queue-tokens", "4000", "--queue-requests", "2", "--connections", "8",
               "--patience", "1"]
    with Server(PLSH, model, *options) as server:
        check_fault(server.post("/embed", {"inputs": "a" * 30000}), 413, "body", False)
        check_fault(server.post("/embed", {"inputs": "a" * 301}), 413, "301 tokens", False)
        assert server.post("/embed", {"inputs": "a" * 301, "truncate": True})[0] == 200
        check_fault(server.post("/embed", {"inputs": ["a" * 250] * 17}), 413, "fewer texts", False)
        chunked = server.connect()
        chunked.request("POST", "/embed", iter([b"x" * 10000] * 4), {"Content-Type": "application/json"}, encode_chunked=True)
        assert chunked.getresponse().status == 413
        chunked.close()
        with server.socket() as line:  # a body of 100 MB that is announced is not read
            line.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n")
            assert line.recv(100).startswith(b"HTTP/1.1 413")
        with server.socket() as line:
            line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100000)
            assert b" 431 " in line.recv(100)
        slow = [server.socket() for _ in range(8)]  # they fill the limit, and are ended
        slow[0].sendall(b"POST /embed HTTP/1.1\r\n")
        answer = server.get("/health")
        assert answer[0] == 503 and int(answer[1]["Retry-After"]) > 0, answer
        for line in slow:
            assert line.recv(1) == b"", "a client that sends nothing is not waited for"
            line.close()
        while server.get("/health")[0] != 200:  # until the server has noticed that they are gone
            pass


def crowds(folder: Path) -> None:
    """More than two requests at a time: 429, and those that were admitted are answered."""
    model = write_model(folder / "crowd", "llama")
    with Server(PLSH, model, "--queue-requests", "2", "--parallel", "1") as server:
        body = {"prompt": "a", "max_tokens": 400, "temperature": 0.8, "seed": 3}
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(server.post("/v1/completions", body))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        busy = [a for a in answers if a[0] == 429]
        right = [a for a in answers if a[0] == 200]
        assert len(busy) + len(right) == 8 and len(right) >= 2 and busy, [a[0] for a in answers]
        assert all(int(a[1]["Retry-After"]) >= 1 and a[2]["error"]["code"] == "rate_limit_exceeded" for a in busy)
        assert len({a[2]["choices"][0]["text"] for a in right}) == 1


def drains(folder: Path) -> None:
    """SIGTERM while requests and streams are under way: each is answered, new ones are not taken."""
    model = write_model(folder / "drain", "llama")
    with Server(PLSH, model, "--drain", "500") as server:
        body = {"prompt": "a", "max_tokens": 600, "temperature": 0.8, "seed": 3}
        answers, streams = [], []
        threads = [threading.Thread(target=lambda: answers.append(server.post("/v1/completions", body))) for _ in range(4)]
        threads += [threading.Thread(target=lambda: streams.append(server.events("/v1/completions", body))) for _ in range(2)]
        for thread in threads:
            thread.start()
        while server.metric("queue_requests") < 6:
            pass
        kept = server.connect()
        assert server.get("/health", connection=kept)[0] == 200
        server.process.send_signal(signal.SIGTERM)
        while server.get("/health", connection=kept)[0] == 200:
            pass
        check_fault(server.post("/v1/completions", body, connection=kept), 503, "shutting down", True)
        for thread in threads:
            thread.join()
        assert [a[0] for a in answers] == [200] * 4, [a[0] for a in answers]
        assert all(a[2]["usage"]["completion_tokens"] == 600 for a in answers)
        text = answers[0][2]["choices"][0]["text"]
        assert ["".join(e["choices"][0]["text"] for e in stream) for stream in streams] == [text] * 2
        kept.close()


def drains_encoder(model: Path) -> None:
    """The same for a long list of texts."""
    with Server(PLSH, model, "--drain", "500") as server:
        answers = []
        many = threading.Thread(target=lambda: answers.append(server.post("/embed", {"inputs": ["some words " * 20] * 2000})))
        many.start()
        while server.metric("queue_tokens") < 100000:
            pass
        server.process.send_signal(signal.SIGTERM)
        many.join()
        assert answers[0][0] == 200 and len(answers[0][2]) == 2000


def ends_at_once(folder: Path) -> None:
    """A second signal does not wait for the requests, whatever their clients do; the exit code stays 0."""
    model = write_model(folder / "end", "llama")
    with Server(PLSH, model) as server:
        body = json.dumps({"prompt": "a", "max_tokens": 2000, "stream": True}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        lines = [server.socket() for _ in range(16)]
        for i, line in enumerate(lines):
            line.sendall(head + body[:len(body) - i % 2])  # every other body lacks its end
        while server.metric("queue_requests") < 8:
            pass
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGINT)
        server.process.wait(timeout=300)
        for line in lines:
            line.close()


def short_of_memory(folder: Path) -> None:
    """With any limit of address space a server refuses to start, or answers: no client waits for ever."""
    model = write_model(folder / "short", "llama")
    ends = []
    for kibibytes in range(10000, 60000, 500):
        def limit(size: int = kibibytes << 10) -> None:
            resource.setrlimit(resource.RLIMIT_STACK, (1 << 18, 1 << 18))  # of threads, which would need more than the model
            resource.setrlimit(resource.RLIMIT_AS, (size, size))

        with subprocess.Popen([PLSH, "serve", "--model", str(model), "--port", "0", "--memory", "4", "--threads", "1"], text=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=limit) as process:
            port = None
            for said in process.stderr:
                assert said.strip() != "plsh serve:", "a message needs memory"
                if said.startswith("listening on "):
                    port = int(said.rsplit(":", 1)[1])
                    break
            if port is None:
                ends.append(process.wait())
                continue
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
            try:
                line.request("POST", "/v1/completions", '{"prompt": "a", "max_tokens": 2}', {"Content-Type": "application/json"})
                ends.append(line.getresponse().status)
            except ConnectionError:
                pass  # there is no memory for a connection
            finally:
                process.kill()
    assert 0 not in ends and set(ends) - {200, 500, 503}, ends


def limits(folder: Path) -> None:
    model = write_model(folder / "bert", "bert")
    keys(folder, model)
    bounds(folder, model)
    crowds(folder)
    drains(folder)
    drains_encoder(model)
    ends_at_once(folder)
    short_of_memory(folder)


if __name__ == "__main__":
    PARTS = {"encoder": encoder, "generator": generator, "limits": limits}
    with tempfile.TemporaryDirectory() as scratch:
        for name in sys.argv[2:] or PARTS:
            PARTS[name](Path(scratch))
            print(f"{name}: passed")
