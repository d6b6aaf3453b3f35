"""The cache: token by token as in one pass, forks, undo, files, what is refused."""

import contextlib
import copy
import pickle
import threading

import numpy as np
import pytest

import plsh

SIGMA = [2.0, 8.0, 32.0, 128.0]


def arrays(rng, n=200):
    return tuple(rng.standard_normal((h, n, 24), dtype=np.float32) for h in (4, 2, 2))


def feed(cache, q, k, v, cuts):
    """Steps of the given ends, concatenated."""
    rows, begin = [], len(cache)
    for end in cuts:
        x = [a[:, begin:end] for a in (q, k, v)]
        rows.append(cache.step(*x))
        begin = end
    return np.concatenate(rows, axis=1)


@pytest.mark.parametrize("method, options", [
    ("exact", {}), ("dense", {}), ("plsh", {"samples": 8, "seed": 3}), ("window", {"window": 20}),
    ("fixed", {"block": 16}), ("none", {}),
])
def test_steps_give_what_one_pass_gives(rng, method, options):
    q, k, v = arrays(rng)
    whole = plsh.attention(q, k, v, sigma=SIGMA, method=method, **options)
    cache = plsh.Cache(4, 24, kv_heads=2, sigma=SIGMA, method=method, **options)
    found = feed(cache, q, k, v, [1, 2, 3, 40, 41, 130, *range(131, 201)])
    assert abs(found - whole).max() < 3e-6
    assert len(cache) == 200 and cache.methods == (method,) * 4


@pytest.mark.parametrize("method, options", [("exact", {}), ("dense", {}), ("window", {"window": 6.5})])
@pytest.mark.parametrize("sets, dim", [(4, 1), (1, 2)])
def test_positions(rng, method, options, sets, dim):
    q, k, v = arrays(rng)
    points = rng.uniform(0, 30, (sets, 200, dim)).astype(np.float32)
    points[:, 7] = np.nan
    whole = plsh.attention(q, k, v, sigma=2.0, positions=points, method=method, **options)
    cache = plsh.Cache(4, 24, kv_heads=2, sigma=2.0, method=method, position_dim=dim, position_sets=sets, **options)
    cuts = [0, 1, 2, 50, 51, 120, *range(121, 201)]
    found = [cache.step(*(x[:, a:b] for x in (q, k, v)), positions=points[:, a:b]) for a, b in zip(cuts, cuts[1:])]
    assert abs(np.concatenate(found, axis=1) - whole).max() < 3e-6
    again = pickle.loads(pickle.dumps(cache))
    last = [c.step(*(x[:, :1] for x in (q, k, v)), positions=points[:, :1]) for c in (cache, again)]
    assert (last[0] == last[1]).all()
    with pytest.raises(ValueError, match="sets of"):
        cache.step(*(x[:, :1] for x in (q, k, v)), positions=np.zeros((1, 3), np.float32))
    with pytest.raises(plsh.Error, match="must not be NULL"):
        cache.step(*(x[:, :1] for x in (q, k, v)))
    with pytest.raises(ValueError, match="position_dim"):
        plsh.Cache(4, 24, kv_heads=2, sigma=2.0).step(*(x[:, :1] for x in (q, k, v)), positions=[1.0])


def test_what_is_out_of_reach_is_forgotten(rng):
    q, k, v = arrays(rng, 2000)
    cache = plsh.Cache(4, 24, kv_heads=2, sigma=8.0, method="window", window=20)
    feed(cache, q, k, v, range(10, 2001, 10))
    assert cache.first(0) > 1800
    keep = plsh.Cache(4, 24, kv_heads=2, sigma=8.0)
    feed(keep, q, k, v, [2000])
    assert keep.first(0) == 0 and keep.nbytes > 4 * cache.nbytes


