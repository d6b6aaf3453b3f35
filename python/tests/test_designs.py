"""Every design wherever Python takes one: values and gradients against M~ from its own counts, in float64."""

import numpy as np
import pytest

import plsh
from conftest import dense

DESIGNS = ("golden", "golden-shifted", "toeplitz", "auto")
HEADS, DIM, VALUE_DIM = 2, 16, 8


def arrays(n):
    rng = np.random.default_rng(n)
    return [rng.standard_normal((HEADS, n, dim), dtype=np.float32) for dim in (DIM, DIM, VALUE_DIM)]


def log_mean(n, sigma, **options):
    """log M~ of every head, by the definition: in how many draws two positions share a block."""
    sets = [plsh.Partition(sigma, head=h, **options) for h in range(HEADS)]
    counts = np.array([[[one.count(i, j) for j in range(n)] for i in range(n)] for one in sets])
    with np.errstate(divide="ignore"):
        return np.log(counts / sets[0].samples)


@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("samples", (7, 40))
@pytest.mark.parametrize("sigma", (0.5, 3.0, 64.0, 1e4))
@pytest.mark.parametrize("design", DESIGNS)
def test_attention(design, sigma, samples, causal):
    for n in (1, 2, 45):
        q, k, v = arrays(n)
        options = {"samples": samples, "design": design, "seed": 5}
        bias = log_mean(n, sigma, **options)
        wanted, wanted_lse = dense(q, k, v, bias, causal)
        methods = ("plsh",) if design == "golden-shifted" else ("plsh", "masks")
        for method in methods:
            o, lse = plsh.attention(q, k, v, sigma=sigma, method=method, causal=causal, return_lse=True, **options)
            assert abs(o - wanted).max() < 5e-6
            assert abs(lse - wanted_lse).max() < 5e-6
        exact, _ = dense(q, k, v, -abs(np.arange(n)[:, None] - np.arange(n)) / sigma, causal)
        o, certificate = plsh.attention(q, k, v, sigma=sigma, method="plsh", causal=causal, certificate=True, **options)
        assert (abs(o - exact).max(axis=-1) <= certificate).all()


@pytest.mark.parametrize("design", DESIGNS)
def test_empty(design):
    q, k, v = arrays(0)
    assert plsh.attention(q, k, v, sigma=4.0, method="plsh", samples=9, design=design).shape == (HEADS, 0, VALUE_DIM)


@pytest.mark.parametrize("sigma", (2.0, 20.0))
@pytest.mark.parametrize("design", DESIGNS)
def test_decoding(design, sigma):
    n = 160
    q, k, v = arrays(n)
    options = {"sigma": sigma, "method": "plsh", "samples": 9, "design": design}
    wanted = plsh.attention(q, k, v, causal=True, **options)
    cache = plsh.Cache(HEADS, DIM, value_dim=VALUE_DIM, **options)
    rows = [cache.step(q[:, :100], k[:, :100], v[:, :100])]
    rows += [cache.step(q[:, t:t + 1], k[:, t:t + 1], v[:, t:t + 1]) for t in range(100, n)]
    assert abs(np.concatenate(rows, axis=1) - wanted).max() < 5e-6


@pytest.mark.parametrize("sigma", (2.0, 20.0))
@pytest.mark.parametrize("design", DESIGNS)
def test_gradients(design, sigma):
    torch = pytest.importorskip("torch")
    import plsh.torch  # noqa: F401
    n = 45
    options = {"samples": 9, "design": design, "seed": 5}
    bias = torch.tensor(log_mean(n, sigma, **options))
    q, k, v = (torch.tensor(x[None], requires_grad=True) for x in arrays(n))
    o = plsh.torch.attention(q, k, v, sigma=sigma, method="plsh", causal=False, **options)
    d_o = torch.randn(o.shape, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(o, (q, k, v), d_o)
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    same = (doubles[0] @ doubles[1].transpose(2, 3) * DIM ** -0.5 + bias).softmax(dim=-1) @ doubles[2]
    assert (o - same).abs().max() < 5e-6
    for mine, theirs in zip(found, torch.autograd.grad(same, doubles, d_o.double())):
        assert (mine - theirs).abs().max() < 2e-5


@pytest.mark.parametrize("design", DESIGNS)
def test_theory(design):
    n, sigma, samples = 80, 4.0, 30
    partition = plsh.Partition(sigma, samples, design=design)
    k = np.exp(-abs(np.arange(n)[:, None] - np.arange(n)) / sigma)
    mean = partition.mean_mask(n)
    assert mean[5, 30] == partition.count(5, 30) / samples
    norms, bounds = plsh.norms(partition, n), plsh.bounds(n, partition)
    assert abs(norms.spectral - np.linalg.norm(k - mean, 2)) < 1e-5
    assert abs(norms.max - abs(k - mean).max()) < 1e-12
    assert norms.spectral <= bounds.spectral and norms.max <= bounds.max and norms.largest_block <= bounds.largest_block
    assert bounds.max_certain
    x = np.random.default_rng(0).standard_normal(n)
    assert abs(plsh.mask_multiply(partition, x) - mean @ x).max() < 1e-12
    advice = plsh.plan(4096, sigma, 0.05, design=design)
    assert 1 < advice.samples_least <= advice.samples_measured <= advice.samples_theorem
    assert f"no set of fewer than {advice.samples_least} masks" in advice.reason


@pytest.mark.parametrize(("design", "decay", "options", "message"), (
    ("golden", "kerple-log:1,0.5", {}, "ALiBi"), ("toeplitz", "kerple-log:1,0.5", {}, "ALiBi"),
    ("golden-shifted", "kerple-log:1,0.5", {}, "ALiBi"), ("golden", 4.0, {"samples": 1 << 17}, r"2\^16"),
    ("toeplitz", 4.0, {"samples": 1 << 21}, r"2\^20"), ("golden-shifted", 4.0, {"samples": 6}, "at least 7"),
    ("golden", 4.0, {"scheme": "cuts"}, "cuts"), ("silver", 4.0, {}, "is one of")))
def test_refused(design, decay, options, message):
    q, k, v = arrays(20)
    bias = {"sigma": decay} if isinstance(decay, float) else {"decay": decay}
    with pytest.raises((ValueError, plsh.UnsupportedError), match=message):
        plsh.Partition(decay, design=design, **options)
    with pytest.raises((ValueError, plsh.UnsupportedError), match=message):
        plsh.attention(q, k, v, method="plsh", design=design, **bias, **options)


@pytest.mark.parametrize("design", ("golden", "golden-shifted", "toeplitz"))
def test_points_are_refused(design):
    q, k, v = arrays(20)
    with pytest.raises(ValueError, match="hyperplanes"):
        plsh.attention(q, k, v, sigma=4.0, method="plsh", design=design, positions=np.arange(20.0))


def test_width():
    """Only grids have a width and an offset; (0, 0) would mean that one block holds everything."""
    width, _ = plsh.Partition(4.0, 9, design="toeplitz").draw(0)
    begin, end = plsh.Partition(4.0, 9, design="toeplitz").block(0, 50)
    assert end - begin == width
    for other in (plsh.Partition(4.0, 9, design="golden"), plsh.Partition(4.0, 9, design="golden-shifted"),
                  plsh.Partition(4.0, 9, scheme="cuts"), plsh.Partition(4.0, labels=np.zeros((2, 5), dtype=np.int32))):
        with pytest.raises(ValueError, match="no width"):
            other.draw(0)
