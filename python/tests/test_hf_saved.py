"""Options are part of the configuration: saved, loaded, and missed where plsh is missing."""

import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import plsh  # noqa: E402
import plsh.hf  # noqa: E402
from alibi_models import ids, tiny, with_plsh  # noqa: E402
from test_hf import tiny as interface  # noqa: E402

plsh.hf.register()
LOAD = transformers.AutoModelForCausalLM.from_pretrained


@pytest.mark.parametrize("options", [
    {"samples": 7, "seed": 5}, {"sigma": [2.0, 3.0, 4.0, 5.0], "scheme": "cuts"},
    {"slopes": torch.tensor([0.5, 0.1, 0.2, 0.3])},
    {"decay": plsh.Decay("kerple-log", 1.0, 0.1)},
], ids=["samples", "sigma", "slopes", "decay"])
def test_configured(options, tmp_path):
    model = interface("llama", "plsh_plsh")
    plsh.hf.configure(model, **options)
    tokens = ids(1, 40)
    wanted = model(tokens).logits
    model.save_pretrained(tmp_path)
    loaded = LOAD(tmp_path).eval()
    assert loaded.config._attn_implementation == "plsh_plsh"
    assert torch.equal(loaded(tokens).logits, wanted)
    plsh.hf.configure(loaded, samples=3)
    assert not torch.equal(loaded(tokens).logits, wanted)


def test_registered(tmp_path):
    try:
        plsh.hf.register(samples=9)
        model = interface("llama", "plsh_plsh")
    finally:
        plsh.hf.register()
    tokens = ids(1, 40)
    wanted = model(tokens).logits
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["plsh"]["options"] == {"samples": 9}
    assert torch.equal(LOAD(tmp_path).eval()(tokens).logits, wanted)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_dropped_rope(kind, tmp_path):
    model = interface(kind)
    tokens = ids(1, 30)
    rotated = model(tokens).logits
    plsh.hf.drop_rope(model)
    wanted = model(tokens).logits
    assert not torch.equal(wanted, rotated)
    model.save_pretrained(tmp_path)
    for _ in range(2):  # what was loaded is saved again
        loaded = LOAD(tmp_path).eval()
        assert torch.equal(loaded(tokens).logits, wanted)
        loaded.save_pretrained(tmp_path)


def load_without_plsh(folder):
    code = f"import transformers; transformers.AutoModelForCausalLM.from_pretrained({str(folder)!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_loaded_without_plsh(tmp_path, caplog):
    """A model that plsh makes another one says so; BLOOM with plsh_exact is BLOOM."""
    interface("llama").save_pretrained(tmp_path / "llama")
    run = load_without_plsh(tmp_path / "llama")
    assert run.returncode != 0 and "plsh_exact" in run.stderr
    with_plsh(tiny("bloom")).save_pretrained(tmp_path / "bloom")
    assert load_without_plsh(tmp_path / "bloom").returncode == 0
    sampled = with_plsh(tiny("bloom"), "plsh", samples=7)
    sampled.save_pretrained(tmp_path / "sampled")
    run = load_without_plsh(tmp_path / "sampled")
    assert run.returncode != 0 and "plsh_plsh" in run.stderr
    assert torch.equal(LOAD(tmp_path / "sampled").eval()(ids(1, 40)).logits,
                       sampled(ids(1, 40)).logits)
    transformers.utils.logging.enable_propagation()
    try:
        other = LOAD(tmp_path / "llama", attn_implementation="sdpa")
    finally:
        transformers.utils.logging.disable_propagation()
    assert "was saved with plsh_exact attention and is loaded with sdpa" in caplog.text
    assert other.config._attn_implementation == "sdpa"


def test_switching_leaves_nothing_behind(tmp_path):
    model = interface("llama")
    model.set_attn_implementation("sdpa")
    model.save_pretrained(tmp_path)
    assert "plsh" not in (tmp_path / "config.json").read_text()


def test_what_is_refused():
    model = interface("llama")
    with pytest.raises(TypeError, match="sample: not an option"):
        plsh.hf.configure(model, sample=3)
    with pytest.raises(TypeError, match="slopes: a tensor that requires a gradient"):
        plsh.hf.configure(model, slopes=torch.ones(4, requires_grad=True))
    with pytest.raises(plsh.hf.Refused, match="Linear: no model of transformers"):
        plsh.hf.apply(torch.nn.Linear(2, 2))
