"""context_parallel on 2, 3 and 4 processes: values and gradients against one process; errors."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import plsh.torch  # noqa: E402
from rank_pool import Failed, Pool  # noqa: E402

N, HEADS, KV_HEADS = 700, 4, 2
SIGMA = [2.0, 5.0, 9.0, 14.0]
SPLITS = {2: [[350, 350], [500, 200]], 3: [[233, 234, 233], [1, 0, 699]],
          4: [[175] * 4, [300, 0, 30, 370]]}
OWN = {"window": {"window": 50}, "fixed": {"block": 32}}  # options of one method
METHODS = {
    "exact": {"method": "exact"}, "dense": {"method": "dense"}, "none": {"method": "none"},
    "window": {"method": "window", "window": [3, 40, 190, 600]},
    "one window": {"method": "window", "window": 60},
    "fixed": {"method": "fixed", "block": [7, 64, 150, 900]},
    "plsh": {"method": "plsh", "samples": 12}, "masks": {"method": "masks", "samples": 5},
    "mean": {"method": "mean", "samples": 5}, "cuts": {"method": "plsh", "scheme": "cuts"},
    "binning": {"method": "plsh", "scheme": "binning", "design": "iid", "samples": 9},
    "auto": {"method": "auto"}, "mixed": {"method": ["dense", "exact", "window", "plsh"]},
    "mixed in a group": {"method": ["none", "window", "none", "exact"], "window": 100},
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    pool = Pool(4, tmp_path_factory.mktemp("ranks"))
    yield pool
    pool.close()


def inputs(batch=1, n=N, dim=16, value_dim=24, key_scale=1.0, dtype="float32", rows_first=False,
           huge=False):
    """q, k, v and the gradient of o; the same in every process."""
    generator = torch.Generator().manual_seed(3)
    made = []
    for heads, d in ((HEADS, dim), (KV_HEADS, dim), (KV_HEADS, value_dim), (HEADS, value_dim)):
        x = torch.randn(batch, n, heads, d, generator=generator).transpose(1, 2)
        made.append((x if rows_first else x.contiguous()).to(getattr(torch, dtype)))
    made[1] = made[1] * key_scale + 1.0  # keys have a mean
    if huge:
        made[1][:, :, 123] *= 15
    return made


def solve(group, sizes, data, options, learn):
    """One rank's rows of everything (group: None for one process)."""
    rank = 0 if group is None else torch.distributed.get_rank(group)
    begin, rows = sum(sizes[:rank]), sizes[rank]
    q, k, v, d_o = (x[:, :, begin:begin + rows] for x in inputs(**data))
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    sigma = torch.tensor(SIGMA, requires_grad=learn)
    traffic = plsh.torch.Traffic()
    more = {} if group is None else {"group": group, "traffic": traffic}
    run = plsh.torch.attention if group is None else plsh.torch.context_parallel
    if "segments" in options:
        options = dict(options)
        options["spans"] = plsh.torch.segment_spans(torch.tensor(options.pop("segments")))
    o, lse = run(q, k, v, sigma=sigma, return_lse=True, **options, **more)
    (o.float() * d_o.float()).sum().backward()
    d_sigma = sigma.grad if learn else torch.zeros(HEADS)
    found = [x.detach().float().numpy() for x in (o, lse, q.grad, k.grad, v.grad)]
    return found, d_sigma.double().numpy(), (traffic.sent, traffic.received, traffic.messages)


