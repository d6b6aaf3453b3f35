/* tests: the law of a draw, and E[M_ij] = k(|i - j|), by tests of fit.
 *
 * False alarms: every p-value is held against ALPHA = 1e-9, and there are fewer than 300 of them,
 * so a correct build fails with probability below 3e-7 for a new seed; the seeds are fixed, so it
 * fails always or never. */
#include "support/support.h"

#include "base/thread.h"
#include "plsh/partition.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>

static const double ALPHA = 1e-9;
enum { DRAWS = 20000 };

static const plsh_scheme schemes[] = {PLSH_SCHEME_BINNING, PLSH_SCHEME_INTEGER, PLSH_SCHEME_CUTS};
static const char *const scheme_names[] = {"binning", "integer", "cuts"};
static const char *const design_names[] = {"iid", "stratified"};

/* A set of 13 samples per seed: `sample` of it is one independent draw per seed. */
static plsh_partition make(int scheme, int design, plsh_decay decay, uint64_t seed) {
    return (plsh_partition){.scheme = schemes[scheme],
                            .design = (plsh_design)design,
                            .decay = decay,
                            .samples = 13,
                            .seed = seed};
}

static int compare(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Kolmogorov-Smirnov against U(0, 1): p-value of sqrt(n) D, Stephens' correction. */
static double uniform_p(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, compare);
    double distance = 0, root = sqrt(n);
    for (int i = 0; i < n; i++)
        distance = fmax(distance, fmax((i + 1.0) / n - x[i], x[i] - (double)i / n));
    double y = (root + 0.12 + 0.11 / root) * distance, p = 0;
    for (int k = 1; k < 100; k++) p += (k % 2 ? 2 : -2) * exp(-2.0 * k * k * y * y);
    return fmin(1, p);
}

/* Chi-square of observed counts against expected ones, cells of less than 10 pooled. */
static double chi_square_p(const double *observed, const double *expected, int cells) {
    double sum = 0, o = 0, e = 0;
    int used = 0;
    for (int i = 0; i < cells; i++) {
        o += observed[i];
        e += expected[i];
        if (e < 10 && i + 1 < cells) continue;
        if (e > 0) sum += (o - e) * (o - e) / e;
        used++;
        o = e = 0;
    }
    return gsl_cdf_chisq_Q(sum, used - 1);
}

/* The test must be able to fail: x^1.02 is no longer uniform to it at 20000 draws times 5. */
static void test_tests_have_power(void **state) {
    (void)state;
    static double x[5 * DRAWS];
    for (int i = 0; i < 5 * DRAWS; i++) x[i] = (i + 0.5) / (5 * DRAWS);
    assert_true(uniform_p(x, 5 * DRAWS) > 0.99);
    for (int i = 0; i < 5 * DRAWS; i++) x[i] = pow((i + 0.5) / (5 * DRAWS), 1.05);
    assert_true(uniform_p(x, 5 * DRAWS) < ALPHA);
}

/* binning: F(b) and c / b are uniform, and uniform together (c / b among large and small b). */
static void test_binning_law(void **state) {
    (void)state;
    static double width[DRAWS], offset[DRAWS], joint[DRAWS];
    const double sigmas[] = {1e-3, 2, 1e6};
    for (int x = 0; x < 3; x++)
        for (int design = 0; design < 2; design++)
            for (int64_t sample = 0; sample < 13; sample += 6) {
                int large = 0;
                for (int seed = 0; seed < DRAWS; seed++) {
                    plsh_partition set =
                        make(0, design, plsh_decay_alibi(sigmas[x]), (uint64_t)seed);
                    double b, c;
                    plsh_partition_draw(&set, sample, &b, &c);
                    width[seed] = gsl_cdf_gamma_P(b, 2, sigmas[x]);
                    offset[seed] = c / b;
                    if (b > 2 * sigmas[x]) joint[large++] = c / b;
                }
                if (design == 0) assert_true(uniform_p(width, DRAWS) > ALPHA);
                assert_true(uniform_p(offset, DRAWS) > ALPHA);
                if (large > 1000) assert_true(uniform_p(joint, large) > ALPHA);
            }
}

