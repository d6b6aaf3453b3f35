"""Attention on NumPy arrays: reference data, strides, dtypes, packing, errors."""

import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import plsh
from conftest import alibi_bias, dense, golden_cases, load, tolerance

METHODS = ("dense", "exact")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", golden_cases("attention"))
def test_golden(path, method):
    meta, x = load(path)
    done = plsh.attend(x["q"], x["k"], x["v"], sigma=meta["sigma"], causal=meta["causal"],
                       scale=meta["scale"], method=method, return_lse=True)
    for name, found in (("o", done.o), ("lse", done.lse)):
        assert abs(found - x[name]).max() <= tolerance(meta, name), name
    gradients = done.backward(x["do"])
    for name in ("dq", "dk", "dv"):
        assert abs(getattr(gradients, name) - x[name]).max() <= tolerance(meta, name), name


@pytest.mark.parametrize("method", ("plsh", "masks"))
@pytest.mark.parametrize("path", golden_cases("masks"))
def test_golden_masks(path, method):
    meta, x = load(path)
    if not meta["contiguous"] and method == "masks":
        pytest.skip("one method suffices for labels that are not contiguous")
    done = plsh.attend(x["q"], x["k"], x["v"], sigma=meta.get("sigma") or 1.0,
                       causal=meta["causal"], scale=meta["scale"], method=method,
                       labels=x["labels"], return_lse=True)
    for name, found in (("o", done.o), ("lse", done.lse)):
        assert abs(found - x[name]).max() <= tolerance(meta, name), name


def arrays(rng, heads=4, kv_heads=2, n=150, dim=24, value_dim=None, batch=None):
    lead = () if batch is None else (batch,)
    return tuple(rng.standard_normal((*lead, h, n, d), dtype=np.float32)
                 for h, d in ((heads, dim), (kv_heads, dim), (kv_heads, value_dim or dim)))


SIGMA = [2.0, 8.0, 32.0, 128.0]


def test_layouts_share_the_result_and_no_copy_is_made(rng):
    q, k, v = arrays(rng)
    expected = plsh.attention(q, k, v, sigma=SIGMA)
    rows_first = [np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1) for x in (q, k, v)]
    o = plsh.attention(*rows_first, sigma=SIGMA)
    np.testing.assert_array_equal(o, expected)
    assert o.strides == rows_first[0].strides            # the output lies as q does
    wide = np.zeros((4, 150, 100), dtype=np.float32)
    wide[..., 3:27] = q
    np.testing.assert_array_equal(plsh.attention(wide[..., 3:27], k, v, sigma=SIGMA), expected)
    out = np.empty((4, 150, 24), dtype=np.float32)
    assert plsh.attention(q, k, v, sigma=SIGMA, out=out) is out
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("order", ["batch-heads-rows", "batch-rows-heads", "mixed"])
def test_batches(rng, order):
    q, k, v = arrays(rng, batch=3)
    each = [plsh.attend(q[b], k[b], v[b], sigma=SIGMA, return_lse=True) for b in range(3)]
    if order != "batch-heads-rows":
        q = np.ascontiguousarray(q.swapaxes(1, 2)).swapaxes(1, 2)
    if order == "batch-rows-heads":
        k, v = (np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (k, v))
    done = plsh.attend(q, k, v, sigma=SIGMA, return_lse=True, certificate=True)
    assert done.pairs == sum(x.pairs for x in each)
    np.testing.assert_array_equal(done.o, np.stack([x.o for x in each]))
    np.testing.assert_array_equal(done.lse, np.stack([x.lse for x in each]))
    assert done.certificate.shape == (3, 4, 150) and (done.certificate >= 0).all()
    do = np.random.default_rng(2).standard_normal(done.o.shape, dtype=np.float32)
    do = np.lib.stride_tricks.as_strided(do, do.shape, do.strides) if done.o.flags.c_contiguous \
        else np.ascontiguousarray(do.swapaxes(1, 2)).swapaxes(1, 2)
    gradients = done.backward(do)
    total = np.zeros((4, 2))
    for b, one in enumerate(each):
        alone = one.backward(np.ascontiguousarray(do[b]))
        for name in ("dq", "dk", "dv"):
            np.testing.assert_array_equal(getattr(gradients, name)[b], getattr(alone, name))
        total += alone.ddecay
    np.testing.assert_allclose(gradients.ddecay, total, rtol=1e-9)


