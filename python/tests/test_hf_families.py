"""ALiBi families with code of their own, and layers that plsh is taught: their own outputs and gradients."""

import copy
import json
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import family_encoders  # noqa: E402
import family_models  # noqa: E402
import plsh.hf  # noqa: E402
from conftest import GOLDEN  # noqa: E402
from family_models import SHAPES, make  # noqa: E402

ENCODERS = ("dnabert2_mlm", "dnabert2_cls", "jina", "jina_code", "jina_reranker")
DECODERS = tuple(name for name in SHAPES if name not in ENCODERS)
FOLDERS = {name: GOLDEN / ("jina-bert-v2" if name == "jina" else f"families/{name}") for name in SHAPES}


def tokens(batch=3, n=40):
    return torch.randint(2, 50, (batch, n), generator=torch.Generator().manual_seed(1))


def mask_of(lengths, n=40, side="right"):
    place = torch.arange(n)[None]
    ends = torch.tensor(lengths)[:, None]
    return (place < ends if side == "right" else place >= n - ends).to(torch.int64)


def with_plsh(model, method="exact", **options):
    copied = copy.deepcopy(model)
    plsh.hf.apply(copied, method, **options)
    return copied


def gradients(model, outputs):
    """Of a sum that no symmetry makes vanish."""
    model.zero_grad()
    weight = torch.linspace(-1, 1, outputs.numel(), dtype=outputs.dtype).view_as(outputs)
    (outputs * weight).sum().backward()
    return {name: x.grad for name, x in model.named_parameters() if x.grad is not None}


def compare(own, ours, pick=lambda x: x, **inputs):
    """Outputs and gradients against the model's own in double; twice the error of its own in float."""
    precise = copy.deepcopy(own).double()
    results = [pick(model(**inputs)) for model in (precise, own, ours)]
    found = [gradients(model, x) for model, x in zip((precise, own, ours), results)]
    assert found[0].keys() == found[2].keys()
    for x, out in zip(found, results):
        x["output"] = out.detach()
    largest = max(float(x.abs().max()) for x in found[0].values())
    for name, right in found[0].items():
        limit = 2 * float((found[1][name] - right).abs().max()) + 2e-6 * float(right.abs().max())
        assert float((found[2][name] - right).abs().max()) <= limit + 2e-7 * largest, name


@pytest.mark.parametrize("name", SHAPES)
def test_outputs_and_gradients(name, monkeypatch):
    own = make(name)
    compare(own, with_plsh(own), input_ids=tokens())
    assert (own(tokens()) - with_plsh(own, sigma=0.5)(tokens())).abs().max() > 1e-3  # options are used
    ours = with_plsh(own)
    for module in (family_encoders, family_models):  # the bias as an array is never made
        monkeypatch.setattr(module, "distances", None)
    ours(tokens())


@pytest.mark.parametrize("name", ["jina", "refact", "mpt_gqa"])
def test_other_revisions(name):
    changes = {"jina": {"table": True}, "refact": {"old": True}, "mpt_gqa": {"no_bias": False}}[name]
    own = make(name, **changes)
    ours = with_plsh(own)
    compare(own, ours, input_ids=tokens())
    plsh.hf.remove(ours)
    torch.testing.assert_close(ours(tokens()), own(tokens()), rtol=0, atol=0)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", [x for x in SHAPES if x not in ("jais13", "baichuan2", "mpt_storywriter")])
def test_padding(name, side):
    """The rows of the tokens agree."""
    if side == "left" and name in ("dnabert2_cls", "jina_reranker"):
        pytest.skip("reads the first row, which is padding")
    mask = mask_of([40, 17, 3], side=side)
    pooled = name in ("dnabert2_cls", "jina_reranker")
    own = make(name)
    compare(own, with_plsh(own), (lambda x: x) if pooled else (lambda x: x[mask.bool()]),
            input_ids=tokens(), attention_mask=mask)


def test_mosaic_gives_zeros_for_padding_and_rows_of_a_subset():
    own = make("dnabert2_mlm").bert
    ours, mask = with_plsh(own), mask_of([40, 17, 3])
    assert (ours(tokens(), mask)[mask == 0] == 0).all()
    subset = torch.zeros(3, 40, dtype=torch.bool)
    subset[:, :2] = True
    torch.testing.assert_close(ours(tokens(), mask, subset), own(tokens(), mask, subset), rtol=0, atol=1e-5)
    embedded = own.embeddings(tokens())
    for x, y in zip(ours.encoder(embedded, mask), own.encoder(embedded, mask)):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_caches(name):
    """A prompt and one token at a time, padding on the left: the rows of the whole text."""
    model, mask = with_plsh(make(name)), mask_of([12, 7, 3], 12, "left")
    ids = tokens(n=12)
    whole = model(ids, attention_mask=mask)
    logits, kept = model(ids[:, :8], attention_mask=mask[:, :8], use_cache=True)
    rows = [logits]
    for n in range(8, 12):
        logits, kept = model(ids[:, n:n + 1], attention_mask=mask[:, :n + 1], use_cache=True,
                             past_key_values=kept)
        rows.append(logits)
    torch.testing.assert_close(torch.cat(rows, 1)[mask.bool()], whole[mask.bool()], rtol=0, atol=2e-5)


