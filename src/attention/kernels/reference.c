/* attention: the kernels in plain C, for any group. What they say, the others do faster. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/kernels/tables.h"
#include "base/dtype.h"
#include "base/random.h"
#include "base/simd/vector_plain.h"

enum { REFERENCE_GROUP = 16 };

static void pack(int group, float *to, const void *from, plsh_dtype dtype, ptrdiff_t stride,
                 int rows, int d, float factor) {
    for (int r = 0; r < group; r++) {
        for (int x = 0; x < d; x++) {
            to[(ptrdiff_t)x * group + r] =
                r < rows ? factor * plsh_dtype_load(dtype, from, r * stride + x) : 0.0f;
        }
    }
}

static void widen(int group, float *to, ptrdiff_t to_stride, const void *from, plsh_dtype dtype,
                  ptrdiff_t stride, int rows, int d) {
    (void)group;
    for (int r = 0; r < rows; r++) {
        for (int x = 0; x < d; x++) {
            to[r * to_stride + x] = plsh_dtype_load(dtype, from, r * stride + x);
        }
    }
}

/* The larger, and NaN where there is one. */
static float larger(float a, float b) { return a >= b || a != a ? a : b; }

static void scores(int group, float *s, float *top, const float *packed, const float *k,
                   ptrdiff_t stride, int keys, int d, const float *bias, bool masked) {
    for (int r = 0; r < group; r++) top[r] = -INFINITY;
    for (int j = 0; j < keys; j++) {
        float *row = s + (ptrdiff_t)j * group;
        for (int r = 0; r < group; r++) row[r] = bias ? bias[r - j] : 0.0f;
        for (int x = 0; x < d; x++) {
            float key = k[j * stride + x];
            for (int r = 0; r < group; r++) row[r] += packed[(ptrdiff_t)x * group + r] * key;
        }
        for (int r = 0; r < group; r++) {
            if (masked && bias && bias[r - j] == -INFINITY) row[r] = -INFINITY;
            top[r] = larger(top[r], row[r]);
        }
    }
}

/* 2^x, cut to zero below the normal range as in the other tables. */
static float weight_of(float x) { return x < -126.0f ? 0.0f : exp2f(x); }

/* m = max(m, top), alpha = 2^(old m - m). */
static void advance_maximum(int group, const float *top, float *m, float *alpha) {
    for (int r = 0; r < group; r++) {
        float after = larger(m[r], top[r]);
        alpha[r] = weight_of(m[r] - after);
        m[r] = after;
    }
}

/* l + l_low = alpha (l + l_low) + sum: what the new l lacks after rounding is kept (Kahan). */
static void add_compensated(float *l, float *l_low, float alpha, float sum) {
    float kept = alpha * *l, all = alpha * *l_low + sum, after = kept + all;
    *l = after;
    *l_low = all - (after - kept);
}

static void softmax_weighted(int group, float *s, const float *top, const float *w,
                             const int32_t *row, float *m, float *l, float *l_low, float *alpha,
                             int keys) {
    advance_maximum(group, top, m, alpha);
    for (int r = 0; r < group; r++) {
        float total = 0.0f, sum = 0.0f;
        for (int j = 0; j < keys; j++) {
            float *at = s + (ptrdiff_t)j * group + r;
            *at = weight_of(*at - m[r]);
            if (w) *at *= w[(ptrdiff_t)row[j] * group + r];
            sum += *at;
            if (j % 16 < 15 && j < keys - 1) continue;
            total += sum; /* 16 keys at a time: fewer roundings than one by one */
            sum = 0.0f;
        }
        add_compensated(l + r, l_low + r, alpha[r], total);
    }
}

static void softmax(int group, float *s, const float *top, float *m, float *l, float *l_low,
                    float *alpha, int keys) {
    softmax_weighted(group, s, top, NULL, NULL, m, l, l_low, alpha, keys);
}

