/* linear: linear layers: work cut into tiles, each computed by one thread.
 *
 * With many rows all three products are y[m][n] = sum_k a[m][k] b[k][n], b taken panel by panel:
 *
 *     forward   m = row of x, n = output, k = input    a = x     b = W^T, dequantised
 *     input     m = row of x, n = input,  k = output   a = dy    b = W, dequantised
 *     weight    m = output,   n = input,  k = row      a = dy^T  b = x
 *
 * A tile of y is TILE columns wide and some rows high; its sums run over k in steps of DEPTH, in
 * order, for every tile: so the bits do not depend on the threads or the size of tiles. When no
 * tiles are left, a thread without work takes rows from the tile of another thread. */
#include "linear/linear.h"

#include <stdatomic.h>
#include <string.h>

#include "base/arena.h"
#include "base/numbers.h"
#include "base/status.h"
#include "base/thread.h"
#include "linear/bfloat.h"
#include "linear/float.h"
#include "linear/int8.h"
#include "linear/kernels/amx.h"
#include "linear/types.h"

enum {
    DEPTH = 256,     /* of a panel: a panel of 16 or 32 columns is 16 or 32 KiB */
    TILE = 256,      /* columns, at most: panels of 256 KiB, for the second cache */
    ROW_BLOCK = 96,  /* rows that are multiplied with all panels of a tile before the next rows: 96
                        KiB of a */
    WIDENED = 256,   /* the most values of a row that are dequantised at a time */
    DOT_RUN = 32,    /* rows of W that a thread takes at a time */
    NARROW = 48,     /* up to so many rows of x, tiles are narrow: W is read almost in order */
    MOST_LAYERS = 8, /* of forward_many in one go */
    ROWS_LEAST = 8,  /* rows of x in int8 that have to fit into memory; otherwise the product
                        is computed in float32 */
    ROWS_BYTES = 1 << 22, /* bytes of x in int8: 1,680 rows of 1,536 values; more rows are
                             multiplied in parts */
};

_Static_assert(ROWS_LEAST >= (int)PLSH_LINEAR_FEW, "few rows in int8 fit");
_Static_assert(DEPTH == (int)PLSH_INT8_DEPTH, "panels of one depth");
_Static_assert(DEPTH == (int)PLSH_BFLOAT_DEPTH, "panels of one depth");
_Static_assert(DEPTH == (int)PLSH_FLOAT_DEPTH, "panels of one depth");
_Static_assert(ROW_BLOCK == (int)PLSH_BFLOAT_ROWS, "blocks of one height");

/* ---- Memory --------------------------------------------------------------------------------- */

typedef struct thread_memory {
    float *panels;  /* [TILE / width][DEPTH][width] */
    float *widened; /* [PLSH_LINEAR_GROUP][WIDENED], or [TILE] */
    plsh_int8_panels int8;
    plsh_bfloat_memory bfloat;
} thread_memory;

static thread_memory carve(plsh_arena *arena) {
    return (thread_memory){plsh_arena_floats(arena, (size_t)TILE * DEPTH),
                           plsh_arena_floats(arena, (size_t)PLSH_LINEAR_GROUP * WIDENED),
                           plsh_int8_panels_take(arena, TILE),
                           plsh_bfloat_memory_take(arena, TILE)};
}

/* Bytes of one thread's memory. */
static size_t thread_bytes(void) {
    plsh_arena measured = {0};
    carve(&measured);
    return measured.used;
}

/* The part that a thread works on; see parts_of. */
typedef struct part_word {
    _Alignas(64) _Atomic uint64_t rest;
} part_word;

/* The workspace: the memory of each thread; then the rows of x in int8, or a few of them in
 * bfloat16; then the parts. */
size_t plsh_linear_workspace(int threads) {
    return (size_t)threads * (thread_bytes() + sizeof(part_word)) + ROWS_BYTES;
}

static thread_memory memory_of(const plsh_linear_engine *engine, int thread) {
    plsh_arena arena = {.memory = (char *)engine->workspace + (size_t)thread * thread_bytes()};
    return carve(&arena);
}

static void *rows_memory(const plsh_linear_engine *engine) {
    return (char *)engine->workspace + (size_t)engine->threads * thread_bytes();
}

static plsh_int8_rows int8_rows(const plsh_linear_engine *engine, int64_t rows, int64_t in) {
    return plsh_int8_rows_take(&(plsh_arena){.memory = rows_memory(engine)}, rows, in);
}

/* ---- Layers --------------------------------------------------------------------------------- */

