/* attention: the kernels over the vector vocabulary. The including file has defined
 *     LANES, vector, v_*   the vocabulary
 *     GROUP_VECTORS        vectors per group of queries
 *     KEY_BLOCK            keys per register block of scores: KEY_BLOCK * GROUP_VECTORS sums
 *     ROW_BLOCK            rows per register block of accumulate, a divisor of the group
 *     COLUMN_BLOCK         vectors of columns in it, at most: ROW_BLOCK * COLUMN_BLOCK sums
 * and what decode_template.h asks for, and makes its table with KERNEL_TABLE(name, narrow, pairs).
 */
#ifndef PLSH_KERNELS_TEMPLATE_H
#define PLSH_KERNELS_TEMPLATE_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/kernels/kernels.h"
#include "base/simd/vector_math.h"
#include "base/simd/vector_transpose.h"

#define GROUP (GROUP_VECTORS * LANES)
/* Boxes per register block: a box needs two sums, a key one. */
#define BOUND_BLOCK (KEY_BLOCK / 2)

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

static void pack(float *to, plsh_stored_rows from, int rows, int d, float factor) {
    const vector f = v_set(factor);
    for (int first = 0; first < GROUP; first += LANES) {
        int have = rows - first < 0 ? 0 : rows - first;
        for (int x = 0; x < d; x += LANES) {
            int count = d - x < LANES ? d - x : LANES;
            vector block[LANES];
            for (int r = 0; r < LANES; r++) {
                const ptrdiff_t at = (first + r) * from.stride + x;
                block[r] = r < have ? load_elements(from.data, from.dtype, at, count) : v_set(0.0f);
            }
            v_transpose(block);
            for (int i = 0; i < count; i++) {
                v_store(to + (ptrdiff_t)(x + i) * GROUP + first, f * block[i]);
            }
        }
    }
}

static void widen(plsh_matrix to, plsh_stored_rows from, int rows, int d) {
    for (int r = 0; r < rows; r++) {
        const ptrdiff_t at = r * from.stride;
        float *row = to.data + r * to.stride;
        int x = 0;
        for (; x + LANES <= d; x += LANES) {
            v_store(row + x, load_elements(from.data, from.dtype, at + x, LANES));
        }
        if (x < d) {
            v_store_first(row + x, d - x, load_elements(from.data, from.dtype, at + x, d - x));
        }
    }
}

