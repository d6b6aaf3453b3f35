"""BLOOM, MPT and Falcon: plsh_exact gives what their own attention gives, in every use of them."""

import copy
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import plsh.hf  # noqa: E402
from alibi_models import FAMILIES, ids, padded, tiny, with_plsh  # noqa: E402
from conftest import GOLDEN  # noqa: E402

plsh.hf.register()
VARIANTS = {
    "bloom": ("bloom", 4, {}), "bloom-6-heads": ("bloom", 6, {}), "mpt": ("mpt", 4, {}),
    "mpt-6-heads": ("mpt", 6, {}), "falcon": ("falcon", 4, {}), "falcon-6-heads": ("falcon", 6, {}),
    "falcon-one-key-head": ("falcon", 4, {"multi_query": True, "parallel_attn": True}),
    "falcon-groups": ("falcon", 4, {"new_decoder_architecture": True, "num_kv_heads": 2,
                                    "parallel_attn": True}),
}


def run(model, tokens, labels=None, **more):
    """Logits, loss and gradients."""
    model.zero_grad()
    out = model(tokens, labels=tokens if labels is None else labels, use_cache=False, **more)
    out.loss.backward()
    return {"logits": out.logits.detach(), "loss": out.loss.detach(),
            **{name: p.grad for name, p in model.named_parameters()}}


