#!/usr/bin/env python3
"""The memory of a model of 7B parameters in 4 bits: Mistral 7B's shape, random weights.

    bench/lm_memory.py

Writes a file of 4.5 GB into build/, generates a few tokens from it, prints the peak of the process beside
1.2 times the file, its caches and 200 MB, and removes the file. Fails where the peak is higher."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from lm_peers import ROOT, plsh

SHAPE = ("--hidden", "4096", "--intermediate", "14336", "--heads", "32", "--kv-heads", "8", "--vocabulary", "32000",
         "--context", "32768", "--layers", "32")


def main() -> None:
    file = ROOT / "build" / "random-7b.gguf"
    writer = pathlib.Path(__file__).with_name("random_model.py")
    subprocess.run([sys.executable, writer, file, *SHAPE], check=True, stdout=subprocess.DEVNULL)
    try:
        row = plsh("generate", "--model", file, "--prompt", "The quick brown fox", "--tokens", 4)
        size, caches, peak = file.stat().st_size, row["cache_bytes"], row["peak_bytes"]
    finally:
        file.unlink()
    allowed = 1.2 * size + caches + 200e6
    print(f"file {size / 1e6:.0f} MB, prompt of {row['prompt_tokens']} tokens and {len(row['ids'])} new ones, "
          f"caches {caches / 1e6:.1f} MB\npeak {peak / 1e6:.0f} MB = {peak / size:.3f} files; allowed {allowed / 1e6:.0f} MB")
    if peak > allowed:
        sys.exit("bench/lm_memory.py: more than allowed")


if __name__ == "__main__":
    main()
