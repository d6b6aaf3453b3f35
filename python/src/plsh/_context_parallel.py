"""Attention over a sequence whose rows are distributed over the ranks of a torch.distributed group.

The keys of other ranks that a rank needs depend on the heads. For a window, a block of `fixed` and the
blocks of a sampled head (a partition is a function of its seed) they are known in advance; for `exact`
the ranks exchange the norms of their keys first (plsh/shard.h). These keys, the halo, are fetched once,
for each head as far as it reaches, and kept for the backward pass, which sends their gradients back.
`dense` and `none` see all keys: these are passed around in a ring, and the results of the blocks are
merged by their log-sum-exps.

All ranks make the same calls in the same order. A call consists of a small all-gather of shapes and
options (`Ranks.agree`), for `exact` one of centres and one of norms, a small one by which all ranks learn
that all are ready, and then the rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Optional, Union, cast, overload

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from plsh._decay import DecayLike
from plsh._options import as_count, as_number, as_scale, as_truth, check_used, heads_of
from plsh._plan import Options, Settings, check_shapes, method_words
from plsh._ranks import Ranks, Traffic
from plsh._shard_layout import Edges, lay_out, whole
from plsh._sharded import Ready, Saved, Sharded
from plsh._torch_options import (
    TORCH_DTYPES, Integers, Numbers, Offsets, TorchOptions, as_integer, as_integers,
    as_offsets, autocast, check_inputs, check_numbers, check_spans,
    decays_of, describe, edges_of, floats_as, head_decays, signed_seed,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Traffic", "context_parallel"]


class _Recorded(torch.autograd.Function):
    """The call, its gradients recorded."""

    @staticmethod
    def forward(ctx: Any, sharded: Sharded, ready: Ready, parameters: Optional[Tensor], q: Tensor,
                k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        sharded.forward(q, k, v, ready)
        ctx.sharded = sharded
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, ready.o, ready.lse, parameters,
                              *(x for pair in ready.halos for x in pair))
        return ready.o, ready.lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_o: Optional[Tensor], d_lse: Optional[Tensor]) -> Any:
        q, k, v, o, lse, parameters, *halos = ctx.saved_tensors
        error: Optional[Exception] = None
        try:
            if d_lse is not None:
                raise NotImplementedError("context_parallel: its log-sum-exp has no gradient")
            rows = floats_as(o)
            saved = Saved(q, k, v, o, lse, rows.zero_() if d_o is None else rows.copy_(d_o),
                           list(zip(halos[::2], halos[1::2])),
                           np.zeros((q.shape[1], 2)) if ctx.needs_input_grad[2] else None)
            d_q = floats_as(q).zero_()
            d_k, d_v = (x.new_zeros(x.shape, dtype=torch.float32) for x in (k, v))
        except Exception as failed:  # agree() raises it on all ranks
            error = failed
        ctx.sharded.ranks.agree(error, ())
        ctx.sharded.backward(saved, d_q, d_k, d_v)
        d_parameters = None
        if saved.d_decay is not None:
            d_decay = torch.from_numpy(saved.d_decay)
            d_parameters = d_decay[:, 0].clone() if parameters.dim() == 1 else d_decay
        return None, None, d_parameters, d_q.to(q.dtype), d_k.to(k.dtype), d_v.to(v.dtype)


# ---- The function ---------------------------------------------------------------------------

_HEADER = ("rows", "batch entries", "heads of q", "heads of k", "elements in a row of k",
           "elements in a row of v", "as dtype", "as gradients recorded", "as options")


class _Asked(NamedTuple):
    """Arguments that this rank has checked, before they are compared with those of other ranks."""

    q: Tensor
    k: Tensor
    v: Tensor
    parameters: Optional[Tensor]
    settings: Settings
    options: Options
    keys: int  # of spans or offsets; 0: there are none
    recorded: bool

    def header(self) -> list[int]:
        same = repr((self.settings._replace(threads=0), self.options, self.keys)).encode()
        digest = hashlib.blake2b(same, digest_size=7).digest()
        batch, heads, rows, dim = self.q.shape
        return [rows, batch, heads, self.k.shape[1], dim, self.v.shape[3], self.settings.dtype,
                self.recorded, int.from_bytes(digest, "little")]


def _edges(spans: Optional[Tensor], query_offsets: Optional[Tensor],
           key_offsets: Optional[Tensor], batch: int) -> tuple[Edges, int]:
    """Where the sequences of all ranks' rows end, and the number of keys if given."""
    if spans is not None:
        edges, keys = edges_of(spans)
        if spans.shape[0] != batch:
            raise ValueError(f"spans: of {spans.shape[0]} batch entries, must be of {batch}")
        return edges, keys
    if query_offsets is None and key_offsets is None:
        return (), 0
    queries, offsets = (() if x is None else tuple(x.tolist()) for x in (query_offsets, key_offsets))
    if queries != offsets or batch != 1 or offsets[0] != 0 or \
            list(offsets) != sorted(offsets):
        raise ValueError("query_offsets, key_offsets: must be the same ascending numbers from 0 on, "
                         "of the whole sequence, and go without a batch dimension")
    return (offsets[1:-1],), offsets[-1]