plsh_status plsh_linear_make(plsh_linear *layer, const plsh_tensor *weight, const float *bias,
                             int64_t out, int64_t in, plsh_error *error) {
    if (weight->type >= (plsh_weight_type)PLSH_WEIGHT_COMPUTED)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "tensor '%.80s' is of type %s",
                         weight->name, plsh_weight_type_name(weight->type));
    if (weight->rank != 2 || weight->shape[0] != out || weight->shape[1] != in)
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "tensor '%.80s' is %lld x %lld of rank %d; it must be %lld x %lld",
                         weight->name, (long long)weight->shape[0], (long long)weight->shape[1],
                         weight->rank, (long long)out, (long long)in);
    *layer = (plsh_linear){weight->type, weight->data, bias, out, in};
    return PLSH_STATUS_OK;
}

plsh_linear plsh_linear_slice(const plsh_linear *layer, int64_t first, int64_t count) {
    plsh_linear slice = *layer;
    slice.weight =
        (const char *)layer->weight + (size_t)first * plsh_weight_bytes_of(layer->type, layer->in);
    if (slice.bias) slice.bias += first;
    slice.out = count;
    return slice;
}

/* ---- Products of many rows ------------------------------------------------------------------ */

typedef struct product {
    const plsh_linear_kernels *kernels;
    const plsh_int8_kernels *int8; /* one of the two, or NULL: in float32 */
    const plsh_bfloat_kernels *bfloat;
    plsh_int8_rows a_int8; /* a */
    plsh_const_matrix a;
    bool a_transposed; /* a[m][k] is a.data[k * stride + m] */
    /* Puts b[k .. k + depth)[n .. n + columns) into panels. */
    void (*pack)(const struct product *, thread_memory memory, int64_t k, int depth, int64_t n,
                 int columns);
    const plsh_linear *layer; /* of b, where it is W */
    plsh_const_matrix x;      /* b, where it is x */
    plsh_matrix y;
    const float *bias; /* initial value of y: bias, y itself, or 0 */
    bool add;
    int64_t rows, columns, depth;
    int64_t tile_rows, tile_columns, tiles; /* how y is cut */
} product;

static plsh_float_pack float_pack(const product *p, thread_memory memory, int64_t k, int depth,
                                  int64_t n, int columns) {
    return (plsh_float_pack){p->kernels, memory.panels, memory.widened, k, n, depth, columns};
}

/* Pack a part of b into panels: W transposed, W, and x. */
static void pack_transposed(const product *p, thread_memory memory, int64_t k, int depth, int64_t n,
                            int columns) {
    const plsh_float_pack pack = float_pack(p, memory, k, depth, n, columns);
    plsh_float_pack_transposed(&pack, p->layer);
}

static void pack_weights(const product *p, thread_memory memory, int64_t k, int depth, int64_t n,
                         int columns) {
    const plsh_float_pack pack = float_pack(p, memory, k, depth, n, columns);
    plsh_float_pack_weights(&pack, p->layer);
}

static void pack_floats(const product *p, thread_memory memory, int64_t k, int depth, int64_t n,
                        int columns) {
    const plsh_float_pack pack = float_pack(p, memory, k, depth, n, columns);
    plsh_float_pack_floats(&pack, p->x);
}

/* The sums over the inputs from k on begin with y itself, the bias, or 0 (start NULL). */
static void set_start(const product *p, int64_t k, int64_t column, const float *y,
                      const float **start, ptrdiff_t *stride) {
    if (k > 0 || p->add) {
        *start = y;
        *stride = p->y.stride;
    } else if (p->bias) {
        *start = p->bias + column;
    }
}

_Static_assert(ROW_BLOCK * sizeof(float) <= TILE * sizeof(uint16_t), "block_of has room");

/* a is stored transposed (a[k][m]). Copies its rows m .. to [DEPTH][ROW_BLOCK], into the memory of
 * the bfloat16 panels, which is free here. In place, consecutive k are 4 or 16 KiB apart and fall
 * into the same set of the cache: with AVX2 on a Zen 5 the gradients of q's weights and of the
 * head's then had 0.71 and 0.73 of sgemm's speed, and have 0.99 and 1.05 copied. With AVX-512 the
 * copy costs 2 % of these products. */
static const float *block_of(const product *p, thread_memory memory, int64_t k, int depth,
                             int64_t m, int64_t rows) {
    float *block = (float *)(void *)memory.bfloat.panels;
    for (int i = 0; i < depth; i++)
        memcpy(block + (ptrdiff_t)i * ROW_BLOCK, p->a.data + (k + i) * p->a.stride + m,
               (size_t)rows * sizeof *block);
    return block;
}

