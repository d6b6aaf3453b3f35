"""ALiBi attention on NumPy arrays: exact, and sampled with a proven error bound."""

import numpy as np

import plsh

rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((8, 4096, 64), dtype=np.float32) for _ in range(3))

exact = plsh.attend(q, k, v, causal=True)  # sigma 2, 4, ..., 256: the standard series of 8 heads
sampled, bound = plsh.attention(q, k, v, causal=True, method="plsh", samples=64, certificate=True)

print(f"exact scored {exact.pairs / (8 * 4096 * 4097 / 2):.0%} of the pairs")
print(f"sampled: error {abs(sampled - exact.o).max():.3f}, certified {bound.max():.3f}")
