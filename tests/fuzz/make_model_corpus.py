#!/usr/bin/env python3
"""Writes the seed corpora of fuzz_model, fuzz_convert and fuzz_model_options: tiny models of every family as lists of files (model_files.h).
Usage: tests/fuzz/make_model_corpus.py"""
import io
import json
import random
import struct
import zipfile
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"
NAMES = ["config.json", "model.safetensors", "model.safetensors.index.json", "m-1.safetensors", "m-2.safetensors",
         "model.gguf", "adapter/adapter_config.json", "adapter/adapter_model.safetensors", "tokenizer.json",
         "slopes.npy", "generation_config.json", "1_Pooling/config.json", "tokenizer_config.json",
         "m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "modules.json", "2_Dense/config.json",
         "2_Dense/model.safetensors", "sentence_bert_config.json", "config_sentence_transformers.json",
         "pytorch_model.bin", "chat_template.jinja"]
HIDDEN, HEADS, VOCABULARY = 8, 2, 4
CHAT = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
        "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def save(folder: str, name: str, data: bytes) -> None:
    (CORPUS / folder).mkdir(parents=True, exist_ok=True)
    (CORPUS / folder / name).write_bytes(data)


def container(files: dict) -> bytes:
    return b"".join(struct.pack("<BI", NAMES.index(name), len(data)) + data for name, data in files.items())


def count_of(shape: tuple) -> int:
    return shape[0] * (shape[1] if len(shape) == 2 else 1)


