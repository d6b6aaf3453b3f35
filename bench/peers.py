#!/usr/bin/env python3
"""plsh beside PyTorch's own attention: SDPA and FlexAttention, in one run, one table.

    bench/peers.py                          everything; takes some minutes
    bench/peers.py --tables forward         dense causal ALiBi at n = 4096
    bench/peers.py --tables long            near-linear methods at n = 16384
    bench/peers.py --tables training        forward and backward at n = 1k, 4k, 16k
    bench/peers.py --tables short           short sequences, and one query behind few keys

Needs torch and the plsh package (pip install ./python); without them it stops with a message.
Random normal q, k, v; 8 heads, sigma 2..256, float32, causal. FlexAttention is compiled before
anything is measured. A first call of each contender warms up, and its peak memory is printed (in training
with the masks, which it makes). Then the contenders of a group take turns; the median of their times and
the ratio of plsh to each of them are printed. A call that takes many seconds is made once only. In the
short table a time is the mean of calls that take 20 ms together, after a pause: threads of two libraries
that wait for work take time from each other.

Denormal numbers are flushed to zero for all contenders: otherwise SDPA's backward pass takes nearly three
times as long with an ALiBi mask, whose distant weights are denormal.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

from measure import begin_peak, memory

# Its cache does not distinguish kernels by the instruction set in ATEN_CPU_CAPABILITY.
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
try:
    import torch
    from torch.nn.attention.flex_attention import BlockMask, flex_attention
    from torch.nn.functional import scaled_dot_product_attention as sdpa
except ImportError:
    sys.exit("bench/peers.py: skipped, torch is absent (pip install torch==2.13.0)")
try:
    import plsh.torch
except ImportError:
    sys.exit("bench/peers.py: skipped, the package is absent (pip install ./python)")

HEADS = 8
SIGMA = tuple(2.0 ** (h + 1) for h in range(HEADS))
BLOCK = 128  # FlexAttention's


@dataclass
class Row:
    """One line of the table."""

    table: str
    n: int
    dim: int
    threads: int
    contender: str
    seconds: float | None  # None: it cannot, for `why`
    spread: float  # (largest - smallest) / median
    memory: int  # bytes, the rise of the process's peak in the first call
    plsh_over_it: float | None
    why: str = ""
    batch: int = 1
    queries: int = 0  # batch, queries and passes: in the short table only
    passes: str = ""


Tensors = tuple[torch.Tensor, ...]


class Contender(NamedTuple):
    """One implementation that is timed."""

    name: str
    run: Callable[[], Tensors]
    same: bool = True  # its result has to equal that of the others


Group = tuple[int, list[Contender], str]  # n, contenders, and which of them is ours


@dataclass
class Measured:
    """The measurements of one contender."""

    times: list[float]
    memory: int = 0
    why: str = ""


def first_call(contender: Contender, patience: float) -> tuple[Measured, Tensors]:
    """Warms up and measures memory; its time counts where it took longer than `patience`."""
    before = begin_peak()
    start = time.perf_counter()
    try:
        results = contender.run()
    except (NotImplementedError, MemoryError) as problem:
        return Measured([], 0, str(problem).split(". ")[0]), ()
    seconds = time.perf_counter() - start
    print(f"    {contender.name}: first call {seconds:.1f} s", file=sys.stderr)
    return Measured([seconds] if seconds > patience else [], memory("VmHWM") - before), results


def check(name: str, found: Tensors, wanted: Tensors, limit: float = 1e-4) -> None:
    """Contenders that compute the same thing must agree, or their times mean nothing."""
    for x, y in zip(found, wanted):
        error = float((x - y).abs().max() / y.abs().max())
        if not error < limit:
            sys.exit(f"bench/peers.py: {name} differs by {error:.2e}, allowed {limit:.0e}")


def measure(contenders: list[Contender], reps: int, patience: float) -> dict[str, Measured]:
    """Times of each, taking turns, after the first call."""
    found: dict[str, Measured] = {}
    wanted: Tensors = ()
    for x in contenders:
        found[x.name], results = first_call(x, patience)
        if x.same and results:
            wanted = wanted or results
            check(x.name, results, wanted)
    again = [x for x in contenders if not found[x.name].times and not found[x.name].why]
    for _ in range(reps):
        for x in again:
            start = time.perf_counter()
            x.run()
            found[x.name].times.append(time.perf_counter() - start)
    return found


def inputs(n: int, dim: int, grad: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(1, HEADS, n, dim, generator=generator).requires_grad_(grad)
            for _ in range(3)]


def block_mask(n: int, window: torch.Tensor | None) -> BlockMask:
    """FlexAttention's mask of causal pairs nearer than the head's window, block by block.

    The same mask as create_block_mask finds by evaluating all n^2 pairs: a block of queries sees
    the key blocks from (its first query - window) to its own; those in between are full.
    """
    count = n // BLOCK
    reach = torch.full((HEADS,), n) if window is None else window.ceil().long()
    first = torch.arange(count) * BLOCK
    part = torch.zeros(1, HEADS, count, count, dtype=torch.bool)
    full = torch.zeros_like(part)
    for h in range(HEADS):
        low, w = first[:, None], int(reach[h])  # a query block, and the window of the head
        key = first[None, :]
        some = (key <= low) & (low - (key + BLOCK - 1) < w)
        every = (key < low) & (low + BLOCK - 1 - key < w)
        full[0, h], part[0, h] = every, some & ~every

    def listed(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        number = blocks.sum(-1).to(torch.int32)
        order = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True).to(torch.int32)
        return number, order

    def visible(b: object, h: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return (i >= j) & (i - j < reach[h])

    return BlockMask.from_kv_blocks(*listed(part), *listed(full), BLOCK_SIZE=BLOCK,
                                    mask_mod=visible, seq_lengths=(n, n))


_slopes = 1.0 / torch.tensor(SIGMA)


def _alibi(score: torch.Tensor, b: object, h: torch.Tensor, i: torch.Tensor,
           j: torch.Tensor) -> torch.Tensor:
    return score - (i - j) * _slopes[h]


_flex = torch.compile(flex_attention, dynamic=False)


def flex(x: Sequence[torch.Tensor], mask: BlockMask) -> torch.Tensor:
    out: torch.Tensor = _flex(*x, score_mod=_alibi, block_mask=mask)
    return out


def alibi_mask(n: int, sigma: float, out: torch.Tensor | None = None) -> torch.Tensor:
    """The n x n causal ALiBi bias of one head."""
    i = torch.arange(n, dtype=torch.float32)
    bias = torch.sub(i[None], i[:, None], out=out).div_(sigma)
    return bias.masked_fill_(i[None] > i[:, None], float("-inf"))


def ours(x: Sequence[torch.Tensor], method: str) -> torch.Tensor:
    return plsh.torch.attention(*x, sigma=SIGMA, method=method)


def forward_table(dim: int) -> Group:
    n = 4096
    x = inputs(n, dim, False)
    mask = torch.stack([alibi_mask(n, s) for s in SIGMA])[None]
    blocks = block_mask(n, None)
    flex(x, blocks)
    return n, [
        Contender("plsh dense", lambda: (ours(x, "dense"),)),
        Contender("plsh exact", lambda: (ours(x, "exact"),)),
        Contender("flex, ALiBi", lambda: (flex(x, blocks),)),
        Contender("sdpa, ALiBi mask", lambda: (sdpa(*x, attn_mask=mask),)),
        Contender("sdpa, no bias", lambda: (sdpa(*x, is_causal=True),), same=False),
    ], "plsh dense"


def long_table(sampled: bool) -> Group:
    n = 16384
    x = inputs(n, 64, False)
    name, method, window = ("plsh s=20", "plsh", 3.6) if sampled else ("plsh exact", "exact", 27)
    blocks = block_mask(n, window * torch.tensor(SIGMA))
    flex(x, blocks)
    return n, [
        Contender(name, lambda: (ours(x, method),), same=not sampled),
        Contender(f"flex, window {window} sigma", lambda: (flex(x, blocks),), same=not sampled),
    ], name


def training_table(n: int) -> Group:
    x = inputs(n, 64, True)
    d_o = torch.randn(1, HEADS, n, 64, generator=torch.Generator().manual_seed(2))
    masks: dict[str, torch.Tensor] = {}

    def gradients() -> Tensors:
        return tuple(a.grad for a in x if a.grad is not None)

    def both(name: str, forward: Callable[[], torch.Tensor], same: bool = True) -> Contender:
        def run() -> Tensors:
            x[0].grad = x[1].grad = x[2].grad = None
            forward().backward(d_o)
            return gradients()
        return Contender(name, run, same)

    def masked() -> torch.Tensor:
        size = 4 * HEADS * n * n
        if "all" not in masks:
            if 1.2 * size > memory("MemAvailable"):
                raise MemoryError(f"does not fit: its mask alone takes {size / 1e6:.0f} MB")
            masks["all"] = torch.empty(1, HEADS, n, n)
            for h, sigma in enumerate(SIGMA):
                alibi_mask(n, sigma, out=masks["all"][0, h])
        return sdpa(*x, attn_mask=masks["all"])

    def head_by_head() -> Tensors:
        x[0].grad = x[1].grad = x[2].grad = None
        one = masks.setdefault("one", torch.empty(n, n))
        for h, sigma in enumerate(SIGMA):
            alibi_mask(n, sigma, out=one)
            sdpa(*(a[:, h:h + 1] for a in x), attn_mask=one).backward(d_o[:, h:h + 1])
        return gradients()

    return n, [
        both("plsh exact", lambda: ours(x, "exact")),
        both("plsh dense", lambda: ours(x, "dense")),
        both("flex, ALiBi", lambda: flex(x, block_mask(n, None))),
        Contender("sdpa, ALiBi mask, head by head", head_by_head),
        both("sdpa, ALiBi mask", masked),
        both("sdpa, no bias", lambda: sdpa(*x, is_causal=True), same=False),
    ], "plsh exact"


class Shape(NamedTuple):
    """A case of the short table."""

    batch: int
    queries: int
    n: int
    passes: str  # "forward" or "training"


SHORT = (Shape(64, 32, 32, "forward"), Shape(64, 32, 32, "training"), Shape(1, 16, 16, "forward"),
         Shape(1, 16, 16, "training"), Shape(8, 128, 128, "forward"),
         Shape(8, 128, 128, "training"), Shape(1, 1, 512, "forward"), Shape(16, 1, 128, "forward"))


def short_contenders(shape: Shape) -> list[Contender]:
    generator = torch.Generator().manual_seed(1)
    grad = shape.passes == "training"
    x = [torch.randn(shape.batch, HEADS, rows, 64, generator=generator).requires_grad_(grad)
         for rows in (shape.queries, shape.n, shape.n)]
    d_o = torch.randn(x[0].shape, generator=generator)
    mask = torch.stack([alibi_mask(shape.n, s)[shape.n - shape.queries:] for s in SIGMA])[None]

    def contender(name: str, forward: Callable[[], torch.Tensor], same: bool = True) -> Contender:
        def run() -> Tensors:
            if not grad:
                return (forward(),)
            x[0].grad = x[1].grad = x[2].grad = None
            forward().backward(d_o)
            return tuple(a.grad for a in x if a.grad is not None)
        return Contender(name, run, same)

    causal = shape.queries == shape.n
    return [
        contender("plsh exact", lambda: ours(x, "exact")),
        contender("plsh dense", lambda: ours(x, "dense")),
        contender("sdpa, ALiBi mask", lambda: sdpa(*x, attn_mask=mask)),
        contender("sdpa, no bias", lambda: sdpa(*x, is_causal=causal), same=False),
    ]


def short_time(contender: Contender) -> float:
    """Seconds of one call."""
    time.sleep(0.05)
    end, calls = time.perf_counter() + 0.005, 0
    while time.perf_counter() < end:  # wakes up the threads of the contender
        contender.run()
        calls += 4
    start = time.perf_counter()
    for _ in range(calls):
        contender.run()
    return (time.perf_counter() - start) / calls


def short_rows(shape: Shape, threads: int, reps: int) -> list[Row]:
    print(f"  short {tuple(shape)} threads={threads}", file=sys.stderr)
    contenders = short_contenders(shape)
    wanted = contenders[0].run()
    for x in contenders[1:]:
        if x.same:
            check(x.name, x.run(), wanted)
    found = {x.name: Measured([]) for x in contenders}
    for _ in range(reps):
        for x in contenders:
            found[x.name].times.append(short_time(x))
    rows = rows_of("short", shape.n, 64, threads, "plsh exact", found)
    for row in rows:
        row.batch, row.queries, row.passes = shape.batch, shape.queries, shape.passes
    return rows


def print_short(rows: list[Row]) -> None:
    print(f"{'batch':>5}{'queries':>9}{'keys':>6} {'pass':9}{'threads':>8}  {'contender':18}{'us':>9}"
          f"{'spread':>8}{'plsh exact / it':>17}")
    for row in rows:
        assert row.seconds is not None and row.plsh_over_it is not None
        print(f"{row.batch:5}{row.queries:9}{row.n:6} {row.passes:9}{row.threads:8}  "
              f"{row.contender:18}{1e6 * row.seconds:9.1f}{row.spread:8.0%}{row.plsh_over_it:17.2f}")


def groups_of(table: str, dims: list[int], lengths: list[int],
              ) -> list[tuple[int, Callable[[], Group]]]:
    """The dimension of the heads, and the function that makes the group."""
    if table == "forward":
        return [(dim, partial(forward_table, dim)) for dim in dims]
    if table == "long":
        return [(64, partial(long_table, sampled)) for sampled in (False, True)]
    return [(64, partial(training_table, n)) for n in lengths]


def print_rows(rows: list[Row]) -> None:
    print(f"{'table':9}{'n':>7}{'d':>5}{'threads':>8}  {'contender':31}{'ms':>9}{'spread':>8}"
          f"{'MB':>7}{'plsh / it':>11}")
    for row in rows:
        start = f"{row.table:9}{row.n:7}{row.dim:5}{row.threads:8}  {row.contender:31}"
        if row.seconds is None or row.plsh_over_it is None:
            print(f"{start}  {row.why}")
        else:
            print(f"{start}{1e3 * row.seconds:9.1f}{row.spread:8.0%}{row.memory / 1e6:7.0f}"
                  f"{row.plsh_over_it:11.2f}")


def rows_of(table: str, n: int, dim: int, threads: int, own: str,
            found: dict[str, Measured]) -> list[Row]:
    middle = {name: statistics.median(x.times) for name, x in found.items() if x.times}
    rows = []
    for name, x in found.items():
        if x.times:
            rows.append(Row(table, n, dim, threads, name, middle[name],
                            (max(x.times) - min(x.times)) / middle[name], x.memory,
                            middle[own] / middle[name]))
        else:
            rows.append(Row(table, n, dim, threads, name, None, 0.0, 0, None, x.why))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="forward,long,training,short")
    parser.add_argument("--dims", default="64,128", help="of the forward table")
    parser.add_argument("--lengths", default="1024,4096,16384", help="of the training table")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--patience", type=float, default=8.0,
                        help="seconds; a call that takes longer is made once")
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    lengths = [int(x) for x in options.lengths.split(",")]
    torch.set_flush_denormal(True)
    rows: list[Row] = []
    for threads in (int(x) for x in options.threads.split(",")):
        torch.set_num_threads(threads)
        for table in options.tables.split(","):
            if table == "short":
                for shape in SHORT:
                    rows += short_rows(shape, threads, options.reps)
                continue
            for dim, make in groups_of(table, [int(x) for x in options.dims.split(",")], lengths):
                torch._dynamo.reset()
                n, contenders, own = make()
                print(f"  {table} n={n} d={dim} threads={threads}", file=sys.stderr)
                found = measure(contenders, options.reps, options.patience)
                rows += rows_of(table, n, dim, threads, own, found)
                del contenders
    long = [row for row in rows if row.table != "short"]
    if long:
        print_rows(long)
    if len(long) < len(rows):
        print_short([row for row in rows if row.table == "short"])
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([asdict(row) for row in rows], file, indent=1)


if __name__ == "__main__":
    main()
