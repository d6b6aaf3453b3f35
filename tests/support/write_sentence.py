"""Makes the folder of an encoder (write_model.py FOLDER bert) one of sentence-transformers: every
text between two special tokens, at most 12 tokens, a prompt, and the modules that are asked for.
Usage: write_sentence.py FOLDER POOLING old|new [dense] [norm] [normalize]
       write_sentence.py --check FOLDER TOKENS.npy TEXTS ROWS.npy
The second form computes the rows of TEXTS (tokens of each, comma separated) from the rows of their
tokens, and compares: what sentence_transformers 6.2 computes, module by module."""
import ast
import json
import math
import random
import struct
import sys
from pathlib import Path

HIDDEN, NARROW = 32, 6
OLD = "sentence_transformers.models."
NEW = {"Transformer": "sentence_transformers.base.modules.transformer.Transformer",
       "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
       "Dense": "sentence_transformers.base.modules.dense.Dense",
       "LayerNorm": "sentence_transformers.sentence_transformer.modules.layer_norm.LayerNorm",
       "Normalize": "sentence_transformers.base.modules.normalize.Normalize"}
FLAGS = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken",
         "mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens"}


def write_tensors(path: Path, tensors: dict[str, list[int]], draw: random.Random) -> None:
    header, numbers, offset = {}, b"", 0
    for name, shape in tensors.items():
        count = math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * count]}
        numbers += struct.pack(f"<{count}f", *(draw.gauss(0, 0.5) for _ in range(count)))
        offset += 4 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + numbers)


def write(folder: Path, pooling: str, form: str, others: list[str]) -> None:
    draw, modules, width = random.Random(11), [], HIDDEN

    def add(kind: str, place: str, config: dict | None) -> Path:
        modules.append({"idx": len(modules), "name": str(len(modules)), "path": place,
                        "type": NEW[kind] if form == "new" else OLD + kind})
        if config is not None:
            (folder / place).mkdir(exist_ok=True)
            (folder / place / "config.json").write_text(json.dumps(config))
        return folder / place

    add("Transformer", "", None)
    flags = {f"pooling_mode_{flag}": name == pooling for name, flag in FLAGS.items()}
    add("Pooling", "1_Pooling",
        {"embedding_dimension": HIDDEN, "pooling_mode": pooling, "include_prompt": True}
        if form == "new" else {"word_embedding_dimension": HIDDEN, **flags})
    for other in others:
        if other == "dense":
            place = add("Dense", f"{len(modules)}_Dense",
                        {"in_features": width, "out_features": NARROW, "bias": True,
                         "activation_function": "torch.nn.modules.activation.Tanh"})
            write_tensors(place / "model.safetensors",
                          {"linear.weight": [NARROW, width], "linear.bias": [NARROW]}, draw)
            width = NARROW
        elif other == "norm":
            place = add("LayerNorm", f"{len(modules)}_LayerNorm", {"dimension": width})
            write_tensors(place / "model.safetensors",
                          {"norm.weight": [width], "norm.bias": [width]}, draw)
        else:
            add("Normalize", f"{len(modules)}_Normalize", None)
    (folder / "modules.json").write_text(json.dumps(modules))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    end = {"SpecialToken": {"id": "<end>", "type_id": 0}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": [end, {"Sequence": {"id": "A", "type_id": 0}}, end],
        "pair": [], "special_tokens": {"<end>": {"id": "<end>", "ids": [256], "tokens": ["<end>"]}}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    if form == "new":
        (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 12}))
        (folder / "sentence_bert_config.json").write_text(json.dumps(
            {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings",
             "modality_config": {"text": {"method": "forward",
                                          "method_output_name": "last_hidden_state"}}}))
    else:
        (folder / "sentence_bert_config.json").write_text(
            json.dumps({"max_seq_length": 12, "do_lower_case": True}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(
        {"__version__": {}, "prompts": {"query": "Q: ", "document": ""},
         "default_prompt_name": None, "similarity_fn_name": "cosine"}))


# ---- what is right ----

def read_npy(path: str) -> list[list[float]]:
    data = Path(path).read_bytes()
    length = struct.unpack("<H", data[8:10])[0]
    rows, columns = ast.literal_eval(data[10:10 + length].decode())["shape"]
    values = struct.unpack(f"<{rows * columns}f", data[10 + length:])
    return [list(values[i * columns:(i + 1) * columns]) for i in range(rows)]


def read_tensors(path: Path) -> dict[str, list[float]]:
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    numbers = data[8 + length:]
    return {name: list(struct.unpack(f"<{(e - b) // 4}f", numbers[b:e]))
            for name, entry in json.loads(data[8:8 + length]).items()
            for b, e in [entry["data_offsets"]]}


def pool(pooling: str, rows: list[list[float]]) -> list[float]:
    n, columns = len(rows), list(zip(*rows))
    return {"cls": lambda: list(rows[0]), "lasttoken": lambda: list(rows[-1]),
            "max": lambda: [max(c) for c in columns],
            "mean": lambda: [math.fsum(c) / n for c in columns],
            "mean_sqrt_len_tokens": lambda: [math.fsum(c) / math.sqrt(n) for c in columns],
            "weightedmean": lambda: [math.fsum((t + 1) * x for t, x in enumerate(c)) /
                                     (n * (n + 1) / 2) for c in columns]}[pooling]()


def run(folder: Path, rows: list[list[float]]) -> list[float]:
    row: list[float] = []
    for module in json.loads((folder / "modules.json").read_text())[1:]:
        kind, place = module["type"].rsplit(".", 1)[1], folder / module["path"]
        if kind == "Pooling":
            config = json.loads((place / "config.json").read_text())
            row = pool(config.get("pooling_mode") or next(
                name for name, flag in FLAGS.items() if config[f"pooling_mode_{flag}"]), rows)
        elif kind == "Dense":
            tensors = read_tensors(place / "model.safetensors")
            weight, bias = tensors["linear.weight"], tensors["linear.bias"]
            row = [math.tanh(bias[o] + math.fsum(w * x for w, x in zip(
                weight[o * len(row):(o + 1) * len(row)], row))) for o in range(len(bias))]
        elif kind == "LayerNorm":
            tensors = read_tensors(place / "model.safetensors")
            mean = math.fsum(row) / len(row)
            root = math.sqrt(math.fsum((x - mean) ** 2 for x in row) / len(row) + 1e-5)
            row = [(x - mean) / root * w + b
                   for x, w, b in zip(row, tensors["norm.weight"], tensors["norm.bias"])]
        else:
            length = math.sqrt(math.fsum(x * x for x in row))
            row = [x / length for x in row]
    keep = json.loads((folder / "config_sentence_transformers.json").read_text()).get("truncate_dim")
    return row[:keep]


def check(folder: Path, tokens: str, texts: str, rows: str) -> None:
    hidden, got, at = read_npy(tokens), read_npy(rows), 0
    for number, count in enumerate(map(int, texts.split(","))):
        expected = run(folder, hidden[at:at + count])
        at += count
        assert len(expected) == len(got[number]), (len(expected), len(got[number]))
        worst = max(abs(x - y) for x, y in zip(expected, got[number]))
        assert worst < 1e-5, (number, worst)
    assert at == len(hidden) and len(got) == len(texts.split(",")), (at, len(hidden), len(got))


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        check(Path(sys.argv[2]), *sys.argv[3:])
    else:
        write(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
