"""Partitions: consistent answers, the mean mask, labels."""

import copy
import pickle

import numpy as np
import pytest

import plsh


@pytest.mark.parametrize("scheme, design", [
    ("binning", "iid"), ("binning", "stratified"), ("integer", "iid"), ("integer", "stratified"),
    ("cuts", "iid"), ("integer", "golden"),
])
def test_answers_agree(scheme, design):
    set_ = plsh.Partition(8.0, samples=6, scheme=scheme, design=design, seed=5, head=2)
    labels = set_.labels(200)
    for sample in range(6):
        blocks = set_.blocks(sample, 200)
        runs = np.repeat(np.arange(len(blocks)), [end - begin for begin, end in blocks])
        np.testing.assert_array_equal(labels[sample], runs)
        begin, end = set_.block(sample, 100)
        assert set_.same(sample, begin, end - 1) and not set_.same(sample, begin, end)
    together = labels[:, 50] == labels[:, 53]
    assert set_.count(50, 53) == together.sum()
    np.testing.assert_array_equal(set_.mask(3, 50), labels[3][:50, None] == labels[3][None, :50])


def test_mean_mask_is_the_decay():
    decay = plsh.kerple_log(1.0, 0.5)
    mean = plsh.Partition(decay, samples=20000).mean_mask(12)
    assert abs(mean[3] - [decay(abs(3 - j)) for j in range(12)]).max() < 0.02


def test_draw_is_one_partition_per_head():
    labels = plsh.draw([2.0, 64.0], n=300, samples=4, seed=9)
    assert labels.shape == (2, 4, 300) and labels.dtype == np.int32
    np.testing.assert_array_equal(labels[1], plsh.Partition(64.0, 4, seed=9, head=1).labels(300))
    np.testing.assert_array_equal(plsh.draw(decay="alibi:2", n=300, samples=4, seed=9), labels[:1])


def test_user_labels():
    labels = np.array([[0, 0, 1, 1, 0], [5, 5, 5, 2, 2]], dtype=np.int32)
    set_ = plsh.Partition(4.0, labels=labels)
    assert set_.samples == 2 and set_.count(0, 4) == 1 and set_.block(1, 4) == (3, 5)
    with pytest.raises(IndexError, match="0..4"):
        set_.block(0, 5)
    with pytest.raises(TypeError, match="int32"):
        plsh.Partition(4.0, labels=labels.astype(np.int64))
    with pytest.raises(ValueError, match="contiguous"):
        plsh.Partition(4.0, labels=labels.T)


def test_what_is_refused():
    with pytest.raises(plsh.UnsupportedError, match="convex"):
        plsh.Partition("kerple-power:0.1,2")
    with pytest.raises(ValueError, match="scheme='bins': is one of binning, integer"):
        plsh.Partition(4.0, scheme="bins")
    with pytest.raises(plsh.Error, match="samples"):
        plsh.Partition(4.0, samples=0)
    with pytest.raises(IndexError, match="sample=20"):
        plsh.Partition(4.0).block(20, 0)


def test_pickled():
    labels = np.arange(20, dtype=np.int32).reshape(2, 10) // 3
    for partition in (plsh.Partition(8.0, samples=5, scheme="cuts", design="iid", seed=9, head=2),
                      plsh.Partition("kerple-log:1,0.5"), plsh.Partition(4.0, labels=labels)):
        for other in (pickle.loads(pickle.dumps(partition)), copy.deepcopy(partition)):
            np.testing.assert_array_equal(other.labels(10), partition.labels(10))
            assert repr(other) == repr(partition)
    assert repr(plsh.Partition(4.0, labels=labels)) == \
        f"Partition({plsh.alibi(4.0)!r}, labels=<int32 [2, 10]>, head=0)"
    assert eval(repr(plsh.Partition(8.0, seed=9)), {**vars(plsh)}).seed == 9


@pytest.mark.parametrize(("design", "sigma", "samples", "chosen"), (
    ("auto", 2.0, 64, "toeplitz"), ("auto", 64.0, 256, "golden"), ("auto", 64.0, 2, "stratified"),
    ("golden-shifted", 64.0, 64, "golden-shifted")))
def test_design_that_was_chosen(design: str, sigma: float, samples: int, chosen: str) -> None:
    assert plsh.Partition(sigma, samples, design=design).design == chosen


def test_shifted_has_no_labels() -> None:
    with pytest.raises(plsh.UnsupportedError):
        plsh.Partition(64.0, 64, design="golden-shifted").labels(100)