/* Rows from m on, columns of the tile from n on, inputs k .. k + depth - 1. */
static void multiply_panels(const product *p, thread_memory memory, int64_t k, int depth, int64_t m,
                            int64_t rows, int64_t n, int columns) {
    const int width = p->kernels->width;
    const float *a =
        p->a_transposed ? block_of(p, memory, k, depth, m, rows) : p->a.data + m * p->a.stride + k;
    for (int c = 0; c < columns; c += width) {
        float *y = p->y.data + m * p->y.stride + n + c;
        plsh_linear_product block = {
            .a = a,
            .a_row = p->a_transposed ? 1 : p->a.stride,
            .a_step = p->a_transposed ? ROW_BLOCK : 1,
            .panel = memory.panels + (ptrdiff_t)c * DEPTH,
            .rows = rows,
            .depth = depth,
            .columns = columns - c < width ? columns - c : width,
            .y = y,
            .y_stride = p->y.stride,
        };
        set_start(p, k, n + c, y, &block.start, &block.start_stride);
        p->kernels->multiply(&block);
    }
}

/* W in int8. */
static void pack_int8(const product *p, thread_memory memory, int64_t k, int depth, int64_t n,
                      int columns) {
    plsh_int8_pack(p->int8, p->layer, &memory.int8, k, depth, n, columns);
}

static void multiply_int8(const product *p, thread_memory memory, int64_t k, int depth, int64_t m,
                          int64_t rows, int64_t n, int columns) {
    const int width = p->int8->plain->width;
    for (int c = 0; c < columns; c += width) {
        float *y = p->y.data + m * p->y.stride + n + c;
        const ptrdiff_t at = (ptrdiff_t)c * DEPTH;
        plsh_int8_product block = {
            .x = p->a_int8,
            .first = m,
            .rows = rows,
            .k = k,
            .depth = depth,
            .panel = memory.int8.bytes + at,
            .scale = memory.int8.scale + at / 16,
            .offset = memory.int8.offset + at / 16,
            .columns = columns - c < width ? columns - c : width,
            .y = y,
            .y_stride = p->y.stride,
        };
        set_start(p, k, n + c, y, &block.start, &block.start_stride);
        plsh_int8_multiply(p->int8, p->layer->type, &block);
    }
}

/* The same three in bfloat16. */
static void pack_transposed_bfloat(const product *p, thread_memory memory, int64_t k, int depth,
                                   int64_t n, int columns) {
    plsh_bfloat_pack_transposed(
        &(plsh_bfloat_pack){p->bfloat, memory.bfloat, memory.widened, k, n, depth, columns},
        p->layer);
}

static void pack_weights_bfloat(const product *p, thread_memory memory, int64_t k, int depth,
                                int64_t n, int columns) {
    plsh_bfloat_pack_weights(
        &(plsh_bfloat_pack){p->bfloat, memory.bfloat, memory.widened, k, n, depth, columns},
        p->layer);
}

static void pack_floats_bfloat(const product *p, thread_memory memory, int64_t k, int depth,
                               int64_t n, int columns) {
    plsh_bfloat_pack_floats(
        &(plsh_bfloat_pack){p->bfloat, memory.bfloat, memory.widened, k, n, depth, columns}, p->x);
}

static void multiply_bfloat(const product *p, thread_memory memory, int64_t k, int depth, int64_t m,
                            int64_t rows, int64_t n, int columns) {
    const int width = p->bfloat->plain->width;
    const ptrdiff_t at = p->a_transposed ? k * p->a.stride + m : m * p->a.stride + k;
    const bool by_pairs = p->a_transposed && !p->bfloat->tiles;
    plsh_bfloat_take_block(p->bfloat, &memory.bfloat,
                           (plsh_const_matrix){p->a.data + at, p->a.stride}, p->a_transposed,
                           (int)rows, depth);
    for (int c = 0; c < columns; c += width) {
        float *y = p->y.data + m * p->y.stride + n + c;
        plsh_bfloat_product block = {
            .a = memory.bfloat.block,
            .a_row = by_pairs ? 1 : DEPTH / 2,
            .a_step = by_pairs ? ROW_BLOCK : 1,
            .panel = memory.bfloat.panels + (ptrdiff_t)c * DEPTH,
            .rows = rows,
            .pairs = (depth + 1) / 2,
            .columns = columns - c < width ? columns - c : width,
            .y = y,
            .y_stride = p->y.stride,
        };
        set_start(p, k, n + c, y, &block.start, &block.start_stride);
        if (p->bfloat->tiles)
            p->bfloat->tiles->bfloat(p->bfloat, &block);
        else
            p->bfloat->multiply(&block);
    }
}

