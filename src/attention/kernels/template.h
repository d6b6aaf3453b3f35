/* attention: the kernels over the vector vocabulary. The including file has defined
 *     LANES, vector, v_*   the vocabulary
 *     GROUP_VECTORS        vectors per group of queries
 *     KEY_BLOCK            keys per register block of scores: KEY_BLOCK * GROUP_VECTORS sums
 *     ROW_BLOCK            rows per register block of accumulate, a divisor of the group
 *     COLUMN_BLOCK         vectors of columns in it, at most: ROW_BLOCK * COLUMN_BLOCK sums
 * and what decode_template.h asks for, and makes its table with KERNEL_TABLE(name, narrow). */
#ifndef PLSH_KERNELS_TEMPLATE_H
#define PLSH_KERNELS_TEMPLATE_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/kernels/tables.h"
#include "base/simd/vector_math.h"
#include "base/simd/vector_transpose.h"

#define GROUP (GROUP_VECTORS * LANES)
#define BOUND_BLOCK (KEY_BLOCK / 2) /* boxes: two sums each where a key has one */

_Static_assert(GROUP <= PLSH_GROUP_MAX, "a larger group than the engine has room for");
_Static_assert(GROUP % ROW_BLOCK == 0, "accumulate takes whole blocks of rows");
_Static_assert(KEY_BLOCK <= 8 && COLUMN_BLOCK <= 4, "the remainders below go no further");

/* ---- Moving data in ------------------------------------------------------------------------- */

/* count (1..LANES) elements at from[at], as float32; nothing beyond them is read. */
INLINE vector load_elements(const void *from, plsh_dtype dtype, ptrdiff_t at, int count) {
    if (dtype == PLSH_DTYPE_FLOAT32) {
        const float *p = (const float *)from + at;
        return count == LANES ? v_load(p) : v_load_first(p, count);
    }
    const uint16_t *p = (const uint16_t *)from + at;
    uint16_t part[LANES] = {0};
    if (count < LANES) {
        memcpy(part, p, (size_t)count * sizeof(*p));
        p = part;
    }
    return dtype == PLSH_DTYPE_FLOAT16 ? v_load_half(p) : v_load_bfloat(p);
}

static void pack(int group, float *to, const void *from, plsh_dtype dtype, ptrdiff_t stride,
                 int rows, int d, float factor) {
    (void)group;
    const vector f = v_set(factor);
    for (int first = 0; first < GROUP; first += LANES) {
        int have = rows - first < 0 ? 0 : rows - first;
        for (int x = 0; x < d; x += LANES) {
            int count = d - x < LANES ? d - x : LANES;
            vector block[LANES];
            for (int r = 0; r < LANES; r++) {
                block[r] = r < have ? load_elements(from, dtype, (first + r) * stride + x, count)
                                    : v_set(0.0f);
            }
            v_transpose(block);
            for (int i = 0; i < count; i++) {
                v_store(to + (ptrdiff_t)(x + i) * GROUP + first, f * block[i]);
            }
        }
    }
}

static void widen(int group, float *to, ptrdiff_t to_stride, const void *from, plsh_dtype dtype,
                  ptrdiff_t stride, int rows, int d) {
    (void)group;
    for (int r = 0; r < rows; r++) {
        int x = 0;
        for (; x + LANES <= d; x += LANES) {
            v_store(to + r * to_stride + x, load_elements(from, dtype, r * stride + x, LANES));
        }
        if (x < d) {
            v_store_first(to + r * to_stride + x, d - x,
                          load_elements(from, dtype, r * stride + x, d - x));
        }
    }
}

