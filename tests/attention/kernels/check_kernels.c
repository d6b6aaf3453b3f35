/* tests: every tile kernel of one instruction set (PLSH_ISA, or the best) against double. Plain C
 * and no cmocka, so that it also runs cross-compiled under an emulator. User arrays lie against
 * pages that may not be touched, at odd addresses. Exit 0, 1 for a failure, 77 where the machine
 * lacks the instruction set. */
#include "attention/kernels/check.h"
#include "base/random.h"

/* ---- Moving data ---------------------------------------------------------------------------- */

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* A value of the type, and what it is; halves by the definition of the format. */
static double put_element(void *to, plsh_dtype dtype, size_t at) {
    if (dtype == PLSH_DTYPE_FLOAT32) return ((float *)to)[at] = normal();
    uint16_t h = (uint16_t)(state >> 33);
    uniform();
    if (dtype == PLSH_DTYPE_FLOAT16) {
        if ((h & 0x7c00) == 0x7c00) h &= 0x83ff; /* finite; zeros and denormals stay */
        int exponent = h >> 10 & 31;
        double magnitude =
            exponent ? ldexp(1024 + (h & 1023), exponent - 25) : ldexp(h & 1023, -24);
        ((uint16_t *)to)[at] = h;
        return h & 0x8000 ? -magnitude : magnitude;
    }
    if ((h & 0x7f80) == 0x7f80) h &= 0x807f;
    ((uint16_t *)to)[at] = h;
    return (double)from_bits((uint32_t)h << 16);
}

static void check_moves_of(plsh_dtype dtype, int d, int rows, int pad, bool from_start) {
    size_t stride = (size_t)(d + pad), count = stride * (size_t)(rows - 1) + (size_t)d;
    size_t width = dtype == PLSH_DTYPE_FLOAT32 ? 4 : 2;
    guarded from = guard(count * width, from_start);
    guarded packed = guard(sizeof(float) * (size_t)(d * tested.group), !from_start);
    guarded wide = guard(sizeof(float) * count, from_start);
    double *value = malloc(count * sizeof(double));
    for (size_t i = 0; i < count; i++) value[i] = put_element(from.at_end, dtype, i);
    const plsh_stored_rows stored = {from.at_end, dtype, (ptrdiff_t)stride};
    CHECK(tested.all_finite(stored, rows, d), "dtype %d d %d rows %d", dtype, d, rows);
    float *to = packed.at_end, *widened = wide.at_end;
    if (rows <= tested.group) {
        tested.pack(to, stored, rows, d, 0.25f);
        for (int r = 0; r < tested.group; r++) {
            for (int x = 0; x < d; x++) {
                float expected =
                    r < rows ? 0.25f * (float)value[(size_t)r * stride + (size_t)x] : 0;
                CHECK(to[x * tested.group + r] == expected, "dtype %d d %d row %d/%d column %d: %g",
                      dtype, d, r, rows, x, (double)to[x * tested.group + r]);
            }
        }
    }
    for (size_t i = 0; i < count; i++) widened[i] = 77.0f;
    tested.widen((plsh_matrix){widened, (ptrdiff_t)stride}, stored, rows, d);
    for (size_t i = 0; i < count; i++) {
        float expected = (int)(i % stride) < d ? (float)value[i] : 77.0f;
        CHECK(widened[i] == expected, "dtype %d d %d rows %d element %zu", dtype, d, rows, i);
    }
    free(value);
    unguard(from);
    unguard(packed);
    unguard(wide);
}

static void check_moves(void) {
    static const int rows[] = {1, 7, 8, 15, 16, 17, 23, 24, 47, 48};
    for (int i = 0; i < SIZES; i++) {
        for (size_t j = 0; j < sizeof(rows) / sizeof(*rows); j++) {
            for (int dtype = 0; dtype < 3; dtype++) {
                check_moves_of((plsh_dtype)dtype, sizes[i], rows[j], i % 2 ? 0 : 3, j % 2);
            }
        }
    }
}

static void check_finite_of(plsh_dtype dtype, int d, int at, uint32_t bits) {
    guarded from = guard((size_t)d * 4, false);
    memset(from.at_end, 0, (size_t)d * 4);
    if (dtype == PLSH_DTYPE_FLOAT32) {
        ((float *)from.at_end)[at] = from_bits(bits);
    } else {
        ((uint16_t *)from.at_end)[at] = (uint16_t)bits;
    }
    CHECK(!tested.all_finite((plsh_stored_rows){from.at_end, dtype, d}, 1, d),
          "dtype %d d %d at %d", dtype, d, at);
    unguard(from);
}

