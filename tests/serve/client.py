"""What the tests of plsh serve share: a server of a tiny model, and requests to it. Python's own library only."""
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
          "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def write_model(folder: Path, kind: str) -> Path:
    """A tiny model with random weights; a causal one with a chat template."""
    subprocess.run([sys.executable, str(HERE.parent / "support" / "write_model.py"), str(folder), kind], check=True)
    if kind == "llama":
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    return folder


def events(text: str) -> list[dict]:
    """The events of a stream, which has to end as streams do."""
    parts = text.split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""], parts[-2:]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


class Server:
    """plsh serve on a free port, for the time of a `with`."""

    def __init__(self, plsh: str, model: Path, *options: str, env: dict | None = None):
        self.command = [plsh, "serve", "--model", str(model), "--port", "0", *options]
        self.env = {**os.environ, **(env or {})}
        self.lines: list[str] = []

    def __enter__(self) -> "Server":
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.env)
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.match(r"listening on http://([\d.]+):(\d+)$", line)
            if found:
                self.host, self.port = found[1], int(found[2])
                self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
                self.reader.start()
                return self
        raise AssertionError(f"{self.command} did not start: {self.lines}")

    def __exit__(self, kind, value, trace) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=300)
        self.reader.join()
        out = self.process.stdout.read()
        if kind is None:
            assert code == 0, f"exit code {code}: {''.join(self.lines)}"
            assert out == "", f"on stdout: {out}"

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=300)

    def socket(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=300)

    def request(self, method: str, path: str, body=None, headers: dict | None = None, connection=None):
        """(status, headers, answer): JSON where it is."""
        own = connection or self.connect()
        if not isinstance(body, (bytes, type(None))):
            body = json.dumps(body).encode()
        own.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        answer = own.getresponse()
        data = answer.read()
        if connection is None:
            own.close()
        kind = answer.getheader("Content-Type", "")
        return answer.status, answer.headers, json.loads(data) if kind.startswith("application/json") else data.decode()

    def post(self, path: str, body, **more):
        return self.request("POST", path, body, **more)

    def get(self, path: str, **more):
        return self.request("GET", path, None, **more)

    def events(self, path: str, body) -> list[dict]:
        """The events of a stream, which has to end as streams do."""
        status, headers, text = self.post(path, {**body, "stream": True})
        assert status == 200 and headers["Content-Type"].startswith("text/event-stream"), (status, text)
        return events(text)

    def metric(self, name: str) -> float:
        text = self.get("/metrics")[2]
        return sum(float(line.split()[-1]) for line in text.splitlines() if re.match(rf"plsh_{name}[ {{]", line))


def run(plsh: str, *command: str, text: str = "") -> str:
    return subprocess.run([plsh, *command, "--quiet"], input=text, text=True, capture_output=True, check=True).stdout


def embed(plsh: str, model: Path, lines: list[str]) -> list[list[float]]:
    """The rows of plsh embed."""
    out = run(plsh, "embed", "--model", str(model), text="".join(line + "\n" for line in lines))
    return [[as_float32(float(x)) for x in row.split("\t")] for row in out.splitlines()]


def as_float32(x: float) -> float:
    return struct.unpack("<f", struct.pack("<f", x))[0]


def rows32(rows: list[list[float]]) -> list[list[float]]:
    return [[as_float32(x) for x in row] for row in rows]
