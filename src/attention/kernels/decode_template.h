/* attention: the decode kernels over the vector vocabulary. The including file has defined
 *     LANES, vector, v_*    the vocabulary
 *     v_sum4(to, a, b, c, d)  to[0..3] = the sums of the lanes of four vectors
 *     DECODE_ROWS           rows per register block, a power of two
 *     DECODE_COLUMNS        vectors of columns per register block of DECODE_ROWS rows
 * and has its attend functions in ATTEND. */
#ifndef PLSH_KERNELS_DECODE_TEMPLATE_H
#define PLSH_KERNELS_DECODE_TEMPLATE_H

#include "attention/kernels/kernels.h"
#include "base/simd/vector_math.h"

#include <math.h>

enum { MOST_KEYS = 8, MOST_COLUMNS = 8 }; /* register blocks of a single row */

/* The most rows that share the loads of a page, and the keys of a block of V for them. */
enum { TOGETHER = 16, VALUE_KEYS = 16 };

/* The prefetch distance and a cache line, in bytes. With 1, 2 and 4 KiB at n = 32k, d = 64, the
 * AVX2 kernel reads at 82, 85 and 80 % of the speed of a plain sum (78 without prefetching), the
 * AVX-512 kernel at 85, 105 and 95 % (85 without). */
enum { AHEAD = 2048, LINE = 64 };

INLINE int line_elements(plsh_dtype dtype) {
    return dtype == PLSH_DTYPE_FLOAT32 ? LINE / 4 : LINE / 2;
}

/* Rows of K or V as they are stored; dtype is a constant everywhere. */
typedef struct stored {
    const void *data;
    plsh_dtype dtype;
    int dim;
    ptrdiff_t stride; /* elements from one row to the next */
} stored;

/* Prefetches the line AHEAD of column x of row j; past the end of a page it does no harm. */
INLINE void fetch_ahead(stored from, int j, int x) {
    const ptrdiff_t bytes = from.dtype == PLSH_DTYPE_FLOAT32 ? 4 : 2;
    const ptrdiff_t at = j * from.stride + x;
    __builtin_prefetch((const char *)from.data + at * bytes + AHEAD);
}

/* LANES elements of row j from column x on. */
INLINE vector load_stored(stored from, int j, int x) {
    const ptrdiff_t at = j * from.stride + x;
    if (from.dtype == PLSH_DTYPE_FLOAT32) return v_load((const float *)from.data + at);
    if (from.dtype == PLSH_DTYPE_FLOAT16) return v_load_half((const uint16_t *)from.data + at);
    return v_load_bfloat((const uint16_t *)from.data + at);
}

/* dot[.][j ...]. */
INLINE float (*column_of(float (*dot)[PLSH_DECODE_KEYS], int j))[PLSH_DECODE_KEYS] {
    return (float(*)[PLSH_DECODE_KEYS])(dot[0] + j);
}

/* dot[r][i] = q_r . k_(j + i) for R rows and J keys (1, or a multiple of 4). */
INLINE void dot_block(const int R, const int J, float (*dot)[PLSH_DECODE_KEYS],
                      plsh_decode_row *const *rows, stored k, int j) {
    vector sum[DECODE_ROWS][MOST_KEYS];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int i = 0; i < J; i++) sum[r][i] = v_set(0.0f);
    }
    for (int x = 0; x < k.dim; x += LANES) {
        vector key[MOST_KEYS];
        if (x % line_elements(k.dtype) == 0) {
            UNROLL for (int i = 0; i < J; i++) fetch_ahead(k, j + i, x);
        }
        UNROLL for (int i = 0; i < J; i++) key[i] = load_stored(k, j + i, x);
        UNROLL for (int r = 0; r < R; r++) {
            vector q = v_load(rows[r]->q + x);
            UNROLL for (int i = 0; i < J; i++) sum[r][i] = v_fma(q, key[i], sum[r][i]);
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        if (J == 1) {
            float only[4];
            v_sum4(only, sum[r][0], v_set(0.0f), v_set(0.0f), v_set(0.0f));
            dot[r][0] = only[0];
        }
        UNROLL for (int i = 0; i + 4 <= J; i += 4) {
            v_sum4(dot[r] + i, sum[r][i], sum[r][i + 1], sum[r][i + 2], sum[r][i + 3]);
        }
    }
}

