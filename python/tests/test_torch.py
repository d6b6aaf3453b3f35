"""The torch operator: values and gradients against float64, opcheck, compile, the module."""

import os
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import plsh.torch  # noqa: E402
from plsh import _fused  # noqa: E402

SIGMA = [3.0, 12.0, 40.0, 150.0]


def reference(q, k, v, sigma, causal=True, method="exact", scale=None, **options):
    """Dense attention by torch's own operations, in the dtype of the inputs."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    n_q, n = q.shape[2], k.shape[2]
    distance = ((torch.arange(n_q) + n - n_q)[:, None] - torch.arange(n)[None]).to(q.dtype)
    bias = -distance.abs() / sigma.to(q.dtype).reshape(-1, 1, 1)
    if method == "none":
        bias = 0 * bias
    if method == "window":
        bias = bias.masked_fill(distance.abs() >= options["window"], float("-inf"))
    if causal:
        bias = bias.masked_fill(distance < 0, float("-inf"))
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale) + bias
    return scores.softmax(dim=-1) @ v


def inputs(batch=2, heads=4, kv_heads=2, n=130, n_q=None, dim=16, value_dim=None,
           dtype=torch.float32, rows_first=False):
    generator = torch.Generator().manual_seed(0)
    made = []
    for h, rows, d in ((heads, n_q or n, dim), (kv_heads, n, dim), (kv_heads, n, value_dim or dim)):
        if rows_first:
            x = torch.randn(batch, rows, h, d, generator=generator).transpose(1, 2)
        else:
            x = torch.randn(batch, h, rows, d, generator=generator)
        made.append(x.to(dtype).requires_grad_())
    return made


def compare(made, options, sigma=None, tolerance=2.0):
    """Values and gradients err at most `tolerance` times what plain float32 torch errs."""
    sigma = torch.tensor(SIGMA, dtype=torch.float64) if sigma is None else sigma
    generator = torch.Generator().manual_seed(1)
    results = []
    for dtype, run in ((torch.float64, reference), (torch.float32, reference), (None, None)):
        x = [a.detach().clone(memory_format=torch.preserve_format) if dtype is None
             else a.detach().to(dtype) for a in made]
        s = sigma.detach().clone()
        for a in (*x, s):
            a.requires_grad_()
        o = plsh.torch.attention(*x, sigma=s, **options) if run is None \
            else run(*x, sigma=s, **options)
        d_o = torch.randn(o.shape, generator=generator.manual_seed(1), dtype=torch.float64)
        (o * d_o.to(o.dtype)).sum().backward()
        results.append([y.detach().double() for y in (o, *(a.grad for a in x), s.grad)])
    for name, exact, plain, found in zip(("o", "dq", "dk", "dv", "dsigma"), *results):
        floor = 5e-6 if name == "dsigma" else 1e-6  # a sum over all pairs
        allowed = tolerance * (plain - exact).abs().max() + floor * exact.abs().max()
        assert (found - exact).abs().max() <= allowed, name


@pytest.mark.parametrize("rows_first", [False, True])
@pytest.mark.parametrize("method, options", [
    ("exact", {}), ("dense", {}), ("window", {"window": 25}), ("none", {}),
    ("exact", {"causal": False}), ("exact", {"scale": 0.5}),
])
def test_against_float64(method, options, rows_first):
    compare(inputs(rows_first=rows_first), {"method": method, **options})


def test_shapes():
    compare(inputs(value_dim=24), {})
    compare(inputs(n_q=9), {})
    compare(inputs(batch=1, heads=4, kv_heads=4, n=1), {})


@pytest.mark.parametrize("rows_first", (False, True))
def test_empty_batch(rows_first):
    q, k, v = inputs(batch=0, rows_first=rows_first)
    sigma = torch.tensor(SIGMA, requires_grad=True)
    for spans in (None, torch.zeros(0, 3, dtype=torch.int64)):
        o, lse = plsh.torch.attention(q, k, v, sigma=sigma, spans=spans, return_lse=True)
        assert o.shape == (0, 4, 130, 16) and lse.shape == (0, 4, 130)
        o.sum().backward()
        assert q.grad.shape == q.shape and k.grad.shape == k.shape and not sigma.grad.any()
    with torch.no_grad():
        assert plsh.torch.Cache().step(q, k, v).shape == (0, 4, 130, 16)


def test_sampled_equals_numpy():
    q, k, v = inputs(batch=1)
    o = plsh.torch.attention(q, k, v, sigma=SIGMA, method="plsh", samples=30, seed=7)
    same = plsh.attention(*(x[0].detach().numpy() for x in (q, k, v)), sigma=SIGMA, method="plsh",
                          samples=30, seed=7)
    assert (o[0].detach().numpy() == same).all()
    batch = plsh.torch.attention(*(x.repeat(3, 1, 1, 1) for x in (q, k, v)), sigma=SIGMA,
                                 method="plsh", samples=30, seed=7)
    assert (batch == o).all()                     # every batch entry has the same partitions


def test_sampled_gradients_by_differences():
    """Directional derivatives of the sampled loss against central differences in float32."""
    q, k, v = inputs(batch=1, n=60)
    weight = torch.randn(1, 4, 60, 16, generator=torch.Generator().manual_seed(3))

    def loss(*x):
        o = plsh.torch.attention(*x, sigma=SIGMA, method="plsh", samples=10)
        return (o * weight).double().sum()

    loss(q, k, v).backward()
    for i, x in enumerate((q, k, v)):
        step = torch.randn(x.shape, generator=torch.Generator().manual_seed(4 + i))
        ends = []
        for sign in (1, -1):
            moved = [a.detach() + (sign * 1e-2 * step if a is x else 0) for a in (q, k, v)]
            ends.append(loss(*moved))
        slope = float((ends[0] - ends[1]) / 2e-2)
        assert float((x.grad * step).sum()) == pytest.approx(slope, rel=5e-3, abs=5e-3)


def test_half_precision():
    for dtype, unit in ((torch.bfloat16, 2**-8), (torch.float16, 2**-11)):
        q, k, v = inputs(dtype=dtype)
        o = plsh.torch.attention(q, k, v, sigma=SIGMA)
        o.float().square().sum().backward()
        exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
        wanted = reference(*exact, sigma=torch.tensor(SIGMA))
        wanted.square().sum().backward()
        assert o.dtype == dtype and q.grad.dtype == dtype
        assert (o - wanted).abs().max() <= unit * wanted.abs().max()
        for x, y in zip((q, k, v), exact):
            assert (x.grad - y.grad).abs().max() <= 4 * unit * y.grad.abs().max()


def test_padding():
    q, k, v = inputs(batch=3, n=50)
    mask = torch.ones(3, 50, dtype=torch.int64)
    mask[0, :20] = 0
    mask[2, 35:] = 0
    spans = plsh.torch.padding_spans(mask)
    for rows_first in (False, True):
        x = [a.detach() for a in (q, k, v)]
        if rows_first:
            x = [a.transpose(1, 2).contiguous().transpose(1, 2) for a in x]
        for a in x:
            a.requires_grad_()
        o = plsh.torch.attention(*x, sigma=SIGMA, spans=spans)
        valid = mask.bool()[:, None, :, None]
        (o * valid).sum().backward()
        for b, (begin, end) in enumerate(((20, 50), (0, 50), (0, 35))):
            alone = [a.detach()[b:b + 1, :, begin:end].contiguous().requires_grad_() for a in x]
            wanted = plsh.torch.attention(*alone, sigma=SIGMA)
            wanted.sum().backward()
            torch.testing.assert_close(o[b:b + 1, :, begin:end], wanted, rtol=0, atol=1e-6)
            for a, y in zip(x, alone):
                torch.testing.assert_close(a.grad[b:b + 1, :, begin:end], y.grad, rtol=0, atol=1e-5)
                outside = a.grad[b].clone()
                outside[:, begin:end] = 0
                assert (outside == 0).all()
    with pytest.raises(ValueError, match="row 1 has tokens on both sides"):
        plsh.torch.padding_spans(torch.tensor([[1, 1, 1], [1, 0, 1]]))


def test_three_dimensions_and_lse():
    q, k, v = (x.detach()[0] for x in inputs())
    o, lse = plsh.torch.attention(q, k, v, sigma=SIGMA, return_lse=True)
    assert o.shape == (4, 130, 16) and lse.shape == (4, 130)


def test_lse_has_gradients():
    made = inputs(batch=1, n=60)
    sigma = torch.tensor(SIGMA, dtype=torch.float64, requires_grad=True)
    o, lse = plsh.torch.attention(*made, sigma=sigma, return_lse=True)
    (o.square().sum() + (lse * torch.linspace(-1, 1, 60)).sum()).backward()
    exact = [x.detach().double().requires_grad_() for x in made]
    distance = (torch.arange(60)[:, None] - torch.arange(60)[None]).double()
    again = sigma.detach().clone().requires_grad_()
    bias = -distance / again[:, None, None]
    k, v = (x.repeat_interleave(2, dim=1) for x in exact[1:])
    scores = exact[0] @ k.transpose(2, 3) / 4 + bias.masked_fill(distance < 0, float("-inf"))
    wanted = scores.softmax(-1) @ v
    (wanted.square().sum() + (scores.logsumexp(-1) * torch.linspace(-1, 1, 60)).sum()).backward()
    for x, y in zip((*made, sigma), (*exact, again)):
        torch.testing.assert_close(x.grad.double(), y.grad, rtol=1e-5, atol=1e-5)


def test_second_derivatives_are_refused():
    q, k, v = inputs(n=20)
    for loss in (torch.sum, lambda o: o.square().sum()):  # its gradient is constant, or not
        o = plsh.torch.attention(q, k, v, sigma=SIGMA)
        (d_q,) = torch.autograd.grad(loss(o), q, create_graph=True)
        with pytest.raises(NotImplementedError, match="has first derivatives only"):
            d_q.sum().backward()


def test_derivatives_of_functions_are_computed_or_refused():
    """Never 0, which is what a derivative that gets lost would be."""
    q, k, v = (x.detach() for x in inputs(n=12))
    one = torch.ones_like(q)

    def f(x):
        return plsh.torch.attention(x, k, v, sigma=SIGMA).sum()

    functional, func = torch.autograd.functional, torch.func
    for derive in (lambda: functional.hessian(f, q), lambda: functional.jvp(f, q, one),
                   lambda: functional.hvp(f, q, one), lambda: functional.vhp(f, q, one),
                   lambda: func.jvp(f, (q,), (one,)), lambda: func.jacfwd(f)(q),
                   lambda: func.linearize(f, q), lambda: func.hessian(f)(q),
                   lambda: func.grad(lambda x: func.grad(f)(x).sum())(q)):
        with pytest.raises(NotImplementedError, match="forward-mode|first derivatives"):
            derive()
    x = q.clone().requires_grad_()
    f(x).backward()
    for found in (functional.vjp(f, q)[1], func.grad(f)(q), func.jacrev(f)(q),
                  func.vjp(f, q)[1](torch.ones(()))[0]):
        torch.testing.assert_close(found, x.grad)


def test_packed_sequences_by_segments():
    q, k, v = (x.detach() for x in inputs(n=30))
    segments = torch.tensor([[0] * 11 + [3] * 19, [0] * 30])
    found = plsh.torch.attention(q, k, v, sigma=SIGMA, spans=plsh.torch.segment_spans(segments))
    for b, begin, end in ((0, 0, 11), (0, 11, 30), (1, 0, 30)):
        part = [x[b:b + 1, :, begin:end] for x in (q, k, v)]
        torch.testing.assert_close(found[b:b + 1, :, begin:end],
                                   plsh.torch.attention(*part, sigma=SIGMA), rtol=0, atol=2e-6)
    with pytest.raises(TypeError, match="segments: torch.float32"):
        plsh.torch.segment_spans(segments.float())


def test_learnable_decays():
    q, k, v = inputs(batch=1, n=60)
    slopes = torch.tensor([0.5, 0.2, 0.1, 0.02], requires_grad=True)
    o = plsh.torch.attention(q, k, v, slopes=slopes)
    o.square().sum().backward()
    again = slopes.detach().double().requires_grad_()
    wanted = reference(*(x.detach().double() for x in (q, k, v)), sigma=1 / again)
    wanted.square().sum().backward()
    torch.testing.assert_close(slopes.grad.double(), again.grad, rtol=1e-4, atol=1e-4)
    pair = torch.tensor([[1.0, 0.2]] * 4, requires_grad=True)
    o = plsh.torch.attention(q, k, v, decay="kerple-log", parameters=pair)
    o.square().sum().backward()
    double = pair.detach().double().requires_grad_()
    distance = (torch.arange(60)[:, None] - torch.arange(60)[None]).clamp(min=0).double()
    bias = -double[:, :1, None] * torch.log1p(double[:, 1:, None] * distance)
    bias = bias.masked_fill(torch.arange(60)[:, None] < torch.arange(60)[None], float("-inf"))
    x = [a.detach().double() for a in (q, k, v)]
    x = [x[0], x[1].repeat_interleave(2, 1), x[2].repeat_interleave(2, 1)]
    wanted = ((x[0] @ x[1].transpose(2, 3)) / 4 + bias).softmax(-1) @ x[2]
    wanted.square().sum().backward()
    torch.testing.assert_close(pair.grad.double(), double.grad, rtol=1e-4, atol=1e-4)


def operator_arguments(**changes):
    q, k, v = inputs(**changes)
    parameters = torch.tensor(SIGMA, dtype=torch.float64, requires_grad=True)
    return (q, k, v, parameters, None, None, None, None, None, [], 0.0, 0.0, 0.0, 1, 20, [], [], 1,
            ["exact"], "sigma", True, "integer", "stratified")


@pytest.mark.parametrize("rows_first", [False, True])
def test_opcheck(rows_first):
    torch.library.opcheck(torch.ops.plsh.attention.default,
                          operator_arguments(n=40, rows_first=rows_first))


def test_opcheck_padding():
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])
    torch.library.opcheck(torch.ops.plsh.padding_spans.default, (mask, torch.tensor(4)))


def backends():
    compiler = shutil.which("g++") or shutil.which("clang++")
    absent = pytest.mark.skipif(compiler is None, reason="inductor needs a C++ compiler")
    return ["aot_eager", pytest.param("inductor", marks=absent)]


@pytest.mark.parametrize("backend", backends())
def test_compile_without_graph_breaks(backend):
    torch.manual_seed(0)
    layer = plsh.torch.ALiBiAttention(32, heads=4, kv_heads=2, learn_slopes=True)
    x = torch.randn(2, 70, 32)
    plain = layer(x)
    plain.square().sum().backward()
    wanted = {name: p.grad.clone() for name, p in layer.named_parameters()}
    layer.zero_grad()
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    o = compiled(x)
    o.square().sum().backward()
    torch.testing.assert_close(o, plain)
    for name, p in layer.named_parameters():
        torch.testing.assert_close(p.grad, wanted[name])


def test_compile_with_numbers_that_change():
    """Seeds, scales and sigmas are followed, not frozen at their first value."""
    q, k, v = (x.detach() for x in inputs(n=60))

    def sampled(sigma, scale, seed):
        return plsh.torch.attention(q, k, v, sigma=sigma, scale=scale, seed=seed, method="plsh",
                                    samples=4)

    torch._dynamo.reset()
    compiled = torch.compile(sampled, fullgraph=True, backend="aot_eager")
    for i in range(4):
        numbers = (2.0 + i, 0.1 + 0.1 * i, 5 + i)
        assert torch.equal(compiled(*numbers), sampled(*numbers))


def test_module_learns_slopes():
    torch.manual_seed(0)
    layer = plsh.torch.ALiBiAttention(16, heads=2, learn_slopes=True)
    before = layer.log_slopes.detach().clone()
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.randn(2, 30, 16)).square().mean().backward()
        optimizer.step()
    assert not torch.equal(before, layer.log_slopes)
    assert "log_slopes" not in dict(plsh.torch.ALiBiAttention(16, 2).named_parameters())


def test_what_is_refused():
    q, k, v = (x.detach() for x in inputs())
    wrong = [
        (TypeError, "q: torch.float64.*q.float", (q.double(), k, v), {}),
        (ValueError, "q: its last dimension has stride 2", (q[..., ::2], k[..., :8], v), {}),
        (ValueError, "sigma: 3 values for 4 heads", (q, k, v), {"sigma": [1.0, 2.0, 3.0]}),
        (ValueError, "method='fast'", (q, k, v), {"method": "fast"}),
        (ValueError, "k: rows of 8", (q, k[..., :8], v), {}),
        (ValueError, "parameters:", (q, k, v), {"parameters": torch.ones(4, 2)}),
        (TypeError, "q: is ndarray", (q.numpy(), k, v), {}),
        (TypeError, "q, k, v: torch.float32, torch.float16", (q, k.half(), v), {}),
        (ValueError, "k: on meta, must be on cpu as q", (q, k.to("meta"), v), {}),
        (ValueError, "k: shape", (q[0], k, v), {}),
        (TypeError, "sigma: must be one number", (q, k, v), {"sigma": ["a"] * 4}),
        (ValueError, "slopes=.*positive", (q, k, v), {"slopes": -1}),
        (ValueError, "decay: 3 values for 4 heads", (q, k, v), {"decay": ["alibi:4"] * 3}),
        (TypeError, "decay: is list", (q, k, v), {"decay": [4.0] * 4}),
        (ValueError, "seed=-1", (q, k, v), {"method": "plsh", "seed": -1}),
        (ValueError, "seed=1844.*64 bits", (q, k, v), {"method": "plsh", "seed": 2**64}),
        (TypeError, "samples=2.5: must be an integer", (q, k, v), {"method": "plsh", "samples": 2.5}),
        (TypeError, "window=5.0: must be an integer", (q, k, v), {"method": "window", "window": 5.0}),
        (ValueError, "window=0: is positive", (q, k, v), {"method": "window", "window": 0}),
        (ValueError, "scale=0", (q, k, v), {"scale": 0}),
        (TypeError, "causal='no': must be True or False", (q, k, v), {"causal": "no"}),
        (TypeError, "causal=2: must be True or False", (q, k, v), {"causal": 2}),
        (ValueError, "method='exact,none,exact,none': is one of", (q, k, v),
         {"method": "exact,none,exact,none"}),
        (ValueError, "scheme='cuts stratified': is one of", (q, k, v),
         {"method": "plsh", "scheme": "cuts stratified"}),
        (ValueError, r"design=\['iid'\]: is one of", (q, k, v), {"method": "plsh", "design": ["iid"]}),
        (TypeError, "method=3", (q, k, v), {"method": 3}),
        (ValueError, "spans: 131 keys in use", (q[:1], k[:1], v[:1]),
         {"spans": torch.tensor([[0, 131, 131]])}),
        (TypeError, "spans: must be an int64 tensor", (q, k, v), {"spans": [0, 130, 130]}),
    ]
    for kind, message, x, options in wrong:
        with pytest.raises(kind, match=message):
            plsh.torch.attention(*x, **options)
    meta = [x.to("meta") for x in (q, k, v)]
    assert plsh.torch.attention(*meta).shape == q.shape


def test_numbers_of_every_kind():
    """Python's, NumPy's and torch's numbers say the same; seeds have all 64 bits."""
    q, k, v = (x.detach() for x in inputs(batch=1))
    wanted = plsh.torch.attention(q, k, v, sigma=[4.0] * 4)
    for sigma in (4, 4.0, np.int64(4), np.float32(4), np.full(4, 4), torch.tensor(4),
                  torch.full((4,), 4.0)):
        assert torch.equal(plsh.torch.attention(q, k, v, sigma=sigma), wanted)
    standard = plsh.torch.attention(q, k, v)
    assert torch.equal(plsh.torch.attention(q, k, v, sigma="alibi"), standard)
    for seed in (np.uint64(2**63 + 5), 2**64 - 1, np.int64(3)):
        options = {"method": "plsh", "samples": np.int64(3), "seed": seed}
        o = plsh.torch.attention(q, k, v, **options)
        assert np.array_equal(o[0], plsh.attention(*(x[0].numpy() for x in (q, k, v)), **options))