/* Over all samples of a stratified set (a random one per seed) b has the paper's law again. */
static void test_stratified_mixture(void **state) {
    (void)state;
    static double width[DRAWS];
    for (int seed = 0; seed < DRAWS; seed++) {
        plsh_partition set = make(0, 1, plsh_decay_alibi(8), (uint64_t)seed);
        double b, c;
        plsh_partition_draw(&set, (seed * 7) % 13, &b, &c);
        width[seed] = gsl_cdf_gamma_P(b, 2, 8);
    }
    assert_true(uniform_p(width, DRAWS) > ALPHA);
}

/* integer: Pr[b] = b (k(b+1) - 2 k(b) + k(b-1)); for ALiBi NegBin(2, 1 - q) + 1. */
static void test_integer_law(void **state) {
    (void)state;
    const plsh_decay decays[] = {plsh_decay_alibi(0.3),
                                 plsh_decay_alibi(11),
                                 {.kind = PLSH_DECAY_KERPLE_LOG, .a = 2, .b = 0.5},
                                 {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.4, .b = 0.6},
                                 {.kind = PLSH_DECAY_TRIANGLE, .a = 6.5},
                                 {.kind = PLSH_DECAY_ALIBI, .a = 5, .limit = 0.3}};
    enum { CELLS = 400 };
    for (int d = 0; d < 6; d++) {
        double observed[CELLS + 1] = {0}, expected[CELLS + 1] = {0}, rest = DRAWS;
        for (int seed = 0; seed < DRAWS; seed++) {
            plsh_partition set = make(1, 0, decays[d], (uint64_t)seed);
            double b, c;
            plsh_partition_draw(&set, seed % 13, &b, &c);
            observed[b >= 1 && b < CELLS ? (int)b : CELLS]++;
            assert_true(c == floor(c) && (c < b || b == 0));
        }
        for (int b = 1; b < CELLS; b++) {
            double bend = plsh_decay_drop(&decays[d], b - 1) - plsh_decay_drop(&decays[d], b);
            rest -= expected[b] = DRAWS * b * bend;
        }
        expected[CELLS] = rest;
        assert_true(chi_square_p(observed, expected, CELLS + 1) > ALPHA);
    }
}

/* cuts: the block right of a cut has a geometric size. */
static void test_cuts_law(void **state) {
    (void)state;
    enum { CELLS = 100 };
    const double sigma = 6, q = exp(-1 / sigma);
    for (int design = 0; design < 2; design++) {
        double observed[CELLS + 1] = {0}, expected[CELLS + 1] = {0};
        for (int seed = 0; seed < DRAWS; seed++) {
            plsh_partition set = make(2, design, plsh_decay_alibi(sigma), (uint64_t)seed);
            plsh_range first, second;
            plsh_partition_block(&set, seed % 13, 1000 + seed, &first);
            plsh_partition_block(&set, seed % 13, first.end, &second);
            int64_t size = second.end - second.begin;
            observed[size < CELLS ? size : CELLS]++;
        }
        for (int size = 1; size < CELLS; size++)
            expected[size] = DRAWS * (1 - q) * pow(q, size - 1);
        expected[CELLS] = DRAWS * pow(q, CELLS - 1);
        assert_true(chi_square_p(observed, expected, CELLS + 1) > ALPHA);
    }
}

/* ---- E[M_ij] = k(|i - j|) -------------------------------------------------------------------- */

typedef struct estimates {
    const plsh_partition *base;
    int64_t t;
    double *x; /* [seeds] */
} estimates;

