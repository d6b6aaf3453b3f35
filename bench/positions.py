"""Attention under positions that are points, beside torch with the bias as a mask: time and memory.

usage: python3 bench/positions.py plane|gates

plane: tiles of a slide, a grid with a fifth missing, 12 heads of 64 with the standard slopes, both
directions. gates: a Forgetting Transformer's attention, 16 heads of 64, half of which forget within
100 tokens and the others within 10,000; forward and backward. Every row runs in a process of its own,
whose peak memory it shows.
"""
import resource
import subprocess
import sys
import time

import torch

import plsh.torch

THREADS = 2
torch.set_num_threads(THREADS)


def roof() -> float:
    """GFLOP/s of torch's sgemm."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    return max(2 * 2048**3 / timed(lambda: a @ b) for _ in range(5)) / 1e9


def timed(run) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def tiles(n: int) -> torch.Tensor:
    """n of 5 n / 4 places of a grid."""
    width = max(x for x in range(1, 251) if (5 * n // 4) % x == 0)
    grid = torch.cartesian_prod(torch.arange(5 * n // 4 // width).float(), torch.arange(width).float())
    return grid[torch.randperm(len(grid), generator=torch.Generator().manual_seed(1))[:n].sort().values]


def plane(n: int, what: str) -> None:
    import numpy as np
    q, k, v = (torch.randn(12, n, 64) for _ in range(3))
    at, speed = tiles(n), roof()
    if what == "torch":
        slopes = torch.from_numpy(plsh.alibi_slopes(12)).float()

        def run() -> None:
            apart = torch.cdist(at, at)
            bias = apart[None] * -slopes[:, None, None]
            torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=bias[None])
        pairs = 12 * n * n
    else:
        arrays = [x.numpy() for x in (q, k, v)]
        found = []

        def run() -> None:
            found.append(plsh.attend(*arrays, positions=np.asarray(at), causal=False, threads=THREADS,
                                     **({"method": "dense"} if what == "dense" else {"eps": float(what)})).pairs)
        pairs = 0
    seconds = timed(run)
    pairs = pairs or found[0]
    print(f"{n:>6}  {what:<12} {seconds:>9.2f}  {pairs / (12 * n * n):>6.3f}  "
          f"{256 * pairs / seconds / 1e9 / speed:>8.2f}  {peak():>7.2f}")


def gates(n: int, what: str) -> None:
    q, k, v = (torch.randn(1, 16, n, 64).requires_grad_() for _ in range(3))
    rate = torch.tensor([1 / 100] * 8 + [1 / 10000] * 8)
    log_f = (-rate[None, :, None] * 2 * torch.rand(1, 16, n)).requires_grad_()

    def forward() -> torch.Tensor:
        if what != "torch":
            return plsh.torch.forgetting_attention(q, k, v, log_f, head_first=True, method=what)
        c = log_f.cumsum(-1)
        later = torch.ones(n, n, dtype=torch.bool).triu(1)
        bias = (c[..., None] - c[..., None, :]).masked_fill(later, -torch.inf)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    outputs: list[torch.Tensor] = []
    first = timed(lambda: outputs.append(forward()))
    second = timed(lambda: outputs[0].sum().backward())
    share = "-"
    if what == "exact":
        done = plsh.attend(*(x.detach()[0].numpy() for x in (q, k, v)), sigma=1.0, threads=THREADS,
                           positions=-log_f.detach().double().cumsum(-1)[0, :, :, None].numpy())
        share = f"{done.pairs / (16 * n * (n + 1) / 2):.3f}"
    print(f"{n:>6}  {what:<12} {first:>9.2f}  {second:>9.2f}  {share:>6}  {peak():>7.2f}")


def main() -> None:
    if len(sys.argv) == 4:
        {"plane": plane, "gates": gates}[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
        return
    if sys.argv[1:] == ["plane"]:
        print(f"{THREADS} threads; roof: torch's sgemm of 2048^3 in the same process")
        print("     n  eps or what    seconds   pairs   of roof       GB", flush=True)
        rows = [("5000", "torch"), ("5000", "0"), ("10000", "torch"), ("10000", "0"), ("40000", "0"),
                ("40000", "1e-4"), ("40000", "1e-2")]
    else:
        print(f"{THREADS} threads; torch: the bias as a mask, up to where memory ends")
        print("     n  method         forward   backward   pairs       GB", flush=True)
        rows = [("4096", "torch"), ("4096", "exact"), ("8192", "torch"), ("8192", "exact"), ("16384", "dense"),
                ("16384", "exact")]
    for row in rows:
        subprocess.run([sys.executable, __file__, sys.argv[1], *row], check=True)


if __name__ == "__main__":
    main()
