"""Chromium without a window, driven over its debugging pipe. The standard library is enough."""
import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path


def find():
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """One page. Everything it says in its console, and what goes wrong in it, is in `said`."""

    def __init__(self, browser: str, profile: Path):
        commands, self.to = os.pipe()
        self.answers, answers = os.pipe()

        def connect():  # the browser reads from 3 and writes to 4
            high = [os.dup2(fd, 200 + i) for i, fd in enumerate((commands, answers))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={profile}", "--disable-extensions", "--no-first-run", "about:blank"],
            preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.count, self.rest, self.said, self.session = 0, b"", [], None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def receive(self, deadline):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], max(0, deadline - time.monotonic()))
            more = os.read(self.answers, 1 << 16) if ready else b""
            if not more:
                raise TimeoutError("the browser does not answer")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, timeout=120, **parameters):
        self.count += 1
        command = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        data = json.dumps(command).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        deadline = time.monotonic() + timeout
        while True:
            message = self.receive(deadline)
            if message.get("id") == self.count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.hear(message)

    def hear(self, message):
        event, about = message.get("method"), message.get("params", {})
        if event == "Runtime.consoleAPICalled":
            self.said.append("console: " + " ".join(str(a.get("value", a.get("description"))) for a in about["args"]))
        elif event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.said.append("exception: " + details.get("exception", {}).get("description", details["text"]))
        elif event == "Log.entryAdded":
            self.said.append("log: " + about["entry"]["text"])
        elif event == "Network.requestWillBeSent" and not about["request"]["url"].startswith(("file:", "blob:", "data:")):
            self.said.append("request: " + about["request"]["url"][:100])

    def run(self, script, timeout=120):
        """The value of an expression, or of the promise it gives."""
        answer = self.call("Runtime.evaluate", timeout=timeout, expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", script))
        return answer["result"].get("value")

    def screen(self, width, height, dark=False, scale=1, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, path: Path):
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self.run("document.readyState") != "complete" or self.run("location.protocol") != "file:":
            time.sleep(0.02)

    def picture(self, to: Path, clip=None):
        options = {"clip": {**clip, "scale": 1}} if clip else {}
        to.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **options)["data"]))

    def close(self):
        self.session = None
        try:
            self.call("Browser.close", timeout=10)
            self.process.wait(10)
        except (TimeoutError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.answers)
