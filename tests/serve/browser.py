#!/usr/bin/env python3
"""The page of plsh serve in a real browser, used by keyboard: a search, a stream, a stop; nothing is loaded from elsewhere and nothing
is said in the console; it fits a phone. Exit 77 (skipped) without a browser.
usage: browser.py PLSH"""
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "web"))
import chromium  # noqa: E402
from client import Server, write_model  # noqa: E402

PLSH = sys.argv[1]


def wait(page, condition: str) -> None:
    end = time.monotonic() + 120
    while not page.run(condition):
        assert time.monotonic() < end, f"{condition}: {page.run('document.body.innerText')}"
        time.sleep(0.02)


def visit(page, server: Server) -> None:
    page.said.clear()
    page.call("Page.navigate", url=f"http://{server.host}:{server.port}/")
    wait(page, "document.readyState === 'complete' && typeof kind !== 'undefined' && kind !== null")


def fill(page, name: str, text: str) -> None:
    page.run(f"document.getElementById('{name}').focus()")
    page.run(f"document.getElementById('{name}').select()")
    page.call("Input.insertText", text=text)


def shown(page, name: str) -> bool:
    return page.run(f"document.getElementById('{name}').getClientRects().length > 0")


def press(page, key: str, control: bool = False) -> None:
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=2 if control else 0)


def finished(page) -> None:
    wait(page, "!document.getElementById('go').disabled && document.getElementById('speed').textContent !== ''")


def check_quiet(page, server: Server) -> None:
    own = f"request: http://{server.host}:{server.port}/"
    said = [line for line in page.said if not line.startswith(own)]
    assert not said, said
    assert page.run("[...document.querySelectorAll('input, textarea')].every(e => e.labels.length === 1)")
    for dark in (False, True):
        page.screen(360, 800, dark=dark, phone=True)
        assert page.run("document.documentElement.scrollWidth") <= 360


def main() -> int:
    browser = chromium.find()
    if browser is None:
        print("skipped: no chromium here (scripts/dependencies.sh names the package)")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bert, llama = (write_model(folder / kind, kind) for kind in ("bert", "llama"))
        page = chromium.Page(browser, folder / "profile")
        with Server(PLSH, bert) as server:
            visit(page, server)
            assert shown(page, "query") and not shown(page, "tokens") and not shown(page, "chat")
            fill(page, "text", "a cat\nsomething else\nthe dog sleeps")
            fill(page, "query", "the dog sleeps")
            press(page, "Enter", control=True)
            finished(page)
            items = page.run("[...document.querySelectorAll('#output li')].map(e => e.textContent)")
            assert len(items) == 3 and items[0].startswith("1.0000") and items[0].endswith("the dog sleeps"), items
            assert "memory" in page.run("document.getElementById('speed').textContent")
            check_quiet(page, server)
        with Server(PLSH, llama) as server:
            visit(page, server)
            assert shown(page, "tokens") and shown(page, "chat") and not shown(page, "query")
            fill(page, "text", "Once upon a time")
            fill(page, "temperature", "0")
            fill(page, "tokens", "24")
            press(page, "Enter", control=True)
            finished(page)
            want = server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0})[2]["choices"][0]["text"]
            got = page.run("document.getElementById('output').textContent")
            assert got == want, (got, want)
            said = page.run("document.getElementById('speed').textContent")
            assert said.startswith("24 tokens, ") and "tokens per second" in said, said
            check_quiet(page, server)
            fill(page, "tokens", "2000")
            press(page, "Enter", control=True)
            wait(page, "document.getElementById('output').textContent.length > 0")
            press(page, "Escape")
            wait(page, "document.getElementById('speed').textContent === 'stopped'")
            while server.metric("queue_requests") > 0:
                time.sleep(0.02)
        page.close()
    print("browser: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