/* Tiles as large as they may be, but enough of them to keep all threads busy: a multiple of the
 * threads where the columns allow it (twice as many, of half the height, were 5 to 10 % slower in
 * training at 1k), otherwise two each at least. `unit`: columns that stay together. */
static void cut(product *p, int threads, int64_t unit) {
    int64_t units = (p->columns + unit - 1) / unit, most = p->rows <= NARROW ? 1 : TILE / unit;
    int64_t across = (units + most - 1) / most;
    if (threads > 1) across = (across + threads - 1) / threads * threads;
    if (across > units) across = units;
    if (across < 1) across = 1;
    p->tile_columns = (units + across - 1) / across * unit;
    across = (p->columns + p->tile_columns - 1) / p->tile_columns;
    int64_t down = across % threads == 0 ? 1 : (2 * threads + across - 1) / across;
    p->tile_rows = (p->rows + down - 1) / down;
    p->tile_rows = (p->tile_rows + ROW_BLOCK - 1) / ROW_BLOCK * ROW_BLOCK;
    p->tiles = across * ((p->rows + p->tile_rows - 1) / p->tile_rows);
}

static int64_t unit_of(plsh_weight_type type) {
    return plsh_weight_kinds[type].block == 256 ? 256 : PLSH_LINEAR_GROUP;
}

/* ---- Tiles and parts of them ---------------------------------------------------------------- */

/* Several products; their tiles are numbered consecutively. */
typedef struct product_list {
    const plsh_linear_engine *engine;
    const product *products;
    int64_t tiles;
    bool shared;          /* parts fit into words: threads take rows from one another */
    _Atomic int64_t next; /* the first tile that is not taken */
} product_list;

/* A part is a tile, or its last blocks of rows. Its thread takes the blocks one by one, for one
 * step of k after another. A thread without work takes the last half of the blocks that are left in
 * the current step, and these go on with that step in its own memory. So where a thread is not
 * running, as on a busy machine, the others wait for one block and not for a tile.
 *
 * One 64-bit word holds what is left: the tile, the step, and in the tile the next block and the
 * end. No value occurs twice in a call, because a block is computed once in every step. */
enum { TILE_BITS = 20, STEP_BITS = 14, BLOCK_BITS = 15 };

typedef struct part {
    int64_t tile, step, next, end;
} part;

static uint64_t word_of(part p) {
    return (((uint64_t)p.tile << STEP_BITS | (uint64_t)p.step) << BLOCK_BITS | (uint64_t)p.next)
               << BLOCK_BITS |
           (uint64_t)p.end;
}

static part part_of(uint64_t word) {
    const int64_t blocks = (1 << BLOCK_BITS) - 1, steps = (1 << STEP_BITS) - 1;
    return (part){(int64_t)(word >> (STEP_BITS + 2 * BLOCK_BITS)),
                  (int64_t)(word >> 2 * BLOCK_BITS) & steps, (int64_t)(word >> BLOCK_BITS) & blocks,
                  (int64_t)word & blocks};
}

static part_word *parts_of(const plsh_linear_engine *engine) {
    return (part_word *)((char *)rows_memory(engine) + ROWS_BYTES);
}

static int64_t blocks_of(const product *p, int64_t top) {
    return (plsh_least(p->tile_rows, p->rows - top) + ROW_BLOCK - 1) / ROW_BLOCK;
}

/* The tile's product, and the first row and column of the tile. */
typedef struct place {
    const product *p;
    int64_t top, n;
    int columns;
} place;

static place place_of(const product_list *all, int64_t tile) {
    const product *p = all->products;
    for (; tile >= p->tiles; p++) tile -= p->tiles;
    const int64_t across = (p->columns + p->tile_columns - 1) / p->tile_columns;
    const int64_t n = tile % across * p->tile_columns;
    return (place){p, tile / across * p->tile_rows, n,
                   (int)plsh_least(p->tile_columns, p->columns - n)};
}

static void run_block(const place *at, thread_memory memory, int64_t k, int depth, int64_t block) {
    const product *p = at->p;
    const int64_t m = at->top + block * ROW_BLOCK;
    const int64_t rows = plsh_least(ROW_BLOCK, plsh_least(at->top + p->tile_rows, p->rows) - m);
    if (p->int8)
        multiply_int8(p, memory, k, depth, m, rows, at->n, at->columns);
    else if (p->bfloat)
        multiply_bfloat(p, memory, k, depth, m, rows, at->n, at->columns);
    else
        multiply_panels(p, memory, k, depth, m, rows, at->n, at->columns);
}

