"""Generation whose time per token does not grow with the text: plsh.hf.Cache."""

import time

import torch
from transformers import BloomConfig, BloomForCausalLM

import plsh.hf

torch.manual_seed(0)
model = BloomForCausalLM(BloomConfig(vocab_size=256, hidden_size=64, n_layer=2, n_head=8)).eval()
plsh.hf.apply(model, "window", window=256)
prompt = torch.randint(3, 256, (1, 40))
out = model.generate(prompt, max_new_tokens=8, do_sample=False)  # chooses a plsh.hf.Cache by itself
print("generated:", out[0, -8:].tolist())

with torch.no_grad():
    for n in (1000, 4000):  # a loop of one's own
        cache = plsh.hf.Cache()
        model(torch.randint(3, 256, (1, n)), past_key_values=cache, logits_to_keep=1)
        token, times = torch.tensor([[7]]), []
        for _ in range(20):
            start = time.perf_counter()
            token = model(token, past_key_values=cache).logits[:, -1:].argmax(-1)
            times.append(time.perf_counter() - start)
        print(f"after {n} tokens: {1e3 * sorted(times)[10]:.2f} ms for one more, "
              f"{cache.nbytes / 1e6:.2f} MB")
