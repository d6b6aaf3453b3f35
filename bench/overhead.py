#!/usr/bin/env python3
"""The time of a Python call beyond the C call that it makes, in microseconds.

    bench/overhead.py

Times plsh.attention and plsh.torch.attention on arrays so small that the library needs few
microseconds, in turns with the bare C call (plsh_plan_forward) on the same arrays. Then one query after
many keys: as arrays, where each call reads all keys for its bounds, and with a plsh.torch.Cache, which
keeps summaries of the keys.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

try:
    import plsh
    from plsh._library import ffi, lib
except ImportError:
    sys.exit("bench/overhead.py: skipped, the package is absent (pip install ./python)")


def bare(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Callable[[], object]:
    """The C call alone, everything it needs made beforehand."""
    done = plsh.attend(q, k, v, threads=1, return_lse=True)
    plan = done._call.plans[0].pointer
    lse, o = np.empty(q.shape[:2], np.float32), np.empty_like(q)
    pointers = [ffi.from_buffer(x) for x in (q, k, v)] + [ffi.from_buffer("float[]", x)
                                                         for x in (o, lse)]
    arrays = ffi.new("plsh_forward *", (*pointers, ffi.NULL))
    memory = np.empty(lib.plsh_plan_workspace(plan) + 64, np.uint8)
    address = memory.ctypes.data
    workspace = ffi.cast("void *", address + -address % 64)
    stats, error = ffi.new("plsh_stats *"), ffi.new("plsh_error *")
    keep = (done, memory, pointers)
    return lambda: keep and lib.plsh_plan_forward(plan, arrays, workspace, stats, error)


def few_queries(n: int = 16384, heads: int = 16) -> None:
    """One query after n keys, exact, standard slopes: milliseconds."""
    import torch

    import plsh.torch
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, n, 64) for _ in range(3))
    last = [x[:, :, -1:].contiguous() for x in (q, k, v)]
    cache = plsh.torch.Cache()
    cache.step(q, k, v)
    calls: dict[str, Callable[[], object]] = {
        "as arrays": lambda: plsh.torch.attention(last[0], k, v),
        "with a cache": lambda: plsh.torch.attention(*last, cache=cache),
    }
    print(f"\n{f'a query after {n} keys, {heads} heads':40}{'ms':>8}")
    for name, call in calls.items():
        times = []
        for _ in range(41):
            start = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - start))
        print(f"{name:40}{statistics.median(times[1:]):8.2f}")


def main() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((8, 16, 64), dtype=np.float32) for _ in range(3))
    calls: dict[str, Callable[[], object]] = {
        "C alone": bare(q, k, v),
        "plsh.attention": lambda: plsh.attention(q, k, v, threads=1, return_lse=True),
    }
    try:
        import torch

        import plsh.torch
        torch.set_num_threads(1)
        x, y, z = (torch.from_numpy(a)[None] for a in (q, k, v))
        learn = x.clone().requires_grad_()
        calls["plsh.torch.attention"] = lambda: plsh.torch.attention(x, y, z)
        slopes = torch.linspace(0.1, 0.8, 8, requires_grad=True)
        calls["  with autograd"] = lambda: plsh.torch.attention(learn, y, z)
        calls["  learning slopes too"] = lambda: plsh.torch.attention(learn, y, z, slopes=slopes)
    except ImportError:
        print("torch is absent: NumPy alone")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(150):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(20):
                call()
            times[name].append((time.perf_counter() - start) / 20 * 1e6)
    base = statistics.median(times["C alone"])
    print(f"{'call':24}{'us':>8}{'beyond C':>10}")
    for name, found in times.items():
        middle = statistics.median(found)
        print(f"{name:24}{middle:8.1f}{middle - base:10.1f}")
    if "plsh.torch.attention" in calls:
        few_queries()


if __name__ == "__main__":
    main()
