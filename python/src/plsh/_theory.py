"""Norms of L* - M~, measured, and the bounds of the paper's theorems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plsh._decay import DecayLike, alibi, as_decay
from plsh._library import check, ffi, lib
from plsh._partition import Partition

__all__ = ["Bounds", "Instance", "Norms", "bounds", "decay_multiply", "instance", "mask_multiply",
           "norms", "output_bound", "samples_needed"]


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
    """What Theorem 2.1 says about s independent draws, with the constants of its proof."""

    psi: float  #: the paper's Psi
    spectral: float  #: exceeded by ||L* - M~|| with probability at most delta
    spectral_two_sided: float  #: the same with the factor 2 that the norm needs
    spectral_expectation: float  #: at least the mean of ||L* - M~||
    max: float  #: exceeded by the max norm with probability at most delta
    largest_block: float  #: exceeded by the largest block likewise; NaN for delta >= 1/e


def _in_range(n: int, sigma: float, samples: int, delta: float) -> None:
    for name, value, right in (
            ("n", n, n >= 1), ("sigma", sigma, sigma > 0), ("samples", samples, samples >= 1),
            ("delta", delta, 0 < delta < 1)):
        if not right:
            raise ValueError(f"{name}={value}: out of range; n >= 1, sigma > 0, samples >= 1, "
                             "0 < delta < 1")


def bounds(n: int, sigma: float, samples: int, delta: float = 0.01) -> Bounds:
    """The bounds of Theorem 2.1 for s iid draws of ALiBi.

    >>> 0 < bounds(4096, 64.0, 1000).max < 0.2
    True
    """
    _in_range(n, sigma, samples, delta)
    return Bounds(
        lib.plsh_psi(sigma), lib.plsh_spectral_error(n, sigma, samples, delta),
        lib.plsh_spectral_error_two_sided(n, sigma, samples, delta),
        lib.plsh_spectral_expectation(n, sigma, samples), lib.plsh_max_error(n, samples, delta),
        lib.plsh_block_bound(sigma, samples, delta))


def samples_needed(n: int, sigma: float, eps: float, delta: float = 0.01) -> tuple[int, int]:
    """The fewest samples whose bound on the (spectral, max) norm is eps with probability 1 - delta.

    >>> spectral, largest = samples_needed(4096, 64.0, 0.1)
    >>> bounds(4096, 64.0, largest).max <= 0.1
    True
    """
    _in_range(n, sigma, 1, delta)
    if not eps > 0:
        raise ValueError(f"eps={eps}: is positive")
    return (int(lib.plsh_spectral_samples(n, sigma, eps, delta)),
            int(lib.plsh_max_samples(n, eps, delta)))


@dataclass(frozen=True)
class Instance:
    """What Theorem 2.2 needs to know of q and k; P is their attention without bias."""

    p_norm: float  #: ||P||_{2,inf}
    beta: float  #: beta*_P = min_i sum_j P_ij L*_ij


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
    check(lib.plsh_instance_measure(
        struct, q.shape[0], q.shape[1], ffi.from_buffer("float[]", q),
        ffi.from_buffer("float[]", k), scale, causal, threads, found, error), error)
    return Instance(found.p_norm, found.beta)


def output_bound(measured: Instance, n: int, sigma: float, samples: int, v_max: float,
                 delta: float = 0.01) -> float:
    """Theorem 2.2: a bound on the largest error of sampled attention, with probability 1 - delta;
    inf where it says nothing.

    >>> output_bound(Instance(p_norm=0.1, beta=0.3), 1000, 16.0, 10**7, v_max=1.0) < 0.1
    True
    """
    _in_range(n, sigma, samples, delta)
    delta_p = lib.plsh_delta_p(n, sigma, samples, delta, measured.p_norm)
    return float(lib.plsh_output_bound(delta_p, measured.beta, v_max))
