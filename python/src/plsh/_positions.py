"""Calls with positions that are points: shapes checked, a plan per set of positions, its runs.

Works on numbers and addresses, as _plan.py does, so that NumPy and PyTorch share it. Plans are not
kept: a plan copies the positions and orders the rows by them, and they are new in most calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import numpy.typing as npt

from plsh._plan import (
    Array, Options, Outcome, Plan, Points, Sequences, Settings, _pack, check_shapes,
    refuse_unaligned,
)

Float32 = npt.NDArray[np.float32]


class PointShape(NamedTuple):
    """[batch or 1, heads or 1, rows, dim] of an array of points."""

    batch: int
    sets: int
    rows: int
    dim: int


def point_shape(name: str, shape: Sequence[int], rows: int, what: str, batch: int,
                heads: int) -> PointShape:
    """The shape of positions, checked: [n], [n, D], [heads, n, D] or [batch, heads, n, D]."""
    if not 1 <= len(shape) <= 4:
        raise ValueError(f"{name}: shape {tuple(shape)}, must be [n], [n, D], [heads, n, D] or "
                         "[batch, heads, n, D]")
    full = (*shape, 1) if len(shape) == 1 else tuple(shape)
    found = PointShape(*(1,) * (4 - len(full)), *full)
    if not 1 <= found.dim <= 3:
        raise ValueError(f"{name}: shape {tuple(shape)}, points of {found.dim} coordinates; must be "
                         "1 to 3")
    if found.rows != rows:
        raise ValueError(f"{name}: shape {tuple(shape)}, of {found.rows} rows; there are {rows} {what}")
    if found.sets not in (1, heads):
        raise ValueError(f"{name}: shape {tuple(shape)}, {found.sets} sets of positions; must be 1, "
                         f"or one for each of the {heads} heads")
    if found.batch not in (1, batch):
        raise ValueError(f"{name}: shape {tuple(shape)}, of {found.batch} batch entries; must be of 1 "
                         f"or of {batch}")
    return found


def radius_of(window: Any) -> tuple[float, ...]:
    """`window` under positions: a radius, or one per head."""
    if window is None:
        return ()
    try:
        flat = np.asarray(window, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise TypeError("window: must be a radius, or one per head") from problem
    if flat.ndim > 1 or flat.size == 0 or not (flat > 0).all() or not np.isfinite(flat).all():
        raise ValueError(f"window={window}: is a radius under positions, positive and finite, or one "
                         "per head")
    return tuple(flat.ravel().tolist())


class PointsCall:
    """One call on positions: a plan for each batch entry, or one for all if they share positions."""

    def __init__(self, arrays: tuple[Array, Array, Array, Array], settings: Settings,
                 options: Options, keys_at: Float32, queries_at: Optional[Float32]) -> None:
        """keys_at, queries_at: contiguous, of the shapes [batch or 1, heads or 1, rows, dim]."""
        q, k, v, _ = arrays
        check_shapes(q, k, v, settings)
        if queries_at is not None:
            keys_at, queries_at = _alike(keys_at, queries_at)
        self.key_shape: tuple[int, ...] = keys_at.shape
        self.query_shape: Optional[tuple[int, ...]] = None if queries_at is None else queries_at.shape
        self.batch, self.heads, self.queries = q.batch, q.heads, q.rows
        self.steps = tuple(x.batch_stride for x in arrays)
        single = tuple(x._replace(batch=1) for x in arrays)
        edges = settings.edges
        self.plans: list[Plan] = []
        made: dict[Any, Plan] = {}
        for b in range(max(1, q.batch)):
            own, inner = b % keys_at.shape[0], edges[b] if edges else ()
            if (own, inner) not in made:
                sequences = _pack((inner,), q.rows, k.rows, ()) if inner else \
                    Sequences(settings.query_offsets, settings.key_offsets)
                points = Points(keys_at.shape[3], keys_at.shape[1], _at(keys_at[own]),
                                0 if queries_at is None else _at(queries_at[own]))
                made[own, inner] = Plan((single[0], single[1], single[2], single[3]), 1, settings, options,
                                        None, sequences, points)
            self.plans.append(made[own, inner])

    def forward(self, q: int, k: int, v: int, o: int, lse: int, certificate: int, itemsize: int,
                o_size: int) -> Outcome:
        """Runs on addresses. lse and certificate (or 0) are [batch, heads, rows]."""
        refuse_unaligned({"q": q, "k": k, "v": v}, itemsize)
        pairs, bound, rows = 0, 0.0, 4 * self.heads * self.queries
        for b in range(self.batch):
            x = [b * step * size for step, size in zip(self.steps, (itemsize,) * 3 + (o_size,))]
            done = self.plans[b].forward(q + x[0], k + x[1], v + x[2], o + x[3], lse and lse + b * rows,
                                         certificate and certificate + b * rows)
            pairs, bound = pairs + done.pairs, max(bound, done.error_bound)
        return Outcome(pairs, bound)

    def backward(self, inputs: tuple[int, int, int, int, int, int], gradients: tuple[int, int, int],
                 d_decay: Optional[npt.NDArray[np.float64]], positions: bool,
                 itemsize: int) -> tuple[Optional[Float32], Optional[Float32], int]:
        """Gradients on addresses: q, k, v, o, lse, d_o; d_q, d_k, d_v (or 0). d_decay: [heads, 2].

        Returns those of the positions of keys and queries, if asked for, and the pairs scored.
        """
        q, k, v, o, lse, d_o = inputs
        d_keys = np.zeros(self.key_shape, np.float32) if positions else None
        d_queries = np.zeros(self.query_shape, np.float32) if positions and self.query_shape else None
        per_plan = np.zeros((self.heads, 2)) if d_decay is not None else None
        pairs, rows = 0, 4 * self.heads * self.queries
        key_at, query_at = (None if x is None else np.zeros(x.shape[1:], np.float32)
                            for x in (d_keys, d_queries))
        for b in range(self.batch):
            x = [b * step * size for step, size in zip(self.steps, (itemsize,) * 3 + (4,))]
            g = [4 * b * step for step in self.steps]
            d_q, d_k, d_v = (y and y + z for y, z in zip(gradients, g))
            done = self.plans[b].backward(
                q + x[0], k + x[1], v + x[2], o + x[3], lse + b * rows, d_o + x[3], d_q, d_k, d_v,
                _at(per_plan), d_keys_at=_at(key_at), d_queries_at=_at(query_at))
            pairs += done.pairs
            if d_decay is not None and per_plan is not None:
                d_decay += per_plan
            for total, part in ((d_keys, key_at), (d_queries, query_at)):
                if total is not None and part is not None:
                    total[b % total.shape[0]] += part
        return d_keys, d_queries, pairs


def _at(array: Optional[npt.NDArray[Any]]) -> int:
    return 0 if array is None or math.prod(array.shape) == 0 else int(array.__array_interface__["data"][0])


def _alike(keys: Float32, queries: Float32) -> tuple[Float32, Float32]:
    """Broadcasts both to the same number of batch entries and sets; checks the coordinates."""
    if keys.shape[3] != queries.shape[3]:
        raise ValueError(f"query_positions: points of {queries.shape[3]} coordinates; those of the keys "
                         f"have {keys.shape[3]}")
    lead = tuple(max(x, y) for x, y in zip(keys.shape[:2], queries.shape[:2]))
    return _repeated(keys, lead), _repeated(queries, lead)


def _repeated(x: Float32, lead: tuple[int, ...]) -> Float32:
    return np.ascontiguousarray(np.broadcast_to(x, (*lead, *x.shape[2:])))
