"""A vision transformer over tiles of a slide, with a class token, biased by Euclidean distances.

Models of whole-slide images (TITAN and others) add -slope * |x_i - x_j| to the scores of two tiles.
As a mask that bias takes heads * n^2 floats; from positions it takes none. The model is compared with
plain torch: its output, and its weights after a step of training.
"""

import torch
from torch import Tensor, nn

import plsh.torch

WIDTH, HEADS = 48, 4


class Block(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x), positions=positions)
        return x + self.mlp(self.norms[1](x))


class Dense(plsh.torch.nn.AlibiAttention):
    """The same layer in plain torch, the bias as a mask of n^2 entries."""

    def forward(self, x: Tensor, spans: object = None, positions: object = None) -> Tensor:
        assert isinstance(positions, Tensor)
        q, k, v = self._parts(self.qkv(x))
        apart = (positions[:, None] - positions[None]).norm(dim=-1).nan_to_num(0.0)
        bias = -apart / torch.tensor(self.sigma)[:, None, None]
        o = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias.float())
        return self.out(o.transpose(1, 2).flatten(2))


class Slide(nn.Module):
    def __init__(self, attention: type[plsh.torch.nn.AlibiAttention]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.blocks = nn.ModuleList(Block(attention(WIDTH, HEADS, causal=False)) for _ in range(2))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, tiles: Tensor, positions: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(len(tiles), -1, -1), tiles], dim=1)
        nowhere = torch.full((1, positions.shape[1]), torch.nan)  # the class token sees all alike
        positions = torch.cat([nowhere, positions])
        for block in self.blocks:
            x = block(x, positions)
        return self.head(x[:, 0])


def main() -> None:
    grid = torch.cartesian_prod(torch.arange(20.0), torch.arange(25.0))
    positions = grid[torch.randperm(500, generator=torch.Generator().manual_seed(1))[:400]]  # a fifth missing
    tiles = torch.randn(2, 400, WIDTH, generator=torch.Generator().manual_seed(2))
    found = []
    for attention in (plsh.torch.nn.AlibiAttention, Dense):
        model = Slide(attention)
        step = torch.optim.SGD(model.parameters(), lr=0.1)
        logits = model(tiles, positions)
        nn.functional.cross_entropy(logits, torch.tensor([0, 2])).backward()
        step.step()
        found.append((logits.detach(), torch.cat([x.detach().flatten() for x in model.parameters()])))
    apart = [float((x - y).abs().max()) for x, y in zip(*found)]
    print(f"400 tiles: logits differ by {apart[0]:.1e}, weights after a step by {apart[1]:.1e}")
    assert max(apart) < 1e-4


if __name__ == "__main__":
    main()
