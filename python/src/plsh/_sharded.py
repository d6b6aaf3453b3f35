"""One attention call over a sharded sequence: halos fetched, keys in a ring, both passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plsh._library import lib
from plsh._plan import Call, Settings, cached_call
from plsh._ranks import Ranks
from plsh._shard_layout import Layout, Part, Rows, Span, join, meet
from plsh._torch_options import describe, floats_as, new_outputs

__all__ = ["Ready", "Saved", "Sharded"]

_KEYS, _GRADIENTS = 1, 2  # tags of messages
_RowsOf = Callable[[int, Span], Sequence[Tensor]]


class Ready(NamedTuple):
    """The arrays that a forward pass fills."""

    o: Tensor
    lse: Tensor
    halos: list[tuple[Tensor, Tensor]]  # keys and values of each halo part


class Saved(NamedTuple):
    """The arrays that a backward pass reads; d_o has the layout of o."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    lse: Tensor
    d_o: Tensor
    halos: list[tuple[Tensor, Tensor]]
    d_decay: Optional[npt.NDArray[np.float64]]  # [heads, 2], added to


def _entry(x: Tensor, b: int) -> Rows:
    """One batch entry of q or k."""
    entry = x[b:b + 1]
    return Rows(entry.data_ptr(), describe("x", entry.shape, entry.stride(), x.dtype))


def _heads(x: Tensor, heads: Span) -> Tensor:
    return x[:, heads[0]:heads[1]]


def _rows(x: Tensor, span: Span, first: int) -> Tensor:
    """The rows `span` of x, whose own begin at `first`."""
    return x[:, :, span[0] - first:span[1] - first]


def _merge(o: Tensor, lse: Tensor, new: Tensor, new_lse: Tensor) -> None:
    """Adds the keys of `new` to the rows of o: a mean with the weights e^lse."""
    total = torch.logaddexp(lse, new_lse)
    o.mul_((lse - total).exp().unsqueeze(3))
    o.add_(new * (new_lse - total).exp().unsqueeze(3))
    lse.copy_(total)