/* Takes the next block of this thread's part, from whose end other threads may take blocks. */
static bool take_block(part_word *own, int64_t *block) {
    uint64_t seen = atomic_load_explicit(&own->rest, memory_order_relaxed);
    for (;;) {
        part left = part_of(seen);
        if (left.next >= left.end) return false;
        *block = left.next++;
        if (atomic_compare_exchange_weak_explicit(&own->rest, &seen, word_of(left),
                                                  memory_order_acq_rel, memory_order_relaxed))
            return true;
    }
}

/* A whole tile by one thread, if there are too many tiles, steps or blocks for a word. */
static void run_alone(const product_list *all, int slot, part work) {
    const thread_memory memory = memory_of(all->engine, slot);
    const place at = place_of(all, work.tile);
    for (int64_t k = 0; k == 0 || k < at.p->depth; k += DEPTH) {
        const int depth = (int)plsh_least(DEPTH, at.p->depth - k);
        at.p->pack(at.p, memory, k, depth, at.n, at.columns);
        for (int64_t block = 0; block < work.end; block++) run_block(&at, memory, k, depth, block);
    }
}

static void run_part(const product_list *all, int slot, part work) {
    part_word *own = &parts_of(all->engine)[slot];
    const thread_memory memory = memory_of(all->engine, slot);
    const place at = place_of(all, work.tile);
    const int64_t first = work.next;
    for (;; work.step++) {
        const int64_t k = work.step * DEPTH;
        const int depth = (int)plsh_least(DEPTH, at.p->depth - k);
        atomic_store_explicit(&own->rest, word_of(work), memory_order_release);
        at.p->pack(at.p, memory, k, depth, at.n, at.columns);
        for (int64_t block; take_block(own, &block);) run_block(&at, memory, k, depth, block);
        work.end = part_of(atomic_load_explicit(&own->rest, memory_order_relaxed)).end;
        if (work.end == first || k + DEPTH >= at.p->depth) return;
    }
}

/* Takes the last half of what another thread has left, rounded up. */
static bool take_part(const product_list *all, int slot, part *taken) {
    part_word *parts = parts_of(all->engine);
    for (int i = 1; i < all->engine->threads; i++) {
        part_word *from = &parts[(slot + i) % all->engine->threads];
        uint64_t seen = atomic_load_explicit(&from->rest, memory_order_relaxed);
        for (part left = part_of(seen); left.next < left.end; left = part_of(seen)) {
            *taken = left;
            taken->next = left.end = left.next + (left.end - left.next) / 2;
            if (atomic_compare_exchange_weak_explicit(&from->rest, &seen, word_of(left),
                                                      memory_order_acq_rel, memory_order_relaxed))
                return true;
        }
    }
    return false;
}

static void run_work(const product_list *all, int slot, part work) {
    const product *p = place_of(all, work.tile).p;
    const plsh_tile_kernels *tiles =
        plsh_tiles_begin(p->int8, p->bfloat, p->int8 ? p->layer->type : PLSH_WEIGHT_F32);
    (all->shared ? run_part : run_alone)(all, slot, work);
    if (tiles) tiles->end();
}

/* The work of one thread: whole tiles while there are any, then rows of other threads' tiles. */
static void run_thread(void *context, int64_t chunk, int slot) {
    product_list *all = context;
    (void)chunk;
    for (int64_t tile; (tile = atomic_fetch_add(&all->next, 1)) < all->tiles;) {
        const place at = place_of(all, tile);
        run_work(all, slot, (part){tile, 0, 0, blocks_of(at.p, at.top)});
    }
    for (part taken; all->shared && take_part(all, slot, &taken);) run_work(all, slot, taken);
}

static void run_products(const plsh_linear_engine *engine, const product *products, int count) {
    product_list all = {.engine = engine, .products = products, .shared = true};
    part_word *parts = parts_of(engine);
    int64_t blocks = 0;
    for (int i = 0; i < count; i++) {
        const product *p = &products[i];
        all.tiles += p->tiles;
        blocks += p->tiles * blocks_of(p, 0);
        all.shared = all.shared && p->depth <= (int64_t)DEPTH << STEP_BITS &&
                     blocks_of(p, 0) < 1 << BLOCK_BITS;
    }
    all.shared = all.shared && all.tiles <= 1 << TILE_BITS;
    for (int i = 0; i < engine->threads; i++) atomic_store(&parts[i].rest, 0);
    plsh_thread_run(engine->threads, plsh_least(engine->threads, blocks), run_thread, &all);
}

/* ---- Few rows ------------------------------------------------------------------------------- */