def _check_tables(table: Sequence[Sequence[int]], keys: int) -> tuple[int, ...]:
    """The offsets of the ranks' rows, where all ranks ask for the same."""
    for i, name in enumerate(_HEADER[1:], 1):
        for rank, row in enumerate(table):
            if row[i] == table[0][i]:
                continue
            what = f"not the same {name[3:]} as rank 0" if name.startswith("as ") else \
                f"{row[i]} {name}, rank 0 has {table[0][i]}"
            raise ValueError(f"rank {rank}: {what}; all ranks must make the same call")
    offsets = [0]
    for row in table:
        offsets.append(offsets[-1] + row[0])
    if keys and keys != offsets[-1]:
        raise ValueError(f"spans, key_offsets: of {keys} keys, must be of all {offsets[-1]} of the "
                         "whole sequence, the same on every rank")
    return tuple(offsets)


def _ask(q: Any, k: Any, v: Any, sigma: Any, slopes: Any, decay: Any, parameters: Any, causal: bool,
         scale: Optional[float], method: Any, eps: Any, window: Any, block: Any, scheme: Any,
         design: Any, samples: Any, seed: Any, spans: Any, query_offsets: Any, key_offsets: Any,
         threads: Optional[int]) -> _Asked:
    """Checks what one rank can check of the arguments, and returns them."""
    method = method_words("exact" if method is None else method)
    check_used(method, {"eps": eps, "window": window, "block": block, "scheme": scheme,
                        "design": design, "samples": samples, "seed": seed})
    check_inputs(q, k, v)
    check_spans(spans)
    if not q.is_cpu:
        raise NotImplementedError(f"q: on {q.device}; context_parallel is for CPU tensors")
    if q.dim() == 3:
        q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
    q, k, v = autocast(q, k, v)
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q, k, v: {q.dtype}, {k.dtype}, {v.dtype}; must be equal")
    qa, ka, va = (describe(name, x.shape, x.stride(), x.dtype) for name, x in zip("qkv", (q, k, v)))
    decays = decays_of(qa.heads, sigma, slopes, decay, parameters)
    edges, keys = _edges(spans, as_offsets("query_offsets", query_offsets),
                         as_offsets("key_offsets", key_offsets), qa.batch)
    settings = Settings(
        as_truth("causal", causal), as_scale(scale), TORCH_DTYPES[q.dtype],
        torch.get_num_threads() if threads is None else as_count("threads", threads), "", False,
        edges=edges)
    check_shapes(qa, ka, va, settings)
    if ka.rows != qa.rows:
        raise ValueError(f"k: {ka.rows} rows, must be the {qa.rows} of q: a rank's queries are its "
                         "keys")
    numbers = tuple(decays.constants if decays.parameters is None else
                    decays.parameters.detach().reshape(-1).tolist())
    options = heads_of(
        method, head_decays(decays.word, qa.heads, numbers, decays.parameters is None),
        None if eps is None else as_number("eps", eps), tuple(as_integers("window", window)),
        tuple(as_integers("block", block)), scheme, design,
        None if samples is None else as_integer("samples", samples),
        None if seed is None else signed_seed(seed) % 2**64)
    check_numbers(options.samples, options.eps, options.window, options.block)
    recorded = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (q, k, v, decays.parameters))
    return _Asked(q, k, v, decays.parameters, settings, options, keys, recorded)


