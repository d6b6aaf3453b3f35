"""What the measurements in Python share: memory of processes."""

from __future__ import annotations

import ctypes
import gc
import pathlib


def memory(field: str) -> int:
    """A line of /proc/self/status or /proc/meminfo, in bytes: VmRSS, VmHWM, MemAvailable."""
    for file in ("/proc/self/status", "/proc/meminfo"):
        with open(file, encoding="ascii") as lines:
            for line in lines:
                if line.startswith(field + ":"):
                    return 1024 * int(line.split()[1])
    raise LookupError(field)


def begin_peak() -> int:
    """Resets the peak of this process's memory; returns what is in use now. Memory that is free
    does not count."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return memory("VmRSS")