/* 0 * x is 0 for a finite x and NaN for every other. */
static bool all_finite(int group, const void *from, plsh_dtype dtype, ptrdiff_t stride, int rows,
                       int d) {
    (void)group;
    enum { SUMS = 4 }; /* as many as it takes to hide the latency of a sum */
    const vector zero = v_set(0.0f);
    vector sum[SUMS];
    UNROLL for (int i = 0; i < SUMS; i++) sum[i] = zero;
    for (int r = 0; r < rows; r++) {
        ptrdiff_t at = r * stride, end = at + d;
        for (; at + SUMS * LANES <= end; at += SUMS * LANES) {
            UNROLL for (int i = 0; i < SUMS; i++) {
                sum[i] = v_fma(zero, load_elements(from, dtype, at + i * LANES, LANES), sum[i]);
            }
        }
        for (; at < end; at += LANES) {
            int count = end - at < LANES ? (int)(end - at) : LANES;
            sum[0] = v_fma(zero, load_elements(from, dtype, at, count), sum[0]);
        }
    }
    float lane[LANES], total = 0.0f;
    v_store(lane, (sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (int i = 0; i < LANES; i++) total += lane[i];
    return total == 0.0f;
}

/* ---- Scores --------------------------------------------------------------------------------- */

/* R keys against the group: R * GROUP_VECTORS sums in registers. */
INLINE void score_block(const int R, float *s, float *top, const float *packed, const float *k,
                        ptrdiff_t stride, int d, const float *bias, bool masked) {
    vector sum[KEY_BLOCK][GROUP_VECTORS];
    UNROLL for (int j = 0; j < R; j++) {
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
            sum[j][g] = bias ? v_load(bias + g * LANES - j) : v_set(0.0f);
        }
    }
    for (int x = 0; x < d; x++) {
        vector q[GROUP_VECTORS];
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
            q[g] = v_load(packed + (ptrdiff_t)x * GROUP + g * LANES);
        }
        UNROLL for (int j = 0; j < R; j++) {
            vector key = v_set(k[j * stride + x]);
            UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
                sum[j][g] = v_fma(q[g], key, sum[j][g]);
            }
        }
    }
    UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
        vector best = v_load(top + g * LANES);
        UNROLL for (int j = 0; j < R; j++) {
            vector y = sum[j][g];
            if (masked) {
                y = v_if_equal(v_load(bias + g * LANES - j), v_set(-INFINITY), v_set(-INFINITY), y);
            }
            v_store(s + j * GROUP + g * LANES, y);
            best = v_max(best, y);
        }
        v_store(top + g * LANES, best);
    }
}

static void scores(int group, float *s, float *top, const float *packed, const float *k,
                   ptrdiff_t stride, int keys, int d, const float *bias, bool masked) {
    (void)group;
    masked = masked && bias;
    for (int g = 0; g < GROUP; g++) top[g] = -INFINITY;
    for (; keys >= KEY_BLOCK; keys -= KEY_BLOCK) {
        score_block(KEY_BLOCK, s, top, packed, k, stride, d, bias, masked);
        s += KEY_BLOCK * GROUP;
        k += KEY_BLOCK * stride;
        if (bias) bias -= KEY_BLOCK;
    }
    switch (keys) {
#define REMAINDER(R)                                                                               \
    case R:                                                                                        \
        if (R < KEY_BLOCK) {                                                                       \
            score_block(R < KEY_BLOCK ? R : 1, s, top, packed, k, stride, d, bias, masked);        \
        }                                                                                          \
        break;
        REMAINDER(1)
        REMAINDER(2)
        REMAINDER(3)
        REMAINDER(4)
        REMAINDER(5)
        REMAINDER(6)
        REMAINDER(7)
#undef REMAINDER
    default: break;
    }
}

/* ---- Softmax -------------------------------------------------------------------------------- */

/* The new maximum, and what it does to sums taken under the old one. */
INLINE void advance_maximum(vector *m_new, const float *top, float *m, float *alpha) {
    UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
        vector before = v_load(m + g * LANES);
        m_new[g] = v_max(before, v_load(top + g * LANES));
        v_store(alpha + g * LANES, v_exp2(before - m_new[g]));
        v_store(m + g * LANES, m_new[g]);
    }
}