/* 0 * x is 0 for a finite x and NaN for every other. */
static bool all_finite(plsh_stored_rows from, int rows, int d) {
    enum { SUMS = 4 }; /* as many as it takes to hide the latency of a sum */
    const vector zero = v_set(0.0f);
    vector sum[SUMS];
    UNROLL for (int i = 0; i < SUMS; i++) sum[i] = zero;
    for (int r = 0; r < rows; r++) {
        ptrdiff_t at = r * from.stride, end = at + d;
        for (; at + SUMS * LANES <= end; at += SUMS * LANES) {
            UNROLL for (int i = 0; i < SUMS; i++) {
                sum[i] = v_fma(zero, load_elements(from.data, from.dtype, at + i * LANES, LANES),
                               sum[i]);
            }
        }
        for (; at < end; at += LANES) {
            int count = end - at < LANES ? (int)(end - at) : LANES;
            sum[0] = v_fma(zero, load_elements(from.data, from.dtype, at, count), sum[0]);
        }
    }
    float lane[LANES], total = 0.0f;
    v_store(lane, (sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (int i = 0; i < LANES; i++) total += lane[i];
    return total == 0.0f;
}

/* ---- Scores --------------------------------------------------------------------------------- */

INLINE vector multiply_words(vector q, vector k, vector sum) { return v_fma(q, k, sum); }

#include "attention/kernels/scores.h"

static void scores(float *s, float *top, plsh_packed_rows q, plsh_key_rows k,
                   plsh_score_bias bias) {
    const word_rows words = {(const char *)k.row, k.stride * (ptrdiff_t)sizeof *k.row, k.count,
                             k.dim};
    score_words(s, top, q, words, 1.0f, bias);
}

/* ---- Softmax -------------------------------------------------------------------------------- */

/* m' = max(m, top), and alpha = 2^(m - m'), which takes sums relative to m to m'. */
INLINE void advance_maximum(const int G, vector *m_new, const float *top,
                            plsh_softmax_state state) {
    UNROLL for (int g = 0; g < G; g++) {
        vector before = v_load(state.m + g * LANES);
        m_new[g] = v_max(before, v_load(top + g * LANES));
        v_store(state.alpha + g * LANES, v_exp2(before - m_new[g]));
        v_store(state.m + g * LANES, m_new[g]);
    }
}

/* l + l_low = alpha (l + l_low) + sum: what the new l lacks after rounding is kept (Kahan). */
INLINE void add_compensated(float *l, float *l_low, vector alpha, vector sum) {
    vector kept = alpha * v_load(l), all = v_fma(alpha, v_load(l_low), sum);
    vector after = kept + all;
    v_store(l, after);
    v_store(l_low, all - (after - kept));
}

INLINE vector weight_at(plsh_pair_weights weights, int j, int g) {
    return v_load(weights.w + (ptrdiff_t)weights.row[j] * GROUP + g * LANES);
}

INLINE void softmax_rows(const int G, const bool weighted, float *s, int keys, const float *top,
                         plsh_pair_weights weights, plsh_softmax_state state) {
    enum {
        SUMMED = 16
    }; /* keys that are summed from zero: a float sum of 128 similar terms may be off
         by 64 ulps */
    vector m_new[GROUP_VECTORS], sum[GROUP_VECTORS], total[GROUP_VECTORS];
    advance_maximum(G, m_new, top, state);
    UNROLL for (int g = 0; g < G; g++) total[g] = v_set(0.0f);
    for (int j = 0; j < keys;) {
        const int end = j + SUMMED < keys ? j + SUMMED : keys;
        UNROLL for (int g = 0; g < G; g++) sum[g] = v_set(0.0f);
        for (; j < end; j++) {
            UNROLL for (int g = 0; g < G; g++) {
                float *at = s + (ptrdiff_t)j * GROUP + g * LANES;
                vector p = v_exp2(v_load(at) - m_new[g]);
                if (weighted) p = p * weight_at(weights, j, g);
                v_store(at, p);
                sum[g] = sum[g] + p;
            }
        }
        UNROLL for (int g = 0; g < G; g++) total[g] = total[g] + sum[g];
    }
    UNROLL for (int g = 0; g < G; g++) {
        add_compensated(state.l + g * LANES, state.l_low + g * LANES,
                        v_load(state.alpha + g * LANES), total[g]);
    }
}

INLINE void softmax_used(const bool weighted, float *s, int keys, const float *top,
                         plsh_pair_weights weights, plsh_softmax_state state) {
    const int used = used_vectors(state.rows);
    if (used == 1)
        softmax_rows(1, weighted, s, keys, top, weights, state);
    else if (used == 2 && GROUP_VECTORS > 2)
        softmax_rows(2, weighted, s, keys, top, weights, state);
    else
        softmax_rows(GROUP_VECTORS, weighted, s, keys, top, weights, state);
}

static void softmax(float *s, int keys, const float *top, plsh_softmax_state state) {
    softmax_used(false, s, keys, top, (plsh_pair_weights){0}, state);
}

static void softmax_weighted(float *s, int keys, const float *top, plsh_pair_weights weights,
                             plsh_softmax_state state) {
    softmax_used(true, s, keys, top, weights, state);
}

static void mask(float *s, int keys, float *top, plsh_pair_weights weights) {
    const vector nothing = v_set(-INFINITY), zero = v_set(0.0f);
    vector best[GROUP_VECTORS];
    UNROLL for (int g = 0; g < GROUP_VECTORS; g++) best[g] = nothing;
    for (int j = 0; j < keys; j++) {
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
            float *at = s + (ptrdiff_t)j * GROUP + g * LANES;
            vector y = v_if_equal(weight_at(weights, j, g), zero, nothing, v_load(at));
            v_store(at, y);
            best[g] = v_max(best[g], y);
        }
    }
    UNROLL for (int g = 0; g < GROUP_VECTORS; g++) v_store(top + g * LANES, best[g]);
}

/* ---- O = alpha O + P^T V -------------------------------------------------------------------- */

/* ROW_BLOCK rows of O, some columns of V, and the keys that the two share. */
typedef struct accumulate_block {
    float *o;
    ptrdiff_t columns;  /* floats from one row of O to the next */
    const float *alpha; /* of the rows */
    const float *p;     /* of the rows, [keys][GROUP] */
    plsh_key_rows v;    /* its `dim` columns from the block's first on */
} accumulate_block;

/* R rows and C vectors of columns, summed from zero and added once. partial: the last vector has
 * only the lanes that v.dim leaves for it. */
INLINE void accumulate_columns(const int R, const int C, const bool partial, accumulate_block b) {
    const int tail = b.v.dim - (C - 1) * LANES;
    vector sum[ROW_BLOCK][COLUMN_BLOCK];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int c = 0; c < C; c++) sum[r][c] = v_set(0.0f);
    }
    for (int j = 0; j < b.v.count; j++) {
        vector row[COLUMN_BLOCK];
        UNROLL for (int c = 0; c < C; c++) {
            const float *at = b.v.row + c * LANES;
            row[c] = partial && c == C - 1 ? v_load_first(at, tail) : v_load(at);
        }
        UNROLL for (int r = 0; r < R; r++) {
            vector weight = v_set(b.p[r]);
            UNROLL for (int c = 0; c < C; c++) sum[r][c] = v_fma(weight, row[c], sum[r][c]);
        }
        b.p += GROUP;
        b.v.row += b.v.stride;
    }
    UNROLL for (int r = 0; r < R; r++) {
        vector a = v_set(b.alpha[r]);
        UNROLL for (int c = 0; c < C; c++) {
            float *to = b.o + r * b.columns + c * LANES;
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

/* Prefetches the next few rows. Measured: 2 to 6 rows for each block of 6 x 16 sums make less than
 * 1 % difference. */
INLINE void prefetch_rows(plsh_prefetch *next) {
    enum { ROWS = 4 };
    for (int i = 0; next && i < ROWS && next->next < next->end; i++, next->next++) {
        const int a = next->next % PLSH_PREFETCH_ARRAYS;
        const char *row =
            next->array[a].first + next->next / PLSH_PREFETCH_ARRAYS * next->array[a].stride;
        for (ptrdiff_t x = 0; x < next->array[a].bytes; x += 64) __builtin_prefetch(row + x, 0, 2);
    }
}

/* The blocks of all rows for one strip of columns: the strip of V stays in the first-level cache.
 * run: the keys of each block. */
INLINE void accumulate_strip(const int C, const bool partial, accumulate_block first, int rows,
                             const key_run *run, plsh_prefetch *prefetch) {
    for (int r = 0; r < rows; r += ROW_BLOCK, run++) {
        prefetch_rows(prefetch);
        accumulate_block b = first;
        b.o += r * first.columns;
        b.alpha += r;
        b.p += (ptrdiff_t)run->begin * GROUP + r;
        b.v.row += run->begin * first.v.stride;
        b.v.count = run->end - run->begin;
        if (ROW_BLOCK > 2 && rows - r <= 2)
            accumulate_columns(2, C, partial, b);
        else
            accumulate_columns(ROW_BLOCK, C, partial, b);
    }
}

/* The vectors of a row are cut into strips as equal as can be: 5 into 3 + 2, not 4 + 1, which
 * would leave the second with too few sums to keep the multipliers busy. */
static void accumulate_keys(plsh_accumulator sums, const float *p, plsh_key_rows v, bool ragged,
                            plsh_prefetch *prefetch) {
    const int vectors = (v.dim + LANES - 1) / LANES;
    const int strips = (vectors + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    key_run run[GROUP / ROW_BLOCK];
    for (int r = 0; r < sums.rows; r += ROW_BLOCK)
        run[r / ROW_BLOCK] = ragged ? trim(p + r, v.count) : (key_run){0, v.count};
    accumulate_block b = {sums.o, plsh_kernels_columns(v.dim), sums.alpha, p, v};
    for (int i = 0; i < strips; i++) {
        const int width = vectors / strips + (i < vectors % strips);
        switch (width) {
#define STRIP(C)                                                                                   \
    case C:                                                                                        \
        if (C <= COLUMN_BLOCK && b.v.dim >= C * LANES) {                                           \
            accumulate_strip(C <= COLUMN_BLOCK ? C : 1, false, b, sums.rows, run, prefetch);       \
        } else if (C <= COLUMN_BLOCK) {                                                            \
            accumulate_strip(C <= COLUMN_BLOCK ? C : 1, true, b, sums.rows, run, prefetch);        \
        }                                                                                          \
        break;
            STRIP(1)
            STRIP(2)
            STRIP(3)
            STRIP(4)
#undef STRIP
        default: break;
        }
        b.o += width * LANES;
        b.v.row += width * LANES;
        b.v.dim -= width * LANES;
    }
}

static void accumulate(plsh_accumulator sums, const float *p, plsh_key_rows v, bool ragged,
                       plsh_prefetch *prefetch) {
    float one[GROUP];
    for (int r = 0; r < GROUP; r++) one[r] = 1.0f;
    const int keys = v.count;
    int done = 0;
    do {
        v.count = keys - done < PLSH_SUM_KEYS ? keys - done : PLSH_SUM_KEYS;
        accumulate_keys(sums, p, v, ragged, prefetch);
        done += v.count;
        p += (ptrdiff_t)v.count * GROUP;
        v.row += v.count * v.stride;
        sums.alpha = one;
    } while (done < keys);
}

/* Key after key and fused, as above, so that the bits agree. */
INLINE vector sum_masked(const float *p, plsh_key_rows v, int count) {
    vector sum = v_set(0.0f);
    for (int j = 0; j < v.count; j++) {
        float weight = p[(ptrdiff_t)j * GROUP];
        if (weight == 0.0f) continue;
        vector row = load_elements(v.row, PLSH_DTYPE_FLOAT32, j * v.stride, count);
        sum = v_fma(v_set(weight), row, sum);
    }
    return sum;
}

/* o[0 .. count), count at most LANES, of one row. */
INLINE void accumulate_masked_row(float *o, float alpha, const float *p, plsh_key_rows v,
                                  int count) {
    const int keys = v.count;
    vector all = v_load(o), by = v_set(alpha);
    int done = 0;
    do {
        v.count = keys - done < PLSH_SUM_KEYS ? keys - done : PLSH_SUM_KEYS;
        all = v_fma(by, all, sum_masked(p, v, count));
        by = v_set(1.0f);
        done += v.count;
        p += (ptrdiff_t)v.count * GROUP;
        v.row += v.count * v.stride;
    } while (done < keys);
    v_store(o, all);
}

static void accumulate_masked(plsh_accumulator sums, const float *p, plsh_key_rows v, bool ragged,
                              plsh_prefetch *prefetch) {
    (void)ragged;
    (void)prefetch;
    const int columns = plsh_kernels_columns(v.dim), dv = v.dim;
    for (int r = 0; r < sums.rows; r++) {
        plsh_key_rows at = v;
        for (int c = 0; c < dv; c += LANES, at.row += LANES) {
            accumulate_masked_row(sums.o + (ptrdiff_t)r * columns + c, sums.alpha[r], p + r, at,
                                  dv - c < LANES ? dv - c : LANES);
        }
    }
}

static void finish(plsh_matrix out, const float *o, const float *l, int rows, int dv) {
    const int columns = plsh_kernels_columns(dv);
    for (int r = 0; r < rows; r++) {
        const vector inverse = v_set(l[r] == 0.0f ? 0.0f : 1.0f / l[r]);
        const float *from = o + (ptrdiff_t)r * columns;
        float *to = out.data + r * out.stride;
        int c = 0;
        for (; c + LANES <= dv; c += LANES) v_store(to + c, inverse * v_load(from + c));
        if (c < dv) v_store_first(to + c, dv - c, inverse * v_load(from + c));
    }
}

#include "attention/kernels/backward.h"
#include "attention/kernels/boxes.h"
#include "attention/kernels/decode_template.h"
#include "attention/kernels/draw.h"
#include "attention/kernels/points.h"

#define KERNEL_TABLE(isa, narrow, of_pairs)                                                        \
    {                                                                                              \
        .name = isa, .group = GROUP, .pack = pack, .widen = widen, .scores = scores,               \
        .distances = distances, .recede = recede, .softmax = softmax,                              \
        .softmax_weighted = softmax_weighted, .mask = mask, .accumulate = accumulate,              \
        .accumulate_masked = accumulate_masked, .finish = finish, .all_finite = all_finite,        \
        .box = box, .bounds = bounds, .gradient = gradient, .dots = dots,                          \
        .key_gradient = key_gradient, .correlate = correlate, .attend = ATTEND,                    \
        .narrow_half = narrow, .draw = draw, .pairs = (of_pairs)                                   \
    }

#endif