def limits(precise, single):
    """Twice the error of the model's own attention in float32, and some units in the last place."""
    return {name: 2 * float((single[name] - x).abs().max()) + 4 * 2**-23 * float(x.abs().max())
            for name, x in precise.items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_loss_and_gradients(variant):
    family, heads, changes = VARIANTS[variant]
    own = tiny(family, heads, **changes)
    tokens = ids(2, 70)
    precise, single = run(copy.deepcopy(own).double(), tokens), run(own, tokens)
    ours = run(with_plsh(own), tokens)
    for name, limit in limits(precise, single).items():
        assert float((ours[name] - precise[name]).abs().max()) <= limit, name


def test_falcon_with_rope_gets_alibi_beside_it():
    own = tiny("falcon", alibi=False)
    tokens = ids(1, 40)
    mine = with_plsh(own, sigma=1e9)  # a negligible bias
    torch.testing.assert_close(mine(tokens).logits, own(tokens).logits, rtol=0, atol=1e-5)
    assert (with_plsh(own)(tokens).logits - own(tokens).logits).abs().max() > 1e-2


def run_alone(model, tokens, mask):
    """The same of a batch's rows one by one, without their padding."""
    model.zero_grad()
    logits, losses, total = [], [], float((mask.sum(dim=1) - 1).sum())
    for row, there in zip(tokens, mask.bool()):
        text = row[there][None]
        out = model(text, labels=text, use_cache=False)
        losses.append(out.loss * (text.shape[1] - 1) / total)
        logits.append(out.logits.detach()[0])
    sum(losses).backward()
    return {"logits": torch.cat(logits), "loss": sum(losses).detach(),
            **{name: p.grad for name, p in model.named_parameters()}}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_padding(family, side):
    """Against the rows alone: in float64 BLOOM and MPT make NaN of padding on the left."""
    own = tiny(family)
    tokens, mask = padded(side)
    told = mask * torch.nn.functional.pad(mask, (1, -1))  # tokens that come after a token
    more = {"attention_mask": mask, "labels": tokens.masked_fill(told == 0, -100)}
    precise = run_alone(copy.deepcopy(own).double(), tokens, mask)
    single, ours = run(own, tokens, **more), run(with_plsh(own), tokens, **more)
    for found in (single, ours):
        found["logits"] = found["logits"][mask.bool()]
    for name, limit in limits(precise, single).items():
        assert float((ours[name] - precise[name]).abs().max()) <= limit, name


@pytest.mark.parametrize("options", [
    {"use_cache": True}, {"use_cache": False}, {"num_beams": 3}, {"num_beams": 2, "use_cache": False},
    {"cache_implementation": "static", "disable_compile": True},
], ids=["cached", "uncached", "beams", "beams-uncached", "static"])
@pytest.mark.parametrize("family", FAMILIES)
def test_generation(family, options):
    own = tiny(family)
    tokens, mask = padded("left", (12, 5, 9), 12)
    more = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False}
    found = with_plsh(own).generate(tokens, **more, **options)
    if options.get("cache_implementation") == "static":  # not all of them can, on their own
        options = {"use_cache": True}
    assert found.tolist() == own.generate(tokens, **more, **options).tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_assisted_decoding(family):
    own, helper = tiny(family), tiny(family, layers=1)
    tokens = ids(1, 9)
    more = {"max_new_tokens": 12, "do_sample": False}
    wanted = own.generate(tokens, **more)
    found = with_plsh(own).generate(tokens, assistant_model=with_plsh(helper), **more)
    assert found.tolist() == wanted.tolist()
    found = with_plsh(own).generate(tokens, prompt_lookup_num_tokens=3, **more)
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16(family):
    """Logits and gradients are as near to float32's as the model's own, or nearer."""
    own = tiny(family)
    tokens = ids(2, 64)
    precise = run(own, tokens)
    half = copy.deepcopy(own).to(torch.bfloat16)
    theirs, ours = run(half, tokens), run(with_plsh(half), tokens)
    for name, x in precise.items():
        assert name == "loss" or ours[name].dtype == torch.bfloat16
        limit = 2 * float((theirs[name] - x).abs().max()) + 2**-8 * float(x.abs().max())
        assert float((ours[name] - x).abs().max()) <= limit, name


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_and_loaded(family, tmp_path):
    own = tiny(family)
    mine = with_plsh(own)
    tokens = ids(1, 30)
    wanted = mine(tokens).logits
    mine.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert loaded.config._attn_implementation == "plsh_exact"
    assert torch.equal(loaded(tokens).logits, wanted)
    named = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, attn_implementation="plsh_exact").eval()
    assert torch.equal(named(tokens).logits, wanted)
    plsh.hf.remove(loaded)
    assert loaded.config._attn_implementation not in ("plsh_exact", None)
    if family == "falcon":  # transformers makes it eager or sdpa; eager adds the bias twice
        loaded.config._attn_implementation = "sdpa"
    torch.testing.assert_close(loaded(tokens).logits, own(tokens).logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_apply_and_remove(family):
    model = tiny(family)
    tokens = ids(1, 50)
    own = model(tokens).logits
    for method, far in (("exact", False), ("plsh", True), ("window", False), ("fixed", True)):
        plsh.hf.apply(model, method)
        assert (float((model(tokens).logits - own).abs().max()) > 1e-3) == far
    plsh.hf.remove(model)
    assert torch.equal(model(tokens).logits, own)
    assert "plsh" not in model.config.to_json_string()
    with pytest.raises(ValueError, match="does not have plsh attention"):
        plsh.hf.configure(model, samples=3)
    with pytest.raises(ValueError, match="method='dense': is one of exact, plsh, window, fixed"):
        plsh.hf.apply(model, "dense")


def test_sampled_converges_to_the_model():
    own = tiny("bloom")
    tokens = ids(1, 64)
    wanted, errors = own(tokens).logits, []
    for samples in (4, 4000):
        found = with_plsh(own, "plsh", samples=samples)(tokens).logits
        errors.append(float((found - wanted).detach().abs().max()))
    assert errors[1] < errors[0] / 5


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_refused(family):
    model = with_plsh(tiny(family))
    tokens = ids(1, 10)
    with pytest.raises(NotImplementedError, match="output_attentions=True"):
        model(tokens, output_attentions=True)
    with pytest.raises((NotImplementedError, RuntimeError), match="output_attentions=True"):
        torch.compile(model, backend="eager")(tokens, output_attentions=True)
    asking = tiny(family)
    asking.set_attn_implementation("eager")  # with others transformers refuses the next line
    asking.config.output_attentions = True
    with pytest.raises(NotImplementedError, match="output_attentions=True"):
        plsh.hf.apply(asking)
    with pytest.raises(NotImplementedError, match="mask of its own"):
        model(tokens, attention_mask=torch.zeros(1, 1, 10, 10))


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_in_training(family):
    """In training, from torch's generator; none in eval()."""
    tokens, plain = ids(1, 10), with_plsh(tiny(family))
    dropping = with_plsh(tiny(family))
    for module in dropping.modules():
        if family == "mpt" and hasattr(module, "attn_dropout_p"):
            module.attn_dropout_p = 0.3
        elif isinstance(getattr(module, "attention_dropout", None), torch.nn.Dropout):
            module.attention_dropout.p = 0.3
    assert torch.equal(dropping(tokens).logits, plain(tokens).logits)
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        runs.append(dropping.train()(tokens, use_cache=False).logits)
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


needs_models = pytest.mark.skipif(not (GOLDEN / "models").is_dir(),
                                  reason="no reference data; PLSH_SHARED points at it")


@needs_models
@pytest.mark.parametrize("name", ["bloom", "bloom6", "mpt", "falcon"])
def test_golden(name):
    from safetensors.numpy import load_file

    folder = GOLDEN / "models" / name
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="plsh_exact", dtype=torch.float32).eval()
    tokens = torch.from_numpy(np.load(folder / "input_ids.npy")).long()
    found = run(model, tokens)
    assert abs(found["logits"].numpy() - np.load(folder / "logits.npy")).max() < 5e-5
    wanted = json.loads((folder / "loss.json").read_text())
    assert found["loss"].item() == pytest.approx(wanted["loss_float64"], abs=1e-5)
    for key, gradient in load_file(folder / "grads.safetensors").items():
        assert abs(found[key].numpy() - gradient).max() <= 1e-5 * abs(gradient).max(), key


