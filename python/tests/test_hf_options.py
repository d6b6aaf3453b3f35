"""Options of models: each is used or refused when it is given; what changes a model says so."""

import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import plsh.hf  # noqa: E402
from alibi_models import ids, tiny, with_plsh  # noqa: E402
from plsh.hf import _models  # noqa: E402
from test_hf import tiny as interface  # noqa: E402

plsh.hf.register()
LOAD = transformers.AutoModelForCausalLM.from_pretrained
WRONG = [
    ("exact", {"samples": 4}, "samples=4: goes with method plsh"),
    ("exact", {"window": 8}, "window=8: goes with method window"),
    ("plsh", {"block": 8}, "block=8: goes with method fixed"),
    ("window", {"eps": 1e-3}, "eps=0.001: goes with method exact"),
    ("plsh", {"samples": 0}, "samples=0"), ("window", {"window": 0}, "window=0"),
    ("exact", {"sigma": [1.0, 2.0, 3.0]}, "sigma: 3 values for 4 heads"),
    ("exact", {"sigma": -1.0}, "sigma is -1"), ("exact", {"slopes": -1.0}, "slopes=.*are positive"),
    ("plsh", {"scheme": "cut"}, "scheme='cut'"), ("exact", {"threads": -1}, "threads=-1"),
]


@pytest.mark.parametrize("method, options, message", WRONG)
def test_refused_when_given(method, options, message):
    model = tiny("bloom")
    with pytest.raises(ValueError, match=message):
        plsh.hf.apply(model, method, **options)
    assert not hasattr(model.config, "plsh")
    plsh.hf.apply(model, method)
    with pytest.raises(ValueError, match=message):
        plsh.hf.configure(model, **options)
    assert model.config.plsh["options"] == {}


@pytest.mark.parametrize("options, message", [
    ({"samples": 0}, "samples=0"), ({"window": -1}, "window=-1"), ({"sigma": "alib"}, "sigma"),
    ({"decay": "gauss:1"}, "decay='gauss:1'"), ({"seed": -1}, "seed=-1")])
