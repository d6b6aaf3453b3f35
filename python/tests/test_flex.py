"""FlexAttention made from partitions: the numbers of the CPU's kernels, and how the blocks lie."""

import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")
flex_attention = pytest.importorskip("torch.nn.attention.flex_attention")

import plsh  # noqa: E402
import plsh.flex  # noqa: E402
import plsh.torch  # noqa: E402

SIGMA = (2.0, 9.0, 40.0, 150.0)
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a compiler")
METHODS = [("exact", {}), ("window", {"window": 33}), ("fixed", {"block": 50}),
           ("plsh", {"samples": 7}), ("plsh", {"samples": 1, "scheme": "cuts"})]


def inputs(n, n_q=None, heads=4, kv_heads=4, dim=16, value_dim=None, batch=1):
    generator = torch.Generator().manual_seed(0)
    shapes = ((heads, n_q or n, dim), (kv_heads, n, dim), (kv_heads, n, value_dim or dim))
    return [torch.randn(batch, *x, generator=generator) for x in shapes]


def dense(functions, q, k, v):
    """The same score and mask functions, evaluated on all pairs by plain torch."""
    n_q, n = q.shape[2], k.shape[2]
    h, i, j = torch.meshgrid(torch.arange(q.shape[1]), torch.arange(n_q), torch.arange(n),
                             indexing="ij")
    scores = (q @ k.transpose(2, 3)) * q.shape[3] ** -0.5
    if functions.score is not None:
        scores = functions.score(scores, 0, h, i, j)
    scores = scores.masked_fill(~functions.blocks.mask_mod(0, h, i, j), -torch.inf)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("method, options", METHODS)
@pytest.mark.parametrize("n, n_q", [(300, None), (257, 40)])
def test_functions(method, options, causal, n, n_q):
    """As the library's kernels: the same partitions, windows, biases."""
    from plsh._attention import decays_of, integers
    q, k, v = inputs(n, n_q)
    known = plsh.flex.Options((method,), decays_of(4, SIGMA, None, None),
                              window=integers("window", options.get("window")),
                              block=integers("block", options.get("block")),
                              samples=options.get("samples", 20),
                              scheme=options.get("scheme", "integer"))
    functions = plsh.flex._functions(known, 4, n_q or n, n, causal, "cpu")
    wanted = plsh.torch.attention(q, k, v, sigma=SIGMA, method=method, causal=causal, **options)
    torch.testing.assert_close(dense(functions, q, k, v), wanted, rtol=0, atol=5e-6)
    check_blocks(functions.blocks, 4)


