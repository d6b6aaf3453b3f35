"""Makes tests/model/mpt: a small random MPT with the fields of llm-foundry that the reference data does not
have (RMSNorm, norms per head, a gated MLP, q, k and v apart, grouped keys, scales of scores and logits, a
bias on q, k, v alone, a width of heads of its own), with logits and gradients in float64 by plain torch.
Usage: tests/model/make_mpt.py        (needs torch)"""
import json
import math
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

FOLDER = Path(__file__).parent / "mpt"
D, HEADS, KV, DIM, LAYERS, WIDE, VOCABULARY, N = 20, 6, 2, 5, 2, 30, 57, 40
SCALE, BIAS_MAX, EPS = 0.3, 6, 1e-5
CONFIG = {
    "architectures": ["MPTForCausalLM"], "model_type": "mpt", "d_model": D, "n_heads": HEADS,
    "n_layers": LAYERS, "head_dim": DIM, "vocab_size": VOCABULARY, "max_seq_len": 128,
    "expansion_ratio": 1.5, "no_bias": True, "attention_bias": True, "norm_type": "rmsnorm",
    "norm_eps": EPS, "logit_scale": "inv_sqrt_d_model", "tie_word_embeddings": False,
    "ffn_config": {"ffn_type": "mptglu", "ffn_act_fn": {"name": "silu"}},
    "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": KV, "alibi": True,
                    "alibi_bias_max": BIAS_MAX, "qk_gn": True, "fused_qkv": False,
                    "softmax_scale": SCALE, "clip_qkv": 3.0, "attn_impl": "torch"},
}


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def slopes() -> torch.Tensor:
    """Of the next power of two: entries 2, 4, 6, .., then 1, 3, 5, .."""
    n = 2 ** math.ceil(math.log2(HEADS))
    series = [2.0 ** (-BIAS_MAX * (i + 1) / n) for i in range(n)]
    return torch.tensor((series[1::2] + series[::2])[:HEADS], dtype=torch.float64)


def shapes() -> dict[str, tuple[int, ...]]:
    out = {"transformer.wte.weight": (VOCABULARY, D), "lm_head.weight": (VOCABULARY, D),
           "transformer.norm_f.weight": (D,)}
    for layer in range(LAYERS):
        at = f"transformer.blocks.{layer}."
        out |= {at + "norm_1.weight": (D,), at + "norm_2.weight": (D,),
                at + "attn.q_ln.weight": (DIM,), at + "attn.k_ln.weight": (DIM,),
                at + "attn.out_proj.weight": (D, HEADS * DIM),
                at + "ffn.gate_proj.weight": (WIDE, D), at + "ffn.up_proj.weight": (WIDE, D),
                at + "ffn.down_proj.weight": (D, WIDE)}
        for name, rows in (("Wq", HEADS * DIM), ("Wk", KV * DIM), ("Wv", KV * DIM)):
            out |= {f"{at}attn.{name}.weight": (rows, D), f"{at}attn.{name}.bias": (rows,)}
    return out


def forward(w: dict[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    place = torch.arange(len(ids))
    distance = place[:, None] - place[None, :]
    bias = -slopes()[:, None, None] * distance
    bias = bias.masked_fill(distance < 0, -math.inf)
    x = w["transformer.wte.weight"][ids]
    for layer in range(LAYERS):
        at = f"transformer.blocks.{layer}."
        z = rms(x, w[at + "norm_1.weight"])
        q, k, v = ((z @ w[f"{at}attn.{p}.weight"].T + w[f"{at}attn.{p}.bias"]).clamp(-3.0, 3.0)
                   .reshape(len(ids), -1, DIM) for p in ("Wq", "Wk", "Wv"))
        q, k = rms(q, w[at + "attn.q_ln.weight"]), rms(k, w[at + "attn.k_ln.weight"])
        k, v = (t.repeat_interleave(HEADS // KV, dim=1) for t in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) * SCALE + bias
        o = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(len(ids), -1)
        x = x + o @ w[at + "attn.out_proj.weight"].T
        z = rms(x, w[at + "norm_2.weight"])
        gate = torch.nn.functional.silu(z @ w[at + "ffn.gate_proj.weight"].T)
        x = x + (gate * (z @ w[at + "ffn.up_proj.weight"].T)) @ w[at + "ffn.down_proj.weight"].T
    return rms(x, w["transformer.norm_f.weight"]) @ w["lm_head.weight"].T / math.sqrt(D)


def main() -> None:
    torch.manual_seed(5)
    weights = {name: torch.randn(shape) * 0.4 + (1.0 if "norm" in name or "_ln" in name else 0.0)
               for name, shape in shapes().items()}
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    save_file(weights, FOLDER / "model.safetensors")
    wide = {name: w.double().requires_grad_() for name, w in weights.items()}
    ids = torch.randint(0, VOCABULARY, (N,))
    logits = forward(wide, ids)
    loss = torch.nn.functional.cross_entropy(logits[:-1], ids[1:])
    loss.backward()
    np.save(FOLDER / "input_ids.npy", ids[None].numpy().astype(np.int32))
    np.save(FOLDER / "logits.npy", logits.detach()[None].numpy())
    save_file({name: w.grad.float() for name, w in wide.items()}, FOLDER / "grads.safetensors")
    for path in FOLDER.iterdir():
        path.chmod(0o644)
    print(f"loss {loss.item():.9f}, largest logit {logits.abs().max().item():.3f}")


main()
