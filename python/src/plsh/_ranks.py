"""The ranks of a torch.distributed group: agreement, and messages with rows.

An error on one rank becomes an error on all of them: before rows are sent, all ranks exchange
their status in one small all-gather (`Ranks.agree`). So a rank never waits for rows that another will
not send.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["Ranks", "Traffic"]


@dataclass
class Traffic:
    """What a rank sent and waited for, summed over the calls that it is given to.

    >>> traffic = Traffic()                     # context_parallel(q, k, v, traffic=traffic)
    >>> traffic.sent
    0
    """

    sent: int = 0  # bytes of keys, values and their gradients, to other ranks
    received: int = 0  # and from them
    messages: int = 0  # that were sent
    agreed: int = 0  # bytes of the small all-gathers, sent
    waited: float = 0.0  # seconds


class Transfer:
    """Messages that are being sent or received."""

    def __init__(self, works: list[Any], keep: Sequence[Tensor], traffic: Traffic) -> None:
        self._works, self._keep, self._traffic = works, keep, traffic

    def wait(self) -> None:
        """Until all have arrived."""
        begin = time.perf_counter()
        for work in self._works:
            work.wait()
        self._traffic.waited += time.perf_counter() - begin


_KINDS: tuple[type[Exception], ...] = (RuntimeError, ValueError, TypeError, NotImplementedError,
                                       MemoryError)
_TEXT = 480  # bytes of an error's message
_AGREEMENT = 0  # the tag of small all-gathers; others are their callers'


class Ranks:
    """A group as one of its ranks sees it. Ranks are counted within the group."""

    def __init__(self, group: Any, traffic: Traffic) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError("group: torch.distributed has no process group; call "
                               "torch.distributed.init_process_group first")
        self.group, self.traffic = group, traffic
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("group: this process is not one of its ranks")

    def gather(self, x: Tensor) -> Tensor:
        """[size, ...]: the x of every rank, all of one shape. In log2(size) rounds, each of which
        doubles what a rank has (Bruck); the all-gather of gloo takes size - 1."""
        found = x.new_empty((self.size, x.numel()))  # of this rank, the next one, ..
        found[0] = x.reshape(-1)
        have = 1
        while have < self.size:
            count = min(have, self.size - have)
            works = self._begin(_AGREEMENT, {(self.rank - have) % self.size: found[:count]},
                                {(self.rank + have) % self.size: found[have:have + count]})
            Transfer(works, (), self.traffic).wait()
            self.traffic.agreed += count * x.numel() * x.element_size()
            have += count
        return found.roll(self.rank, 0).view(self.size, *x.shape)

    def agree(self, error: Optional[Exception], numbers: Sequence[int]) -> list[list[int]]:
        """The numbers of every rank, as many on each; or the first rank's error, on all."""
        text = str(error).encode()[:_TEXT] if error is not None else b""
        kind = next((i for i in range(len(_KINDS) - 1, 0, -1) if isinstance(error, _KINDS[i])), 0)
        words = torch.frombuffer(bytearray(text.ljust(_TEXT)), dtype=torch.int64)
        verdict = [-1 if error is None else kind, len(text), *numbers]
        found = self.gather(torch.cat([torch.tensor(verdict, dtype=torch.int64), words]))
        count = len(verdict)
        for rank, row in enumerate(found):
            if int(row[0]) >= 0:
                said = row[count:].numpy().tobytes()[:int(row[1])].decode("utf-8", "replace")
                raise _KINDS[int(row[0])](f"rank {rank}: {said}") from \
                    (error if rank == self.rank else None)
        return [[int(x) for x in row[2:count]] for row in found]

    def exchange(self, tag: int, sent: Mapping[int, Tensor], received: Mapping[int, Tensor],
                 ) -> Transfer:
        """Starts to send one message to, and to receive one from, each of the named ranks; empty
        messages are not sent. The tensors are contiguous."""
        works = self._begin(tag, sent, received)
        self.traffic.received += sum(x.numel() * x.element_size() for x in received.values())
        self.traffic.sent += sum(x.numel() * x.element_size() for x in sent.values())
        self.traffic.messages += sum(x.numel() > 0 for x in sent.values())
        return Transfer(works, [*sent.values(), *received.values()], self.traffic)

    def _begin(self, tag: int, sent: Mapping[int, Tensor], received: Mapping[int, Tensor],
               ) -> list[Any]:
        works: list[Any] = []
        for rank, x in sorted(received.items()):
            if x.numel():
                works.append(dist.irecv(_bytes(x), group=self.group, group_src=rank, tag=tag))
        for rank, x in sorted(sent.items()):
            if x.numel():
                works.append(dist.isend(_bytes(x), group=self.group, group_dst=rank, tag=tag))
        return works


def _bytes(x: Tensor) -> Tensor:
    """The tensor as bytes: not every backend sends every dtype, but all send bytes."""
    return x.view(-1).view(torch.uint8)
