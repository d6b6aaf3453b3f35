"""Hugging Face models: reference logits and gradients, padding, generation, what is refused."""

import json
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import plsh.hf  # noqa: E402
from conftest import GOLDEN, TOP  # noqa: E402

plsh.hf.register()
needs_models = pytest.mark.skipif(not (GOLDEN / "models").is_dir(),
                                  reason="no reference data; PLSH_SHARED points at it")


def tiny(kind="qwen3", implementation="plsh_exact", **changes):
    """A small random model of a kind, always with the same weights."""
    names = {"qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
             "llama": ("LlamaConfig", "LlamaForCausalLM"),
             "mistral": ("MistralConfig", "MistralForCausalLM")}
    config, model = (getattr(transformers, x) for x in names[kind])
    torch.manual_seed(0)
    shape = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
             "max_position_embeddings": 256, "pad_token_id": 0, "sliding_window": None}
    made = model(config(**{**shape, **changes}))
    made.set_attn_implementation(implementation)
    return made.eval()


def ids(batch, n, seed=0):
    return torch.randint(1, 97, (batch, n), generator=torch.Generator().manual_seed(seed))


@needs_models
@pytest.mark.parametrize("model", ["qwen3", "mistral"])
@pytest.mark.parametrize("variant", ["alibi_rope", "alibi_nope", "fixed_blocks"])
def test_golden(model, variant):
    folder = GOLDEN / "models" / model
    from safetensors.numpy import load_file
    implementation = "plsh_fixed" if variant == "fixed_blocks" else "plsh_exact"
    made = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation=implementation, dtype=torch.float32).eval()
    if variant == "fixed_blocks":
        plsh.hf.configure(made, block=16)
    if variant == "alibi_nope":
        plsh.hf.drop_rope(made)
    tokens = torch.from_numpy(np.load(folder / "input_ids.npy")).long()
    out = made(input_ids=tokens, labels=tokens)
    out.loss.backward()
    wanted = folder / "variants" / variant
    limits = json.loads((wanted / "loss.json").read_text())
    assert abs(out.logits.detach().numpy() - np.load(wanted / "logits.npy")).max() < 5e-5
    assert out.loss.item() == pytest.approx(limits["loss_float64"], abs=1e-5)
    gradients = load_file(wanted / "grads.safetensors")
    found = {name: p.grad for name, p in made.named_parameters()}
    assert set(gradients) <= set(found)
    for name, gradient in gradients.items():
        assert abs(found[name].numpy() - gradient).max() <= 1e-5 * abs(gradient).max(), name


@pytest.mark.parametrize("implementation",
                         ["plsh_exact", "plsh_plsh", "plsh_window", "plsh_fixed"])
@pytest.mark.parametrize("kind", ["qwen3", "llama", "mistral"])
def test_cache_gives_what_one_pass_gives(kind, implementation):
    model = tiny(kind, implementation)
    tokens = ids(2, 30)
    with torch.no_grad():
        whole = model(tokens).logits
        past = model(tokens[:, :20], use_cache=True)
        rows = [past.logits]
        for t in range(20, 30):
            past = model(tokens[:, t:t + 1], past_key_values=past.past_key_values)
            rows.append(past.logits)
    torch.testing.assert_close(torch.cat(rows, dim=1), whole, rtol=0, atol=2e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(side):
    model = tiny()
    tokens = ids(3, 24)
    mask = torch.ones_like(tokens)
    lengths = (24, 10, 17)
    for b, length in enumerate(lengths):
        if side == "left":
            mask[b, :24 - length] = 0
        else:
            mask[b, length:] = 0
    position = (mask.cumsum(1) - 1).clamp(min=0)
    out = model(tokens * mask, attention_mask=mask, position_ids=position).logits
    for b in range(3):
        alone = model(tokens[b:b + 1][mask[b:b + 1].bool()][None]).logits
        torch.testing.assert_close(out[b][mask[b].bool()], alone[0], rtol=0, atol=2e-5)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generate(cache):
    """Batched greedy generation with left padding chooses what each prompt alone chooses."""
    model = tiny(implementation="plsh_exact")
    prompts = [ids(1, n, seed=n)[0] for n in (5, 9, 12)]
    batch = torch.zeros(3, 12, dtype=torch.int64)
    mask = torch.zeros_like(batch)
    for b, prompt in enumerate(prompts):
        batch[b, 12 - len(prompt):] = prompt
        mask[b, 12 - len(prompt):] = 1
    options = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": cache,
               "disable_compile": True}
    together = model.generate(batch, attention_mask=mask, **options)[:, 12:]
    for b, prompt in enumerate(prompts):
        alone = model.generate(prompt[None], attention_mask=torch.ones(1, len(prompt)), **options)
        assert alone[0, len(prompt):].tolist() == together[b].tolist()


