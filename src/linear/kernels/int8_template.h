/* linear: the panel kernel of products in int8, and the table. The including file has defined
 *     LANES, vector, v_set, v_load, v_store, v_fma     floats; v_fma is fused
 *     vint, i_set(x), v_float(i)                       LANES numbers of 32 bits
 *     BLOCK_ROWS, BLOCK_VECTORS                        register block of multiply
 *     stores_signed(type)         the bytes of a panel are signed numbers, not u = q + less
 *     add_words(type, R, words, sum, panel, p, stride)
 *                                 sum[r][c] += `words` words of 4 bytes of the panel's columns
 *                                 times those of row r at p + r * stride
 *     unpack(type, ..)            see int8.h
 *     dot_few(type, dot)          see int8.h; or another function, named by DOT_FEW
 *     INT8_PACKS                  if it has `pack` functions: their row of the table
 * and makes its table with INT8_TABLE(name, plain, eight_signed, few, tiles). */
#ifndef PLSH_LINEAR_INT8_TEMPLATE_H
#define PLSH_LINEAR_INT8_TEMPLATE_H

#include <string.h>

#ifndef DOT_FEW
#define DOT_FEW dot_few
#endif

typedef struct int8_sums {
    vector y[BLOCK_ROWS][BLOCK_VECTORS];
} int8_sums;

/* A run of `size` values that share a scale: 32, or 16 of the types with halves. It is number g of
 * x and number i of the panel, counted in runs. */
INLINE void multiply_run(const plsh_weight_type type, const int R, const plsh_int8_product *p,
                         int8_sums *sums, int64_t m, int64_t g, int64_t i) {
    const int size = plsh_weight_has_halves(type) ? 16 : 32, per_group = 32 / size;
    const int64_t groups = p->x.in / 32, runs = groups * per_group;
    const int32_t *less = plsh_weight_has_halves(type) ? p->x.half : p->x.whole;
    vint sum[BLOCK_ROWS][BLOCK_VECTORS];
    UNROLL for (int r = 0; r < R; r++) {
        vint begin = i_set(0);
        if (!plsh_int8_has_offset(type) && !stores_signed(type))
            begin = i_set(less[(m + r) * runs + g]) * i_set(plsh_int8_less(type));
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) sum[r][c] = begin;
    }
    add_words(type, R, size / 4, sum, p->panel + i * size * WIDTH, p->x.p + m * p->x.in + g * size,
              p->x.in);
    UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) {
        const vector scale = v_load(p->scale + i * WIDTH + c * LANES);
        UNROLL for (int r = 0; r < R; r++) {
            const vector both = scale * v_set(p->x.scale[(m + r) * groups + g / per_group]);
            sums->y[r][c] = v_fma(v_float(sum[r][c]), both, sums->y[r][c]);
        }
    }
}

/* The offsets of run g of x, number i of the panel, times the sums of x. */
INLINE void add_offsets(const plsh_weight_type type, const int R, const plsh_int8_product *p,
                        int8_sums *sums, int64_t g, int64_t i) {
    UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) {
        const vector offset = v_load(p->offset + i * WIDTH + c * LANES);
        UNROLL for (int r = 0; r < R; r++) {
            const vector sum = v_set(plsh_int8_sum(type, &p->x, p->first + r, g));
            sums->y[r][c] = v_fma(sum, offset, sums->y[r][c]);
        }
    }
}

/* The first R rows against the whole width: y and start have room for it. */
INLINE void multiply_block(const plsh_weight_type type, const int R, const plsh_int8_product *p) {
    const int per_group = plsh_weight_has_halves(type) ? 2 : 1;
    const int64_t m = p->first;
    int8_sums sums;
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) sums.y[r][c] =
            p->start ? v_load(p->start + r * p->start_stride + c * LANES) : v_set(0.0f);
    }
    for (int64_t i = 0; i < p->depth / 32; i++) {
        const int64_t g = p->k / 32 + i;
        UNROLL for (int h = 0; h < per_group; h++)
            multiply_run(type, R, p, &sums, m, g * per_group + h, i * per_group + h);
        if (!plsh_int8_has_offset(type)) continue;
        UNROLL for (int h = 0; h < per_group; h++)
            add_offsets(type, R, p, &sums, g * per_group + h, i * per_group + h);
    }
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++)
            v_store(p->y + r * p->y_stride + c * LANES, sums.y[r][c]);
    }
}

/* Rows m .. m + R - 1 of any number of columns: the last columns, if they do not fill the width,
 * are computed in a buffer. */