/* l + l_low = alpha (l + l_low) + sum: what the new l lacks after rounding is kept (Kahan). */
INLINE void add_compensated(float *l, float *l_low, vector alpha, vector sum) {
    vector kept = alpha * v_load(l), all = v_fma(alpha, v_load(l_low), sum);
    vector after = kept + all;
    v_store(l, after);
    v_store(l_low, all - (after - kept));
}

INLINE void softmax_rows(const bool weighted, float *s, const float *top, const float *w,
                         const int32_t *row, float *m, float *l, float *l_low, float *alpha,
                         int keys) {
    enum { SUMMED = 16 }; /* keys from zero: a sum of 128 like terms may be off by 64 ulps */
    vector m_new[GROUP_VECTORS], sum[GROUP_VECTORS], total[GROUP_VECTORS];
    advance_maximum(m_new, top, m, alpha);
    UNROLL for (int g = 0; g < GROUP_VECTORS; g++) total[g] = v_set(0.0f);
    for (int j = 0; j < keys;) {
        const int end = j + SUMMED < keys ? j + SUMMED : keys;
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) sum[g] = v_set(0.0f);
        for (; j < end; j++) {
            UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
                float *at = s + (ptrdiff_t)j * GROUP + g * LANES;
                vector p = v_exp2(v_load(at) - m_new[g]);
                if (weighted) p = p * v_load(w + (ptrdiff_t)row[j] * GROUP + g * LANES);
                v_store(at, p);
                sum[g] = sum[g] + p;
            }
        }
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) total[g] = total[g] + sum[g];
    }
    UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
        add_compensated(l + g * LANES, l_low + g * LANES, v_load(alpha + g * LANES), total[g]);
    }
}

static void softmax(int group, float *s, const float *top, float *m, float *l, float *l_low,
                    float *alpha, int keys) {
    (void)group;
    softmax_rows(false, s, top, NULL, NULL, m, l, l_low, alpha, keys);
}

static void softmax_weighted(int group, float *s, const float *top, const float *w,
                             const int32_t *row, float *m, float *l, float *l_low, float *alpha,
                             int keys) {
    (void)group;
    softmax_rows(true, s, top, w, row, m, l, l_low, alpha, keys);
}

static void mask(int group, float *s, float *top, const float *w, const int32_t *row, int keys) {
    (void)group;
    const vector nothing = v_set(-INFINITY), zero = v_set(0.0f);
    vector best[GROUP_VECTORS];
    UNROLL for (int g = 0; g < GROUP_VECTORS; g++) best[g] = nothing;
    for (int j = 0; j < keys; j++) {
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
            float *at = s + (ptrdiff_t)j * GROUP + g * LANES;
            vector weight = v_load(w + (ptrdiff_t)row[j] * GROUP + g * LANES);
            vector y = v_if_equal(weight, zero, nothing, v_load(at));
            v_store(at, y);
            best[g] = v_max(best[g], y);
        }
    }
    UNROLL for (int g = 0; g < GROUP_VECTORS; g++) v_store(top + g * LANES, best[g]);
}

/* ---- O = alpha O + P^T V -------------------------------------------------------------------- */

/* ROW_BLOCK rows by C vectors of columns, summed from zero and added once. partial: of the last
 * vector only `tail` lanes exist. */
INLINE void accumulate_block(const int C, const bool partial, float *o, ptrdiff_t columns,
                             const float *alpha, const float *p, const float *v, ptrdiff_t stride,
                             int keys, int tail) {
    vector sum[ROW_BLOCK][COLUMN_BLOCK];
    UNROLL for (int r = 0; r < ROW_BLOCK; r++) {
        UNROLL for (int c = 0; c < C; c++) sum[r][c] = v_set(0.0f);
    }
    for (int j = 0; j < keys; j++) {
        vector row[COLUMN_BLOCK];
        UNROLL for (int c = 0; c < C; c++) {
            row[c] =
                partial && c == C - 1 ? v_load_first(v + c * LANES, tail) : v_load(v + c * LANES);
        }
        UNROLL for (int r = 0; r < ROW_BLOCK; r++) {
            vector weight = v_set(p[r]);
            UNROLL for (int c = 0; c < C; c++) sum[r][c] = v_fma(weight, row[c], sum[r][c]);
        }
        p += GROUP;
        v += stride;
    }
    UNROLL for (int r = 0; r < ROW_BLOCK; r++) {
        vector a = v_set(alpha[r]);
        UNROLL for (int c = 0; c < C; c++) {
            float *to = o + r * columns + c * LANES;
            v_store(to, v_fma(a, v_load(to), sum[r][c]));
        }
    }
}

