"""Attention calls: shapes and options made into plans of the C library, kept and reused.

Works on numbers (shapes, strides, addresses), so that NumPy and PyTorch share it.
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import numpy.typing as npt

from plsh._decay import Decay, alibi
from plsh._library import check, ffi, lib, names, pointer
from plsh._partition import DESIGNS, SCHEMES, word

METHODS = names(lib.plsh_method_names())
METHOD_WORDS = {value: name for name, value in METHODS.items()}
DTYPES = {ffi.string(lib.plsh_dtype_name(x)).decode(): x for x in (
    lib.PLSH_DTYPE_FLOAT32, lib.PLSH_DTYPE_FLOAT16, lib.PLSH_DTYPE_BFLOAT16)}


class Array(NamedTuple):
    """Shape and strides, in elements, of one [batch, heads, rows, dim] array."""

    batch: int
    heads: int
    rows: int
    dim: int
    batch_stride: int
    head_stride: int
    row_stride: int


class Options(NamedTuple):
    """Methods and options of the heads. A tuple has one entry per head, or a single one for all."""

    method: tuple[str, ...]
    decay: Union[tuple[float, ...], tuple[Decay, ...]]  # numbers are ALiBi's sigmas
    eps: float = 0.0
    window: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    scheme: str = "integer"
    design: str = "stratified"
    samples: int = 20
    seed: int = 1
    first_head: int = 0  # the number of the first head, by which partitions differ
    radius: tuple[float, ...] = ()  # of "window" under positions


class Settings(NamedTuple):
    """Options of the whole call."""

    causal: bool
    scale: float  # 0: 1 / sqrt(head_dim)
    dtype: int
    threads: int
    isa: str
    check_finite: bool
    query_offsets: tuple[int, ...] = ()  # packed sequences
    key_offsets: tuple[int, ...] = ()
    edges: tuple[tuple[int, ...], ...] = ()  # per batch entry: keys where a sequence ends and the
    # next begins; padding is a sequence of its own
    o_dtype: int = 0  # float32
    place: tuple[int, ...] = ()  # of a part of longer rows: the first query and the first key in
    # them; edges are then those of the whole
    some_keys: bool = False  # gradients: other calls have the rest of the keys


class Sequences(NamedTuple):
    """Packed sequences, and where their parts lie in them."""

    query_offsets: tuple[int, ...] = ()
    key_offsets: tuple[int, ...] = ()
    places: tuple[tuple[int, ...], ...] = ()


class Points(NamedTuple):
    """Positions that are points: addresses of float32 [sets, rows, dim], which a plan copies."""

    dim: int
    sets: int
    key: int
    query: int  # 0: the queries are the last keys


class Outcome(NamedTuple):
    """What a run did: pairs scored, and the largest certificate entry."""

    pairs: int
    error_bound: float


def method_words(method: Any) -> tuple[str, ...]:
    """The method, or the method of each head."""
    listed = (method,) if isinstance(method, str) else method
    words = tuple(listed) if hasattr(listed, "__len__") else ()
    if not words or not all([isinstance(x, str) for x in words]):
        raise TypeError(f"method={method!r}: must be a word, or one per head")
    return words


def _each(name: str, values: tuple[Any, ...], heads: int) -> tuple[Any, ...]:
    if len(values) == 1:
        return values * heads
    if len(values) != heads:
        raise ValueError(f"{name}: {len(values)} values for {heads} heads; give one, or one per head")
    return values


def head_array(options: Options, heads: int, copies: int, labels: Optional[npt.NDArray[np.int32]],
           ) -> tuple[Any, list[Any]]:
    """plsh_head[copies * heads] and what it borrows."""
    methods = _each("method", options.method, heads)
    decays = _each("sigma" if options.decay and isinstance(options.decay[0], float) else "decay",
                   options.decay, heads)
    windows = _each("window", options.window or (0,), heads)
    blocks = _each("block", options.block or (0,), heads)
    radii = _each("window", options.radius or (0.0,), heads)
    array, keep = ffi.new("plsh_head[]", heads * copies), []
    scheme, design = word("scheme", options.scheme, SCHEMES), word("design", options.design, DESIGNS)
    for h in range(heads):
        decay = decays[h] if isinstance(decays[h], Decay) else alibi(decays[h])
        struct, entries = decay.c_struct()
        keep += [struct, entries]
        array[h] = lib.plsh_head_default(word("method", methods[h], METHODS), struct)
        head = array[h]
        head.eps = options.eps
        head.window, head.block = windows[h] or head.window, blocks[h] or head.block
        head.radius = radii[h]
        partition = head.partition
        partition.scheme, partition.design = scheme, design
        partition.samples, partition.seed = options.samples, options.seed
        partition.head = options.first_head + h
        if labels is not None:
            keep.append(labels)
            partition.scheme = lib.PLSH_SCHEME_LABELS
            partition.labels = ffi.from_buffer("int32_t[]", labels[h % labels.shape[0]])
            partition.samples, partition.label_count = labels.shape[1], labels.shape[2]
        for copy in range(1, copies):
            array[copy * heads + h] = head
    return array, keep


def layout(name: str, array: Array, heads: int) -> tuple[int, int]:
    """Strides for the library. The stride of a dimension of length 1 may be anything: it is replaced."""
    row = array.row_stride if array.rows > 1 else array.dim
    head = array.head_stride if heads > 1 and array.rows else max(1, array.rows) * row
    if row == 0 and head == 0 and array.rows > 0:
        raise ValueError(f"{name}: all rows are one row (strides 0); pass an array of its own rows")
    return head, row


class Plan:
    """One plan of the library, and what it borrows."""

    def __init__(self, arrays: tuple[Array, Array, Array, Array], copies: int, settings: Settings,
                 options: Options, labels: Optional[npt.NDArray[np.int32]],
                 sequences: Sequences, points: Optional[Points] = None) -> None:
        q, k, v, o = arrays
        head, self._keep = head_array(options, q.heads // copies, copies, labels)
        offsets = [ffi.new("int64_t[]", x) if x else ffi.NULL
                   for x in (sequences.query_offsets, sequences.key_offsets)]
        places = ffi.new("plsh_place[]", sequences.places) if sequences.places else ffi.NULL
        isa = ffi.new("char[]", settings.isa.encode()) if settings.isa else ffi.NULL
        layouts = {name: layout(name, array, array.heads)
                   for name, array in zip("qkvo", (q, k, v, o))}
        attention = ffi.new("plsh_attention *", {
            "heads": q.heads, "kv_heads": k.heads, "queries": q.rows, "keys": k.rows,
            "head_dim": q.dim, "value_dim": v.dim,
            "sequences": max(0, len(sequences.query_offsets) - 1), "query_offsets": offsets[0],
            "key_offsets": offsets[1], "places": places, "causal": settings.causal,
            "check_finite": settings.check_finite, "scale": settings.scale,
            "dtype": settings.dtype, "o_dtype": settings.o_dtype, "head": head, "head_count": q.heads,
            "threads": settings.threads, "isa": isa, **layouts,
        })
        if points is not None:
            attention.positions.dim, attention.positions.sets = points.dim, points.sets
            attention.positions.key = pointer(points.key)
            attention.positions.query = pointer(points.query)
        error, plan = ffi.new("plsh_error *"), ffi.new("plsh_plan **")
        check(lib.plsh_plan_create(attention, plan, error), error)
        self.pointer = ffi.gc(plan[0], lib.plsh_plan_destroy)
        self.heads, self.queries, self.some_keys = q.heads, q.rows, settings.some_keys
        self._workspace = int(lib.plsh_plan_workspace(self.pointer))

    def forward(self, q: int, k: int, v: int, o: int, lse: int, certificate: int,
                dropout: tuple[Any, ...] = ()) -> Outcome:
        """Runs the plan on addresses; lse and certificate are 0 where they are not asked for;
        dropout is the beginning of a plsh_attention_dropout."""
        arrays = ffi.new(_FORWARD, {
            "q": pointer(q), "k": pointer(k), "v": pointer(v), "o": pointer(o),
            "lse": pointer(lse), "certificate": pointer(certificate), "dropout": dropout})
        stats, error = ffi.new(_STATS), ffi.new(_ERROR)
        status = lib.plsh_plan_forward(self.pointer, arrays, workspace(self._workspace), stats,
                                       error)
        if status:
            check(status, error)
        return Outcome(stats.pairs, stats.error_bound)

    def backward(self, q: int, k: int, v: int, o: int, lse: int, d_o: int, d_q: int, d_k: int,
                 d_v: int, d_decay: int, dropout: tuple[Any, ...] = (), d_keys_at: int = 0,
                 d_queries_at: int = 0) -> Outcome:
        """Gradients of sum(o * d_o), on addresses; 0 for the gradients that are not asked for.

        d_keys_at and d_queries_at: those of positions that are points.
        """
        arrays = ffi.new(_BACKWARD, {
            "q": pointer(q), "k": pointer(k), "v": pointer(v), "o": pointer(o),
            "lse": pointer(lse), "d_o": pointer(d_o), "d_q": pointer(d_q), "d_k": pointer(d_k),
            "d_v": pointer(d_v), "d_decay": pointer(d_decay), "some_keys": self.some_keys,
            "d_key_positions": pointer(d_keys_at), "d_query_positions": pointer(d_queries_at),
            "dropout": dropout})
        stats, error = ffi.new(_STATS), ffi.new(_ERROR)
        scratch = workspace(int(lib.plsh_plan_backward_workspace(self.pointer)))
        status = lib.plsh_plan_backward(self.pointer, arrays, scratch, stats, error)
        if status:
            check(status, error)
        return Outcome(stats.pairs, stats.error_bound)

    def head(self, h: int) -> tuple[str, str]:
        """The method that head h runs, and for auto the reason."""
        reason = ffi.new("const char **")
        head = lib.plsh_plan_head(self.pointer, h, reason)
        text = ffi.string(reason[0]).decode() if reason[0] != ffi.NULL else ""
        return METHOD_WORDS[head.method], text

    def window(self, h: int) -> int:
        """The window of head h; `auto` may have chosen it."""
        return int(lib.plsh_plan_head(self.pointer, h, ffi.NULL).window)

    @property
    def isa(self) -> str:
        """The instruction set the plan runs with."""
        return str(ffi.string(lib.plsh_plan_isa(self.pointer)).decode())


# C types looked up once: cffi parses a name at every use.
_FORWARD, _BACKWARD = ffi.typeof("plsh_forward *"), ffi.typeof("plsh_backward *")
_STATS, _ERROR = ffi.typeof("plsh_stats *"), ffi.typeof("plsh_error *")

_local = threading.local()


def workspace(size: int) -> Any:
    """This thread's scratch memory, aligned to a cache line; it grows and is kept."""
    if getattr(_local, "size", -1) < size:
        _local.memory = np.empty(size + 64, dtype=np.uint8)
        address = _local.memory.__array_interface__["data"][0]
        _local.pointer, _local.size = pointer(-(-address // 64) * 64), size
    return _local.pointer


def refuse_unaligned(addresses: dict[str, int], itemsize: int) -> None:
    """The library reads whole elements: they lie at multiples of their size."""
    for name, at in addresses.items():
        if at % itemsize:
            raise ValueError(f"{name}: its memory is not aligned to its elements of {itemsize} bytes; "
                             "pass a copy")


class Call:
    """One kind of call: how the batch is folded into plans, and their runs.

    A batch goes to the library in one plan wherever its strides allow: as more heads
    ([batch, heads, rows] in memory), or as packed sequences ([batch, rows, heads]). Otherwise
    there is one run per batch entry. Nothing is copied.
    """

    def __init__(self, q: Array, k: Array, v: Array, o: Array, settings: Settings,
                 options: Options, labels: Optional[npt.NDArray[np.int32]] = None) -> None:
        arrays = (q, k, v, o)
        check_shapes(q, k, v, settings)
        self.batch, self.heads, self.rows = q.batch, q.heads, q.rows
        self.keys = k.rows
        self.by_rows = False
        edges, place = settings.edges, settings.place
        sequences = Sequences(settings.query_offsets, settings.key_offsets,
                              (place,) if place else ())
        self.steps: tuple[int, ...] = (0, 0, 0, 0)
        self.o_size = int(lib.plsh_dtype_size(settings.o_dtype))
        make = _Maker(settings, options, labels)
        if q.batch == 0:  # nothing to run; the plan of one entry checks the options
            self.plans = [make(tuple(map(_one_entry, arrays)), 1, sequences)]
        elif not edges and all(x.batch == 1 or x.batch_stride == x.heads * x.head_stride
                             or (x.heads == 1 and x.batch_stride) for x in arrays):
            self.plans = [make(tuple(map(_batch_in_heads, arrays)), q.batch, sequences)]
        elif all(x.batch_stride == x.rows * x.row_stride for x in arrays):
            sequences = _pack(edges or ((),) * q.batch, q.rows, k.rows, place)
            self.plans = [make(tuple(map(_batch_in_rows, arrays)), 1, sequences)]
            self.by_rows = True
        else:
            self.steps = tuple(x.batch_stride for x in arrays)
            single = tuple(x._replace(batch=1) for x in arrays)
            each = [_pack((x,), q.rows, k.rows, place) for x in edges] or [sequences]
            made = {x: make(single, 1, x) for x in dict.fromkeys(each)}
            self.plans = [made[x] for x in each] * (1 if edges else q.batch)

    def forward(self, q: int, k: int, v: int, o: int, lse: int, certificate: int,
                itemsize: int, dropout: tuple[float, int] = (0.0, 0)) -> Outcome:
        """Runs on addresses. lse and certificate (or 0) are [batch, heads, rows]. `dropout` is its
        probability and seed: every head of every batch entry drops weights of its own."""
        if (q | k | v) % itemsize or o % self.o_size:
            refuse_unaligned({"q": q, "k": k, "v": v}, itemsize)
            refuse_unaligned({"out": o}, self.o_size)
        if self.batch == 0:
            return Outcome(0, 0.0)
        if self.by_rows:
            return self._forward_by_rows(q, k, v, o, lse, certificate, dropout)
        if len(self.plans) == 1:
            return self.plans[0].forward(q, k, v, o, lse, certificate, dropout)
        pairs, bound, rows = 0, 0.0, 4 * self.heads * self.rows
        sizes = (itemsize, itemsize, itemsize, self.o_size)
        for b, plan in enumerate(self.plans):
            x = [b * step * size for step, size in zip(self.steps, sizes)]
            done = plan.forward(q + x[0], k + x[1], v + x[2], o + x[3], lse and lse + b * rows,
                                certificate and certificate + b * rows,
                                (*dropout, b * self.heads))
            pairs, bound = pairs + done.pairs, max(bound, done.error_bound)
        return Outcome(pairs, bound)

    def _forward_by_rows(self, q: int, k: int, v: int, o: int, lse: int, certificate: int,
                         dropout: tuple[float, int]) -> Outcome:
        shape = (self.heads, self.batch, self.rows)
        packed = {name: np.empty(shape, dtype=np.float32)
                  for name, wanted in (("lse", lse), ("certificate", certificate)) if wanted}
        done = self.plans[0].forward(q, k, v, o, _address(packed.get("lse")),
                                     _address(packed.get("certificate")), dropout)
        for name, wanted in (("lse", lse), ("certificate", certificate)):
            if wanted:
                self._rows(wanted)[...] = packed[name].transpose(1, 0, 2)
        return done

    def _rows(self, address: int) -> npt.NDArray[np.float32]:
        """The [batch, heads, rows] array at an address."""
        shape = (self.batch, self.heads, self.rows)
        buffer = ffi.buffer(ffi.cast("float *", address), 4 * math.prod(shape))
        return np.frombuffer(buffer, dtype=np.float32).reshape(shape)

    def backward(self, q: int, k: int, v: int, o: int, lse: int, d_o: int, d_q: int, d_k: int,
                 d_v: int, d_decay: Optional[npt.NDArray[np.float64]], itemsize: int,
                 dropout: tuple[float, int] = (0.0, 0)) -> Outcome:
        """As forward; d_decay is [heads, 2], summed over the batch."""
        refuse_unaligned({"do": d_o}, 4)
        if self.by_rows and lse:
            packed = np.ascontiguousarray(self._rows(lse).transpose(1, 0, 2))
            lse = _address(packed)
        per_plan = np.zeros((self.plans[0].heads, 2)) if d_decay is not None else None
        if d_decay is not None:
            d_decay[...] = 0.0
        if self.batch == 0:
            return Outcome(0, 0.0)
        pairs, rows = 0, 4 * self.heads * self.rows
        sizes = (itemsize, itemsize, itemsize, 4)
        for b, plan in enumerate(self.plans):
            x = [b * step * size for step, size in zip(self.steps, sizes)]
            g = [4 * b * step for step in self.steps]
            done = plan.backward(q + x[0], k + x[1], v + x[2], o + x[3], lse + b * rows, d_o + x[3],
                                 d_q and d_q + g[0], d_k and d_k + g[1], d_v and d_v + g[2],
                                 _address(per_plan), (*dropout, b * self.heads))
            pairs += done.pairs
            if d_decay is not None and per_plan is not None:
                d_decay += per_plan.reshape(-1, self.heads, 2).sum(axis=0)
        return Outcome(pairs, 0.0)


class _Maker:
    """Makes the plans of one call."""

    def __init__(self, settings: Settings, options: Options,
                 labels: Optional[npt.NDArray[np.int32]]) -> None:
        self.settings, self.options, self.labels = settings, options, labels

    def __call__(self, arrays: tuple[Array, ...], copies: int,
                 sequences: Sequences) -> Plan:
        q, k, v, o = arrays
        return Plan((q, k, v, o), copies, self.settings, self.options, self.labels, sequences)


def _address(array: Optional[npt.NDArray[Any]]) -> int:
    return 0 if array is None else int(array.__array_interface__["data"][0])


def _one_entry(x: Array) -> Array:
    return Array(1, x.heads, x.rows, x.dim, 0, x.rows * x.dim, x.dim)


def _batch_in_heads(x: Array) -> Array:
    if x.batch == 1:
        return x
    stride = x.batch_stride if x.heads == 1 else x.head_stride
    return x._replace(batch=1, heads=x.batch * x.heads, head_stride=stride)


def _batch_in_rows(x: Array) -> Array:
    return x._replace(batch=1, rows=x.batch * x.rows)


def _pack(edges: tuple[tuple[int, ...], ...], queries: int, keys: int, place: tuple[int, ...],
          ) -> Sequences:
    """Packed sequences: those of each batch entry, which end at its edges."""
    if place:
        return _pack_part(edges, queries, keys, place)
    query_offsets, key_offsets = [0], [0]
    for b, inner in enumerate(edges):
        for edge in (*inner, keys):
            rows = max(0, edge - (keys - queries))
            if (query_offsets[-1], key_offsets[-1]) != (b * queries + rows, b * keys + edge):
                query_offsets.append(b * queries + rows)
                key_offsets.append(b * keys + edge)
    return Sequences(tuple(query_offsets), tuple(key_offsets))


def _pack_part(edges: tuple[tuple[int, ...], ...], queries: int, keys: int,
               place: tuple[int, ...]) -> Sequences:
    """The parts of each batch entry's sequences that lie in the given rows of queries and keys."""
    query, key = place
    extent = ffi.new("plsh_extent *")
    query_offsets, key_offsets, places = [0], [0], []
    for b, inner in enumerate(edges):
        offsets = (0, *inner, max(query + queries, key + keys, *inner))
        room = [ffi.new(kind, len(offsets)) for kind in ("int64_t[]", "int64_t[]", "plsh_place[]")]
        lib.plsh_extent_part(len(offsets) - 1, ffi.new("int64_t[]", offsets),
                             (query, query + queries), (key, key + keys), *room, extent)
        for x in range(extent.sequences):
            query_offsets.append(b * queries + room[0][x + 1])
            key_offsets.append(b * keys + room[1][x + 1])
            places.append((room[2][x].query, room[2][x].key))
    return Sequences(tuple(query_offsets), tuple(key_offsets), tuple(places))


def check_shapes(q: Array, k: Array, v: Array, settings: Settings) -> None:
    """Checks of the arguments, so that messages name them and not the library's descriptor."""
    if not q.batch == k.batch == v.batch:
        raise ValueError(f"q, k, v: batch sizes {q.batch}, {k.batch}, {v.batch}; must be equal")
    if k.heads != v.heads:
        raise ValueError(f"k, v: {k.heads} and {v.heads} heads; must be equal")
    if k.heads == 0 or q.heads % k.heads:
        raise ValueError(f"k: {k.heads} heads, must divide the {q.heads} of q (grouped queries)")
    if k.rows != v.rows:
        raise ValueError(f"k, v: {k.rows} and {v.rows} rows; must be equal")
    if q.dim != k.dim:
        raise ValueError(f"k: rows of {k.dim} elements, must be the {q.dim} of q")
    if k.rows < q.rows and not settings.place:
        raise ValueError(f"k: {k.rows} rows for {q.rows} queries; the queries are the last "
                         "positions of the keys, so there must be at least as many keys")
    if bool(settings.query_offsets) != bool(settings.key_offsets):
        raise ValueError("query_offsets, key_offsets: give both, or none")
    for name, offsets, rows in (("query_offsets", settings.query_offsets, q.rows),
                                ("key_offsets", settings.key_offsets, k.rows)):
        if len(offsets) == 1:
            raise ValueError(f"{name}=[{offsets[0]}]: must be where each packed sequence begins and "
                             f"the end of the last one, from 0 to {rows}")
    if settings.query_offsets and (q.batch > 1 or settings.edges):
        raise ValueError("query_offsets: packed sequences go without a batch dimension")


@lru_cache(maxsize=256)
def cached_call(q: Array, k: Array, v: Array, o: Array, settings: Settings,
                options: Options) -> Call:
    """The call, made once for equal arguments. Plans are constant: threads share them."""
    return Call(q, k, v, o, settings, options)
