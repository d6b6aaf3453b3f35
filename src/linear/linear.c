/* linear: linear layers: work cut into tiles, each computed by one thread.
 *
 * With many rows all three products are y[m][n] = sum_k a[m][k] b[k][n], b taken panel by panel:
 *
 *     forward   m = row of x, n = output, k = input    a = x     b = W^T, dequantised
 *     input     m = row of x, n = input,  k = output   a = dy    b = W, dequantised
 *     weight    m = output,   n = input,  k = row      a = dy^T  b = x
 *
 * A tile of y is TILE columns wide and some rows high; its sums run over k in steps of DEPTH, in
 * order, for every tile: so the bits do not depend on the threads or the size of tiles. */
#include "linear/linear.h"

#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "linear/bfloat.h"
#include "linear/int8.h"
#include "linear/types.h"

enum {
    DEPTH = 256, /* of a panel: a panel of 16 or 32 columns is 16 or 32 KiB */
    TILE = 256,  /* columns, at most: panels of 256 KiB, for the second cache */
    ROW_BLOCK =
        96,        /* rows multiplied with all panels of a tile before the next rows: 96 KiB of a */
    WIDENED = 256, /* the most values of a row that are dequantised at a time */
    DOT_RUN = 32,  /* rows of W that a thread takes at a time */
    MOST_LAYERS = 8,      /* of forward_many in one go */
    ROWS_LEAST = 8,       /* of x in int8 that have to fit, or else the product is in float32 */
    ROWS_BYTES = 1 << 22, /* of x in int8: 1,680 rows of 1,536 values; more go in parts */
};

_Static_assert(PLSH_LINEAR_FEW_ROWS == (int)PLSH_LINEAR_FEW, "one number");
_Static_assert(DEPTH == (int)PLSH_INT8_DEPTH, "panels of one depth");
_Static_assert(DEPTH == (int)PLSH_BFLOAT_DEPTH, "panels of one depth");
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

/* That of each thread, then the rows of x in int8, or few of them in bfloat16. */
size_t plsh_linear_workspace(int threads) { return (size_t)threads * thread_bytes() + ROWS_BYTES; }

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
    bool a_turned; /* a[m][k] is a.data[k * stride + m] */
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

/* The panel that begins with this column of the tile. */
static float *panel_at(thread_memory memory, int column) {
    return memory.panels + (ptrdiff_t)column * DEPTH;
}

/* Rows n.. of W become columns. */
static void pack_turned(const product *p, thread_memory memory, int64_t k, int depth, int64_t n,
                        int columns) {
    const plsh_linear_kernels *kernels = p->kernels;
    const plsh_linear *layer = p->layer;
    const int width = kernels->width;
    const size_t row_bytes = plsh_weight_bytes_of(layer->type, layer->in);
    const int step = plsh_weight_kinds[layer->type].block == 256 ? 256 : 64;
    for (int c = 0; c < columns; c += width) {
        const int have = columns - c < width ? columns - c : width;
        const char *rows = (const char *)layer->weight + (size_t)(n + c) * row_bytes;
        for (int from = 0; from < depth; from += step) {
            const int count = depth - from < step ? depth - from : step;
            const char *first = rows + plsh_weight_bytes_of(layer->type, k + from);
            for (int r = 0; r < have; r++) {
                const char *piece = first + (size_t)r * row_bytes;
                plsh_weight_prefetch(piece + plsh_weight_bytes_of(layer->type, step), layer->type,
                                     step);
                kernels->widen[layer->type](piece, memory.widened + r * step, count);
            }
            kernels->transpose(panel_at(memory, c) + (ptrdiff_t)from * width, memory.widened, step,
                               have, count);
        }
    }
}

/* One row of b, `columns` floats, into row k of the panels. */
static void pack_row(thread_memory memory, int width, const float *row, int k, int columns) {
    for (int c = 0; c < columns; c += width) {
        const int have = columns - c < width ? columns - c : width;
        float *to = panel_at(memory, c) + (ptrdiff_t)k * width;
        memcpy(to, row + c, (size_t)have * sizeof *to);
        for (int i = have; i < width; i++) to[i] = 0.0f;
    }
}

static void pack_straight(const product *p, thread_memory memory, int64_t k, int depth, int64_t n,
                          int columns) {
    const plsh_linear *layer = p->layer;
    const size_t row_bytes = plsh_weight_bytes_of(layer->type, layer->in);
    for (int i = 0; i < depth; i++) {
        const char *row = (const char *)layer->weight + (size_t)(k + i) * row_bytes;
        p->kernels->widen[layer->type](row + plsh_weight_bytes_of(layer->type, n), memory.widened,
                                       columns);
        pack_row(memory, p->kernels->width, memory.widened, i, columns);
    }
}

static void pack_floats(const product *p, thread_memory memory, int64_t k, int depth, int64_t n,
                        int columns) {
    for (int i = 0; i < depth; i++)
        pack_row(memory, p->kernels->width, p->x.data + (k + i) * p->x.stride + n, i, columns);
}

