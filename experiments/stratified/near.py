#!/usr/bin/env python3
"""How the stratified design does entry by entry: the root mean square error of M~ at distance t, that
of independent draws (sqrt(k (1 - k) / s)) divided by that of stratified ones; and the same for
sum_t k(t) rms(t). usage: near.py PLSH > near.tsv"""
import os
import subprocess
import sys
import tempfile

import numpy as np

distances = (1, 2, 4, 8, 16)
print("scheme\tsigma\tsamples\tsets\t" + "\t".join(f"t{t}" for t in distances) + "\tweighted")
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "labels.npy")
    for scheme in ("binning", "integer"):
        for sigma in (2, 16, 64):
            for samples in (2, 5, 20, 64, 256, 1024):
                sets, n = max(30, min(400, 20000 // samples)), 5 * sigma + 40
                subprocess.run([sys.argv[1], "draw", "--n", str(n), "--sigma", str(sigma), "--heads",
                                str(sets), "--samples", str(samples), "--scheme", scheme, "--design",
                                "stratified", "--out", path, "--quiet"], check=True,
                               stdout=subprocess.DEVNULL)
                labels = np.load(path)
                t = np.arange(1, 5 * sigma + 20)
                k = np.exp(-t / sigma)
                rms = np.array([np.sqrt(np.mean(
                    ((labels[:, :, x:] == labels[:, :, :-x]).mean(axis=1) - np.exp(-x / sigma)) ** 2))
                    for x in t])
                iid = np.sqrt(k * (1 - k) / samples)
                ratio = [f"{iid[x - 1] / rms[x - 1]:.3f}" for x in distances]
                print(scheme, sigma, samples, sets, *ratio, f"{(k @ iid) / (k @ rms):.3f}", sep="\t",
                      flush=True)
