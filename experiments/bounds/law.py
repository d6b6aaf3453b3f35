"""The law of the spectral error, from the repetitions of plsh norms in a folder.

Prints a line per scheme, design, n, sigma and number of samples: mean, 99th of 100 and largest of
||L* - M~|| / coth(1/(2 sigma)); then a comment per scheme and design: c and alpha of the line through
the logarithms of the 99ths (the largest over sigma and n), raised until none lies above it. The
slope of independent draws, and of cuts, is 1/2 and not fitted.
"""
import collections
import csv
import math
import pathlib
import sys

print("scheme\tdesign\tn\tsigma\tsamples\tmean\tp99\tmax")
worst = collections.defaultdict(dict)  # (scheme, design) -> {samples: p99}
for path in sorted(pathlib.Path(sys.argv[1]).glob("law-*.tsv")):
    _, scheme, design, n = path.stem.split("-")
    cells = collections.defaultdict(list)
    with open(path) as file:
        for row in csv.DictReader(file, delimiter="\t"):
            sigma = float(row["sigma"])
            cells[sigma, int(row["samples"])].append(
                float(row["spectral"]) * math.tanh(0.5 / sigma))
    for (sigma, samples), errors in sorted(cells.items()):
        errors.sort()
        p99 = errors[math.ceil(0.99 * len(errors)) - 1]
        print(scheme, design, n, f"{sigma:g}", samples, f"{sum(errors) / len(errors):.4g}",
              f"{p99:.4g}", f"{errors[-1]:.4g}", sep="\t")
        of = worst[scheme, design]
        of[samples] = max(of.get(samples, 0), p99)
for (scheme, design), points in sorted(worst.items()):
    x = [math.log(s) for s in points]
    y = [math.log(e) for e in points.values()]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    alpha = 0.5 if design == "iid" or scheme == "cuts" else -sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / sum(
        (a - mean_x) ** 2 for a in x)
    c = max(math.exp(b + alpha * a) for a, b in zip(x, y))
    print(f"# {scheme} {design}: {c:.2f} s^-{alpha:.3f}")
