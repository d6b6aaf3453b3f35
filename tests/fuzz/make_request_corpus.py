"""Writes the seeds of fuzz_request: a byte for the route, then a body. Usage: make_request_corpus.py FOLDER"""
import json
import sys
from pathlib import Path

ROUTES = ["embeddings", "embed", "rerank", "predict", "tokenize", "completions", "chat"]
BODIES = [
    ("embeddings", {"input": "hello", "model": "m", "encoding_format": "base64", "dimensions": 8}),
    ("embeddings", {"input": [[1, 2, 3], [4]], "encoding_format": "float"}),
    ("embeddings", {"input": [1, 2, 3]}),
    ("embed", {"inputs": ["a", "b"], "normalize": False, "truncate": True}),
    ("rerank", {"query": "q", "texts": ["a", "b"], "raw_scores": True, "return_text": True}),
    ("predict", {"inputs": [["a"], ["b", "c"]], "raw_scores": False}),
    ("tokenize", {"inputs": "text", "add_special_tokens": False}),
    ("completions", {"prompt": ["a", "b"], "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 7, "n": 2,
                     "stop": ["\n", "end"], "logprobs": 3, "stream": True, "stream_options": {"include_usage": True}}),
    ("completions", {"prompt": [5, 6], "repetition_penalty": 1.1, "best_of": 1, "echo": False, "presence_penalty": 0}),
    ("chat", {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "t"}]}],
              "max_completion_tokens": 9, "logprobs": True, "top_logprobs": 2, "stop": "x", "response_format": {"type": "text"}}),
    ("chat", {"messages": [{"role": "user", "content": "\u0000\ud83d\ude00"}], "tools": []}),
]

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for number, (route, body) in enumerate(BODIES):
        (folder / f"{number:02d}-{route}").write_bytes(bytes([ROUTES.index(route)]) + json.dumps(body).encode())
    (folder / "deep").write_bytes(b"\0" + b"[" * 40 + b"]" * 40)
    (folder / "escape").write_bytes(b'\1{"inputs": "\\')
