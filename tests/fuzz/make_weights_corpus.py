#!/usr/bin/env python3
"""Writes the seed corpora of fuzz_safetensors, fuzz_gguf, fuzz_gguf_tokenizer, fuzz_pickle and fuzz_config: small files with every type.
Usage: tests/fuzz/make_weights_corpus.py"""
import io
import json
import struct
import zipfile
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"


def save(folder: str, name: str, data: bytes) -> None:
    (CORPUS / folder).mkdir(parents=True, exist_ok=True)
    (CORPUS / folder / name).write_bytes(data)


# ---- safetensors

WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


def safetensors(tensors: dict, metadata: dict | None = None) -> bytes:
    header, at = ({"__metadata__": metadata} if metadata else {}), 0
    for name, (dtype, shape) in tensors.items():
        size = WIDTHS[dtype]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(i % 251 for i in range(at))


save("safetensors", "empty", safetensors({}))
save("safetensors", "one", safetensors({"a": ("F32", [2, 3])}))
save("safetensors", "types", safetensors({t: (t, [1, 2]) for t in WIDTHS}, {"format": "pt"}))
save("safetensors", "shapes", safetensors({"s": ("F32", []), "z": ("F16", [0, 4]), "r": ("U8", [1] * 8)}))
save("safetensors", "overlap", safetensors({"a": ("F32", [2])}).replace(b"[0, 8]", b"[4,12]"))
save("safetensors", "huge", struct.pack("<Q", 1 << 62) + b"{}")

# ---- pickles of torch.save. Byte 0 of a seed: 1: a pickle, around which the target makes an archive; 0: a whole file

def storage(kind: bytes, key: bytes, numbers: int) -> bytes:
    return (b"(X\7\0\0\0storagectorch\n" + kind + b"Storage\nX\1\0\0\0" + key + b"X\3\0\0\0cpuK" + bytes([numbers])
            + b"tQ")


def tensor(where: bytes, sizes: list, strides: list, offset: int = 0) -> bytes:
    def numbers(of: list) -> bytes:
        return b"(" + b"".join(b"K" + bytes([n]) for n in of) + b"t"
    return (b"ctorch._utils\n_rebuild_tensor_v2\n(" + where + b"K" + bytes([offset]) + numbers(sizes) + numbers(strides)
            + b"\x89ccollections\nOrderedDict\n)RtR")


