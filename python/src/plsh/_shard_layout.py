"""Which rows of other ranks the heads of a sharded sequence need: plsh/shard.h, for a batch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plsh._library import check, ffi, lib, pointer
from plsh._plan import Array, Call, Options, Settings, head_array, layout

__all__ = ["Edges", "Layout", "Part", "Rows", "Shard", "Span", "join", "lay_out", "meet", "whole"]

Span = tuple[int, int]
Edges = tuple[tuple[int, ...], ...]
Floats = npt.NDArray[np.float32]


class Rows(NamedTuple):
    """The rows of q or k of one batch entry, [heads, rows, dim]: address, shape and strides."""

    address: int
    array: Array


class Shard:
    """A plsh_shard: one rank's part of one batch entry. A lock admits one thread at a time."""

    def __init__(self, offsets: Sequence[int], rank: int, q: Array, k: Array, v: Array,
                 settings: Settings, options: Options, edges: Sequence[int]) -> None:
        n = offsets[-1]
        head, self._keep = head_array(options, q.heads, 1, None)
        inner = [x for x in edges if 0 < x < n]
        rows = ffi.new("int64_t[]", [0, *inner, n]) if inner else ffi.NULL
        attention = ffi.new("plsh_attention *", {
            "heads": q.heads, "kv_heads": k.heads, "queries": n, "keys": n, "head_dim": q.dim,
            "value_dim": v.dim, "sequences": len(inner) + 1 if inner else 0, "query_offsets": rows,
            "key_offsets": rows, "causal": settings.causal, "scale": settings.scale,
            "dtype": settings.dtype, "head": head, "head_count": q.heads,
            "threads": settings.threads})
        splits = ffi.new("int64_t[]", offsets)
        asked = ffi.new("plsh_shard_options *", {
            "whole": attention, "splits": splits, "parts": len(offsets) - 1, "part": rank,
            "one_range": True})
        error, made = ffi.new("plsh_error *"), ffi.new("plsh_shard **")
        check(lib.plsh_shard_create(asked, made, error), error)
        self._shard = ffi.gc(made[0], lib.plsh_shard_destroy)
        self.units = [self._shard.unit[i] for i in range(self._shard.units)]
        if any(x.fades for x in self.units):
            check(lib.plsh_shard_prepare(self._shard, error), error)
        self._lock, self._exchange = threading.Lock(), self._shard.exchange

    @property
    def root(self) -> int:
        """The rank whose centre all ranks use."""
        return int(self._exchange.root)

    @property
    def centre_width(self) -> int:
        """Numbers of a centre."""
        return int(self._exchange.centre_count)

    @property
    def norm_width(self) -> int:
        """Numbers of a rank's norms, at most."""
        return max(map(int, self._exchange.norm_counts[0:self._shard.parts]))

    def centre(self, q: Rows, k: Rows) -> Floats:
        """A point near the keys; of the root alone."""
        with self._lock:
            self._begin(q, k)
            return self._floats("centre", self.centre_width).copy()

    def norms(self, q: Rows, k: Rows, centre: Floats) -> Floats:
        """For each tile of this rank's keys the largest distance of a key from the centre."""
        with self._lock:
            self._begin(q, k)
            self._floats("centre", self.centre_width)[:] = centre
            lib.plsh_shard_measure(self._shard)
            own = self._exchange.norm_counts[self._shard.part]
            return self._floats("own_norms", own).copy()

    def needs(self, q: Rows, k: Rows, centre: Floats, norms: Floats) -> list[Span]:
        """The keys that this rank's rows need, by unit; norms are [ranks, norm_width]."""
        with self._lock:
            self._begin(q, k)
            x, parts = self._exchange, self._shard.parts
            self._floats("centre", self.centre_width)[:] = centre
            counts = x.norm_counts[0:parts]
            self._floats("norms", sum(counts))[:] = np.concatenate(
                [norms[p, :counts[p]] for p in range(parts)])
            lib.plsh_shard_find(self._shard, False)
            found = [unit.need[self._shard.part] for unit in self.units]
            return [(rows.begin, rows.end) for rows in found]

    def _begin(self, q: Rows, k: Rows) -> None:
        lib.plsh_shard_reset(self._shard)
        lib.plsh_shard_begin(self._shard, ffi.new("plsh_shard_arrays *", {
            "q": pointer(q.address), "k": pointer(k.address),
            "q_layout": layout("q", q.array, q.array.heads),
            "k_layout": layout("k", k.array, k.array.heads)}))

    def _floats(self, name: str, count: int) -> Floats:
        """An array of the exchange, where it lies."""
        if not count:
            return np.empty(0, dtype=np.float32)
        return np.frombuffer(ffi.buffer(getattr(self._exchange, name), 4 * count), dtype=np.float32)