def resident(field):
    """VmRSS or VmHWM of this process, in bytes."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(1024 * int(x.split()[1]) for x in lines if x.startswith(field))


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux")
@pytest.mark.parametrize("method", ["exact", "plsh"])
def test_no_array_of_all_pairs(method):
    """Forward and backward at n = 16k stay far below one n x n array of float32 (1 GB)."""
    q, k, v = inputs(batch=1, heads=2, kv_heads=2, n=16384, dim=16)
    before = resident("VmRSS")
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")                           # the peak begins anew
    plsh.torch.attention(q, k, v, sigma=[2.0, 64.0], method=method).sum().backward()
    assert resident("VmHWM") - before < 64 << 20


def fused_inputs(layout, batch=2, heads=4, kv_heads=4, n=70, dim=8, dtype=torch.float32):
    """A fused projection's output and the function that makes q, k, v of it."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(batch, n, (heads + 2 * kv_heads) * dim, generator=generator).to(dtype)

    def parts(x):
        if layout == "interleaved":
            return [y.transpose(1, 2) for y in x.view(batch, n, heads, 3, dim).unbind(3)]
        return x.view(batch, n, -1, dim).transpose(1, 2).split([heads, kv_heads, kv_heads], dim=1)
    return x.requires_grad_(), parts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout, kv_heads", [("interleaved", 4), ("stacked", 4), ("stacked", 2)])
