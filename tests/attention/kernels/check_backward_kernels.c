/* tests: the kernels of the backward pass of one instruction set (PLSH_ISA, or the best) against
 * double. */
#include "attention/kernels/check.h"

/* ---- P and dS ------------------------------------------------------------------------------- */

static void check_gradient_of(int keys, float magnitude, plsh_weigh weigh, bool with_dp) {
    bool weighted = weigh == PLSH_WEIGH_MASKED;
    int group = tested.group;
    size_t count = (size_t)(keys * group);
    guarded sg = guard(count * 4, false), dg = guard(count * 4, true), wg = guard(count * 4, false);
    float *s = sg.at_end, *dp = dg.at_end, *w = wg.at_end;
    float lse[PLSH_GROUP_MAX], low[PLSH_GROUP_MAX], delta[PLSH_GROUP_MAX];
    float sum[PLSH_GROUP_MAX];
    double want_sum[PLSH_GROUP_MAX], size_sum[PLSH_GROUP_MAX];
    double *want_p = malloc((count + 1) * sizeof(double));
    double *want_ds = malloc((count + 1) * sizeof(double));
    fill(delta, PLSH_GROUP_MAX);
    fill(low, PLSH_GROUP_MAX);
    for (int r = 0; r < group; r++) size_sum[r] = want_sum[r] = sum[r] = fabsf(normal());
    int32_t row[64]; /* the weights lie in reverse */
    for (int j = 0; j < keys; j++) row[j] = keys - 1 - j;
    fill(s, count);
    fill(dp, count);
    for (size_t i = 0; i < count; i++) w[i] = i % 5 == 1 ? 0.0f : fabsf(normal());
    for (int r = 0; r < group; r++)
        lse[r] =
            r == 3 && weigh != PLSH_WEIGH_READY ? INFINITY : magnitude * (3.0f + fabsf(normal()));
    for (size_t i = 0; i < count; i++) {
        int r = (int)(i % (size_t)group);
        s[i] = i % 7 == 2 ? -INFINITY : magnitude * s[i];
        double p = weighted ? w[(keys - 1 - (int)(i / (size_t)group)) * group + r] : 1.0;
        if (p == 0.0) s[i] = NAN; /* counts for nothing */
        double x = (double)s[i] - (double)lse[r] - (double)low[r];
        want_p[i] = p == 0.0 || x < -126.0 ? 0.0 : p * exp2(x);
        if (weigh == PLSH_WEIGH_READY) {
            s[i] = i % 7 == 2 ? 0.0f : fabsf(normal());
            want_p[i] = (double)s[i] * (double)lse[r];
        }
        want_ds[i] = want_p[i] == 0.0 ? 0.0 : want_p[i] * ((double)dp[i] - (double)delta[r]);
        if (weigh == PLSH_WEIGH_READY ? s[i] == 0.0f : p == 0.0 || x < -105.0)
            dp[i] = i % 2 ? NAN : INFINITY; /* takes nothing from it */
    }
    tested.gradient(s, with_dp ? dp : NULL, keys, weigh,
                    (plsh_pair_weights){weighted ? w : NULL, row},
                    (plsh_gradient_rows){lse, low, delta, sum, 0});
    for (size_t i = 0; i < count; i++) {
        /* s - lse is rounded once: half an ulp of it, times ln 2, in the weight. */
        double slack = (4.0 + 0.5 * magnitude * 6.0) * FLT_EPSILON;
        CHECK(fabs((double)s[i] - want_p[i]) <= slack * want_p[i] + 0x1p-99,
              "keys %d element %zu: P %g, not %g", keys, i, (double)s[i], want_p[i]);
        if (!with_dp) continue;
        double off = fabs((double)dp[i] - want_ds[i]);
        double size = want_p[i] * (fabs((double)delta[i % (size_t)group]) + 4.0);
        want_sum[i % (size_t)group] += want_ds[i];
        size_sum[i % (size_t)group] += size;
        CHECK(off <= slack * size + 0x1p-90, "keys %d element %zu: dS %g, not %g", keys, i,
              (double)dp[i], want_ds[i]);
    }
    for (int r = 0; r < group; r++) {
        double slack = (4.0 + 3.0 * magnitude + keys) * FLT_EPSILON;
        CHECK(fabs((double)sum[r] - want_sum[r]) <= slack * size_sum[r], "row %d: sum %g, not %g",
              r, (double)sum[r], want_sum[r]);
    }
    free(want_p);
    free(want_ds);
    unguard(sg);
    unguard(dg);
    unguard(wg);
}

