"""Functions that the measurements in Python share."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def memory(field: str) -> int:
    """A line of /proc/self/status or /proc/meminfo, in bytes: VmRSS, VmHWM, MemAvailable."""
    for file in ("/proc/self/status", "/proc/meminfo"):
        with open(file, encoding="ascii") as lines:
            for line in lines:
                if line.startswith(field + ":"):
                    return 1024 * int(line.split()[1])
    raise LookupError(field)


def begin_peak() -> int:
    """Resets the peak of this process's memory; returns what is in use now. Memory that was freed does not count."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return memory("VmRSS")


class Rows(dict[str, dict[str, Any]]):
    """Rows by their keys, lists written as JSON. A file keeps them: those in it are not measured again."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        super().__init__()
        self._path = pathlib.Path(path) if path else None
        if self._path and self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                key, row = json.loads(line)
                self[json.dumps(key)] = row

    def keep(self, key: Sequence[Any], row: dict[str, Any]) -> None:
        self[json.dumps(key)] = row
        if self._path:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(json.dumps([key, row]) + "\n")


def run_apart(program: str, *arguments: object, python: str = sys.executable) -> dict[str, Any]:
    """The row that a program of this folder prints as its last line, in a process of its own."""
    command = [python, program, *map(str, arguments)]
    run = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(command[1:])}: failed")
    row: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return row
