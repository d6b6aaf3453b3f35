/* attention: the kernels in plain C. The other tables compute the same, faster. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/kernels/kernels.h"
#include "base/dtype.h"
#include "base/numbers.h"
#include "base/random.h"
#include "base/simd/vector_plain.h"

enum { GROUP = 16 };

static void pack(float *to, plsh_stored_rows from, int rows, int d, float factor) {
    for (int r = 0; r < GROUP; r++) {
        for (int x = 0; x < d; x++) {
            const ptrdiff_t at = r * from.stride + x;
            to[(ptrdiff_t)x * GROUP + r] =
                r < rows ? factor * plsh_dtype_load(from.dtype, from.data, at) : 0.0f;
        }
    }
}

static void widen(plsh_matrix to, plsh_stored_rows from, int rows, int d) {
    for (int r = 0; r < rows; r++) {
        for (int x = 0; x < d; x++) {
            to.data[r * to.stride + x] =
                plsh_dtype_load(from.dtype, from.data, r * from.stride + x);
        }
    }
}

static void scores(float *s, float *top, plsh_packed_rows q, plsh_key_rows k,
                   plsh_score_bias bias) {
    for (int r = 0; r < GROUP; r++) top[r] = -INFINITY;
    for (int j = 0; j < k.count; j++) {
        float *row = s + (ptrdiff_t)j * GROUP;
        for (int r = 0; r < GROUP; r++) row[r] = 0.0f;
        for (int x = 0; x < k.dim; x++) {
            float key = k.row[j * k.stride + x];
            for (int r = 0; r < GROUP; r++) row[r] += q.at[(ptrdiff_t)x * GROUP + r] * key;
        }
        for (int r = 0; r < GROUP; r++) {
            if (bias.at) row[r] += bias.at[r - j];
            if (bias.masks && bias.at && bias.at[r - j] == -INFINITY) row[r] = -INFINITY;
            top[r] = plsh_larger(top[r], row[r]);
        }
    }
}

static float distance_to(plsh_points points, int j, int r) {
    float d = points.x[r] - points.y[(ptrdiff_t)j * points.dim], sum = d * d, t;
    for (int i = 1; i < points.dim; i++) {
        const float e = points.x[i * GROUP + r] - points.y[(ptrdiff_t)j * points.dim + i];
        sum += e * e;
    }
    t = points.dim == 1 ? fabsf(d) : sqrtf(sum);
    return t == t ? t : 0.0f; /* NaN is no position */
}

static void distances(float *t, plsh_points points, int keys) {
    for (int j = 0; j < keys; j++)
        for (int r = 0; r < GROUP; r++) t[(ptrdiff_t)j * GROUP + r] = distance_to(points, j, r);
}

static void recede(float *s, float *top, plsh_points points, int keys, float slope) {
    for (int r = 0; r < GROUP; r++) top[r] = -INFINITY;
    for (int j = 0; j < keys; j++) {
        float *row = s + (ptrdiff_t)j * GROUP;
        for (int r = 0; r < GROUP; r++) {
            row[r] -= slope * distance_to(points, j, r);
            top[r] = plsh_larger(top[r], row[r]);
        }
    }
}

/* 2^x, cut to zero below the normal range as in the other tables. */
static float weight_of(float x) { return x < -126.0f ? 0.0f : exp2f(x); }

/* m = max(m, top), alpha = 2^(old m - m). */
static void advance_maximum(const float *top, plsh_softmax_state state) {
    for (int r = 0; r < GROUP; r++) {
        float after = plsh_larger(state.m[r], top[r]);
        state.alpha[r] = weight_of(state.m[r] - after);
        state.m[r] = after;
    }
}

/* l + l_low = alpha (l + l_low) + sum: what the new l lacks after rounding is kept (Kahan). */
static void add_compensated(float *l, float *l_low, float alpha, float sum) {
    float kept = alpha * *l, all = alpha * *l_low + sum, after = kept + all;
    *l = after;
    *l_low = all - (after - kept);
}

static void softmax_weighted(float *s, int keys, const float *top, plsh_pair_weights weights,
                             plsh_softmax_state state) {
    advance_maximum(top, state);
    for (int r = 0; r < GROUP; r++) {
        float total = 0.0f, sum = 0.0f;
        for (int j = 0; j < keys; j++) {
            float *at = s + (ptrdiff_t)j * GROUP + r;
            *at = weight_of(*at - state.m[r]);
            if (weights.w) *at *= weights.w[(ptrdiff_t)weights.row[j] * GROUP + r];
            sum += *at;
            if (j % 16 < 15 && j < keys - 1) continue;
            total += sum; /* 16 keys at a time: fewer roundings than one by one */
            sum = 0.0f;
        }
        add_compensated(state.l + r, state.l_low + r, state.alpha[r], total);
    }
}

