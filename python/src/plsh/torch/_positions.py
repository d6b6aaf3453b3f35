"""Attention with positions that are points, and the Forgetting Transformer's attention."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Optional, Union

import numpy as np
import torch
from torch import Tensor

from plsh._options import as_count, as_number, as_scale, as_truth, check_used, heads_of
from plsh._plan import Settings
from plsh._positions import PointsCall, point_shape, radius_of
from plsh._torch_options import (
    TORCH_DTYPES, Decays, Offsets, as_integer, as_offsets, check_spans,
    describe, edges_of, floats_as, head_decays, new_outputs,
)

__all__ = ["PointOptions", "attend_points", "forgetting_attention"]


class PointOptions(NamedTuple):
    """The options of attention with positions, those that are no tensors of numbers."""

    words: tuple[str, ...]
    causal: bool
    scale: Optional[float]
    eps: Optional[float]
    window: Any  # a radius
    scheme: Optional[str]
    design: Optional[str]
    samples: Optional[int]
    seed: Optional[int]
    spans: Optional[Tensor]
    query_offsets: Optional[Offsets]
    key_offsets: Optional[Offsets]
    threads: Optional[int]


def _points(name: str, x: Any, q: Tensor, rows: int, what: str) -> Tensor:
    """Positions as [batch or 1, heads or 1, rows, dim]."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: is {type(x).__name__}, must be a torch tensor")
    if not x.is_floating_point():
        raise TypeError(f"{name}: {x.dtype}, must be floats; convert with {name}.float()")
    if x.device != q.device:
        raise ValueError(f"{name}: is on {x.device}, q is on {q.device}")
    return x.reshape(point_shape(name, x.shape, rows, what, q.shape[0], q.shape[1]))


def _call(q: Tensor, k: Tensor, v: Tensor, o: Tensor, keys_at: Tensor, queries_at: Optional[Tensor],
          numbers: tuple[float, ...], decays: Decays, given: PointOptions) -> PointsCall:
    arrays = [describe(name, x.shape, x.stride(), x.dtype) for name, x in zip("qkvo", (q, k, v, o))]
    edges, keys = ((), 0) if given.spans is None else edges_of(given.spans)
    if keys not in (0, k.shape[2]):
        raise ValueError(f"spans: {keys} keys in use; with positions k has no others, but {k.shape[2]} rows")
    if edges and len(edges) != q.shape[0]:
        raise ValueError(f"spans: of {len(edges)} batch entries, must be of {q.shape[0]}")
    offsets = [as_offsets(name, x) for name, x in (("query_offsets", given.query_offsets),
                                                   ("key_offsets", given.key_offsets))]
    first, second = (() if x is None else tuple(int(y) for y in x.tolist()) for x in offsets)
    settings = Settings(
        given.causal, as_scale(given.scale), TORCH_DTYPES[q.dtype],
        torch.get_num_threads() if given.threads is None else as_count("threads", given.threads), "", False,
        first, second, edges)
    options = heads_of(
        given.words, head_decays(decays.word, q.shape[1], numbers, decays.parameters is None),
        None if given.eps is None else as_number("eps", given.eps), (), (),
        "hyperplanes" if given.scheme is None else given.scheme, given.design,
        None if given.samples is None else as_integer("samples", given.samples), given.seed,
        radius_of(given.window))
    x, y = (None if t is None else np.ascontiguousarray(t.detach().to(torch.float32).numpy())
            for t in (keys_at, queries_at))
    assert x is not None
    return PointsCall((arrays[0], arrays[1], arrays[2], arrays[3]), settings, options, x, y)


class _Points(torch.autograd.Function):
    """Attention and its gradients by q, k, v, the parameters of the decays and the positions."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, parameters: Optional[Tensor], keys_at: Tensor,
                queries_at: Optional[Tensor], decays: Decays, given: PointOptions) -> tuple[Tensor, Tensor]:
        o, lse = new_outputs(q, k, v)
        numbers = tuple(decays.constants if parameters is None else parameters.reshape(-1).tolist())
        call = _call(q, k, v, o, keys_at, queries_at, numbers, decays, given)
        call.forward(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse.data_ptr(), 0,
                     q.element_size(), 4)
        ctx.call, ctx.kind = call, None if parameters is None else parameters.dim()
        ctx.shapes = keys_at, queries_at
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        q, k, v, o, lse = ctx.saved_tensors
        d_o = torch.empty_strided(o.shape, o.stride(), dtype=torch.float32).copy_(gradients[0])
        d_inputs = [floats_as(x) for x in (q, k, v)]
        decays = np.zeros((q.shape[1], 2)) if ctx.needs_input_grad[3] else None
        points = ctx.needs_input_grad[4] or ctx.needs_input_grad[5]
        found = ctx.call.backward(
            (q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse.data_ptr(), d_o.data_ptr()),
            (d_inputs[0].data_ptr(), d_inputs[1].data_ptr(), d_inputs[2].data_ptr()), decays, points,
            q.element_size())
        d_parameters = None if decays is None else torch.from_numpy(
            decays[:, 0].copy() if ctx.kind == 1 else decays)
        d_points = [None if d is None or x is None else _fold(torch.from_numpy(d), x)
                    for d, x in zip(found[:2], ctx.shapes)]
        return (*(d.to(x.dtype) for d, x in zip(d_inputs, (q, k, v))), d_parameters, *d_points, None, None)


def _fold(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient of x, which was repeated for batch entries or heads that share it."""
    summed = gradient.sum_to_size(x.shape) if gradient.shape != x.shape else gradient
    return summed.to(x.dtype)


