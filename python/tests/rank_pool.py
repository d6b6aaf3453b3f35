"""Processes that are the ranks of a torch.distributed group (gloo, this machine), for tests."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
from typing import Any, Callable

WAIT = 180.0  # seconds until a rank that says nothing is taken for hung


def serve(rank: int, size: int, store: str, pipe: Any) -> None:
    """What a rank does: functions that come through the pipe, on the group they are for."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    groups = {n: dist.new_group(list(range(n))) for n in range(1, size + 1)}
    pipe.send(("ready", None))
    while True:
        asked = pipe.recv()
        if asked is None:
            break
        count, function, arguments = asked
        try:
            pipe.send(("done", function(groups[count], *arguments)))
        except Exception as error:  # the parent looks at it
            pipe.send(("failed", (type(error).__name__, str(error))))
    dist.destroy_process_group()


class Failed(Exception):
    """The errors of the ranks: (type, message) each, None for those that had none."""

    def __init__(self, errors: list[Any]) -> None:
        super().__init__(str(errors))
        self.errors = errors


class Pool:
    """`size` ranks that live for many calls: starting one takes seconds."""

    def __init__(self, size: int, folder: pathlib.Path) -> None:
        os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(rank, size, str(folder / "store"), theirs),
                                      daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        for pipe in self.pipes:
            self._answer(pipe)

    def _answer(self, pipe: Any) -> tuple[str, Any]:
        if not pipe.poll(WAIT):
            for process in self.processes:
                process.kill()
            raise RuntimeError("a rank hangs")
        return pipe.recv()

    def run(self, count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """function(group, *arguments) on `count` ranks; what they return."""
        for pipe in self.pipes[:count]:
            pipe.send((count, function, arguments))
        answers = [self._answer(pipe) for pipe in self.pipes[:count]]
        if any(word == "failed" for word, _ in answers):
            raise Failed([x if word == "failed" else None for word, x in answers])
        return [x for _, x in answers]

    def close(self) -> None:
        """Ends the ranks."""
        for pipe, process in zip(self.pipes, self.processes):
            if process.is_alive():
                pipe.send(None)
        for process in self.processes:
            process.join(WAIT)
