"""The law of the spectral error, from the repetitions of plsh norms in a folder.

Prints a line per scheme, design, n, sigma and number of samples: mean, 99th of 100 and largest of
||L* - M~|| / coth(1/(2 sigma)); then a comment per scheme and design: the 99ths (the largest over sigma
and n) of stratified sets; of others c of c s^-1/2, above all of these.
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
    if design == "stratified" and scheme != "cuts":
        law = ", ".join(f"{error:.4g} at {s}" for s, error in sorted(points.items()))
    else:
        law = f"{max(error * math.sqrt(s) for s, error in points.items()):.2f} s^-0.5"
    print(f"# {scheme} {design}: {law}")