static void check_finite(void) {
    for (int i = 0; i < SIZES; i++) {
        for (int at = 0; at<sizes[i]; at += sizes[i]> 32 ? 31 : 1) {
            check_finite_of(PLSH_DTYPE_FLOAT32, sizes[i], at, at % 2 ? 0x7f800000 : 0x7fc00000);
            check_finite_of(PLSH_DTYPE_FLOAT16, sizes[i], at, at % 2 ? 0xfc00 : 0x7e00);
            check_finite_of(PLSH_DTYPE_BFLOAT16, sizes[i], at, at % 2 ? 0xff80 : 0x7fc0);
        }
    }
}

/* ---- Scores --------------------------------------------------------------------------------- */

typedef struct score_case {
    int d, keys;
    ptrdiff_t stride;
    float magnitude; /* of the keys */
    bool with_bias, masked, misaligned;
} score_case;

/* S on guarded arrays, compared with expected; the largest error. */
static double run_scores(const score_case *c, const float *packed, const float *k,
                         const float *bias, const double *expected) {
    int group = tested.group;
    size_t count = c->keys ? (size_t)((c->keys - 1) * c->stride + c->d) : 0;
    size_t bias_count = (size_t)(group + c->keys - 1);
    guarded kg = guard(count * 4, false), bg = guard(bias_count * 4, c->keys % 2);
    guarded sg = guard((size_t)(c->keys * group) * 4, false);
    memcpy(kg.at_end, k, count * 4);
    memcpy(bg.at_end, bias, bias_count * 4);
    float top[PLSH_GROUP_MAX], *s = sg.at_end;
    tested.scores(
        s, top, (plsh_packed_rows){packed, 0}, (plsh_key_rows){kg.at_end, c->stride, c->keys, c->d},
        (plsh_score_bias){c->with_bias ? (float *)bg.at_end + c->keys - 1 : NULL, c->masked});
    double worst = 0.0;
    for (int r = 0; r < group; r++) {
        float largest = -INFINITY;
        for (int j = 0; j < c->keys; j++) {
            float got = s[j * group + r];
            double want = expected[j * group + r];
            if (got > largest) largest = got;
            if (isinf(want)) {
                CHECK((double)got == want, "d %d keys %d key %d row %d: %g", c->d, c->keys, j, r,
                      (double)got);
            } else {
                worst = fmax(worst, fabs(got - want));
            }
        }
        CHECK(top[r] == largest, "d %d keys %d row %d: top %g, not %g", c->d, c->keys, r,
              (double)top[r], (double)largest);
    }
    unguard(kg);
    unguard(bg);
    unguard(sg);
    return worst;
}

static void check_scores_of(const score_case *c) {
    int group = tested.group;
    size_t count = (size_t)(c->keys * c->stride + c->d), bias_count = (size_t)(group + c->keys);
    float *packed = malloc(((size_t)(c->d * group) + 1) * 4), *k = malloc(count * 4);
    float *bias = malloc(bias_count * 4);
    double *expected = malloc((size_t)(c->keys * group + 1) * sizeof(double)), largest = 0.0;
    double yard = 0.0; /* the error of a plain loop in float32 */
    float *q = packed + c->misaligned;
    fill(q, (size_t)(c->d * group));
    fill(k, count);
    for (size_t i = 0; i < count; i++) k[i] *= c->magnitude;
    for (size_t i = 0; i < bias_count; i++) {
        bias[i] = c->masked && i % 3 == 0 ? -INFINITY : -fabsf(normal());
    }
    for (int j = 0; j < c->keys; j++) {
        for (int r = 0; r < group; r++) {
            float plain = c->with_bias ? bias[r - j + c->keys - 1] : 0.0f;
            double b = (double)plain;
            for (int x = 0; x < c->d; x++) {
                b += (double)q[x * group + r] * k[j * c->stride + x];
                plain += q[x * group + r] * k[j * c->stride + x];
            }
            expected[j * group + r] = b;
            if (!isfinite(b)) continue;
            largest = fmax(largest, fabs(b));
            yard = fmax(yard, fabs((double)plain - b));
        }
    }
    double error = run_scores(c, q, k, bias, expected);
    CHECK(error <= allowed(yard, largest), "d %d keys %d: error %g, plain %g", c->d, c->keys, error,
          yard);
    free(packed);
    free(k);
    free(bias);
    free(expected);
}