def test_fork_truncate_and_attend(rng):
    q, k, v = arrays(rng)
    cache = plsh.Cache(4, 24, kv_heads=2, sigma=SIGMA)
    feed(cache, q, k, v, [100])
    fork = cache.fork()
    turned = [np.ascontiguousarray(x[:, ::-1]) for x in (q, k, v)]
    other = feed(fork, *turned, [101, 120])
    assert len(fork) == 120 and len(cache) == 100
    assert abs(feed(cache, q, k, v, [200]) - plsh.attention(q, k, v, sigma=SIGMA)[:, 100:]).max() < 3e-6
    fork.truncate(100)
    again = feed(fork, *turned, [120])
    assert abs(again - other).max() < 3e-6
    np.testing.assert_allclose(cache.attend(q[:, -3:]), plsh.attention(q, k, v, sigma=SIGMA)[:, -3:],
                               atol=3e-6)


def test_files(rng, tmp_path):
    q, k, v = arrays(rng)
    cache = plsh.Cache(4, 24, kv_heads=2, sigma=SIGMA, dtype="float16")
    feed(cache, q, k, v, [150])
    cache.save(tmp_path / "cache")
    loaded = plsh.Cache(4, 24, kv_heads=2, sigma=SIGMA, dtype="float16", path=tmp_path / "cache")
    x = [a[:, 150:] for a in (q, k, v)]
    np.testing.assert_array_equal(loaded.step(*x), cache.step(*x))
    with pytest.raises(plsh.Error):
        plsh.Cache(4, 24, kv_heads=4, sigma=SIGMA, dtype="float16", path=tmp_path / "cache")
    with pytest.raises(plsh.Error):
        plsh.Cache(4, 24, path=tmp_path / "nothing")


def test_what_is_refused(rng):
    q, k, v = arrays(rng)
    cache = plsh.Cache(4, 24, kv_heads=2, method="window", window=10)
    with pytest.raises(ValueError, match="k: shape"):
        cache.step(q, q, v)
    with pytest.raises(ValueError, match="as many tokens"):
        cache.step(q[:, :3], k[:, :2], v[:, :2])
    with pytest.raises(TypeError, match="q: dtype float16, must be float32"):
        cache.step(q.astype(np.float16), k, v)
    with pytest.raises(TypeError, match="q: is list"):
        cache.attend([1.0])
    with pytest.raises(ValueError, match="dtype='int8'"):
        plsh.Cache(4, 24, dtype="int8")
    feed(cache, q, k, v, range(1, 201))
    with pytest.raises(plsh.Error, match=str(cache.earliest)):
        cache.truncate(0)


def test_two_threads_at_once(rng):
    """One of them is told; neither crashes."""
    q, k, v = (rng.standard_normal((4, 6000, 64), dtype=np.float32) for _ in range(3))
    cache = plsh.Cache(4, 64, method="dense")
    cache.append(k[:, :1], v[:, :1])
    begun = threading.Event()

    def work():
        begun.set()
        while len(cache) == 1:
            with contextlib.suppress(plsh.InvalidError):  # the other one was first
                cache.step(q, k, v)

    thread, refused = threading.Thread(target=work), 0
    thread.start()
    begun.wait()
    while thread.is_alive():
        try:
            cache.attend(q[:, -1:])
        except plsh.InvalidError as problem:
            assert "thread" in str(problem)
            refused += 1
    thread.join()
    assert refused > 0 and len(cache) == 6001


@pytest.mark.parametrize("method, options", [
    ("exact", {}), ("plsh", {"samples": 8, "seed": 3}), ("window", {"window": 20}),
    ("exact", {"sigma": None, "decay": plsh.kerple_log(1.0, 0.5), "undo": 7}),
])
def test_pickled_and_copied(rng, method, options):
    """A restored cache continues as the original does, and the two are independent."""
    q, k, v = arrays(rng)
    cache = plsh.Cache(4, 24, kv_heads=2, **{"sigma": SIGMA, "method": method, **options})
    feed(cache, q, k, v, [100])
    others = [pickle.loads(pickle.dumps(cache)), copy.copy(cache), copy.deepcopy(cache)]
    wanted = feed(cache, q, k, v, [150])
    for other in others:
        assert len(other) == 100 and other.methods == cache.methods
        np.testing.assert_array_equal(feed(other, q, k, v, [150]), wanted)
    assert "Cache of 150 tokens: heads=4, kv_heads=2, head_dim=24" in repr(cache)
    assert f"method={method!r}" in repr(cache)
