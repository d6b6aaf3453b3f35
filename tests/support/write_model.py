"""Writes a tiny language model with random weights as people have them: a folder with config.json,
model.safetensors and tokenizer.json (bytes as tokens), for transcripts of the command line.
Usage: write_model.py FOLDER [llama|baichuan|embedder|bert|classifier|reranker|dna]"""
import json
import random
import struct
import sys
from pathlib import Path

HIDDEN, LAYERS, HEADS, WIDE, VOCABULARY = 32, 2, 4, 64, 257


def bytes_as_characters() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in plain else next(others)) for b in range(256)]


def llama() -> tuple[dict, dict]:
    config = {
        "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": WIDE,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 2,
        "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "hidden_act": "silu", "max_position_embeddings": 2048,
    }
    tensors = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        tensors |= {
            at + "input_layernorm.weight": (HIDDEN,),
            at + "post_attention_layernorm.weight": (HIDDEN,),
            at + "self_attn.q_proj.weight": (HIDDEN, HIDDEN),
            at + "self_attn.k_proj.weight": (HIDDEN // 2, HIDDEN),
            at + "self_attn.v_proj.weight": (HIDDEN // 2, HIDDEN),
            at + "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
            at + "mlp.gate_proj.weight": (WIDE, HIDDEN),
            at + "mlp.up_proj.weight": (WIDE, HIDDEN),
            at + "mlp.down_proj.weight": (HIDDEN, WIDE),
        }
    return config, tensors


def embedder() -> tuple[dict, dict]:
    """A decoder as its class without a head saves it."""
    config, tensors = llama()
    return (config | {"tie_word_embeddings": False, "architectures": ["LlamaModel"], "bos_token_id": 256,
                      "eos_token_id": 256},
            {name.removeprefix("model."): shape for name, shape in tensors.items()})


def baichuan() -> tuple[dict, dict]:
    config, tensors = llama()
    for field in ("num_key_value_heads", "rope_theta", "max_position_embeddings"):
        del config[field]
    config |= {"model_type": "baichuan", "tie_word_embeddings": False}
    tensors = {name: shape for name, shape in tensors.items()
               if not any(part in name for part in (".q_proj.", ".k_proj.", ".v_proj."))}
    tensors |= {f"model.layers.{layer}.self_attn.W_pack.weight": (3 * HIDDEN, HIDDEN)
                for layer in range(LAYERS)}
    return config, tensors | {"lm_head.weight": (VOCABULARY, HIDDEN)}


def bert() -> tuple[dict, dict]:
    config = {
        "model_type": "bert", "hidden_size": HIDDEN, "intermediate_size": WIDE,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "vocab_size": VOCABULARY,
        "position_embedding_type": "alibi", "feed_forward_type": "geglu", "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    tensors = {
        "embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        "embeddings.LayerNorm.weight": (HIDDEN,), "embeddings.LayerNorm.bias": (HIDDEN,),
    }
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value",
                     "attention.output.dense"):
            tensors |= {at + name + ".weight": (HIDDEN, HIDDEN), at + name + ".bias": (HIDDEN,)}
        for name in ("attention.output.LayerNorm", "mlp.layernorm"):
            tensors |= {at + name + ".weight": (HIDDEN,), at + name + ".bias": (HIDDEN,)}
        tensors |= {at + "mlp.gated_layers.weight": (2 * WIDE, HIDDEN),
                    at + "mlp.wo.weight": (HIDDEN, WIDE), at + "mlp.wo.bias": (HIDDEN,)}
    return config, tensors


def with_classifier(labels: list[str]) -> tuple[dict, dict]:
    config, tensors = bert()
    config |= {"id2label": {str(i): label for i, label in enumerate(labels)}}
    tensors = {"bert." + name: shape for name, shape in tensors.items()}
    tensors |= {"bert.pooler.dense.weight": (HIDDEN, HIDDEN), "bert.pooler.dense.bias": (HIDDEN,),
                "classifier.weight": (len(labels), HIDDEN), "classifier.bias": (len(labels),)}
    return config, tensors


def dna() -> tuple[dict, dict]:
    """As DNABERT-2: no model_type, one Wqkv, a masked-LM head."""
    config, tensors = bert()
    for key in ("model_type", "position_embedding_type", "feed_forward_type"):
        del config[key]
    config |= {"alibi_starting_size": 512}
    tensors = {"bert." + name: shape for name, shape in tensors.items()
               if not any(part in name for part in (".query.", ".key.", ".value."))}
    for layer in range(LAYERS):
        at = f"bert.encoder.layer.{layer}.attention.self.Wqkv."
        tensors |= {at + "weight": (3 * HIDDEN, HIDDEN), at + "bias": (3 * HIDDEN,)}
    at = "cls.predictions.transform."
    tensors |= {at + "dense.weight": (HIDDEN, HIDDEN), at + "dense.bias": (HIDDEN,),
                at + "LayerNorm.weight": (HIDDEN,), at + "LayerNorm.bias": (HIDDEN,),
                "cls.predictions.decoder.bias": (VOCABULARY,)}
    return config, tensors


def write_tokenizer(folder: Path, kind: str) -> None:
    """Pairs as RoBERTa has them; pieces of DNA as DNABERT-2 has them."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    if kind == "reranker":
        tokenizer["post_processor"] = {"type": "RobertaProcessing", "sep": ["<end>", 256],
                                       "cls": ["<end>", 256], "trim_offsets": True,
                                       "add_prefix_space": False}
    if kind == "dna":
        names = ["[UNK]", "[CLS]", "[SEP]"]
        pieces = ["A", "C", "G", "T", "AC", "GT", "ACGT"]
        tokenizer["model"] = {"type": "BPE", "unk_token": "[UNK]",
                              "vocab": {t: i for i, t in enumerate(names + pieces)},
                              "merges": [["A", "C"], ["G", "T"], ["AC", "GT"]]}
        tokenizer["pre_tokenizer"], tokenizer["decoder"] = {"type": "Whitespace"}, None
        tokenizer["added_tokens"] = [tokenizer["added_tokens"][0] | {"id": i, "content": name}
                                     for i, name in enumerate(names)]
        around = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                  {"Sequence": {"id": "A", "type_id": 0}},
                  {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "single": around, "pair": [],
            "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]}
                               for i, t in enumerate(names)}}
    path.write_text(json.dumps(tokenizer))


def write(folder: Path, config: dict, tensors: dict) -> None:
    draw = random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    header, numbers, offset = {}, [], 0
    for name, shape in tensors.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        middle = 1.0 if len(shape) == 1 and "bias" not in name else 0.0
        values = [draw.gauss(middle, 0.2) for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": list(shape),
                        "data_offsets": [offset, offset + 4 * count]}
        numbers.append(struct.pack(f"<{count}f", *values))
        offset += 4 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(numbers))
    vocabulary = {c: i for i, c in enumerate(bytes_as_characters())}
    end = {"id": 256, "content": "<end>", "special": True, "normalized": False,
           "single_word": False, "lstrip": False, "rstrip": False}
    tokenizer = {
        "version": "1.0", "added_tokens": [end], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


if __name__ == "__main__":
    KIND = (sys.argv + ["llama"])[2]
    MAKE = {"llama": llama, "baichuan": baichuan, "embedder": embedder, "bert": bert, "dna": dna,
            "classifier": lambda: with_classifier(["bad", "fair", "good"]),
            "reranker": lambda: with_classifier(["score"])}
    write(Path(sys.argv[1]), *MAKE[KIND]())
    write_tokenizer(Path(sys.argv[1]), KIND)