static void check_scores(void) {
    static const int keys[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 64};
    for (int i = 0; i < SIZES; i++) {
        for (size_t j = 0; j < sizeof(keys) / sizeof(*keys); j++) {
            score_case c = {.d = sizes[i],
                            .keys = keys[j],
                            .stride = sizes[i] + (i + (int)j) % 3,
                            .magnitude = j % 4 == 3 ? 1e3f : 1.0f,
                            .with_bias = j % 2 == 0,
                            .masked = j % 4 == 0,
                            .misaligned = i % 2};
            check_scores_of(&c);
        }
    }
}

/* NaN goes through, and stays behind a mask. */
static void check_scores_nan(void) {
    enum { KEYS = 19, D = 9 };
    int group = tested.group;
    float packed[D * PLSH_GROUP_MAX], k[KEYS * D], bias[KEYS + PLSH_GROUP_MAX];
    float s[KEYS * PLSH_GROUP_MAX], top[PLSH_GROUP_MAX];
    fill(packed, D * PLSH_GROUP_MAX);
    fill(k, KEYS * D);
    for (int i = 0; i < KEYS + group; i++) bias[i] = i - (KEYS - 1) < 0 ? -INFINITY : 0.0f;
    k[11 * D + 4] = NAN;
    tested.scores(s, top, (plsh_packed_rows){packed, 0}, (plsh_key_rows){k, D, KEYS, D},
                  (plsh_score_bias){bias + KEYS - 1, true});
    for (int j = 0; j < KEYS; j++) {
        for (int r = 0; r < group; r++) {
            bool masked = r < j, spoilt = j == 11 && !masked;
            float y = s[j * group + r];
            CHECK(masked ? y == -INFINITY : spoilt == (y != y), "key %d row %d: %g", j, r,
                  (double)y);
        }
    }
}

/* ---- Softmax -------------------------------------------------------------------------------- */

/* 2^x to 2 ulp over its whole range, 0 below 2^-126, NaN from NaN, never below the
 * normal range. */
static void check_exp2(void) {
    int group = tested.group;
    float s[PLSH_GROUP_MAX], top[PLSH_GROUP_MAX], m[PLSH_GROUP_MAX], l[PLSH_GROUP_MAX];
    float alpha[PLSH_GROUP_MAX], x[PLSH_GROUP_MAX], l_low[PLSH_GROUP_MAX] = {0};
    double worst = 0.0;
    for (int step = 0; step < 40000; step++) {
        for (int r = 0; r < group; r++) {
            x[r] = s[r] = -(float)(step * group + r) * (130.0f / (40000.0f * (float)group));
            top[r] = m[r] = l[r] = 0.0f;
        }
        tested.softmax(s, 1, top, (plsh_softmax_state){m, l, l_low, alpha, 0});
        for (int r = 0; r < group; r++) {
            double want = exp2((double)x[r]);
            if (x[r] >= -125.0f) worst = fmax(worst, fabs(s[r] - want) / want / FLT_EPSILON);
            if (x[r] < -126.0f) CHECK(s[r] == 0.0f, "2^%g = %g", (double)x[r], (double)s[r]);
            CHECK((s[r] == 0.0f || s[r] >= FLT_MIN) && s[r] <= 1.0f + FLT_EPSILON, "2^%g",
                  (double)x[r]);
            CHECK(l[r] == s[r] && alpha[r] == 1.0f, "row %d", r);
        }
    }
    CHECK(worst <= 2.0, "2^x is off by %.2f ulp", worst);
    static const float special[] = {-INFINITY, -1e30f, -1e4f, -127.5f, NAN};
    for (size_t i = 0; i < sizeof(special) / sizeof(*special); i++) {
        for (int r = 0; r < group; r++) {
            s[r] = r % 2 ? special[i] : 0.0f;
            top[r] = m[r] = l[r] = 0.0f;
        }
        tested.softmax(s, 1, top, (plsh_softmax_state){m, l, l_low, alpha, 0});
        for (int r = 0; r < group; r++) {
            bool right = r % 2 == 0          ? s[r] == 1.0f
                         : isnan(special[i]) ? isnan(s[r]) && isnan(l[r])
                                             : s[r] == 0.0f;
            CHECK(right, "2^%g = %g", r % 2 ? (double)special[i] : 0.0, (double)s[r]);
        }
    }
}