static void check_gradient(void) {
    static const int keys[] = {0, 1, 2, 5, 16, 33};
    for (size_t i = 0; i < 6; i++) {
        for (int kind = 0; kind < 6; kind++) {
            check_gradient_of(keys[i], 1.0f, (plsh_weigh)(kind % 3), kind % 2);
            check_gradient_of(keys[i], 40.0f, (plsh_weigh)(kind % 3), kind % 2);
        }
    }
}

/* The diagonal of the scores, to the bit. */
static void check_dots(void) {
    for (int i = 0; i < SIZES; i++) {
        int group = tested.group, d = sizes[i];
        size_t count = (size_t)(d * group);
        guarded ag = guard(count * 4, false), bg = guard(count * 4, true);
        float *a = ag.at_end, *b = bg.at_end, *rows = malloc(count * 4);
        float *s = malloc((size_t)(group * group) * 4), got[PLSH_GROUP_MAX], top[PLSH_GROUP_MAX];
        fill(a, count);
        fill(rows, count);
        tested.pack(b, (plsh_stored_rows){rows, PLSH_DTYPE_FLOAT32, d}, group, d, 1.0f);
        tested.scores(s, top, (plsh_packed_rows){a, 0}, (plsh_key_rows){rows, d, group, d},
                      (plsh_score_bias){0});
        tested.dots(got, a, b, d);
        for (int r = 0; r < group; r++) {
            CHECK(got[r] == s[r * group + r], "d %d row %d: %g, not %g", d, r, (double)got[r],
                  (double)s[r * group + r]);
        }
        free(rows);
        free(s);
        unguard(ag);
        unguard(bg);
    }
}

/* ---- Gradients of keys
 * --------------------------------------------------------------------------------- */

typedef struct key_gradient_case {
    int keys, queries, d;
    ptrdiff_t out_stride, b_stride, a_stride;
} key_gradient_case;

static size_t extent(int rows, ptrdiff_t stride, int d) {
    return rows ? (size_t)((rows - 1) * stride + d) : 0;
}

/* out on guarded arrays; the largest error against expected. Gaps stay as they are. */
static double run_key_gradient(const key_gradient_case *c, const float *start, const float *a,
                               const float *b, const double *expected) {
    size_t out_count = extent(c->keys, c->out_stride, c->d);
    size_t b_count = extent(c->queries, c->b_stride, c->d);
    int groups = (c->queries + tested.group - 1) / tested.group;
    size_t a_count = (size_t)(groups * c->a_stride);
    guarded og = guard(out_count * 4, c->keys % 2), bg = guard(b_count * 4, false);
    guarded ag = guard(a_count * 4, false);
    float *out = og.at_end;
    memcpy(out, start, out_count * 4);
    memcpy(bg.at_end, b, b_count * 4);
    memcpy(ag.at_end, a, a_count * 4);
    tested.key_gradient((plsh_matrix){out, c->out_stride},
                        (plsh_const_matrix){ag.at_end, c->a_stride},
                        (plsh_const_matrix){bg.at_end, c->b_stride}, c->keys, c->queries, c->d);
    double worst = 0.0;
    for (size_t i = 0; i < out_count; i++) {
        if ((ptrdiff_t)i % c->out_stride >= c->d) {
            CHECK(out[i] == start[i], "keys %d d %d: a gap was written", c->keys, c->d);
        } else {
            worst = fmax(worst, fabs((double)out[i] - expected[i]));
        }
    }
    unguard(og);
    unguard(bg);
    unguard(ag);
    return worst;
}

