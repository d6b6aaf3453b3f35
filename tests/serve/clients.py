#!/usr/bin/env python3
"""plsh serve and the clients that people have: the packages openai and huggingface_hub, and curl. Exit 77 (skipped) where none of
them is installed.
usage: clients.py PLSH"""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from client import Server, embed, rows32, run, write_model

PLSH = sys.argv[1]
LINES = ["hello world", "the quick brown fox"]
PROMPT = "Once upon a time"


def openai(encoder: Server, generator: Server, rows: list, text: str) -> None:
    import openai as package

    client = package.OpenAI(base_url=f"http://{encoder.host}:{encoder.port}/v1", api_key="none", max_retries=0)
    for form in ("float", "base64"):
        got = client.embeddings.create(model="any", input=LINES, encoding_format=form)
        assert form == "base64" or rows32([d.embedding for d in got.data]) == rows
    assert rows32([d.embedding for d in client.embeddings.create(model="any", input=LINES).data]) == rows
    try:
        client.embeddings.create(model="any", input=[])
        raise AssertionError("an empty list was taken")
    except package.UnprocessableEntityError as error:
        assert error.body["param"] == "input", error.body
    client = package.OpenAI(base_url=f"http://{generator.host}:{generator.port}/v1", api_key="none", max_retries=0)
    assert client.models.list().data[0].id == "llama"
    asked = {"model": "any", "prompt": PROMPT, "max_tokens": 16, "temperature": 0}
    assert client.completions.create(**asked).choices[0].text == text
    assert "".join(part.choices[0].text for part in client.completions.create(**asked, stream=True)) == text
    chat = {"model": "any", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0}
    whole = client.chat.completions.create(**chat, logprobs=True, top_logprobs=2).choices[0]
    parts = [part.choices[0].delta.content or "" for part in client.chat.completions.create(**chat, stream=True)]
    assert "".join(parts) == whole.message.content and len(whole.logprobs.content) == 8


def huggingface(encoder: Server, generator: Server, classifier: Path, text: str) -> None:
    from huggingface_hub import InferenceClient

    with Server(PLSH, classifier) as server:
        got = InferenceClient(model=f"http://{server.host}:{server.port}/predict").text_classification(LINES[0])
        want = server.post("/predict", {"inputs": LINES[0]})[2][0]  # of TEI's list the client takes the first
        assert (got.label, got.score) == (want["label"], want["score"]), (got, want)
    client = InferenceClient(model=f"http://{encoder.host}:{encoder.port}/embed")
    got = client.feature_extraction(LINES[0])
    assert rows32([list(map(float, got[0]))])[0] == embed(PLSH, Path(encoder.command[3]), LINES[:1])[0]
    client = InferenceClient(model=f"http://{generator.host}:{generator.port}")
    assert client.text_generation(PROMPT, max_new_tokens=16) == text
    assert "".join(client.text_generation(PROMPT, max_new_tokens=16, stream=True)) == text
    whole = client.text_generation(PROMPT, max_new_tokens=16, details=True)
    assert whole.generated_text == text and len(whole.details.tokens) == 16 and whole.details.finish_reason == "length"
    *_, last = client.text_generation(PROMPT, max_new_tokens=16, details=True, stream=True)
    assert last.generated_text == text and last.details.generated_tokens == 16
    client = InferenceClient(base_url=f"http://{generator.host}:{generator.port}/v1")
    chat = client.chat_completion([{"role": "user", "content": "hi"}], max_tokens=8, temperature=0.0, seed=1)
    assert chat.choices[0].message.role == "assistant"
    parts = client.chat_completion([{"role": "user", "content": "hi"}], max_tokens=8, temperature=0.0, seed=1, stream=True)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == chat.choices[0].message.content


def curl(encoder: Server, generator: Server, text: str) -> None:
    body = json.dumps({"prompt": PROMPT, "max_tokens": 16, "temperature": 0, "stream": True})
    out = subprocess.run(["curl", "-sN", "-H", "Content-Type: application/json", "-d", body, f"http://{generator.host}:{generator.port}/v1/completions"],
                         capture_output=True, text=True, check=True).stdout
    events = [json.loads(line.removeprefix("data: ")) for line in out.splitlines() if line.startswith("data: {")]
    assert "".join(e["choices"][0]["text"] for e in events) == text and "data: [DONE]" in out


def main() -> int:
    tried = []
    with tempfile.TemporaryDirectory() as scratch:
        bert, llama, classifier = (write_model(Path(scratch) / kind, kind) for kind in ("bert", "llama", "classifier"))
        rows = embed(PLSH, bert, LINES)
        text = json.loads(run(PLSH, "generate", "--model", str(llama), "--prompt", PROMPT, "--tokens", "16", "--json"))["text"]
        with Server(PLSH, bert) as encoder, Server(PLSH, llama) as generator:
            for name, call in (("openai", lambda: openai(encoder, generator, rows, text)),
                               ("huggingface_hub", lambda: huggingface(encoder, generator, classifier, text))):
                try:
                    version = __import__(name).__version__
                    if name == "huggingface_hub":
                        __import__("numpy")  # which its embeddings need
                except ImportError:
                    continue
                call()
                tried.append(f"{name} {version}")
            if shutil.which("curl"):
                curl(encoder, generator, text)
                tried.append("curl")
    print("clients:", ", ".join(tried) or "none is installed here")
    return 0 if tried else 77


if __name__ == "__main__":
    sys.exit(main())