/* Two tiles of keys, one after the other, against softmax in double. */
static void check_softmax_of(int first, int second, float magnitude, bool weighted) {
    int group = tested.group, keys = first + second;
    size_t count = (size_t)(keys * group);
    float *s = malloc((count + 1) * 4), *w = malloc((count + 1) * 4), *p = malloc((count + 1) * 4);
    float m[PLSH_GROUP_MAX], l[PLSH_GROUP_MAX], alpha[PLSH_GROUP_MAX], top[PLSH_GROUP_MAX];
    float l_low[PLSH_GROUP_MAX] = {0};
    const plsh_softmax_state sums = {m, l, l_low, alpha, 0};
    int32_t *row = malloc(((size_t)keys + 1) * sizeof *row);
    for (int j = 0; j < keys; j++) row[j] = j / 2 * 2; /* every weight row serves two keys */
    for (size_t i = 0; i < count; i++) {
        s[i] = magnitude * normal();
        w[i] = weighted ? (float)((int)(8.0 + 8.0 * uniform()) / 4) * 0.25f : 1.0f;
        if (!weighted && i % 7 == 0) s[i] = -INFINITY;
        if (i % (size_t)group == 0) w[i] = 0.0f; /* the first row sees nothing */
        if (w[i] == 0.0f && !weighted) s[i] = -INFINITY;
        size_t key = i / (size_t)group;
        if (weighted && key % 2 == 1) w[i] = w[i - (size_t)group];
    }
    memcpy(p, s, count * 4);
    for (int r = 0; r < group; r++) {
        m[r] = PLSH_SOFTMAX_START;
        l[r] = 0.0f;
    }
    for (int tile = 0; tile < 2; tile++) {
        int begin = tile ? first : 0, n = tile ? second : first;
        float *at = p + begin * group;
        for (int r = 0; r < group; r++) {
            top[r] = -INFINITY;
            for (int j = 0; j < n; j++) top[r] = fmaxf(top[r], at[j * group + r]);
        }
        if (weighted) {
            tested.mask(at, n, top, (plsh_pair_weights){w, row + begin});
            tested.softmax_weighted(at, n, top, (plsh_pair_weights){w, row + begin}, sums);
        } else {
            tested.softmax(at, n, top, sums);
        }
    }
    for (int r = 0; r < group; r++) {
        double best = -INFINITY, sum = 0.0;
        for (int j = 0; j < keys; j++) {
            if (w[j * group + r] > 0.0f) best = fmax(best, s[j * group + r]);
        }
        for (int j = 0; j < keys; j++) {
            double weight = w[j * group + r];
            if (weight > 0.0) sum += weight * exp2(s[j * group + r] - best);
        }
        if (isinf(best)) {
            CHECK(l[r] == 0.0f && m[r] == PLSH_SOFTMAX_START, "row %d: m %g l %g", r, (double)m[r],
                  (double)l[r]);
            continue;
        }
        CHECK(m[r] == (float)best, "row %d: m %g, not %g", r, (double)m[r], best);
        CHECK(fabs(l[r] - sum) <= 8.0 * FLT_EPSILON * sum, "keys %d row %d: l %g, not %g", keys, r,
              (double)l[r], sum);
        for (int j = first; j < keys; j++) {
            double x = s[j * group + r] - best;
            double weight = w[j * group + r];
            double want = x < -125.5 || weight == 0.0 ? 0.0 : weight * exp2(x);
            CHECK(fabs(p[j * group + r] - want) <= 3.0 * FLT_EPSILON * want + 0x1p-124,
                  "key %d row %d: %g, not %g", j, r, (double)p[j * group + r], want);
        }
    }
    free(row);
    free(s);
    free(w);
    free(p);
}

static void check_softmax(void) {
    static const int keys[] = {0, 1, 2, 5, 16, 33};
    for (size_t i = 0; i < 6; i++) {
        for (size_t j = 0; j < 6; j++) {
            for (int weighted = 0; weighted < 2; weighted++) {
                check_softmax_of(keys[i], keys[j], 1.0f, weighted);
                check_softmax_of(keys[i], keys[j], 1e4f, weighted);
            }
        }
    }
}

/* ---- Accumulate, finish, box ---------------------------------------------------------------- */

