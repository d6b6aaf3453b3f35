"""Options on tensors: each is used or refused, numbers may change under torch.compile, autocast."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import plsh  # noqa: E402
import plsh.torch  # noqa: E402
from test_torch import SIGMA, inputs  # noqa: E402


def plain(**changes):
    return [x.detach() for x in inputs(**changes)]


# ---- Used or refused ----------------------------------------------------------------------------

UNUSED = [
    ({"window": 8}, "window=8: goes with method window; the method is exact"),
    ({"block": 8}, "block=8: goes with method fixed"),
    ({"samples": 4}, "samples=4: goes with method plsh or masks or mean"),
    ({"seed": 4}, "seed=4: goes with method plsh"),
    ({"scheme": "cuts"}, "scheme='cuts': goes with method plsh"),
    ({"design": "iid"}, "design='iid': goes with method plsh"),
    ({"method": "dense", "eps": 1e-3}, "eps=0.001: goes with method exact or auto"),
]


@pytest.mark.parametrize("options, message", UNUSED)
def test_options_of_another_method(options, message):
    q, k, v = plain(n=20)
    for call in (lambda: plsh.torch.attention(q, k, v, **options),
                 lambda: plsh.torch.Cache(**options),
                 lambda: plsh.torch.ALiBiAttention(32, 4, **options)):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("options, message", [
    ({"causal": False}, "causal=False: a cache is causal"), ({"method": "exact"}, "^method: a cache"),
    ({"samples": 20}, "^samples: a cache"), ({"seed": 1}, "^seed"), ({"eps": 0.0}, "^eps"),
    ({"scheme": "integer"}, "^scheme"), ({"design": "stratified"}, "^design"),
    ({"threads": 1}, "^threads"), ({"sigma": 4.0}, "^sigma"), ({"return_lse": True}, "^return_lse"),
    ({"spans": torch.zeros(2, 3, dtype=torch.int64)}, "^spans"),
])
def test_options_beside_a_cache(options, message):
    cache = plsh.torch.Cache(method="plsh", samples=4)
    with pytest.raises(ValueError, match=message):
        plsh.torch.attention(*plain(n=5), cache=cache, **options)
    assert len(cache) == 0


@pytest.mark.parametrize("make", [
    lambda **x: plsh.torch.ALiBiAttention(32, 4, **x), lambda **x: plsh.torch.Cache(**x)])
@pytest.mark.parametrize("options, kind, message", [
    ({"learn_slope": True}, TypeError, "learn_slope"), ({"sample": 3}, TypeError, "sample"),
    ({"method": "plsh", "samples": 0}, ValueError, "samples=0"),
    ({"method": "window", "window": 0}, ValueError, "window=0"),
    ({"method": "windows"}, ValueError, "method='windows': is one of"),
    ({"sigma": [-1.0] * 4}, ValueError, "sigma is -1"), ({"scale": 0}, ValueError, "scale=0"),
    ({"threads": -1}, ValueError, "threads=-1"), ({"eps": -1.0}, ValueError, "eps"),
    ({"method": "plsh", "scheme": "cut"}, ValueError, "scheme='cut'"),
])
def test_options_are_refused_when_they_are_given(make, options, kind, message):
    with pytest.raises(kind, match=message):
        make(**options)


def test_what_a_layer_refuses():
    with pytest.raises(ValueError, match="sigma: 3 values for 4 heads"):
        plsh.torch.ALiBiAttention(32, 4, sigma=[1.0, 2.0, 3.0])
    assert plsh.torch.ALiBiAttention(32, 4, sigma=2).sigma == (2.0,) * 4
    with pytest.raises(ValueError, match="k: 3 heads, must divide the 4"):
        plsh.torch.ALiBiAttention(32, 4, kv_heads=3)
    with pytest.raises(ValueError, match="learn_slopes=True: method='none' has no slopes"):
        plsh.torch.ALiBiAttention(32, 4, method="none", learn_slopes=True)
    with pytest.raises(ValueError, match="undo is -1"):
        plsh.torch.Cache(undo=-1)


def test_padding_masks_of_every_kind():
    """Additive masks are read as such, never upside down; what is neither is refused."""
    wanted = plsh.torch.padding_spans(torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]]))
    assert wanted.tolist() == [[1, 4, 4], [0, 2, 4]]
    tokens = torch.tensor([[False, True, True, True], [True, True, False, False]])
    masks = [tokens, tokens.to(torch.uint8), tokens.to(torch.int32)]
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for least in (-torch.inf, torch.finfo(dtype).min, -1e4):
            masks.append(torch.zeros(2, 4, dtype=dtype).masked_fill(~tokens, least))
    for mask in masks:
        assert torch.equal(plsh.torch.padding_spans(mask), wanted), mask
    assert plsh.torch.padding_spans(torch.zeros(1, 4)).tolist() == [[0, 4, 4]]
    for mask, message in ((tokens.float(), r"has 1.0; floats are added.*mask.bool\(\)"),
                          (torch.full((1, 4), -5.0), "has -5.0; floats are added"),
                          (torch.full((1, 4), torch.nan), "has nan"),
                          (torch.tensor([[2, 1]]), "has 2; integers are 1 where a token is"),
                          (torch.tensor([[0, -1]]), "has -1; integers")):
        with pytest.raises(ValueError, match=message):
            plsh.torch.padding_spans(mask)


def test_unaligned_tensors():
    q, k, v = plain(batch=1)
    memory = bytearray(q.numel() * 4 + 1)
    memory[1:] = q.numpy().tobytes()
    odd = torch.frombuffer(memory, dtype=torch.float32, offset=1).view(q.shape)
    for call in (plsh.torch.attention, plsh.torch.Cache().step):
        with pytest.raises(ValueError, match="q: its memory is not aligned to its elements of 4"):
            call(odd, k, v)


def test_slopes_are_what_is_wrong():
    q, k, v = plain(n=20)
    for slopes in (-0.5, 0.0, [0.5, 0.5, -0.5, 0.5]):
        for given in (slopes, torch.tensor(slopes)):
            with pytest.raises(ValueError, match="slopes=.*are positive"):
                plsh.torch.attention(q, k, v, slopes=given)


def test_offsets_as_tensors():
    q, k, v = plain(batch=1, n=60)
    wanted = plsh.torch.attention(q, k, v, sigma=SIGMA, query_offsets=[0, 20, 60],
                                  key_offsets=[0, 20, 60])
    parts = [plsh.torch.attention(*(x[:, :, a:b] for x in (q, k, v)), sigma=SIGMA)
             for a, b in ((0, 20), (20, 60))]
    torch.testing.assert_close(wanted, torch.cat(parts, dim=2), rtol=0, atol=1e-6)
    for offsets in (torch.tensor([0, 20, 60], dtype=torch.int32), torch.tensor([0, 20, 60]),
                    np.array([0, 20, 60], dtype=np.int32)):
        found = plsh.torch.attention(q, k, v, sigma=SIGMA, query_offsets=offsets,
                                     key_offsets=offsets)
        assert torch.equal(found, wanted)
    x = q.clone().requires_grad_()
    cu_seqlens = torch.tensor([0, 20, 60], dtype=torch.int32)
    plsh.torch.attention(x, k, v, query_offsets=cu_seqlens, key_offsets=cu_seqlens).sum().backward()
    assert x.grad.abs().max() > 0
    for wrong, message in ((torch.tensor([0.0, 60.0]), "query_offsets: torch.float32 of shape"),
                           (torch.tensor([[0, 60]]), r"query_offsets: .* \(1, 2\)"),
                           ([0], r"query_offsets: .* \(1,\), must be the integers where"),
                           ([0, 1.5], "query_offsets=1.5: must be an integer")):
        with pytest.raises(TypeError, match=message):
            plsh.torch.attention(q, k, v, query_offsets=wrong, key_offsets=wrong)


# ---- torch.compile --------------------------------------------------------------------------------

@pytest.fixture
def compiler():
    torch._dynamo.reset()
    return lambda f, **x: torch.compile(f, fullgraph=True, backend="aot_eager", **x)


NUMBERS = {
    "samples": ("plsh", (4, 5, 9)), "seed": ("plsh", (4, 5, 6)), "window": ("window", (8, 9, 20)),
    "block": ("fixed", (8, 9, 20)), "eps": ("exact", (1e-3, 1e-4, 1e-2)),
    "threads": ("exact", (1, 2, 1)), "scale": ("exact", (0.1, 0.2, 0.3)),
    "sigma": ("exact", (2.0, 3.0, 4.0)),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", NUMBERS)
def test_compile_follows_numbers(compiler, name, dynamic):
    method, values = NUMBERS[name]
    q, k, v = plain(n=60)

    def run(value):
        return plsh.torch.attention(q, k, v, method=method, **{name: value})

    compiled = compiler(run, dynamic=dynamic)
    for value in values:
        assert torch.equal(compiled(value), run(value))


def test_compile_with_any_length(compiler):
    """One graph for the function and one for the layer, gradients too."""
    layer = plsh.torch.ALiBiAttention(32, heads=4, kv_heads=2, learn_slopes=True)
    compiled = compiler(layer, dynamic=True)
    function = compiler(lambda *x: plsh.torch.attention(*x, return_lse=True), dynamic=True)
    for n in (60, 70, 33):
        x = torch.randn(2, n, 32)
        found, wanted = ([y, *torch.autograd.grad(y.square().sum(), layer.parameters())]
                         for y in (compiled(x), layer(x)))
        torch.testing.assert_close(found, wanted)
        made = inputs(n=n)
        found, wanted = ([*y, *torch.autograd.grad(y[0].square().sum() + y[1].sum(), made)]
                         for y in (function(*made), plsh.torch.attention(*made, return_lse=True)))
        torch.testing.assert_close(found, wanted)


def test_compile_with_decays_and_sequences(compiler):
    q, k, v = plain(batch=1, n=60)
    decay = plsh.Decay("kerple-log", 1.0, 0.5, 0.1)

    def run(a, offsets):
        return plsh.torch.attention(q, k, v, decay=decay), \
            plsh.torch.attention(q, k, v, sigma=a, query_offsets=offsets, key_offsets=offsets)

    compiled = compiler(run, dynamic=True)
    for a, middle in ((2.0, 20), (3.0, 31)):
        offsets = torch.tensor([0, middle, 60], dtype=torch.int32)
        torch.testing.assert_close(compiled(a, offsets), run(a, offsets), rtol=0, atol=0)


# ---- Autocast -------------------------------------------------------------------------------------

def test_autocast_as_torch_has_it():
    """q, k and v of any mixture are cast, and gradients come back as their own dtypes."""
    q, k, v = (x.repeat_interleave(4 // x.shape[1], dim=1).detach() for x in inputs(n=40))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for dtype in (torch.bfloat16, torch.float16):
        for kinds in ((None, None, dtype), (None, None, None), (dtype, None, dtype)):
            made = [x.clone() if kind is None else x.to(kind) for x, kind in zip((q, k, v), kinds)]
            made = [x.requires_grad_() for x in made]
            with torch.autocast("cpu", dtype=dtype):
                o = plsh.torch.attention(*made)
                assert o.dtype == sdpa(*made, is_causal=True).dtype == dtype
                with torch.no_grad():
                    step = plsh.torch.Cache().step(*made)
            assert torch.equal(o, plsh.torch.attention(*(x.to(dtype) for x in made)))
            assert step.dtype == dtype
            torch.testing.assert_close(step, o, rtol=0, atol=0.02)
            o.float().sum().backward()
            assert all(x.grad.dtype == x.dtype for x in made)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        with pytest.raises(TypeError, match="q, k, v: torch.float32, torch.float32, torch.bfloat16"):
            plsh.torch.attention(q, k, v.bfloat16())