def test_registered_options_are_checked(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        plsh.hf.register(**options)
    assert _models.defaults == {}


def test_registered_options_go_to_the_methods_that_use_them():
    try:
        plsh.hf.register(samples=9, sigma=4.0)
        models = {x: interface("llama", f"plsh_{x}") for x in ("exact", "plsh")}
    finally:
        plsh.hf.register()
    assert models["exact"].config.plsh["options"] == {"sigma": 4.0}
    assert models["plsh"].config.plsh["options"] == {"samples": 9, "sigma": 4.0}
    for model in models.values():
        model(ids(1, 10))
        model.set_attn_implementation("plsh_window")
        assert model.config.plsh["options"] == {"sigma": 4.0}


# ---- A model without ALiBi -------------------------------------------------------------------------

def warned(make):
    """The warnings about ALiBi while a model is made."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    return [str(x.message) for x in caught if "has no ALiBi" in str(x.message)]


@pytest.fixture
def fresh(monkeypatch):
    monkeypatch.setattr(_models, "_warned", set(), raising=False)


def llama():
    return transformers.LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2)


def bert():
    return transformers.BertConfig(vocab_size=97, hidden_size=32, intermediate_size=48,
                                   num_hidden_layers=1, num_attention_heads=4)


@pytest.mark.parametrize("implementation", ["plsh_exact", "plsh_plsh", "plsh_window"])
@pytest.mark.parametrize("kind", [
    (transformers.LlamaForCausalLM, llama), (transformers.BertForMaskedLM, bert)])
def test_a_model_without_alibi_is_warned_of_once(fresh, kind, implementation):
    cls, config = kind
    for number in (1, 0):
        found = warned(lambda: cls._from_config(config(), attn_implementation=implementation))
        assert len(found) == number
        for text in found:
            assert text.startswith(f"{cls.__name__}: ") and implementation in text
            assert 'sigma="alibi"' in text and "plsh.hf.register" in text


def test_what_silences_it(fresh, tmp_path):
    cls = transformers.LlamaForCausalLM
    assert not warned(lambda: plsh.hf.apply(cls(llama()), sigma="alibi"))
    assert not warned(lambda: plsh.hf.apply(cls(llama()), slopes=0.5))
    assert not warned(lambda: plsh.hf.apply(cls(llama()), "fixed"))
    model = cls(llama())
    try:
        plsh.hf.register(sigma="alibi")
        assert not warned(lambda: cls._from_config(llama(), attn_implementation="plsh_exact"))
    finally:
        plsh.hf.register()
    same, standard = interface("llama"), interface("llama")
    plsh.hf.apply(same, sigma="alibi")
    assert torch.equal(same(ids(1, 30)).logits, standard(ids(1, 30)).logits)
    _models._warned.clear()
    assert warned(lambda: plsh.hf.apply(model))
    _models._warned.clear()
    model.save_pretrained(tmp_path)  # one that was made so is meant so
    assert not warned(lambda: LOAD(tmp_path))


@pytest.mark.parametrize("family", ["bloom", "mpt", "falcon"])
def test_a_model_with_alibi_is_not_warned_of(fresh, family):
    assert not warned(lambda: with_plsh(tiny(family)))


def loaded_eager(folder, caplog):
    """The logits of a saved model with its own attention, and what was said meanwhile."""
    caplog.clear()
    transformers.utils.logging.enable_propagation()
    try:
        model = LOAD(folder, attn_implementation="eager").eval()
    finally:
        transformers.utils.logging.disable_propagation()
    return model(ids(1, 30)).logits, caplog.text


def test_alibi_models_loaded_without_plsh_are_the_same(tmp_path, caplog):
    for name, options in (("plain", {}), ("gelu", {"fused_gelu": False})):
        model = with_plsh(tiny("bloom"), **options)
        model.save_pretrained(tmp_path / name)
        logits, said = loaded_eager(tmp_path / name, caplog)
        assert "another model" not in said
        torch.testing.assert_close(logits, model(ids(1, 30)).logits, rtol=0, atol=1e-5)
    for name, method, options in (("sigma", "exact", {"sigma": 3.0}), ("plsh", "plsh", {})):
        with_plsh(tiny("bloom"), method, **options).save_pretrained(tmp_path / name)
        assert "it is another model" in loaded_eager(tmp_path / name, caplog)[1]


# ---- Names -----------------------------------------------------------------------------------------

def test_the_old_name_of_plsh(tmp_path):
    wanted = with_plsh(tiny("bloom"), "plsh", samples=7)
    with pytest.warns(FutureWarning, match='"plsh"'):
        old = with_plsh(tiny("bloom"), "sampled", samples=7)
    assert old.config._attn_implementation == "plsh_plsh"
    assert torch.equal(old(ids(1, 30)).logits, wanted(ids(1, 30)).logits)
    wanted.save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace("plsh_plsh", "plsh_sampled"))
    with pytest.warns(FutureWarning, match="plsh_plsh"):
        loaded = LOAD(tmp_path).eval()
    assert torch.equal(loaded(ids(1, 30)).logits, wanted(ids(1, 30)).logits)


def test_refused_is_public():
    model = with_plsh(tiny("bloom"))
    with pytest.raises(plsh.hf.Refused, match="output_attentions"):
        model(ids(1, 8), output_attentions=True)


def test_autocast_of_a_model():
    model, tokens = with_plsh(tiny("bloom")), ids(1, 30)
    llama = interface("llama")
    for x in (model, llama):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            whole = x(tokens, use_cache=False).logits
            out = x.generate(tokens, max_new_tokens=3, do_sample=False)
        assert whole.dtype == torch.bfloat16 and out.shape[1] == 33


def test_typing_extensions_is_not_needed():
    """It is for type checkers alone."""
    code = ("import sys; sys.modules['typing_extensions'] = None; import plsh\n"
            "assert plsh.alibi(4.0)(0) == 1")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