/* O on guarded arrays: start = alpha start + p^T v; the largest error against expected. */
static double run_accumulate(const float *start, const float *alpha, int rows, const float *p,
                             plsh_key_rows v, const double *expected) {
    const int keys = v.count, dv = v.dim;
    const ptrdiff_t stride = v.stride;
    int group = tested.group, columns = plsh_kernels_columns(dv);
    size_t count = keys ? (size_t)((keys - 1) * stride + dv) : 0;
    guarded vg = guard(count * 4, false), pg = guard((size_t)(keys * group) * 4, false);
    guarded og = guard((size_t)(group * columns) * 4, false);
    memcpy(vg.at_end, v.row, count * 4);
    memcpy(pg.at_end, p, (size_t)(keys * group) * 4);
    memcpy(og.at_end, start, (size_t)(group * columns) * 4);
    float *o = og.at_end;
    plsh_prefetch next = {.array = {[2] = {vg.at_end, stride * 4, dv * 4}}, .end = 6};
    tested.accumulate((plsh_accumulator){o, alpha, rows}, pg.at_end,
                      (plsh_key_rows){vg.at_end, stride, keys, dv}, keys % 2, &next);
    CHECK(next.next >= 0 && next.next <= next.end, "%d rows of %d", next.next, next.end);
    double worst = 0.0;
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < dv; c++) {
            worst = fmax(worst, fabs(o[r * columns + c] - expected[r * columns + c]));
        }
    }
    unguard(vg);
    unguard(pg);
    unguard(og);
    return worst;
}

static void check_accumulate_of(int keys, int dv, ptrdiff_t stride, int rows) {
    int group = tested.group, columns = plsh_kernels_columns(dv);
    size_t cells = (size_t)(group * columns), count = (size_t)(keys * stride + dv);
    float *start = malloc(cells * 4), *p = malloc((size_t)(keys * group + 1) * 4);
    float *v = malloc(count * 4), alpha[PLSH_GROUP_MAX];
    double *expected = malloc(cells * sizeof(double)), largest = 1.0;
    double yard = 0.0; /* the error of a plain loop in float32 */
    fill(start, cells);
    fill(p, (size_t)(keys * group));
    fill(v, count);
    fill(alpha, PLSH_GROUP_MAX);
    for (int j = 0; j < keys; j++) { /* ragged at both ends, zero among the rest */
        for (int r = 0; r < group; r++) {
            if (j < r / 2 - 2 || j + 4 > keys + r / 3 || (j + r) % 7 == 0) p[j * group + r] = 0.0f;
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < dv; c++) {
            double sum = (double)alpha[r] * start[r * columns + c];
            float plain = 0.0f;
            for (int j = 0; j < keys; j++) {
                sum += (double)p[j * group + r] * v[j * stride + c];
                plain += p[j * group + r] * v[j * stride + c];
            }
            plain += alpha[r] * start[r * columns + c];
            expected[r * columns + c] = sum;
            largest = fmax(largest, fabs(sum));
            yard = fmax(yard, fabs((double)plain - sum));
        }
    }
    double error =
        run_accumulate(start, alpha, rows, p, (plsh_key_rows){v, stride, keys, dv}, expected);
    CHECK(error <= allowed(yard, largest), "keys %d dv %d rows %d: error %g, plain %g", keys, dv,
          rows, error, yard);
    free(start);
    free(p);
    free(v);
    free(expected);
}

static void check_accumulate(void) {
    static const int keys[] = {0, 1, 5, 48, 49};
    for (int i = 0; i < SIZES; i++) {
        for (size_t j = 0; j < 5; j++) {
            check_accumulate_of(keys[j], sizes[i], sizes[i] + (int)j, tested.group);
            check_accumulate_of(keys[j], sizes[i], sizes[i], 1 + (i * 5) % tested.group);
        }
    }
}

/* Weight 0 takes nothing from a row of NaN. */
static void check_accumulate_masked(void) {
    enum { KEYS = 5, DV = 21 };
    int group = tested.group, columns = plsh_kernels_columns(DV);
    float o[PLSH_GROUP_MAX * 32] = {0}, alpha[PLSH_GROUP_MAX] = {0};
    float p[KEYS * PLSH_GROUP_MAX] = {0}, v[KEYS * DV];
    for (int i = 0; i < KEYS * DV; i++) v[i] = i / DV == 3 ? NAN : 2.0f;
    for (int i = 0; i < KEYS * group; i++) p[i] = i / group == 3 && i % group < 7 ? 0.0f : 1.0f;
    for (int r = 0; r < group; r++) alpha[r] = 1.0f;
    tested.accumulate_masked((plsh_accumulator){o, alpha, group}, p,
                             (plsh_key_rows){v, DV, KEYS, DV}, false, NULL);
    for (int r = 0; r < group; r++) {
        for (int c = 0; c < DV; c++) {
            float y = o[r * columns + c];
            CHECK(r < 7 ? y == 8.0f : isnan(y), "row %d column %d: %g", r, c, (double)y);
        }
    }
}