/* Rows m.. of the tile's columns n.. against the panels of k... */
static void multiply_panels(const product *p, thread_memory memory, int64_t k, int depth, int64_t m,
                            int64_t rows, int64_t n, int columns) {
    const int width = p->kernels->width;
    for (int c = 0; c < columns; c += width) {
        float *y = p->y.data + m * p->y.stride + n + c;
        plsh_linear_product block = {
            .a = p->a.data + (p->a_turned ? k * p->a.stride + m : m * p->a.stride + k),
            .a_row = p->a_turned ? 1 : p->a.stride,
            .a_step = p->a_turned ? p->a.stride : 1,
            .panel = panel_at(memory, c),
            .rows = rows,
            .depth = depth,
            .columns = columns - c < width ? columns - c : width,
            .y = y,
            .y_stride = p->y.stride,
        };
        if (k > 0 || p->add) {
            block.start = y;
            block.start_stride = p->y.stride;
        } else if (p->bias) {
            block.start = p->bias + n + c;
        }
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
        if (k > 0 || p->add) {
            block.start = y;
            block.start_stride = p->y.stride;
        } else if (p->bias) {
            block.start = p->bias + n + c;
        }
        p->int8->multiply[p->layer->type](&block);
    }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The same three in bfloat16. */
static void pack_turned_bfloat(const product *p, thread_memory memory, int64_t k, int depth,
                               int64_t n, int columns) {
    plsh_bfloat_pack_turned(
        &(plsh_bfloat_pack){p->bfloat, memory.bfloat, memory.widened, k, n, depth, columns},
        p->layer);
}

static void pack_straight_bfloat(const product *p, thread_memory memory, int64_t k, int depth,
                                 int64_t n, int columns) {
    plsh_bfloat_pack_straight(
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
    const ptrdiff_t at = p->a_turned ? k * p->a.stride + m : m * p->a.stride + k;
    plsh_bfloat_take_block(p->bfloat, &memory.bfloat,
                           (plsh_const_matrix){p->a.data + at, p->a.stride}, p->a_turned, (int)rows,
                           depth);
    for (int c = 0; c < columns; c += width) {
        float *y = p->y.data + m * p->y.stride + n + c;
        plsh_bfloat_product block = {
            .a = memory.bfloat.block,
            .a_row = p->a_turned ? 1 : DEPTH / 2,
            .a_step = p->a_turned ? ROW_BLOCK : 1,
            .panel = memory.bfloat.panels + (ptrdiff_t)c * DEPTH,
            .rows = rows,
            .pairs = (depth + 1) / 2,
            .columns = columns - c < width ? columns - c : width,
            .y = y,
            .y_stride = p->y.stride,
        };
        if (k > 0 || p->add) {
            block.start = y;
            block.start_stride = p->y.stride;
        } else if (p->bias) {
            block.start = p->bias + n + c;
        }
        p->bfloat->multiply(&block);
    }
}

static void run_tile(const product *p, thread_memory memory, int64_t tile) {
    const int64_t across = (p->columns + p->tile_columns - 1) / p->tile_columns;
    const int64_t n = tile % across * p->tile_columns, top = tile / across * p->tile_rows;
    const int columns = (int)least(p->tile_columns, p->columns - n);
    const int64_t end = least(top + p->tile_rows, p->rows);
    for (int64_t k = 0; k == 0 || k < p->depth; k += DEPTH) {
        const int depth = (int)least(DEPTH, p->depth - k);
        p->pack(p, memory, k, depth, n, columns);
        for (int64_t m = top; m < end; m += ROW_BLOCK) {
            const int64_t rows = least(ROW_BLOCK, end - m);
            if (p->int8)
                multiply_int8(p, memory, k, depth, m, rows, n, columns);
            else if (p->bfloat)
                multiply_bfloat(p, memory, k, depth, m, rows, n, columns);
            else
                multiply_panels(p, memory, k, depth, m, rows, n, columns);
        }
    }
}

/* Tiles as large as they may be, but enough of them to keep all threads busy: a multiple of the
 * threads where the columns allow it (twice as many, of half the height, were 5 to 10 % slower in
 * training at 1k), otherwise two each at least. `unit`: columns that stay together. */
static void cut(product *p, int threads, int64_t unit) {
    int64_t units = (p->columns + unit - 1) / unit, most = TILE / unit;
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

/* Several products; their tiles are numbered consecutively. */
typedef struct product_list {
    const plsh_linear_engine *engine;
    const product *products;
} product_list;

static void run_numbered(void *context, int64_t tile, int slot) {
    const product_list *all = context;
    const product *p = all->products;
    for (; tile >= p->tiles; p++) tile -= p->tiles;
    run_tile(p, memory_of(all->engine, slot), tile);
}

static void run_products(const plsh_linear_engine *engine, const product *products, int count) {
    int64_t total = 0;
    for (int i = 0; i < count; i++) total += products[i].tiles;
    plsh_thread_run(engine->threads, total, run_numbered, &(product_list){engine, products});
}

/* ---- Few rows ------------------------------------------------------------------------------- */

/* The sums of the groups of x, for the types with offsets: into the panels' place. */
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
        .outs = least(DOT_RUN, layer->out - first),
        .x = few->x_int8,
        .rows = (int)few->rows,
        .start = few->add      ? to
                 : layer->bias ? layer->bias + first
                               : NULL,
        .start_stride = few->add ? y.stride : 0,
        .y = to,
        .y_stride = y.stride,
    };
    few->engine->int8->dot[layer->type](&dot);
}

static int64_t whole_groups(int64_t in) {
    return (in + PLSH_LINEAR_GROUP - 1) / PLSH_LINEAR_GROUP * PLSH_LINEAR_GROUP;
}

/* The same in bfloat16. A row of W takes the panels' place. */
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
        .start = few->add      ? to
                 : layer->bias ? layer->bias + first
                               : NULL,
        .start_stride = few->add ? y.stride : 0,
        .y = to,
        .y_stride = y.stride,
    };
    plsh_bfloat_dots(few->engine->bfloat, layer, first, least(DOT_RUN, layer->out - first), dot,
                     memory.widened, memory.bfloat.panels);
}