static void softmax(float *s, int keys, const float *top, plsh_softmax_state state) {
    softmax_weighted(s, keys, top, (plsh_pair_weights){0}, state);
}

static void mask(float *s, int keys, float *top, plsh_pair_weights weights) {
    for (int r = 0; r < GROUP; r++) {
        top[r] = -INFINITY;
        for (int j = 0; j < keys; j++) {
            float *at = s + (ptrdiff_t)j * GROUP + r;
            if (weights.w[(ptrdiff_t)weights.row[j] * GROUP + r] == 0.0f) *at = -INFINITY;
            top[r] = plsh_larger(top[r], *at);
        }
    }
}

enum { COLUMNS = 16 }; /* of a block of accumulate */

/* o[c] = alpha o[c] + sum_j p_j v_j[c], c < v.dim <= COLUMNS. masked: weight 0 takes nothing from
 * v. */
static void add_keys(float *o, float alpha, const float *p, plsh_key_rows v, bool masked) {
    float sum[COLUMNS] = {0};
    for (int j = 0; j < v.count; j++) {
        float weight = p[(ptrdiff_t)j * GROUP];
        if (masked && weight == 0.0f) continue;
        for (int c = 0; c < v.dim; c++) sum[c] += weight * v.row[j * v.stride + c];
    }
    for (int c = 0; c < v.dim; c++) o[c] = alpha * o[c] + sum[c];
}

static void add_rows(plsh_accumulator sums, const float *p, plsh_key_rows v, bool masked) {
    const int columns = plsh_kernels_columns(v.dim);
    for (int r = 0; r < sums.rows; r++) {
        int done = 0;
        do {
            plsh_key_rows some = {.stride = v.stride};
            some.count = v.count - done < PLSH_SUM_KEYS ? v.count - done : PLSH_SUM_KEYS;
            for (int c = 0; c < v.dim; c += COLUMNS) {
                some.row = v.row + done * v.stride + c;
                some.dim = v.dim - c < COLUMNS ? v.dim - c : COLUMNS;
                add_keys(sums.o + (ptrdiff_t)r * columns + c, done ? 1.0f : sums.alpha[r],
                         p + (ptrdiff_t)done * GROUP + r, some, masked);
            }
            done += some.count;
        } while (done < v.count);
    }
}

static void accumulate(plsh_accumulator sums, const float *p, plsh_key_rows v, bool ragged,
                       plsh_prefetch *prefetch) {
    (void)ragged;
    (void)prefetch;
    add_rows(sums, p, v, false);
}

static void accumulate_masked(plsh_accumulator sums, const float *p, plsh_key_rows v, bool ragged,
                              plsh_prefetch *prefetch) {
    (void)ragged;
    (void)prefetch;
    add_rows(sums, p, v, true);
}

static void finish(plsh_matrix out, const float *o, const float *l, int rows, int dv) {
    const int columns = plsh_kernels_columns(dv);
    for (int r = 0; r < rows; r++) {
        float inverse = l[r] == 0.0f ? 0.0f : 1.0f / l[r];
        for (int c = 0; c < dv; c++)
            out.data[r * out.stride + c] = inverse * o[(ptrdiff_t)r * columns + c];
    }
}

static bool all_finite(plsh_stored_rows from, int rows, int d) {
    for (int r = 0; r < rows; r++) {
        for (int x = 0; x < d; x++) {
            if (!isfinite(plsh_dtype_load(from.dtype, from.data, r * from.stride + x)))
                return false;
        }
    }
    return true;
}

static void box(float *to, float square[2], plsh_key_rows k, const float *mean) {
    const int d = k.dim;
    for (int x = 0; x < d; x++) {
        float low = INFINITY, high = -INFINITY;
        for (int r = 0; r < k.count; r++) {
            low = fminf(low, k.row[r * k.stride + x] - mean[x]);
            high = fmaxf(high, k.row[r * k.stride + x] - mean[x]);
        }
        to[x] = 0.5f * low + 0.5f * high;
        /* The centre is off by half an ulp: the half width makes up for it. */
        to[d + x] = fmaxf(high - to[x], to[x] - low) * (1.0f + 4.0f * FLT_EPSILON);
    }
    square[0] = square[1] = 0.0f;
    for (int r = 0; r < k.count; r++) {
        float size = 0.0f, distance = 0.0f;
        for (int x = 0; x < d; x++) {
            float y = k.row[r * k.stride + x] - mean[x], off = y - to[x];
            size += y * y;
            distance += off * off;
        }
        square[0] = plsh_larger(square[0], size);
        square[1] = plsh_larger(square[1], distance);
    }
}

