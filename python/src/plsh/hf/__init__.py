"""Hugging Face models with ALiBi attention in near-linear time.

    import plsh.hf
    plsh.hf.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="plsh_exact")

adds to transformers' attention interface:

- `plsh_exact`: ALiBi to float rounding,
- `plsh_plsh`: ALiBi by random partitions (the paper),
- `plsh_window`: ALiBi cut off at a window,
- `plsh_fixed`: blocks of equal size, no bias (the paper's baseline),
- `plsh_none`: no bias.

BLOOM, MPT and Falcon have ALiBi of their own: with `plsh_exact` they give their own logits, with
their own slopes, in near-linear time and without an n x n array. Decoders of the common kind (Llama,
Mistral, Qwen3, ...) get ALiBi beside RoPE, or in its place (:func:`drop_rope`). Causality, sliding
windows, padding and packed sequences are those of the mask that the model asks for. A model that plsh
does not support is refused with its name (:class:`Refused`), when it is made or when it first runs. ALiBi
changes the results of a model that was made without it: a warning says so once, unless sigma, slopes or
decay are given (`sigma="alibi"`: the standard slopes).

:func:`apply` also supports models with attention code of their own: DNABERT-2 and MosaicBERT, Jina's v2
encoders, Baichuan, Jais, BTLM, Refact and llm-foundry's MPT, and others by an :func:`adapter`.

:func:`apply` switches a model that exists, :func:`remove` switches it back; :func:`configure` sets
options. All of them are part of the model's configuration: they are saved and loaded with it.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from plsh.hf import _adapters, _attend, _families, _mask, _models, _options, _trial
from plsh.hf._adapters import Attend, adapter
from plsh.hf._cache import Cache
from plsh.hf._mask import Refused
from plsh.hf._options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Attend", "Cache", "Options", "Refused", "adapter", "apply", "configure", "drop_rope", "register",
           "remove", "sentence_transformer"]


def register(**options: Unpack[Options]) -> None:
    """Adds the implementations to transformers; call it before the model is made.

    The options are defaults for every model made from now on whose method uses them: sigma, slopes,
    decay, eps, window, block, scheme, design, samples, seed, threads, as in
    :func:`plsh.torch.attention`; and fused_gelu=False, with which BLOOM keeps its own GELU. With plsh
    it otherwise has torch's: the same formula in one operation instead of 9 (its gradient: of 18),
    equal to rounding.

    >>> register(samples=64)
    >>> register()
    """
    plain = _options.check(options)
    _options.try_each(plain)
    _models.defaults = plain
    _models.install()
    for name in (*_options.METHODS, *_options.RENAMED):
        method = _options.METHODS[_options.RENAMED.get(name, name)]
        AttentionInterface.register(name, _attend.attend)
        AttentionMaskInterface.register(name, partial(_mask.make, method=method))


def _models_of(model: nn.Module) -> list[PreTrainedModel]:
    """The models of transformers inside a module: one for each configuration."""
    found = {id(x.config): x for x in model.modules() if isinstance(x, PreTrainedModel)}
    return list(found.values())


def apply(model: nn.Module, method: str = "exact", **options: Unpack[Options]) -> None:
    """Switches a model that exists to plsh: `method` is exact, plsh, window, fixed, none or own.

    "none" has no bias; "own" is what the model computes without plsh: exact where it has ALiBi of its
    own, none where it has not. Served are models of transformers' attention interface and those that
    hold them (a SentenceTransformer), the ALiBi families whose code is published with their weights
    (DNABERT-2 and MosaicBERT, Jina's v2 encoders, Baichuan, Jais, BTLM, Refact, MPT of llm-foundry),
    recognised by the names of their modules, and layers of your own (:func:`adapter`). Others are
    refused (:class:`Refused`), and the model is left as it was.

    >>> from transformers import BloomConfig, BloomForCausalLM
    >>> model = BloomForCausalLM(BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4))
    >>> tokens = torch.arange(40)[None]
    >>> own = model(tokens).logits
    >>> apply(model)
    >>> bool((model(tokens).logits - own).abs().max() < 1e-5)
    True
    >>> remove(model)
    """
    name = None if method == "own" else _options.implementation(method)
    plain = _options.check(options)
    sites = _adapters.find(model)
    inside = {id(x.module) for x in sites}
    parts = [x for x in _models_of(model) if not any(id(y) in inside for y in x.modules())]
    if not sites and not parts:
        raise Refused(f"{type(model).__name__}: no model of transformers, and none of its layers is known "
                      "to plsh; plsh.hf.adapter teaches plsh a layer")
    if _options.FIRST not in AttentionInterface._global_mapping:
        register()
    if sites:
        _options.try_out(name or _options.FIRST, plain)
    before = [(x, x.config._attn_implementation) for x in parts]
    try:
        for part, last in before:
            chosen = name or _options.own(part.config)
            _models.admit(part, chosen, plain)
            if last not in _options.METHODS:
                part._plsh_before = last
            part.config._attn_implementation_internal = chosen
        if parts and all(x not in _options.METHODS for _, x in before):
            _trial.run(model, parts)
    except Refused as problem:
        for part, last in before:
            _options.erase(part.config)
            part.config._attn_implementation_internal = last
        if "plsh.hf.adapter" in str(problem):
            raise
        raise Refused(f"{problem}. The model is as it was: use it so, or teach plsh its layers with "
                      "plsh.hf.adapter") from None
    word = method if name is None else _options.METHODS[name]
    _adapters.put(sites, _adapters.Settings(word, _options.plain_options(plain)))


def remove(model: nn.Module) -> None:
    """Switches a model back to the attention it had before :func:`apply`, or would have had."""
    _adapters.take(model)
    for part in _models_of(model):
        _options.erase(part.config)
        before = getattr(part, "_plsh_before", None)
        if part.config._attn_implementation in _options.METHODS:
            part.config._attn_implementation_internal = \
                part.get_correct_attn_implementation(before, is_init_check=True)


def configure(model: nn.Module, **options: Unpack[Options]) -> None:
    """Sets options, as those of :func:`register`, for one model."""
    plain = _options.check(options)
    parts = [x for x in _models_of(model) if x.config._attn_implementation in _options.METHODS]
    settings = _adapters.settings_of(model)
    if not parts and not settings:
        raise ValueError(f"model: {type(model).__name__} does not have plsh attention; "
                         "plsh.hf.apply(model, ...) gives it")
    for part in parts:
        _options.try_out(part.config._attn_implementation, plain, part.config)
    for x in settings:
        _options.try_out(_options.FIRST if x.method == "own" else f"plsh_{x.method}", plain)
    for part in parts:
        _options.write(part.config, part.config._attn_implementation, plain)
    for x in settings:
        x.options = _options.plain_options(plain)


def sentence_transformer(model: Any, **arguments: Any) -> Any:
    """A SentenceTransformer whose encoder runs on plsh; `.encode` gives the same vectors.

    `model` is a SentenceTransformer, or its name or folder, which is loaded with the `arguments`. BERT
    and its like run without a bias, JinaBERT and MosaicBERT with their ALiBi: the method "own" of
    :func:`apply`.
    """
    if not isinstance(model, nn.Module):
        model = importlib.import_module("sentence_transformers").SentenceTransformer(model, **arguments)
    elif arguments:
        raise TypeError(f"{', '.join(arguments)}: go with the name of a model; this one exists")
    apply(model, "own")
    return model


def drop_rope(model: nn.Module) -> None:
    """Removes the rotary embedding, so that ALiBi is the only positional information.

    Every rotation of the model becomes the identity (cos = 1, sin = 0), here and in its
    configuration.
    """
    rotary = [x for x in model.modules() if hasattr(x, "inv_freq")]
    if not rotary:
        raise ValueError(f"model: {type(model).__name__} has no rotary embedding to drop")
    for module in rotary:
        for name in ("inv_freq", "original_inv_freq"):
            if isinstance(getattr(module, name, None), torch.Tensor):
                getattr(module, name).zero_()
        if hasattr(module, "rope_type"):
            setattr(module, "rope_type", _options.NO_ROPE)
        if getattr(module, "config", None) is not None:
            _options.drop_rope(module.config)  # type: ignore[arg-type]
