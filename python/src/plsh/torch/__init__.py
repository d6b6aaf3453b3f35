"""Attention on PyTorch tensors: a registered operator with gradients.

    >>> import torch, plsh.torch
    >>> q, k, v = (torch.randn(1, 8, 512, 64, requires_grad=True) for _ in range(3))
    >>> o = plsh.torch.attention(q, k, v)           # ALiBi, exact, causal
    >>> o.sum().backward()
    >>> q.grad.shape
    torch.Size([1, 8, 512, 64])

The operators are `torch.ops.plsh.attention` and `torch.ops.plsh.attention_backward`. They have
fake kernels, so torch.compile takes them into its graphs.
"""

from plsh._context_parallel import Traffic, context_parallel
from plsh._torch_cache import Cache
from plsh.torch import nn
from plsh.torch._attention import attention, merge, padding_spans, segment_spans
from plsh.torch._positions import forgetting_attention
from plsh.torch._drop_in import (
    flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func, scaled_dot_product_attention,
)
from plsh.torch.nn import AlibiAttention as ALiBiAttention

__all__ = ["ALiBiAttention", "Cache", "Traffic", "attention", "context_parallel",
           "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "forgetting_attention", "merge", "nn", "padding_spans",
           "scaled_dot_product_attention", "segment_spans"]
