"""Attention under the transforms of torch.func: grad, vjp, jacrev, vmap, and their compositions.

torch.func requires autograd functions with a separate setup_context, and a vmap rule. The rule moves
the dimension of vmap into the batch if one call can serve all its entries; otherwise it makes a call for
each entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from plsh.torch import _attention

# Places among the arguments: q, k, v, then the tensors of `_attention._COMMON`, then its numbers.
_ARRAYS = 3
_PARAMETERS, _SPANS, _QUERY_OFFSETS, _LABELS, _SEED = 0, 1, 2, 4, _attention._SEED


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        return _attention._forward(*map(_plain, inputs))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        q, k, v, *common = inputs
        ctx.numbers = common[_attention._TENSORS:]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, *output, *common[:_attention._TENSORS])

    @staticmethod
    def backward(ctx: Any, *gradients: Optional[Tensor]) -> Any:
        d_o, d_lse = gradients
        q, k, v, o, lse, *tensors = ctx.saved_tensors
        found: Sequence[Optional[Tensor]] = [None] * 4
        if d_lse is not None:
            raise NotImplementedError("plsh.torch.attention: the log-sum-exp has no gradient under "
                                      "torch.func; that of backward() it has")
        if d_o is not None:
            found = _Gradients.apply(d_o, q, k, v, o, lse, tensors[_PARAMETERS] is not None,  # type: ignore[no-untyped-call]
                                     *tensors, *ctx.numbers)
        d_parameters = found[3] if tensors[_PARAMETERS] is not None else None
        return (*found[:3], d_parameters, *[None] * (_attention._TENSORS - 1 + len(ctx.numbers)))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError("plsh.torch.attention: has no forward-mode derivative (jvp, "
                                  "jacfwd, linearize, hessian); grad, vjp and jacrev it has")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, tuple[int, int]]:
        size = info.batch_size
        if _folds(in_dims[_ARRAYS:], inputs[_ARRAYS:]):
            arrays = _folded(inputs[:_ARRAYS], in_dims, size)
            common = _repeated(inputs[_ARRAYS:], size)
            found = _Attention.apply(*arrays, *common)  # type: ignore[no-untyped-call]
            return tuple(x.unflatten(0, (size, -1)) for x in found), (0, 0)
        each = [_Attention.apply(*_entry(inputs, in_dims, n)) for n in range(size)]  # type: ignore[no-untyped-call]
        return tuple(torch.stack(x) for x in zip(*each)), (0, 0)


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        return _attention._backward(*map(_plain, inputs))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError("plsh.torch.attention: has first derivatives only; a second one "
                                  "(hessian, hvp, a gradient penalty) needs another attention")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        size, arrays = info.batch_size, 6
        if not inputs[arrays] and _folds(in_dims[arrays + 1:], inputs[arrays + 1:]):
            folded = _folded(inputs[:arrays], in_dims, size)
            common = _repeated(inputs[arrays + 1:], size)
            *found, nothing = _Gradients.apply(*folded, False, *common)  # type: ignore[no-untyped-call]
            return (*(x.unflatten(0, (size, -1)) for x in found), nothing), (0, 0, 0, None)
        each = [_Gradients.apply(*_entry(inputs, in_dims, n)) for n in range(size)]  # type: ignore[no-untyped-call]
        return tuple(torch.stack(x) for x in zip(*each)), (0,) * 4


def _plain(x: Any) -> Any:
    """Tensors of vmap may be repeated along a dimension; the library wants rows of their own."""
    if not isinstance(x, Tensor):
        return x
    return x.contiguous() if x.dim() == 4 and (0 in x.stride() or x.stride(3) != 1) else x


def _folds(dims: Sequence[Any], common: Sequence[Any]) -> bool:
    """Do the entries of vmap share everything but the arrays, and can they be a batch?"""
    return not any(isinstance(x, int) for x in dims) and common[_QUERY_OFFSETS] is None and \
        common[_SEED] is None


def _folded(arrays: Sequence[Any], dims: Sequence[Any], size: int) -> list[Tensor]:
    moved = [x.movedim(d, 0) if d is not None else x.expand(size, *x.shape)
             for x, d in zip(arrays, dims)]
    return [x.flatten(0, 1) for x in moved]


def _repeated(common: Sequence[Any], size: int) -> list[Any]:
    """The spans are those of each batch entry."""
    spans = common[_SPANS]
    repeated = None if spans is None else spans.repeat(size, *[1] * (spans.dim() - 1))
    return [*common[:_SPANS], repeated, *common[_SPANS + 1:]]


def _entry(inputs: Sequence[Any], dims: Sequence[Any], n: int) -> list[Any]:
    """The arguments of one entry; a dimension is an integer where there is one."""
    return [x.select(d, n) if isinstance(d, int) else x for x, d in zip(inputs, dims)]


def attend(inputs: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """What the operator gives, with the derivatives of torch.func."""
    o, lse = _Attention.apply(*inputs)  # type: ignore[no-untyped-call]
    return o, lse
