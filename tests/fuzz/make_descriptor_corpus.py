#!/usr/bin/env python3
"""Writes the seed corpora of fuzz_npy and fuzz_descriptor: small files of every type and version, and random numbers for every
descriptor. Usage: tests/fuzz/make_descriptor_corpus.py"""
import random
import struct
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"


def save(folder: str, name: str, data: bytes) -> None:
    (CORPUS / folder).mkdir(parents=True, exist_ok=True)
    (CORPUS / folder / name).write_bytes(data)


def npy(descr: str, shape: str, data: bytes, version: int = 1, order: str = "False") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    width = 2 if version == 1 else 4
    header += b" " * (-(len(header) + 7 + width) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(width, "little") + header + data


numbers = struct.pack("<6d", 0, -1.5, 1e300, float("nan"), float("inf"), 5e-324)
for descr, size in (("<f4", 4), ("<f8", 8), ("<f2", 2), ("<i4", 4), ("<i8", 8), ("|u1", 1), ("|i1", 1), ("|b1", 1), (">f4", 4)):
    save("npy", descr.strip("<>|") + ("-big" if descr[0] == ">" else ""), npy(descr, "(2, 3)", numbers[: 6 * size]))
for version in (1, 2, 3, 4):
    save("npy", f"version-{version}", npy("<f4", "(3,)", numbers[:12], version))
save("npy", "number", npy("<f8", "()", numbers[:8]))
save("npy", "empty", npy("<f4", "(0, 7)", b""))
save("npy", "many", npy("<f4", "(1,) * 9", numbers[:4]))
save("npy", "deep", npy("<f4", "(1, 1, 1, 1, 1, 1, 1, 2)", numbers[:8]))
save("npy", "huge", npy("<f4", "(4294967296, 4294967296)", numbers[:8]))
save("npy", "negative", npy("<f4", "(-2, -1)", numbers[:8]))
save("npy", "order", npy("<f4", "(2, 1)", numbers[:8], order="True"))
save("npy", "short", npy("<f4", "(4,)", numbers[:8]))
save("npy", "long-header", b"\x93NUMPY\x02\x00" + struct.pack("<I", 0xFFFFFFF0) + b"{'descr'")

draw = random.Random(1)
for what, name in enumerate(("decay", "partition", "plan-a", "plan-b", "plan-c", "cache-a", "cache-b", "cache-c")):
    for i in range(4):
        # Mostly small numbers, which make descriptors that are taken.
        body = bytes(draw.randrange(256) if draw.random() < 0.1 + 0.1 * i else draw.randrange(32) for _ in range(300))
        save("descriptor", f"{name}-{i}", bytes([what]) + body)
