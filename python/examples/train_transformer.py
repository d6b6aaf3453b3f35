"""Trains a tiny transformer twice, with plsh attention and with dense ALiBi, step by step alike."""

import torch
from torch import nn

import plsh.torch


class DenseALiBi(plsh.torch.ALiBiAttention):
    """The same layer by torch's own attention and an n x n bias."""

    def forward(self, x: torch.Tensor, spans: torch.Tensor | None = None) -> torch.Tensor:
        batch, n, _ = x.shape
        split = self.qkv(x).view(batch, n, -1, self.head_dim).transpose(1, 2)
        q, k, v = split.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        distance = torch.arange(n)[:, None] - torch.arange(n)[None]
        bias = -distance / torch.tensor(self.sigma)[:, None, None]
        bias = bias.masked_fill(distance < 0, float("-inf"))
        o = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(o.transpose(1, 2).reshape(batch, n, -1))


class Block(nn.Module):
    def __init__(self, width: int, attention: type[plsh.torch.ALiBiAttention]) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = attention(width, heads=4)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def train(attention: type[plsh.torch.ALiBiAttention], steps: int = 30) -> list[float]:
    """Losses of learning to count in steps that the text shows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(16, 32), Block(32, attention), Block(32, attention),
                          nn.Linear(32, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        start, step = torch.randint(0, 16, (8, 1)), torch.randint(1, 4, (8, 1))
        tokens = (start + step * torch.arange(70)) % 16
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    ours, dense = train(plsh.torch.ALiBiAttention), train(DenseALiBi)
    apart = max(abs(a - b) for a, b in zip(ours, dense))
    print(f"loss {ours[0]:.4f} to {ours[-1]:.4f}; at most {apart:.1e} from dense ALiBi")
    assert ours[-1] < 0.8 * ours[0] and apart < 1e-4