/* Run number `run` of layer number i, in float32. */
static void run_dots(const few_rows *few, int i, int64_t run) {
    const plsh_linear *layer = &few->layers[i];
    const plsh_matrix y = few->y[i];
    const bool add = few->add;
    const int64_t first = run * DOT_RUN;
    const size_t row_bytes = plsh_weight_bytes_of(layer->type, layer->in);
    float *to = y.data + first;
    plsh_linear_dot dot = {
        .weight = (const char *)layer->weight + (size_t)first * row_bytes,
        .row_bytes = row_bytes,
        .outs = least(DOT_RUN, layer->out - first),
        .in = layer->in,
        .x = few->x.data,
        .x_stride = few->x.stride,
        .rows = (int)few->rows,
        .sums = few->sums,
        .sums_stride = layer->in / PLSH_LINEAR_GROUP,
        .start = add           ? to
                 : layer->bias ? layer->bias + first
                               : NULL,
        .start_stride = add ? y.stride : 0,
        .y = to,
        .y_stride = y.stride,
    };
    few->engine->kernels->dot[layer->type](&dot);
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

/* ---- What is called ------------------------------------------------------------------------- */

static product forward_product(const plsh_linear_engine *engine, const plsh_linear *layer,
                               int64_t rows, plsh_const_matrix x, plsh_matrix y, bool add) {
    product p = {.kernels = engine->kernels,
                 .int8 = is_int8(engine, layer) ? engine->int8 : NULL,
                 .bfloat = engine->bfloat,
                 .a = x,
                 .pack = is_int8(engine, layer) ? pack_int8
                         : engine->bfloat       ? pack_turned_bfloat
                                                : pack_turned,
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

/* Layers of one input and many rows. Where some are in int8, as many rows at a time as fit there.
 */
static void forward_products(const plsh_linear_engine *engine, const plsh_linear *layers,
                             const plsh_matrix *y, int count, int64_t rows, plsh_const_matrix x,
                             bool add) {
    const int64_t in = layers[0].in;
    const bool any = count_int8(engine, layers, count) > 0;
    const int64_t fit = any ? plsh_int8_rows_fit(ROWS_BYTES, in) : rows;
    const int64_t step = any && fit > ROW_BLOCK ? fit / ROW_BLOCK * ROW_BLOCK : fit;
    for (int64_t first = 0; first < rows; first += step) {
        const int64_t some = least(step, rows - first);
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

/* The sums of the groups of x have to fit into the memory of one thread, for as many rows as are
 * few: so the way a product is computed depends neither on the threads nor on the other rows. In
 * bfloat16 a row of W has to fit into the panels. */
static bool is_few(const plsh_linear_engine *engine, int64_t rows, int64_t in) {
    if (engine->bfloat && in > TILE * DEPTH) return false;
    return rows <= PLSH_LINEAR_FEW &&
           (size_t)(PLSH_LINEAR_FEW * (in / PLSH_LINEAR_GROUP)) * sizeof(float) <= thread_bytes();
}

void plsh_linear_forward_many(const plsh_linear_engine *engine, const plsh_linear *layers,
                              const plsh_matrix *y, int count, int64_t rows, plsh_const_matrix x) {
    if (rows == 0) return;
    for (int from = 0; from < count; from += MOST_LAYERS) {
        const int some = count - from < MOST_LAYERS ? count - from : MOST_LAYERS;
        if (is_few(engine, rows, layers[from].in)) {
            forward_few(engine, layers + from, y + from, some, rows, x, false);
            continue;
        }
        forward_products(engine, layers + from, y + from, some, rows, x, false);
    }
}

void plsh_linear_forward(const plsh_linear_engine *engine, const plsh_linear *layer, int64_t rows,
                         plsh_const_matrix x, plsh_matrix y, bool add) {
    if (rows == 0) return;
    if (is_few(engine, rows, layer->in)) {
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
                 .pack = engine->bfloat ? pack_straight_bfloat : pack_straight,
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
                 .a_turned = true,
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

void plsh_linear_backward_bias(int64_t rows, int64_t out, plsh_const_matrix dy, float *db) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) db[o] += dy.data[r * dy.stride + o];
}
