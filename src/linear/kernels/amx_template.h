/* linear: the kernels of AMX. The including file has defined
 *     LANES = 16, vector, v_set, v_load, v_store, v_fma, INLINE, UNROLL
 *     vint, v_float(i)      16 numbers of 32 bits, and as floats
 *     _tile_loadconfig, _tile_release, _tile_zero, _tile_loadd, _tile_stored, _tile_dpbf16ps,
 *     _tile_dpbssd, _tile_dpbsud
 * whose tiles have to be literal numbers: compilers paste their text into instructions.
 * Tiles 0 to 3 hold sums, 4 and 5 rows of a, 6 and 7 columns of b. */
#ifndef PLSH_LINEAR_AMX_TEMPLATE_H
#define PLSH_LINEAR_AMX_TEMPLATE_H

#include <string.h>

#include "linear/kernels/amx.h"

enum { ROWS = PLSH_TILE_ROWS, COLUMNS = PLSH_TILE_COLUMNS, BYTES = PLSH_TILE_BYTES };

/* gcc 12 does not know that tile instructions read memory: without this barrier it may delay or
 * drop earlier stores to it. */
#define MEMORY_IS_READ __asm__ volatile("" ::: "memory")

/* Palette 1, as the processor reads it. */
typedef struct tile_shapes {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shapes;

_Static_assert(sizeof(tile_shapes) == 64, "what ldtilecfg reads");

static void begin(int bytes) {
    tile_shapes shapes = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        shapes.bytes[t] = (uint16_t)(t == 4 || t == 5 ? bytes : BYTES);
        shapes.rows[t] = (uint8_t)(t >= 6 ? bytes / 4 : ROWS);
    }
    MEMORY_IS_READ;
    _tile_loadconfig(&shapes);
}

static void end(void) { _tile_release(); }

/* ---- bfloat16 ------------------------------------------------------------------------------- */

/* y of R x C tiles, R and C 1 or 2. */
INLINE void load_sums(const int R, const int C, const plsh_bfloat_product *p) {
    const long stride = p->start_stride * (long)sizeof(float);
    const float *low = p->start + ROWS * p->start_stride;
    _tile_loadd(0, p->start, stride);
    if (C > 1) _tile_loadd(1, p->start + COLUMNS, stride);
    if (R > 1) _tile_loadd(2, low, stride);
    if (R > 1 && C > 1) _tile_loadd(3, low + COLUMNS, stride);
}

