"""JinaBERT v2 in torch, as its authors' code has it but with SDPA: the bias of all heads is one array
[heads, n, n], made once per call."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

LAYERS, HIDDEN, HEADS, WIDE, EPS = 4, 512, 8, 2048, 1e-12


def shapes(words: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (words, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN)}
    norms = ["embeddings.LayerNorm"]
    for i in range(LAYERS):
        at = f"encoder.layer.{i}."
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            found[f"{at}attention.{name}.weight"] = (HIDDEN, HIDDEN)
            found[f"{at}attention.{name}.bias"] = (HIDDEN,)
        found[f"{at}mlp.gated_layers.weight"] = (2 * WIDE, HIDDEN)
        found[f"{at}mlp.wo.weight"] = (HIDDEN, WIDE)
        found[f"{at}mlp.wo.bias"] = (HIDDEN,)
        norms += [f"{at}attention.output.LayerNorm", f"{at}mlp.layernorm"]
    for name in norms:
        found[f"{name}.weight"] = found[f"{name}.bias"] = (HIDDEN,)
    return found


def save_random(path: pathlib.Path, words: int) -> None:
    """A folder of random weights of the small model's shape."""
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=generator) * 0.02 for name, shape in shapes(words).items()}
    for name in weights:
        if "orm.weight" in name:
            weights[name] += 1.0
    path.mkdir(parents=True)
    save_file(weights, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps({
        "architectures": ["JinaBertForMaskedLM"], "model_type": "bert", "position_embedding_type": "alibi",
        "feed_forward_type": "geglu", "hidden_act": "gelu", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "intermediate_size": WIDE, "layer_norm_eps": EPS, "vocab_size": words,
        "type_vocab_size": 2, "max_position_embeddings": 8192, "emb_pooler": "mean"}), encoding="utf-8")


def load(path: pathlib.Path) -> Callable[[torch.Tensor], torch.Tensor]:
    """ids [1, n] to the mean of the last hidden states [1, hidden]."""
    w = load_file(path / "model.safetensors")

    def dense(name: str, x: torch.Tensor) -> torch.Tensor:
        return linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, (HIDDEN,), w[name + ".weight"], w[name + ".bias"], EPS)

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(1, -1, HEADS, HIDDEN // HEADS).transpose(1, 2)

    def run(ids: torch.Tensor) -> torch.Tensor:
        place = torch.arange(ids.shape[1], dtype=torch.float32)
        slopes = 2.0 ** -torch.arange(1, HEADS + 1, dtype=torch.float32)
        bias = -(place[:, None] - place).abs_() * slopes[:, None, None]
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
        x = norm("embeddings.LayerNorm", x)
        for i in range(LAYERS):
            at = f"encoder.layer.{i}."
            q, k, v = (heads(dense(f"{at}attention.self.{name}", x)) for name in ("query", "key", "value"))
            o = scaled_dot_product_attention(q, k, v, attn_mask=bias)
            o = o.transpose(1, 2).reshape(x.shape)
            x = norm(f"{at}attention.output.LayerNorm", dense(f"{at}attention.output.dense", o) + x)
            gate, up = dense(f"{at}mlp.gated_layers", x).split(WIDE, dim=-1)
            x = norm(f"{at}mlp.layernorm", dense(f"{at}mlp.wo", gelu(gate) * up) + x)
        return x.mean(1)
    return run