def test_packed_sequences(rng):
    q, k, v = arrays(rng, n=150)
    offsets = [0, 20, 20, 90, 150]
    packed = plsh.attention(q, k, v, sigma=SIGMA, query_offsets=offsets, key_offsets=offsets)
    for begin, end in zip(offsets, offsets[1:]):
        if begin < end:
            x = [a[:, begin:end] for a in (q, k, v)]
            alone, _ = dense(*x, alibi_bias(SIGMA, end - begin, end - begin), True)
            assert abs(packed[:, begin:end] - alone).max() < 2e-6


def test_methods_against_dense(rng):
    q, k, v = arrays(rng)
    distance = abs(np.arange(150)[:, None] - np.arange(150)[None])
    bias = alibi_bias(SIGMA, 150, 150)
    block = np.arange(150) // 16
    same = block[:, None] == block[None]
    with np.errstate(divide="ignore"):
        masks = np.log(np.stack([
            plsh.Partition(s, 20, seed=3, head=h).mean_mask(150) for h, s in enumerate(SIGMA)]))
    cases = {
        "window": (np.where(distance < 30, bias, -np.inf), {"window": 30}),
        "fixed": (np.where(same, 0.0, -np.inf)[None], {"block": 16}),
        "none": (np.zeros((1, 1, 1)), {}),
        "plsh": (masks, {"seed": 3}),
        "masks": (masks, {"seed": 3}),
    }
    for causal in (True, False):
        for method, (wanted, options) in cases.items():
            expected, _ = dense(q, k, v, wanted, causal)
            found = plsh.attention(q, k, v, sigma=SIGMA, method=method, causal=causal, **options)
            assert abs(found - expected).max() < 3e-6, (method, causal)
    each = plsh.attention(q, k, v, sigma=SIGMA, method=["none", "dense", "window", "plsh"], seed=3,
                          window=30)
    own = {"plsh": {"seed": 3}, "window": {"window": 30}}
    for h, method in enumerate(("none", "dense", "window", "plsh")):
        same = plsh.attention(q, k, v, sigma=SIGMA, method=method, **own.get(method, {}))
        np.testing.assert_array_equal(each[h], same[h])


def test_ways_to_say_the_decay(rng):
    q, k, v = arrays(rng)
    standard = plsh.attention(q, k, v)
    sigma = 1 / plsh.alibi_slopes(4)
    for options in ({"sigma": sigma}, {"slopes": 1 / sigma}, {"sigma": "alibi"}, {"decay": "alibi"},
                    {"decay": [plsh.alibi(x) for x in sigma]}):
        np.testing.assert_array_equal(plsh.attention(q, k, v, **options), standard)
    kerple = plsh.kerple_log(1.0, 0.2)
    bias = np.log(kerple.values(150))[abs(np.arange(150)[:, None] - np.arange(150)[None])]
    found = plsh.attention(q, k, v, decay="kerple-log:1,0.2")
    assert abs(found - dense(q, k, v, bias[None], True)[0]).max() < 3e-6


def test_half_precision(rng):
    q, k, v = (x.astype(np.float16) for x in arrays(rng))
    expected, _ = dense(q, k, v, alibi_bias(SIGMA, 150, 150), True)
    found = plsh.attention(q, k, v, sigma=SIGMA)
    assert found.dtype == np.float32 and abs(found - expected).max() < 3e-6


def test_fewer_queries_than_keys(rng):
    q, k, v = arrays(rng)
    whole = plsh.attention(q, k, v, sigma=SIGMA)
    last = plsh.attention(q[:, -7:], k, v, sigma=SIGMA)
    assert abs(last - whole[:, -7:]).max() < 1e-6


def test_certificate_holds(rng):
    q, k, v = arrays(rng, n=400)
    expected, _ = dense(q, k, v, alibi_bias(SIGMA, 400, 400), True)
    for method in ("exact", "plsh", "window"):
        found, bound = plsh.attention(q, k, v, sigma=SIGMA, method=method, certificate=True,
                                      window=40 if method == "window" else None)
        assert (abs(found - expected).max(axis=-1) <= bound).all(), method


def test_threads_run_together_and_give_the_same_bits(rng):
    q, k, v = arrays(rng, n=600)
    expected = plsh.attention(q, k, v, sigma=SIGMA, threads=1)
    found = [None] * 4

    def work(i):
        found[i] = plsh.attention(q, k, v, sigma=SIGMA, threads=1 + i % 2)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for o in found:
        np.testing.assert_array_equal(o, expected)