static void check_key_gradient_of(const key_gradient_case *c) {
    int group = tested.group, groups = (c->queries + group - 1) / group;
    size_t out_count = extent(c->keys, c->out_stride, c->d);
    size_t b_count = extent(c->queries, c->b_stride, c->d);
    size_t a_count = (size_t)(groups * c->a_stride);
    float *start = malloc((out_count + 1) * 4), *b = malloc((b_count + 1) * 4);
    float *a = malloc((a_count + 1) * 4);
    double *expected = malloc((out_count + 1) * sizeof(double)), largest = 0.0;
    double yard = 0.0; /* the error of a plain loop in float32 */
    fill(start, out_count);
    fill(b, b_count);
    fill(a, a_count);
    for (int j = 0; j < c->keys; j++) {
        for (int x = 0; x < c->d; x++) {
            double sum = (double)start[j * c->out_stride + x];
            float plain = 0.0f;
            for (int q = 0; q < c->queries; q++) {
                float weight = a[q / group * c->a_stride + j * group + q % group];
                sum += (double)weight * (double)b[q * c->b_stride + x];
                plain += weight * b[q * c->b_stride + x];
            }
            plain += start[j * c->out_stride + x];
            expected[j * c->out_stride + x] = sum;
            largest = fmax(largest, fabs(sum));
            yard = fmax(yard, fabs((double)plain - sum));
        }
    }
    double error = run_key_gradient(c, start, a, b, expected);
    CHECK(error <= allowed(yard, largest), "keys %d queries %d d %d: error %g, plain %g", c->keys,
          c->queries, c->d, error, yard);
    free(start);
    free(a);
    free(b);
    free(expected);
}

static void check_key_gradient(void) {
    static const int keys[] = {0, 1, 2, 3, 5, 6, 7, 11, 12, 13, 31};
    static const int queries[] = {0, 1, 5, 16, 24, 30, 48, 96};
    for (int i = 0; i < SIZES; i++) {
        for (int j = 0; j < 11; j++) {
            key_gradient_case c = {.keys = keys[j],
                                   .queries = queries[(i + j) % 8],
                                   .d = sizes[i],
                                   .out_stride = sizes[i] + j % 3,
                                   .b_stride = sizes[i] + i % 2};
            c.a_stride = (keys[j] + i % 2) * tested.group;
            check_key_gradient_of(&c);
        }
    }
}

/* ---- Correlate ------------------------------------------------------------------------------ */

static void check_correlate(void) {
    static const int keys[] = {0, 1, 2, 7, 24, 50, 97};
    for (size_t i = 0; i < 7; i++) {
        int group = tested.group, n = keys[i];
        size_t count = (size_t)(n * group), table_count = (size_t)(n + group - 1);
        guarded dg = guard(count * 4, false), tg = guard(table_count * 4, i % 2);
        float *ds = dg.at_end, *table = tg.at_end;
        fill(ds, count);
        fill(table, table_count);
        double sum = 0.0, size = 0.0;
        for (int j = 0; j < n; j++) {
            for (int r = 0; r < group; r++) {
                double term = (double)ds[j * group + r] * (double)table[r - j + n - 1];
                sum += term;
                size += fabs(term);
            }
        }
        double got = tested.correlate(ds, table + n - 1, n);
        CHECK(fabs(got - sum) <= 2.0 * FLT_EPSILON * size, "keys %d: %g, not %g", n, got, sum);
        unguard(dg);
        unguard(tg);
    }
}

static void check_all(void) {
    check_gradient();
    check_dots();
    check_key_gradient();
    check_correlate();
}

int main(void) { return check_main(check_all); }
