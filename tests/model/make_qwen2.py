"""Makes tests/model/qwen2: a small random Qwen2 with the logits, the loss and the gradients that
transformers computes for it in float64. The reference data has no model with biases on q, k, v alone.
Usage: tests/model/make_qwen2.py        (needs torch and transformers)"""
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

FOLDER = Path(__file__).parent / "qwen2"
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 24,
    "intermediate_size": 36, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 61, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "use_sliding_window": False, "sliding_window": 4096,
    "max_window_layers": 28, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
    "torch_dtype": "float32", "use_cache": True,
}


def main() -> None:
    torch.manual_seed(11)
    model = Qwen2ForCausalLM(Qwen2Config(**CONFIG, attn_implementation="eager"))
    with torch.no_grad():
        for name, p in model.named_parameters():
            norm = name.endswith("norm.weight")
            p.copy_(torch.randn_like(p) * 0.3 + (1.0 if norm else 0.0))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    save_file(weights, FOLDER / "model.safetensors")
    model = model.double().train(False)
    ids = torch.randint(3, CONFIG["vocab_size"], (1, 40))
    logits = model(input_ids=ids).logits
    loss = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    loss.backward()
    np.save(FOLDER / "input_ids.npy", ids.numpy().astype(np.int32))
    np.save(FOLDER / "logits.npy", logits.detach().numpy())
    save_file({name: p.grad.float() for name, p in model.named_parameters()},
              FOLDER / "grads.safetensors")
    for path in FOLDER.iterdir():
        path.chmod(0o644)
    print(f"loss {loss.item():.9f}, largest logit {logits.abs().max().item():.3f}")


main()
