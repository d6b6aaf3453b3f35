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


def test_bounds_hold_and_invert():
    bound, paper = plsh.bounds(512, 8.0, 200, design="iid"), plsh.paper_bounds(512, 8.0, 200)
    found = plsh.norms(plsh.Partition(8.0, 200, design="iid"), 512)
    assert found.spectral < bound.spectral < paper.spectral / 5
    assert found.max < bound.max < paper.max and not bound.max_certain
    assert found.largest_block <= bound.largest_block < paper.largest_block
    spectral, largest = plsh.samples_needed(512, 8.0, 0.5)
    assert plsh.bounds(512, 8.0, spectral, design="iid").spectral <= 0.5
    assert plsh.bounds(512, 8.0, largest, design="iid").max <= 0.5
    assert plsh.bounds(512, 8.0, largest - 1, design="iid").max > 0.5
    for wrong in ({"n": 0}, {"sigma": 0.0}, {"samples": 0}, {"delta": 1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            plsh.bounds(**{"n": 512, "sigma": 8.0, "samples": 200, "delta": 0.01, **wrong})


def test_bounds_say_none():
    binning = plsh.bounds(512, 8.0, 200, scheme="binning")
    assert binning.spectral_expectation is None
    stratified = plsh.bounds(512, 8.0, 200)
    assert stratified.spectral_expectation < stratified.spectral < binning.spectral
    found = plsh.norms(plsh.Partition(8.0, 200), 512, spectral=False)
    assert stratified.max_certain and found.max < stratified.max < 0.25
    other = plsh.bounds(512, plsh.Partition("kerple-log:1,0.5", 200, design="iid"))
    assert other.spectral is None and other.largest_block is None and other.max > 0
    labels = plsh.bounds(8, plsh.Partition(8.0, labels=np.zeros((2, 8), np.int32)))
    assert labels == plsh.Bounds(None, None, 1.0, True, None)


def test_plan():
    advice = plsh.plan(16384, 64.0, 0.01)
    assert advice.samples_least < advice.samples_measured <= advice.samples_theorem
    assert advice.samples_theorem < advice.samples_paper / 1000
    assert plsh.plan(16384, 64.0, 0.01, design="iid").samples_measured > advice.samples_measured
    with pytest.raises(plsh.InvalidError, match="error is 2"):
        plsh.plan(16384, 64.0, 2.0)


def test_error(rng):
    q, k, v = (rng.standard_normal((2, 120, 8), dtype=np.float32) for _ in range(3))
    rows = plsh.error(q, k, v, sigma=[4.0, 16.0], samples=[2, 512], reps=2)
    assert [(row.sigma, row.samples) for row in rows] == [(4, 2), (4, 512), (16, 2), (16, 512)]
    assert rows[1].mean < rows[0].mean / 4 and rows[0].max >= rows[0].mean
    paper = plsh.error(q, k, v, sigma=4.0, samples=[64], reps=2, paper=True)
    same = plsh.error(q, k, v, sigma=4.0, samples=[64], reps=2, scheme="binning", design="iid")
    assert paper == same


def test_instance(rng):
    q, k = (rng.standard_normal((80, 16), dtype=np.float32) for _ in range(2))
    scores = np.exp(q.astype(np.float64) @ k.T.astype(np.float64) / 4)
    p = np.tril(scores) / np.tril(scores).sum(axis=1, keepdims=True)
    bias = np.exp(-abs(np.arange(80)[:, None] - np.arange(80)[None]) / 16.0)
    found = plsh.instance(16.0, q, k)
    assert found.p_norm == pytest.approx(np.linalg.norm(p, axis=1).max(), rel=1e-5)
    assert found.beta == pytest.approx((p * bias).sum(axis=1).min(), rel=1e-5)
    weights = np.tril(scores) * bias
    variation = weights * np.sqrt(1 / bias - 1) / weights.sum(axis=1, keepdims=True)
    assert found.variation == pytest.approx(variation.sum(axis=1).max(), rel=1e-5)
    assert plsh.output_bound(found, 80, 16.0, 10**9, 1.0) < 0.1
    assert plsh.output_bound(found, 80, 16.0, 1, 1.0) == 1.0
    assert plsh.paper_output_bound(found, 80, 16.0, 1, 1.0) == np.inf
