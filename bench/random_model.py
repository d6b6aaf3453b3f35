#!/usr/bin/env python3
"""Writes a GGUF file of random weights in 4 bits (Q4_1): a Llama of 7B parameters, or of another shape.

For tests of memory and speed, where the size of a model matters and its numbers do not. Uses a few megabytes of
memory for a file of any size: matrices are taken from a pool of random blocks. The tokenizer knows single bytes.
Usage: bench/random_model.py model.gguf [--layers 32] [--hidden 4096] [--intermediate 11008] [--heads 32]
       [--kv-heads 32] [--vocabulary 32000] [--context 4096] [--seed 1]"""
import argparse
import os
import random
import struct
from typing import BinaryIO

ALIGNMENT = 32
F32, Q4_1 = 0, 3
U32, I32, FLOAT, STRING, ARRAY = 4, 5, 6, 8, 9
POOL_BLOCKS = 1 << 17  # 2.6 MB


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key: str, kind: int, value) -> bytes:
    head = text(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + text(value)
    if kind == ARRAY:
        element, values = value
        body = b"".join(text(x) for x in values) if element == STRING else struct.pack(
            f"<{len(values)}{'f' if element == FLOAT else 'i'}", *values)
        return head + struct.pack("<IQ", element, len(values)) + body
    return head + struct.pack("<f" if kind == FLOAT else "<I", value)


def metadata(o: argparse.Namespace) -> list[bytes]:
    bytes_of = [f"<0x{b:02X}>" for b in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_of]
    tokens += [f"<unused{i}>" for i in range(o.vocabulary - len(tokens))]
    types = [2, 3, 3] + [6] * 256 + [5] * (o.vocabulary - 259)
    return [
        entry("general.architecture", STRING, "llama"),
        entry("general.name", STRING, "random"),
        entry("general.file_type", U32, 3),
        entry("general.quantization_version", U32, 2),
        entry("llama.block_count", U32, o.layers),
        entry("llama.context_length", U32, o.context),
        entry("llama.embedding_length", U32, o.hidden),
        entry("llama.feed_forward_length", U32, o.intermediate),
        entry("llama.attention.head_count", U32, o.heads),
        entry("llama.attention.head_count_kv", U32, o.kv_heads),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT, 1e-5),
        entry("llama.rope.freq_base", FLOAT, 10000.0),
        entry("llama.rope.dimension_count", U32, o.hidden // o.heads),
        entry("llama.vocab_size", U32, o.vocabulary),
        entry("tokenizer.ggml.model", STRING, "llama"),
        entry("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        entry("tokenizer.ggml.scores", ARRAY, (FLOAT, [0.0] * o.vocabulary)),
        entry("tokenizer.ggml.token_type", ARRAY, (I32, types)),
        entry("tokenizer.ggml.bos_token_id", U32, 1),
        entry("tokenizer.ggml.eos_token_id", U32, 2),
    ]


def tensors(o: argparse.Namespace) -> list[tuple[str, int, list[int]]]:
    """(name, type, dimensions, the fastest first)"""
    h, kv, f = o.hidden, o.hidden // o.heads * o.kv_heads, o.intermediate
    found = [("token_embd.weight", Q4_1, [h, o.vocabulary]), ("output_norm.weight", F32, [h]),
             ("output.weight", Q4_1, [h, o.vocabulary])]
    for layer in range(o.layers):
        for name, kind, shape in (("attn_norm", F32, [h]), ("attn_q", Q4_1, [h, h]), ("attn_k", Q4_1, [h, kv]),
                                  ("attn_v", Q4_1, [h, kv]), ("attn_output", Q4_1, [h, h]), ("ffn_norm", F32, [h]),
                                  ("ffn_gate", Q4_1, [h, f]), ("ffn_up", Q4_1, [h, f]), ("ffn_down", Q4_1, [f, h])):
            found.append((f"blk.{layer}.{name}.weight", kind, shape))
    return found


def size_of(kind: int, shape: list[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count * 4 if kind == F32 else count // 32 * 20


def random_pool(generator: random.Random) -> bytes:
    """Blocks x = d q + m with values around 0, of the size that layers of this width have."""
    blocks = bytearray()
    for _ in range(POOL_BLOCKS):
        d = generator.uniform(0.001, 0.005)
        blocks += struct.pack("<ee", d, -7.5 * d) + generator.randbytes(16)
    return bytes(blocks)


def write_blocks(file: BinaryIO, size: int, pool: bytes, generator: random.Random) -> None:
    while size > 0:
        begin = generator.randrange(POOL_BLOCKS // 2) * 20
        size -= file.write(pool[begin:begin + min(size, len(pool) - begin)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    for name, value in (("layers", 32), ("hidden", 4096), ("intermediate", 11008), ("heads", 32), ("kv-heads", 32),
                        ("vocabulary", 32000), ("context", 4096), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    if options.hidden % 32 or options.intermediate % 32 or options.hidden % options.heads or options.vocabulary < 259:
        parser.error("hidden and intermediate are multiples of 32, hidden of the heads; 259 tokens at least")
    generator = random.Random(options.seed)
    pool, listed, entries = random_pool(generator), tensors(options), metadata(options)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(entries)) + b"".join(entries)
    offset = 0
    for name, kind, shape in listed:
        header += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        offset += (size_of(kind, shape) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    with open(options.out + ".part", "wb") as file:
        file.write(header + b"\0" * (-len(header) % ALIGNMENT))
        for name, kind, shape in listed:
            size = size_of(kind, shape)
            if kind == F32:
                file.write(struct.pack("<f", 1.0) * (size // 4))
            else:
                write_blocks(file, size, pool, generator)
            file.write(b"\0" * (-size % ALIGNMENT))
    os.rename(options.out + ".part", options.out)
    print(f"{options.out}: {len(listed)} tensors, {os.path.getsize(options.out) / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
