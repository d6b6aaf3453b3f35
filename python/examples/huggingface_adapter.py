"""A model of one's own on plsh: an encoder whose layers add ALiBi as an array [heads, n, n]."""

import time

import torch
from torch import nn

import plsh.hf

SLOPES = [0.5, 0.25, 0.0625, 0.00390625]


class Attention(nn.Module):
    """Symmetric ALiBi, as one writes it in torch."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.split(x)
        i = torch.arange(x.shape[1])
        bias = -torch.tensor(SLOPES)[:, None, None] * (i[:, None] - i).abs()
        o = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(o.transpose(1, 2).flatten(2))


@plsh.hf.adapter(Attention)
def attend_on_plsh(layer: Attention, attend: plsh.hf.Attend, x: torch.Tensor) -> torch.Tensor:
    o = attend(*layer.split(x), causal=False, slopes=SLOPES)
    return layer.out(o.transpose(1, 2).flatten(2))


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Attention(64, 4) for _ in range(2)))
    x = torch.randn(1, 1500, 64)
    with torch.no_grad():
        begun = time.perf_counter()
        own = model(x)
        plain = time.perf_counter() - begun
        plsh.hf.apply(model)
        begun = time.perf_counter()
        ours = model(x)
        taken = time.perf_counter() - begun
    print(f"{x.shape[1]} tokens: torch {plain * 1e3:.1f} ms, plsh {taken * 1e3:.1f} ms, "
          f"largest difference {float((ours - own).abs().max()):.1e}")
    model(x).square().mean().backward()
    print(f"gradient of the first projection: {float(model[0].qkv.weight.grad.norm()):.3f}")


if __name__ == "__main__":
    main()