static void mask(int group, float *s, float *top, const float *w, const int32_t *row, int keys) {
    for (int r = 0; r < group; r++) {
        top[r] = -INFINITY;
        for (int j = 0; j < keys; j++) {
            float *at = s + (ptrdiff_t)j * group + r;
            if (w[(ptrdiff_t)row[j] * group + r] == 0.0f) *at = -INFINITY;
            top[r] = larger(top[r], *at);
        }
    }
}

/* o[0..count) = alpha o + sum_j p_j v_j. masked: weight 0 takes nothing from v. */
static void add_keys(int group, float *o, float alpha, const float *p, const float *v,
                     ptrdiff_t stride, int keys, int count, bool masked) {
    float sum[16] = {0};
    for (int j = 0; j < keys; j++) {
        float weight = p[(ptrdiff_t)j * group];
        if (masked && weight == 0.0f) continue;
        for (int c = 0; c < count; c++) sum[c] += weight * v[j * stride + c];
    }
    for (int c = 0; c < count; c++) o[c] = alpha * o[c] + sum[c];
}

static void add_rows(int group, float *o, const float *alpha, const float *p, const float *v,
                     ptrdiff_t stride, int keys, int dv, int rows, bool masked) {
    const int columns = plsh_kernels_columns(dv);
    for (int r = 0; r < rows; r++) {
        int done = 0;
        do {
            int count = keys - done < PLSH_SUM_KEYS ? keys - done : PLSH_SUM_KEYS;
            for (int c = 0; c < dv; c += 16) {
                add_keys(group, o + (ptrdiff_t)r * columns + c, done ? 1.0f : alpha[r],
                         p + (ptrdiff_t)done * group + r, v + done * stride + c, stride, count,
                         dv - c < 16 ? dv - c : 16, masked);
            }
            done += count;
        } while (done < keys);
    }
}

static void accumulate(int group, float *o, const float *alpha, const float *p, const float *v,
                       ptrdiff_t stride, int keys, int dv, int rows, bool ragged,
                       plsh_ahead *ahead) {
    (void)ragged;
    (void)ahead;
    add_rows(group, o, alpha, p, v, stride, keys, dv, rows, false);
}

static void accumulate_masked(int group, float *o, const float *alpha, const float *p,
                              const float *v, ptrdiff_t stride, int keys, int dv, int rows,
                              bool ragged, plsh_ahead *ahead) {
    (void)ragged;
    (void)ahead;
    add_rows(group, o, alpha, p, v, stride, keys, dv, rows, true);
}

static void finish(int group, float *out, ptrdiff_t stride, const float *o, const float *l,
                   int rows, int dv) {
    (void)group;
    const int columns = plsh_kernels_columns(dv);
    for (int r = 0; r < rows; r++) {
        float inverse = l[r] == 0.0f ? 0.0f : 1.0f / l[r];
        for (int c = 0; c < dv; c++) out[r * stride + c] = inverse * o[(ptrdiff_t)r * columns + c];
    }
}

static bool all_finite(int group, const void *from, plsh_dtype dtype, ptrdiff_t stride, int rows,
                       int d) {
    (void)group;
    for (int r = 0; r < rows; r++) {
        for (int x = 0; x < d; x++) {
            if (!isfinite(plsh_dtype_load(dtype, from, r * stride + x))) return false;
        }
    }
    return true;
}

static void box(int group, float *to, float square[2], const float *k, ptrdiff_t stride,
                const float *mean, int rows, int d) {
    (void)group;
    for (int x = 0; x < d; x++) {
        float low = INFINITY, high = -INFINITY;
        for (int r = 0; r < rows; r++) {
            low = fminf(low, k[r * stride + x] - mean[x]);
            high = fmaxf(high, k[r * stride + x] - mean[x]);
        }
        to[x] = 0.5f * low + 0.5f * high;
        /* The centre is off by half an ulp: the half width makes up for it. */
        to[d + x] = fmaxf(high - to[x], to[x] - low) * (1.0f + 4.0f * FLT_EPSILON);
    }
    square[0] = square[1] = 0.0f;
    for (int r = 0; r < rows; r++) {
        float size = 0.0f, distance = 0.0f;
        for (int x = 0; x < d; x++) {
            float y = k[r * stride + x] - mean[x], off = y - to[x];
            size += y * y;
            distance += off * off;
        }
        square[0] = larger(square[0], size);
        square[1] = larger(square[1], distance);
    }
}