def safetensors(tensors: dict) -> bytes:
    header, at = {}, 0
    for name, shape in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + 4 * count_of(shape)]}
        at += 4 * count_of(shape)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + struct.pack(f"<{at // 4}f", *[i % 7 / 8 - 0.25 for i in range(at // 4)])


def torch_file(tensors: dict) -> bytes:
    """As torch.save writes it: an archive with the pickle of a dictionary of tensors, and their numbers."""
    def unicode(text: str) -> bytes:
        return b"X" + struct.pack("<I", len(text)) + text.encode()

    def numbers(of: list) -> bytes:
        return b"(" + b"".join(b"J" + struct.pack("<i", n) for n in of) + b"t"

    pickle, storages = b"\x80\2}(", {}
    for key, (name, shape) in enumerate(tensors.items()):
        strides = [shape[1], 1] if len(shape) == 2 else [1]
        pickle += (unicode(name) + b"ctorch._utils\n_rebuild_tensor_v2\n((" + unicode("storage")
                   + b"ctorch\nFloatStorage\n" + unicode(str(key)) + unicode("cpu") + b"J"
                   + struct.pack("<i", count_of(shape)) + b"tQK\0" + numbers(list(shape)) + numbers(strides)
                   + b"\x89ccollections\nOrderedDict\n)RtR")
        storages[f"m/data/{key}"] = struct.pack(f"<{count_of(shape)}f", *[i % 7 / 8 - 0.25 for i in range(count_of(shape))])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as out:
        for entry, data in ({"m/data.pkl": pickle + b"u.", "m/byteorder": b"little"} | storages).items():
            info = zipfile.ZipInfo(entry)
            padding = -(buffer.tell() + 34 + len(entry)) % 64  # 34: the entry's header, and that of its extra field
            info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
            out.writestr(info, data)
    return buffer.getvalue()


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def value(what) -> bytes:
    if isinstance(what, bool):
        return struct.pack("<I?", 7, what)
    if isinstance(what, str):
        return struct.pack("<I", 8) + string(what)
    if isinstance(what, float):
        return struct.pack("<If", 6, what)
    if isinstance(what, list):
        kind = {str: 8, float: 6, int: 5}[type(what[0])]
        each = [string(x) if kind == 8 else struct.pack("<f" if kind == 6 else "<i", x) for x in what]
        return struct.pack("<IIQ", 9, kind, len(what)) + b"".join(each)
    return struct.pack("<II", 4, what)


def gguf(metadata: dict, tensors: dict) -> bytes:
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, what in metadata.items():
        out += string(key) + value(what)
    at = 0
    for name, shape in tensors.items():
        out += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, at)
        at += -(-4 * count_of(shape) // 32) * 32
    out += b"\0" * (-len(out) % 32)
    for shape in tensors.values():
        data = struct.pack(f"<{count_of(shape)}f", *[i % 5 / 8 - 0.25 for i in range(count_of(shape))])
        out += data + b"\0" * (-len(data) % 32)
    return out


def llama(kind: str) -> tuple[dict, dict]:
    config = {"model_type": kind, "hidden_size": HIDDEN, "intermediate_size": 4, "num_hidden_layers": 1,
              "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": 4, "vocab_size": VOCABULARY,
              "tie_word_embeddings": True}
    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,),
               layer + "input_layernorm.weight": (HIDDEN,), layer + "post_attention_layernorm.weight": (HIDDEN,),
               layer + "self_attn.q_proj.weight": (8, HIDDEN), layer + "self_attn.k_proj.weight": (4, HIDDEN),
               layer + "self_attn.v_proj.weight": (4, HIDDEN), layer + "self_attn.o_proj.weight": (HIDDEN, 8),
               layer + "mlp.gate_proj.weight": (4, HIDDEN), layer + "mlp.up_proj.weight": (4, HIDDEN),
               layer + "mlp.down_proj.weight": (HIDDEN, 4)}
    if kind == "qwen2":
        tensors |= {f"{layer}self_attn.{name}_proj.bias": (rows,) for name, rows in (("q", 8), ("k", 4), ("v", 4))}
    if kind == "qwen3":
        tensors |= {layer + "self_attn.q_norm.weight": (4,), layer + "self_attn.k_norm.weight": (4,)}
    return config, tensors


def bloom() -> tuple[dict, dict]:
    config = {"model_type": "bloom", "hidden_size": HIDDEN, "n_layer": 1, "n_head": HEADS, "vocab_size": VOCABULARY}
    tensors = {"transformer.word_embeddings.weight": (VOCABULARY, HIDDEN)}
    for name in ("word_embeddings_layernorm", "ln_f", "h.0.input_layernorm", "h.0.post_attention_layernorm"):
        tensors |= {f"transformer.{name}.weight": (HIDDEN,), f"transformer.{name}.bias": (HIDDEN,)}
    for name, out, wide in (("self_attention.query_key_value", 24, 8), ("self_attention.dense", 8, 8),
                            ("mlp.dense_h_to_4h", 32, 8), ("mlp.dense_4h_to_h", 8, 32)):
        tensors |= {f"transformer.h.0.{name}.weight": (out, wide), f"transformer.h.0.{name}.bias": (out,)}
    return config, tensors


def mpt() -> tuple[dict, dict]:
    config = {"model_type": "mpt", "d_model": HIDDEN, "n_layers": 1, "n_heads": HEADS, "vocab_size": VOCABULARY}
    tensors = {"transformer.wte.weight": (VOCABULARY, HIDDEN)}
    for name in ("norm_f", "blocks.0.norm_1", "blocks.0.norm_2"):
        tensors[f"transformer.{name}.weight"] = (HIDDEN,)
    for name, out, wide in (("attn.Wqkv", 24, 8), ("attn.out_proj", 8, 8), ("ffn.up_proj", 32, 8), ("ffn.down_proj", 8, 32)):
        tensors[f"transformer.blocks.0.{name}.weight"] = (out, wide)
    return config, tensors


def mpt_foundry() -> tuple[dict, dict]:
    config, tensors = mpt()
    config |= {"no_bias": False, "logit_scale": "inv_sqrt_d_model", "expansion_ratio": 1.5,
               "attn_config": {"qk_ln": True, "clip_qkv": 2, "alibi_bias_max": 16, "softmax_scale": 0.2,
                               "attn_type": "grouped_query_attention", "kv_n_heads": 1}}
    tensors |= {"transformer.blocks.0.attn.Wqkv.weight": (16, 8), "transformer.blocks.0.ffn.up_proj.weight": (12, 8),
                "transformer.blocks.0.ffn.down_proj.weight": (8, 12), "transformer.blocks.0.attn.q_ln.weight": (8,),
                "transformer.blocks.0.attn.k_ln.weight": (4,)}
    for name, shape in list(tensors.items()):
        if "wte" not in name:
            tensors[name.replace(".weight", ".bias")] = (shape[0],)
    return config, tensors


def baichuan() -> tuple[dict, dict]:
    config, tensors = llama("baichuan")
    for field in ("num_key_value_heads", "head_dim", "tie_word_embeddings"):
        del config[field]
    tensors = {name: shape for name, shape in tensors.items() if not any(p in name for p in ("q_proj", "k_proj", "v_proj"))}
    return config, tensors | {"model.layers.0.self_attn.W_pack.weight": (24, HIDDEN), "lm_head.weight": (VOCABULARY, HIDDEN)}


def jais() -> tuple[dict, dict]:
    config = {"model_type": "jais", "n_embd": HIDDEN, "n_layer": 1, "n_head": HEADS, "n_inner": 4, "vocab_size": VOCABULARY,
              "position_embedding_type": "alibi", "activation_function": "swiglu", "mup_embeddings_scale": 2.0,
              "mup_output_alpha": 2.0, "mup_width_scale": 0.5, "mup_scale_qk_dot_by_d": True,
              "alibi_scaling": None}
    tensors = {"transformer.wte.weight": (VOCABULARY, HIDDEN), "transformer.relative_pe.slopes": (HEADS, 1)}
    for name in ("ln_f", "h.0.ln_1", "h.0.ln_2"):
        tensors |= {f"transformer.{name}.weight": (HIDDEN,), f"transformer.{name}.bias": (HIDDEN,)}
    for name, wide, out in (("attn.c_attn", 8, 24), ("attn.c_proj", 8, 8), ("mlp.c_fc", 8, 4), ("mlp.c_fc2", 8, 4),
                            ("mlp.c_proj", 4, 8)):
        tensors |= {f"transformer.h.0.{name}.weight": (wide, out), f"transformer.h.0.{name}.bias": (out,)}
    return config, tensors


def refact() -> tuple[dict, dict]:
    config = {"model_type": "gpt_refact", "n_embd": HIDDEN, "n_layer": 1, "n_head": HEADS, "vocab_size": VOCABULARY,
              "multi_query": True}
    at = "transformer.h.0."
    return config, {"transformer.wte.weight": (VOCABULARY, HIDDEN), "ln_f.weight": (HIDDEN,),
                    "lm_head.weight": (VOCABULARY, HIDDEN), at + "ln_1.weight": (HIDDEN,), at + "ln_2.weight": (HIDDEN,),
                    at + "attn.q.weight": (8, 8), at + "attn.kv.weight": (8, 8), at + "attn.c_proj.weight": (8, 8),
                    at + "mlp.gate_up_proj.weight": (6, 8), at + "mlp.c_proj.weight": (8, 3)}


def bert(jina: bool) -> tuple[dict, dict]:
    config = {"model_type": "bert", "hidden_size": HIDDEN, "intermediate_size": 4, "num_hidden_layers": 1,
              "num_attention_heads": HEADS, "vocab_size": VOCABULARY, "type_vocab_size": 1, "max_position_embeddings": 4}
    tensors = {"embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
               "embeddings.token_type_embeddings.weight": (1, HIDDEN)}
    linear = [("attention.self.query", 8, 8), ("attention.self.key", 8, 8), ("attention.self.value", 8, 8),
              ("attention.output.dense", 8, 8)]
    if jina:
        config |= {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}
        tensors["encoder.layer.0.mlp.gated_layers.weight"] = (8, HIDDEN)
        linear.append(("mlp.wo", 8, 4))
    else:
        tensors["embeddings.position_embeddings.weight"] = (4, HIDDEN)
        linear += [("intermediate.dense", 4, 8), ("output.dense", 8, 4)]
    for name, out, wide in linear:
        tensors |= {f"encoder.layer.0.{name}.weight": (out, wide), f"encoder.layer.0.{name}.bias": (out,)}
    for name in ("embeddings.LayerNorm", "encoder.layer.0.attention.output.LayerNorm",
                 "encoder.layer.0." + ("mlp.layernorm" if jina else "output.LayerNorm")):
        tensors |= {name + ".weight": (HIDDEN,), name + ".bias": (HIDDEN,)}
    return config, tensors


def with_head(kind: str) -> tuple[dict, dict]:
    """An encoder with the head of a masked LM, or a classifier of two labels."""
    config, tensors = bert(True)
    tensors = {"bert." + name: shape for name, shape in tensors.items()}
    if kind == "labels":
        config |= {"id2label": {"0": "bad", "1": "good"}, "problem_type": "single_label_classification"}
        return config, tensors | {"bert.pooler.dense.weight": (8, 8), "bert.pooler.dense.bias": (8,),
                                  "classifier.weight": (2, 8), "classifier.bias": (2,)}
    at = "cls.predictions."
    return config, tensors | {at + "transform.dense.weight": (8, 8), at + "transform.dense.bias": (8,),
                              at + "transform.LayerNorm.weight": (8,), at + "transform.LayerNorm.bias": (8,),
                              at + "bias": (VOCABULARY,)}


def folder(config: dict, tensors: dict) -> dict:
    return {"config.json": json.dumps(config).encode(), "model.safetensors": safetensors(tensors)}


def gguf_llama() -> tuple[dict, dict]:
    metadata = {"general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 8,
                "llama.embedding_length": HIDDEN, "llama.feed_forward_length": 4, "llama.attention.head_count": HEADS,
                "llama.attention.head_count_kv": 1, "llama.attention.key_length": 4,
                "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
                "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a"],
                "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0], "tokenizer.ggml.token_type": [2, 3, 3, 1],
                "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.add_bos_token": True}
    tensors = {"token_embd.weight": (VOCABULARY, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for name, shape in (("attn_norm", (HIDDEN,)), ("ffn_norm", (HIDDEN,)), ("attn_q", (8, 8)), ("attn_k", (4, 8)),
                        ("attn_v", (4, 8)), ("attn_output", (8, 8)), ("ffn_gate", (4, 8)), ("ffn_up", (4, 8)),
                        ("ffn_down", (8, 4))):
        tensors[f"blk.0.{name}.weight"] = shape
    return metadata, tensors


def gguf_other(architecture: str) -> tuple[dict, dict]:
    """Jais has q, k and v in one tensor, and biases; Baichuan and Refact have them apart."""
    metadata, tensors = gguf_llama()
    kv = {"jais": 2, "baichuan": 2, "refact": 1}[architecture]
    metadata = {key.replace("llama.", architecture + ".", 1): what for key, what in metadata.items()
                if "key_length" not in key and "freq_base" not in key}
    metadata |= {"general.architecture": architecture, "tokenizer.ggml.model": "llama",
                 architecture + ".attention.head_count_kv": kv}
    tensors |= {"output.weight": (VOCABULARY, HIDDEN), "blk.0.attn_k.weight": (4 * kv, 8), "blk.0.attn_v.weight": (4 * kv, 8)}
    if architecture != "jais":
        return metadata, tensors
    metadata = {key.replace("rms_", ""): what for key, what in metadata.items()} | {"jais.attention.max_alibi_bias": 8.0}
    tensors = {name: shape for name, shape in tensors.items() if not any(p in name for p in ("attn_q", "attn_k", "attn_v"))}
    tensors["blk.0.attn_qkv.weight"] = (24, 8)
    for name, shape in list(tensors.items()):
        if name not in ("token_embd.weight", "output.weight"):
            tensors[name.replace(".weight", ".bias")] = (shape[0],)
    return metadata, tensors


def split_gguf() -> dict:
    metadata, tensors = gguf_llama()
    names = list(tensors)
    parts = [names[:5], names[5:]]
    files = {}
    for i, part in enumerate(parts):
        own = {"split.no": i, "split.count": 2, "split.tensors.count": len(names)}
        files[f"m-0000{i + 1}-of-00002.gguf"] = gguf((metadata if i == 0 else {}) | own, {n: tensors[n] for n in part})
    return files


def indexed() -> dict:
    config, tensors = llama("llama")
    names = list(tensors)
    parts = {"m-1.safetensors": names[:4], "m-2.safetensors": names[4:]}
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    return {"config.json": json.dumps(config).encode(), "model.safetensors.index.json": json.dumps(index).encode()} | {
        file: safetensors({n: tensors[n] for n in part}) for file, part in parts.items()}


def adapted() -> dict:
    module = "base_model.model.model.layers.0.self_attn.q_proj."
    return folder(*llama("llama")) | {
        "adapter/adapter_config.json": json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}).encode(),
        "adapter/adapter_model.safetensors": safetensors({module + "lora_A.weight": (2, 8), module + "lora_B.weight": (8, 2)})}