@pytest.mark.parametrize("scaling", [{"type": "linear", "factor": 4.0}, {"type": "linear", "train_seq_len": 20}])
def test_alibi_scaling(scaling):
    own = make("btlm", alibi_scaling=scaling)
    compare(own, with_plsh(own), input_ids=tokens())
    assert (own(tokens()) - make("btlm")(tokens())).abs().max() > 1e-3


def test_packed_sequences_of_mpt():
    config = {**SHAPES["mpt_gqa"][1]["attn_config"], "attn_uses_sequence_id": True}
    own = make("mpt_gqa", attn_config=config)
    compare(own, with_plsh(own), input_ids=tokens(), sequence_id=(torch.arange(40) // 15).expand(3, -1))


def test_checkpoints_are_computed_again_with_their_own_padding():
    """Two passes, then their gradients: the layers run again after the second pass's mask was made."""
    own = make("baichuan").train()
    ours = with_plsh(own)
    for model in (own, ours):
        model.model.checkpointing = True
    masks = mask_of([40, 17, 3]), mask_of([9, 40, 25])
    found = []
    for model in (own, ours):
        model.model.embed_tokens.weight.requires_grad_(True)
        total = sum((model(tokens(), mask)[mask.bool()] ** 2).sum() for mask in masks)
        model.zero_grad()
        total.backward()
        found.append(model.model.embed_tokens.weight.grad)
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4 * float(found[0].abs().max()))


@pytest.mark.parametrize("name", ["dnabert2_mlm", "jina"])
def test_dropout_in_training(name):
    own = make(name, attention_probs_dropout_prob=0.3)
    ours = with_plsh(own).train()
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        runs.append(ours(tokens()))
    assert torch.equal(runs[0], runs[1]) and (runs[0] - runs[2]).abs().max() > 1e-3
    torch.testing.assert_close(ours.eval()(tokens()), own(tokens()), rtol=0, atol=1e-5)


def test_copies_keep_plsh_and_remove_takes_it(monkeypatch):
    own = make("jina_code")
    ours = with_plsh(own, "plsh", samples=4)
    expected = ours(tokens())
    for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert torch.equal(copied(tokens()), expected)
        plsh.hf.configure(copied, samples=400)
        assert not torch.equal(copied(tokens()), expected)
        plsh.hf.remove(copied)
        assert torch.equal(copied(tokens()), own(tokens()))
    assert torch.equal(ours(tokens()), expected)
    with pytest.raises(ValueError, match="does not have plsh attention"):
        plsh.hf.configure(own, samples=4)


def test_what_is_refused():
    model = with_plsh(make("jina"))
    with pytest.raises(plsh.hf.Refused, match="JinaSelf: output_attentions=True"):
        model(tokens(), output_attentions=True)
    with pytest.raises(plsh.hf.Refused, match="JinaSelf: is given head_mask"):
        model(tokens(), head_mask=torch.ones(6))
    holes = torch.ones(3, 40, dtype=torch.int64)
    holes[1, 5] = 0
    for name in ("jina", "dnabert2_mlm", "baichuan", "refact", "mpt_gqa", "btlm"):
        with pytest.raises(ValueError, match="row 1 has tokens on both sides of padding"):
            with_plsh(make(name))(tokens(), attention_mask=holes)
    for name in ("baichuan", "refact", "mpt_gqa"):
        with pytest.raises(plsh.hf.Refused, match=r"an attention mask of shape \(3, 40, 40\)"):
            with_plsh(make(name))(tokens(), attention_mask=torch.ones(3, 40, 40))
    with pytest.raises(ValueError, match="samples=4: goes with method plsh"):
        plsh.hf.apply(make("jina"), samples=4)
    without = make("mpt_gqa", attn_config={**SHAPES["mpt_gqa"][1]["attn_config"], "alibi": False})
    with pytest.raises(plsh.hf.Refused, match="MPTForCausalLM: .* plsh.hf.adapter teaches"):
        plsh.hf.apply(without)


def loaded(name, config):
    """The model of a golden folder, on plsh."""
    from safetensors.torch import load_file
    labels = {"num_labels": 3 if name == "dnabert2_cls" else 1}
    model = make(name, {**json.loads(config.read_text()), **labels})
    weights = load_file(FOLDERS[name] / "model.safetensors")
    if name == "jais13":  # what old files carry and nothing reads
        weights = {key: x for key, x in weights.items()
                   if not key.endswith((".attn.bias", ".masked_bias", "lm_head.weight"))}
    if name == "dnabert2_mlm":
        weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"]
    model.load_state_dict(weights)
    plsh.hf.apply(model)
    return model, torch.from_numpy(np.load(FOLDERS[name] / "input_ids.npy").astype(np.int64))


@pytest.mark.parametrize("variant", ["alibi_scaling_factor", "alibi_scaling_dynamic"])
def test_golden_variants(variant):
    folder = FOLDERS["jais_mup"] / "variants" / variant
    if not folder.is_dir():
        pytest.skip("no reference data; PLSH_SHARED points at it")
    model, ids = loaded("jais_mup", folder / "config.json")
    np.testing.assert_allclose(model(ids).detach().numpy(), np.load(folder / "logits.npy"), rtol=0, atol=5e-5)


@pytest.mark.parametrize("name", SHAPES)
def test_golden(name):
    from safetensors.torch import load_file
    folder = FOLDERS[name]
    if not folder.is_dir():
        pytest.skip("no reference data; PLSH_SHARED points at it")
    model, ids = loaded(name, folder / "config.json")
    out = model(ids)
    kind = "last_hidden_state" if name in ("jina", "jina_code") else "logits"
    np.testing.assert_allclose(out.detach().numpy(), np.load(folder / f"{kind}.npy"), rtol=0, atol=5e-5)
    if (folder / "grads.safetensors").exists():
        torch.nn.functional.cross_entropy(out[0, :-1], ids[0, 1:]).backward()
        for key, right in load_file(folder / "grads.safetensors").items():
            found = model.get_parameter(key).grad
            assert (found - right).abs().max() <= 1e-5 * right.abs().max() + 1e-7, key
    if (folder / "batch_ids.npy").exists():
        batch, mask = (torch.from_numpy(np.load(folder / f"batch_{x}.npy").astype(np.int64))
                       for x in ("ids", "mask"))
        right = np.load(folder / "batch_last_hidden_state.npy")
        np.testing.assert_allclose(model.bert(batch, mask).detach().numpy(), right, rtol=0, atol=5e-5)


# ---- Layers of one's own ---------------------------------------------------------------------------

class Mine(torch.nn.Module):
    def __init__(self, heads=4, width=32):
        super().__init__()
        self.heads, self.qkv = heads, torch.nn.Linear(width, 3 * width)

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return family_models.joined(torch.nn.functional.scaled_dot_product_attention(
            q, k, v, None if mask is None else mask[:, None, None].bool()))


@pytest.fixture
def taught():
    from plsh.hf import _adapters
    before = list(_adapters._adapters)
    yield
    _adapters._adapters[:] = before


def teach(**how):
    @plsh.hf.adapter(Mine)
    def attend_mine(layer, attend, x, mask=None):
        q, k, v = layer.qkv(x).unflatten(-1, (3, layer.heads, -1)).permute(2, 0, 3, 1, 4)
        return family_models.joined(attend(q, k, v, causal=False, mask=mask, **how))


def test_a_layer_of_ones_own(taught):
    model, x = torch.nn.Sequential(Mine(), torch.nn.GELU(), Mine()), torch.randn(2, 30, 32)
    with pytest.raises(plsh.hf.Refused, match="Sequential: no model of transformers.*plsh.hf.adapter"):
        plsh.hf.apply(model)
    own = model(x)
    teach()
    plsh.hf.apply(model, "own")
    torch.testing.assert_close(model(x), own, rtol=0, atol=1e-6)
    mask = mask_of([30, 11], 30)
    torch.testing.assert_close(model[0](x, mask)[mask.bool()], Mine.forward(model[0], x, mask)[mask.bool()],
                               rtol=0, atol=1e-6)
    plsh.hf.apply(model, "window", window=3, sigma=1e9)  # applied again: the last one counts
    assert (model(x) - own).abs().max() > 1e-3
    plsh.hf.remove(model)
    assert torch.equal(model(x), own)


def test_a_window_with_and_without_a_bias(taught):
    x, near = torch.randn(2, 30, 32), family_models.distances(30, 30) < 5
    for slopes, method in (([0.5, 0.25, 0.1, 0.02], "exact"), (None, "own")):
        teach(window=5, slopes=slopes)
        layer = Mine()
        plsh.hf.apply(layer, method)
        bias = torch.zeros(30, 30) if slopes is None else \
            -torch.tensor(slopes)[:, None, None] * family_models.distances(30, 30)
        q, k, v = layer.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        right = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias.masked_fill(~near, -torch.inf))
        torch.testing.assert_close(layer(x), family_models.joined(right), rtol=0, atol=1e-6)


def test_adapters_are_checked():
    with pytest.raises(TypeError, match="layer: is str, must be a class"):
        plsh.hf.adapter("Mine")
    with pytest.raises(ValueError, match="method='attend': Mine has no method"):
        plsh.hf.adapter(Mine, method="attend")


def test_a_layer_of_ones_own_compiles(taught):
    teach(slopes="alibi")
    model, x = torch.nn.Sequential(Mine(), Mine()), torch.randn(2, 30, 32)
    plsh.hf.apply(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=1e-6)
