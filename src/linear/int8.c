/* linear: products in int8: activations quantised, panels of W as bytes. */
#include "linear/int8.h"

#include <string.h>

#include "base/clones.h"
#include "base/thread.h"
#include "linear/kernels/amx.h"
#include "linear/types.h"

enum { GROUP = PLSH_LINEAR_GROUP, HALF = GROUP / 2, DEPTH = PLSH_INT8_DEPTH };

/* ---- Activations ---------------------------------------------------------------------------- */

plsh_int8_rows plsh_int8_rows_take(plsh_arena *arena, int64_t rows, int64_t in) {
    const size_t n = (size_t)rows, groups = (size_t)(in / GROUP);
    return (plsh_int8_rows){.in = in,
                            .p = plsh_arena_take(arena, n * groups, GROUP),
                            .scale = plsh_arena_floats(arena, n * groups),
                            .sum = plsh_arena_floats(arena, n * groups),
                            .whole = plsh_arena_take(arena, n * groups, sizeof(int32_t)),
                            .half = plsh_arena_take(arena, n * groups, 2 * sizeof(int32_t))};
}

int64_t plsh_int8_rows_fit(size_t bytes, int64_t in) {
    enum { ARRAYS = 5, OF_GROUP = GROUP + 5 * 4 };
    const size_t row = (size_t)(in / GROUP) * OF_GROUP, gaps = (size_t)ARRAYS * PLSH_ALIGNMENT;
    return bytes < gaps ? 0 : (int64_t)((bytes - gaps) / row);
}

plsh_int8_rows plsh_int8_rows_from(const plsh_int8_rows *rows, int64_t r) {
    const int64_t groups = r * (rows->in / GROUP);
    return (plsh_int8_rows){.in = rows->in,
                            .p = rows->p + groups * GROUP,
                            .scale = rows->scale + groups,
                            .sum = rows->sum + groups,
                            .whole = rows->whole + groups,
                            .half = rows->half + 2 * groups};
}

static int sum_half(const int8_t *p) {
    int sum = 0;
    for (int j = 0; j < HALF; j++) sum += p[j];
    return sum;
}

/* Adding 1.5 * 2^23 leaves the nearest whole number in the low bits, in two's complement. The
 * largest |x| is found among the bits, whose order is that of the numbers, with NaN above all. */
PLSH_CLONES
static void quantise_row(const float *x, int64_t groups, int8_t *restrict p, float *scales) {
    for (int64_t g = 0; g < groups; g++, x += GROUP, p += GROUP) {
        uint32_t bits[GROUP], top = 0;
        float shifted[GROUP], most;
        memcpy(bits, x, sizeof bits);
        for (int j = 0; j < GROUP; j++) {
            const uint32_t size = bits[j] & 0x7fffffffu;
            top = size > top ? size : top;
        }
        memcpy(&most, &top, sizeof most);
        const bool none = most < 0x1p-100f;
        const float inverse = none ? 0.0f : 127.0f / most;
        for (int j = 0; j < GROUP; j++) shifted[j] = x[j] * inverse + 0x1.8p23f;
        memcpy(bits, shifted, sizeof bits);
        for (int j = 0; j < GROUP; j++) p[j] = (int8_t)(uint8_t)bits[j];
        scales[g] = none ? 0.0f : most / 127.0f;
    }
}

typedef struct quantise_job {
    plsh_int8_rows to;
    plsh_const_matrix x;
} quantise_job;

static void quantise_rows(void *context, int64_t first, int64_t end, int slot) {
    const quantise_job *job = context;
    const plsh_int8_rows *to = &job->to;
    const int64_t groups = to->in / GROUP;
    (void)slot;
    for (int64_t r = first; r < end; r++) {
        const int8_t *p = to->p + r * to->in;
        quantise_row(job->x.data + r * job->x.stride, groups, to->p + r * to->in,
                     to->scale + r * groups);
        for (int64_t g = 0; g < groups; g++) {
            const int a = sum_half(p + g * GROUP), b = sum_half(p + g * GROUP + HALF);
            const int64_t at = r * groups + g;
            to->half[2 * at] = -a;
            to->half[2 * at + 1] = -b;
            to->whole[at] = -(a + b);
            to->sum[at] = to->scale[at] * (float)(a + b);
        }
    }
}

