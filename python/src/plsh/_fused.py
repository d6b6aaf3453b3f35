"""q, k and v that lie in the rows of one tensor, as a fused projection leaves them.

Their gradients can be stored likewise. If autograd assembled them from three tensors, it would copy
and add them: at 4096 tokens of 16 heads it would write 400 MB instead of 50.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

Parts = Callable[[Tensor], Sequence[Tensor]]


def nothing_watches(*tensors: Tensor) -> bool:
    """Plain tensors, without a transform, mode or trace that needs the registered operator."""
    return (not torch.compiler.is_compiling() and all(type(x) is Tensor for x in tensors)
            and tensors[0].is_cpu and forward_ad._current_level < 0
            and not torch._C._len_torch_dispatch_stack()
            and not torch._C._functorch.maybe_current_level())


def find(parts: Sequence[Tensor]) -> Optional[tuple[int, int]]:
    """If the parts, [batch, heads, n, dim], are views that together fill rows of one storage without
    gaps: the offset of the first row in the storage, and the length of a row. Otherwise None."""
    first = parts[0]
    memory, width = first.untyped_storage().data_ptr(), first.stride(2)
    batch, _, rows, _ = first.shape
    for x in parts:
        if x.untyped_storage().data_ptr() != memory or x.dtype != first.dtype or \
                (x.shape[0], x.shape[2], x.stride(2), x.stride(3)) != (batch, rows, width, 1) or \
                (batch > 1 and x.stride(0) != rows * width):
            return None
    begin = min(x.storage_offset() for x in parts)
    end = 0
    for start, dim in sorted((x.storage_offset() - begin + head * x.stride(1), x.shape[3])
                             for x in parts for head in range(x.shape[1])):
        if start != end:
            return None
        end += dim
    return (int(begin), width) if end == width and batch * rows else None


def views(whole: Tensor, parts: Sequence[Tensor], begin: int) -> list[Tensor]:
    """Views of `whole`, a tensor of such rows, laid out as `parts`; `begin`: the offset from `find`."""
    return [whole.as_strided(x.shape, x.stride(), x.storage_offset() - begin) for x in parts]


def split(x: Tensor, parts: Parts) -> Sequence[Tensor]:
    """parts(x), views that fill x, [batch, n, width]. Gradients that fill such rows are not copied."""
    if torch.is_grad_enabled() and x.requires_grad and nothing_watches(x):
        return _Split.apply(x, parts)  # type: ignore[no-any-return, no-untyped-call]
    return parts(x)


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: Parts) -> tuple[Tensor, ...]:
        ctx.parts, ctx.shape = parts, x.shape
        ctx.set_materialize_grads(False)
        return tuple(parts(x))

    @staticmethod
    def backward(ctx: Any, *gradients: Optional[Tensor]) -> tuple[Optional[Tensor], None]:
        given = {n: x for n, x in enumerate(gradients) if x is not None}
        whole = _as_it_lies(list(given.values()), ctx.parts, ctx.shape) \
            if len(given) == len(gradients) and nothing_watches(*given.values()) else None
        return whole if whole is not None else _put_together(given, ctx.parts, ctx.shape), None


def _as_it_lies(gradients: list[Tensor], parts: Parts, shape: torch.Size) -> Optional[Tensor]:
    """The tensor of this shape that the gradients are views of, if there is one."""
    found = find(gradients)
    if found is None or found[1] != shape[2]:
        return None
    begin, width = found
    whole = gradients[0].as_strided(shape, (shape[1] * width, width, 1), begin)
    same = all(_where(x) == _where(y) for x, y in zip(parts(whole), gradients))
    return whole if same else None


def _put_together(given: dict[int, Tensor], parts: Parts, shape: torch.Size) -> Optional[Tensor]:
    """The gradient of the fused tensor from those of some parts, added up by autograd."""
    if not given:
        return None
    graph, gradients = torch.is_grad_enabled(), list(given.values())
    with torch.enable_grad():
        whole = gradients[0].new_zeros(shape).requires_grad_()
        made = parts(whole)
    (found,) = torch.autograd.grad([made[n] for n in given], whole, gradients, create_graph=graph)
    return found


def _where(x: Tensor) -> tuple[Any, ...]:
    return x.storage_offset(), x.shape, x.stride()
