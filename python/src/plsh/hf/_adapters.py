"""Models outside transformers' attention interface: layers for which a replacement is registered."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor, nn

import plsh.torch
from plsh.hf._attend import HARMLESS, settled
from plsh.hf._mask import Refused
from plsh.torch._masks import Seen, recognise

Replacement = Callable[..., Any]
Slopes = Union[str, Sequence[float], Tensor, None]


class Settings:
    """Method and options of a model; its layers share one."""

    def __init__(self, method: str, options: dict[str, Any]) -> None:
        self.method, self.options = method, options


class Attend:
    """Attention of one layer, with the method and the options of :func:`plsh.hf.apply`.

    The second argument of a function under :func:`adapter`.
    """

    def __init__(self, settings: Settings, layer: nn.Module, owner: Any, method: str) -> None:
        self.settings = settings
        self.owner = owner  # the module by which the layer was found
        self.name = type(layer).__name__
        own = getattr(type(layer), method)
        self.names = tuple(inspect.signature(inspect.unwrap(own)).parameters)[1:]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, slopes: Slopes = None,
                 scale: Optional[float] = None, mask: Optional[Tensor] = None,
                 spans: Optional[Tensor] = None, offsets: Optional[Tensor] = None,
                 window: Optional[int] = None, dropout: float = 0.0) -> Tensor:
        """softmax(scale q k^T - slope |i - j|) v, [batch, heads, n, dim]; k and v may have fewer heads.

        `slopes` are the layer's own, one per head, or "alibi" for the standard ones; None: it has no
        ALiBi. Those given to :func:`plsh.hf.apply` come first. `mask` is padding [batch, keys], 1 or
        True at tokens, or a mask as :func:`plsh.torch.scaled_dot_product_attention` takes it; `spans`
        and `offsets` (of packed sequences) as in :func:`plsh.torch.attention`. `window` w: keys at a
        distance less than w. `dropout` is the probability in training, 0 otherwise.
        """
        seen = Seen(causal, window, spans)
        if mask is not None:
            seen = _seen(mask, q, k, causal)
            seen = seen._replace(window=_least(seen.window, window))
        own = None if slopes is None else {"slopes": slopes}
        if isinstance(slopes, str):
            own = {"sigma": slopes}
        method = self.settings.method
        if method == "own":
            method = "none" if own is None else "exact"
        method, options = settled(self.name, method, self.settings.options, own, seen.window)
        o: Tensor = plsh.torch.attention(
            q, k, v, causal=seen.causal, scale=scale, method=method, spans=seen.spans,
            query_offsets=offsets, key_offsets=offsets, dropout=dropout, **options)
        return o

    def named(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by the names they have in the layer's own method."""
        return {**dict(zip(self.names, args)), **kwargs}

    def arguments(self, args: Sequence[Any], kwargs: dict[str, Any],
                  served: Iterable[str]) -> dict[str, Any]:
        """The same; refuses arguments that are given but not supported."""
        given = self.named(args, kwargs)
        for name, x in given.items():
            if x is None or x is False or name in served:
                continue
            if name in ("output_attentions", "needs_weights"):
                raise Refused(f"{self.name}: {name}=True; plsh never forms the n x n weights: "
                              "plsh.hf.remove(model) to see them")
            if name not in HARMLESS:
                raise Refused(f"{self.name}: is given {name}, which plsh does not serve")
        return given


def _least(x: Optional[int], y: Optional[int]) -> Optional[int]:
    return y if x is None else x if y is None else min(x, y)


def _seen(mask: Tensor, q: Tensor, k: Tensor, causal: bool) -> Seen:
    if mask.dim() == 2:
        return Seen(causal, None, None if bool(mask.all()) else plsh.torch.padding_spans(mask))
    return recognise(mask, q.shape[0], q.shape[1], q.shape[2], k.shape[2], causal)


class Adapter(NamedTuple):
    """How a module is found, and which of its methods is replaced."""

    matches: Callable[[nn.Module], bool]
    replacement: Replacement
    method: str = "forward"
    inside: Callable[[Any], Iterable[nn.Module]] = lambda module: (module,)
    undo: Optional[Callable[[nn.Module], None]] = None  # called by `remove`, in addition to restoring the method


