#!/usr/bin/env python3
"""What a table of trained models says, beside the published one: writes summary.tsv, the part of RESULT.md between its two marks, and the plot.

usage: compare.py [--check] FOLDER    with runs.tsv (name, seed, .., ppl_N, acc_N) and published.tsv (name, ppl_N, ppl_N_std, ..); FOLDER/RESULT.md
keeps what is written by hand around the marks. summary.tsv has the form of published.tsv, and the day on which its numbers changed last.
--check writes nothing, and fails where what is written does not follow from runs.tsv"""
import datetime
import itertools
import math
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
BEGIN, END = "<!-- numbers: written by experiments/compare.py -->", "<!-- end of numbers -->"


def read(path):
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [dict(zip(lines[0].split("\t"), line.split("\t"))) for line in lines[1:]]


class Table:
    """Mean and standard deviation of every attention at every length; None where there is a single run."""

    def __init__(self, rows):
        self.names = list(dict.fromkeys(row["name"] for row in rows))
        self.lengths = [int(c[4:]) for c in rows[0] if c.startswith("ppl_") and c[4:].isdigit()]
        for name in self.names:
            kinds = {row.get("attention") for row in rows if row["name"] == name}
            if len(kinds) > 1:
                raise SystemExit(f"{name}: its seeds are of different attentions: {'; '.join(sorted(kinds))}")
        self.seeds = {name: sum(row["name"] == name for row in rows) for name in self.names}
        self.cells = {}
        for name, length, what in itertools.product(self.names, self.lengths, ("ppl", "acc")):
            mine, column = [row for row in rows if row["name"] == name], f"{what}_{length}"
            values = [float(row[column]) for row in mine]
            deviation = statistics.stdev(values) if len(values) > 1 else None
            if column + "_std" in mine[0]:
                deviation = float(mine[0][column + "_std"])
            self.cells[name, length, what] = statistics.mean(values), deviation

        self.perplexity = {(row["name"], row.get("seed"), n): float(row[f"ppl_{n}"]) for row in rows for n in self.lengths}

    def by_seed(self, a, b, length):
        """Perplexity of a less that of b, for each seed that both have: they began with the same weights."""
        mine = self.perplexity
        return [mine[a, seed, length] - mine[b, seed, length] for name, seed, n in mine
                if name == a and n == length and (b, seed, length) in mine]

    def mean(self, name, length, what="ppl"):
        return self.cells[name, length, what][0]

    def deviation(self, length):
        """One deviation for all attentions: the root mean square of theirs, which three runs alone tell badly. 0: single runs."""
        known = [deviation for (_, n, what), (_, deviation) in self.cells.items() if n == length and what == "ppl" and deviation]
        return math.sqrt(statistics.mean(s * s for s in known)) if known else 0.0

    def difference(self, a, b, length):
        """Perplexity of a less that of b, in standard deviations of such a difference; as it is where there are single runs."""
        return (self.mean(a, length) - self.mean(b, length)) / (math.sqrt(2) * self.deviation(length) or 1)

    def cell(self, name, length, what, digits=2):
        if name not in self.names:
            return ""
        mean, deviation = self.cells[name, length, what]
        return f"{mean:.{digits}f}" + (f" ± {deviation:.{digits}f}" if deviation is not None else "")


def markdown(heads, rows):
    return ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)] + ["| " + " | ".join(row) + " |" for row in rows]


def k(length):
    return f"{length // 1024}k"


def both(ours, theirs, what, title):
    heads = [title, *(f"ours {k(n)}" for n in ours.lengths), *(f"published {k(n)}" for n in theirs.lengths)]
    names = ours.names + [name for name in theirs.names if name not in ours.names]
    return markdown(heads, [[name + (f" ({ours.seeds[name]})" if name in ours.names else ""),
                             *(ours.cell(name, n, what) for n in ours.lengths), *(theirs.cell(name, n, what) for n in theirs.lengths)]
                            for name in names])


def signed(differences):
    """Their mean, and the standard deviation where there are several."""
    return f"{statistics.mean(differences):+.2f}" + (f" ± {statistics.stdev(differences):.2f}" if len(differences) > 1 else "")