/* The sums of the groups of x, for the types with offsets, in the memory of the panels. */
static void sum_groups(float *sums, int64_t rows, int64_t in, plsh_const_matrix x) {
    const int64_t groups = in / PLSH_LINEAR_GROUP;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t g = 0; g < groups; g++) {
            const float *from = x.data + r * x.stride + g * PLSH_LINEAR_GROUP;
            float sum = 0.0f;
            for (int i = 0; i < PLSH_LINEAR_GROUP; i++) sum += from[i];
            sums[r * groups + g] = sum;
        }
    }
}

/* Several layers of one input; their runs of outputs are numbered consecutively. */
typedef struct few_rows {
    const plsh_linear_engine *engine;
    const plsh_linear *layers;
    const plsh_matrix *y;
    const float *sums;
    int64_t rows;
    plsh_const_matrix x;
    plsh_int8_rows x_int8;    /* where a layer is computed in int8 */
    const uint16_t *x_bfloat; /* where all are computed in bfloat16 */
    bool add;
} few_rows;

bool plsh_linear_in_int8(const plsh_linear *layer) {
    return layer->type > PLSH_WEIGHT_BF16 &&
           plsh_int8_rows_fit(ROWS_BYTES, layer->in) >= ROWS_LEAST;
}

static bool is_int8(const plsh_linear_engine *engine, const plsh_linear *layer) {
    return engine->int8 && plsh_linear_in_int8(layer);
}

/* How many rows from row r on a kernel takes at once. */
static int taken(const few_rows *few, int64_t r) {
    const int64_t rest = few->rows - r;
    return (int)(rest < PLSH_LINEAR_FEW_ROWS ? rest : PLSH_LINEAR_FEW_ROWS);
}

/* What the outputs of a layer from number `first` on begin with: what is at `to`, the bias, or
 * NULL: 0. */
static const float *start_of(const few_rows *few, const plsh_linear *layer, int64_t first,
                             const float *to) {
    if (few->add) return to;
    return layer->bias ? layer->bias + first : NULL;
}

/* Run number `run` of layer number i, in int8. */
static void run_int8_dots(const few_rows *few, int i, int64_t run) {
    const plsh_linear *layer = &few->layers[i];
    const plsh_matrix y = few->y[i];
    const int64_t first = run * DOT_RUN;
    const size_t row_bytes = plsh_weight_bytes_of(layer->type, layer->in);
    float *to = y.data + first;
    plsh_int8_dot dot = {
        .weight = (const char *)layer->weight + (size_t)first * row_bytes,
        .row_bytes = row_bytes,
        .outs = plsh_least(DOT_RUN, layer->out - first),
        .start = start_of(few, layer, first, to),
        .start_stride = few->add ? y.stride : 0,
        .y = to,
        .y_stride = y.stride,
    };
    for (int64_t r = 0; r < few->rows; r += dot.rows) {
        dot.x = plsh_int8_rows_from(&few->x_int8, r);
        dot.rows = taken(few, r);
        few->engine->int8->dot[layer->type](&dot);
        dot.y += dot.rows * dot.y_stride;
        if (dot.start) dot.start += dot.rows * dot.start_stride;
    }
}

static int64_t whole_groups(int64_t in) {
    return (in + PLSH_LINEAR_GROUP - 1) / PLSH_LINEAR_GROUP * PLSH_LINEAR_GROUP;
}

/* The same in bfloat16. A rounded row of W is stored in the memory of the panels. */
static void run_bfloat_dots(const few_rows *few, int i, int64_t run, int slot) {
    const plsh_linear *layer = &few->layers[i];
    const plsh_matrix y = few->y[i];
    const int64_t first = run * DOT_RUN;
    const thread_memory memory = memory_of(few->engine, slot);
    float *to = y.data + first;
    const plsh_bfloat_dot dot = {
        .in = layer->in,
        .x = few->x_bfloat,
        .x_stride = whole_groups(layer->in),
        .rows = (int)few->rows,
        .start = start_of(few, layer, first, to),
        .start_stride = few->add ? y.stride : 0,
        .y = to,
        .y_stride = y.stride,
    };
    plsh_bfloat_dots(few->engine->bfloat, layer, first, plsh_least(DOT_RUN, layer->out - first),
                     dot, memory.widened, memory.bfloat.panels);
}

