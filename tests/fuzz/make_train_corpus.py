#!/usr/bin/env python3
"""Writes the seed corpora of fuzz_session, fuzz_checkpoint and fuzz_train_options.
Usage: tests/fuzz/make_train_corpus.py"""
import json
import struct
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"


def save(folder: str, name: str, data: bytes) -> None:
    (CORPUS / folder).mkdir(parents=True, exist_ok=True)
    (CORPUS / folder / name).write_bytes(data)


# ---- caches and sessions: flags, config, then length, swept, first positions, rows

PAGE = 64  # tokens in a page: first positions are multiples


def payload(length: int, kv_heads: int, width: int, first: int = 0, swept: int | None = None) -> bytes:
    """Keys and values of `width` bytes a row."""
    rows = bytes(i % 61 for i in range(2 * kv_heads * (length - first) * width))
    return struct.pack(f"<{2 + kv_heads}q", length, length if swept is None else swept, *[first] * kv_heads) + rows


def session(flags: int, length: int) -> bytes:
    layer = payload(length, 2, 16)  # BLOOM: 2 heads of 4 numbers
    return bytes([flags, 0]) + struct.pack("<H", len(layer)) + 2 * layer


for config in range(8):
    width = 16 if config < 4 else 8
    save("session", f"cache-{config}", bytes([0, config]) + payload(3, 1 if config % 2 else 2, width))
save("session", "cache-empty", bytes([0, 0]) + payload(0, 2, 16))
save("session", "cache-window", bytes([0, 2]) + payload(140, 2, 16, first=PAGE))
save("session", "cache-swept", bytes([0, 7]) + payload(140, 1, 8, first=PAGE, swept=137))
save("session", "cache-huge", bytes([0, 0]) + struct.pack("<4q", 2**62, 2**62, 0, 0))
save("session", "cache-digest", bytes([64, 0]) + payload(3, 2, 16))
save("session", "cache-raw", bytes([2, 0]) + b"PLSHKV01heads")
save("session", "session", session(1, 5))
save("session", "session-empty", session(1, 0))
save("session", "session-raw", bytes([3, 0]) + b"PLSHSES1" + struct.pack("<3Q", 1, 2**60, 7))
for bit in (4, 8, 16, 32, 64):
    save("session", f"session-wrong-{bit}", session(1 | bit, 2))

# ---- checkpoints and files of tokens

STATE = {"step": 2, "updates": 2, "window": 2, "skipped": 0, "in_a_row": 0, "log_bytes": 9, "settings": "lr=1"}


def state(flags: int = 0, **changed) -> bytes:
    return bytes([0, flags]) + json.dumps({**STATE, **changed}).encode()


save("checkpoint", "state", state())
save("checkpoint", "state-wrong", state(1))
save("checkpoint", "state-names", state(2, checksums={"../model/config.json": "0", "config.json": 1}))
save("checkpoint", "state-empty", bytes([0, 0]) + b"{}")
save("checkpoint", "state-text", bytes([0, 0]) + b"[1")
for key in ("step", "updates", "window", "skipped", "in_a_row", "log_bytes"):
    save("checkpoint", f"state-{key}", state(**{key: 2**63 - 1}))
save("checkpoint", "state-settings", state(settings="x" * 5000))
for kind in (1, 2):
    save("checkpoint", f"patch-{kind}-header", bytes([kind, 0]) + struct.pack("<I", 20) + b"zz")
    save("checkpoint", f"patch-{kind}-nan", bytes([kind, 0]) + struct.pack("<I4f", 8000, *[float("nan")] * 4))
    save("checkpoint", f"patch-{kind}-inf", bytes([kind, 0]) + struct.pack("<I8f", 9000, *[1e38] * 8))
    save("checkpoint", f"file-{kind}", bytes([kind + 2, 0]) + struct.pack("<Q", 2) + b"{}")
save("checkpoint", "tokens", bytes([5, 0]) + struct.pack("<9i", *range(1, 10)))
save("checkpoint", "tokens-negative", bytes([5, 0]) + struct.pack("<5i", 1, 2, -3, 4, 5))
save("checkpoint", "tokens-large", bytes([5, 0]) + struct.pack("<5i", 1, 2, 2**31 - 1, 4, 5))
save("checkpoint", "tokens-wrong", bytes([5, 1]) + struct.pack("<5i", 1, 2, 3, 4, 5))
save("checkpoint", "tokens-cut", bytes([5, 0]) + b"123")

# ---- options: a stream of bytes

# context, batch, attention_count, keep_draws, learn_slopes, recompute, seed, dropout, lora: rank, alpha, dropout, targets,
# threads, isa, adapter, micro_batches, 4 targets, whether they are given
PLAIN = [4, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0]
# original, drop_rope, head, head_count; method, eps, window, block, scheme, design, decay: kind, a, b, limit; samples, seed,
# labels, label_count
LAYERS = [0, 0, 1, 1, 1, 8, 3, 2, 1, 1, 0, 1, 0, 0, 3, 1, 0, 0]
# learning rate, weight decay, betas, eps, clip, matrices, accumulated, context, windows
UPDATE = [8, 0, 9, 13, 8, 1, 0, 1, 4, 2]
SCHEDULE = [1, 2, 20, 3]


def stream(**changed) -> list[int]:
    places = {"context": 0, "batch": 1, "count": 2, "keep": 3, "slopes": 4, "recompute": 5, "dropout": 7, "rank": 8,
              "alpha": 9, "targets": 11, "threads": 12, "given": 20}
    plain = list(PLAIN)
    for key, value in changed.items():
        plain[places[key]] = value
    return plain


def whole(plain: list[int], layer: list[int] = LAYERS) -> bytes:
    ids = [i % 32 for i in range(64)]
    return bytes(plain + 4 * layer + [1] + UPDATE + ids + SCHEDULE)


save("train_options", "plain", whole(PLAIN))
save("train_options", "lora", whole(stream(rank=2, alpha=1, targets=2, given=1)))
save("train_options", "targets-null", whole(stream(rank=2, targets=2, given=0)))
save("train_options", "dropout", whole(stream(dropout=7, recompute=1)))
save("train_options", "slopes", whole(stream(slopes=1)))
for method in range(9):
    save("train_options", f"method-{method}", whole(stream(count=1), [*LAYERS[:4], method, *LAYERS[5:]]))
for edge in range(200, 212):
    save("train_options", f"context-{edge}", whole(stream(context=edge)))
    save("train_options", f"batch-{edge}", whole(stream(batch=edge)))
    save("train_options", f"rank-{edge}", whole(stream(rank=edge)))
    save("train_options", f"threads-{edge}", whole(stream(threads=edge)))
save("train_options", "empty", b"")