def test_the_lock_is_released(rng):
    """Other Python threads run while the library computes: a counter advances during one long call."""
    q, k, v = arrays(rng, n=6000, dim=64)
    ticks, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            ticks[0] += 1
            stop.wait(0.0005)

    worker = threading.Thread(target=count, daemon=True)
    worker.start()
    while not ticks[0]:
        pass
    before = ticks[0]
    try:
        plsh.attention(q, k, v, method="dense", threads=1)
        during = ticks[0] - before
    finally:
        stop.set()
    worker.join()
    assert during >= 3


def unaligned(x):
    """A copy whose memory begins at an odd address."""
    memory = np.empty(x.nbytes + 1, np.uint8)
    made = np.frombuffer(memory[1:], x.dtype).reshape(x.shape)
    made[...] = x
    return made


def test_unaligned_arrays_are_refused_in_later_calls_too(rng):
    """The checks of a kind of call are made once, but for the addresses."""
    q, k, v = arrays(rng)
    done = plsh.attend(q, k, v, return_lse=True)
    for i, name in enumerate("qkv"):
        x = [unaligned(a) if i == j else a for j, a in enumerate((q, k, v))]
        with pytest.raises(ValueError, match=f"{name}: its memory is not aligned"):
            plsh.attention(*x)
    with pytest.raises(ValueError, match="do: its memory is not aligned"):
        done.backward(unaligned(done.o))
    with pytest.raises(ValueError, match="labels: their memory is not aligned"):
        plsh.attention(q, k, v, method="plsh", labels=unaligned(np.zeros((1, 2, 150), np.int32)))
    with pytest.raises(ValueError, match="k: its memory is not aligned"):
        plsh.Cache(4, 24, kv_heads=2).append(unaligned(k), v)


@pytest.mark.parametrize("option, users", [
    ({"window": 8}, "window"), ({"block": 8}, "fixed"), ({"samples": 4}, "plsh or masks or mean"),
    ({"seed": 4}, "plsh"), ({"scheme": "cuts"}, "plsh"), ({"design": "iid"}, "plsh"),
    ({"labels": np.zeros((1, 2, 150), np.int32)}, "plsh"), ({"eps": 1e-3}, "exact or auto"),
])
def test_options_are_used_or_refused(rng, option, users):
    q, k, v = arrays(rng)
    (name,) = option
    other = "dense" if name == "eps" else "exact"
    with pytest.raises(ValueError, match=f"{name}.*goes with method {users}.*method is {other}"):
        plsh.attention(q, k, v, method=other, **option)
    if name != "labels":
        with pytest.raises(ValueError, match=f"{name}.*goes with method"):
            plsh.Cache(4, 24, method=other, **option)
    used = users.split(" ")[0]
    plsh.attention(q, k, v, method=[other, used, other, other], **option)
    if name in ("samples", "seed", "scheme", "design"):
        labels = np.zeros((1, 2, 150), np.int32)
        with pytest.raises(ValueError, match=f"{name}=.*labels are partitions"):
            plsh.attention(q, k, v, method="plsh", labels=labels, **option)
        with pytest.raises(ValueError, match=f"{name}=.*labels are partitions"):
            plsh.Partition(4.0, labels=labels[0], **option)