/* Run number `run` of layer number i, in float32. */
static void run_dots(const few_rows *few, int i, int64_t run) {
    const plsh_linear *layer = &few->layers[i];
    const plsh_matrix y = few->y[i];
    const int64_t first = run * DOT_RUN;
    const size_t row_bytes = plsh_weight_bytes_of(layer->type, layer->in);
    float *to = y.data + first;
    plsh_linear_dot dot = {
        .weight = (const char *)layer->weight + (size_t)first * row_bytes,
        .row_bytes = row_bytes,
        .outs = plsh_least(DOT_RUN, layer->out - first),
        .in = layer->in,
        .x = few->x.data,
        .x_stride = few->x.stride,
        .sums = few->sums,
        .sums_stride = layer->in / PLSH_LINEAR_GROUP,
        .start = start_of(few, layer, first, to),
        .start_stride = few->add ? y.stride : 0,
        .y = to,
        .y_stride = y.stride,
    };
    for (int64_t r = 0; r < few->rows; r += dot.rows) {
        dot.rows = taken(few, r);
        few->engine->kernels->dot[layer->type](&dot);
        dot.x += dot.rows * dot.x_stride;
        dot.sums += dot.rows * dot.sums_stride;
        dot.y += dot.rows * dot.y_stride;
        if (dot.start) dot.start += dot.rows * dot.start_stride;
    }
}

static int64_t runs_of(const plsh_linear *layer) { return (layer->out + DOT_RUN - 1) / DOT_RUN; }

static void run_runs(void *context, int64_t first, int64_t end, int slot) {
    const few_rows *few = context;
    int i = 0;
    int64_t run = first;
    for (int64_t left = end - first; left > 0; left--, run++) {
        for (; run >= runs_of(&few->layers[i]); i++) run -= runs_of(&few->layers[i]);
        if (is_int8(few->engine, &few->layers[i]))
            run_int8_dots(few, i, run);
        else if (few->engine->bfloat)
            run_bfloat_dots(few, i, run, slot);
        else
            run_dots(few, i, run);
    }
}

static int count_int8(const plsh_linear_engine *engine, const plsh_linear *layers, int count) {
    int found = 0;
    for (int i = 0; i < count; i++) found += is_int8(engine, &layers[i]);
    return found;
}

/* Rows of x in bfloat16, padded to whole groups. */
static const uint16_t *narrow_rows(const plsh_linear_engine *engine, int64_t rows, int64_t in,
                                   plsh_const_matrix x) {
    uint16_t *to = rows_memory(engine);
    const int64_t stride = whole_groups(in);
    for (int64_t r = 0; r < rows; r++) {
        plsh_bfloat_narrow(engine->bfloat, x.data + r * x.stride, to + r * stride, in);
        memset(to + r * stride + in, 0, (size_t)(stride - in) * sizeof *to);
    }
    return to;
}

static void forward_few(const plsh_linear_engine *engine, const plsh_linear *layers,
                        const plsh_matrix *y, int count, int64_t rows, plsh_const_matrix x,
                        bool add) {
    int64_t total = 0;
    for (int i = 0; i < count; i++) total += runs_of(&layers[i]);
    float *sums = engine->workspace;
    const int in_int8 = count_int8(engine, layers, count);
    few_rows few = {engine, layers, y, sums, rows, x, {0}, NULL, add};
    if (engine->bfloat)
        few.x_bfloat = narrow_rows(engine, rows, layers[0].in, x);
    else if (in_int8 < count)
        sum_groups(sums, rows, layers[0].in, x);
    if (in_int8 > 0) {
        few.x_int8 = int8_rows(engine, rows, layers[0].in);
        plsh_int8_quantise(&few.x_int8, rows, x, engine->threads);
    }
    plsh_thread_rows(engine->threads, total, 1, run_runs, &few);
}

/* ---- Public functions ----------------------------------------------------------------------- */

static product forward_product(const plsh_linear_engine *engine, const plsh_linear *layer,
                               int64_t rows, plsh_const_matrix x, plsh_matrix y, bool add) {
    product p = {.kernels = engine->kernels,
                 .int8 = is_int8(engine, layer) ? engine->int8 : NULL,
                 .bfloat = engine->bfloat,
                 .a = x,
                 .pack = is_int8(engine, layer) ? pack_int8
                         : engine->bfloat       ? pack_transposed_bfloat
                                                : pack_transposed,
                 .layer = layer,
                 .y = y,
                 .bias = layer->bias,
                 .add = add,
                 .rows = rows,
                 .columns = layer->out,
                 .depth = layer->in};
    cut(&p, engine->threads, PLSH_LINEAR_GROUP);
    return p;
}

static plsh_const_matrix rows_from(plsh_const_matrix x, int64_t first) {
    return (plsh_const_matrix){x.data + first * x.stride, x.stride};
}

/* Layers of one input and many rows. If some are in int8, takes as many rows at a time as fit in
 * int8. */
