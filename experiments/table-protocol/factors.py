#!/usr/bin/env python3
"""Which ingredient of the paper's protocol makes ALiBi win: rows shuffled or in order, one sigma or the standard slopes. Writes the part of
RESULT.md between its two marks, from the runs here and those of ../table-scratch; the same tokens are scored at every length.

usage: factors.py [--check]    --check writes nothing, and fails where what is written does not follow from the runs"""
import statistics
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))
from compare import between_marks, k, markdown, read, signed  # noqa: E402

BEGIN, END = "<!-- factors: written by factors.py -->", "<!-- end of factors -->"
LENGTHS = (1024, 2048)
CELLS = [("in order", "standard slopes", "scratch", ""), ("in order", "one sigma", "scratch", "-one-sigma"),
         ("shuffled rows", "standard slopes", "scratch", "-rows"), ("shuffled rows", "one sigma", "protocol", "")]


def perplexities():
    """(table, name, length) -> {seed: perplexity}"""
    found = {}
    for table, column in (("scratch", "ppl"), ("protocol", "same")):
        for row in read(here.parent / f"table-{table}/runs.tsv"):
            for length in LENGTHS:
                found.setdefault((table, row["name"], length), {})[row["seed"]] = float(row[f"{column}_{length}"])
    return found


def original(found, order, length):
    """RoPE alone has no sigma: one run for both columns. With shuffled rows it is this folder's."""
    return found["scratch" if order == "in order" else "protocol", "original", length]


def mean(values):
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation} ({len(values)})"


def difference(a, b):
    """By seed, and by how many of their standard deviations."""
    pairs = [a[seed] - b[seed] for seed in a if seed in b]
    if not pairs:
        return "-"
    return signed(pairs) + (f" ({statistics.mean(pairs) / statistics.stdev(pairs):+.1f})" if len(pairs) > 1 else "")


def tables():
    found, lines = perplexities(), []
    for length in LENGTHS:
        rows = []
        for order, sigma, table, end in CELLS:
            rope, exact, ten = original(found, order, length), found[table, "exact" + end, length], found[table, "plsh-10" + end, length]
            rows.append([order, sigma, mean(rope.values()), mean(exact.values()), mean(ten.values()),
                         difference(rope, exact), difference(rope, ten), difference(ten, exact)])
        lines += ["", *markdown([f"text, {k(length)}", "sigma", "RoPE", "exact ALiBi", "10 samples", "RoPE less exact", "RoPE less 10 samples",
                                 "10 samples less exact"], rows)]
    return lines[1:]


def main():
    text, wanted = between_marks(here / "RESULT.md", BEGIN, END, tables())
    if sys.argv[1:] == ["--check"]:
        return sys.exit(f"{here}: RESULT.md does not follow from the runs: run {sys.argv[0]}" if text != wanted else 0)
    (here / "RESULT.md").write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
