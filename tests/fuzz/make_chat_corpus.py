#!/usr/bin/env python3
"""Writes the seed corpus of fuzz_chat: the templates of tests/model/chat_cases.json, each once, with the messages of
its longest case. Usage: tests/fuzz/make_chat_corpus.py"""
import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROLES = ["system", "user", "assistant", "tool"]
longest: dict = {}
for case in json.loads((HERE.parent / "model" / "chat_cases.json").read_text()):
    if len(case["messages"]) >= len(longest.get(case["template"], {"messages": []})["messages"]):
        longest[case["template"]] = case
folder = HERE / "corpus" / "chat"
folder.mkdir(parents=True, exist_ok=True)
counts: dict = {}
for template, case in longest.items():
    number = counts[case["form"]] = counts.get(case["form"], 0) + 1
    messages = b"\0".join(bytes([ROLES.index(m["role"])]) + m["content"].encode() for m in case["messages"])
    name = case["form"].lower().replace(" ", "")
    (folder / f"{name}-{number}").write_bytes(template.encode() + b"\0" + messages)
