"""What `plsh train` writes loads in transformers, and says there what it says in plsh."""

import importlib.util
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from conftest import TOP  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("PLSH_PROGRAM", TOP / "build/plsh"))
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="the program is not built")


def plsh(*arguments):
    subprocess.run([PROGRAM, *map(str, arguments), "--quiet"], check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path):
    """model: tiny, with bytes as tokens; text.txt; ids.npy."""
    path = TOP / "tests/support/write_model.py"
    spec = importlib.util.spec_from_file_location("write_model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.write(tmp_path / "model", *module.llama())
    text = "".join(f"line {i} of a text to learn\n" for i in range(100))
    (tmp_path / "text.txt").write_text(text)
    np.save(tmp_path / "ids.npy", np.frombuffer(text[:200].encode(), dtype=np.uint8).astype(np.int32))
    return tmp_path


def close(folder, model, *options):
    """The largest difference of the logits, relative to the largest logit."""
    plsh("forward", "--ids", folder / "ids.npy", "--logits", folder / "logits.npy", *options)
    ours = np.load(folder / "logits.npy")
    with torch.no_grad():
        ids = torch.from_numpy(np.load(folder / "ids.npy")).long()[None]
        theirs = model(ids).logits[0].numpy()
    return np.abs(ours - theirs).max() / np.abs(theirs).max()


def test_scratch(folder):
    plsh("train", "--fresh", folder / "model/config.json", "--tokenizer", folder / "model",
         "--text", folder / "text.txt", "--context", 64, "--steps", 20, "--lr", 3e-3,
         "--out", folder / "out")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "out").eval()
    assert model.dtype == torch.float32
    assert close(folder, model, "--model", folder / "out") < 1e-5
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "out/tokenizer.json"))
    assert tokenizer.decode(tokenizer("line 1")["input_ids"]) == "line 1"


def test_initial_weights(folder):
    """The standard deviation of new weights is that of transformers, tensor by tensor."""
    plsh("train", "--fresh", folder / "model/config.json", "--tokenizer", folder / "model",
         "--text", folder / "text.txt", "--context", 64, "--steps", 1, "--lr", 0,
         "--weight-decay", 0, "--out", folder / "out")
    ours = transformers.AutoModelForCausalLM.from_pretrained(folder / "out")
    theirs = transformers.AutoModelForCausalLM.from_config(ours.config)
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters()):
        if a.ndim == 1:
            assert torch.equal(a, b), name
        else:
            assert abs(a.std() / b.std() - 1) < 8 / a.numel() ** 0.5, name


def test_adapter(folder):
    peft = pytest.importorskip("peft")
    plsh("train", "--base", folder / "model", "--text", folder / "text.txt", "--context", 64,
         "--steps", 10, "--lr", 1e-2, "--lora-rank", 4, "--lora-alpha", 10, "--out", folder / "out")
    base = transformers.AutoModelForCausalLM.from_pretrained(folder / "model")
    model = peft.PeftModel.from_pretrained(base, folder / "out").eval()
    assert close(folder, model, "--model", folder / "model", "--adapter", folder / "out") < 1e-5


def alibi_mask(heads, n):
    """What transformers adds to the scores: causal, -distance / sigma."""
    slopes = torch.tensor([2.0 ** (-8 * (h + 1) / heads) for h in range(heads)])
    distance = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    mask = -slopes[:, None, None] * distance
    return torch.where(distance < 0, torch.finfo(torch.float32).min, mask)[None]


def torch_losses(model, windows, steps, rate, mask):
    """The losses of AdamW as `plsh train` has it: warm-up of a tenth, then linear, clipping at 1."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    losses = []
    for ids in windows[:steps]:
        loss = model(ids[None], labels=ids[None], attention_mask=mask, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("attention", ["original", "exact"])
def test_losses_of_twenty_steps(folder, attention):
    """Step by step those of torch, from the same weights."""
    config = json.loads((folder / "model/config.json").read_text())
    config.update(model_type="qwen3", architectures=["Qwen3ForCausalLM"], num_attention_heads=4,
                  num_key_value_heads=2, head_dim=16, attention_bias=False)
    (folder / "config.json").write_text(json.dumps(config))
    common = ["--tokenizer", folder / "model", "--text", folder / "text.txt", "--context", 64]
    plsh("train", "--fresh", folder / "config.json", "--steps", 1, "--lr", 0, "--weight-decay", 0,
         "--out", folder / "new", *common)
    plsh("train", "--base", folder / "new", "--steps", 20, "--lr", 1e-3, "--attention", attention,
         "--out", folder / "out", *common)
    ours = [json.loads(line)["loss"] for line in (folder / "out/log.jsonl").read_text().splitlines()]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "new", attn_implementation="sdpa")
    model.train()
    ids = np.frombuffer((folder / "text.txt").read_bytes(), dtype=np.uint8).astype(np.int64)
    windows = torch.from_numpy(ids[:len(ids) // 64 * 64].reshape(-1, 64))
    mask = alibi_mask(4, 64) if attention == "exact" else None
    theirs = torch_losses(model, windows, 20, 1e-3, mask)
    assert len(ours) == 20 and theirs[-1] < theirs[0] - 0.1
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