def text(value: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value


FLOATS, BFLOATS = storage(b"Float", b"0", 6), storage(b"BFloat16", b"1", 4)
PICKLES = {
    "empty": b"\x80\2}.",
    "tensors": b"\x80\2ccollections\nOrderedDict\n)Rq\0(" + text(b"w") + tensor(FLOATS, [2, 3], [3, 1])
               + text(b"b") + tensor(BFLOATS, [4], [1]) + b"u}" + text(b"_metadata") + b"}" + text(b"version") + b"K\1ssb.",
    "shared": b"\x80\2}(" + text(b"v") + tensor(FLOATS + b"q\0", [2], [1], 4) + text(b"w")
              + tensor(b"h\0", [6], [1]) + text(b"s") + tensor(b"h\0", [], []) + b"u.",
    "parameter": b"\x80\2}" + text(b"w") + b"ctorch._utils\n_rebuild_parameter\n" + tensor(FLOATS, [6], [1])
                 + b"\x88}\x87Rs.",
    "strides": b"\x80\2}" + text(b"w") + tensor(FLOATS, [3, 2], [1, 3]) + b"s.",
    "long": b"\x80\2}" + text(b"w") + b"\x8a\10\0\0\0\0\0\0\0\x40J\xff\xff\xff\xffM\1\2NK\1\x88\x89\x87\x86\x85s.",
    "system": b"\x80\2cos\nsystem\n" + text(b"true") + b"\x85R.",
    "bomb": b"\x80\2)q\0" + b"".join(b"h" + bytes([i]) * 1 + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(99)) + b".",
    "key": b"\x80\2}\x8a\10\0\0\0\0\0\0\0\xff" + b"J\xff\xff\xff\x40\x85s.",
    "itself": b"\x80\2}q\0" + text(b"self") + b"h\0s.",
}
for name, pickle in PICKLES.items():
    save("pickle", name, b"\1" + pickle)


def archive(pickle: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as out:
        for entry, data in {"m/data.pkl": pickle, "m/byteorder": b"little", "m/data/1": bytes(8)}.items():
            out.writestr(zipfile.ZipInfo(entry), data)
    return buffer.getvalue()


save("pickle", "archive", b"\0" + archive(b"\x80\2}" + text(b"b") + tensor(BFLOATS, [4], [1]) + b"s."))
save("pickle", "old", b"\0\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")

# ---- GGUF

TYPES = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
         10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 20: (32, 18),
         23: (256, 136), 26: (1, 4), 30: (1, 2)}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(kind: int, what) -> bytes:
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    if kind == 8:
        return text(what)
    if kind == 9:
        return struct.pack("<IQ", what[0], len(what[1])) + b"".join(value(what[0], x) for x in what[1])
    return struct.pack("<" + formats[kind], what)


def gguf(version: int, metadata: list, tensors: list, alignment: int = 32) -> bytes:
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, kind, what in metadata:
        out += text(key) + struct.pack("<I", kind) + value(kind, what)
    data = b""
    for name, kind, shape in tensors:
        block, size = TYPES[kind]
        for extent in shape:
            size *= extent
        out += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", x) for x in shape)
        out += struct.pack("<IQ", kind, len(data))
        data += bytes(i % 251 for i in range(size // block))
        data += b"\0" * (-len(data) % alignment)
    return out + b"\0" * (-len(out) % alignment) + data


LLAMA = [("general.architecture", 8, "llama"), ("llama.block_count", 4, 1), ("llama.context_length", 4, 64),
         ("llama.embedding_length", 4, 32), ("llama.feed_forward_length", 4, 32),
         ("llama.attention.head_count", 4, 2), ("llama.attention.head_count_kv", 4, 1),
         ("llama.attention.layer_norm_rms_epsilon", 6, 1e-5), ("llama.rope.freq_base", 6, 10000.0),
         ("llama.rope.scaling.type", 8, "linear"), ("llama.rope.scaling.factor", 6, 2.0)]
EVERY = [(f"k{kind}", kind, 1) for kind in (0, 1, 2, 3, 4, 5, 6, 10, 11, 12)] + [
    ("k7", 7, True), ("words", 9, (8, ["a", "", "bc"])), ("bytes", 9, (0, [1, 2, 3])), ("floats", 9, (6, [0.5])),
    ("none", 9, (4, []))]

save("gguf", "empty", gguf(3, [], []))
save("gguf", "metadata", gguf(2, EVERY, []))
save("gguf", "types", gguf(3, [], [(f"t{kind}", kind, [256, 2]) for kind in TYPES]))
save("gguf", "llama", gguf(3, LLAMA, [("token_embd.weight", 3, [32, 8]), ("output_norm.weight", 0, [32])]))
save("gguf", "aligned", gguf(3, [("general.alignment", 4, 64)], [("a", 0, [3]), ("b", 1, [5])], 64))
save("gguf", "cut", gguf(3, LLAMA, [("a", 0, [8])])[:-8])

TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "ab", "\u2581", "\u2581a", "1", "<0x41>"]
KINDS = [2, 3, 3, 1, 1, 1, 1, 1, 1, 6]
COMMON_TOKENS = [("tokenizer.ggml.tokens", 9, (8, TOKENS)), ("tokenizer.ggml.token_type", 9, (5, KINDS)),
                 ("tokenizer.ggml.bos_token_id", 4, 1), ("tokenizer.ggml.eos_token_id", 4, 2),
                 ("tokenizer.ggml.unknown_token_id", 4, 0), ("tokenizer.ggml.add_eos_token", 7, True)]
for model, more in {"gpt2": [("tokenizer.ggml.pre", 8, "smollm"), ("tokenizer.ggml.merges", 9, (8, ["a b"]))],
                    "llama": [("tokenizer.ggml.scores", 9, (6, [-float(i) for i in range(10)]))],
                    "bert": [("tokenizer.ggml.cls_token_id", 4, 1)]}.items():
    save("gguf_tokenizer", model, gguf(3, [("tokenizer.ggml.model", 8, model)] + COMMON_TOKENS + more, []))

# ---- config.json and adapter_config.json

COMMON = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
          "vocab_size": 320, "max_position_embeddings": 256}
CONFIGS = {
    "llama": {"model_type": "llama", **COMMON, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "hidden_act": "silu",
              "rope_theta": 1e4, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 128}},
    "mistral": {"model_type": "mistral", **COMMON, "sliding_window": 16, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
                "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}},
    "qwen3": {"model_type": "qwen3", **COMMON, "head_dim": 32, "num_key_value_heads": 2, "tie_word_embeddings": True},
    "bloom": {"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 320},
    "mpt": {"model_type": "mpt", "d_model": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 320, "max_seq_len": 256,
            "expansion_ratio": 4, "attn_config": {"alibi": True, "alibi_bias_max": 8}},
    "falcon": {"model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
               "vocab_size": 320, "alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
    "bert": {"model_type": "bert", **COMMON, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu"},
    "adapter": {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "use_rslora": True, "bias": "none", "rank_pattern": {},
                "target_modules": ["q_proj"]},
    "dora": {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "use_dora": True},
}
for name, config in CONFIGS.items():
    save("config", name, json.dumps(config).encode())