/* The keys begin .. end - 1 of a block of rows: before and after them, P is 0. */
typedef struct key_run {
    int begin, end;
} key_run;

INLINE bool has_weight(const float *p) {
    for (int r = 0; r < ROW_BLOCK; r++) {
        if (p[r] != 0.0f) return true;
    }
    return false;
}

INLINE key_run trim(const float *p, int keys) {
    key_run run = {0, keys};
    while (run.end > 0 && !has_weight(p + (ptrdiff_t)(run.end - 1) * GROUP)) run.end--;
    while (run.begin < run.end && !has_weight(p + (ptrdiff_t)run.begin * GROUP)) run.begin++;
    return run;
}

/* The next few rows. With each block of 6 x 16, 2 to 6 rows are within 1 % of each other. */
INLINE void look_ahead(plsh_ahead *ahead) {
    enum { ROWS = 4 };
    for (int i = 0; ahead && i < ROWS && ahead->next < ahead->end; i++, ahead->next++) {
        const int a = ahead->next % PLSH_AHEAD_ARRAYS;
        const char *row =
            ahead->array[a].first + ahead->next / PLSH_AHEAD_ARRAYS * ahead->array[a].stride;
        for (ptrdiff_t x = 0; x < ahead->array[a].bytes; x += 64) __builtin_prefetch(row + x, 0, 2);
    }
}

/* All rows of a strip of columns: the strip of V stays in the first cache. */
INLINE void accumulate_strip(const int C, const bool partial, float *o, ptrdiff_t columns,
                             const float *alpha, const float *p, const float *v, ptrdiff_t stride,
                             const key_run *run, int rows, int tail, plsh_ahead *ahead) {
    for (int r = 0; r < rows; r += ROW_BLOCK, run++) {
        look_ahead(ahead);
        accumulate_block(C, partial, o + r * columns, columns, alpha + r,
                         p + (ptrdiff_t)run->begin * GROUP + r, v + run->begin * stride, stride,
                         run->end - run->begin, tail);
    }
}

/* The vectors of a row are cut into strips as equal as can be: 5 into 3 + 2, not 4 + 1, which
 * would leave the second with too few sums to keep the multipliers busy. */
