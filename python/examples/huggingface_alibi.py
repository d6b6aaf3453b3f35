"""BLOOM with plsh: its own logits, without an n x n array; saved, loaded, switched back."""

import tempfile

import torch
from transformers import AutoModelForCausalLM, BloomConfig, BloomForCausalLM

import plsh.hf

plsh.hf.register()
torch.manual_seed(0)
# With weights: AutoModelForCausalLM.from_pretrained(..., attn_implementation="plsh_exact").
model = BloomForCausalLM(BloomConfig(vocab_size=256, hidden_size=64, n_layer=2, n_head=8)).eval()
tokens = torch.randint(0, 256, (1, 500))
with torch.no_grad():
    own = model(tokens).logits
    plsh.hf.apply(model)  # a model that exists
    error = (model(tokens).logits - own).abs().max()
    print(f"plsh_exact: logits within {error:.1e} of the model's own")
    for samples in (16, 256):
        plsh.hf.apply(model, "plsh", samples=samples)
        error = (model(tokens).logits - own).abs().max()
        print(f"plsh_plsh, s = {samples}: within {error:.4f}")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)
    print("loaded with", loaded.config._attn_implementation, loaded.config.plsh["options"])
    plsh.hf.remove(model)
    assert torch.equal(model(tokens).logits, own)
