/* tests: every bound of plsh/theory.h against draws, from sigma 0.1 to 256, all schemes.
 *
 * A test of a probability counts events and fails where so many have a probability below 1e-6 under
 * the bound (five standard deviations, or none allowed where the bound is loose); a test of a mean
 * allows six standard errors: a false alarm in less than one of a million changes of the seeds.
 * Certain bounds have no false alarms. If a bound is nearly tight, half of it must fail, and the
 * test checks that. The ratio bound / measured is printed. */
#include "support/support.h"

#include "plsh/theory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const scheme_names[] = {"binning", "integer", "cuts"};

static plsh_partition make(int scheme, plsh_design design, double sigma, int64_t s, uint64_t seed) {
    plsh_partition set = plsh_partition_default(sigma, s);
    set.scheme = (plsh_scheme)scheme;
    set.design = design;
    set.seed = seed;
    return set;
}

typedef struct moments {
    double count, sum, squares, most;
} moments;

static void add(moments *m, double x) {
    m->count++;
    m->sum += x;
    m->squares += x * x;
    m->most = fmax(m->most, x);
}

static double mean_of(const moments *m) { return m->sum / m->count; }

static double error_of(const moments *m) {
    return sqrt(fmax(0, m->squares / m->count - mean_of(m) * mean_of(m)) / m->count);
}

/* ---- section 10: the law of contiguous schemes ------------------------------------------------
 */

/* Pr[{i .. i+b-1} is a block] = q^(b-1) (1-q)^2, and E[M^2] = q^t ((1+q)/(1-q) + t): entry (i, i+t)
 * of M^2 is the size of the block that holds both. */
static void test_block_law(void **state) {
    (void)state;
    enum { DRAWS = 40000, LONGEST = 6 };
    const double sigmas[] = {0.5, 3, 40};
    for (int x = 0; x < 9; x++) {
        const double sigma = sigmas[x / 3], q = exp(-1 / sigma);
        plsh_partition set = make(x % 3, PLSH_DESIGN_IID, sigma, DRAWS, 11);
        double begins[LONGEST + 1] = {0};
        moments square[LONGEST] = {{0}};
        for (int64_t m = 0; m < DRAWS; m++) {
            plsh_range block;
            plsh_partition_block(&set, m, 1000, &block);
            int64_t size = block.end - block.begin;
            if (block.begin == 1000 && size <= LONGEST) begins[size]++;
            for (int t = 0; t < LONGEST; t++)
                add(&square[t], block.end > 1000 + t ? (double)size : 0);
        }
        for (int b = 1; b <= LONGEST; b++) {
            double p = pow(q, b - 1) * (1 - q) * (1 - q);
            assert_true(fabs(begins[b] - DRAWS * p) <= 6 * sqrt(DRAWS * p) + 6);
        }
        for (int t = 0; t < LONGEST; t++) {
            double wanted = pow(q, t) * ((1 + q) / (1 - q) + t);
            double size = t + 1 + 6 * sigma; /* of a block that holds both, or more */
            double allowed = 6 * sqrt(wanted * size / DRAWS) + 10 * size / DRAWS;
            assert_true(fabs(mean_of(&square[t]) - wanted) <= allowed);
        }
    }
}

/* ---- section 11: the spectral norm ------------------------------------------------------------
 */

typedef struct spectral_case {
    int64_t n;
    double sigma;
    int64_t s;
    int reps;
} spectral_case;