def orderings(ours, theirs):
    """Every pair of the published table that differs there beyond noise, and whether it is in that order here: by the differences with the same seed,
    whose mean has to be two of their standard deviations from 0 (of three seeds that differ by chance alone, 7 pairs in 100 are)."""
    at, rows, held, clearly, lost = theirs.lengths[0], [], 0, 0, []
    several = ours.deviation(ours.lengths[0]) > 0
    common = [name for name in theirs.names if name in ours.names]
    for a, b in itertools.combinations(common, 2):
        better, worse = sorted((a, b), key=lambda name: theirs.mean(name, at))
        published = theirs.difference(worse, better, at)
        if published < 2:
            continue
        mine, pairs = [ours.difference(worse, better, n) for n in ours.lengths], ours.by_seed(worse, better, ours.lengths[0])
        noise = 2 * statistics.stdev(pairs) if len(pairs) > 1 else 0
        by_seed = statistics.mean(pairs) if pairs else mine[0]
        held, clearly = held + (mine[0] > 0), clearly + (mine[0] > 0 and len(pairs) > 1 and by_seed > noise)
        if mine[0] <= 0:
            lost.append(f"{better} before {worse} ({mine[0]:+.1f})")
        verdict = "yes" if by_seed > noise else "no" if by_seed < -noise else "within noise"
        if len(pairs) < 2:
            verdict += ", one run"
        rows.append([f"{better} before {worse}", f"{published:+.1f}", *(f"{d:+.{1 if several else 3}f}" for d in mine), verdict])
        if several:
            rows[-1].append(signed(pairs) if pairs else "-")
    sentence = (f"Of the {len(rows)} orderings of perplexity that the published table tells apart at its training length (by two standard "
                f"deviations or more), {held} hold here at ours" + (f", {clearly} of them by two deviations of the differences by seed." if several else "."))
    if lost:
        sentence += " In the other order: " + "; ".join(lost) + "."
    heads = ["ordering", f"published, {k(at)}", *(f"ours, {k(n)}" for n in ours.lengths), f"holds at {k(ours.lengths[0])}"]
    heads += [f"PPL by seed, {k(ours.lengths[0])}"] if several else []
    return [sentence, "", *markdown(heads, rows)]


def against_exact(ours):
    """Every attention beside exact ALiBi with the same seeds and text (names that end in -rows have theirs in another order)."""
    rows = []
    for name in ours.names:
        base = "exact-rows" if name.endswith("-rows") else "exact"
        if base not in ours.names or name == base:
            continue
        pairs = [ours.by_seed(name, base, n) for n in ours.lengths]
        if pairs[0]:
            rows.append([f"{name} ({len(pairs[0])})", *map(signed, pairs)])
    heads = ["PPL less that of exact ALiBi with the same seed", *(k(n) for n in ours.lengths)]
    return ["", *markdown(heads, rows)] if rows else []


def numbers(ours, theirs):
    deviations = ", ".join(f"{ours.deviation(n):.3f} at {k(n)}" for n in ours.lengths)
    unit = (f"Differences are in standard deviations of a difference of two runs: √2 times the root mean square of the attentions' own ({deviations})."
            if ours.deviation(ours.lengths[0]) else
            "Single runs: our differences are in perplexity, the published ones in standard deviations of a difference of two runs.")
    return ["Mean ± standard deviation over the seeds (their number in brackets).", "",
            *both(ours, theirs, "ppl", "PPL"), "", *both(ours, theirs, "acc", "Acc, percent"), "",
            unit, "", *orderings(ours, theirs), *against_exact(ours), "", "![perplexity against the context](plot.svg)"]


def summary(ours):
    """For plsh report, but for the line with its day."""
    columns = list(itertools.product(ours.lengths, ("ppl", "acc")))
    lines = ["\t".join(["name", "seeds", *(f"{what}_{n}{end}" for n, what in columns for end in ("", "_std"))])]
    for name in ours.names:
        cells = [ours.cells[name, n, what] for n, what in columns]
        lines.append("\t".join([name, str(ours.seeds[name]), *(f"{mean:.4f}\t" + ("-" if std is None else f"{std:.4f}") for mean, std in cells)]))
    return "\n".join(lines) + "\n"


def plot(folder, ours):
    if shutil.which("gnuplot") is None:
        return print("no gnuplot here: plot.svg is left as it is")
    names = [name for name in ours.names if ours.seeds[name] > 1] or ours.names
    blocks = []
    for name in names:
        blocks += [f'"{name}"'] + [f"{n}\t{ours.mean(name, n)}\t{ours.cells[name, n, 'ppl'][1] or 0}" for n in ours.lengths] + ["", ""]
    data = folder / "plot.dat"
    data.write_text("\n".join(blocks), encoding="utf-8")
    subprocess.run(["gnuplot", "-c", str(here / "compare.gp"), str(folder), str(len(names))], check=True)
    data.unlink()


def between_marks(path, begin, end, lines):
    """The text of the file as it is, and as it should be with these lines between its two marks."""
    text = path.read_text(encoding="utf-8") if path.exists() else f"# {path.resolve().parent.name}\n\n{begin}\n{end}\n"
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit(f"{path} has not the two marks, once each: {begin} and {end}")
    return text, text.split(begin)[0] + "\n".join([begin, "", *lines, "", end]) + text.split(end)[1]


def main():
    check = sys.argv[1:2] == ["--check"]
    if len(sys.argv) != 2 + check:
        return sys.exit(__doc__)
    folder = Path(sys.argv[-1])
    ours, theirs = Table(read(folder / "runs.tsv")), Table(read(folder / "published.tsv"))
    result = folder / "RESULT.md"
    text, wanted = between_marks(result, BEGIN, END, numbers(ours, theirs))
    path = folder / "summary.tsv"
    stale = not path.exists() or path.read_text(encoding="utf-8").split("\n", 1)[1] != summary(ours)
    if check:
        return sys.exit(f"{folder}: RESULT.md and summary.tsv do not follow from runs.tsv: run {sys.argv[0]} {folder}" if stale or text != wanted else 0)
    result.write_text(wanted, encoding="utf-8")
    if stale:
        path.write_text(f"# recorded {datetime.date.today()}\n{summary(ours)}", encoding="utf-8")
    plot(folder, ours)


if __name__ == "__main__":
    main()
