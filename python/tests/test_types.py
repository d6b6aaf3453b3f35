"""Options are named in the types: mypy --strict finds a typo, and passes what is right."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("mypy")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import plsh  # noqa: E402

RIGHT = """
import numpy as np
import torch
import plsh
import plsh.hf
import plsh.torch

q = np.zeros((4, 10, 8), np.float32)
o = plsh.attention(q, q, q, method="plsh", samples=4, sigma=[1.0, 2.0, 3.0, 4.0])
pair = plsh.attention(q, q, q, certificate=True, window=8, method="window")
bound = pair[1].max()
t = torch.zeros(1, 4, 10, 8)
y: torch.Tensor = plsh.torch.attention(t, t, t, slopes=torch.ones(4), eps=1e-3)
both: tuple[torch.Tensor, torch.Tensor] = plsh.torch.attention(t, t, t, return_lse=True)
three: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = plsh.torch.attention(
    t, t, t, return_lse=True, certificate=True, decay=["alibi:4"] * 4)
f = plsh.torch.flash_attn_func(t, t, t, causal=True, alibi_slopes=torch.ones(10))
s: torch.Tensor = plsh.torch.scaled_dot_product_attention(t, t, t, alibi_slopes=torch.ones(4))
z: torch.Tensor = plsh.torch.context_parallel(t, t, t, method="plsh", samples=4)
layer = plsh.torch.ALiBiAttention(32, 4, learn_slopes=True, method="plsh", samples=4)
cache = plsh.torch.Cache(undo=3, method="window", window=8)
model = plsh.Model("model.gguf", attention="window", window=8)
text: str = model.generate("a", max_tokens=4, stop=["."], temperature=0.5).text
parts: list[str] = [x.text for x in model.chat([{"role": "user", "content": "a"}], stream=True)]
rows: np.typing.NDArray[np.float32] = model.embed(["a", "b"], pooling="mean")
plsh.hf.register(samples=4)
plsh.hf.apply(layer, "plsh", samples=4, fused_gelu=False)
plsh.hf.configure(layer, samples=4)
"""
WRONG = """
plsh.attention(q, q, q, sample=4)
plsh.attention(q, q, q, certificate=True, windows=8)
plsh.attend(q, q, q, sample=4)
plsh.torch.attention(t, t, t, slope=0.5)
plsh.torch.attention(t, t, t, return_lse=True, method=3)
plsh.torch.context_parallel(t, t, t, sample=4)
plsh.torch.ALiBiAttention(32, 4, learn_slope=True)
plsh.torch.Cache(windows=8)
plsh.Model("model.gguf", windows=8)
model.generate("a", max_token=4)
model.chat("a")
plsh.hf.register(sample=4)
plsh.hf.apply(layer, "plsh", sample=4)
plsh.hf.configure(layer, samples="many")
"""


def test_typos_are_found(tmp_path):
    """Every line of WRONG is refused, and no other."""
    file = tmp_path / "user.py"
    file.write_text(RIGHT + WRONG)
    (tmp_path / "plsh").symlink_to(pathlib.Path(plsh.__file__).parent)
    shared = pathlib.Path(sys.prefix) / "mypy"  # scripts/test-python's, which knows torch already
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir",
         str(shared if shared.is_dir() else tmp_path / "cache"), "user.py"], cwd=tmp_path,
        capture_output=True, text=True, check=False)
    first = len(RIGHT.splitlines()) + 2
    wanted = set(range(first, first + len(WRONG.split("\n")) - 2))
    found = {int(x.split(":")[1]) for x in run.stdout.splitlines() if ": error: " in x}
    assert run.returncode == 1 and found == wanted, run.stdout + run.stderr
