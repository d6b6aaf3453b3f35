"""Positions that are points: against a dense oracle in float64, in NumPy and torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import plsh  # noqa: E402
import plsh.torch  # noqa: E402

SLOPES = [0.5, 0.2, 0.05, 0.01]


def oracle(q, k, v, slopes, positions, causal, query_positions=None, radius=None):
    """In float64; positions [..., n, D], those of the queries the last keys' where not given."""
    q, k, v, slopes, y = (x.double() for x in (q, k, v, slopes, positions))
    x = y[..., y.shape[-2] - q.shape[2]:, :] if query_positions is None else query_positions.double()
    gap = x.unsqueeze(-2) - y.unsqueeze(-3)
    none = gap.isnan().any(-1, keepdim=True)
    square = torch.where(none, 0.0, gap).square().sum(-1)
    t = torch.where(square == 0, 0.0, torch.where(square == 0, 1.0, square).sqrt())
    group = q.shape[1] // k.shape[1]
    k, v = (z.repeat_interleave(group, 1) for z in (k, v))
    s = q @ k.mT * q.shape[-1] ** -0.5 - slopes[:, None, None] * t
    n_q, n = s.shape[-2:]
    if causal:
        s = s.masked_fill(torch.arange(n) > (torch.arange(n_q) + n - n_q)[:, None], -torch.inf)
    if radius is not None:
        s = s.masked_fill(t >= radius, -torch.inf)
    return s.softmax(-1) @ v


def some(n, shape, kind, seed=1):
    made = torch.Generator().manual_seed(seed)
    if kind == "grid":
        return torch.stack(torch.meshgrid(torch.arange(15.), torch.arange(10.), indexing="ij"), -1
                           ).reshape(-1, 2)[torch.randperm(150, generator=made)[:n]]
    points = torch.rand(*shape, generator=made) * 30
    return points * 0 + 7 if kind == "equal" else points * 1e4 if kind == "far" else points


def arrays(n_q=130, n=130, kv=4, batch=2, dtype=torch.float32):
    made = torch.Generator().manual_seed(2)
    return [torch.randn(batch, h, rows, 16, generator=made).to(dtype).requires_grad_()
            for h, rows in ((4, n_q), (kv, n), (kv, n))]


def gradients(run, inputs):
    for x in inputs:
        x.grad = None
    o = run()
    (o * torch.randn(o.shape, generator=torch.Generator().manual_seed(3)).to(o.dtype)).sum().backward()
    return [o.detach().double()] + [x.grad.double() for x in inputs]


def check(ours, wanted, share=2e-5):
    for i, (x, y) in enumerate(zip(ours, wanted)):
        assert (x - y).abs().max() <= share * max(1.0, float(y.abs().max())), i


@pytest.mark.parametrize("method", ["exact", "dense"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape, kind", [
    ((130, 2), "plain"), ((130, 2), "grid"), ((130, 2), "equal"), ((130, 3), "far"), ((130, 1), "plain"),
    ((4, 130, 2), "plain"), ((2, 4, 130, 1), "plain"), ((2, 1, 130, 2), "plain")])
def test_gradients(method, causal, shape, kind):
    inputs = arrays()
    p = some(130, shape, kind).requires_grad_(kind not in ("equal", "grid"))
    slopes = torch.tensor(SLOPES, requires_grad=True)
    all_of = [*inputs, slopes] + ([p] if p.requires_grad else [])
    ours = gradients(lambda: plsh.torch.attention(*inputs, slopes=slopes, positions=p, causal=causal,
                                                  method=method), all_of)
    wide = p[:, None] if p.dim() == 1 else p
    check(ours, gradients(lambda: oracle(*inputs, slopes, wide, causal), all_of))