static void accumulate_keys(float *o, const float *alpha, const float *p, const float *v,
                            ptrdiff_t stride, int keys, int dv, int rows, bool ragged,
                            plsh_ahead *ahead) {
    const int columns = plsh_kernels_columns(dv);
    const int vectors = (dv + LANES - 1) / LANES;
    const int strips = (vectors + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    key_run run[GROUP / ROW_BLOCK];
    for (int r = 0; r < rows; r += ROW_BLOCK)
        run[r / ROW_BLOCK] = ragged ? trim(p + r, keys) : (key_run){0, keys};
    for (int i = 0, c = 0; i < strips; i++) {
        int width = vectors / strips + (i < vectors % strips);
        int tail = dv - (c + width - 1) * LANES;
        const float *at = v + c * LANES;
        float *to = o + c * LANES;
        switch (width) {
#define STRIP(C)                                                                                   \
    case C:                                                                                        \
        if (C <= COLUMN_BLOCK && tail >= LANES) {                                                  \
            accumulate_strip(C <= COLUMN_BLOCK ? C : 1, false, to, columns, alpha, p, at, stride,  \
                             run, rows, LANES, ahead);                                             \
        } else if (C <= COLUMN_BLOCK) {                                                            \
            accumulate_strip(C <= COLUMN_BLOCK ? C : 1, true, to, columns, alpha, p, at, stride,   \
                             run, rows, tail, ahead);                                              \
        }                                                                                          \
        break;
            STRIP(1)
            STRIP(2)
            STRIP(3)
            STRIP(4)
#undef STRIP
        default: break;
        }
        c += width;
    }
}

static void accumulate(int group, float *o, const float *alpha, const float *p, const float *v,
                       ptrdiff_t stride, int keys, int dv, int rows, bool ragged,
                       plsh_ahead *ahead) {
    (void)group;
    float one[GROUP];
    for (int r = 0; r < GROUP; r++) one[r] = 1.0f;
    int done = 0;
    do {
        int count = keys - done < PLSH_SUM_KEYS ? keys - done : PLSH_SUM_KEYS;
        accumulate_keys(o, done ? one : alpha, p + (ptrdiff_t)done * GROUP, v + done * stride,
                        stride, count, dv, rows, ragged, ahead);
        done += count;
    } while (done < keys);
}

/* Key after key and fused, as above, so that the bits agree. */
INLINE vector sum_masked(const float *p, const float *v, ptrdiff_t stride, int keys, int count) {
    vector sum = v_set(0.0f);
    for (int j = 0; j < keys; j++) {
        float weight = p[(ptrdiff_t)j * GROUP];
        if (weight == 0.0f) continue;
        vector row = load_elements(v, PLSH_DTYPE_FLOAT32, j * stride, count);
        sum = v_fma(v_set(weight), row, sum);
    }
    return sum;
}

static void accumulate_masked(int group, float *o, const float *alpha, const float *p,
                              const float *v, ptrdiff_t stride, int keys, int dv, int rows,
                              bool ragged, plsh_ahead *ahead) {
    (void)group;
    (void)ragged;
    (void)ahead;
    const int columns = plsh_kernels_columns(dv);
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < dv; c += LANES) {
            const int width = dv - c < LANES ? dv - c : LANES;
            float *to = o + (ptrdiff_t)r * columns + c;
            vector all = v_load(to), by = v_set(alpha[r]);
            int done = 0;
            do {
                int count = keys - done < PLSH_SUM_KEYS ? keys - done : PLSH_SUM_KEYS;
                all = v_fma(by, all,
                            sum_masked(p + (ptrdiff_t)done * GROUP + r, v + done * stride + c,
                                       stride, count, width));
                by = v_set(1.0f);
                done += count;
            } while (done < keys);
            v_store(to, all);
        }
    }
}

static void finish(int group, float *out, ptrdiff_t stride, const float *o, const float *l,
                   int rows, int dv) {
    (void)group;
    const int columns = plsh_kernels_columns(dv);
    for (int r = 0; r < rows; r++) {
        const vector inverse = v_set(l[r] == 0.0f ? 0.0f : 1.0f / l[r]);
        const float *from = o + (ptrdiff_t)r * columns;
        float *to = out + r * stride;
        int c = 0;
        for (; c + LANES <= dv; c += LANES) v_store(to + c, inverse * v_load(from + c));
        if (c < dv) v_store_first(to + c, dv - c, inverse * v_load(from + c));
    }
}

#include "attention/kernels/backward.h"
#include "attention/kernels/boxes.h"
#include "attention/kernels/decode_template.h"
#include "attention/kernels/draw.h"

#define KERNEL_TABLE(isa, narrow)                                                                  \
    {                                                                                              \
        .name = isa, .group = GROUP, .pack = pack, .widen = widen, .scores = scores,               \
        .softmax = softmax, .softmax_weighted = softmax_weighted, .mask = mask,                    \
        .accumulate = accumulate, .accumulate_masked = accumulate_masked, .finish = finish,        \
        .all_finite = all_finite, .box = box, .bounds = bounds, .gradient = gradient,              \
        .dots = dots, .spread = spread, .correlate = correlate, .attend = ATTEND,                  \
        .narrow_half = narrow, .draw = draw                                                        \
    }

#endif