def test_options_reach_the_layers():
    model = tiny(implementation="plsh_plsh")
    tokens = ids(1, 64)
    exact = tiny(implementation="plsh_exact")(tokens).logits
    errors = []
    for samples in (1, 4096):
        plsh.hf.configure(model, samples=samples)
        errors.append(float((model(tokens).logits - exact).detach().abs().max()))
    assert errors[1] < errors[0] / 5
    with pytest.raises(TypeError, match="sample: not an option"):
        plsh.hf.configure(model, sample=3)


def test_sliding_window():
    model = tiny("mistral", "plsh_exact", sliding_window=16)
    tokens = ids(1, 40)
    wanted = tiny("mistral", "plsh_window")
    plsh.hf.configure(wanted, window=16)
    torch.testing.assert_close(model(tokens).logits, wanted(tokens).logits, rtol=0, atol=2e-5)
    with pytest.raises(NotImplementedError, match="sliding_window=16"):
        tiny("mistral", "plsh_plsh", sliding_window=16)(tokens)


def test_what_is_refused():
    model = tiny()
    tokens = ids(1, 10)
    with pytest.raises(NotImplementedError, match="not masks of single pairs"):
        model(tokens, attention_mask=torch.zeros(1, 1, 10, 10))
    with pytest.raises(ValueError, match="both sides of padding"):
        model(tokens, attention_mask=torch.tensor([[1, 1, 0, 1, 1, 1, 1, 1, 1, 1]]))
    with pytest.raises(NotImplementedError, match="never forms the n x n weights"):
        model(tokens, output_attentions=True)


def test_dropout_in_training():
    """Attention dropout is plsh's, from torch's generator; none in eval()."""
    tokens, model = ids(1, 10), tiny(attention_dropout=0.3)
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        runs.append(model.train()(tokens, use_cache=False).logits)
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])
    assert torch.equal(model.eval()(tokens).logits, tiny()(tokens).logits)


@pytest.mark.parametrize("window", [None, 4])
def test_packed_sequences(window):
    """Position numbers that begin again are sequences: none sees another."""
    model = tiny("mistral", sliding_window=window)
    tokens, lengths = ids(2, 20), ((7, 13), (12, 8))
    position = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in lengths])
    found = model(tokens, position_ids=position, use_cache=False).logits
    for b, row in enumerate(lengths):
        begin = 0
        for n in row:
            alone = model(tokens[b:b + 1, begin:begin + n]).logits
            torch.testing.assert_close(found[b:b + 1, begin:begin + n], alone, rtol=0, atol=2e-5)
            begin += n


def test_causality_is_what_the_mask_says():
    """A model with `is_causal = False` in its configuration asks for a mask of both directions."""
    model = tiny("llama")
    tokens = ids(1, 20)
    changed = tokens.clone()
    changed[0, -1] = 5
    for causal in (True, False):
        model.config.is_causal = causal
        with torch.no_grad():
            change = (model(tokens).logits - model(changed).logits)[0, :-1].abs().max()
        assert (float(change) == 0) == causal


class OwnAttention(torch.nn.Module):
    """As layers that know nothing of attention interfaces: they add the mask to their scores."""

    def forward(self, x, mask):
        return (x @ x.transpose(1, 2) + mask).softmax(-1) @ x


def test_masks_are_no_tensors():
    from transformers.masking_utils import create_causal_mask
    config = tiny().config
    mask = create_causal_mask(config=config, inputs_embeds=torch.zeros(1, 4, 32),
                              attention_mask=None, past_key_values=None)
    x = torch.randn(1, 4, 8)
    for use in (lambda: OwnAttention()(x, mask), lambda: mask[:, :, :2], lambda: mask.expand(2),
                lambda: torch.where(mask, x, 0), lambda: x.masked_fill(mask, 0), lambda: mask == 0,
                lambda: ~mask):
        with pytest.raises(NotImplementedError, match="Qwen3.*: does its own attention"):
            use()