INLINE void zero_sums(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

INLINE void store_sums(const int R, const int C, const plsh_bfloat_product *p) {
    const long stride = p->y_stride * (long)sizeof(float);
    float *low = p->y + ROWS * p->y_stride;
    _tile_stored(0, p->y, stride);
    if (C > 1) _tile_stored(1, p->y + COLUMNS, stride);
    if (R > 1) _tile_stored(2, low, stride);
    if (R > 1 && C > 1) _tile_stored(3, low + COLUMNS, stride);
}

INLINE void multiply_tiles(const int R, const int C, const plsh_bfloat_product *p, int width) {
    const long a_stride = p->a_row * 4, b_stride = width * 4L;
    MEMORY_IS_READ;
    if (p->start)
        load_sums(R, C, p);
    else
        zero_sums();
    for (int64_t k = 0; k < p->pairs; k += BYTES / 4) {
        const uint16_t *a = p->a + 2 * k, *b = p->panel + 2 * k * width;
        _tile_loadd(4, a, a_stride);
        _tile_loadd(6, b, b_stride);
        _tile_dpbf16ps(0, 4, 6);
        if (R > 1) {
            _tile_loadd(5, a + 2 * ROWS * p->a_row, a_stride);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (C > 1) {
            _tile_loadd(7, b + 2 * COLUMNS, b_stride);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (R > 1 && C > 1) _tile_dpbf16ps(3, 5, 7);
    }
    store_sums(R, C, p);
}

static void multiply_shape(const plsh_bfloat_product *p, int width) {
    const bool low = p->rows > ROWS, right = p->columns > COLUMNS;
    if (low && right)
        multiply_tiles(2, 2, p, width);
    else if (low)
        multiply_tiles(2, 1, p, width);
    else if (right)
        multiply_tiles(1, 2, p, width);
    else
        multiply_tiles(1, 1, p, width);
}

/* Multiplies at most 2 x 2 tiles. If y does not fill them, they are computed in a buffer. */
static void multiply_corner(plsh_bfloat_product p, int width) {
    float tile[2 * ROWS][2 * COLUMNS] = {{0.0f}};
    const size_t bytes = (size_t)p.columns * sizeof(float);
    if (p.rows % ROWS == 0 && p.columns % COLUMNS == 0) {
        multiply_shape(&p, width);
        return;
    }
    plsh_bfloat_product beside = p;
    beside.y = tile[0];
    beside.y_stride = 2 * COLUMNS;
    if (p.start) {
        for (int r = 0; r < p.rows; r++) memcpy(tile[r], p.start + r * p.start_stride, bytes);
        beside.start = tile[0];
        beside.start_stride = 2 * COLUMNS;
    }
    multiply_shape(&beside, width);
    for (int r = 0; r < p.rows; r++) memcpy(p.y + r * p.y_stride, tile[r], bytes);
}

static void multiply_bfloat(const plsh_bfloat_kernels *kernels, const plsh_bfloat_product *all) {
    for (int64_t m = 0; m < all->rows; m += 2 * ROWS) {
        for (int n = 0; n < all->columns; n += 2 * COLUMNS) {
            plsh_bfloat_product p = *all;
            p.a += 2 * m * p.a_row;
            p.panel += 2 * n;
            p.rows = all->rows - m < 2 * ROWS ? all->rows - m : 2 * ROWS;
            p.columns = all->columns - n < 2 * COLUMNS ? all->columns - n : 2 * COLUMNS;
            if (p.start) p.start += m * p.start_stride + n;
            p.y += m * p.y_stride + n;
            multiply_corner(p, kernels->plain->width);
        }
    }
}

/* ---- int8 ----------------------------------------------------------------------------------- */

/* The constants of a product of activations p and weights u, in runs of `size` values that share a
 * scale. */
typedef struct int8_case {
    plsh_weight_type type;
    bool b_signed; /* the panel holds signed q instead of u */
    int size, per_group, width;
    int32_t less; /* u - q */
} int8_case;

enum { TOGETHER = 4 }; /* runs: while some are multiplied, others are scaled */

typedef struct int8_sums {
    _Alignas(64) int32_t at[TOGETHER][ROWS][COLUMNS];
} int8_sums;

#define SUM_RUN(TILE, A, B)                                                                        \
    do {                                                                                           \
        _tile_zero(TILE);                                                                          \
        _tile_loadd(A, a + (TILE)*c->size, a_stride);                                              \
        _tile_loadd(B, b + (TILE)*c->size * c->width, c->width * 4L);                              \
        if (c->b_signed)                                                                           \
            _tile_dpbssd(TILE, A, B);                                                              \
        else                                                                                       \
            _tile_dpbsud(TILE, A, B);                                                              \
        _tile_stored(TILE, sums->at[TILE], BYTES);                                                 \
    } while (0)

/* `count` runs of 16 rows from a against 16 columns from b. */
INLINE void sum_runs(const int8_case *c, const int8_t *a, long a_stride, const uint8_t *b,
                     int64_t count, int8_sums *sums) {
    MEMORY_IS_READ;
    SUM_RUN(0, 4, 6);
    if (count > 1) SUM_RUN(1, 5, 7);
    if (count > 2) SUM_RUN(2, 4, 6);
    if (count > 3) SUM_RUN(3, 5, 7);
}

/* Run i of the product's, from row m and column n on: scaled, and added to y. */
INLINE void add_run(const int8_case *c, const plsh_int8_product *p, int64_t m, int n, int64_t i,
                    const int32_t *sums, vector y[ROWS]) {
    const int64_t groups = p->x.in / 32, run = p->k / c->size + i;
    const int32_t *less = c->per_group == 2 ? p->x.half : p->x.whole;
    const vector scale = v_load(p->scale + i * c->width + n);
    UNROLL for (int r = 0; r < ROWS; r++) {
        const int64_t row = p->first + m + r;
        vint sum;
        memcpy(&sum, sums + r * COLUMNS, sizeof sum);
        sum += less[row * groups * c->per_group + run] * c->less;
        const vector both = scale * v_set(p->x.scale[row * groups + run / c->per_group]);
        y[r] = v_fma(v_float(sum), both, y[r]);
    }
}

INLINE void add_offset(const int8_case *c, const plsh_int8_product *p, int64_t m, int n, int64_t i,
                       vector y[ROWS]) {
    const vector offset = v_load(p->offset + i * c->width + n);
    UNROLL for (int r = 0; r < ROWS; r++) {
        const float sum = plsh_int8_sum(c->type, &p->x, p->first + m + r, p->k / c->size + i);
        y[r] = v_fma(v_set(sum), offset, y[r]);
    }
}

/* Rows m .. m + 15 of columns n .. n + 15. */
static void multiply_rows(const int8_case *c, const plsh_int8_product *p, int64_t m, int n) {
    const int64_t runs = p->depth / c->size, in = p->x.in;
    const int8_t *a = p->x.p + (p->first + m) * in + p->k;
    const uint8_t *b = p->panel + n * 4;
    int8_sums sums;
    vector y[ROWS];
    UNROLL for (int r = 0; r < ROWS; r++) y[r] =
        p->start ? v_load(p->start + (m + r) * p->start_stride + n) : v_set(0.0f);
    for (int64_t i = 0; i < runs; i += TOGETHER) {
        const int64_t count = runs - i < TOGETHER ? runs - i : TOGETHER;
        sum_runs(c, a + i * c->size, in, b + i * c->size * c->width, count, &sums);
        for (int64_t j = i; j < i + count; j++) {
            add_run(c, p, m, n, j, sums.at[j - i][0], y);
            if (!plsh_int8_has_offset(c->type) || (j + 1) % c->per_group != 0) continue;
            for (int64_t h = j + 1 - c->per_group; h <= j; h++) add_offset(c, p, m, n, h, y);
        }
    }
    UNROLL for (int r = 0; r < ROWS; r++) v_store(p->y + (m + r) * p->y_stride + n, y[r]);
}

static void multiply_int8(const plsh_int8_kernels *kernels, plsh_weight_type type,
                          const plsh_int8_product *p) {
    const int per_group = plsh_weight_has_halves(type) ? 2 : 1;
    int8_case c = {type,
                   kernels->eight_signed && plsh_int8_bits(type) == 8,
                   32 / per_group,
                   per_group,
                   kernels->plain->width,
                   plsh_int8_less(type)};
    if (c.b_signed) c.less = 0;
    for (int n = 0; n < p->columns; n += COLUMNS)
        for (int64_t m = 0; m < p->rows; m += ROWS) multiply_rows(&c, p, m, n);
}

#endif