class Part(NamedTuple):
    """Heads that run together: they need the same keys, by the same communication (halo or ring)."""

    heads: Span
    kv_heads: Span
    ring: bool
    exact: bool  # the keys that it needs depend on the data
    reach: tuple[Span, ...]  # keys that the rows of each rank need; of exact and the ring, the own
    unit: int  # its number in the shards; of the first, where units were joined


class Layout(NamedTuple):
    """Values computed from shapes and options, the same on every rank except for the shards."""

    offsets: tuple[int, ...]  # rank r has the rows offsets[r] .. offsets[r+1]-1
    parts: tuple[Part, ...]
    options: Options  # "auto" resolved
    shards: tuple[Shard, ...]  # of each batch entry

    def rows(self, rank: int) -> Span:
        return self.offsets[rank], self.offsets[rank + 1]


def join(a: Span, b: Span) -> Span:
    return min(a[0], b[0]), max(a[1], b[1])


def meet(a: Span, b: Span) -> Span:
    begin = max(a[0], b[0])
    return begin, max(begin, min(a[1], b[1]))


def whole(batch: int, heads: int, rows: int, dim: int) -> Array:
    """An array of all rows, without gaps."""
    return Array(batch, heads, rows, dim, heads * rows * dim, rows * dim, dim)


def _resolve(options: Options, q: Array, k: Array, v: Array, settings: Settings) -> Options:
    """Methods and windows of each head; "auto" is what it is in one process."""
    heads = q.heads
    if "auto" not in options.method:
        methods = options.method * heads if len(options.method) == 1 else options.method
        return options._replace(method=methods)
    plan = Call(q, k, v, whole(q.batch, q.heads, q.rows, v.dim), settings, options).plans[0]
    return options._replace(method=tuple(plan.head(h)[0] for h in range(heads)),
                            window=tuple(plan.window(h) for h in range(heads)))


def _reach(units: Sequence[Any], rank: int, rows: Span) -> Span:
    """The keys that a rank's rows see, in any of the batch entries."""
    if units[0].rotates or units[0].fades or rows[0] == rows[1]:
        return rows
    for unit in units:
        rows = join(rows, (unit.reach[rank].begin, unit.reach[rank].end))
    return rows


def _merge_parts(parts: Sequence[Part], group: int) -> tuple[Part, ...]:
    """Neighbours that need the same keys become one part."""
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if last and last.ring == part.ring and not (last.exact or part.exact) and \
                last.reach == part.reach and last.heads[1] % group == last.heads[0] % group == 0 \
                and part.heads[1] % group == 0:
            merged[-1] = last._replace(heads=(last.heads[0], part.heads[1]),
                                       kv_heads=(last.kv_heads[0], part.kv_heads[1]))
        else:
            merged.append(part)
    return tuple(merged)


@lru_cache(maxsize=64)
def lay_out(offsets: tuple[int, ...], rank: int, q: Array, k: Array, v: Array, settings: Settings,
            options: Options) -> Layout:
    """The layout of a call; q, k and v are whole."""
    options = _resolve(options, q, k, v, settings)
    made = {edges: Shard(offsets, rank, q, k, v, settings, options, edges)
            for edges in settings.edges or ((),)}
    shards = tuple(made[edges] for edges in settings.edges or ((),) * q.batch)
    parts = []
    for i, units in enumerate(zip(*(shard.units for shard in made.values()))):
        unit = units[0]
        reach = tuple(_reach(units, r, rows) for r, rows in enumerate(zip(offsets, offsets[1:])))
        parts.append(Part((unit.head, unit.head + unit.heads),
                          (unit.kv_head, unit.kv_head + unit.kv_heads), unit.rotates, unit.fades,
                          reach, i))
    return Layout(offsets, _merge_parts(parts, q.heads // k.heads), options, shards)