static void test_spectral(void **state) {
    (void)state;
    static const spectral_case cases[] = {
        {64, 0.1, 20, 20},  {1024, 0.1, 1000, 5}, {512, 1, 20, 20},   {4096, 1, 1, 10},
        {4096, 4, 20, 10},  {1024, 16, 1, 40},    {1024, 16, 20, 40}, {1024, 16, 500, 10},
        {4096, 16, 20, 5},  {64, 64, 20, 40},     {1024, 64, 20, 20}, {4096, 64, 20, 5},
        {1024, 256, 20, 20}};
    double tightest = INFINITY;
    printf("spectral norm, iid: the integral's bound at 1 %% / largest, the mean's / mean\n");
    for (size_t c = 0; c < 3 * sizeof cases / sizeof cases[0]; c++) {
        const spectral_case *at = &cases[c / 3];
        plsh_norms_options options = {.skip_max = true, .tolerance = 1e-3};
        moments found = {0};
        for (int rep = 0; rep < at->reps; rep++) {
            plsh_partition set =
                make((int)(c % 3), PLSH_DESIGN_IID, at->sigma, at->s, 100 + (uint64_t)rep);
            plsh_norms norms;
            plsh_error error;
            plsh_status status = plsh_norms_measure(&set, at->n, &options, &norms, &error);
            assert_ok(status);
            add(&found, norms.spectral);
        }
        double eps = plsh_spectral_error_integral(at->n, at->sigma, at->s, 0.01);
        double mean = plsh_spectral_expectation_integral(at->n, at->sigma, at->s);
        printf("  %-8s n %4lld sigma %5g s %4lld: %6.2f %6.2f\n", scheme_names[c % 3],
               (long long)at->n, at->sigma, (long long)at->s, eps / found.most,
               mean / mean_of(&found));
        assert_true(found.most <= eps); /* one beyond would be allowed, but is never seen */
        assert_true(mean_of(&found) <= mean);
        tightest = fmin(tightest, mean / mean_of(&found));
    }
    assert_true(tightest < 2); /* half of the bound would fail */
}

/* ---- the max norm -----------------------------------------------------------------------------
 */

/* iid: at most 1 % of the sets beyond. Stratified: none, ever (section 14). */
static void test_max(void **state) {
    (void)state;
    const double sigmas[] = {0.1, 1, 5, 64, 256};
    const int64_t counts[] = {1, 2, 7, 20, 64, 500};
    double tightest[2] = {INFINITY, INFINITY};
    for (int c = 0; c < 5 * 6 * 5; c++) {
        const double sigma = sigmas[c % 5];
        const int64_t s = counts[c / 5 % 6], n = c % 5 < 4 ? 512 : 2048;
        const bool stratified = c / 30 >= 3;
        int scheme = c / 30 % 3;
        moments found = {0};
        plsh_bounds bounds;
        plsh_error error;
        for (uint64_t rep = 0; rep < 6; rep++) {
            plsh_partition set =
                make(scheme, stratified ? PLSH_DESIGN_STRATIFIED : PLSH_DESIGN_IID, sigma, s, rep);
            plsh_norms_options options = {.skip_spectral = true};
            plsh_norms norms;
            assert_ok(plsh_bounds_find(&set, n, 0.01, &bounds, &error));
            assert_ok(plsh_norms_measure(&set, n, &options, &norms, &error));
            add(&found, norms.max);
        }
        assert_true(bounds.max_certain == (stratified || bounds.max >= 1));
        if (!(found.most <= bounds.max))
            fail_msg("%s, sigma %g, s %lld: %g beyond %g", scheme_names[scheme], sigma,
                     (long long)s, found.most, bounds.max);
        if (s >= 7) tightest[stratified] = fmin(tightest[stratified], bounds.max / found.most);
    }
    printf("max norm: bound / largest of 6, at best: iid %.2f, stratified %.2f\n", tightest[0],
           tightest[1]);
    assert_true(tightest[0] < 2 && tightest[1] < 2);
}

/* Stratified sets of every scheme converge, and faster than independent ones. (No bound is known
 * for cuts; cut in one order at all gaps, they would stand still.) */
