"""Norms of L* - M~, measured; bounds on them, and how many samples an error needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plsh._attention import attention
from plsh._decay import DecayLike, alibi, as_decay
from plsh._library import check, ffi, lib
from plsh._partition import DESIGNS, SCHEMES, Partition, word, word_of

__all__ = ["Advice", "Bounds", "ErrorRow", "Instance", "Norms", "PaperBounds", "bounds",
           "decay_multiply", "error", "instance", "mask_multiply", "norms", "output_bound",
           "output_expectation", "paper_bounds", "paper_output_bound", "plan", "samples_needed"]


@dataclass(frozen=True)
class Norms:
    """How far the mean mask M~ of a partition is from the bias matrix L*."""

    spectral: float  #: ||L* - M~||, NaN where it was skipped
    max: float  #: largest entry of |L* - M~|, NaN where it was skipped
    largest_block: int
    products: int  #: products with L* - M~ that the eigenvalue solver took


def norms(partition: Partition, n: int, *, spectral: bool = True, max: bool = True,
          tolerance: float = 0.0, threads: int = 0) -> Norms:
    """Measures the norms of L* - M~ on positions 0..n-1, without an n x n matrix.

    `tolerance` is relative, of the spectral norm; 0 means 1e-6.

    >>> few = norms(Partition(16.0, samples=1), 1000, spectral=False)
    >>> many = norms(Partition(16.0, samples=1000), 1000, spectral=False)
    >>> many.max < few.max / 5
    True
    """
    options = ffi.new("plsh_norms_options *", {
        "skip_spectral": not spectral, "skip_max": not max, "tolerance": tolerance,
        "threads": threads,
    })
    found, error = ffi.new("plsh_norms *"), ffi.new("plsh_error *")
    check(lib.plsh_norms_measure(partition.c_struct(), n, options, found, error), error)
    return Norms(found.spectral, found.max, found.largest_block, found.products)


def _vector(name: str, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if not isinstance(x, np.ndarray) or x.dtype != np.float64 or x.ndim != 1 \
            or not x.flags.c_contiguous:
        raise TypeError(f"{name}: must be a contiguous float64 array of one dimension")
    return x


def decay_multiply(decay: DecayLike | float, x: npt.NDArray[np.float64], *,
                   threads: int = 0) -> npt.NDArray[np.float64]:
    """L* x, the bias matrix times a vector; O(n) for ALiBi. A number is ALiBi's sigma.

    >>> decay_multiply("triangle:2", np.ones(4))
    array([1.5, 2. , 2. , 1.5])
    """
    x, y = _vector("x", x), np.empty_like(x)
    kind = alibi(decay) if isinstance(decay, (int, float)) else as_decay(decay)
    struct, _keep = kind.c_struct()
    error = ffi.new("plsh_error *")
    check(lib.plsh_decay_multiply(struct, len(x), ffi.from_buffer("double[]", x),
                                  ffi.from_buffer("double[]", y), threads, error), error)
    return y


def mask_multiply(partition: Partition, x: npt.NDArray[np.float64], *,
                  threads: int = 0) -> npt.NDArray[np.float64]:
    """M~ x, the mean mask times a vector, without the matrix.

    >>> set_, x = Partition(8.0, samples=50), np.random.default_rng(0).standard_normal(300)
    >>> np.allclose(mask_multiply(set_, x), set_.mean_mask(300) @ x)
    True
    """
    x, y = _vector("x", x), np.empty_like(x)
    error = ffi.new("plsh_error *")
    check(lib.plsh_partition_multiply(partition.c_struct(), len(x), ffi.from_buffer("double[]", x),
                                      ffi.from_buffer("double[]", y), threads, error), error)
    return y


@dataclass(frozen=True)
class Bounds:
    """Bounds for a set of partitions that hold without measuring it; None: no bound is known.

    The spectral bounds of a stratified set by "integer" are for the widths that its seed and head
    have drawn; the probability is that of its offsets.
    """

    spectral: float | None  #: exceeded by ||L* - M~|| with probability at most delta
    spectral_expectation: float | None  #: at least the mean of ||L* - M~||
    max: float | None  #: exceeded by the max norm with probability at most delta,
    max_certain: bool  #: or never
    largest_block: float | None  #: exceeded by the largest block with probability at most delta


@dataclass(frozen=True)
class PaperBounds:
    """Theorem 2.1 as published, with the constants of its proof: iid draws of ALiBi by binning."""

    psi: float  #: Psi
    spectral: float  #: for one sign of the eigenvalues; for the norm the proof gives that of 2 n
    spectral_expectation: float  #: at least the mean of ||L* - M~||
    max: float
    largest_block: float  #: NaN for delta >= 1/e


def _in_range(n: int, sigma: float, samples: int, delta: float) -> None:
    for name, value, right in (
            ("n", n, n >= 1), ("sigma", sigma, sigma > 0), ("samples", samples, samples >= 1),
            ("delta", delta, 0 < delta < 1)):
        if not right:
            raise ValueError(f"{name}={value}: out of range; n >= 1, sigma > 0, samples >= 1, "
                             "0 < delta < 1")


def _known(x: float) -> float | None:
    return None if np.isnan(x) else x


def bounds(n: int, sigma: float | Partition, samples: int = 20, delta: float = 0.01, *,
           scheme: str = "integer", design: str = "stratified") -> Bounds:
    """The bounds that hold for such a set (or for a given one) on positions 0..n-1.

    >>> bounds(4096, 64.0, 1000, design="iid").spectral < 12
    True
    >>> found = bounds(4096, 64.0, 1000)
    >>> found.spectral < 2.2, found.max < 0.1, found.max_certain
    (True, True, True)
    """
    if isinstance(sigma, Partition):
        set_ = sigma
        _in_range(n, 1.0, 1, delta)
    else:
        _in_range(n, sigma, samples, delta)
        set_ = Partition(sigma, samples, scheme=scheme, design=design)
    found, error = ffi.new("plsh_bounds *"), ffi.new("plsh_error *")
    check(lib.plsh_bounds_find(set_.c_struct(), n, delta, found, error), error)
    return Bounds(_known(found.spectral), _known(found.spectral_expectation), _known(found.max),
                  found.max_certain, _known(found.largest_block))


def paper_bounds(n: int, sigma: float, samples: int, delta: float = 0.01) -> PaperBounds:
    """The bounds of Theorem 2.1 as published.

    >>> paper_bounds(4096, 64.0, 1000).spectral > 8 * bounds(4096, 64.0, 1000, design="iid").spectral
    True
    """
    _in_range(n, sigma, samples, delta)
    return PaperBounds(
        lib.plsh_paper_psi(sigma), lib.plsh_paper_spectral_error(n, sigma, samples, delta),
        lib.plsh_paper_spectral_expectation(n, sigma, samples),
        lib.plsh_paper_max_error(n, samples, delta),
        lib.plsh_paper_block_bound(sigma, samples, delta))


def samples_needed(n: int, sigma: float, eps: float, delta: float = 0.01) -> tuple[int, int]:
    """The fewest iid samples whose (spectral, max) norm is at most eps with probability 1 - delta.

    >>> spectral, largest = samples_needed(4096, 64.0, 0.1)
    >>> bounds(4096, 64.0, largest, design="iid").max <= 0.1
    True
    """
    _in_range(n, sigma, 1, delta)
    if not eps > 0:
        raise ValueError(f"eps={eps}: is positive")
    return (int(lib.plsh_spectral_samples_integral(n, sigma, eps, delta)),
            int(lib.plsh_max_samples(n, eps, delta)))


@dataclass(frozen=True)
class Advice:
    """How many samples a wanted error needs, and which method is cheapest for it."""

    sigma: float
    samples_theorem: int  #: enough with probability 1 - delta, proven (see plsh/theory.h for whom)
    samples_paper: int  #: by the paper's constants
    samples_measured: int  #: enough in 99 of 100 sets of this scheme and design, as measured
    window: int  #: keys on each side with which truncation has at most this error
    pairs_per_query: float  #: of the method
    pairs_plsh: float
    pairs_window: float
    pairs_dense: float
    method: str
    reason: str
    samples_least: int  #: no fewer contiguous partitions can have this error, whatever they are
    design: str  #: the design that the advice is for: with design="auto" the one that was chosen


def plan(n: int, sigma: float, error: float = 1e-2, delta: float = 0.01, *,
         scheme: str = "integer", design: str = "stratified", causal: bool = False) -> Advice:
    """Samples and method for a wanted error, which is the spectral norm of L* - M~ relative to that
    of L*: ||L* - M~|| / coth(1 / (2 sigma)).

    >>> advice = plan(16384, 64.0, 0.01)
    >>> advice.samples_measured <= advice.samples_theorem < advice.samples_paper
    True
    >>> advice.samples_least
    18
    >>> advice.method
    'window'
    """
    found, problem = ffi.new("plsh_advice *"), ffi.new("plsh_error *")
    of = ffi.new("plsh_advice_case *", (
        word("scheme", scheme, SCHEMES), word("design", design, DESIGNS), n, sigma, error, delta,
        causal))
    check(lib.plsh_advice_make(of, found, problem), problem)
    method = ffi.string(found.method).decode()
    pairs = {"plsh": found.pairs_plsh, "window": found.pairs_window, "dense": found.pairs_dense}
    return Advice(sigma, found.samples_theorem, found.samples_paper, found.samples_measured,
                  found.window, pairs[method], found.pairs_plsh, found.pairs_window,
                  found.pairs_dense, method, ffi.string(found.reason).decode(),
                  found.samples_least, word_of(found.design, DESIGNS))


@dataclass(frozen=True)
class Instance:
    """The quantities of q and k in the bounds on the output; P is their attention without bias, P* with it."""

    p_norm: float  #: ||P||_{2,inf}
    beta: float  #: beta*_P = min_i sum_j P_ij L*_ij
    variation: float = float("inf")  #: max_i sum_j P*_ij sqrt(1 / L*_ij - 1)


def instance(decay: DecayLike | float, q: npt.NDArray[np.float32], k: npt.NDArray[np.float32], *,
             scale: float = 0.0, causal: bool = True, threads: int = 0) -> Instance:
    """Measures an instance of one head, q and k float32 [n, dim]; O(n^2 dim).

    >>> rng = np.random.default_rng(0)
    >>> q, k = (rng.standard_normal((100, 8), dtype=np.float32) for _ in range(2))
    >>> 0 < instance(16.0, q, k).beta <= 1
    True
    """
    for name, x in (("q", q), ("k", k)):
        if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim != 2 \
                or not x.flags.c_contiguous:
            raise TypeError(f"{name}: must be a C-contiguous float32 array [n, dim]")
    if q.shape != k.shape:
        raise ValueError(f"q, k: shapes {q.shape} and {k.shape}; must be equal")
    kind = alibi(decay) if isinstance(decay, (int, float)) else as_decay(decay)
    struct, _keep = kind.c_struct()
    found: Any = ffi.new("plsh_instance *")
    error = ffi.new("plsh_error *")
    head = ffi.new("plsh_instance_head *", (
        struct, q.shape[0], q.shape[1], ffi.from_buffer("float[]", q),
        ffi.from_buffer("float[]", k), scale, causal))
    check(lib.plsh_instance_measure(head, threads, found, error), error)
    return Instance(found.p_norm, found.beta, found.variation)


def output_bound(measured: Instance, n: int, sigma: float, samples: int, v_range: float,
                 delta: float = 0.01, *, scheme: str = "integer", design: str = "iid") -> float:
    """The largest error of attention under s draws, with probability 1 - delta; `v_range` is the
    largest max - min of a column of v. Never more than v_range.

    >>> output_bound(Instance(p_norm=0.1, beta=0.3), 1000, 16.0, 10**6, v_range=2.0) < 0.02
    True
    >>> output_bound(Instance(p_norm=0.1, beta=0.3), 1000, 16.0, 1000, 2.0, design="stratified") < 0.5
    True
    """
    _in_range(n, sigma, samples, delta)
    set_ = Partition(sigma, samples, scheme=scheme, design=design)
    delta_p = lib.plsh_delta_p(set_.c_struct(), n, delta, measured.p_norm)
    return float(lib.plsh_output_bound(delta_p, measured.beta, v_range))


def paper_output_bound(measured: Instance, n: int, sigma: float, samples: int, v_max: float,
                       delta: float = 0.01) -> float:
    """Theorem 2.2 as published; inf where it does not apply.

    >>> paper_output_bound(Instance(p_norm=0.1, beta=0.3), 1000, 16.0, 100, v_max=1.0)
    inf
    """
    _in_range(n, sigma, samples, delta)
    delta_p = lib.plsh_paper_delta_p(n, sigma, samples, delta, measured.p_norm)
    return float(lib.plsh_paper_output_bound(delta_p, measured.beta, v_max))


def output_expectation(measured: Instance, samples: int, v_range: float) -> float:
    """At least the mean error of every entry of the output, over s iid draws, before drawing.

    >>> output_expectation(Instance(p_norm=0.1, beta=0.3, variation=1.5), 100, v_range=2.0)
    0.3
    """
    if samples < 1:
        raise ValueError(f"samples={samples}: is 1 or more")
    return float(lib.plsh_output_expectation(measured.variation, samples, v_range))


@dataclass(frozen=True)
class ErrorRow:
    """The largest entries of |T* - T~*|, one per head and repetition."""

    sigma: float
    samples: int
    mean: float
    std: float
    max: float


def error(q: npt.NDArray[Any], k: npt.NDArray[Any], v: npt.NDArray[Any], *,
          sigma: float | Sequence[float], samples: Sequence[int] | None = None,
          reps: int | None = None, method: str = "plsh", scheme: str | None = None,
          design: str | None = None, seed: int = 1, causal: bool = True,
          scale: float | None = None, paper: bool = False, threads: int = 0) -> list[ErrorRow]:
    """The error of sampled attention against the number of samples: the paper's
    third curve. Every sigma is given to all heads; a row per sigma and number of samples.

    The partitions are integer and stratified, with `paper` the paper's (binning, iid, up to 100,000
    samples, 30 repetitions).

    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((2, 200, 16), dtype=np.float32) for _ in range(3))
    >>> few, many = error(q, k, v, sigma=8.0, samples=[4, 1024], reps=3)
    >>> many.mean < few.mean / 5
    True
    """
    counts = list(samples) if samples is not None else [1, 10, 100, 1000] + paper * [10**4, 10**5]
    repetitions = reps if reps is not None else 30 if paper else 10
    if repetitions < 1:
        raise ValueError(f"reps={reps}: is 1 or more")
    scheme = scheme or ("binning" if paper else "integer")
    design = design or ("iid" if paper else "stratified")
    rows = []
    for x in [float(sigma)] if isinstance(sigma, (int, float)) else [float(y) for y in sigma]:
        exact = attention(q, k, v, sigma=x, causal=causal, scale=scale, threads=threads)
        for s in counts:
            largest = np.array([
                abs(attention(q, k, v, sigma=x, causal=causal, scale=scale, method=method,
                              scheme=scheme, design=design, samples=s, seed=seed + rep,
                              threads=threads) - exact).max(axis=(-2, -1)).ravel()
                for rep in range(repetitions)], dtype=np.float64)
            std = float(largest.std(ddof=1)) if largest.size > 1 else 0.0
            rows.append(ErrorRow(x, s, float(largest.mean()), std, float(largest.max())))
    return rows
