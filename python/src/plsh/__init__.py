"""Attention with linear biases (ALiBi) in near-linear time.

    >>> import numpy as np, plsh
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((8, 4096, 64), dtype=np.float32) for _ in range(3))
    >>> plsh.attention(q, k, v, causal=True).shape
    (8, 4096, 64)

:func:`attention` computes on NumPy arrays, :mod:`plsh.torch` on PyTorch tensors with gradients,
and :mod:`plsh.hf` gives Hugging Face models these attentions. :class:`Model` runs language models and
encoders. :class:`Decay` and :class:`Partition` are what attention is made of.
"""

from plsh._attention import Attended, Gradients, attend, attention, isa_available
from plsh._cache import Cache
from plsh._decay import Decay, alibi, alibi_slopes, kerple_log, kerple_power, table, triangle
from plsh._generate import Chunk, Completion, Likely
from plsh._library import Error, InvalidError, NotFiniteError, UnsupportedError, ffi, lib
from plsh._model import Classified, Model, ModelFacts, Perplexity, Ranked
from plsh._partition import Partition, draw
from plsh._session import Forward, Session
from plsh._theory import (
    Advice,
    Bounds,
    ErrorRow,
    Instance,
    Norms,
    PaperBounds,
    bounds,
    decay_multiply,
    error,
    instance,
    mask_multiply,
    norms,
    output_bound,
    output_expectation,
    paper_bounds,
    paper_output_bound,
    plan,
    samples_needed,
)

__version__: str = ffi.string(lib.plsh_version()).decode()

__all__ = [
    "Advice", "Attended", "Bounds", "Cache", "Chunk", "Classified", "Completion", "Decay", "Error",
    "ErrorRow", "Forward", "Gradients", "Instance", "InvalidError", "Likely", "Model", "ModelFacts",
    "Norms", "NotFiniteError", "PaperBounds", "Partition", "Perplexity", "Ranked", "Session",
    "UnsupportedError", "alibi", "alibi_slopes", "attend", "attention", "bounds", "decay_multiply",
    "draw", "error", "instance", "isa_available", "kerple_log", "kerple_power", "mask_multiply",
    "norms", "output_bound", "output_expectation", "paper_bounds", "paper_output_bound", "plan",
    "samples_needed", "table", "triangle",
]