static void test_convergence(void **state) {
    (void)state;
    for (int c = 0; c < 6; c++) {
        const double sigma = c / 3 ? 12 : 1.5;
        moments found[2] = {{0}};
        for (uint64_t rep = 0; rep < 16; rep++) {
            plsh_partition set = make(c % 3, rep & 1 ? PLSH_DESIGN_STRATIFIED : PLSH_DESIGN_IID,
                                      sigma, 400, rep / 2);
            plsh_norms_options options = {.skip_spectral = true};
            plsh_norms norms;
            plsh_error error;
            assert_ok(plsh_norms_measure(&set, 256, &options, &norms, &error));
            add(&found[rep & 1], norms.max);
        }
        printf("max norm at s = 400, %s, sigma %g: stratified %.2f times smaller\n",
               scheme_names[c % 3], sigma, mean_of(&found[0]) / mean_of(&found[1]));
        assert_true(mean_of(&found[1]) < 0.85 * mean_of(&found[0]));
    }
}

/* ---- section 15: the largest block ------------------------------------------------------------
 */

static void test_block(void **state) {
    (void)state;
    enum { REPS = 3000 };
    const double sigmas[] = {0.1, 1, 8, 40}, delta = 0.1;
    double most = 0;
    for (int c = 0; c < 4 * 5; c++) {
        const double sigma = sigmas[c % 4];
        const int64_t n = 1024, s = 5;
        const plsh_design design = c / 4 >= 3 ? PLSH_DESIGN_STRATIFIED : PLSH_DESIGN_IID;
        int beyond = 0;
        for (uint64_t rep = 0; rep < REPS; rep++) {
            plsh_partition set = make(c / 4 % 3, design, sigma, s, rep);
            plsh_norms_options options = {.skip_spectral = true, .skip_max = true};
            plsh_norms norms;
            plsh_error error;
            assert_ok(plsh_norms_measure(&set, n, &options, &norms, &error));
            double bound = set.scheme == PLSH_SCHEME_CUTS
                               ? plsh_block_bound_cuts(n, sigma, s, delta)
                               : plsh_block_bound(sigma, s, delta);
            beyond += (double)norms.largest_block > bound;
        }
        double share = (double)beyond / REPS;
        if (share > delta + 5 * sqrt(delta * (1 - delta) / REPS))
            fail_msg("%s, sigma %g: %g of the sets beyond", scheme_names[c / 4 % 3], sigma, share);
        most = fmax(most, share);
    }
    printf("largest block: up to %.3f of the sets beyond the bound of 0.1\n", most);
    assert_true(most > 0.06); /* so a smaller bound would not do */
}

/* ---- rows, and the output ---------------------------------------------------------------------
 */

enum { N = 200 };

/* M~ of a set, dense. */
static void mean_mask(const plsh_partition *set, double *mask) {
    static int32_t labels[N];
    plsh_error error;
    memset(mask, 0, N * N * sizeof *mask);
    for (int64_t m = 0; m < set->samples; m++) {
        assert_ok(plsh_partition_labels(set, m, N, labels, &error));
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                mask[i * N + j] += labels[i] == labels[j] ? 1.0 / (double)set->samples : 0;
    }
}

static void test_rows(void **state) {
    (void)state;
    const double sigmas[] = {0.3, 2, 16, 100};
    double *mask = malloc(N * N * sizeof *mask), tightest = INFINITY;
    assert_non_null(mask);
    for (int c = 0; c < 12; c++) {
        const double sigma = sigmas[c % 4];
        const int64_t s = c / 4 == 0 ? 1 : 50;
        moments found = {0};
        for (uint64_t rep = 0; rep < 15; rep++) {
            plsh_partition set = make(c / 4, PLSH_DESIGN_IID, sigma, s, rep);
            double longest = 0;
            mean_mask(&set, mask);
            for (int i = 0; i < N; i++) {
                double sum = 0;
                for (int j = 0; j < N; j++)
                    sum += pow(mask[i * N + j] - exp(-fabs((double)(i - j)) / sigma), 2);
                longest = fmax(longest, sqrt(sum));
            }
            add(&found, longest);
        }
        double bound = plsh_row_error(N, sigma, s, 0.01);
        printf("rows, sigma %g, s %lld: bound / largest %.2f (spectral bound %.2f)\n", sigma,
               (long long)s, bound / found.most,
               plsh_spectral_error_integral(N, sigma, s, 0.01) / found.most);
        assert_true(found.most <= bound);
        tightest = fmin(tightest, bound / found.most);
    }
    free(mask);
    assert_true(tightest < 2);
}