/* The same for any number of rows. */
INLINE void dot_rows(const int J, float (*dot)[PLSH_DECODE_KEYS], plsh_decode_row *const *rows,
                     int count, stored k, int j) {
    int r = 0;
    for (; r + DECODE_ROWS <= count; r += DECODE_ROWS)
        dot_block(DECODE_ROWS, J, column_of(dot + r, j), rows + r, k, j);
    if (DECODE_ROWS > 3 && r + 3 <= count) {
        dot_block(3, J, column_of(dot + r, j), rows + r, k, j);
        r += 3;
    }
    if (DECODE_ROWS > 2 && r + 2 <= count) {
        dot_block(2, J, column_of(dot + r, j), rows + r, k, j);
        r += 2;
    }
    if (DECODE_ROWS > 1 && r < count) dot_block(1, J, column_of(dot + r, j), rows + r, k, j);
}

/* Keys in the outer loop, rows in the inner one, so that loads from memory are distributed over the
 * whole loop. */
INLINE void dot_keys(float (*dot)[PLSH_DECODE_KEYS], plsh_decode_row *const *rows, int count,
                     stored k, int keys) {
    int j = 0;
    if (count == 1)
        for (; j + MOST_KEYS <= keys; j += MOST_KEYS)
            dot_block(1, MOST_KEYS, column_of(dot, j), rows, k, j);
    for (; j + 4 <= keys; j += 4) dot_rows(4, dot, rows, count, k, j);
    for (; j < keys; j++) dot_rows(1, dot, rows, count, k, j);
}

INLINE float largest_lane(vector x) {
    float lane[LANES], top;
    v_store(lane, x);
    top = lane[0];
    for (int i = 1; i < LANES; i++) top = lane[i] > top ? lane[i] : top;
    return top;
}

INLINE float first_lane(vector x) {
    float lane[LANES];
    v_store(lane, x);
    return lane[0];
}

/* row->s becomes 2^(dot + s - m), and (m, l, alpha) follow. */
INLINE void softmax_row(plsh_decode_row *row, float *dot, int keys) {
    const vector nothing = v_set(-INFINITY);
    const int padded = (keys + LANES - 1) / LANES * LANES;
    for (int j = keys; j < padded; j++) row->s[j] = -INFINITY, dot[j] = 0.0f;
    vector top = nothing;
    for (int j = 0; j < padded; j += LANES) {
        vector bias = v_load(row->s + j);
        vector y = v_if_equal(bias, nothing, nothing, v_load(dot + j) + bias);
        v_store(row->s + j, y);
        top = v_max(top, y);
    }
    float before = row->m, after = largest_lane(top) + row->headroom;
    row->m = after > before ? after : before;
    row->alpha = first_lane(v_exp2(v_set(before - row->m)));
    vector m = v_set(row->m), sum = v_set(0.0f);
    for (int j = 0; j < padded; j += LANES) {
        vector p = v_exp2(v_load(row->s + j) - m);
        v_store(row->s + j, p);
        sum = sum + p;
    }
    float total[4];
    v_sum4(total, sum, v_set(0.0f), v_set(0.0f), v_set(0.0f));
    row->l = row->alpha * row->l + total[0];
}

/* The keys begin .. end - 1. */
typedef struct key_part {
    int begin, end;
} key_part;

/* o += p V over some keys for R rows and C vectors of columns from `column` on, summed from zero
 * and added once; before the first key, o = alpha o. */