def compare(pool, sizes, options, data=None, learn=True, tolerance=(2e-6, 1e-5)):
    """The ranks' rows beside those of one process; returns what was sent, by rank."""
    data = data or {}
    whole, d_sigma, _ = solve(None, [sum(sizes)], data, options, learn)
    parts = pool.run(len(sizes), solve, sizes, data, options, learn)
    for i, name in enumerate(("o", "lse", "dq", "dk", "dv")):
        found = np.concatenate([rows[i] for rows, _, _ in parts], axis=2)
        most = tolerance[0 if i < 2 else 1]
        wrong = abs(found - whole[i]) - most * (1 + abs(whole[i]))
        assert wrong.max() <= 0, (name, wrong.max())
    total = sum(x for _, x, _ in parts)
    np.testing.assert_allclose(total, d_sigma, rtol=1e-4, atol=1e-4 * abs(d_sigma).max())
    assert sum(x[0] for _, _, x in parts) == sum(x[1] for _, _, x in parts)
    return [x for _, _, x in parts]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_methods(pool, name, causal):
    for size, splits in SPLITS.items():
        for sizes in splits:
            compare(pool, sizes, {**METHODS[name], "causal": causal})


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("method", ["exact", "none", "window", "plsh", "fixed"])
def test_batches(pool, method, causal):
    options = {"method": method, "causal": causal, "scale": -0.4, **OWN.get(method, {})}
    for rows_first in (False, True):
        compare(pool, [100, 31, 69], options, {"batch": 3, "n": 200, "rows_first": rows_first})