@pytest.mark.parametrize("names, shape, match", [
    (("GPTJConfig", "GPTJForCausalLM"), {"n_embd": 32, "n_layer": 1, "n_head": 4, "rotary_dim": 4},
     "GPTJ.*: its layers do their own attention"),
    (("BartConfig", "BartForConditionalGeneration"),
     {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
      "decoder_attention_heads": 4}, "Bart.*: has cross-attention"),
])
def test_classes_that_are_refused_when_made(names, shape, match):
    config, model = (getattr(transformers, x) for x in names)
    with pytest.raises(NotImplementedError, match=match):
        model(config(vocab_size=97, **shape, attn_implementation="plsh_exact"))
    made = model(config(vocab_size=97, **shape))
    with pytest.raises(NotImplementedError, match=match):
        plsh.hf.apply(made)


@pytest.mark.parametrize("kind, more, match", [
    ("Gemma2", {}, "Gemma2Attention: passes softcap"), ("Mamba", {}, "MambaModel: none of its layers called plsh")])
def test_refused_by_apply_before_the_first_run(kind, more, match):
    """A pass without numbers finds it, and the model is as it was."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=1, pad_token_id=0, **more)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    before = model(ids(1, 8)).last_hidden_state
    with pytest.raises(plsh.hf.Refused, match=match + r".*The model is as it was.*plsh.hf.adapter"):
        plsh.hf.apply(model)
    assert model.config._attn_implementation == "eager" and not hasattr(model.config, "plsh")
    assert torch.equal(model(ids(1, 8)).last_hidden_state, before)


@pytest.mark.parametrize("kind", ["Bert", "ModernBert", "Llama"])
def test_a_model_without_alibi_keeps_its_outputs(kind):
    """The method own is no bias here; ModernBERT's windows stay."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, pad_token_id=0,
        **({"local_attention": 8, "bos_token_id": 1, "eos_token_id": 1, "cls_token_id": 1, "sep_token_id": 1}
           if kind == "ModernBert" else {}))
    model = transformers.AutoModel.from_config(config, attn_implementation="sdpa").eval()
    mask = torch.ones(2, 30, dtype=torch.int64)
    mask[1, 11:] = 0
    own = model(ids(2, 30), attention_mask=mask).last_hidden_state[mask.bool()]
    plsh.hf.apply(model, "own")
    assert model.config._attn_implementation == "plsh_none"
    torch.testing.assert_close(model(ids(2, 30), attention_mask=mask).last_hidden_state[mask.bool()], own,
                               rtol=0, atol=2e-6)
    assert "attn_implementation" not in model.config.to_dict()  # it loads anywhere
    plsh.hf.remove(model)
    assert model.config._attn_implementation == "sdpa"


def test_table_of_models(tmp_path):
    """The script that made docs/models.md, on a few classes; it fails where one is wrong."""
    rows = tmp_path / "rows.tsv"
    run = subprocess.run([sys.executable, TOP / "scripts" / "model-table", "--rows", rows, "--output",
                          tmp_path / "models.md", "--only", "bloom,llama,gemma2,git"],
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found = {x.split("\t")[0]: x.split("\t")[2] for x in rows.read_text().splitlines()}
    assert found == {"bloom": "served", "gemma2": "refused", "git": "refused", "llama": "served"}
    table = (TOP / "docs" / "models.md").read_text()
    for line in (tmp_path / "models.md").read_text().splitlines():
        if line.startswith("| git") or line.startswith("| gemma2"):
            assert line in table
    assert "| bloom | BloomForCausalLM |" in table and "WRONG" not in table


def test_a_model_whose_layers_never_call_is_refused():
    model = tiny("llama")
    for layer in model.model.layers:
        layer.self_attn.forward = lambda hidden_states, **_: (hidden_states, None)
    with pytest.raises(NotImplementedError, match="Llama.*: none of its layers called plsh"):
        model(ids(1, 8))