static void check_finish(void) {
    for (int i = 0; i < SIZES; i++) {
        int dv = sizes[i], columns = plsh_kernels_columns(dv), rows = 1 + i % tested.group;
        ptrdiff_t stride = dv + i % 3;
        size_t count = (size_t)((rows - 1) * stride + dv);
        float *o = malloc((size_t)(rows * columns) * 4), l[PLSH_GROUP_MAX];
        guarded og = guard(count * 4, i % 2);
        float *out = og.at_end;
        fill(o, (size_t)(rows * columns));
        for (int r = 0; r < rows; r++) l[r] = r == 2 ? 0.0f : 0.5f + fabsf(normal());
        for (size_t j = 0; j < count; j++) out[j] = 77.0f;
        tested.finish((plsh_matrix){out, stride}, o, l, rows, dv);
        for (size_t j = 0; j < count; j++) {
            size_t r = j / (size_t)stride, c = j % (size_t)stride;
            double want = c >= (size_t)dv ? 77.0
                          : r == 2        ? 0.0
                                          : (double)o[r * (size_t)columns + c] / l[r];
            CHECK(fabs(out[j] - want) <= 2.0 * FLT_EPSILON * fabs(want), "dv %d element %zu", dv,
                  j);
        }
        free(o);
        unguard(og);
    }
}

/* Every key is inside its box and its ball, and neither is wider than needed. */
static void check_box(void) {
    for (int i = 0; i < SIZES; i++) {
        int d = sizes[i], rows = 1 + (i * 7) % 40;
        ptrdiff_t stride = d + i % 2;
        guarded kg = guard((size_t)((rows - 1) * stride + d) * 4, false);
        guarded bg = guard((size_t)d * 8, false), mg = guard((size_t)d * 4, false);
        float *k = kg.at_end, *box = bg.at_end, *mean = mg.at_end, square[2];
        fill(k, (size_t)((rows - 1) * stride + d));
        fill(mean, (size_t)d);
        tested.box(box, square, (plsh_key_rows){k, stride, rows, d}, mean);
        double norm = 0.0, radius = 0.0;
        for (int r = 0; r < rows; r++) {
            double size = 0.0, distance = 0.0;
            for (int x = 0; x < d; x++) {
                double y = (double)k[r * stride + x] - mean[x];
                size += y * y;
                distance += (y - box[x]) * (y - box[x]);
            }
            norm = fmax(norm, size);
            radius = fmax(radius, distance);
        }
        CHECK(fabs(square[0] - norm) <= 1e-5 * norm && fabs(square[1] - radius) <= 1e-5 * norm,
              "d %d: %g and %g, not %g and %g", d, (double)square[0], (double)square[1], norm,
              radius);
        for (int x = 0; x < d; x++) {
            double low = INFINITY, high = -INFINITY;
            for (int r = 0; r < rows; r++) {
                low = fmin(low, k[r * stride + x] - mean[x]); /* in float, as promised */
                high = fmax(high, k[r * stride + x] - mean[x]);
            }
            double c = box[x], w = box[d + x];
            CHECK(c - w <= low && c + w >= high && 2.0 * w <= (high - low) * (1 + 1e-5) + 1e-6,
                  "d %d column %d: %g +- %g for %g .. %g", d, x, c, w, low, high);
        }
        k[(rows / 2) * stride + d / 2] = NAN;
        tested.box(box, square, (plsh_key_rows){k, stride, rows, d}, mean);
        CHECK(isnan(square[0]) && isnan(square[1]), "d %d rows %d", d, rows);
        unguard(kg);
        unguard(bg);
        unguard(mg);
    }
}

