"""Norms and bounds through the binding."""

import json

import numpy as np
import pytest

import plsh
from conftest import golden_cases


@pytest.mark.parametrize("path", golden_cases("norms"))
def test_norms_golden(path):
    wanted = json.loads((path / "norms.json").read_text())
    labels = np.load(path / "labels.npy")
    found = plsh.norms(plsh.Partition(wanted["sigma"], labels=labels), wanted["n"])
    assert found.spectral == pytest.approx(wanted["spectral"], rel=2e-6)
    assert found.max == pytest.approx(wanted["max"], rel=1e-9)


def test_products(rng):
    x = rng.standard_normal(150)
    matrix = np.exp(-abs(np.arange(150)[:, None] - np.arange(150)[None]) / 12.0)
    np.testing.assert_allclose(plsh.decay_multiply(12.0, x), matrix @ x, rtol=1e-10, atol=1e-10)
    set_ = plsh.Partition(12.0, samples=7)
    np.testing.assert_allclose(plsh.mask_multiply(set_, x), set_.mean_mask(150) @ x, atol=1e-10)
    with pytest.raises(TypeError, match="x: must be"):
        plsh.decay_multiply(12.0, x.astype(np.float32))


def test_bounds_hold_and_invert(rng):
    bound = plsh.bounds(512, 8.0, 200)
    found = plsh.norms(plsh.Partition(8.0, 200, design="iid"), 512)
    assert found.spectral < bound.spectral < bound.spectral_two_sided
    assert found.max < bound.max and found.largest_block < bound.largest_block
    spectral, largest = plsh.samples_needed(512, 8.0, 0.5)
    assert plsh.bounds(512, 8.0, spectral).spectral <= 0.5
    assert plsh.bounds(512, 8.0, largest).max <= 0.5 < plsh.bounds(512, 8.0, largest - 1).max
    for wrong in ({"n": 0}, {"sigma": 0.0}, {"samples": 0}, {"delta": 1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            plsh.bounds(**{"n": 512, "sigma": 8.0, "samples": 200, "delta": 0.01, **wrong})


def test_instance(rng):
    q, k = (rng.standard_normal((80, 16), dtype=np.float32) for _ in range(2))
    scores = np.exp(q.astype(np.float64) @ k.T.astype(np.float64) / 4)
    p = np.tril(scores) / np.tril(scores).sum(axis=1, keepdims=True)
    bias = np.exp(-abs(np.arange(80)[:, None] - np.arange(80)[None]) / 16.0)
    found = plsh.instance(16.0, q, k)
    assert found.p_norm == pytest.approx(np.linalg.norm(p, axis=1).max(), rel=1e-5)
    assert found.beta == pytest.approx((p * bias).sum(axis=1).min(), rel=1e-5)
    assert plsh.output_bound(found, 80, 16.0, 10**9, 1.0) < 0.1