static void estimate_seeds(void *context, int64_t first, int64_t end, int slot) {
    estimates *all = context;
    (void)slot;
    for (int64_t seed = first; seed < end; seed++) {
        plsh_partition set = *all->base;
        set.seed = 1000 + (uint64_t)seed;
        int64_t hits = 0;
        for (int64_t sample = 0; sample < set.samples; sample++) {
            int64_t i = sample == 0 ? 0 : (seed * INT64_C(7919) + sample * 104729) % 100003;
            hits += plsh_partition_same(&set, sample, i, i + all->t);
        }
        all->x[seed] = (double)hits / (double)set.samples;
    }
}

/* Mean and standard error over seeds of M_ij at distance t, averaged within a seed over samples and
 * over pairs at several places (one of them (0, t)). */
static void estimate(const plsh_partition *base, int64_t t, int seeds, double *mean, double *se) {
    double sum = 0, squares = 0;
    estimates all = {base, t, test_malloc((size_t)seeds * sizeof(double))};
    plsh_thread_rows(2, seeds, 1, estimate_seeds, &all);
    for (int seed = 0; seed < seeds; seed++) {
        sum += all.x[seed];
        squares += all.x[seed] * all.x[seed];
    }
    test_free(all.x);
    *mean = sum / seeds;
    *se = sqrt(fmax(squares / seeds - *mean * *mean, 1e-18) / seeds);
}

static double z_limit(void) { return gsl_cdf_ugaussian_Qinv(ALPHA / 2); }

/* The estimate agrees with k(t), and would not agree with 0.99 k(t) or 1.01 k(t). */
static void check_expectation(int scheme, int design, plsh_decay decay, int64_t t, int seeds) {
    plsh_partition set = make(scheme, design, decay, 0);
    double mean, se, k = plsh_decay_value(&decay, t);
    estimate(&set, t, seeds, &mean, &se);
    double z = (mean - k) / se;
    if (fabs(z) > z_limit())
        fail_msg("%s %s: E[M] at t = %d is %.6f +- %.6f, k(t) = %.6f", scheme_names[scheme],
                 design_names[design], (int)t, mean, se, k);
    if (0.01 * k < 1.3 * z_limit() * se)
        fail_msg("%s %s: t = %d has no power: se %.6f", scheme_names[scheme], design_names[design],
                 (int)t, se);
}

static void test_expectation_alibi(void **state) {
    (void)state;
    for (int scheme = 0; scheme < 3; scheme++)
        for (int design = 0; design < 2; design++) {
            check_expectation(scheme, design, plsh_decay_alibi(2.5), 1, 60000);
            check_expectation(scheme, design, plsh_decay_alibi(2.5), 2, 120000);
            check_expectation(scheme, design, plsh_decay_alibi(20), 9, 60000);
            if (scheme < 2) check_expectation(scheme, design, plsh_decay_alibi(1e6), 500000, 60000);
        }
}

static void test_expectation_other_decays(void **state) {
    (void)state;
    static const double table[] = {1, 0.7, 0.5, 0.4, 0.35, 0.3};
    const plsh_decay decays[] = {{.kind = PLSH_DECAY_KERPLE_LOG, .a = 1.5, .b = 0.2},
                                 {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.3, .b = 0.5},
                                 {.kind = PLSH_DECAY_TRIANGLE, .a = 9},
                                 {.kind = PLSH_DECAY_TABLE, .table = table, .table_size = 6},
                                 {.kind = PLSH_DECAY_ALIBI, .a = 3, .limit = 0.4}};
    for (int d = 0; d < 5; d++)
        for (int design = 0; design < 2; design++)
            check_expectation(1, design, decays[d], 4, 120000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tests_have_power),
        cmocka_unit_test(test_binning_law),
        cmocka_unit_test(test_stratified_mixture),
        cmocka_unit_test(test_integer_law),
        cmocka_unit_test(test_cuts_law),
        cmocka_unit_test(test_expectation_alibi),
        cmocka_unit_test(test_expectation_other_decays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
