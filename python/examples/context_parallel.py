"""Trains a small model on one long sequence that is distributed over 2 and over 4 processes: attention
fetches the rows it reaches of its neighbours, all else is local, gradients are summed. Every loss is
that of one process."""

import json
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import plsh.torch

HEADS, WIDTH, LENGTH, STEPS = 4, 32, 512, 12


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.traffic = plsh.torch.Traffic()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norm1(x)).view(*x.shape[:2], 3 * HEADS, -1).transpose(1, 2)
        q, k, v = parts.chunk(3, dim=1)
        if dist.is_initialized():
            o = plsh.torch.context_parallel(q, k, v, sigma=[2, 4, 8, 16], traffic=self.traffic)
        else:
            o = plsh.torch.attention(q, k, v, sigma=[2, 4, 8, 16])
        x = x + self.out(o.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norm2(x))


def train(rank: int, size: int) -> tuple[list[float], int]:
    """Losses of learning to count in steps that the text shows, and the bytes that were sent."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(16, WIDTH), Block(), Block(), nn.Linear(WIDTH, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    begin, end = LENGTH * rank // size, LENGTH * (rank + 1) // size  # this rank's tokens
    losses = []
    for step in range(STEPS):
        tokens = (step + (1 + step % 3) * torch.arange(LENGTH + 1)) % 16
        logits = model(tokens[None, begin:end])
        loss = nn.functional.cross_entropy(logits[0], tokens[begin + 1:end + 1], reduction="sum")
        loss = loss / LENGTH  # this rank's share of the mean
        optimizer.zero_grad()
        loss.backward()
        total = loss.detach()
        if dist.is_initialized():
            for x in [total, *(p.grad for p in model.parameters())]:
                dist.all_reduce(x)
        optimizer.step()
        losses.append(total.item())
    return losses, sum(block.traffic.sent for block in model[1:3])


def work(rank: int, size: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(train(rank, size)))
    dist.destroy_process_group()
    os._exit(0)  # without torch's destructors: a thread of gloo that still runs would make them abort


if __name__ == "__main__":
    alone, _ = train(0, 1)
    for size in (2, 4):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(work, (size, folder), nprocs=size)
            losses, sent = json.loads(pathlib.Path(folder, "1.json").read_text())
        apart = max(abs(a - b) / b for a, b in zip(losses, alone))
        # k and v forward, both and their gradients backward, in two layers
        ring = 2 * STEPS * 6 * 4 * LENGTH // size * WIDTH * (size - 1)
        print(f"{size} processes: loss {losses[0]:.4f} to {losses[-1]:.4f}, at most {apart:.1e} from "
              f"one process; rank 1 sent {sent} bytes, with ring attention {ring}")
        assert losses[-1] < losses[0] and apart < 1e-5 and sent < ring
