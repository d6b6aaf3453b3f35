"""A small Forgetting Transformer, trained for some steps beside the same in plain torch.

Each head learns how fast it forgets: a gate f in (0, 1) per token, and the score of an earlier token
loses the log of every gate between. plsh.torch.forgetting_attention takes the arguments of the
authors' own function.
"""

import torch
from torch import Tensor, nn

import plsh.torch

WIDTH, HEADS, LETTERS = 32, 4, 11


def plain(q: Tensor, k: Tensor, v: Tensor, log_f: Tensor) -> Tensor:
    q, k, v, c = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), log_f.cumsum(1).transpose(1, 2)
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    bias = (c.unsqueeze(3) - c.unsqueeze(2)).masked_fill(later, -torch.inf)
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2)


class Forgetting(nn.Module):
    def __init__(self, attention: object) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = attention
        self.embed = nn.Embedding(LETTERS, WIDTH)
        self.qkv, self.gate = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, HEADS)
        self.out, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, LETTERS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        q, k, v = self.qkv(x).unflatten(2, (3, HEADS, -1)).unbind(2)
        log_f = nn.functional.logsigmoid(self.gate(x) + 2)
        o = self.attention(q, k, v, log_f)  # type: ignore[operator]
        return self.head(x + self.out(o.flatten(2)))


def train(attention: object, steps: int = 20) -> list[float]:
    model, losses = Forgetting(attention), []
    ids = (torch.arange(200) * 7 + torch.arange(4)[:, None] * 3) % LETTERS
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    ours, theirs = train(plsh.torch.forgetting_attention), train(plain)
    print(f"loss {ours[0]:.4f} -> {ours[-1]:.4f}; plain torch {theirs[0]:.4f} -> {theirs[-1]:.4f}")
    assert max(abs(x - y) for x, y in zip(ours, theirs)) < 1e-3 and ours[-1] < ours[0]
