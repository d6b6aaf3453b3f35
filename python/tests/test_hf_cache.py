"""plsh.hf.Cache: chosen by generate, the same tokens as without a cache, what is refused."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import plsh.hf  # noqa: E402
import plsh.torch  # noqa: E402
from alibi_models import FAMILIES, ids, padded, tiny, with_plsh  # noqa: E402

plsh.hf.register()
GREEDY = {"max_new_tokens": 10, "do_sample": False}


def llama(implementation="plsh_exact", **changes):
    torch.manual_seed(0)
    model = transformers.MistralForCausalLM(transformers.MistralConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, pad_token_id=0,
        **{"sliding_window": None, **changes}))
    model.set_attn_implementation(implementation)
    return model.eval()


def chosen(model, *args, **options):
    """What generate returns, and the kind of cache it worked with."""
    out = model.generate(*args, **options, return_dict_in_generate=True)
    return out.sequences.tolist(), type(out.past_key_values)


@pytest.mark.parametrize("method", ["exact", "plsh", "window", "fixed"])
@pytest.mark.parametrize("family", FAMILIES)
def test_generate_chooses_it(family, method):
    model = with_plsh(tiny(family), method)
    tokens, mask = padded("left", (12, 5, 9), 12)
    more = {"attention_mask": mask, **GREEDY}
    found, kind = chosen(model, tokens, **more)
    assert kind is plsh.hf.Cache
    again, kind = chosen(model, tokens, cache_implementation="dynamic", **more)
    assert kind is transformers.DynamicCache and again == found
    given = plsh.hf.Cache()
    assert model.generate(tokens, past_key_values=given, **more).tolist() == found
    assert given.get_seq_length() == 12 + 9


@pytest.mark.parametrize("window", [None, 6])
def test_models_of_the_interface(window):
    """Grouped heads, RoPE, a sliding window that the text outgrows, chunks of a prompt."""
    model = llama(sliding_window=window)
    tokens = ids(2, 30)
    with torch.no_grad():
        whole = model(tokens, use_cache=False).logits
        cache, rows, begin = plsh.hf.Cache(), [], 0
        for end in (3, 4, 15, 16, 17, 30):
            rows.append(model(tokens[:, begin:end], past_key_values=cache).logits)
            begin = end
    torch.testing.assert_close(torch.cat(rows, dim=1), whole, rtol=0, atol=2e-5)


def test_padding_longer_than_a_chunk():
    model = with_plsh(tiny("bloom"))
    tokens, mask = padded("left", (24, 5), 24)
    with torch.no_grad():
        wanted = model(tokens, attention_mask=mask, use_cache=False).logits
        cache, rows = plsh.hf.Cache(), []
        for begin, end in ((0, 10), (10, 20), (20, 24)):
            rows.append(model(tokens[:, begin:end], attention_mask=mask[:, :end],
                              past_key_values=cache).logits)
    found = torch.cat(rows, dim=1)
    torch.testing.assert_close(found[mask.bool()], wanted[mask.bool()], rtol=0, atol=2e-5)
    assert bool(found.isfinite().all())


def test_crop_and_batches():
    model = with_plsh(tiny("mpt"), "window", window=8)
    tokens = ids(2, 40)
    with torch.no_grad():
        wanted = model(tokens).logits
        cache = plsh.hf.Cache(undo=16)
        model(tokens, past_key_values=cache)
        cache.crop(-5)
        assert cache.get_seq_length() == 35
        found = model(tokens[:, 35:], past_key_values=cache).logits
        torch.testing.assert_close(found, wanted[:, 35:], rtol=0, atol=2e-5)
        cache.crop(-3)
        cache.batch_repeat_interleave(2)
        cache.batch_select_indices(torch.tensor([3, 0]))
        found = model(tokens[[1, 0], 37:], past_key_values=cache).logits
        torch.testing.assert_close(found, wanted[[1, 0], 37:], rtol=0, atol=2e-5)
        cache.reset()
        torch.testing.assert_close(model(tokens, past_key_values=cache).logits, wanted, rtol=0,
                                   atol=2e-5)
        cache = plsh.hf.Cache(undo=16)
        model(ids(1, 300), past_key_values=cache)
        with pytest.raises(plsh.Error, match="truncation to 10 tokens"):
            cache.crop(-290)


@pytest.mark.parametrize("method", ["plsh", "window", "fixed"])
def test_memory_is_bounded(method):
    model = with_plsh(tiny("bloom", heads=2, layers=1), method, sigma=[2.0, 4.0])
    sizes = []
    with torch.no_grad():
        for n in (500, 3000):
            cache = plsh.hf.Cache()
            model(ids(1, n), past_key_values=cache)
            sizes.append(cache.nbytes)
    assert sizes[1] <= 1.2 * sizes[0]


def test_bfloat16():
    model = with_plsh(tiny("bloom").to(torch.bfloat16))
    tokens = ids(1, 30)
    with torch.no_grad():
        wanted = model(tokens, use_cache=False).logits
        found = model(tokens, past_key_values=plsh.hf.Cache()).logits
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.05)


def test_what_is_refused():
    model = with_plsh(tiny("bloom"))
    tokens, mask = padded("right", (10, 6), 10)
    with torch.no_grad(), pytest.raises(NotImplementedError, match="pad on the left"):
        model(tokens, attention_mask=mask, past_key_values=plsh.hf.Cache())
    with pytest.raises(NotImplementedError, match="requires a gradient"):
        model(tokens, past_key_values=plsh.hf.Cache())
    with torch.no_grad(), pytest.raises(NotImplementedError, match="does not come for the keys"):
        cache = plsh.hf.Cache()
        for _ in range(2):
            cache.update(torch.zeros(1, 4, 1, 8), torch.zeros(1, 4, 1, 8), 0)
    cache = plsh.hf.Cache()
    with torch.no_grad():
        model(tokens, past_key_values=cache)
        plsh.hf.configure(model, sigma=3.0)
        with pytest.raises(NotImplementedError, match="options changed"):
            model(tokens[:, :1], past_key_values=cache)


def test_torch_cache():
    q, k, v = (torch.randn(2, h, 60, 16) for h in (4, 2, 2))
    whole = plsh.torch.attention(q, k, v)
    cache = plsh.torch.Cache()
    rows = [cache.step(*(x[:, :, a:b] for x in (q, k, v))) for a, b in ((0, 20), (20, 21), (21, 60))]
    torch.testing.assert_close(torch.cat(rows, dim=2), whole, rtol=0, atol=2e-6)
    assert len(cache) == 60 and cache.nbytes > 0
    more = [torch.randn(2, h, 1, 16) for h in (4, 2, 2)]
    joined = [torch.cat([x, y], dim=2) for x, y in zip((q, k, v), more)]
    torch.testing.assert_close(plsh.torch.attention(*more, cache=cache),
                               plsh.torch.attention(*joined)[:, :, -1:], rtol=0, atol=2e-6)
    with pytest.raises(ValueError, match="sigma: a cache has the options"):
        plsh.torch.attention(*more, cache=cache, sigma=3.0)
    with pytest.raises(ValueError, match="the cache is of 2 sequences of 4 heads"):
        cache.step(q[:1], k[:1], v[:1])
    with pytest.raises(ValueError, match="k: 60 tokens"):
        cache.step(q[:, :, :1], k, v)


def test_pickled_and_copied():
    """Pickled and copied caches, of torch and of transformers, continue as the original does."""
    x, y = ([torch.randn(2, 4, n, 8) for _ in range(3)] for n in (10, 1))
    cache = plsh.torch.Cache(method="plsh", samples=4)
    cache.step(*x)
    assert repr(cache) == "<Cache of 2 sequences, 10 tokens: method='plsh', samples=4>"
    others = [pickle.loads(pickle.dumps(cache)), copy.deepcopy(cache)]
    wanted = cache.step(*y)
    assert all(torch.equal(other.step(*y), wanted) for other in others)
    model, cache = with_plsh(tiny("bloom")), plsh.hf.Cache()
    with torch.no_grad():
        model(ids(1, 10), past_key_values=cache)
        caches = [cache, pickle.loads(pickle.dumps(cache)), copy.deepcopy(cache)]
        wanted, *found = [model(ids(1, 1), past_key_values=z).logits for z in caches]
    assert all(torch.equal(z, wanted) for z in found)