static float bound_of(int group, const float *q, const float *box_of, float norms, float ball,
                      int d) {
    float middle = 0.0f, width = 0.0f;
    for (int x = 0; x < d; x++) {
        middle += q[(ptrdiff_t)x * group] * box_of[x];
        width += fabsf(q[(ptrdiff_t)x * group]) * box_of[d + x];
    }
    float u = middle + (width >= ball ? ball : width) + (float)(d + 1) * 3.0f * FLT_EPSILON * norms;
    return u >= norms ? norms : u; /* u is NaN where norms is */
}

static void bounds(int group, float *e, const float *packed, const float *boxes,
                   const float *k_norm, const float *radius, const float *bias, const float *q_norm,
                   const float *shift, int tiles, int d) {
    for (int t = 0; t < tiles; t++) {
        for (int r = 0; r < group; r++) {
            float u = bound_of(group, packed + r, boxes + (ptrdiff_t)t * 2 * d,
                               q_norm[r] * k_norm[t], q_norm[r] * radius[t], d);
            u += bias[t] - shift[r];
            e[(ptrdiff_t)t * group + r] = weight_of(u > 100.0f ? 100.0f : u);
        }
    }
}

static void gradient(int group, float *s, float *dp, const float *w, const int32_t *row,
                     plsh_weigh weigh, const float *lse, const float *low, const float *delta,
                     float *sum, int keys) {
    float total[PLSH_GROUP_MAX] = {0};
    for (int j = 0; j < keys; j++) {
        for (int r = 0; r < group; r++) {
            ptrdiff_t at = (ptrdiff_t)j * group + r;
            float p =
                weigh == PLSH_WEIGH_READY ? s[at] * lse[r] : weight_of((s[at] - lse[r]) - low[r]);
            if (weigh == PLSH_WEIGH_MASKED) {
                float weight = w[(ptrdiff_t)row[j] * group + r];
                p = weight == 0.0f ? 0.0f : weight * p;
            }
            s[at] = p = larger(0.0f, p - 0x1p-100f);
            if (!dp) continue;
            dp[at] = p == 0.0f ? 0.0f : p * (dp[at] - delta[r]);
            total[r] += dp[at];
        }
    }
    for (int r = 0; dp && r < group; r++) sum[r] += total[r];
}

static void dots(int group, float *to, const float *a, const float *b, int d) {
    for (int r = 0; r < group; r++) {
        to[r] = 0.0f;
        for (int x = 0; x < d; x++) {
            to[r] += a[(ptrdiff_t)x * group + r] * b[(ptrdiff_t)x * group + r];
        }
    }
}

static void spread(int group, float *out, ptrdiff_t out_stride, const float *a, ptrdiff_t a_stride,
                   const float *b, ptrdiff_t b_stride, int keys, int queries, int d) {
    for (int j = 0; j < keys; j++) {
        for (int c = 0; c < d; c++) {
            float sum = 0.0f;
            for (int q = 0; q < queries; q++) {
                float weight = a[q / group * a_stride + (ptrdiff_t)j * group + q % group];
                sum += weight * b[q * b_stride + c];
            }
            out[j * out_stride + c] += sum;
        }
    }
}

static double correlate(int group, const float *ds, const float *table, int keys) {
    double sum = 0.0;
    for (int j = 0; j < keys; j++) {
        for (int r = 0; r < group; r++) {
            sum += (double)ds[(ptrdiff_t)j * group + r] * (double)table[r - j];
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
    .group = REFERENCE_GROUP,
    .pack = pack,
    .widen = widen,
    .scores = scores,
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
    .spread = spread,
    .correlate = correlate,
    .attend = ATTEND,
    .narrow_half = narrow_half,
    .draw = draw,
};