def test_class_token():
    """A position of NaN has no bias, and no gradient."""
    inputs = arrays()
    p, slopes = some(130, (130, 2), "plain"), torch.tensor(SLOPES)
    p[0, 1] = torch.nan
    p.requires_grad_()
    ours = gradients(lambda: plsh.torch.attention(*inputs, slopes=slopes, positions=p, causal=False),
                     [*inputs, p])
    check(ours[:4], gradients(lambda: oracle(*inputs, slopes, p.detach(), False), inputs))
    assert (ours[4][0] == 0).all() and ours[4].isfinite().all()


def test_fewer_queries_and_their_own_positions():
    inputs, slopes = arrays(n_q=40, kv=2), torch.tensor(SLOPES)
    p, x = some(130, (130, 2), "plain").requires_grad_(), some(40, (4, 40, 2), "plain", 5).requires_grad_()
    check(gradients(lambda: plsh.torch.attention(*inputs, slopes=slopes, positions=p, causal=False), [*inputs, p]),
          gradients(lambda: oracle(*inputs, slopes, p, False), [*inputs, p]))
    check(gradients(lambda: plsh.torch.attention(*inputs, slopes=slopes, positions=p, query_positions=x,
                                                 causal=False), [*inputs, p, x]),
          gradients(lambda: oracle(*inputs, slopes, p, False, x), [*inputs, p, x]))


def test_halves_radius_and_rows():
    p, slopes = some(130, (130, 2), "plain"), torch.tensor(SLOPES)
    half = [x.detach() for x in arrays(dtype=torch.bfloat16)]
    o = plsh.torch.attention(*half, slopes=slopes, positions=p, causal=False)
    check([o.double()], [oracle(*half, slopes, p, False)], 4e-3)
    q, k, v = (x.detach() for x in arrays())
    o = plsh.torch.attention(q, k, v, slopes=slopes, positions=p, method="window", window=6.5, causal=False)
    check([o.double()], [oracle(q, k, v, slopes, p, False, radius=6.5)])
    line = plsh.torch.attention(q, k, v, slopes=slopes, positions=torch.arange(130.0))
    check([line.double()], [plsh.torch.attention(q, k, v, slopes=slopes).double()], 2e-6)


def test_sampled_methods_converge_and_have_no_gradient_by_positions():
    q, k, v = (x.detach() for x in arrays())
    p, slopes = some(130, (130, 2), "plain"), torch.tensor(SLOPES)
    wanted = oracle(q, k, v, slopes, p, False)
    few, many = (plsh.torch.attention(q, k, v, slopes=slopes, positions=p, method="plsh", samples=s, causal=False)
                 for s in (8, 2000))
    assert (many - wanted).abs().mean() < 0.3 * (few - wanted).abs().mean()
    p.requires_grad_()
    with pytest.raises(Exception, match="position"):
        plsh.torch.attention(q, k, v, slopes=slopes, positions=p, method="plsh", causal=False).sum().backward()


@pytest.mark.parametrize("head_first", [False, True])
@pytest.mark.parametrize("n_q, start", [(130, None), (30, None), (130, [0, 17])])
def test_forgetting_attention(head_first, n_q, start):
    inputs = arrays(n_q=n_q)
    log_f = torch.nn.functional.logsigmoid(torch.randn(2, 4, 130, generator=torch.Generator().manual_seed(7)) + 2)
    log_f.requires_grad_()
    starts = None if start is None else torch.tensor(start)

    def ours():
        given = [x if head_first else x.transpose(1, 2) for x in (*inputs, log_f)]
        o = plsh.torch.forgetting_attention(*given, head_first=head_first, seq_start=starts)
        o = o if head_first else o.transpose(1, 2)
        return o if starts is None else o * (torch.arange(130) >= starts[:, None])[:, None, :, None]

    def plain():
        q, k, v, f = (x.double() for x in (*inputs, log_f))
        c = f.cumsum(-1)
        s = q @ k.mT * 0.25 + c[:, :, 130 - n_q:, None] - c[:, :, None]
        s = s.masked_fill(torch.arange(130) > (torch.arange(n_q) + 130 - n_q)[:, None], -torch.inf)
        if starts is None:
            return s.softmax(-1) @ v
        real = (torch.arange(130) >= starts[:, None])[:, None]
        s = s.masked_fill(~real[:, :, None], -1e9)
        return (s.softmax(-1) @ v) * real[..., None]
    check(gradients(ours, [*inputs, log_f]), gradients(plain, [*inputs, log_f]))


