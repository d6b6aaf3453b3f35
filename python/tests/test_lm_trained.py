"""What `plsh train` writes loads in transformers, and says there what it says in plsh."""

import importlib.util
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
    """The spread of new weights is that of transformers, tensor by tensor."""
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
