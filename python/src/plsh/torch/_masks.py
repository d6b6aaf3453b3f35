"""Attention masks in the usual formats are recognised; others are refused.

A mask of booleans is True where a key takes part, integers are 1 there, floats are added to the
scores: 0 where a key takes part, -1e4 or less where it does not. The dtype decides; a mask is
never inverted.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from plsh.torch._attention import _tokens_of, padding_spans, segment_spans


class Seen(NamedTuple):
    """Which keys the queries see."""

    causal: bool
    window: Optional[int]  # positions at a distance less than this; None: all
    spans: Optional[Tensor]  # as those of plsh.torch.attention


def recognise(mask: Tensor, batch: int, heads: int, queries: int, keys: int,
              causal: bool) -> Seen:
    """Reads a mask: padding, [batch, n] or [batch, 1, 1, n]; or padding, causality, a window and packed
    sequences together, [.., n, n]. Any other mask is refused. `causal` applies besides the mask."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"attn_mask: is {type(mask).__name__}, must be a torch tensor")
    if mask.dim() == 2 and tuple(mask.shape) == (batch, keys):
        if batch == queries and batch > 1:
            raise ValueError(f"attn_mask: shape {tuple(mask.shape)}, which may be [batch, n] as well as [n, n]; "
                             "pass mask[:, None, None, :] or mask[None, None]")
        mask = mask[:, None, None]
    elif mask.dim() == 2:
        mask = mask[None, None]
    elif mask.dim() == 3:
        raise ValueError(f"attn_mask: shape {tuple(mask.shape)}; three dimensions may be of batch entries or of "
                         "heads: pass [batch, 1, n, n]")
    shape = tuple(mask.shape)
    if len(shape) != 4 or shape[0] not in (1, batch) or shape[1] not in (1, heads) or \
            shape[2] not in (1, queries) or shape[3] != keys:
        raise ValueError(f"attn_mask: shape {shape}, must be [batch, n], [batch, 1, 1, n], [n, n] or "
                         f"[batch, 1, n, n], here of batch {batch}, {queries} queries, {keys} keys")
    seen = _seen(mask)
    if seen.shape[1] > 1 and not bool((seen == seen[:, :1]).all()):
        raise ValueError("attn_mask: differs between heads; plsh serves one mask for all heads")
    seen = seen[:, 0].expand(batch, -1, -1)
    if seen.shape[1] == 1 and queries > 1:  # padding alone
        return Seen(causal, None, _padding(seen[:, 0]))
    return _pairs(seen, causal)


def _seen(mask: Tensor) -> Tensor:
    """Where a key takes part, by the dtype; the message for a bias says where it belongs."""
    try:
        return _tokens_of(mask)
    except ValueError as problem:
        text = str(problem).replace("mask:", "attn_mask:", 1)
        if mask.is_floating_point():
            text += ". A bias is no mask: ALiBi's goes as alibi_slopes"
        raise ValueError(text) from None


def _padding(tokens: Tensor) -> Optional[Tensor]:
    return None if bool(tokens.all()) else padding_spans(tokens)


def _pairs(seen: Tensor, causal: bool) -> Seen:
    """Derives the structure of a mask [batch, queries, keys], and compares the mask made from it."""
    batch, queries, keys = seen.shape
    position = torch.arange(queries) + keys - queries
    distance = position[:, None] - torch.arange(keys)[None]
    causal = causal or (queries > 1 and not bool((seen & (distance < 0)).any()))
    if causal:
        seen = seen & (distance >= 0)
    columns = seen.any(dim=1)
    spans = padding_spans(columns)  # refuses a column that no query sees if it is between others
    inside = columns[:, -queries:]  # the queries that are tokens
    numbers = torch.zeros(batch, keys, dtype=torch.int64)
    if queries == keys:  # a sequence ends where a token does not see the one before it
        before = torch.diagonal(seen, offset=-1, dim1=1, dim2=2)
        both = columns[:, 1:] & columns[:, :-1]
        numbers[:, 1:] = ((both & ~before) | (columns[:, 1:] != columns[:, :-1])).cumsum(1)
    else:
        numbers[:, 1:] = (columns[:, 1:] != columns[:, :-1]).cumsum(1)
    same = (numbers[:, -queries:, None] == numbers[:, None]) & inside[:, :, None]
    if causal:
        same = same & (distance >= 0)
    rows = seen & inside[:, :, None]
    reach = int(torch.where(rows, distance.abs(), 0).max()) if rows.numel() else 0
    window = None
    if bool((same & (distance.abs() > reach)).any()):
        window = reach + 1
        same = same & (distance.abs() <= reach)
    wrong = same != rows
    if bool(wrong.any()):
        b, i, j = wrong.nonzero()[0].tolist()
        raise ValueError(f"attn_mask: entry [{b}, .., {i}, {j}] fits no mask that plsh serves: padding, "
                         "causality, a symmetric window, packed sequences")
    if bool((numbers == numbers[:, :1]).all()):
        return Seen(causal, window, None)
    one = bool((numbers.diff(dim=1).clamp(max=1).sum(1) <= (~columns).any(1) * 2).all()) and \
        queries != keys
    return Seen(causal, window, spans if one else segment_spans(numbers))