def attend_points(q: Tensor, k: Tensor, v: Tensor, positions: Any, query_positions: Any, decays: Decays,
                  given: PointOptions) -> tuple[Tensor, Tensor]:
    """plsh.torch.attention with positions, on checked [batch, heads, n, dim] CPU tensors: o, lse."""
    check_used(given.words, {"eps": given.eps, "window": given.window, "scheme": given.scheme,
                             "design": given.design, "samples": given.samples, "seed": given.seed})
    check_spans(given.spans)
    keys_at = _points("positions", positions, q, k.shape[2], "keys")
    queries_at = None if query_positions is None else \
        _points("query_positions", query_positions, q, q.shape[2], "queries")
    found: tuple[Tensor, Tensor] = _Points.apply(  # type: ignore[no-untyped-call]
        q, k, v, decays.parameters, keys_at, queries_at, decays,
        given._replace(causal=as_truth("causal", given.causal)))
    return found


def forgetting_attention(
    q: Tensor, k: Tensor, v: Tensor, log_fgate: Tensor, *, head_first: bool = False,
    seq_start: Optional[Tensor] = None, sm_scale: Optional[float] = None,
    adaptive_threshold: Union[Literal["auto"], None] = None, eps: Optional[float] = None,
    method: str = "exact", threads: Optional[int] = None,
) -> Tensor:
    """The attention of the Forgetting Transformer (FoX), causal, with the arguments of its own function.

    softmax(sm_scale q k^T - (c_i - c_j)) v, where c_i = -sum of log_fgate up to token i: ALiBi with
    sigma = 1 on the positions c, which each head and batch entry has of its own.

    - q: [batch, queries, heads, dim]; k, v: [batch, keys, heads, dim]; log_fgate: [batch, keys,
      heads], logarithms of the forget gates, 0 or below. With head_first, [batch, heads, rows, ..].
      Fewer queries than keys are the last ones. k and v may have fewer heads.
    - seq_start: [batch], the number of tokens of padding at the left of each entry.
    - adaptive_threshold: None or "auto". "exact" leaves out what is proven to weigh at most `eps`
      of a row (2^-24 unless given), with and without it.

    Gradients by q, k, v and log_fgate.

    >>> q, k, v = (torch.randn(2, 100, 4, 16) for _ in range(3))
    >>> log_f = torch.nn.functional.logsigmoid(torch.randn(2, 100, 4) + 3)
    >>> forgetting_attention(q, k, v, log_f).shape
    torch.Size([2, 100, 4, 16])
    """
    from plsh.torch._attention import attention
    if adaptive_threshold not in (None, "auto"):
        raise ValueError(f"adaptive_threshold={adaptive_threshold!r}: must be None or 'auto'; eps is the "
                         "share of a row's weight that may be left out")
    if not isinstance(log_fgate, Tensor) or log_fgate.dim() != 3:
        raise ValueError("log_fgate: must be a tensor [batch, keys, heads], or [batch, heads, keys] with "
                         "head_first=True")
    if not head_first:
        q, k, v, log_fgate = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), log_fgate.transpose(1, 2)
    if log_fgate.shape != (q.shape[0], q.shape[1], k.shape[2]):
        raise ValueError(f"log_fgate: of {tuple(log_fgate.shape)} batch entries, heads and keys; must be of "
                         f"{(q.shape[0], q.shape[1], k.shape[2])}")
    if bool((log_fgate > 0).any()):
        raise ValueError("log_fgate: has entries above 0; they are logarithms of gates, which are at most 1")
    positions = -log_fgate.double().cumsum(dim=2).unsqueeze(3)
    spans = None if seq_start is None else torch.stack(
        [seq_start, torch.full_like(seq_start, k.shape[2]), torch.full_like(seq_start, k.shape[2])],
        dim=1).long()
    o = attention(q, k, v, sigma=1.0, positions=positions, scale=sm_scale, method=method, eps=eps, spans=spans,
                  threads=threads)
    return o if head_first else o.transpose(1, 2)