def tokenizer() -> bytes:
    return json.dumps({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "ByteLevel",
                       "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, "post_processor": None,
                       "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                       "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": ["a b"]}}).encode()


def sentence(dtype: str) -> dict:
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense", "Normalize": "3_Normalize"}
    modules = [{"type": "sentence_transformers.models." + kind, "path": place} for kind, place in kinds.items()]
    dense = {"in_features": HIDDEN, "out_features": 3, "activation_function": "torch.nn.modules.activation.Tanh"}
    weights = safetensors({"linear.weight": (3, HIDDEN), "linear.bias": (3,)})
    return folder(*bert(False)) | {
        "modules.json": json.dumps(modules).encode(), "1_Pooling/config.json": b'{"pooling_mode": "mean"}',
        "2_Dense/config.json": json.dumps(dense).encode(),
        "2_Dense/model.safetensors": weights.replace(b'"F32"', f'"{dtype}"'.encode()),
        "sentence_bert_config.json": b'{"max_seq_length": 4, "do_lower_case": true}',
        "config_sentence_transformers.json": b'{"prompts": {"q": "Q: "}, "default_prompt_name": "q", "truncate_dim": 2}'}


models = {"llama": folder(*llama("llama")) | {"tokenizer.json": tokenizer(), "generation_config.json": b'{"eos_token_id": [1, 2]}'},
          "mistral": folder(*llama("mistral")), "qwen3": folder(*llama("qwen3")), "bloom": folder(*bloom()),
          "mpt": folder(*mpt()), "bert": folder(*bert(False)) | {"1_Pooling/config.json": b'{"pooling_mode_cls_token": true}'},
          "jina": folder(*bert(True)), "gguf": {"model.gguf": gguf(*gguf_llama())}, "split": split_gguf(),
          "qwen2": folder(*llama("qwen2")), "mpt-foundry": folder(*mpt_foundry()), "baichuan": folder(*baichuan()),
          "jais": folder(*jais()), "refact": folder(*refact()),
          **{"gguf-" + name: {"model.gguf": gguf(*gguf_other(name))} for name in ("baichuan", "jais", "refact")},
          "labels": folder(*with_head("labels")), "masked": folder(*with_head("masked")),
          "torch": {"config.json": json.dumps(llama("llama")[0]).encode(), "pytorch_model.bin": torch_file(llama("llama")[1])},
          "chat": folder(*llama("llama")) | {"tokenizer.json": tokenizer(), "chat_template.jinja": CHAT.encode()},
          "index": indexed(), "adapter": adapted(), "sentence": sentence("F32"), "sentence-i32": sentence("I32")}
for name, files in models.items():
    save("model", name, container(files))
    if name in ("qwen2", "mpt-foundry", "baichuan", "jais", "refact"):  # others: make_weights_corpus.py
        save("config", name, files["config.json"])
    for way in (1, 9) if not name.startswith("gguf") and name != "split" else (0, 2):  # f32 and q4_1 of a GGUF; f32 and f16 of a folder
        save("convert", f"{name}-{way}", bytes([way]) + container(files))
draw = random.Random(7)
save("model_options", "empty", b"")
for i in range(6):
    save("model_options", f"random{i}", bytes(draw.randrange(0, 160 if i < 3 else 256) for _ in range(400)))
