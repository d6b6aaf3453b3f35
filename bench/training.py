#!/usr/bin/env python3
"""`plsh train` beside torch and transformers: forward, backward and a step of AdamW of one small Qwen3.

    bench/training.py                            contexts of 1k, 4k and 16k; ten minutes on a quiet machine
    bench/training.py --contexts 1024 --steps 3  less
    bench/training.py --plsh build/plsh          the program
    bench/training.py --rows rows.jsonl          keeps rows there; those it has are not measured again

Needs torch and transformers. The model has the proportions of Qwen3-0.6B: hidden 256, 8 heads of 64 (4 of keys and
values), MLP 768, 3 layers, 4096 words, tied: 4 million parameters; float32, batch 1, the same weights, windows and
threads for all. torch has ALiBi as a mask of scaled_dot_product_attention ("ALiBi"), or nothing but RoPE ("no bias");
plsh the same ("exact": ALiBi, float-exact; "none"). "bf16" is plsh with --compute bfloat16, whose linear layers
multiply in bfloat16, and torch with autocast to bfloat16. Each row is a process of its own, which does --steps steps
after a first one that warms up; a step of more than --patience seconds is done once. Denormal numbers are flushed to
zero in torch, on all threads; without, ALiBi is far slower there. MB is the process's peak of memory, program and
model included. Tokens per second are those of the median step. The share of the roof is 6 N flops per token, N the
parameters of linear layers, and 14 dim per pair of a query and a key before it and layer and head, against sgemm on
as many threads, measured in the same run; for `exact` the pairs are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

HIDDEN, LAYERS, HEADS, KV_HEADS, DIM, WIDE, WORDS = 256, 3, 8, 4, 64, 768, 4096
CONFIG = {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": HIDDEN, "intermediate_size": WIDE,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM,
    "vocab_size": WORDS, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu",
    "attention_bias": False, "initializer_range": 0.02, "max_position_embeddings": 1 << 20,
}
LINEAR = LAYERS * (2 * HIDDEN * (HEADS + KV_HEADS) * DIM + 3 * HIDDEN * WIDE) + HIDDEN * WORDS
RATE = 1e-4
CONTENDERS = ("plsh exact", "plsh none", "plsh exact bf16", "plsh none bf16",
              "torch ALiBi", "torch no bias", "torch ALiBi bf16", "torch no bias bf16")


def ids_of(n: int, step: int) -> Any:
    import torch
    return torch.randint(0, WORDS, (1, n), generator=torch.Generator().manual_seed(step))


def torch_steps(folder: str, contender: str, n: int, steps: int, patience: float) -> list[tuple[float, float]]:
    """(seconds, loss) of each step, in this process."""
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").train()
    mask = None
    if contender.startswith("torch ALiBi"):
        slopes = torch.tensor([2.0 ** (-8 * (h + 1) / HEADS) for h in range(HEADS)])
        place = torch.arange(n, dtype=torch.float32)
        mask = slopes[:, None, None] * (place[None, None, :] - place[None, :, None])
        mask = mask.masked_fill_(place[None, :] > place[:, None], torch.finfo(torch.float32).min)[None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    done: list[tuple[float, float]] = []
    for step in range(steps + 1):
        ids, begin = ids_of(n, step), time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=contender.endswith("bf16")):
            loss = model(ids, labels=ids, attention_mask=mask, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        done.append((time.perf_counter() - begin, float(loss.detach())))
        if done[-1][0] > patience:
            break
    return done


def plsh_steps(folder: str, contender: str, n: int, steps: int, o: argparse.Namespace) -> list[tuple[float, float]]:
    with tempfile.TemporaryDirectory() as out:
        method = contender.split()[1]
        command = [o.plsh, "train", "--base", folder, "--text", f"{folder}/{n}.txt", "--out", out, "--context", n,
                   "--steps", steps + 1, "--lr", RATE, "--schedule", "constant", "--warmup", 0, "--checkpoint-every", 0,
                   "--attention", "original" if method == "none" else method, "--threads", o.threads, "--quiet"]
        if contender.endswith("bf16"):  # older programs, which bench/busy.py measures too, have no such option
            command += ["--compute", "bfloat16"]
        subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in pathlib.Path(out, "log.jsonl").read_text().splitlines()]
    return [(n / line["tokens_per_second"], line["loss"]) for line in lines if "loss" in line]


def write_text(path: pathlib.Path, n: int, steps: int) -> None:
    """The windows as a text for the program: a token is a character."""
    path.write_text("".join(chr(0x4e00 + i) for step in range(steps) for i in ids_of(n, step)[0].tolist()), encoding="utf-8")


def write_model(folder: pathlib.Path) -> None:
    import torch
    import transformers
    torch.manual_seed(0)
    transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**CONFIG)).save_pretrained(folder)
    vocabulary = {chr(0x4e00 + i): i for i in range(WORDS)}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": False}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))


def measure(o: argparse.Namespace) -> None:
    """One row, in a process of its own: JSON on stdout."""
    contender, n = o.row.split(":")
    if contender.startswith("plsh"):
        done = plsh_steps(o.folder, contender, int(n), o.steps, o)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    else:
        import torch
        torch.set_flush_denormal(True)  # before there are other threads, which take it over
        torch.set_num_threads(o.threads)
        done = torch_steps(o.folder, contender, int(n), o.steps, o.patience)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    later = [seconds for seconds, _ in done[1:]] or [done[0][0]]
    middle = statistics.median(later)
    print(json.dumps({"seconds": middle, "spread": (max(later) - min(later)) / middle, "peak": 1024 * peak,
                      "losses": [loss for _, loss in done]}))


def run_row(o: argparse.Namespace, folder: str, contender: str, n: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--row", f"{contender}:{n}", "--folder", folder, "--steps", str(o.steps),
               "--threads", str(o.threads), "--patience", str(o.patience), "--plsh", o.plsh]
    print(f"  {contender}, {n}", file=sys.stderr)
    for _ in range(3):  # where other work came between, once more
        row = dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        if row["spread"] < 0.3:
            break
    return row


def roof_of(o: argparse.Namespace) -> float:
    command = [o.plsh, "bench", "--n", "512", "--methods", "dense", "--reps", "1", "--threads", str(o.threads), "--json", "--quiet"]
    return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["roof_gflops"])


def flops_of(contender: str, n: int) -> float:
    pairs = 0 if contender.startswith("plsh exact") else LAYERS * HEADS * n * (n + 1) / 2
    return 6.0 * LINEAR * n + 14.0 * DIM * pairs


def print_table(rows: dict[tuple[str, int], dict[str, Any]], roof: float, o: argparse.Namespace) -> None:
    print(f"sgemm on {o.threads} threads: {roof:.1f} Gflop/s; {LINEAR / 1e6:.2f} million parameters in linear layers")
    print(f"{'context':>7} {'contender':19}{'tokens/s':>9}{'ms':>10}{'spread':>8}{'roof':>7}{'MB':>8}{'plsh exact / it':>17}"
          f"{'memory':>8}{'loss off':>10}")
    for (contender, n), row in sorted(rows.items(), key=lambda item: item[0][1]):
        ours, same = rows.get(("plsh exact", n)), "exact" if "ALiBi" in contender or "exact" in contender else "none"
        mine = rows.get((f"plsh {same}", n))
        ratio = f"{row['seconds'] / ours['seconds']:.2f}" if ours else "-"
        memory = f"{row['peak'] / ours['peak']:.2f}" if ours else "-"
        own = contender in ("plsh exact", "plsh none")
        off = max(abs(a / b - 1) for a, b in zip(row["losses"], mine["losses"])) if mine and not own else None
        print(f"{n:>7} {contender:19}{n / row['seconds']:>9.0f}{1e3 * row['seconds']:>10.1f}{row['spread']:>8.0%}"
              f"{flops_of(contender, n) / row['seconds'] / roof / 1e9:>7.2f}{row['peak'] / 2**20:>8.0f}{ratio:>17}{memory:>8}"
              f"{'' if off is None else f'{off:.1e}':>10}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", default="1024,4096,16384")
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--patience", type=float, default=10.0)
    parser.add_argument("--plsh", default="build/plsh")
    parser.add_argument("--rows")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.row:
        return measure(o)
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    if o.rows and os.path.exists(o.rows):
        with open(o.rows, encoding="utf-8") as kept:
            rows = {(contender, n): row for contender, n, row in map(json.loads, kept)}
    with tempfile.TemporaryDirectory() as folder:
        write_model(pathlib.Path(folder))
        roof = roof_of(o)
        for n in sorted(map(int, o.contexts.split(",")), reverse=True):
            write_text(pathlib.Path(folder, f"{n}.txt"), n, o.steps + 1)
            for contender in o.contenders.split(","):
                if (contender, n) in rows:
                    continue
                rows[contender, n] = run_row(o, folder, contender, n)
                if o.rows:
                    with open(o.rows, "a", encoding="utf-8") as kept:
                        kept.write(json.dumps([contender, n, rows[contender, n]]) + "\n")
        print_table(rows, max(roof, roof_of(o)), o)


if __name__ == "__main__":
    main()