def check_blocks(blocks, heads):
    """Every visible pair is in a block that is listed once, full ones see all; rows and columns."""
    n_q, n = blocks.seq_lengths
    size = blocks.BLOCK_SIZE[0]
    h, i, j = torch.meshgrid(torch.arange(heads), torch.arange(n_q), torch.arange(n), indexing="ij")
    visible = blocks.mask_mod(0, h, i, j)
    down, across = -(-n_q // size), -(-n // size)
    padded = torch.zeros(heads, down * size, across * size)
    padded[:, :n_q, :n] = visible
    real = torch.zeros_like(padded)
    real[:, :n_q, :n] = 1
    count, area = (x.reshape(heads, down, size, across, size).sum((2, 4)) for x in (padded, real))
    kinds = {"": (count > 0) & (count < area), "full_": count == area}
    seen = torch.zeros(heads, down, across, dtype=torch.int64)
    for kind in kinds:
        for rows, turned in (("kv", False), ("q", True)):
            number = getattr(blocks, f"{kind}{rows}_num_blocks")[0]
            index = getattr(blocks, f"{kind}{rows}_indices")[0]
            listed = torch.zeros(heads, *(reversed((down, across)) if turned else (down, across)),
                                 dtype=torch.int64)
            for a in range(heads):
                for b in range(listed.shape[1]):
                    for c in index[a, b, :number[a, b]].tolist():
                        listed[a, b, c] += 1
            if turned:
                assert torch.equal(listed.transpose(1, 2), forward)
            else:
                forward = listed
        if kind == "full_":
            assert bool((forward <= kinds["full_"]).all())
        seen += forward
    assert bool((seen <= 1).all()) and bool((seen[count > 0] == 1).all())
    assert int(seen.sum()) <= int((count > 0).sum()) + heads * down  # hardly any for nothing


def test_blocks_take_no_square_memory():
    partitions = [plsh.Partition(8.0, samples=3)]
    blocks = plsh.flex.sampled(partitions, 1 << 16).blocks
    for index in (blocks.kv_indices, blocks.q_indices, blocks.full_kv_indices):
        assert index.untyped_storage().nbytes() < 10 * 4 * 512


@needs_compiler
@pytest.mark.parametrize("method, options, shape", [
    ("plsh", {"samples": 5}, {"n": 200}),
    ("window", {"window": 33}, {"n": 260, "n_q": 100, "kv_heads": 2, "value_dim": 32}),
])
def test_compiled(method, options, shape):
    """FlexAttention's own kernel on the CPU."""
    torch._dynamo.reset()
    q, k, v = inputs(**shape)
    with torch.no_grad():
        o = plsh.flex.attention(q, k, v, sigma=SIGMA, method=method, **options)
    wanted = plsh.torch.attention(q, k, v, sigma=SIGMA, method=method, **options)
    torch.testing.assert_close(o, wanted, rtol=0, atol=5e-6)


def test_what_is_refused():
    q, k, v = inputs(20)
    with pytest.raises(NotImplementedError, match="method=.'mean'"):
        plsh.flex.attention(q, k, v, method="mean")
    with pytest.raises(NotImplementedError, match="learned on the CPU"):
        plsh.flex.attention(q, k, v, slopes=torch.ones(4, requires_grad=True))


def packed_sdpa(q, k, v, edges):
    """Block by block, as a kernel for sequences of varying length: o and log-sum-exp, causal."""
    o, lse = torch.empty_like(v), torch.empty(q.shape[:-1])
    for a, b in zip(edges[:-1].tolist(), edges[1:].tolist()):
        x = [y[..., a:b, :] for y in (q, k, v)]
        o[..., a:b, :] = torch.nn.functional.scaled_dot_product_attention(*x, is_causal=True)
        scores = x[0] @ x[1].transpose(-1, -2) * q.shape[-1] ** -0.5
        causal = torch.ones(b - a, b - a, dtype=torch.bool).tril()
        lse[..., a:b] = scores.masked_fill(~causal, -torch.inf).logsumexp(-1)
    return o, lse


def test_any_kernel_on_the_blocks_of_a_draw():
    """The paper's reduction: a pass for each mask by SDPA, merged by their log-sum-exps."""
    q, k, v = (x.requires_grad_() for x in inputs(130))
    samples, heads = 6, []
    for h, sigma in enumerate(SIGMA):
        partition = plsh.Partition(sigma, samples=samples, head=h)
        passes = [packed_sdpa(q[:, h], k[:, h], v[:, h], partition.cu_seqlens(130, m))
                  for m in range(samples)]
        heads.append(plsh.torch.merge(*(torch.stack(x) for x in zip(*passes))))
    o, lse = (torch.stack(x, dim=1) for x in zip(*heads))
    wanted = plsh.torch.attention(q, k, v, sigma=SIGMA, method="plsh", samples=samples,
                                  return_lse=True)
    torch.testing.assert_close(o, wanted[0], rtol=0, atol=3e-6)
    torch.testing.assert_close(lse, wanted[1], rtol=0, atol=3e-6)
    d_o = torch.randn_like(o)
    found = torch.autograd.grad(o, (q, k, v), d_o)
    for x, y in zip(found, torch.autograd.grad(wanted[0], (q, k, v), d_o)):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-5)


def test_edges_of_draws():
    partition = plsh.Partition(5.0, samples=3)
    for m in range(3):
        edges = partition.cu_seqlens(77, m)
        assert edges.dtype == np.int32
        assert list(zip(edges[:-1].tolist(), edges[1:].tolist())) == partition.blocks(m, 77)
    labels = np.array([[0, 0, 1, 1, 0]], dtype=np.int32)
    with pytest.raises(ValueError, match="recur"):
        plsh.Partition(5.0, labels=labels).cu_seqlens(5)
    with pytest.raises(ValueError, match="lses: shape"):
        plsh.torch.merge(torch.ones(2, 3, 4), torch.ones(2, 4))