/* One row i of attention with weights A and one column v: T with the weights `bias` of the keys. */
static double attend(const double *a, const double *v, const double *bias) {
    double sum = 0, all = 0;
    for (int j = 0; j < N; j++) {
        sum += a[j] * bias[j] * v[j];
        all += a[j] * bias[j];
    }
    return sum / all;
}

/* |T~ - T*| <= range min(Delta / beta, 1) in every row (section 12), with Delta as it is and as it
 * is bounded, and on average variation range / sqrt(s) (section 16). */
static void test_output(void **state) {
    (void)state;
    enum { REPS = 40 };
    double *mask = malloc(N * N * sizeof *mask), tightest = INFINITY, tightest_mean = INFINITY;
    assert_non_null(mask);
    srand(3);
    for (int c = 0; c < 8; c++) {
        const double sigma = c % 4 == 0 ? 0.5 : c % 4 == 1 ? 4 : c % 4 == 2 ? 30 : 256;
        const int64_t s = c < 4 ? 4 : 60;
        const int i = N / 2;
        double a[N], v[N], bias[N], p = 0, sum = 0, beta = 0, variation = 0;
        for (int j = 0; j < N; j++) {
            /* The last cases: two keys that matter, the other's weight small. */
            bool two = c >= 6;
            a[j] = two ? (j == i        ? 1
                          : j == i + 20 ? 0.01
                                        : 1e-9)
                       : exp(2.0 * rand() / RAND_MAX * (1 + c % 3));
            v[j] = two ? j == i + 20 : (double)rand() / RAND_MAX > 0.5;
            bias[j] = exp(-fabs((double)(i - j)) / sigma);
            sum += a[j];
            beta += a[j] * bias[j];
            variation += a[j] * sqrt(bias[j] * (1 - bias[j]));
            p += a[j] * a[j];
        }
        variation /= beta;
        beta /= sum;
        p = sqrt(p) / sum;
        const double exact = attend(a, v, bias);
        const plsh_partition independent = make(1, PLSH_DESIGN_IID, sigma, s, 1);
        const double promised = plsh_output_bound(plsh_delta_p(&independent, N, 0.01, p), beta, 1);
        moments found = {0};
        for (uint64_t rep = 0; rep < REPS; rep++) {
            plsh_partition set = make(c % 3, PLSH_DESIGN_IID, sigma, s, rep);
            double delta = 0;
            mean_mask(&set, mask);
            for (int j = 0; j < N; j++) delta += a[j] / sum * fabs(mask[i * N + j] - bias[j]);
            double error = fabs(attend(a, v, mask + (ptrdiff_t)i * N) - exact);
            double bound = plsh_output_bound(delta, beta, 1);
            assert_true(error <= bound * (1 + 1e-9) + 1e-15 && error <= promised + 1e-15);
            if (error > 1e-12) tightest = fmin(tightest, bound / error);
            add(&found, error);
        }
        double mean = plsh_output_expectation(variation, s, 1);
        printf("output, sigma %g, s %lld: promised / largest %.1f, mean's bound / mean %.2f\n",
               sigma, (long long)s, promised / found.most, mean / mean_of(&found));
        assert_true(mean_of(&found) <= mean + 6 * error_of(&found));
        tightest_mean = fmin(tightest_mean, mean / mean_of(&found));
    }
    free(mask);
    printf("output: bound / error at best %.3f, of the mean %.2f\n", tightest, tightest_mean);
    assert_true(tightest < 1.1 && tightest_mean < 1.9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_law), cmocka_unit_test(test_spectral),
        cmocka_unit_test(test_max),       cmocka_unit_test(test_convergence),
        cmocka_unit_test(test_block),     cmocka_unit_test(test_rows),
        cmocka_unit_test(test_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