static void forward_products(const plsh_linear_engine *engine, const plsh_linear *layers,
                             const plsh_matrix *y, int count, int64_t rows, plsh_const_matrix x,
                             bool add) {
    const int64_t in = layers[0].in;
    const bool any = count_int8(engine, layers, count) > 0;
    const int64_t fit = any ? plsh_int8_rows_fit(ROWS_BYTES, in) : rows;
    const int64_t step = any && fit > ROW_BLOCK ? fit / ROW_BLOCK * ROW_BLOCK : fit;
    for (int64_t first = 0; first < rows; first += step) {
        const int64_t some = plsh_least(step, rows - first);
        product products[MOST_LAYERS];
        const plsh_const_matrix from = rows_from(x, first);
        plsh_int8_rows quantised = {0};
        if (any) {
            quantised = int8_rows(engine, some, in);
            plsh_int8_quantise(&quantised, some, from, engine->threads);
        }
        for (int i = 0; i < count; i++) {
            const plsh_matrix to = {y[i].data + first * y[i].stride, y[i].stride};
            products[i] = forward_product(engine, &layers[i], some, from, to, add);
            products[i].a_int8 = quantised;
        }
        run_products(engine, products, count);
    }
}

/* Layers that are all in int8 have the same bits by dot products and by panels: the faster is
 * taken. For up to PLSH_LINEAR_FEW rows of others the sums of the groups of x must fit into the
 * memory of one thread, so that the choice of the method depends neither on the number of threads
 * nor on the other rows. In bfloat16 a row of W must fit into the panels. */
static bool is_few(const plsh_linear_engine *engine, const plsh_linear *layers, int count,
                   int64_t rows) {
    const int64_t in = layers[0].in;
    if (count_int8(engine, layers, count) == count) return rows <= engine->int8->few;
    if (engine->bfloat && in > TILE * DEPTH) return false;
    return rows <= PLSH_LINEAR_FEW &&
           (size_t)(PLSH_LINEAR_FEW * (in / PLSH_LINEAR_GROUP)) * sizeof(float) <= thread_bytes();
}

void plsh_linear_forward_many(const plsh_linear_engine *engine, const plsh_linear *layers,
                              const plsh_matrix *y, int count, int64_t rows, plsh_const_matrix x) {
    if (rows == 0) return;
    for (int from = 0; from < count; from += MOST_LAYERS) {
        const int some = count - from < MOST_LAYERS ? count - from : MOST_LAYERS;
        if (is_few(engine, layers + from, some, rows)) {
            forward_few(engine, layers + from, y + from, some, rows, x, false);
            continue;
        }
        forward_products(engine, layers + from, y + from, some, rows, x, false);
    }
}

void plsh_linear_forward(const plsh_linear_engine *engine, const plsh_linear *layer, int64_t rows,
                         plsh_const_matrix x, plsh_matrix y, bool add) {
    if (rows == 0) return;
    if (is_few(engine, layer, 1, rows)) {
        forward_few(engine, layer, &y, 1, rows, x, add);
        return;
    }
    forward_products(engine, layer, &y, 1, rows, x, add);
}

static product input_product(const plsh_linear_engine *engine, const plsh_linear *layer,
                             int64_t rows, plsh_const_matrix dy, plsh_matrix dx, bool add) {
    product p = {.kernels = engine->kernels,
                 .bfloat = engine->bfloat,
                 .a = dy,
                 .pack = engine->bfloat ? pack_weights_bfloat : pack_weights,
                 .layer = layer,
                 .y = dx,
                 .add = add,
                 .rows = rows,
                 .columns = layer->in,
                 .depth = layer->out};
    cut(&p, engine->threads, unit_of(layer->type));
    return p;
}

static product weight_product(const plsh_linear_engine *engine, const plsh_linear *layer,
                              int64_t rows, plsh_const_matrix dy, plsh_const_matrix x, float *dw) {
    product p = {.kernels = engine->kernels,
                 .bfloat = engine->bfloat,
                 .a = dy,
                 .a_transposed = true,
                 .pack = engine->bfloat ? pack_floats_bfloat : pack_floats,
                 .x = x,
                 .y = {dw, layer->in},
                 .add = true,
                 .rows = layer->out,
                 .columns = layer->in,
                 .depth = rows};
    cut(&p, engine->threads, PLSH_LINEAR_GROUP);
    return p;
}

void plsh_linear_backward(const plsh_linear_engine *engine, const plsh_linear *layer, int64_t rows,
                          plsh_const_matrix dy, plsh_const_matrix x, float *dw, plsh_matrix dx,
                          bool add) {
    product products[2];
    int count = 0;
    if (rows == 0) return;
    if (dw) products[count++] = weight_product(engine, layer, rows, dy, x, dw);
    if (dx.data) products[count++] = input_product(engine, layer, rows, dy, dx, add);
    if (count > 0) run_products(engine, products, count);
}
