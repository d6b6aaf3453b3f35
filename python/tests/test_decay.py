"""Decays against their formulas."""

import math

import numpy as np
import pytest

import plsh
from plsh._decay import as_decay


@pytest.mark.parametrize("decay, formula", [
    (plsh.alibi(7.0), lambda t: math.exp(-t / 7)),
    (plsh.kerple_log(1.5, 0.3), lambda t: (1 + 0.3 * t) ** -1.5),
    (plsh.kerple_power(0.2, 0.7), lambda t: math.exp(-0.2 * t**0.7)),
    (plsh.triangle(9.0), lambda t: max(0.0, 1 - t / 9)),
    (plsh.table([1.0, 0.6, 0.3]), lambda t: [1.0, 0.6, 0.3][min(t, 2)]),
    (plsh.alibi(7.0, limit=0.1), lambda t: 0.1 + 0.9 * math.exp(-t / 7)),
])
def test_values(decay, formula):
    expected = np.array([formula(t) for t in range(50)])
    np.testing.assert_allclose(decay.values(50), expected, rtol=1e-14, atol=1e-15)
    assert decay(5) == pytest.approx(formula(5), rel=1e-14)
    assert decay.tail(3, 10) >= sum(formula(t) for t in range(3, 13)) * (1 - 1e-12)


def test_words_of_the_command_line():
    assert as_decay("kerple-log:1,0.5") == plsh.kerple_log(1.0, 0.5)
    assert as_decay("alibi:64") == plsh.alibi(64.0)
    for wrong in ("kerple-log:1", "gauss:1", "triangle:x", "alibi:inf"):
        with pytest.raises(ValueError, match="decay="):
            as_decay(wrong)


def test_reach_is_the_first():
    decay = plsh.kerple_log(2.0, 0.1)
    t = decay.reach(1e-3)
    assert decay(t) <= 1e-3 < decay(t - 1)


def test_slopes():
    np.testing.assert_array_equal(plsh.alibi_slopes(6),
                                  [2.0**-x for x in (2, 4, 6, 8, 1, 3)])


def test_what_is_refused():
    with pytest.raises(plsh.InvalidError, match="sigma"):
        plsh.alibi(0.0)
    with pytest.raises(plsh.UnsupportedError, match="t = 1"):
        plsh.kerple_power(0.1, 2.0).check_convex()
    with pytest.raises(ValueError, match="heads"):
        plsh.alibi_slopes(0)
    decay = plsh.alibi(4.0)
    for wrong in (lambda: decay(-1), lambda: decay.log(-1), lambda: decay.tail(-1, 2),
                  lambda: decay(1.5), lambda: decay(2**63)):
        with pytest.raises(ValueError, match="t=.*: must be an integer, 0 or more"):
            wrong()
    for wrong in (lambda: decay.tail(1, -2), lambda: decay.values(-1)):
        with pytest.raises(ValueError, match="(count|n)=-.*: must be an integer, 0 or more"):
            wrong()
    with pytest.raises(ValueError, match=r"b=7.0: alibi has 1 parameter"):
        plsh.Decay("alibi", 4.0, 7.0)
    with pytest.raises(ValueError, match="entries: are those of a table"):
        plsh.Decay("alibi", 4.0, entries=(1.0, 0.5))
