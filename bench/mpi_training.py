#!/usr/bin/env python3
"""Weak scaling of a training step: `plsh-mpi train` on ranks of one thread, with the same number of tokens per rank.

    bench/mpi_training.py --plsh-mpi build/plsh-mpi
    bench/mpi_training.py --ranks 4 --tokens 4096 --methods exact

The model is that of bench/training.py. R ranks train on one window of R * --tokens tokens, so that a rank has as many
rows as a single process; the efficiency is the tokens per second of R ranks divided by R times those of one. "long" is
one rank on the window of R * --tokens: in a longer window a row sees more keys if heads reach further than --tokens.
"apart" is R independent processes with --tokens each, at the same time: the limit that memory and clock of the machine
set for R cores. Runs take turns, --turns times; the median of all steps except the first of each run is reported.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile

from training import CONFIG, WORDS

MPIRUN = ["mpirun", "--allow-run-as-root", "--bind-to", "core", "--mca", "btl", "self,vader", "-np"]


def write_data(folder: pathlib.Path, tokens: int) -> None:
    """A configuration, a tokenizer whose tokens are characters, and a text."""
    draw = random.Random(1)
    vocabulary = {chr(0x4E00 + i): i for i in range(WORDS)}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": False}
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    (folder / "text.txt").write_text("".join(chr(0x4E00 + draw.randrange(WORDS)) for _ in range(tokens)), encoding="utf-8")


def speeds(o: argparse.Namespace, folder: pathlib.Path, method: str, ranks: int, context: int, apart: int) -> list[float]:
    """Tokens per second of all steps but the first; of processes apart, of all of them together."""
    jobs = []
    with tempfile.TemporaryDirectory() as out:
        for job in range(apart or 1):
            train = ["train", "--fresh", folder / "config.json", "--tokenizer", folder, "--text", folder / "text.txt",
                     "--tokens", folder / "text.tokens", "--context", context, "--steps", o.steps + 1, "--lr",
                     "1e-4", "--attention", method, "--sigma", o.sigma, "--threads", 1, "--checkpoint-every", 0, "--quiet",
                     "--out", f"{out}/{job}"]
            start = ["taskset", "-c", job] if apart else [*MPIRUN, ranks]
            jobs.append(subprocess.Popen([*map(str, [*start, o.plsh_mpi, *train])], stdout=subprocess.DEVNULL))
        assert all([job.wait() == 0 for job in jobs])
        logs = [[json.loads(line) for line in pathlib.Path(out, str(job), "log.jsonl").read_text().splitlines()]
                for job in range(len(jobs))]
    steps = [[line["tokens_per_second"] for line in log if "tokens_per_second" in line] for log in logs]
    return [sum(step) for step in zip(*(log[1:] for log in steps))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plsh-mpi", default="build/plsh-mpi", help="the program")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=4096, help="of each rank")
    parser.add_argument("--sigma", type=float, default=64, help="of all heads")
    parser.add_argument("--methods", default="exact,plsh", type=lambda text: text.split(","))
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--all", action="store_true", help="every step's speed")
    o = parser.parse_args()
    os.environ |= {"PLSH_THREADS": "1"}
    print(f"{o.tokens} tokens for each rank, sigma {o.sigma:g}; tokens/s, and of {o.ranks} times those of one rank, or of one on "
          "the long window")
    print(f"{'method':8} {'1 rank':>9} {'long':>9} {f'{o.ranks} ranks':>23} {f'{o.ranks} apart':>16}")
    long = o.tokens * o.ranks
    kinds = ((1, o.tokens, 0), (1, long, 0), (o.ranks, long, 0), (1, o.tokens, o.ranks))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_data(folder, 2 * long)
        for method in o.methods:
            rows: list[list[float]] = [[] for _ in kinds]
            for _ in range(o.turns):
                for row, kind in zip(rows, kinds):
                    row += speeds(o, folder, method, *kind)
            one, alone, many, apart = map(statistics.median, rows)
            print(f"{method:8} {one:9.0f} {alone:9.0f} {many:9.0f} {many / one / o.ranks:6.3f} {many / alone / o.ranks:6.3f} "
                  f"{apart:9.0f} {apart / one / o.ranks:6.3f}", flush=True)
            if o.all:
                print(*([round(x) for x in row] for row in rows))


if __name__ == "__main__":
    main()
