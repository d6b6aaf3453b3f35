"""Tiny random models of the families with ALiBi of their own, for the tests."""

from __future__ import annotations

import copy

import torch
import transformers

import plsh.hf

FAMILIES = ("bloom", "mpt", "falcon")
VOCABULARY = 97


def tiny(family: str, heads: int = 4, layers: int = 2, **changes):
    """A small random model with its own attention, always with the same weights."""
    torch.manual_seed(0)
    hidden = 8 * heads
    common = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
    if family == "bloom":
        config = transformers.BloomConfig(hidden_size=hidden, n_layer=layers, n_head=heads, **common,
                                          **changes)
        model = transformers.BloomForCausalLM(config)
    elif family == "mpt":
        config = transformers.MptConfig(d_model=hidden, n_layers=layers, n_heads=heads,
                                        max_seq_len=512, use_cache=True, **common, **changes)
        model = transformers.MptForCausalLM(config)
    else:
        shape = {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True,
                 "new_decoder_architecture": False, **changes}
        config = transformers.FalconConfig(hidden_size=hidden, num_hidden_layers=layers,
                                           num_attention_heads=heads, attn_implementation="sdpa",
                                           **common, **shape)
        model = transformers.FalconForCausalLM(config)
    with torch.no_grad():  # larger weights than fresh ones: attention that is far from uniform
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(8)
    return model.eval()


def with_plsh(model, method: str = "exact", **options):
    """A copy with plsh attention."""
    copied = copy.deepcopy(model)
    plsh.hf.apply(copied, method=method, **options)
    return copied


def ids(batch: int, n: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(2, VOCABULARY, (batch, n), generator=torch.Generator().manual_seed(seed))


def padded(side: str, lengths=(24, 10, 17), n: int = 24):
    """Tokens, mask and the lengths of a padded batch."""
    tokens, mask = ids(len(lengths), n), torch.ones(len(lengths), n, dtype=torch.int64)
    for b, length in enumerate(lengths):
        if side == "left":
            mask[b, :n - length] = 0
        else:
            mask[b, length:] = 0
    return tokens * mask, mask
