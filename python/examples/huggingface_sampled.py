"""A Hugging Face model switched to sampled ALiBi: prefill, generation, and the error against s."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import plsh.hf

plsh.hf.register()
torch.manual_seed(0)
# With weights: AutoModelForCausalLM.from_pretrained(..., attn_implementation="plsh_plsh").
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=8, num_key_value_heads=4)).eval()

tokens = torch.randint(0, 256, (1, 300))
model.set_attn_implementation("plsh_exact")
exact = model(tokens).logits
model.set_attn_implementation("plsh_plsh")
for samples in (1, 20, 400):
    plsh.hf.configure(model, samples=samples)
    error = (model(tokens).logits - exact).abs().max()
    print(f"s = {samples:3d}: logits within {error:.4f} of exact ALiBi")
print("generated:", model.generate(tokens, max_new_tokens=8, do_sample=False)[0, -8:].tolist())