INLINE void multiply_rows(const plsh_weight_type type, const int R, const plsh_int8_product *all,
                          int64_t m) {
    plsh_int8_product p = *all;
    p.first += m;
    p.y += m * p.y_stride;
    if (p.start) p.start += m * p.start_stride;
    if (p.columns == WIDTH) {
        multiply_block(type, R, &p);
        return;
    }
    float tile[BLOCK_ROWS][WIDTH] = {{0.0f}};
    const size_t bytes = (size_t)p.columns * sizeof(float);
    plsh_int8_product beside = p;
    beside.start = beside.y = tile[0];
    beside.start_stride = beside.y_stride = WIDTH;
    for (int r = 0; p.start && r < R; r++) memcpy(tile[r], p.start + r * p.start_stride, bytes);
    multiply_block(type, R, &beside);
    for (int r = 0; r < R; r++) memcpy(p.y + r * p.y_stride, tile[r], bytes);
}

INLINE void multiply_any(const plsh_weight_type type, const plsh_int8_product *p) {
    int64_t m = 0;
    for (; m + BLOCK_ROWS <= p->rows; m += BLOCK_ROWS) multiply_rows(type, BLOCK_ROWS, p, m);
    if (BLOCK_ROWS > 4 && m + 4 <= p->rows) {
        multiply_rows(type, 4, p, m);
        m += 4;
    }
    if (BLOCK_ROWS > 2 && m + 2 <= p->rows) {
        multiply_rows(type, 2, p, m);
        m += 2;
    }
    for (; m < p->rows; m++) multiply_rows(type, 1, p, m);
}

/* ---- The table ------------------------------------------------------------------------------ */

#define INT8_TYPE(TYPE, name)                                                                      \
    static void unpack_##name(const void *from, uint8_t *bytes, float *scale, float *offset,       \
                              int64_t count) {                                                     \
        unpack(TYPE, from, bytes, scale, offset, count);                                           \
    }                                                                                              \
    static void dot_##name(const plsh_int8_dot *dot) { DOT_FEW(TYPE, dot); }                       \
    static void multiply_##name(const plsh_int8_product *product) { multiply_any(TYPE, product); }

INT8_TYPE(PLSH_WEIGHT_Q8_0, q8_0)
INT8_TYPE(PLSH_WEIGHT_Q4_0, q4_0)
INT8_TYPE(PLSH_WEIGHT_Q4_1, q4_1)
INT8_TYPE(PLSH_WEIGHT_Q5_0, q5_0)
INT8_TYPE(PLSH_WEIGHT_Q5_1, q5_1)
INT8_TYPE(PLSH_WEIGHT_Q4_K, q4_k)
INT8_TYPE(PLSH_WEIGHT_Q5_K, q5_k)
INT8_TYPE(PLSH_WEIGHT_Q6_K, q6_k)
INT8_TYPE(PLSH_WEIGHT_Q2_K, q2_k)
INT8_TYPE(PLSH_WEIGHT_Q3_K, q3_k)
INT8_TYPE(PLSH_WEIGHT_IQ4_NL, iq4_nl)
INT8_TYPE(PLSH_WEIGHT_IQ4_XS, iq4_xs)

#define INT8_ROW(function)                                                                         \
    {                                                                                              \
        [PLSH_WEIGHT_Q8_0] = function##_q8_0, [PLSH_WEIGHT_Q4_0] = function##_q4_0,                \
        [PLSH_WEIGHT_Q4_1] = function##_q4_1, [PLSH_WEIGHT_Q5_0] = function##_q5_0,                \
        [PLSH_WEIGHT_Q5_1] = function##_q5_1, [PLSH_WEIGHT_Q4_K] = function##_q4_k,                \
        [PLSH_WEIGHT_Q5_K] = function##_q5_k, [PLSH_WEIGHT_Q6_K] = function##_q6_k,                \
        [PLSH_WEIGHT_Q2_K] = function##_q2_k, [PLSH_WEIGHT_Q3_K] = function##_q3_k,                \
        [PLSH_WEIGHT_IQ4_NL] = function##_iq4_nl, [PLSH_WEIGHT_IQ4_XS] = function##_iq4_xs         \
    }

#ifndef INT8_PACKS
#define INT8_PACKS                                                                                 \
    { NULL }
#endif

#define INT8_TABLE(isa, table, is_signed, most, by_tiles)                                          \
    {                                                                                              \
        .name = (isa), .plain = (table), .eight_signed = (is_signed), .few = (most),               \
        .tiles = (by_tiles), .unpack = INT8_ROW(unpack), .pack = INT8_PACKS, .dot = INT8_ROW(dot), \
        .multiply = INT8_ROW(multiply)                                                             \
    }

#endif
