"""DistributedDataParallel with plsh attention: each of 2 processes has half of the batch, and every
loss is that of one process with the whole batch. Beside context_parallel.py, where it is the
sequence that is distributed."""

import gc
import json
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import plsh.torch

WIDTH, LENGTH, BATCH, STEPS = 32, 64, 8, 12


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(16, WIDTH), nn.LayerNorm(WIDTH)
        self.attention = plsh.torch.ALiBiAttention(WIDTH, heads=4, learn_slopes=True)
        self.head = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, 16))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        return self.head(x + self.attention(self.norm(x)))


def train(rank: int, size: int) -> list[float]:
    """Losses of learning to count in steps that the text shows."""
    torch.manual_seed(0)
    model: nn.Module = Model()
    if size > 1:
        model = nn.parallel.DistributedDataParallel(model)  # the mean of the ranks' gradients
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(STEPS):
        first = torch.arange(BATCH)[:, None] + step
        tokens = (first + (1 + first % 3) * torch.arange(LENGTH + 1)) % 16
        tokens = tokens[BATCH * rank // size:BATCH * (rank + 1) // size]  # this rank's texts
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1),
                                           tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach() / size
        if size > 1:
            dist.all_reduce(total)
        losses.append(total.item())
    return losses


def work(rank: int, size: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(train(rank, size)))
    gc.collect()  # the model, which holds the group: its threads end with it, not with Python
    dist.destroy_process_group()
    os._exit(0)  # without torch's destructors: a thread of gloo that still runs would make them abort


if __name__ == "__main__":
    alone = train(0, 1)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (2, folder), nprocs=2)
        losses = json.loads(pathlib.Path(folder, "0.json").read_text())
    apart = max(abs(a - b) / b for a, b in zip(losses, alone))
    print(f"2 processes: loss {losses[0]:.4f} to {losses[-1]:.4f}, at most {apart:.1e} from one")
    assert losses[-1] < losses[0] and apart < 1e-5
