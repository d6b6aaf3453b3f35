"""Which rows of other ranks the heads of a sharded sequence need, from shapes and options alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from plsh._library import check, ffi, lib
from plsh._plan import Array, Call, Options, Settings, head_array

__all__ = ["Edges", "Layout", "Part", "Span", "join", "lay_out", "meet", "whole"]

Span = tuple[int, int]
Edges = tuple[tuple[int, ...], ...]


class Part(NamedTuple):
    """Heads that are run together: the same keys, and the same way to them."""

    heads: Span
    kv_heads: Span
    ring: bool
    exact: tuple[int, ...]  # heads whose reach depends on the data
    reach: tuple[Span, ...]  # keys that the rows of each rank need; of the other heads, if any


class Layout(NamedTuple):
    """What follows from the shapes and options, the same on every rank."""

    offsets: tuple[int, ...]  # rank r has the rows offsets[r] .. offsets[r+1]-1
    parts: tuple[Part, ...]
    limits: tuple[Span, ...]  # keys in the sequences of each rank's rows
    options: Options  # "auto" resolved

    def rows(self, rank: int) -> Span:
        return self.offsets[rank], self.offsets[rank + 1]


def join(a: Span, b: Span) -> Span:
    return min(a[0], b[0]), max(a[1], b[1])


def meet(a: Span, b: Span) -> Span:
    begin = max(a[0], b[0])
    return begin, max(begin, min(a[1], b[1]))


def _ends(rows: Span, edges: Sequence[int], n: int) -> Iterator[tuple[Span, Span]]:
    """The first and the last sequence that rows lie in, each with the rows that do."""
    bounds = [0, *(x for x in edges if 0 < x < n), n]
    for row in (rows[0], rows[1] - 1):
        i = bisect_right(bounds, row) - 1
        sequence = bounds[i], bounds[i + 1]
        yield sequence, meet(rows, sequence)


def _limits(rows: Span, edges: Edges, n: int, causal: bool) -> Span:
    """The keys that rows may see, whatever the heads are."""
    found = rows
    for inner in edges or ((),):
        for sequence, _ in _ends(rows, inner, n):
            found = join(found, sequence)
    return (found[0], rows[1]) if causal else found


def _reach(head: Any, rows: Span, edges: Edges, n: int, causal: bool) -> Span:
    """The same of one head, a plsh_head, that does not depend on the data."""
    found = rows
    for inner in edges or ((),):
        for (first, last), mine in _ends(rows, inner, n):
            queries = mine[0] - first, mine[1] - first
            begin, end = _ask_reach(head, causal, last - first, queries)
            found = join(found, (first + begin, first + end))
    return found


def _ask_reach(head: Any, causal: bool, length: int, queries: Span) -> Span:
    keys, error = ffi.new("plsh_block *"), ffi.new("plsh_error *")
    check(lib.plsh_head_reach(ffi.addressof(head), causal, length, queries, keys, error), error)
    return keys.begin, keys.end


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


def _split_heads(heads: int, kv_heads: int, rings: Sequence[bool]) -> Iterator[tuple[Span, Span]]:
    """Runs of heads that share a kv head and the way to it."""
    group = heads // kv_heads
    begin = 0
    for h in range(1, heads + 1):
        if h == heads or h % group == 0 or rings[h] != rings[begin]:
            yield (begin, h), (begin // group, begin // group + 1)
            begin = h


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
def lay_out(offsets: tuple[int, ...], q: Array, k: Array, v: Array, settings: Settings,
             options: Options) -> Layout:
    """The layout of a call; q, k and v are whole."""
    n, size, causal = offsets[-1], len(offsets) - 1, settings.causal
    options = _resolve(options, q, k, v, settings)
    array, _keep = head_array(options, q.heads, 1, None)
    for h in range(q.heads):
        _ask_reach(array[h], causal, 0, (0, 0))  # checks the head
    rings = [x in ("dense", "none") for x in options.method]
    parts = []
    for heads, kv_heads in _split_heads(q.heads, k.heads, rings):
        exact = tuple(h for h in range(*heads) if options.method[h] == "exact")
        reach = []
        for rank in range(size):
            rows = found = offsets[rank], offsets[rank + 1]
            if rows[0] < rows[1] and not rings[heads[0]]:
                for h in sorted(set(range(*heads)) - set(exact)):
                    found = join(found, _reach(array[h], rows, settings.edges, n, causal))
            reach.append(found)
        parts.append(Part(heads, kv_heads, rings[heads[0]], exact, tuple(reach)))
    limits = tuple(_limits(rows, settings.edges, n, causal) if rows[0] < rows[1] else rows
                   for rows in zip(offsets, offsets[1:]))
    return Layout(offsets, _merge_parts(parts, q.heads // k.heads), limits, options)
