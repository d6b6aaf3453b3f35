"""What the tests share: the reference data, and a dense oracle in double precision."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import numpy as np
import pytest

# Some virtual machines announce AMX and stop at its first instruction, which torch takes for bfloat16. Read when torch is
# imported; examples that tests start inherit it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

TOP = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = pathlib.Path(os.environ.get("PLSH_SHARED", TOP.parent / "shared")) / "golden"


def golden_cases(folder: str) -> list[Any]:
    """One parameter per case of a golden folder; a single skipped one where it is absent."""
    found = sorted((GOLDEN / folder).glob("*/")) if GOLDEN.is_dir() else []
    if not found:
        why = pytest.mark.skip(reason="no reference data; PLSH_SHARED points at it")
        return [pytest.param(None, marks=why)]
    return [pytest.param(path, id=path.name) for path in found]


def load(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The meta.json and the arrays of a case."""
    meta = json.loads((path / "meta.json").read_text())
    return meta, {file.stem: np.load(file) for file in path.glob("*.npy")}


def tolerance(meta: dict[str, Any], name: str) -> float:
    """Twice the error of plain float32, and a few units in the last place of the largest value."""
    return 2 * meta["float32_error"][name] + 4 * np.spacing(np.float32(meta["max_abs"][name]))


def dense(q, k, v, bias, causal, scale=None):
    """o and lse in float64; bias is [heads, queries, keys], added to the scaled scores."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    group = q.shape[0] // k.shape[0]
    k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
    scores = q @ k.transpose(0, 2, 1) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    n_q, n = scores.shape[1:]
    if causal:
        position = np.arange(n_q) + n - n_q
        scores = np.where(np.arange(n)[None] <= position[:, None], scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    return weights / total @ v, (np.log(total) + top)[..., 0]


def alibi_bias(sigma, n_q, n):
    """-|p_i - j| / sigma, [heads, n_q, n]."""
    distance = abs(np.arange(n)[None] - (np.arange(n_q) + n - n_q)[:, None])
    return -distance[None] / np.asarray(sigma, dtype=np.float64)[:, None, None]


@pytest.fixture
def rng():
    return np.random.default_rng(1)
