"""Means over heads and repetitions, and the slopes of the curves, from data/*.tsv."""
import datetime
import math
from collections import defaultdict
from pathlib import Path

here = Path(__file__).parent
out = open(here / "summary.tsv", "w")
out.write("# ||T* - T~*||_max over heads and repetitions: log10 of mean, mean - std, mean + std\n")
out.write(f"# recorded {datetime.date.today()}\n")
out.write("run\tdesign\tsigma\tsamples\tlog10_mean\tlog10_low\tlog10_high\n")
slopes = open(here / "slopes.tsv", "w")
slopes.write("# log-log slope of the mean over heads, from s = 10 on and from s = 1000 on: mean over\n")
slopes.write("# repetitions and its standard error\n")
slopes.write("run\tdesign\tsigma\tfrom\tslope\terror\n")


def fit(points):
    n = len(points)
    x = [math.log10(s) for s, _ in points]
    y = [math.log10(e) for _, e in points]
    mx, my = sum(x) / n, sum(y) / n
    return sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)


def moments_of(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / max(1, len(values) - 1))


for path in sorted((here / "data").glob("*.tsv")):
    run, design = path.stem.rsplit("-", 1)
    cells = defaultdict(list)
    per_rep = defaultdict(lambda: defaultdict(list))
    for line in path.read_text().splitlines()[1:]:
        sigma, samples, rep, _, error = line.split("\t")
        cells[int(sigma), int(samples)].append(float(error))
        per_rep[int(sigma), int(rep)][int(samples)].append(float(error))
    for (sigma, samples), errors in sorted(cells.items()):
        mean, std = moments_of(errors)
        low = math.log10(mean - std) if mean > std else float("nan")
        out.write(f"{run}\t{design}\t{sigma}\t{samples}\t{math.log10(mean):.3f}\t{low:.3f}\t"
                  f"{math.log10(mean + std):.3f}\n")
    for start in (10, 1000):
        everything = []
        for sigma in sorted({s for s, _ in per_rep}):
            curves = [[(s, sum(e) / len(e)) for s, e in sorted(cell.items()) if s >= start]
                      for (x, _), cell in per_rep.items() if x == sigma]
            fits = [fit(curve) for curve in curves if len(curve) > 1]
            if not fits:
                continue
            mean, std = moments_of(fits)
            everything += fits
            slopes.write(f"{run}\t{design}\t{sigma}\t{start}\t{mean:.3f}\t{std / math.sqrt(len(fits)):.3f}\n")
        if everything:
            mean, std = moments_of(everything)
            slopes.write(f"{run}\t{design}\tall\t{start}\t{mean:.3f}\t{std / math.sqrt(len(everything)):.3f}\n")
