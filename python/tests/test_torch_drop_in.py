"""The drop-ins for flash-attn and torch's attention, against torch's own attention with the bias as an array."""

import pytest

torch = pytest.importorskip("torch")

import plsh.torch  # noqa: E402

SLOPES = torch.tensor([0.5, 0.25, 0.1, 0.0])
sdpa = torch.nn.functional.scaled_dot_product_attention


def arrays(batch=2, n=40, m=40, heads=4, kv=2, dim=8):
    torch.manual_seed(0)
    return [torch.randn(batch, x, h, dim, requires_grad=True) for x, h in ((n, heads), (m, kv), (m, kv))]


def expected(q, k, v, slopes=None, causal=False, window=None):
    """In double, by torch; layouts are those of flash-attn."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    n, m = q.shape[2], k.shape[2]
    distance = torch.arange(n)[:, None] + m - n - torch.arange(m)[None]
    slopes = torch.zeros(q.shape[1]) if slopes is None else slopes
    slopes = slopes.double().expand(q.shape[0], q.shape[1])
    bias = -slopes[:, :, None, None] * distance.abs()
    hidden = torch.zeros(n, m, dtype=torch.bool)
    if causal:
        hidden |= distance < 0
    if window is not None:
        hidden |= distance.abs() > window
    return sdpa(q, k, v, bias.masked_fill(hidden, -torch.inf), enable_gqa=True).transpose(1, 2)


def close(x, y):
    torch.testing.assert_close(x.double(), y.double(), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize("kind", ["none", "heads", "batch"])
def test_flash_attn_func(causal, window, kind):
    q, k, v = arrays(n=30)
    slopes = {"none": None, "heads": SLOPES, "batch": torch.stack([SLOPES, SLOPES.flip(0)])}[kind]
    size = (-1, -1) if window is None else (window, 0 if causal else window)
    o, lse, nothing = plsh.torch.flash_attn_func(q, k, v, causal=causal, window_size=size,
                                                 alibi_slopes=slopes, return_attn_probs=True)
    right = expected(q, k, v, slopes, causal, window)
    close(o, right)
    assert lse.shape == (2, 4, 30) and nothing is None
    found = torch.autograd.grad(o.square().sum(), (q, k, v))
    for x, y in zip(found, torch.autograd.grad(right.square().sum(), (q, k, v))):
        torch.testing.assert_close(x, y, atol=1e-4, rtol=1e-4)


def test_flash_attn_qkvpacked_func():
    torch.manual_seed(0)
    qkv = torch.randn(2, 30, 3, 4, 8)
    close(plsh.torch.flash_attn_qkvpacked_func(qkv, causal=True, alibi_slopes=SLOPES),
          expected(*qkv.unbind(2), SLOPES, True))
    half = plsh.torch.flash_attn_qkvpacked_func(qkv.bfloat16(), alibi_slopes=SLOPES)
    assert half.dtype == torch.bfloat16


@pytest.mark.parametrize("kind", ["none", "heads", "batch"])
def test_flash_attn_varlen_func(kind):
    q, k, v = (x.detach()[0] for x in arrays(1, n=40, m=50))
    slopes = {"none": None, "heads": SLOPES, "batch": torch.stack([SLOPES, SLOPES.flip(0)])}[kind]
    ends_q, ends_k = torch.tensor([0, 15, 40], dtype=torch.int32), torch.tensor([0, 20, 50], dtype=torch.int32)
    o, lse, _ = plsh.torch.flash_attn_varlen_func(q, k, v, ends_q, ends_k, 25, 30, causal=True,
                                                  alibi_slopes=slopes, return_attn_probs=True)
    assert lse.shape == (4, 40)
    for b, (i, n, j, m) in enumerate(((0, 15, 0, 20), (15, 40, 20, 50))):
        close(o[i:n], expected(q[None, i:n], k[None, j:m], v[None, j:m],
                               slopes[b] if kind == "batch" else slopes, True)[0])


def test_dropout_keeps_the_mean_and_repeats():
    q, k, v = (x.detach() for x in arrays(1, n=200, m=200))
    torch.manual_seed(1)
    first = plsh.torch.flash_attn_func(q, k, v, dropout_p=0.5, alibi_slopes=SLOPES)
    torch.manual_seed(1)
    assert torch.equal(first, plsh.torch.flash_attn_func(q, k, v, dropout_p=0.5, alibi_slopes=SLOPES))
    mean = sum(plsh.torch.flash_attn_func(q, k, v, dropout_p=0.5) for _ in range(64)) / 64
    own = plsh.torch.flash_attn_func(q, k, v)
    assert (mean - own).square().mean() < 0.05 * (first - own).square().mean()
    x = q.clone().requires_grad_()  # a numerical derivative with the same mask
    def loss(x):
        torch.manual_seed(2)
        return plsh.torch.flash_attn_func(x, k, v, dropout_p=0.3, alibi_slopes=SLOPES).square().sum()
    loss(x).backward()
    way = torch.randn_like(q)
    slope = (loss(q + 1e-2 * way).double() - loss(q - 1e-2 * way).double()) / 2e-2
    assert abs(slope - (x.grad * way).sum()) < 2e-2 * abs(slope) + 1e-2


def layouts():
    """Masks of 2 texts of 40 tokens with what they hide: name, mask, causal."""
    lengths = torch.tensor([40, 33])
    tokens = torch.arange(40)[None] < lengths[:, None]
    left = tokens.flip(1)
    order = torch.arange(40)[:, None] - torch.arange(40)[None]
    packed = torch.tensor([0] * 15 + [1] * 25)
    pairs = {
        "causal": order >= 0, "window": order.abs() < 6, "causal window": (order >= 0) & (order < 6),
        "packed": packed[:, None] == packed[None],
        "packed causal": (packed[:, None] == packed[None]) & (order >= 0),
    }
    yield "padding", tokens[:, None, None], tokens
    yield "padding left", left[:, None, None], left
    for name, x in pairs.items():
        yield name, x, torch.ones(2, 40, dtype=torch.bool)
        yield f"{name}, padded", (x[None] & tokens[:, None])[:, None], tokens
    yield "causal, padded left", ((order >= 0)[None] & left[:, None])[:, None], left


@pytest.mark.parametrize("case", list(layouts()), ids=lambda x: x[0])
@pytest.mark.parametrize("added", [False, True])
def test_masks_are_recognised(case, added):
    _, mask, tokens = case
    q, k, v = (x.detach().transpose(1, 2) for x in arrays(kv=4))
    right = sdpa(q, k, v, mask)
    if added:
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    found = plsh.torch.scaled_dot_product_attention(q, k, v, mask)
    rows = tokens[:, None, :, None].expand_as(found)
    close(found[rows], right[rows])


def test_padding_by_rows_of_tokens_and_its_inverse():
    q, k, v = (x.detach().transpose(1, 2) for x in arrays(kv=4))
    tokens = torch.arange(40)[None] < torch.tensor([40, 33])[:, None]
    right = sdpa(q, k, v, tokens[:, None, None])
    for mask in (tokens, tokens.long(), tokens[:, None, None].to(torch.uint8)):
        found = plsh.torch.scaled_dot_product_attention(q, k, v, mask)
        close(found[1, :, :33], right[1, :, :33])
    with pytest.raises(ValueError, match="attn_mask.*has 1.0"):
        plsh.torch.scaled_dot_product_attention(q, k, v, tokens.float())


def test_sdpa_with_slopes_and_windows():
    q, k, v = arrays()
    for slopes in (SLOPES, torch.stack([SLOPES, SLOPES.flip(0)])):
        found = plsh.torch.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)), is_causal=True, enable_gqa=True, window=5,
            alibi_slopes=slopes)
        close(found.transpose(1, 2), expected(q, k, v, slopes, True, 4))
    learned = torch.tensor([0.5, 0.25, 0.1, 0.05], requires_grad=True)
    plsh.torch.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), enable_gqa=True,
                                            alibi_slopes=learned).square().sum().backward()
    assert learned.grad.abs().min() > 0


def test_what_is_refused():
    q, k, v = (x.detach() for x in arrays())
    ends = torch.tensor([0, 40], dtype=torch.int32)
    for match, options in (("softcap=30", {"softcap": 30.0}), (r"window_size=\(3, 5\)", {"window_size": (3, 5)}),
                           (r"window_size=\(-1, 5\)", {"window_size": (-1, 5)}),
                           ("alibi_slopes: .3,", {"alibi_slopes": SLOPES[:3]}),
                           ("dropout=1.5", {"dropout_p": 1.5}), ("positive", {"alibi_slopes": -SLOPES})):
        with pytest.raises((ValueError, NotImplementedError), match=match):
            plsh.torch.flash_attn_func(q, k, v, **options)
    with pytest.raises(NotImplementedError, match="block_table"):
        plsh.torch.flash_attn_varlen_func(q[0], k[0], v[0], ends, ends, 40, 40, block_table=ends)
    with pytest.raises(ValueError, match="cu_seqlens_q: must rise from 0 to 40"):
        plsh.torch.flash_attn_varlen_func(q[0], k[0], v[0], ends - 1, ends, 40, 40)
    q, k, v = (x.transpose(1, 2) for x in (q, k.repeat(1, 1, 2, 1), v.repeat(1, 1, 2, 1)))
    torch.manual_seed(3)
    distance = (torch.arange(40)[:, None] - torch.arange(40)[None]).abs()
    for match, mask in (("A bias is no mask", -0.5 * distance.float()),
                        ("fits no mask", torch.rand(40, 40) < 0.5),
                        ("differs between heads", torch.rand(2, 4, 40, 40) < 0.5),
                        ("three dimensions", torch.ones(2, 40, 40, dtype=torch.bool)),
                        ("shape .2, 1, 40, 39", torch.ones(2, 1, 40, 39, dtype=torch.bool))):
        with pytest.raises(ValueError, match=match):
            plsh.torch.scaled_dot_product_attention(q, k, v, mask)
    with pytest.raises(ValueError, match="torch aligns"):
        plsh.torch.scaled_dot_product_attention(q[:, :, :5], k, v, is_causal=True)
    with pytest.raises(ValueError, match="enable_gqa"):
        plsh.torch.scaled_dot_product_attention(q, k[:, :2], v[:, :2])


def test_dropout_of_the_layer():
    """In training alone; out of range, it is refused when the layer is made."""
    layer, x = plsh.torch.ALiBiAttention(32, 4, dropout=0.3), torch.randn(2, 30, 32)
    torch.manual_seed(0)
    first = layer(x)
    torch.manual_seed(0)
    assert torch.equal(layer(x), first) and not torch.equal(layer(x), first)
    plain = plsh.torch.ALiBiAttention(32, 4)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer.eval()(x), plain(x))
    with pytest.raises(ValueError, match="dropout=1: is a probability"):
        plsh.torch.ALiBiAttention(32, 4, dropout=1)
