#!/usr/bin/env python3
"""Makes the page: module, scripts and styles in one HTML file that loads nothing.

usage: pack.py MODULE.wasm PAGE.html [--model]     --model: the module has language models"""
import base64
import gzip
import re
import sys
from pathlib import Path

here = Path(__file__).resolve().parent


def read(name: str) -> str:
    return (here / name).read_text(encoding="utf-8")


def report_style() -> str:
    """The style of plsh report: the string literal of cli/report/page.c."""
    literal = re.search(r"style\[\] =\s*(.*?);\n\n", read("../cli/report/page.c"), re.S)[1]
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literal)).replace("\\n", "\n")


def main() -> None:
    module, page = Path(sys.argv[1]), Path(sys.argv[2])
    has_model = "--model" in sys.argv
    parts = {
        "style": report_style() + read("page.css"),
        "worker": read("wasi.js") + read("library.js"),
        "page": read("page.js") + (read("model.js") if has_model else ""),
        "module": base64.b64encode(gzip.compress(module.read_bytes(), 9, mtime=0)).decode(),
        "model": read("model.html") if has_model else "",
        "model-link": ' <a href="#model">A language model</a>' if has_model else "",
    }
    text = read("page.html")
    for name in ("style", "page", "worker"):
        if "</script" in parts[name] or "</style" in parts[name]:
            sys.exit(f"{name} would end its element")
    text = re.sub(r"\{\{([a-z-]+)\}\}", lambda found: parts[found[1]], text)
    page.write_text(text, encoding="utf-8")
    print(f"{page}: {len(text.encode()) / 1000:.0f} kB")


main()