@pytest.mark.parametrize("method", ["exact", "dense", "window", "plsh", "fixed"])
def test_packed_sequences(pool, method):
    """A token attends to its own sequence, wherever the cuts of the ranks are."""
    segments = [[i // 90 for i in range(300)], [0] * 10 + [1] * 280 + [2] * 10]
    for causal in (True, False):
        options = {"method": method, "causal": causal, **OWN.get(method, {})}
        for sizes in ([150, 150], [5, 180, 0, 115]):
            compare(pool, sizes, {**options, "segments": segments}, {"batch": 2, "n": 300})
        offsets = [0, 40, 40, 177, 300]
        compare(pool, [90, 100, 110], {**options, "query_offsets": offsets, "key_offsets": offsets},
                {"n": 300})


def test_padding(pool):
    mask = torch.tensor([[1] * 120, [0] * 50 + [1] * 70])
    compare(pool, [30, 40, 50], {"spans": plsh.torch.padding_spans(mask)}, {"batch": 2, "n": 120})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(pool, dtype):
    """Keys and values travel as they are; gradients are summed as floats and rounded once."""
    for method in ("exact", "none"):
        compare(pool, [200, 100], {"method": method}, {"n": 300, "dtype": dtype},
                tolerance=(2e-2, 2e-2))


@pytest.mark.parametrize("decay", ["kerple-log:1.5,0.4", "kerple-power:0.3,0.7", "triangle:90"])
def test_decays(pool, decay):
    for causal in (True, False):
        for method in ("exact", "plsh", "auto"):
            compare_decay(pool, {"decay": decay, "causal": causal, "method": method})


def test_decay_tables(pool):
    """Such a decay may rise again."""
    table = plsh.table([1.0, 0.5, 1e-9, 1e-9, *[0.0] * 100, 1e-3, 0.0])
    compare_decay(pool, {"decay": table, "method": "exact"})


def solve_decay(group, sizes, options):
    rank = 0 if group is None else torch.distributed.get_rank(group)
    begin, rows = sum(sizes[:rank]), sizes[rank]
    q, k, v, d_o = (x[:, :, begin:begin + rows] for x in inputs(n=sum(sizes)))
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    run = plsh.torch.attention if group is None else plsh.torch.context_parallel
    o = run(q, k, v, **options, **({} if group is None else {"group": group}))
    (o * d_o).sum().backward()
    return [x.detach().numpy() for x in (o, q.grad, k.grad, v.grad)]


def compare_decay(pool, options, sizes=(160, 90, 150)):
    whole = solve_decay(None, [sum(sizes)], options)
    parts = pool.run(len(sizes), solve_decay, sizes, options)
    for i, expected in enumerate(whole):
        found = np.concatenate([x[i] for x in parts], axis=2)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


# ---- what exact leaves out, what travels -------------------------------------------------------


def exact_rows(group, sizes, key_scale, causal, eps):
    rank = torch.distributed.get_rank(group)
    begin, rows = sum(sizes[:rank]), sizes[rank]
    q, k, v, _ = (x[:, :, begin:begin + rows] for x in inputs(n=sum(sizes), key_scale=key_scale, huge=key_scale == 1.0))
    traffic = plsh.torch.Traffic()
    o = plsh.torch.context_parallel(q, k, v, sigma=SIGMA, causal=causal, eps=eps, group=group,
                                    traffic=traffic)
    return o.numpy(), traffic.sent


@pytest.mark.parametrize("causal", [True, False])
def test_exact_keeps_to_eps(pool, causal):
    """Rows are off by at most what eps allows (2 max|v| eps), also for a coarse eps, and fewer keys
    travel then; keys of all sizes, one of them huge."""
    sizes, sent = [400, 300, 400], []
    for key_scale in (0.1, 1.0, 6.0):
        q, k, v, _ = inputs(n=sum(sizes), key_scale=key_scale, huge=key_scale == 1.0)
        exact = plsh.torch.attention(q, k, v, sigma=SIGMA, causal=causal, method="dense").numpy()
        for eps in (0.0, 1e-3, 0.1):
            parts = pool.run(3, exact_rows, sizes, key_scale, causal, eps)
            found = np.concatenate([x for x, _ in parts], axis=2)
            most = 2 * float(v.abs().max()) * (eps or 2**-24) / (1 - eps)
            assert abs(found - exact).max() <= most + 4e-6
            sent.append(sum(x for _, x in parts))
    assert sent[2] < sent[1] < sent[0] < sent[6]


def test_only_halos_travel(pool):
    """What a window needs, to the byte: K and V of the rows before a rank, and their gradients."""
    sizes, window = [100, 40, 0, 560], 51
    sent = compare(pool, sizes, {"method": "window", "window": window}, learn=False)
    row = KV_HEADS * (16 + 24) * 4
    lent = [50 + 10, 40, 0, 0]  # to rank 1; to rank 3, which reaches across two ranks
    borrowed = [0, 50, 0, 50]
    assert [x[0] for x in sent] == [(a + b) * row for a, b in zip(lent, borrowed)]
    longer = compare(pool, [100, 40, 0, 2560], {"method": "window", "window": window},
                     {"n": 2700}, learn=False)
    assert longer == sent  # whatever n is


def twice(group, sizes, options):
    first, second = (solve(group, sizes, {}, options, True) for _ in range(2))
    return all((a == b).all() for a, b in zip(first[0], second[0])) and \
        (first[1] == second[1]).all()


@pytest.mark.parametrize("method", ["exact", "dense", "plsh"])
def test_the_same_bits_in_every_run(pool, method):
    for causal in (True, False):
        assert all(pool.run(4, twice, [200, 150, 150, 200], {"method": method, "causal": causal}))


def nothing_recorded(group):
    q, k, v, _ = inputs(n=50)
    with torch.no_grad():
        o = plsh.torch.context_parallel(q[0], k[0], v[0], group=group)
    return o.shape, o.requires_grad


def test_without_gradients(pool):
    assert pool.run(3, nothing_recorded) == [((HEADS, 50, 24), False)] * 3


# ---- errors ------------------------------------------------------------------------------------


def wrong(group, rank, change):
    """Rank `rank` does something else than the others."""
    q, k, v, _ = inputs(n=60)
    options = {"sigma": SIGMA}
    if torch.distributed.get_rank(group) == rank:
        q, k, v, options = change(q, k, v, options)
    plsh.torch.context_parallel(q, k, v, group=group, **options)


def fewer_values(q, k, v, options):
    return q, k, v[:, :, 1:], options


def other_batch(q, k, v, options):
    return *(torch.cat([x, x]) for x in (q, k, v)), options


def other_heads(q, k, v, options):
    return q[:, :2], k, v, {"sigma": SIGMA[:2]}


def other_dtype(q, k, v, options):
    return q.double(), k, v, options


def other_half(q, k, v, options):
    return q.half(), k.half(), v.half(), options


def other_eps(q, k, v, options):
    return q, k, v, {**options, "eps": 1e-3}


def more_queries(q, k, v, options):
    return torch.cat([q, q], dim=2), k, v, options


def recording(q, k, v, options):
    return q.requires_grad_(), k, v, options


def bad_window(q, k, v, options):
    return q, k, v, {**options, "method": "window", "window": -3}


def bad_traffic(q, k, v, options):
    return q, k, v, {**options, "traffic": {}}


ERRORS = [
    (fewer_values, "ValueError", "rank 1: k, v: 60 and 59 rows; must be equal"),
    (other_batch, "ValueError", "rank 1: 2 batch entries, rank 0 has 1; all ranks"),
    (other_heads, "ValueError", "rank 1: 2 heads of q, rank 0 has 4"),
    (other_dtype, "TypeError", "rank 1: q, k, v: torch.float64, torch.float32"),
    (other_half, "ValueError", "rank 1: not the same dtype as rank 0"),
    (other_eps, "ValueError", "rank 1: not the same options as rank 0"),
    (more_queries, "ValueError", "rank 1: k: 60 rows for 120 queries"),
    (recording, "ValueError", "rank 1: not the same gradients recorded as rank 0"),
    (bad_window, "ValueError", "rank 1: window=-3: is positive"),
    (bad_traffic, "TypeError", "rank 1: traffic: is dict, must be a plsh.torch.Traffic"),
]


@pytest.mark.parametrize("change, kind, message", ERRORS, ids=[x[0].__name__ for x in ERRORS])
def test_an_error_is_one_of_all_ranks(pool, change, kind, message):
    with pytest.raises(Failed) as caught:
        pool.run(3, wrong, 1, change)
    assert all(x[0] == kind and x[1].startswith(message) for x in caught.value.errors), \
        caught.value.errors
    pool.run(3, wrong, -1, change)  # nothing is left behind


def everywhere(group, options):
    q, k, v, _ = inputs(n=60)
    plsh.torch.context_parallel(q, k, v, group=group, **options)


@pytest.mark.parametrize("options, message", [
    ({"eps": -1.0}, "eps"), ({"method": "dens"}, "method"),
    ({"window": 8}, "window=8: goes with method window"),
    ({"samples": 0, "method": "plsh"}, "sample"),
    ({"spans": torch.tensor([[0, 60, 60]])}, "of 60 keys, must be of all 120"),
    ({"query_offsets": [0, 60], "key_offsets": [0, 120]}, "the same ascending numbers"),
    ({"decay": "kerple-power:0.1,2", "method": "plsh"}, "convex"),
])
def test_bad_options(pool, options, message):
    with pytest.raises(Failed) as caught:
        pool.run(2, everywhere, options)
    assert all(message in x[1] for x in caught.value.errors), caught.value.errors


def backward_of_lse(group, rank):
    q, k, v, _ = inputs(n=60)
    o, lse = plsh.torch.context_parallel(q.requires_grad_(), k, v, group=group, return_lse=True)
    (lse if torch.distributed.get_rank(group) == rank else o).sum().backward()


def test_an_error_of_the_backward_pass(pool):
    with pytest.raises(Failed) as caught:
        pool.run(2, backward_of_lse, 1)
    assert all("rank 1: context_parallel: its log-sum-exp has no gradient" in x[1]
               for x in caught.value.errors), caught.value.errors


def test_no_group():
    q, k, v, _ = inputs(n=10)
    with pytest.raises(RuntimeError, match="init_process_group"):
        plsh.torch.context_parallel(q, k, v)