@needs_models
def test_golden_generation():
    folder = GOLDEN / "generate"
    wanted = json.loads((folder / "bloom.json").read_text())
    model = transformers.AutoModelForCausalLM.from_pretrained(
        GOLDEN / "models" / "bloom", attn_implementation="plsh_exact").eval()
    prompt = torch.tensor(wanted["prompt"])[None]
    found = model.generate(prompt, max_new_tokens=20, do_sample=False, eos_token_id=None)
    assert found[0, prompt.shape[1]:].tolist() == wanted["generated"]


def gelus(x, gradient):
    """BLOOM's GELU and torch's, with their gradients."""
    from transformers.models.bloom.modeling_bloom import bloom_gelu_back, bloom_gelu_forward

    own = {"value": bloom_gelu_forward(x), "gradient": bloom_gelu_back(gradient, (x,))}
    leaf = x.clone().requires_grad_()
    value = torch.nn.functional.gelu(leaf, approximate="tanh")
    (back,) = torch.autograd.grad(value, leaf, gradient)
    return own, {"value": value.detach(), "gradient": back}


def test_the_fused_gelu_is_blooms():
    """Against BLOOM's own formula in float64: as near as BLOOM's in float32, and nearer in bfloat16,
    where BLOOM rounds after each of its operations."""
    x = torch.cat([torch.linspace(-12, 12, 40001), torch.tensor([0.0, -0.0, 1e-30, 1e4, -1e4])])
    gradient = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    for dtype, bits in ((torch.float32, 23), (torch.bfloat16, 7)):
        at, slope = x.to(dtype), gradient.to(dtype)
        (precise, _), (own, fused) = gelus(at.double(), slope.double()), gelus(at, slope)
        for name, wanted in precise.items():
            unit = 2.0**-bits * wanted.abs().clamp(min=1)
            limit = 2 * ((own[name] - wanted).abs() / unit).max()
            assert ((fused[name] - wanted).abs() / unit).max() <= limit, (name, dtype)


def count_gelus(model, tokens):
    """How often BLOOM's own GELU ran, and torch's; in a forward pass and its gradient."""
    with torch.profiler.profile() as profile:
        run(model, tokens)
    names = [event.name for event in profile.events()]
    return sum(x == "GeLUFunction" for x in names), sum(x == "aten::gelu" for x in names)


def test_bloom_has_the_fused_gelu_while_plsh_serves_it(tmp_path):
    model, tokens = tiny("bloom"), ids(1, 20)
    own = run(model, tokens)
    assert count_gelus(model, tokens) == (2, 0)
    plsh.hf.apply(model)
    assert count_gelus(model, tokens) == (0, 2)
    model.save_pretrained(tmp_path)
    for how in ({}, {"attn_implementation": "plsh_exact"}):
        loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **how)
        assert count_gelus(loaded, tokens) == (0, 2)
    loaded.set_attn_implementation("eager")
    assert count_gelus(loaded, tokens) == (2, 0)
    plsh.hf.configure(model, fused_gelu=False)
    assert count_gelus(model, tokens) == (2, 0)
    model.save_pretrained(tmp_path)
    assert "attn_implementation" not in json.loads((tmp_path / "config.json").read_text())
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert count_gelus(loaded, tokens) == (2, 0)
    plsh.hf.configure(model)
    assert count_gelus(model, tokens) == (0, 2)
    plsh.hf.remove(model)
    assert count_gelus(model, tokens) == (2, 0)
    assert all(torch.equal(x, own[name]) for name, x in run(model, tokens).items())


def test_a_gelu_of_the_users_stays():
    """Hooks on BLOOM's GELU see what passes; another module in its place is called as it is."""
    model, tokens, seen = with_plsh(tiny("bloom")), ids(1, 20), []
    mlp = model.transformer.h[0].mlp
    mlp.gelu_impl.register_forward_hook(lambda _, inputs, output: seen.append(output))
    model(tokens)
    assert len(seen) == 1 and seen[0].shape == (1, 20, 128)
    mlp.gelu_impl = torch.nn.ReLU()
    other = copy.deepcopy(model)
    plsh.hf.remove(other)
    torch.testing.assert_close(model(tokens).logits, other(tokens).logits, rtol=0, atol=1e-5)
    with pytest.raises(TypeError, match="fused_gelu='no': is True or False"):
        plsh.hf.configure(model, fused_gelu="no")


def test_bloom_blocks_with_the_residual_after_the_norm():
    own, tokens = tiny("bloom", apply_residual_connection_post_layernorm=True), ids(1, 30)
    precise, single = run(copy.deepcopy(own).double(), tokens), run(own, tokens)
    ours = run(with_plsh(own), tokens)
    for name, limit in limits(precise, single).items():
        assert float((ours[name] - precise[name]).abs().max()) <= limit, name
