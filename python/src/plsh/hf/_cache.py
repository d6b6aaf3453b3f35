"""A cache of transformers over plsh's own: time per token that does not grow with the text."""

from __future__ import annotations

import functools
from typing import Any, Optional

import torch
from torch import Tensor
from transformers import Cache as BaseCache
from transformers.cache_utils import (
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

from plsh._torch_cache import Cache as LayerCache
from plsh.hf import _options
from plsh.hf._mask import Mask, Refused


def layer_of(key: Tensor) -> Optional[Layer]:
    """The layer of a plsh.hf.Cache that these keys were given to, or None."""
    return getattr(key, "plsh_layer", None)


class Layer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer's sequences. Keys given to `update` are appended when the layer attends."""

    is_sliding = False
    is_croppable = True
    supports_early_init = False

    def __init__(self, undo: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.undo, self.length = undo, 0
        self.waiting = False  # keys of `update` that `attend` has not appended yet
        self.cache: Optional[LayerCache] = None
        self.settings: Any = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any,
               **__: Any) -> tuple[Tensor, Tensor]:
        """Returns the new keys and values; an attribute of the keys tells attention which cache it is."""
        if self.waiting:
            raise Refused("plsh.hf.Cache: the attention of this model does not come for the keys it "
                          "gave; generate with transformers' own cache (past_key_values=DynamicCache())")
        self.lazy_initialization(key_states, value_states)
        self.waiting = True
        setattr(key_states, "plsh_layer", self)
        return key_states, value_states

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, method: str,
               scale: Optional[float], options: dict[str, Any]) -> Tensor:
        """Appends the keys and values of the last `update`, and attends for them."""
        if not self.waiting:
            raise Refused(f"{mask.owner}: attends twice to the same keys, which plsh.hf.Cache does "
                          "not serve; generate with transformers' own cache")
        rows, begins = q.shape[2], None
        if not mask.causal or mask.keys != self.length + rows:
            raise Refused(f"{mask.owner}: a mask of {mask.keys} keys, causal: {mask.causal}; the "
                          f"cache has {self.length + rows} tokens and is causal")
        if mask.spans is not None:
            begins = self._begins(mask.spans.tolist(), rows)
        settings = {"method": method, "scale": scale, **options}
        if self.cache is None:
            self.cache, self.settings = LayerCache(undo=self.undo, **settings), settings
        elif settings != self.settings:
            raise Refused(f"{mask.owner}: its options changed while the cache was in use")
        o = self.cache.step(q, k, v, begins)
        self.waiting, self.length = False, self.length + rows
        return o

    def _begins(self, spans: list[list[int]], rows: int) -> list[int]:
        """First row of each sequence that is no padding."""
        for begin, end, keys in spans:
            if end != keys and begin < end:
                raise Refused("plsh.hf.Cache: padding after the tokens; pad on the left "
                              "(tokenizer.padding_side = \"left\") to generate")
        return [min(rows, max(0, begin - self.length)) if begin < end else rows
                for begin, end, _ in spans]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self.cache, self.length, self.waiting = None, 0, False

    def _select(self, rows: list[int]) -> None:
        if self.cache is not None:
            self.cache.select(rows)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self._select(beam_idx.tolist())

    def batch_select_indices(self, indices: Tensor) -> None:
        listed = indices.nonzero().flatten() if indices.dtype == torch.bool else indices
        self._select(listed.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.cache is not None:
            self._select([b for b in range(len(self.cache.sequences)) for _ in range(repeats)])

    def crop(self, tokens_to_remove: int) -> None:
        if tokens_to_remove > 0:
            raise ValueError(f"crop({tokens_to_remove}): give minus the number of tokens to remove")
        if tokens_to_remove and self.cache is not None:
            self.cache.truncate(-tokens_to_remove)
            self.length += tokens_to_remove

    def offload(self) -> None:
        raise Refused("plsh.hf.Cache: is on the CPU and is not offloaded")


class Cache(BaseCache):
    """For `generate(..., past_key_values=plsh.hf.Cache())` and for loops of one's own.

    plsh attention makes it by itself where `generate` is given no cache. The layers attend token by
    token in time that does not grow with the text (exact on standard slopes: hardly grows), and
    "plsh", "window" and "fixed" forget what is out of reach. Batches with padding on the left,
    beams and cropping (assisted decoding) work as with transformers' own caches; `undo` of the last
    tokens can always be cropped. There are no gradients.

    >>> from transformers import BloomConfig, BloomForCausalLM
    >>> import plsh.hf
    >>> model = BloomForCausalLM(BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4))
    >>> plsh.hf.apply(model)
    >>> cache = plsh.hf.Cache()
    >>> model.generate(torch.arange(2, 12)[None], past_key_values=cache, max_new_tokens=5,
    ...                do_sample=False, eos_token_id=None).shape
    torch.Size([1, 15])
    >>> cache.get_seq_length()
    14
    """

    def __init__(self, undo: int = 64) -> None:
        self.undo = undo
        super().__init__(layer_class_to_replicate=self._layer)  # type: ignore[arg-type]

    def _layer(self) -> Layer:
        return Layer(self.undo)

    def activate_past_recording(self) -> None:
        """The number of tokens that assisted decoding may crop: more than it guesses at once."""
        if not self.layers:
            self.undo = max(self.undo, 1024)

    @property
    def nbytes(self) -> int:
        """Memory of the keys and values of all layers."""
        return sum(x.cache.nbytes for x in self.layers
                   if isinstance(x, Layer) and x.cache is not None)


def chooses_cache(original: Any) -> Any:
    """transformers' preparation of generate's cache: ours for plsh, where none is asked for."""
    @functools.wraps(original)
    def prepare(self: Any, generation_config: Any, model_kwargs: dict[str, Any], *args: Any,
                **kwargs: Any) -> Any:
        given = model_kwargs.get("past_key_values")
        result = original(self, generation_config, model_kwargs, *args, **kwargs)
        made = model_kwargs.get("past_key_values")
        if given is None and generation_config.cache_implementation is None and \
                self.config._attn_implementation in _options.METHODS and \
                type(made) is DynamicCache and \
                all(type(x) in (DynamicLayer, DynamicSlidingWindowLayer) for x in made.layers):
            model_kwargs["past_key_values"] = Cache()
            if generation_config.is_assistant:
                model_kwargs["past_key_values"].activate_past_recording()
        return result
    return prepare