def test_what_is_refused(rng):
    q, k, v = arrays(rng)
    wrong = [
        (TypeError, "q: dtype float64.*astype", (q.astype(np.float64), k, v), {}),
        (TypeError, "k: is list", (q, [1.0], v), {}),
        (TypeError, "q, k, v: dtypes", (q, k.astype(np.float16), v), {}),
        (ValueError, "q: shape", (q[0], k, v), {}),
        (ValueError, "v: its last dimension has stride 8", (q, k, v[..., ::2]), {}),
        (ValueError, "k: repeated", (q, np.broadcast_to(k[:1], k.shape), v), {}),
        (ValueError, "q: repeated or reversed", (q[:, ::-1], k, v), {}),
        (ValueError, "k: rows of 12", (q, k[..., :12], v), {}),
        (ValueError, "k: 149 rows for 150", (q, k[:, 1:], v[:, 1:]), {}),
        (ValueError, "k, v: 150 and 149 rows", (q, k, v[:, 1:]), {}),
        (ValueError, "k: 3 heads, must divide the 4",
         (q, np.repeat(k, 2, 0)[:3], np.repeat(v, 2, 0)[:3]), {}),
        (ValueError, "sigma: 3 values for 4 heads", (q, k, v), {"sigma": [1.0, 2.0, 3.0]}),
        (ValueError, "sigma, slopes, decay", (q, k, v), {"sigma": 2.0, "slopes": 0.5}),
        (ValueError, "sigma is -1", (q, k, v), {"sigma": -1.0}),
        (ValueError, "method='fast': is one of dense, exact", (q, k, v), {"method": "fast"}),
        (ValueError, "window=0", (q, k, v), {"method": "window", "window": 0}),
        (ValueError, "out: must be a float32", (q, k, v), {"out": np.zeros(3)}),
        (ValueError, "out: must be a float32 array", (q, k, v),
         {"out": np.empty(q.shape, np.float16)}),
        (ValueError, "out: shares memory with q", (q, k, v), {"out": q}),
        (ValueError, "query_offsets, key_offsets", (q, k, v), {"query_offsets": [0, 150]}),
        (ValueError, r"query_offsets=\[0\]: .*from 0 to 150", (q, k, v),
         {"query_offsets": [0], "key_offsets": [0]}),
        (ValueError, r"key_offsets=\[0\]", (q, k, v),
         {"query_offsets": [0, 150], "key_offsets": [0]}),
        (ValueError, "q: its memory is not aligned to its elements of 4 bytes",
         (unaligned(q), k, v), {}),
        (ValueError, "v: its memory is not aligned", (q, k, unaligned(v)), {}),
        (ValueError, "out: its memory is not aligned", (q, k, v), {"out": unaligned(q)}),
        (plsh.UnsupportedError, "convex", (q, k, v),
         {"method": "plsh", "decay": "kerple-power:0.1,2"}),
        (ValueError, "labels: of 3 heads", (q, k, v),
         {"method": "plsh", "labels": np.zeros((3, 2, 150), dtype=np.int32)}),
        (plsh.Error, "isa|instruction", (q, k, v), {"isa": "sse9"}),
        (ValueError, "seed=1844.*64 bits", (q, k, v), {"method": "plsh", "seed": 2**64}),
        (ValueError, "samples=2.5: must be an integer", (q, k, v), {"method": "plsh", "samples": 2.5}),
        (ValueError, "threads=-1", (q, k, v), {"threads": -1}),
        (ValueError, "threads=4294967296.*31 bits", (q, k, v), {"threads": 2**32}),
        (ValueError, "samples=9223.*63 bits", (q, k, v), {"method": "plsh", "samples": 2**63}),
        (TypeError, "scale='a': must be a number", (q, k, v), {"scale": "a"}),
        (TypeError, "eps='a': must be a number", (q, k, v), {"eps": "a"}),
        (TypeError, "causal='no'", (q, k, v), {"causal": "no"}),
        (TypeError, "causal=2: must be True or False", (q, k, v), {"causal": 2}),
        (ValueError, r"scheme=\['cuts'\]: is one of", (q, k, v),
         {"method": "plsh", "scheme": ["cuts"]}),
        (TypeError, "method=3", (q, k, v), {"method": 3}),
    ]
    for kind, message, inputs, options in wrong:
        with pytest.raises(kind, match=message):
            plsh.attention(*inputs, **options)
    bad = q.copy()
    bad[1, 2, 3] = np.nan
    with pytest.raises(plsh.NotFiniteError, match="q"):
        plsh.attention(bad, k, v, check_finite=True)
    done = plsh.attend(q, k, v)
    with pytest.raises(ValueError, match="return_lse"):
        done.backward(np.zeros_like(done.o))


def test_empty(rng):
    q, k, v = arrays(rng, n=0)
    assert plsh.attention(q, k, v).shape == (4, 0, 24)


@pytest.mark.parametrize("method", ("exact", "plsh", "auto"))
def test_empty_batch(rng, method):
    q, k, v = arrays(rng, batch=0)
    done = plsh.attend(q, k, v, method=method, sigma=SIGMA, return_lse=True, certificate=True)
    assert done.o.shape == (0, 4, 150, 24) and done.lse.shape == done.certificate.shape == (0, 4, 150)
    assert (done.pairs, done.error_bound) == (0, 0.0) and len(done.methods) == 4
    gradients = done.backward(np.empty_like(done.o))
    assert gradients.dq.shape == q.shape and gradients.dk.shape == k.shape
    assert not gradients.ddecay.any()
    with pytest.raises(ValueError, match="sigma is -1"):  # the options are checked all the same
        plsh.attention(q, k, v, method=method, sigma=-1.0)