/* norms: |q| |k| at most; ball: |q| times the radius. */
static float bound_of(const float *q, const float *box_of, float norms, float ball, int d) {
    float middle = 0.0f, width = 0.0f;
    for (int x = 0; x < d; x++) {
        middle += q[(ptrdiff_t)x * GROUP] * box_of[x];
        width += fabsf(q[(ptrdiff_t)x * GROUP]) * box_of[d + x];
    }
    float u = middle + (width >= ball ? ball : width) + (float)(d + 1) * 3.0f * FLT_EPSILON * norms;
    return u >= norms ? norms : u; /* u is NaN where norms is */
}

static void bounds(float *e, plsh_piece_boxes boxes, plsh_bounded_queries queries) {
    for (int t = 0; t < boxes.count; t++) {
        for (int r = 0; r < GROUP; r++) {
            float q = queries.norm[r];
            float u = bound_of(queries.packed + r, boxes.box + (ptrdiff_t)t * 2 * boxes.d,
                               q * boxes.norm[t], q * boxes.radius[t], boxes.d);
            u += boxes.bias[t] - queries.shift[r];
            e[(ptrdiff_t)t * GROUP + r] = weight_of(u > 100.0f ? 100.0f : u);
        }
    }
}

static void gradient(float *s, float *dp, int keys, plsh_weigh how, plsh_pair_weights weights,
                     plsh_gradient_rows rows) {
    float total[GROUP] = {0};
    for (int j = 0; j < keys; j++) {
        for (int r = 0; r < GROUP; r++) {
            ptrdiff_t at = (ptrdiff_t)j * GROUP + r;
            float p = how == PLSH_WEIGH_READY ? s[at] * rows.lse[r]
                                              : weight_of((s[at] - rows.lse[r]) - rows.low[r]);
            if (how == PLSH_WEIGH_MASKED) {
                float weight = weights.w[(ptrdiff_t)weights.row[j] * GROUP + r];
                p = weight == 0.0f ? 0.0f : weight * p;
            }
            s[at] = p = plsh_larger(0.0f, p - 0x1p-100f);
            if (!dp) continue;
            dp[at] = p == 0.0f ? 0.0f : p * (dp[at] - rows.delta[r]);
            total[r] += dp[at];
        }
    }
    for (int r = 0; dp && r < GROUP; r++) rows.sum[r] += total[r];
}

static void dots(float *to, const float *a, const float *b, int d) {
    for (int r = 0; r < GROUP; r++) {
        to[r] = 0.0f;
        for (int x = 0; x < d; x++) {
            to[r] += a[(ptrdiff_t)x * GROUP + r] * b[(ptrdiff_t)x * GROUP + r];
        }
    }
}

static void key_gradient(plsh_matrix out, plsh_const_matrix a, plsh_const_matrix b, int keys,
                         int queries, int d) {
    for (int j = 0; j < keys; j++) {
        for (int c = 0; c < d; c++) {
            float sum = 0.0f;
            for (int q = 0; q < queries; q++) {
                float weight = a.data[q / GROUP * a.stride + (ptrdiff_t)j * GROUP + q % GROUP];
                sum += weight * b.data[q * b.stride + c];
            }
            out.data[j * out.stride + c] += sum;
        }
    }
}

static double correlate(const float *ds, const float *table, int keys) {
    double sum = 0.0;
    for (int j = 0; j < keys; j++) {
        for (int r = 0; r < GROUP; r++) {
            sum += (double)ds[(ptrdiff_t)j * GROUP + r] * (double)table[r - j];
        }
    }
    return sum;
}

/* ---- Decoding, by the template ------------------------------------------------------------- */

#define DECODE_ROWS 1
#define DECODE_COLUMNS 1

static inline void v_sum4(float *to, vector a, vector b, vector c, vector d) {
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

#include "attention/kernels/decode_template.h"

static void narrow_half(uint16_t *to, const float *from, int64_t count) {
    for (int64_t x = 0; x < count; x++) to[x] = plsh_float_to_half(from[x]);
}

static void draw(uint64_t *first, uint64_t *second, uint64_t seed, uint64_t index,
                 const uint64_t *key, int keys) {
    for (int j = 0; j < keys; j++) {
        const plsh_stream stream = {seed, (uint32_t)key[j], (uint32_t)(key[j] >> 32)};
        const plsh_random random = plsh_random_at(stream, index);
        first[j] = random.word[0];
        second[j] = random.word[1];
    }
}

const plsh_kernels plsh_kernels_reference = {
    .name = "reference",
    .group = GROUP,
    .pack = pack,
    .widen = widen,
    .scores = scores,
    .distances = distances,
    .recede = recede,
    .softmax = softmax,
    .softmax_weighted = softmax_weighted,
    .mask = mask,
    .accumulate = accumulate,
    .accumulate_masked = accumulate_masked,
    .finish = finish,
    .all_finite = all_finite,
    .box = box,
    .bounds = bounds,
    .gradient = gradient,
    .dots = dots,
    .key_gradient = key_gradient,
    .correlate = correlate,
    .attend = ATTEND,
    .narrow_half = narrow_half,
    .draw = draw,
};
