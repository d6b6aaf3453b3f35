"""llama.cpp, by its C interface: tokens in, logits or hidden states out. A model need not have a
tokenizer."""

from __future__ import annotations

import ctypes

import llama_cpp as c
import numpy as np

F32 = 0  # GGML's number of the type
NO_POOLING = 0


@c.llama_log_callback
def say_nothing(level: int, text: bytes, data: ctypes.c_void_p) -> None:
    pass


class Llama:
    """A model and one context."""

    def __init__(self, path: str, context: int, threads: int, *, batch: int = 512, flash: bool = False,
                 exact_cache: bool = False, encoder: bool = False, sequences: int = 1) -> None:
        c.llama_log_set(say_nothing, ctypes.c_void_p(0))
        c.llama_backend_init()
        self.model = c.llama_model_load_from_file(path.encode(), c.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        options = c.llama_context_default_params()
        options.n_ctx = context
        options.n_batch = options.n_ubatch = context if encoder else batch
        options.n_seq_max = sequences
        options.kv_unified = sequences > 1
        options.n_threads = options.n_threads_batch = threads
        options.flash_attn_type = int(flash)
        if exact_cache:
            options.type_k = options.type_v = F32
        if encoder:
            options.embeddings = True
            options.pooling_type = NO_POOLING
        self.encoder, self.batch = encoder, int(options.n_batch)
        self.context = c.llama_init_from_model(self.model, options)
        if not self.context:
            raise MemoryError(f"llama.cpp makes no context of {context} tokens for {path}")

    def feed_each(self, ids: list[int], position: int) -> None:
        """A token of each sequence, all at the same position; outputs of all."""
        batch = c.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, True
            batch.seq_id[i][0] = i
        code = c.llama_decode(self.context, batch)
        c.llama_batch_free(batch)
        if code:
            raise MemoryError(f"llama.cpp stops with code {code}")

    def feed(self, ids: np.ndarray, first: int, every: bool) -> None:
        """Tokens from position `first` on; outputs of every one, or of the last."""
        for at in range(0, len(ids), self.batch):
            some = ids[at:at + self.batch]
            batch = c.llama_batch_init(len(some), 0, 1)
            batch.n_tokens = len(some)
            for i, token in enumerate(some):
                batch.token[i] = int(token)
                batch.pos[i] = first + at + i
                batch.n_seq_id[i] = 1
                batch.seq_id[i][0] = 0
                batch.logits[i] = every or at + i == len(ids) - 1
            code = (c.llama_encode if self.encoder else c.llama_decode)(self.context, batch)
            c.llama_batch_free(batch)
            if code:
                raise MemoryError(f"llama.cpp stops with code {code}")

    def outputs(self, count: int) -> np.ndarray:
        """The logits, or hidden states, of the last tokens that were fed."""
        width = c.llama_model_n_embd(self.model) if self.encoder else c.llama_vocab_n_tokens(
            c.llama_model_get_vocab(self.model))
        get = c.llama_get_embeddings_ith if self.encoder else c.llama_get_logits_ith
        return np.stack([np.ctypeslib.as_array(get(self.context, i - count), shape=(width,)).copy()
                         for i in range(count)])
