#!/usr/bin/env python3
"""plsh beside PyTorch's own attention: SDPA and FlexAttention, in one run, one table.

    bench/peers.py                          everything; takes some minutes
    bench/peers.py --tables forward         dense causal ALiBi at n = 4096
    bench/peers.py --tables long            near-linear methods at n = 16384
    bench/peers.py --tables training        forward and backward at n = 1k, 4k, 16k

Needs torch and the plsh package (pip install ./python); says so and stops where they are absent.
Random normal q, k, v; 8 heads, sigma 2..256, float32, causal. Contenders of a group take turns, the
median of their times is printed, and the ratio of plsh to each of them. FlexAttention is compiled
and its block masks are made before the clock starts. On the CPU it has no backward pass.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

try:
    import torch
    from torch.nn.attention.flex_attention import BlockMask, flex_attention
    from torch.nn.functional import scaled_dot_product_attention
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
    seconds: float
    spread: float  # (largest - smallest) / median
    plsh_over_it: float


Contender = tuple[str, Callable[[], object]]


def measure(contenders: list[Contender], reps: int) -> dict[str, list[float]]:
    """Times of each, taking turns, after one call that does not count."""
    times: dict[str, list[float]] = {name: [] for name, _ in contenders}
    for _, run in contenders:
        run()
    for _ in range(reps):
        for name, run in contenders:
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def inputs(n: int, dim: int, grad: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(1, HEADS, n, dim, generator=generator).requires_grad_(grad)
            for _ in range(3)]


def block_mask(n: int, window: torch.Tensor | None) -> BlockMask:
    """FlexAttention's mask of causal pairs nearer than the head's window, block by block.

    What create_block_mask finds by evaluating all n^2 pairs, written down: a block of queries sees
    the key blocks from (its first query - window) to its own; those in between are full.
    """
    count = n // BLOCK
    reach = torch.full((HEADS,), n) if window is None else window.ceil().long()
    first = torch.arange(count) * BLOCK
    partial = torch.zeros(1, HEADS, count, count, dtype=torch.bool)
    full = torch.zeros_like(partial)
    for h in range(HEADS):
        low, w = first[:, None], int(reach[h])  # a query block, and the window of the head
        key = first[None, :]
        some = (key <= low) & (low - (key + BLOCK - 1) < w)
        every = (key < low) & (low + BLOCK - 1 - key < w)
        full[0, h], partial[0, h] = every, some & ~every

    def listed(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        number = blocks.sum(-1).to(torch.int32)
        order = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True).to(torch.int32)
        return number, order

    def visible(b: object, h: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return (i >= j) & (i - j < reach[h])

    return BlockMask.from_kv_blocks(*listed(partial), *listed(full), BLOCK_SIZE=BLOCK,
                                    mask_mod=visible, seq_lengths=(n, n))


_slopes = 1.0 / torch.tensor(SIGMA)


def _alibi(score: torch.Tensor, b: object, h: torch.Tensor, i: torch.Tensor,
           j: torch.Tensor) -> torch.Tensor:
    return score - (i - j) * _slopes[h]


_flex = torch.compile(flex_attention, dynamic=False)


def flex(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: BlockMask) -> torch.Tensor:
    out: torch.Tensor = _flex(q, k, v, score_mod=_alibi, block_mask=mask)
    return out


def alibi_mask(n: int, sigma: float, out: torch.Tensor | None = None) -> torch.Tensor:
    """The n x n causal ALiBi bias of one head."""
    i = torch.arange(n, dtype=torch.float32)
    bias = torch.sub(i[None], i[:, None], out=out).div_(sigma)
    return bias.masked_fill_(i[None] > i[:, None], float("-inf"))


def check(name: str, found: torch.Tensor, wanted: torch.Tensor, limit: float = 1e-4) -> None:
    """Contenders that compute the same thing must agree, or their times mean nothing."""
    error = float((found - wanted).detach().abs().max())
    if not error < limit:
        sys.exit(f"bench/peers.py: {name} differs by {error:.2e}, allowed {limit:.0e}")


def forward_table(dim: int) -> tuple[int, list[Contender], str]:
    n = 4096
    q, k, v = inputs(n, dim, False)
    mask = torch.stack([alibi_mask(n, s) for s in SIGMA])[None]
    blocks = block_mask(n, None)
    contenders: list[Contender] = [
        ("sdpa, no bias", lambda: scaled_dot_product_attention(q, k, v, is_causal=True)),
        ("sdpa, ALiBi mask", lambda: scaled_dot_product_attention(q, k, v, attn_mask=mask)),
        ("flex, ALiBi", lambda: flex(q, k, v, blocks)),
        ("plsh dense", lambda: plsh.torch.attention(q, k, v, sigma=SIGMA, method="dense")),
        ("plsh exact", lambda: plsh.torch.attention(q, k, v, sigma=SIGMA, method="exact")),
    ]
    wanted = contenders[1][1]()
    for name, run in contenders[2:]:
        check(name, run(), wanted)  # type: ignore[arg-type]
    return n, contenders, "plsh dense"


def long_tables(dim: int) -> list[tuple[int, list[Contender], str]]:
    n = 16384
    q, k, v = inputs(n, dim, False)
    groups = []
    sigma = torch.tensor(SIGMA)
    far, near = block_mask(n, 27 * sigma), block_mask(n, 3.6 * sigma)
    exact: Contender = ("plsh exact",
                        lambda: plsh.torch.attention(q, k, v, sigma=SIGMA, method="exact"))
    flex_far: Contender = ("flex, window 27 sigma", lambda: flex(q, k, v, far))
    check("flex, window 27 sigma", flex_far[1](), exact[1]())  # type: ignore[arg-type]
    groups.append((n, [flex_far, exact], "plsh exact"))
    groups.append((n, [
        ("flex, window 3.6 sigma", lambda: flex(q, k, v, near)),
        ("plsh s=20", lambda: plsh.torch.attention(q, k, v, sigma=SIGMA, method="plsh",
                                                   samples=20)),
    ], "plsh s=20"))
    return groups


def training_table(n: int, dim: int) -> tuple[int, list[Contender], str]:
    q, k, v = inputs(n, dim, True)
    d_o = torch.randn(1, HEADS, n, dim, generator=torch.Generator().manual_seed(2))

    def both(forward: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        def run() -> torch.Tensor:
            q.grad = k.grad = v.grad = None
            o = forward()
            o.backward(d_o)
            return o
        return run

    def head_by_head() -> torch.Tensor:
        q.grad = k.grad = v.grad = None
        for h, sigma in enumerate(SIGMA):
            x = [a[:, h:h + 1] for a in (q, k, v)]
            alibi_mask(n, sigma, out=one)
            scaled_dot_product_attention(*x, attn_mask=one).backward(d_o[:, h:h + 1])
        return q

    contenders: list[Contender] = [
        ("sdpa, no bias", both(lambda: scaled_dot_product_attention(q, k, v, is_causal=True))),
    ]
    if n <= 4096:
        mask = torch.stack([alibi_mask(n, s) for s in SIGMA])[None]
        contenders.append(("sdpa, ALiBi mask", both(
            lambda: scaled_dot_product_attention(q, k, v, attn_mask=mask))))
        check("plsh exact", plsh.torch.attention(q, k, v, sigma=SIGMA), contenders[1][1]())
    else:  # all masks together would be 8 n^2 floats; one at a time is 1 GB at n = 16k
        one = torch.empty(n, n)
        contenders.append(("sdpa, ALiBi mask, head by head", head_by_head))
    contenders += [
        ("plsh dense", both(lambda: plsh.torch.attention(q, k, v, sigma=SIGMA, method="dense"))),
        ("plsh exact", both(lambda: plsh.torch.attention(q, k, v, sigma=SIGMA, method="exact"))),
    ]
    return n, contenders, "plsh exact"


def groups_of(table: str, dims: list[int], lengths: list[int],
              ) -> list[tuple[int, Callable[[], tuple[int, list[Contender], str]]]]:
    if table == "forward":
        return [(dim, lambda dim=dim: forward_table(dim)) for dim in dims]
    if table == "long":
        return [(64, lambda i=i: long_tables(64)[i]) for i in range(2)]
    return [(64, lambda n=n: training_table(n, 64)) for n in lengths]


def print_rows(rows: list[Row]) -> None:
    print(f"{'table':9}{'n':>7}{'d':>5}{'threads':>8}  {'contender':32}{'ms':>10}{'spread':>8}"
          f"{'plsh / it':>11}")
    for row in rows:
        print(f"{row.table:9}{row.n:7}{row.dim:5}{row.threads:8}  {row.contender:32}"
              f"{1e3 * row.seconds:10.1f}{row.spread:8.0%}{row.plsh_over_it:11.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="forward,long,training")
    parser.add_argument("--dims", default="64,128", help="of the forward table")
    parser.add_argument("--lengths", default="1024,4096,16384", help="of the training table")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    lengths = [int(x) for x in options.lengths.split(",")]
    rows: list[Row] = []
    for threads in (int(x) for x in options.threads.split(",")):
        torch.set_num_threads(threads)
        for table in options.tables.split(","):
            for dim, make in groups_of(table, [int(x) for x in options.dims.split(",")], lengths):
                torch._dynamo.reset()
                n, contenders, ours = make()
                times = measure(contenders, options.reps)
                middle = {name: statistics.median(x) for name, x in times.items()}
                rows += [Row(table, n, dim, threads, name, middle[name],
                             (max(x) - min(x)) / middle[name], middle[ours] / middle[name])
                         for name, x in times.items()]
                del contenders
                gc.collect()
                print(f"  {table} n={n} d={dim} threads={threads} done", file=sys.stderr)
    print_rows(rows)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([asdict(row) for row in rows], file, indent=1)


if __name__ == "__main__":
    main()
