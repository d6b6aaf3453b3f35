"""Partitions of plsh in other kernels: FlexAttention, and any attention block by block."""

import torch
from torch.nn.attention.flex_attention import flex_attention

import plsh
import plsh.flex
import plsh.torch

torch.manual_seed(0)
n, samples, sigma = 200, 6, [4.0, 32.0]
q, k, v = (torch.randn(1, 2, n, 16) for _ in range(3))
wanted = plsh.torch.attention(q, k, v, sigma=sigma, method="plsh", samples=samples)

# FlexAttention, on any device; torch.compile(flex_attention) makes it fast.
partitions = [plsh.Partition(s, samples=samples, head=h) for h, s in enumerate(sigma)]
score, blocks = plsh.flex.sampled(partitions, n)
o = flex_attention(q, k, v, score_mod=score, block_mask=blocks)
print(f"FlexAttention: within {(o - wanted).abs().max():.1e}")

# The paper's reduction: a pass without bias for each draw, its blocks as packed sequences.
for h, partition in enumerate(partitions):
    outputs, lses = [], []
    for m in range(samples):
        edges = partition.cu_seqlens(n, m).tolist()
        o, lse = plsh.torch.attention(q[:, h:h + 1], k[:, h:h + 1], v[:, h:h + 1], method="none",
                                      query_offsets=edges, key_offsets=edges, return_lse=True)
        outputs.append(o)
        lses.append(lse)
    merged, _ = plsh.torch.merge(torch.stack(outputs), torch.stack(lses))
    print(f"head {h}: {samples} passes merged, within {(merged - wanted[:, h:h + 1]).abs().max():.1e}")
