"""Measured norms and bounds side by side, from the JSON and the repetitions of plsh norms in a folder:
a line per design, sigma, number of samples and norm."""
import collections
import csv
import json
import sys

print("design\tsigma\tsamples\tnorm\tmean\tlargest\tbound\tbound_mean\tpaper\tpaper_mean")


def cell(x):
    return "-" if x is None else f"{x:.5g}"


for design in ("iid", "stratified"):
    largest = collections.defaultdict(float)
    with open(f"{sys.argv[1]}/{design}.tsv") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            for norm in ("spectral", "max", "bmax"):
                key = float(row["sigma"]), int(row["samples"]), norm
                largest[key] = max(largest[key], float(row[norm]))
    for row in json.load(open(f"{sys.argv[1]}/{design}.json"))["rows"]:
        for norm in ("spectral", "max", "bmax"):
            print(design, f"{row['sigma']:g}", row["samples"], norm, cell(row.get(norm + "_mean")),
                  cell(largest[row["sigma"], row["samples"], norm]), cell(row["bound_" + norm]),
                  cell(row.get(f"bound_{norm}_expectation")), cell(row["paper_" + norm]),
                  cell(row.get(f"paper_{norm}_expectation")), sep="\t")
