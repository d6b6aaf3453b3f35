#!/usr/bin/env python3
"""Makes rope/: a tiny Llama with random weights, and its logits in transformers with each RoPE scaling.

    python3 tests/model/make_rope_cases.py tests/model/rope        (needs torch, transformers, safetensors)

model.safetensors has the weights, cases.json the configurations, expected.safetensors the logits [tokens, vocabulary]
of each in double precision: of the whole text at once, and, where a case has "prompt", of that many tokens at once and
the others one by one through transformers' cache. "float32_error" is the largest error of transformers in float32.
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

TOKENS = 40
BASE = {"model_type": "llama", "vocab_size": 24, "hidden_size": 32, "intermediate_size": 20, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 16,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
CASES = {
    "default": {},
    "yarn": {"rope_type": "yarn", "factor": 4.0},
    "yarn_fields": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 4.0, "beta_slow": 0.5, "attention_factor": 1.3,
                    "original_max_position_embeddings": 24, "truncate": False},
    "yarn_mscale": {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.3},
    "yarn_one": {"rope_type": "yarn", "factor": 1.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "dynamic_steps": {"rope_type": "dynamic", "factor": 2.0, "prompt": 22},
}


def compute(config: dict, weights: dict, prompt: int, dtype: torch.dtype) -> torch.Tensor:
    model = transformers.LlamaForCausalLM(transformers.AutoConfig.for_model(**config)).to(dtype).eval()
    model.load_state_dict(weights)
    with torch.no_grad():
        parts = [model(IDS[:, :prompt or TOKENS], use_cache=True)]
        for i in range(prompt or TOKENS, TOKENS):
            parts.append(model(IDS[:, i:i + 1], past_key_values=parts[-1].past_key_values, use_cache=True))
    return torch.cat([part.logits for part in parts], dim=1)[0].double()


def run(name: str, weights: dict) -> tuple[dict, torch.Tensor]:
    scaling = dict(CASES[name])
    prompt = scaling.pop("prompt", 0)
    config = {**BASE, "rope_theta": 10000.0, "rope_scaling": scaling or None}
    logits = compute(config, weights, prompt, torch.float64)
    error = float((compute(config, weights, prompt, torch.float32) - logits).abs().max())
    case = {"name": name, "config": config, "prompt": prompt, "float32_error": error}
    return case, logits.float().contiguous()


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    config = transformers.AutoConfig.for_model(**BASE)
    torch.manual_seed(3)
    weights = {name: torch.randn(value.shape) * (0.1 if value.dim() == 1 else 0.3) + (value.dim() == 1)
               for name, value in transformers.LlamaForCausalLM(config).state_dict().items()}
    made = [run(name, weights) for name in CASES]
    save_file(weights, out / "model.safetensors")
    save_file({"ids": IDS[0].int(), **{case["name"]: logits for case, logits in made}}, out / "expected.safetensors")
    (out / "cases.json").write_text(json.dumps([case for case, _ in made], indent=1) + "\n", encoding="utf-8")
    for case, logits in made:
        print(case["name"], case["float32_error"], "differs from default by", float((logits - made[0][1]).abs().max()))


IDS = torch.arange(TOKENS)[None] * 7 % 24
main()