def test_gradients_of_a_fused_projection(layout, kv_heads, dtype):
    """Gradients of q, k, v that fill one tensor fill one too, which is taken as it lies."""
    x, parts = fused_inputs(layout, kv_heads=kv_heads, dtype=dtype)
    apart = [y.detach().contiguous().requires_grad_() for y in parts(x)]
    plsh.torch.attention(*apart).square().sum().backward()
    wanted = torch.empty_like(x)
    for part, y in zip(parts(wanted), apart):
        part.detach().copy_(y.grad)
    q, k, v = _fused.split(x, parts)
    seen = []
    for y in (q, k, v):
        y.register_hook(lambda gradient: seen.append(gradient.untyped_storage().data_ptr()))
    x.register_hook(lambda gradient: seen.append(gradient.untyped_storage().data_ptr()))
    plsh.torch.attention(q, k, v).square().sum().backward()
    assert len(seen) == 4 and len(set(seen)) == 1
    assert torch.equal(x.grad, wanted)


def test_a_fused_projection_that_is_used_otherwise():
    """Gradients that do not lie in one piece, or not in the order of the parts, are put together."""
    x, parts = fused_inputs("interleaved")
    weights = torch.randn(3, 2, 4, 70, 8, generator=torch.Generator().manual_seed(4))

    def gradient(split, use):
        (found,) = torch.autograd.grad(use(*split(x)), x)
        return found
    uses = [
        lambda q, k, v: plsh.torch.attention(q, k, v).sum() + (k * weights[0]).sum(),
        lambda q, k, v: plsh.torch.attention(q, k, q).square().sum(),
        lambda q, k, v: plsh.torch.attention(k, q, v).square().sum(),
        lambda q, k, v: (v * weights[1]).sum(),
        lambda q, k, v: plsh.torch.attention(q, k, v, return_lse=True)[1].square().sum(),
        lambda q, k, v: plsh.torch.attention(q[:, :, 1:], k[:, :, 1:], v[:, :, 1:]).square().sum(),
        lambda q, k, v: plsh.torch.attention(q[:, :2], k[:, 2:], v[:, 2:]).square().sum(),
    ]
    for use in uses:
        torch.testing.assert_close(gradient(lambda x: _fused.split(x, parts), use),
                                   gradient(parts, use), rtol=1e-5, atol=1e-5)
    assert _fused.find([y.detach() for y in parts(x)]) == (0, 96)
    q, k, v = (y.detach() for y in parts(x))
    for others in ((q, k, k), (q, k, v[:, :3]), (q[:, :, 1:], k[:, :, 1:], v[:, :, 1:]),
                   (q[:1], k[1:], v[:1])):
        assert _fused.find(others) is None
    (once,) = torch.autograd.grad(plsh.torch.attention(*_fused.split(x, parts)).square().sum(), x,
                                  create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        once.square().sum().backward()