void plsh_int8_quantise(const plsh_int8_rows *to, int64_t rows, plsh_const_matrix x, int threads) {
    quantise_job job = {*to, x};
    enum { ROWS_EACH = 16 }; /* some 10 microseconds */
    if (rows <= ROWS_EACH)
        quantise_rows(&job, 0, rows, 0);
    else
        plsh_thread_rows(threads, rows, ROWS_EACH, quantise_rows, &job);
}

/* ---- Panels --------------------------------------------------------------------------------- */

plsh_int8_panels plsh_int8_panels_take(plsh_arena *arena, int columns) {
    const size_t panels = (size_t)columns * DEPTH, rows = (size_t)PLSH_LINEAR_GROUP * DEPTH;
    return (plsh_int8_panels){.bytes = plsh_arena_take(arena, panels, 1),
                              .scale = plsh_arena_floats(arena, panels / HALF),
                              .offset = plsh_arena_floats(arena, panels / HALF),
                              .row_bytes = plsh_arena_take(arena, rows, 1),
                              .row_scale = plsh_arena_floats(arena, rows / HALF),
                              .row_offset = plsh_arena_floats(arena, rows / HALF)};
}

void plsh_int8_pack(const plsh_int8_kernels *kernels, const plsh_linear *layer,
                    const plsh_int8_panels *to, int64_t k, int depth, int64_t n, int columns) {
    const plsh_linear_kernels *plain = kernels->plain;
    const plsh_weight_type type = layer->type;
    const int width = plain->width, scales = depth / (plsh_weight_has_halves(type) ? HALF : GROUP);
    const size_t row_bytes = plsh_weight_bytes_of(type, layer->in);
    for (int c = 0; c < columns; c += width) {
        const int have = columns - c < width ? columns - c : width;
        const char *first = (const char *)layer->weight + (size_t)(n + c) * row_bytes +
                            plsh_weight_bytes_of(type, k);
        const ptrdiff_t at = (ptrdiff_t)c * DEPTH;
        if (kernels->pack[type]) {
            kernels->pack[type](&(plsh_int8_packing){first, row_bytes, have, depth, to->bytes + at,
                                                     to->scale + at / HALF,
                                                     to->offset + at / HALF});
            continue;
        }
        for (int r = 0; r < have; r++)
            kernels->unpack[type](first + (size_t)r * row_bytes, to->row_bytes + r * DEPTH,
                                  to->row_scale + r * (DEPTH / HALF),
                                  to->row_offset + r * (DEPTH / HALF), depth);
        /* Words of 4 bytes are moved as floats are: no arithmetic is done on them. */
        plain->transpose((float *)(void *)(to->bytes + at), (const float *)(void *)to->row_bytes,
                         DEPTH / 4, have, depth / 4);
        plain->transpose(to->scale + at / HALF, to->row_scale, DEPTH / HALF, have, scales);
        if (plsh_int8_has_offset(type))
            plain->transpose(to->offset + at / HALF, to->row_offset, DEPTH / HALF, have, scales);
    }
}

/* ---- Products ------------------------------------------------------------------------------- */

void plsh_int8_multiply(const plsh_int8_kernels *kernels, plsh_weight_type type,
                        const plsh_int8_product *product) {
    plsh_int8_product some = *product;
    if (kernels->tiles && some.columns == kernels->plain->width) {
        some.rows -= some.rows % PLSH_TILE_ROWS;
        kernels->tiles->int8(kernels, type, &some);
        some.first += some.rows;
        some.y += some.rows * some.y_stride;
        if (some.start) some.start += some.rows * some.start_stride;
        some.rows = product->rows - some.rows;
    }
    kernels->multiply[type](&some);
}