def _get_ready(sharded: Sharded, asked: _Asked) -> Ready:
    """Finds the needed rows, and allocates memory for them; an error is raised on all ranks."""
    errors: list[Exception] = []
    q, k, v = (x.detach() for x in (asked.q, asked.k, asked.v))
    shards = sharded.layout.shards if sharded.has_exact else ()

    def attempt(run: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return otherwise if errors else run()
        except Exception as failed:  # agree() raises it on all ranks
            errors.append(failed)
            return otherwise

    if shards:
        nothing = sharded.no_summary(len(shards), shards[0].centre_width)
        centres = sharded.ranks.gather(
            attempt(lambda: sharded.centres(q, k), nothing))[shards[0].root]
        nothing = sharded.no_summary(len(shards), shards[0].norm_width)
        norms = sharded.ranks.gather(attempt(lambda: sharded.norms(q, k, centres), nothing))
        attempt(lambda: sharded.seek(q, k, centres, norms), None)
    ready = attempt(lambda: sharded.prepare(q, k, v), None)
    sharded.learn(sharded.ranks.agree(errors[0] if errors else None, sharded.needs()))
    return cast(Ready, ready)


@overload
def context_parallel(q: Tensor, k: Tensor, v: Tensor, *, group: Any = ...,
                     traffic: Optional[Traffic] = ..., return_lse: Literal[False] = ...,
                     **options: Unpack[TorchOptions]) -> Tensor: ...
@overload
def context_parallel(q: Tensor, k: Tensor, v: Tensor, *, group: Any = ...,
                     traffic: Optional[Traffic] = ..., return_lse: Literal[True],
                     **options: Unpack[TorchOptions]) -> tuple[Tensor, Tensor]: ...
def context_parallel(
    q: Tensor, k: Tensor, v: Tensor, *, group: Any = None, traffic: Optional[Traffic] = None,
    sigma: Union[Numbers, Literal["alibi"], None] = None, slopes: Optional[Numbers] = None,
    decay: Union[DecayLike, Sequence[DecayLike], None] = None, parameters: Optional[Tensor] = None,
    causal: bool = True, scale: Optional[float] = None,
    method: Union[str, Sequence[str], None] = None,
    eps: Optional[float] = None, window: Union[Integers, Numbers, None] = None,
    block: Optional[Integers] = None, scheme: Optional[str] = None, design: Optional[str] = None,
    samples: Optional[int] = None, seed: Optional[int] = None, labels: Optional[Tensor] = None,
    spans: Optional[Tensor] = None, query_offsets: Optional[Offsets] = None,
    key_offsets: Optional[Offsets] = None, dropout: float = 0.0,
    dropout_seed: Union[int, Tensor, None] = None, threads: Optional[int] = None, positions: Optional[Tensor] = None,
    query_positions: Optional[Tensor] = None, return_lse: bool = False,
) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """:func:`plsh.torch.attention` over a sequence whose rows are distributed over ranks.

    q, k and v, [batch, heads, n, dim] or [heads, n, dim], are this rank's rows: those of rank 0 of
    the `group` (None: all processes) are the first of the sequence, then come those of rank 1, and
        so on; a rank may have any number of rows, also none. The output is this rank's rows of the result,
    equal to those of one process to rounding. All options are those of attention, and the same on all
    ranks (`positions`, `labels` and dropout are refused); `spans`, `query_offsets` and `key_offsets` refer to the whole sequence.

    Ranks send each other the rows of k and v that their heads reach: a window, a block, the blocks
    of sampled heads, what `exact` cannot rule out by the norms of keys; for dense and none, all. A
    `traffic` counts the bytes (:class:`Traffic`). The gradients of k and v are those of the sum of all
    ranks' losses, so every rank runs backward; those of slopes and other parameters are this rank's
    share, to be summed over the ranks as those of all weights are. An error on one rank is raised
    on all.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> q, k, v = (torch.randn(2, 100, 16) for _ in range(3))
    >>> context_parallel(q, k, v).shape
    torch.Size([2, 100, 16])
    >>> dist.destroy_process_group()
    """
    ranks = Ranks(group, traffic if isinstance(traffic, Traffic) else Traffic())
    error: Optional[Exception] = None
    header = [0] * len(_HEADER)
    try:
        if traffic is not None and not isinstance(traffic, Traffic):
            raise TypeError(f"traffic: is {type(traffic).__name__}, must be a plsh.torch.Traffic")
        if positions is not None or query_positions is not None:
            raise NotImplementedError("positions: are not served over ranks; attention on one process "
                                      "takes them")
        if labels is not None or dropout or dropout_seed is not None:
            raise NotImplementedError("labels, dropout: are not served over ranks")
        asked = _ask(q, k, v, sigma, slopes, decay, parameters, causal, scale, method, eps, window,
                     block, scheme, design, samples, seed, spans, query_offsets, key_offsets, threads)
        header = asked.header()
    except Exception as failed:  # agree() raises it on all ranks
        error = failed
    table = ranks.agree(error, header)
    offsets = _check_tables(table, asked.keys)
    _, batch, heads, kv_heads, dim, value_dim, *_ = header
    layout = lay_out(offsets, ranks.rank, whole(batch, heads, offsets[-1], dim),
                     whole(batch, kv_heads, offsets[-1], dim),
                     whole(batch, kv_heads, offsets[-1], value_dim), asked.settings, asked.options)
    sharded = Sharded(ranks, layout, asked.settings)
    ready = _get_ready(sharded, asked)
    if asked.recorded:
        o, lse = _Recorded.apply(  # type: ignore[no-untyped-call]
            sharded, ready, asked.parameters, asked.q, asked.k, asked.v)
    else:
        sharded.forward(asked.q, asked.k, asked.v, ready)
        o, lse = ready.o, ready.lse
    o = o.to(asked.q.dtype)
    if q.dim() == 3:
        o, lse = o.squeeze(0), lse.squeeze(0)
    return (o, lse) if return_lse else o