class Sharded:
    """A call: its layout, and both passes."""

    def __init__(self, ranks: Ranks, layout: Layout, settings: Settings) -> None:
        self.ranks, self.layout, self.settings = ranks, layout, settings
        self.rows = layout.rows(ranks.rank)
        self.halo = [p for p in layout.parts if not p.ring]
        self.ring = [p for p in layout.parts if p.ring]
        self.has_exact = any(p.exact for p in self.halo)
        self.ring_heads = sorted({h for p in self.ring for h in range(*p.kv_heads)})
        self.ranges: list[list[Span]] = [list(p.reach) for p in self.halo]  # by part and rank

    # -- calls of the library --

    def _call(self, part: Part, q: Tensor, k: Tensor, v: Tensor, o: Tensor, first_key: int) -> Call:
        """The call of a part's own heads; k and v begin with the key `first_key`."""
        def of(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return values if len(values) < 2 else values[part.heads[0]:part.heads[1]]

        every = self.layout.options
        options = every._replace(
            method=of(every.method), decay=of(every.decay), window=of(every.window),
            block=of(every.block), eps=lib.plsh_shard_eps(every.eps, self.ranks.size),
            first_head=part.heads[0])
        settings = self.settings._replace(place=(self.rows[0], first_key), some_keys=part.ring)
        qa, ka, va, oa = (describe(name, x.shape, x.stride(), x.dtype)
                          for name, x in zip("qkvo", (q, k, v, o)))
        return cached_call(qa, ka, va, oa, settings, options)

    def _run(self, part: Part, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
             first_key: int) -> None:
        """o and lse, [batch, heads, rows], of a part's heads; all arguments have those alone."""
        if not q.numel() or not k.numel():
            o.zero_()
            lse.fill_(-torch.inf)
            return
        call = self._call(part, q, k, v, o, first_key)
        rows = torch.empty(lse.shape, dtype=torch.float32)
        call.forward(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), rows.data_ptr(), 0,
                     q.element_size())
        lse.copy_(rows)

    def _differentiate(self, part: Part, saved: Saved, k: Tensor, v: Tensor, d_q: Tensor,
                       d_k: Tensor, d_v: Tensor, first_key: int) -> None:
        """Writes the gradients of a part's heads; d_k and d_v are as k and v but float32."""
        if not d_q.numel() or not k.numel():
            for x in (d_q, d_k, d_v):
                x.zero_()
            return
        q, o, d_o = (_heads(x, part.heads) for x in (saved.q, saved.o, saved.d_o))
        lse = _heads(saved.lse, part.heads).contiguous()
        d_decay = np.zeros((q.shape[1], 2)) if saved.d_decay is not None else None
        self._call(part, q, k, v, o, first_key).backward(
            q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse.data_ptr(), d_o.data_ptr(),
            d_q.data_ptr(), d_k.data_ptr(), d_v.data_ptr(), d_decay, q.element_size())
        if saved.d_decay is not None and d_decay is not None:
            saved.d_decay[part.heads[0]:part.heads[1]] += d_decay

    # -- halos --

    def no_summary(self, batch: int, width: int) -> Tensor:
        """Used in place of centres or norms if there are none."""
        return torch.zeros((batch, width), dtype=torch.float32)

    def centres(self, q: Tensor, k: Tensor) -> Tensor:
        """[batch, width] of the root; others have the same shape."""
        shards = self.layout.shards
        found = self.no_summary(len(shards), shards[0].centre_width)
        for b, shard in enumerate(shards if shards[0].root == self.ranks.rank else ()):
            found[b] = torch.from_numpy(shard.centre(_entry(q, b), _entry(k, b)))
        return found

    def norms(self, q: Tensor, k: Tensor, centres: Tensor) -> Tensor:
        """[batch, width]: what the exact heads of other ranks have to know about this one's keys."""
        shards = self.layout.shards
        found = self.no_summary(len(shards), shards[0].norm_width)
        for b, shard in enumerate(shards):
            own = shard.norms(_entry(q, b), _entry(k, b), centres[b].numpy())
            found[b, :len(own)] = torch.from_numpy(own)
        return found

    def seek(self, q: Tensor, k: Tensor, centres: Tensor, norms: Tensor) -> None:
        """Finds the rows that the exact heads of this rank need; norms are those of all ranks."""
        me = self.ranks.rank
        for b, shard in enumerate(self.layout.shards):
            found = shard.needs(_entry(q, b), _entry(k, b), centres[b].numpy(),
                                norms[:, b].numpy())
            for i, part in enumerate(self.halo):
                if part.exact:
                    self.ranges[i][me] = join(self.ranges[i][me], found[part.unit])

    def needs(self) -> list[int]:
        """The rows that they need: begin and end for each part."""
        return [x for i, part in enumerate(self.halo) if part.exact
                for x in self.ranges[i][self.ranks.rank]]

    def learn(self, found: Sequence[Sequence[int]]) -> None:
        """Takes the rows that the exact heads of every rank need."""
        exact = [i for i, p in enumerate(self.halo) if p.exact]
        for rank, numbers in enumerate(found):
            for j, i in enumerate(exact):
                self.ranges[i][rank] = numbers[2 * j], numbers[2 * j + 1]

    def _shared(self, owner: int, user: int) -> list[tuple[int, Span]]:
        """Parts and keys of `owner` that `user` needs, in the order in which they are sent."""
        if owner == user:
            return []
        met = [(i, meet(spans[user], self.layout.rows(owner)))
               for i, spans in enumerate(self.ranges)]
        return [(i, span) for i, span in met if span[0] < span[1]]

    def _views(self, message: Tensor, shared: Sequence[tuple[int, Span]], batch: int,
               dims: Sequence[int]) -> list[tuple[int, Span, list[Tensor]]]:
        """Keys and values of a message, [batch, heads, rows, dim] each."""
        at, found = 0, []
        for i, span in shared:
            heads = self.halo[i].kv_heads[1] - self.halo[i].kv_heads[0]
            pair = []
            for dim in dims:
                shape = (batch, heads, span[1] - span[0], dim)
                pair.append(message[at:at + math.prod(shape)].view(shape))
                at += math.prod(shape)
            found.append((i, span, pair))
        return found

    def _trade(self, tag: int, k: Tensor, v: Tensor, rows_of: _RowsOf,
               ) -> dict[int, list[tuple[int, Span, list[Tensor]]]]:
        """Sends rows to their ranks, and returns the received rows by rank. Keys go to their users,
        gradients back to the owners; rows_of(i, span) are those of this rank, and k and v say what
        dtype and shape they have."""
        me, batch, dims = self.ranks.rank, k.shape[0], (k.shape[3], v.shape[3])
        messages: list[dict[int, Tensor]] = [{}, {}]  # sent, received
        views: list[dict[int, list[tuple[int, Span, list[Tensor]]]]] = [{}, {}]
        for peer in range(self.ranks.size):
            lent, borrowed = self._shared(me, peer), self._shared(peer, me)
            both = (lent, borrowed) if tag == _KEYS else (borrowed, lent)
            for shared, message, view in zip(both, messages, views):
                if shared:
                    size = sum((span[1] - span[0]) * (self.halo[i].kv_heads[1] -
                                                      self.halo[i].kv_heads[0]) for i, span in shared)
                    message[peer] = k.new_empty(size * batch * sum(dims))
                    view[peer] = self._views(message[peer], shared, batch, dims)
            for i, span, pair in views[0].get(peer, ()):
                for to, rows in zip(pair, rows_of(i, span)):
                    to.copy_(rows)
        self.ranks.exchange(tag, *messages).wait()
        return views[1]

    def _fetch(self, k: Tensor, v: Tensor, halos: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Puts the keys and values of other ranks into the halos."""
        came = self._trade(_KEYS, k, v, lambda i, span: [self._own(x, self.halo[i], span)
                                                         for x in (k, v)])
        for found in came.values():
            for i, span, pair in found:
                for to, rows in zip(halos[i], pair):
                    _rows(to, span, self.ranges[i][self.ranks.rank][0]).copy_(rows)

    def _own(self, x: Tensor, part: Part, span: Span) -> Tensor:
        return _rows(_heads(x, part.kv_heads), span, self.rows[0])

    def _make_room(self, x: Tensor, i: int) -> Tensor:
        """The keys or values of halo part i, with this rank's own in place."""
        own, (begin, end) = _heads(x, self.halo[i].kv_heads), self.ranges[i][self.ranks.rank]
        if (begin, end) == self.rows:
            return own
        room = torch.empty((*own.shape[:2], end - begin, own.shape[3]), dtype=own.dtype)
        _rows(room, self.rows, begin).copy_(own)
        return room

    def _give_back(self, gradients: Sequence[tuple[Tensor, Tensor]], d_k: Tensor,
                   d_v: Tensor) -> None:
        """Adds the gradients of halo parts to d_k and d_v of their owners, in the order of ranks."""
        me = self.ranks.rank

        def rows_of(i: int, span: Span) -> list[Tensor]:
            return [_rows(x, span, self.ranges[i][me][0]) for x in gradients[i]]

        came = self._trade(_GRADIENTS, d_k, d_v, rows_of)
        came[me] = [(i, self.rows, rows_of(i, self.rows)) for i in range(len(self.halo))]
        for _, found in sorted(came.items()):
            for i, span, pair in found:
                for to, rows in zip((d_k, d_v), pair):
                    self._own(to, self.halo[i], span).add_(rows)

    # -- the ring --

    def _ring_steps(self, k: Tensor, v: Tensor) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """The step, a rank, and its keys and values: this one's own first, then those of the rank
        before it, .. A causal ring ends at rank 0. The next rank's keys are in transit meanwhile."""
        me, size, causal = self.ranks.rank, self.ranks.size, self.settings.causal
        batch, heads = k.shape[0], len(self.ring_heads)

        def block_of(rank: int) -> Tensor:
            begin, end = self.layout.rows(rank)
            return torch.empty(batch * heads * (end - begin) * (k.shape[3] + v.shape[3]),
                               dtype=k.dtype)

        def views(block: Tensor, rank: int) -> tuple[Tensor, Tensor]:
            begin, end = self.layout.rows(rank)
            at = batch * heads * (end - begin) * k.shape[3]
            return (block[:at].view(batch, heads, end - begin, k.shape[3]),
                    block[at:].view(batch, heads, end - begin, v.shape[3]))

        held = block_of(me)
        for to, x in zip(views(held, me), (k, v)):
            to.copy_(x[:, self.ring_heads])
        after, before = (me + 1) % size, (me - 1) % size
        for step in range(me + 1 if causal else size):
            origin, sent, received = (me - step) % size, {}, {}
            if step < size - 1 and (after or not causal):
                sent[after] = held
            if step < (me if causal else size - 1):
                received[before] = block_of((origin - 1) % size)
            transfer = self.ranks.exchange(_KEYS, sent, received)
            yield (step, origin, *views(held, origin))
            transfer.wait()
            held = received.get(before, held)

    def _ring_views(self, part: Part, x: Tensor) -> Tensor:
        first = self.ring_heads.index(part.kv_heads[0])
        return x[:, first:first + part.kv_heads[1] - part.kv_heads[0]]

    def _ring_forward(self, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor) -> None:
        """o and lse of the ring's heads. A row sees its own key, so its lse is finite from the
        first step on."""
        new, new_lse = torch.empty_like(o), torch.empty_like(lse)
        for step, origin, k_block, v_block in self._ring_steps(k, v):
            for part in self.ring:
                first = self.layout.offsets[origin]
                to, to_lse = (o, lse) if step == 0 else (new, new_lse)
                to, to_lse = _heads(to, part.heads), _heads(to_lse, part.heads)
                self._run(part, _heads(q, part.heads), self._ring_views(part, k_block),
                          self._ring_views(part, v_block), to, to_lse, first)
                if step:
                    _merge(_heads(o, part.heads), _heads(lse, part.heads), to, to_lse)

    def _ring_backward(self, saved: Saved, d_q: Tensor, d_k: Tensor, d_v: Tensor) -> None:
        """Adds the gradients of the ring's heads. Gradients of another rank's keys are sent to that
        rank, which adds them in the order of the ring, beginning with its own."""
        me, size = self.ranks.rank, self.ranks.size
        new = floats_as(d_q)
        steps = self._ring_steps(saved.k, saved.v)
        shapes = [(x.shape[0], len(self.ring_heads), *x.shape[2:]) for x in (d_k, d_v)]
        at = math.prod(shapes[0])
        for step in range(size):
            block, sent, received = next(steps, None), {}, {}
            message = d_k.new_zeros(at + math.prod(shapes[1]))
            if block is not None:
                made = self._ring_gradients(saved, block, new, d_q)
                sent[block[1]] = made
            if step == 0:
                sent, message = {}, made
            elif not self.settings.causal or me + step < size:
                received[(me + step) % size] = message
            self.ranks.exchange(_GRADIENTS, sent, received).wait()
            for to, rows, shape in zip((d_k, d_v), (message[:at], message[at:]), shapes):
                to[:, self.ring_heads] += rows.view(shape)

    def _ring_gradients(self, saved: Saved, block: tuple[int, int, Tensor, Tensor], new: Tensor,
                        d_q: Tensor) -> Tensor:
        """Gradients of some keys and values, in their layout; those of q are added to d_q."""
        _, origin, *rows = block
        made = [x.new_zeros(x.shape, dtype=torch.float32) for x in rows]
        for part in self.ring:
            k, v = (self._ring_views(part, x) for x in rows)
            d_k, d_v = floats_as(k), floats_as(v)
            self._differentiate(part, saved, k, v, _heads(new, part.heads), d_k, d_v,
                                self.layout.offsets[origin])
            _heads(d_q, part.heads).add_(_heads(new, part.heads))
            for to, piece in zip(made, (d_k, d_v)):
                self._ring_views(part, to).add_(piece)
        return torch.cat([x.view(-1) for x in made])

    # -- both passes --

    def prepare(self, q: Tensor, k: Tensor, v: Tensor) -> Ready:
        """All memory of the forward pass but messages, and its plans: what may fail."""
        o, lse = new_outputs(q, k, v)
        halos = [(self._make_room(k, i), self._make_room(v, i)) for i in range(len(self.halo))]
        for i, part in enumerate(self.halo if q.numel() else ()):
            self._call(part, _heads(q, part.heads), *halos[i], _heads(o, part.heads),
                       self.ranges[i][self.ranks.rank][0])
        for part in self.ring if q.numel() else ():
            self._call(part, _heads(q, part.heads), _heads(k, part.kv_heads),
                       _heads(v, part.kv_heads), _heads(o, part.heads), self.rows[0])
        return Ready(o, lse, halos)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, ready: Ready) -> None:
        """Fills what was prepared."""
        self._fetch(k, v, ready.halos)
        for i, part in enumerate(self.halo):
            self._run(part, _heads(q, part.heads), *ready.halos[i], _heads(ready.o, part.heads),
                      _heads(ready.lse, part.heads), self.ranges[i][self.ranks.rank][0])
        if self.ring:
            self._ring_forward(q, k, v, ready.o, ready.lse)

    def backward(self, saved: Saved, d_q: Tensor, d_k: Tensor, d_v: Tensor) -> None:
        """Fills gradients that are 0."""
        gradients = []
        for i, (part, (keys, values)) in enumerate(zip(self.halo, saved.halos)):
            d_keys, d_values = floats_as(keys), floats_as(values)
            self._differentiate(part, saved, keys, values, _heads(d_q, part.heads), d_keys, d_values,
                                self.ranges[i][self.ranks.rank][0])
            gradients.append((d_keys, d_values))
        self._give_back(gradients, d_k, d_v)
        if self.ring:
            self._ring_backward(saved, d_q, d_k, d_v)