/* The bound is at least the weight of the worst key in the box, and no more than the formula. */
static void check_bounds_of(int tiles, int d) {
    int group = tested.group;
    guarded bg = guard((size_t)(tiles * 2 * d) * 4, false);
    guarded eg = guard((size_t)(tiles * group) * 4, false);
    float *boxes = bg.at_end, *e = eg.at_end, *packed = malloc((size_t)(d * group) * 4);
    float norm[8], radius[8], bias[8], q_norm[PLSH_GROUP_MAX] = {0}, shift[PLSH_GROUP_MAX];
    fill(packed, (size_t)(d * group));
    fill(boxes, (size_t)(tiles * 2 * d));
    for (int r = 0; r < group; r++) {
        for (int x = 0; x < d; x++) q_norm[r] += packed[x * group + r] * packed[x * group + r];
        q_norm[r] = sqrtf(q_norm[r]);
        shift[r] = 3.0f * normal();
    }
    for (int t = 0; t < tiles; t++) {
        float *box = boxes + (ptrdiff_t)t * 2 * d;
        for (int x = 0; x < d; x++) box[d + x] = 0.1f * fabsf(box[d + x]);
        bias[t] = -fabsf(normal());
        norm[t] = t % 3 == 0 ? 0.3f : 10.0f * sqrtf((float)d);
        radius[t] = t % 3 == 1 ? 0.01f : 10.0f * sqrtf((float)d);
    }
    const plsh_piece_boxes pieces = {boxes, norm, radius, bias, tiles, d};
    const plsh_bounded_queries queries = {packed, q_norm, shift};
    tested.bounds(e, pieces, queries);
    for (int t = 0; t < tiles; t++) {
        for (int r = 0; r < group; r++) {
            double middle = 0.0, width = 0.0, norms = (double)q_norm[r] * norm[t];
            for (int x = 0; x < d; x++) {
                middle += (double)packed[x * group + r] * boxes[t * 2 * d + x];
                width += fabs((double)packed[x * group + r]) * boxes[t * 2 * d + d + x];
            }
            double u = fmin(norms, middle + fmin(width, (double)q_norm[r] * radius[t]));
            double want = u + bias[t] - shift[r], got = log2((double)e[t * group + r]);
            double off = 1e-5 + 8.0 * d * FLT_EPSILON * norms;
            if (want > 100.0 - off) continue;
            CHECK(got >= want - 1e-5 && got <= want + off, "d %d tile %d/%d row %d: %g, not %g", d,
                  t, tiles, r, got, want);
        }
    }
    norm[0] = radius[0] = NAN;
    tested.bounds(e, pieces, queries);
    for (int r = 0; r < group; r++) CHECK(isnan(e[r]), "d %d row %d", d, r);
    free(packed);
    unguard(bg);
    unguard(eg);
}

static void check_bounds(void) {
    for (int i = 0; i < SIZES; i++) {
        for (int tiles = 1; tiles <= 5; tiles++) check_bounds_of(tiles, sizes[i]);
    }
}

/* |x_r - y_j| of near and far points, 0 where one of them has none; and what is taken off scores.
 */
static void check_points_of(int keys, int dim) {
    const int group = tested.group;
    const float slope = 0.7f;
    guarded yg = guard((size_t)(keys * dim) * 4, false);
    float *y = yg.at_end, *x = malloc((size_t)(group * dim) * 4), top[PLSH_GROUP_MAX];
    float *t = malloc((size_t)(keys * group + 1) * 4), *s = malloc((size_t)(keys * group + 1) * 4);
    for (int i = 0; i < keys * dim; i++) y[i] = 1e4f + normal();
    for (int i = 0; i < group * dim; i++) x[i] = (i % 3 ? 1e4f : -1e15f) + normal();
    if (keys > 2) y[2 * dim + dim - 1] = NAN;
    x[(dim - 1) * group + 5] = NAN;
    for (int i = 0; i < keys * group; i++) s[i] = i % 7 ? 1.5f : -INFINITY;
    const plsh_points points = {x, y, dim};
    tested.distances(t, points, keys);
    tested.recede(s, top, points, keys, slope);
    for (int r = 0; r < group; r++) {
        float most = -INFINITY;
        for (int j = 0; j < keys; j++) {
            double want = 0, score = (j * group + r) % 7 ? 1.5 : -INFINITY;
            for (int i = 0; i < dim; i++) {
                const double d = (double)x[i * group + r] - (double)y[j * dim + i];
                want += d * d;
            }
            want = isnan(want) ? 0 : sqrt(want);
            const float got = t[j * group + r], receded = s[j * group + r];
            CHECK(fabs((double)got - want) <= 4 * FLT_EPSILON * want, "dim %d: %g, not %g", dim,
                  (double)got, want);
            score -= (double)slope * want;
            CHECK(receded == (float)score ||
                      fabs((double)receded - score) <= 8 * FLT_EPSILON * (fabs(score) + 1.5),
                  "dim %d: %g, not %g", dim, (double)receded, score);
            most = receded > most ? receded : most;
        }
        CHECK(top[r] == most, "dim %d row %d: %g, not %g", dim, r, (double)top[r], (double)most);
    }
    free(x);
    free(t);
    free(s);
    unguard(yg);
}

