#!/usr/bin/env python3
"""BLOOM-, MPT- and Falcon-shaped models: plsh beside transformers' own attention, one table.

    bench/models.py                              everything; twenty minutes on a quiet machine
    bench/models.py --tables forward,training    forward at 2k, 8k, 16k; a training step at 4k
    bench/models.py --tables generation          a token more after 1k and 16k
    bench/models.py --rows rows.jsonl            keeps rows there; those it has are not measured again

Needs torch, transformers and the plsh package. Random weights: hidden 1024, 16 heads, 4 layers, 4096 words,
float32, batch 1. Each row is measured in a process of its own: the median of some calls after a first one, which
warms up. If the first call takes more than --patience seconds, only one more is measured. MB is the rise of the
process's peak of memory over the model itself, in generation with the cache. transformers' own path is eager for
BLOOM and MPT, which have no other, and sdpa for Falcon. A process may use nine tenths of the free memory; a row
that needs more says "does not fit".

In generation all contenders continue the same text. Two windows are measured: plsh's default of 27 sigma,
here up to 6912 tokens, and one of 512. The first is not full after 1k tokens, so its growth is also given from 8k.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from measure import Rows, begin_peak, memory, run_apart

HEADS, HIDDEN, LAYERS, WORDS = 16, 1024, 4, 4096
FAMILIES = ("bloom", "mpt", "falcon")
OWN = "transformers"
CONTENDERS = {"forward": (OWN, "plsh exact"), "training": (OWN, "plsh exact"),
              "generation": (OWN, "plsh exact", "plsh plsh", "plsh window", "plsh window 512")}
LENGTHS = {"forward": (2048, 8192, 16384), "training": (4096,), "generation": (1024, 8192, 16384)}
GROWTHS = ((1024, 16384), (8192, 16384))


def is_wanted(table: str, n: int, contender: str) -> bool:
    """Generation after 8k is there for the window, which is full by then."""
    return table != "generation" or n != 8192 or contender == "plsh window"


def make_model(family: str) -> Any:
    import torch
    import transformers
    torch.manual_seed(0)
    if family == "bloom":
        return transformers.BloomForCausalLM(transformers.BloomConfig(
            vocab_size=WORDS, hidden_size=HIDDEN, n_layer=LAYERS, n_head=HEADS))
    if family == "mpt":
        return transformers.MptForCausalLM(transformers.MptConfig(
            vocab_size=WORDS, d_model=HIDDEN, n_layers=LAYERS, n_heads=HEADS, max_seq_len=1 << 15))
    return transformers.FalconForCausalLM(transformers.FalconConfig(
        vocab_size=WORDS, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        alibi=True, multi_query=False, parallel_attn=False, new_decoder_architecture=False, bias=True,
        attn_implementation="sdpa"))


def make_call(table: str, family: str, n: int, contender: str) -> tuple[Callable[[], Any], int]:
    """The function to be timed, which returns a digest of its result; and the memory in use before it runs."""
    import torch

    import plsh.hf
    model = make_model(family).eval()
    before = memory("VmRSS")
    tokens = torch.randint(0, WORDS, (1, n), generator=torch.Generator().manual_seed(1))
    if contender != OWN:
        _, method, *window = contender.split()
        plsh.hf.apply(model, method, **({"window": int(window[0])} if window else {}))
    if table == "forward":
        def forward() -> float:
            with torch.no_grad():
                return float(model(tokens, use_cache=False, logits_to_keep=1).logits.square().mean())
        return forward, before
    if table == "training":
        model.train()

        def step() -> float:
            model.zero_grad()
            loss = model(tokens, labels=tokens, use_cache=False).loss
            loss.backward()
            return float(loss.detach())
        return step, before
    return make_decoding(model, tokens, contender), before


def make_decoding(model: Any, tokens: Any, contender: str) -> Callable[[], Any]:
    """Generates one more token; the text before it is processed with plsh in any case."""
    import torch
    import transformers

    import plsh.hf
    cache = transformers.DynamicCache() if contender == OWN else plsh.hf.Cache()
    if contender == OWN:
        plsh.hf.apply(model)
    with torch.no_grad():
        for begin in range(0, tokens.shape[1], 2048):
            model(tokens[:, begin:begin + 2048], past_key_values=cache, use_cache=True,
                  logits_to_keep=1)
    if contender == OWN:
        plsh.hf.remove(model)
    following = torch.tensor([[5]])

    def step() -> float:
        with torch.no_grad():
            out = model(following, past_key_values=cache, use_cache=True)
        return float(out.logits.square().mean())
    return step


def measure(table: str, family: str, n: int, contender: str, threads: int, reps: int,
            patience: float) -> dict[str, Any]:
    """One row, in this process."""
    import torch
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    call, before = make_call(table, family, n, contender)
    begin_peak()
    free = int(0.9 * memory("MemAvailable"))
    resource.setrlimit(resource.RLIMIT_AS, (memory("VmSize") + free,) * 2)
    start = time.perf_counter()
    try:
        value = call()
    except (RuntimeError, MemoryError) as error:
        asked = re.search(r"tried to allocate (\d+) bytes", str(error))
        if not asked:
            raise
        return {"why": f"does not fit: had {(memory('VmHWM') - before) / 1e9:.1f} GB, asked for "
                       f"{int(asked[1]) / 1e9:.1f} more; {free / 1e9:.0f} are free"}
    first = time.perf_counter() - start
    peak = memory("VmHWM") - before
    times = []
    for _ in range(1 if first > patience else 10 * reps if table == "generation" else reps):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return {"times": times, "memory": peak, "value": value}


def print_table(rows: dict[str, dict[str, Any]]) -> None:
    print(f"{'table':12}{'model':8}{'n':>7}  {'contender':16}{'ms':>10}{'spread':>8}{'MB':>8}"
          f"{'its time / own':>16}{'its MB / own':>14}")
    for text, row in rows.items():
        table, family, n, contender = json.loads(text)
        start = f"{table:12}{family:8}{n:7}  {contender:16}"
        if "why" in row:
            print(f"{start}  {row['why']}")
            continue
        middle = statistics.median(row["times"])
        spread = (max(row["times"]) - min(row["times"])) / middle
        own = rows.get(json.dumps([table, family, n, OWN]), {})
        ratios = (f"{middle / statistics.median(own['times']):16.2f}"
                  f"{row['memory'] / max(1, own['memory']):14.2f}") if "times" in own else ""
        print(f"{start}{1e3 * middle:10.1f}{spread:8.0%}{row['memory'] / 1e6:8.0f}{ratios}")
    print_growth(rows)


def print_growth(rows: dict[str, dict[str, Any]]) -> None:
    """The time of a token after a longer text divided by that after a shorter one."""
    for family in FAMILIES:
        for contender in CONTENDERS["generation"]:
            for short, long in GROWTHS:
                pair = [rows.get(json.dumps(["generation", family, n, contender]), {})
                        for n in (short, long)]
                if all("times" in x for x in pair):
                    a, b = (statistics.median(x["times"]) for x in pair)
                    print(f"growth      {family:8}{'':7}  {contender:16}{b / a:10.2f}  times from "
                          f"{short} to {long}")


def check(rows: dict[str, dict[str, Any]]) -> None:
    """plsh exact must give what the model's own attention gives, or its times mean nothing."""
    for text, row in rows.items():
        table, family, n, contender = json.loads(text)
        own = rows.get(json.dumps([table, family, n, OWN]), {})
        if contender == "plsh exact" and "value" in own and "value" in row and family != "falcon":
            if abs(row["value"] - own["value"]) > 1e-3 * abs(own["value"]):
                sys.exit(f"bench/models.py: {text}: {row['value']} instead of {own['value']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="forward,training,generation")
    parser.add_argument("--models", default=",".join(FAMILIES))
    parser.add_argument("--longest", type=int, default=1 << 20, help="leave longer texts out")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--patience", type=float, default=8.0,
                        help="seconds; a call that takes longer is made once after the first")
    parser.add_argument("--rows", type=pathlib.Path, help="a file that keeps what was measured")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        table, family, n, contender = json.loads(options.one)
        print(json.dumps(measure(table, family, n, contender, options.threads, options.reps,
                                 options.patience)))
        return
    rows = Rows(options.rows)
    for table in options.tables.split(","):
        for family in options.models.split(","):
            for n in LENGTHS[table]:
                for contender in CONTENDERS[table]:
                    key = [table, family, n, contender]
                    if json.dumps(key) in rows or n > options.longest or not is_wanted(table, n, contender):
                        continue
                    print(f"  {table} {family} n={n} {contender}", file=sys.stderr)
                    rows.keep(key, run_apart(__file__, "--one", json.dumps(key), "--threads", options.threads,
                                             "--reps", options.reps, "--patience", options.patience))
    check(rows)
    print(f"threads: {options.threads}")
    print_table(rows)


if __name__ == "__main__":
    main()