def test_module():
    layer = plsh.torch.nn.AlibiAttention(32, 4, learn_slopes=True, causal=False)
    assert plsh.torch.ALiBiAttention is plsh.torch.nn.AlibiAttention
    x, p = torch.randn(2, 50, 32), torch.rand(50, 2).requires_grad_()
    layer(x, positions=p).square().sum().backward()
    assert p.grad.abs().max() > 0 and layer.log_slopes.grad.abs().max() > 0
    assert not torch.equal(layer(x), layer(x, positions=p))


@pytest.mark.parametrize("positions, options, message", [
    (torch.zeros(129, 2), {}, "there are 130 keys"),
    (torch.zeros(130, 4), {}, "4 coordinates"),
    (torch.zeros(3, 130, 2), {}, "3 sets"),
    (torch.zeros(3, 4, 130, 2), {}, "3 batch entries"),
    (torch.full((130, 2), torch.inf), {}, "inf|finite"),
    (torch.zeros(130, 2), {"method": "fixed"}, "fixed"),
    (torch.zeros(130, 2), {"query_positions": torch.zeros(130, 1)}, "1 coordinates"),
    (torch.zeros(130, 2), {"method": "window", "window": -1.0}, "radius"),
    (None, {"query_positions": torch.zeros(130, 1)}, "needs positions"),
])
def test_bad_input(positions, options, message):
    q, k, v = (x.detach() for x in arrays())
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        plsh.torch.attention(q, k, v, positions=positions, **options)


def test_no_rows():
    for n in (0, 1):
        q, k, v = (torch.randn(1, 4, n, 16) for _ in range(3))
        assert plsh.torch.attention(q, k, v, positions=torch.zeros(n, 2)).shape == (1, 4, n, 16)


def test_numpy():
    """The same outputs and gradients; certificates hold."""
    inputs, p = arrays(), some(130, (130, 2), "plain").requires_grad_()
    slopes = torch.tensor(SLOPES)
    wanted = gradients(lambda: oracle(*inputs, slopes, p, False), [*inputs, p])
    q, k, v = (x.detach().numpy() for x in inputs)
    done = plsh.attend(q, k, v, slopes=SLOPES, positions=p.detach().numpy(), causal=False, return_lse=True,
                       certificate=True, eps=1e-3)
    assert (abs(done.o - wanted[0].numpy()).max(-1) <= done.certificate + 1e-5).all()
    done = plsh.attend(q, k, v, slopes=SLOPES, positions=p.detach().numpy(), causal=False, return_lse=True)
    d_o = torch.randn(done.o.shape, generator=torch.Generator().manual_seed(3)).numpy()
    found = done.backward(d_o)
    check([torch.from_numpy(x).double() for x in (done.o, found.dq, found.dk, found.dv, found.dpositions)], wanted)
    assert found.dquery_positions is None
    again = plsh.attention(q, k, v, slopes=SLOPES, positions=p.detach().numpy(), causal=False,
                           query_positions=p.detach().numpy())
    assert abs(again - done.o).max() < 1e-6
    for wrong, message in ((np.zeros((129, 2), np.float32), "there are 130 keys"), (np.zeros((130, 4)), "4 coordinates"),
                           (np.full((130, 2), np.inf), "inf|finite"), ([1.0], "numpy array")):
        with pytest.raises((ValueError, TypeError), match=message):
            plsh.attention(q, k, v, positions=wrong)