static void check_points(void) {
    for (int dim = 1; dim <= 3; dim++) {
        for (int keys = 0; keys <= 9; keys++) check_points_of(keys, dim);
    }
}

static void check_draw(void) {
    static const int counts[] = {0, 1, 7, 8, 9, 16, 31, 128};
    for (uint64_t i = 0; i < 8; i++) {
        const uint64_t seed = i * UINT64_C(0x9e3779b97f4a7c15), index = i * UINT64_C(0x30000001f);
        uint64_t key[128], first[128], second[128];
        for (uint64_t j = 0; j < 128; j++) key[j] = j * j * UINT64_C(0x1000000fff) + i;
        tested.draw(first, second, seed, index, key, counts[i]);
        for (int j = 0; j < counts[i]; j++) {
            plsh_stream stream = {seed, (uint32_t)key[j], (uint32_t)(key[j] >> 32)};
            plsh_random want = plsh_random_at(stream, index);
            CHECK(first[j] == want.word[0] && second[j] == want.word[1],
                  "case %d, key %d: %llx %llx, not %llx %llx", (int)i, j,
                  (unsigned long long)first[j], (unsigned long long)second[j],
                  (unsigned long long)want.word[0], (unsigned long long)want.word[1]);
        }
    }
}

/* ---- Rows in use ------------------------------------------------------------------------------
 */

/* With `rows` rows in use, these have the bits that they have in a full group; the scores of the
 * others are 0, or also those of a full group. */
static void check_used_rows_of(int rows) {
    enum { KEYS = 21, D = 19, MOST = KEYS * PLSH_GROUP_MAX };
    const int group = tested.group, count = KEYS * group;
    float packed[D * PLSH_GROUP_MAX], k[KEYS * D], bias[KEYS + PLSH_GROUP_MAX];
    float s[2][MOST], dp[2][MOST], full[MOST], row[2][6][PLSH_GROUP_MAX] = {{{0}}};
    fill(packed, D * PLSH_GROUP_MAX);
    fill(k, KEYS * D);
    for (int i = 0; i < KEYS + group; i++) bias[i] = i - (KEYS - 1) < 0 ? -INFINITY : normal();
    for (int i = 0; i < 2; i++) {
        const int used = i ? rows : 0;
        float *top = row[i][0], *m = row[i][1], *l = row[i][2], *low = row[i][3], *sum = row[i][5];
        const plsh_packed_rows q = {packed, used};
        const plsh_key_rows keys = {k, D, KEYS, D};
        tested.scores(dp[i], top, q, keys, (plsh_score_bias){0});
        tested.scores(s[i], top, q, keys, (plsh_score_bias){bias + KEYS - 1, true});
        if (i == 0) memcpy(full, s[0], sizeof full);
        for (int r = rows; r < group && i; r++)
            for (int j = 0; j < KEYS; j++)
                CHECK(s[1][j * group + r] == 0.0f || s[1][j * group + r] == full[j * group + r],
                      "rows %d: row %d key %d is %g", rows, r, j, (double)s[1][j * group + r]);
        for (int r = 0; r < group; r++) m[r] = PLSH_SOFTMAX_START;
        tested.softmax(s[i], KEYS, top, (plsh_softmax_state){m, l, low, row[i][4], used});
        tested.gradient(s[i], dp[i], KEYS, PLSH_WEIGH_READY, (plsh_pair_weights){0},
                        (plsh_gradient_rows){l, low, m, sum, used});
    }
    for (int r = 0; r < rows; r++) {
        for (int x = 0; x < 6; x++)
            CHECK(row[0][x][r] == row[1][x][r], "rows %d: row %d number %d", rows, r, x);
        for (int j = r; j < count; j += group)
            CHECK(s[0][j] == s[1][j] && dp[0][j] == dp[1][j], "rows %d: row %d key %d", rows, r,
                  j / group);
    }
}

static void check_used_rows(void) {
    for (int rows = 1; rows <= tested.group; rows++) check_used_rows_of(rows);
}

static void check_all(void) {
    check_used_rows();
    check_draw();
    check_moves();
    check_finite();
    check_scores();
    check_scores_nan();
    check_exp2();
    check_softmax();
    check_accumulate();
    check_accumulate_masked();
    check_finish();
    check_box();
    check_bounds();
    check_points();
}

int main(void) { return check_main(check_all); }