def test_out_that_overlaps(rng):
    """Refused wherever it is, and only then; a batch of separate runs is no exception."""
    memory = rng.standard_normal((3, 4, 150, 3 * 24), dtype=np.float32)
    q, k, v = (memory[..., i * 24:(i + 1) * 24] for i in range(3))
    expected = plsh.attention(*map(np.ascontiguousarray, (q, k, v)), sigma=SIGMA)
    for name, x in zip("qkv", (q, k, v)):
        with pytest.raises(ValueError, match=f"out: shares memory with {name}"):
            plsh.attention(q, k, v, sigma=SIGMA, out=x)
    room = np.zeros((5, 4, 150, 4 * 24), dtype=np.float32)
    room[::2, ..., :72] = memory
    q, k, v = (room[::2, ..., i * 24:(i + 1) * 24] for i in range(3))
    beside = room[::2, ..., 72:]
    plsh.attention(q, k, v, sigma=SIGMA, out=beside)
    np.testing.assert_array_equal(beside, expected)
    with pytest.raises(ValueError, match="out: shares memory with v"):
        plsh.attention(q, k, v, sigma=SIGMA, out=room[::2, ..., 71:95])
    later = room[1:5:2]
    plsh.attention(q[:2], k[:2], v[:2], sigma=SIGMA, out=later[..., :24])
    np.testing.assert_array_equal(later[..., :24], expected[:2])
    with pytest.raises(ValueError, match="out: shares memory with k"):  # of the next entry
        plsh.attention(q[:2], k[:2], v[:2], sigma=SIGMA, out=k[1:3])


@pytest.mark.parametrize("method", ("exact", "plsh"))
def test_half_outputs(rng, method):
    """The float32 output, rounded, to the bit; in one run, and in one for each batch entry."""
    q, k, v = (x.astype(np.float16) for x in arrays(rng, batch=3))
    expected = plsh.attention(q, k, v, sigma=SIGMA, method=method).astype(np.float16)
    for out in (np.zeros((3, 4, 150, 24), np.float16), np.zeros((3, 5, 150, 30), np.float16)):
        part = out[:, :4, :, :24]
        assert plsh.attention(q, k, v, sigma=SIGMA, method=method, out=part) is part
        np.testing.assert_array_equal(part, expected)
        assert not out[:, 4:].any() and not out[..., 24:].any()
    done = plsh.attend(q, k, v, sigma=SIGMA, method=method, out=np.empty_like(q), return_lse=True)
    with pytest.raises(ValueError, match="needs o as float32"):
        done.backward(done.o)


def _attend_again(sent, q, k, v):
    sent.send(plsh.attention(q, k, v, sigma=SIGMA, threads=2))
    sent.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_fork_after_a_call(rng):
    """The child has lost the threads, and does not wait for them."""
    q, k, v = arrays(rng)
    expected = plsh.attention(q, k, v, sigma=SIGMA, threads=2)
    context = multiprocessing.get_context("fork")
    received, sent = context.Pipe(duplex=False)
    child = context.Process(target=_attend_again, args=(sent, q, k, v))
    child.start()
    answered = received.poll(60)
    found = received.recv() if answered else None
    child.kill()
    child.join()
    assert answered, "the child hangs"
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(plsh.attention(q, k, v, sigma=SIGMA, threads=2), expected)


FEW_THREADS = """
import numpy as np, plsh, threading
try:
    for _ in range(9): threading.Thread(target=threading.Event().wait, args=(9,), daemon=True).start()
except RuntimeError: pass
else: raise SystemExit("9 threads can be made")
q = np.ones((2, 300, 8), np.float32)
assert (plsh.attention(q, q, q, threads=9) == plsh.attention(q, q, q, threads=1)).all()
print("done", flush=True)
import os; os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits are Linux's")
def test_threads_that_cannot_be_made():
    """Fewer are used."""
    import resource
    stack, room = 2**35, 5 * 2**35  # a thread takes as much as its stack
    if resource.getrlimit(resource.RLIMIT_STACK)[1] not in (resource.RLIM_INFINITY,):
        pytest.skip("the stack is limited already")

    def limit():
        resource.setrlimit(resource.RLIMIT_STACK, (stack, stack))
        resource.setrlimit(resource.RLIMIT_AS, (room, room))

    run = subprocess.run([sys.executable, "-c", FEW_THREADS], preexec_fn=limit, timeout=120,
                         env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, capture_output=True,
                         text=True)
    if "can be made" in run.stderr or "MemoryError" in run.stderr:
        pytest.skip("the limits do not hold here")
    assert run.returncode == 0 and "done" in run.stdout, run.stderr
