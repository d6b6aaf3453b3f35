"""Layers that a model author drops in.

    >>> import torch, plsh.torch.nn
    >>> layer = plsh.torch.nn.AlibiAttention(64, heads=4)
    >>> layer(torch.randn(3, 50, 64)).shape
    torch.Size([3, 50, 64])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn

from plsh import _fused
from plsh._attention import standard_sigmas
from plsh._plan import method_words
from plsh._torch_options import Integers, Numbers
from plsh.torch._attention import attention

__all__ = ["AlibiAttention"]


class AlibiAttention(nn.Module):
    """Multi-head self-attention with ALiBi in near-linear time, [batch, n, embed_dim] to the same.

    `learn_slopes` makes the slopes parameters (kept positive by their logarithm); the other
    options are those of :func:`plsh.torch.attention`, and checked when the layer is made; `dropout` of
    the weights is for training. With
    `positions` in the call, points in R^1 to R^3 (tiles of an image, times), the bias is of their
    Euclidean distances; a NaN is no position (a class token).

    >>> layer = AlibiAttention(64, heads=4, kv_heads=2)
    >>> layer(torch.randn(3, 50, 64)).shape
    torch.Size([3, 50, 64])
    """

    def __init__(self, embed_dim: int, heads: int, kv_heads: Optional[int] = None,
                 head_dim: Optional[int] = None, *, bias: bool = False, causal: bool = True,
                 sigma: Union[float, Sequence[float], None] = None, learn_slopes: bool = False,
                 scale: Optional[float] = None, method: Union[str, Sequence[str], None] = None,
                 eps: Optional[float] = None, window: Optional[Integers] = None,
                 block: Optional[Integers] = None, scheme: Optional[str] = None,
                 design: Optional[str] = None, samples: Optional[int] = None,
                 seed: Optional[int] = None, threads: Optional[int] = None,
                 dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads or heads
        if head_dim is None and embed_dim % heads:
            raise ValueError(f"heads={heads}: must divide embed_dim={embed_dim}, or give head_dim")
        self.head_dim = head_dim or embed_dim // heads
        self.causal, self.dropout = causal, dropout
        given = {
            "scale": scale, "method": method, "eps": eps, "window": window, "block": block,
            "scheme": scheme, "design": design, "samples": samples, "seed": seed,
            "threads": threads}
        self.options: dict[str, Any] = {name: x for name, x in given.items() if x is not None}
        if isinstance(sigma, (int, float)):
            sigma = [float(sigma)] * heads
        self.sigma = standard_sigmas(heads) if sigma is None else tuple(sigma)
        self.log_slopes: Optional[nn.Parameter] = None
        if learn_slopes:
            if method is not None and set(method_words(method)) <= {"none", "fixed"}:
                raise ValueError(f"learn_slopes=True: method={method!r} has no slopes to learn")
            self.log_slopes = nn.Parameter(-torch.tensor(self.sigma).log())
        self._check_options()
        width = (heads + 2 * self.kv_heads) * self.head_dim
        self.qkv = nn.Linear(embed_dim, width, bias=bias)
        self.out = nn.Linear(heads * self.head_dim, embed_dim, bias=bias)

    def _check_options(self) -> None:
        """A call without a batch entry checks all of them."""
        q = torch.empty(0, self.heads, 1, self.head_dim, device="cpu")
        k = torch.empty(0, self.kv_heads, 1, self.head_dim, device="cpu")
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            attention(q, k, k, sigma=self._sigma(), causal=self.causal, dropout=self.dropout, **self.options)

    def _sigma(self) -> Numbers:
        return self.sigma if self.log_slopes is None else (-self.log_slopes.double()).exp()

    def forward(self, x: Tensor, spans: Optional[Tensor] = None,
                positions: Optional[Tensor] = None) -> Tensor:
        """x is [batch, n, embed_dim]; `spans` and `positions` as in :func:`plsh.torch.attention`."""
        batch, rows, _ = x.shape
        q, k, v = _fused.split(self.qkv(x), self._parts)
        o = attention(q, k, v, sigma=self._sigma(), causal=self.causal, spans=spans,
                      positions=positions, dropout=self.dropout if self.training else 0.0, **self.options)
        out: Tensor = self.out(o.transpose(1, 2).reshape(batch, rows, -1))
        return out

    def _parts(self, fused: Tensor) -> Sequence[Tensor]:
        heads = fused.view(*fused.shape[:2], -1, self.head_dim).transpose(1, 2)
        return torch.split(heads, [self.heads, self.kv_heads, self.kv_heads], dim=1)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, kv_heads={self.kv_heads}, causal={self.causal}"