_adapters: list[Adapter] = []


def adapter(layer: Union[type[nn.Module], Callable[[nn.Module], bool]], *,
            method: str = "forward") -> Callable[[Replacement], Replacement]:
    """Registers a replacement for a layer with its own attention, for :func:`plsh.hf.apply`.

    `layer` is its class, or a function that is true of such modules. The decorated function takes
    the place of the layer's `method`: it gets the layer, an :class:`Attend` and the arguments, and
    returns what the layer returns. :func:`plsh.hf.remove` puts the layer's own back. If a layer is
    registered twice, the last one counts.

    >>> class Mine(nn.Module):
    ...     def __init__(self, width=32, heads=4):
    ...         super().__init__()
    ...         self.heads, self.qkv = heads, nn.Linear(width, 3 * width)
    ...         self.out = nn.Linear(width, width)
    ...     def split(self, x):
    ...         return self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
    ...     def forward(self, x):
    ...         q, k, v = self.split(x)
    ...         i = torch.arange(x.shape[1])
    ...         bias = -torch.tensor([.5, .25, .1, .02])[:, None, None] * (i[:, None] - i).abs()
    ...         weights = (q @ k.transpose(2, 3) / 8**.5 + bias).softmax(-1)
    ...         return self.out((weights @ v).transpose(1, 2).flatten(2))
    >>> @adapter(Mine)
    ... def attend_mine(layer, attend, x):
    ...     o = attend(*layer.split(x), causal=False, slopes=[.5, .25, .1, .02])
    ...     return layer.out(o.transpose(1, 2).flatten(2))
    >>> model, x = nn.Sequential(Mine(), nn.GELU(), Mine()), torch.randn(2, 50, 32)
    >>> own = model(x)
    >>> plsh.hf.apply(model)
    >>> bool((model(x) - own).abs().max() < 1e-5)
    True
    """
    if isinstance(layer, type):
        kind = layer
        if not hasattr(kind, method):
            raise ValueError(f"method={method!r}: {kind.__name__} has no method of this name")
        matches: Callable[[nn.Module], bool] = lambda module: isinstance(module, kind)
    elif callable(layer):
        matches = layer
    else:
        raise TypeError(f"layer: is {type(layer).__name__}, must be a class of modules, or a function of one")

    def register(replacement: Replacement) -> Replacement:
        _adapters.append(Adapter(matches, replacement, method))
        return replacement
    return register


class Site(NamedTuple):
    """A module of a model, and the adapter for it."""

    module: nn.Module
    owner: nn.Module
    adapter: Adapter


def find(model: nn.Module) -> list[Site]:
    """The modules with an adapter; if two adapters replace the same method of one, the later counts."""
    found: dict[tuple[int, str], Site] = {}
    for made in reversed(_adapters):
        for owner in model.modules():
            if made.matches(owner):
                for module in made.inside(owner):
                    found.setdefault((id(module), made.method), Site(module, owner, made))
    return list(found.values())


# By replaced name: the attribute that the module itself had (or None), and the function that undoes.
_REPLACED = "_plsh_replaced"


def put(sites: Iterable[Site], settings: Settings) -> None:
    """Replaces the methods. The replacement is a partial function of the module, which copies, pickles
    and compiles with it."""
    for module, owner, made in sites:
        replaced = module.__dict__.setdefault(_REPLACED, {})
        if made.method not in replaced:
            replaced[made.method] = (module.__dict__.get(made.method), made.undo)
        attend = Attend(settings, module, owner, made.method)
        module.__dict__[made.method] = functools.partial(made.replacement, module, attend)


def take(model: nn.Module) -> None:
    """Puts the models' own methods back."""
    for module in model.modules():
        for method, (own, undo) in module.__dict__.pop(_REPLACED, {}).items():
            del module.__dict__[method]
            if own is not None:
                module.__dict__[method] = own
            if undo is not None:
                undo(module)


def settings_of(model: nn.Module) -> list[Settings]:
    """The settings of the layers that are replaced at present."""
    found = {}
    for module in model.modules():
        for method in module.__dict__.get(_REPLACED, {}):
            attend = module.__dict__[method].args[1]
            found[id(attend.settings)] = attend.settings
    return list(found.values())