INLINE void value_block(const int R, const int C, plsh_decode_row *const *rows, stored v,
                        int column, key_part keys) {
    vector sum[DECODE_ROWS][MOST_COLUMNS];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int c = 0; c < C; c++) sum[r][c] = v_set(0.0f);
    }
    for (int j = keys.begin; j < keys.end; j++) {
        vector value[MOST_COLUMNS];
        UNROLL for (int c = 0; c < C; c++) {
            if (c * LANES % line_elements(v.dtype) == 0) fetch_ahead(v, j, column + c * LANES);
        }
        UNROLL for (int c = 0; c < C; c++) value[c] = load_stored(v, j, column + c * LANES);
        UNROLL for (int r = 0; r < R; r++) {
            vector p = v_set(rows[r]->s[j]);
            UNROLL for (int c = 0; c < C; c++) sum[r][c] = v_fma(p, value[c], sum[r][c]);
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        vector alpha = v_set(keys.begin == 0 ? rows[r]->alpha : 1.0f);
        UNROLL for (int c = 0; c < C; c++) {
            float *o = rows[r]->o + column + c * LANES;
            v_store(o, v_fma(alpha, v_load(o), sum[r][c]));
        }
    }
}

INLINE void value_rows(const int R, plsh_decode_row *const *rows, stored v, key_part keys) {
    const int C = R == 1 ? MOST_COLUMNS : DECODE_COLUMNS * DECODE_ROWS / R;
    const int wide = C > MOST_COLUMNS ? MOST_COLUMNS : C;
    int c = 0;
    for (; c + wide * LANES <= v.dim; c += wide * LANES) value_block(R, wide, rows, v, c, keys);
    if (wide > 4) {
        for (; c + 4 * LANES <= v.dim; c += 4 * LANES) value_block(R, 4, rows, v, c, keys);
    }
    for (; c < v.dim; c += LANES) value_block(R, 1, rows, v, c, keys);
}

/* VALUE_KEYS at a time for all rows, a single row all at once. */
INLINE void value_keys(plsh_decode_row *const *rows, int count, stored v, int keys) {
    const int step = count == 1 ? keys : VALUE_KEYS;
    for (key_part part = {0, 0}; part.begin < keys; part.begin = part.end) {
        part.end = part.begin + step < keys ? part.begin + step : keys;
        int r = 0;
        for (; r + DECODE_ROWS <= count; r += DECODE_ROWS)
            value_rows(DECODE_ROWS, rows + r, v, part);
        if (DECODE_ROWS > 3 && r + 3 <= count) {
            value_rows(3, rows + r, v, part);
            r += 3;
        }
        if (DECODE_ROWS > 2 && r + 2 <= count) {
            value_rows(2, rows + r, v, part);
            r += 2;
        }
        if (DECODE_ROWS > 1 && r < count) value_rows(1, rows + r, v, part);
    }
}

INLINE void attend_rows(const plsh_dtype dtype, plsh_decode_row *const *rows, int count,
                        plsh_decode_page page) {
    const stored k = {page.k, dtype, page.d, page.k_stride ? page.k_stride : page.d};
    const stored v = {page.v, dtype, page.dv, page.v_stride ? page.v_stride : page.dv};
    float dot[TOGETHER][PLSH_DECODE_KEYS];
    for (int r = 0, most; r < count; r += most) {
        most = count - r < TOGETHER ? count - r : TOGETHER;
        dot_keys(dot, rows + r, most, k, page.keys);
        for (int i = 0; i < most; i++) softmax_row(rows[r + i], dot[i], page.keys);
        value_keys(rows + r, most, v, page.keys);
    }
}

static void attend_float(plsh_decode_row *const *rows, int count, plsh_decode_page page) {
    attend_rows(PLSH_DTYPE_FLOAT32, rows, count, page);
}

static void attend_half(plsh_decode_row *const *rows, int count, plsh_decode_page page) {
    attend_rows(PLSH_DTYPE_FLOAT16, rows, count, page);
}

static void attend_bfloat(plsh_decode_row *const *rows, int count, plsh_decode_page page) {
    attend_rows(PLSH_DTYPE_BFLOAT16, rows, count, page);
}

#define ATTEND                                                                                     \
    { attend_float, attend_half, attend_bfloat }

#endif
