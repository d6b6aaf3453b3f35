/* tests: the bounds of the theorems against their formulas, and their inverses. */
#include "support/support.h"

#include "plsh/theory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_close(double a, double b, double relative) {
    if (!(fabs(a - b) <= relative * fabs(b))) fail_msg("%.17g is not %.17g", a, b);
}

static const double sigmas[] = {0.05, 1, 2, 16, 256, 1e6};

/* As published: n exp(-s e^2 / (16 Psi^2 + 4 Psi e)), and what follows from it. */
static void test_paper(void **state) {
    (void)state;
    for (int x = 1; x < 5; x++) {
        double e = exp(1 / sigmas[x]);
        assert_close(plsh_paper_psi(sigmas[x]), 1 + sigmas[x] + (e + 1) / (e - 1), 1e-12);
    }
    assert_close(plsh_paper_psi(1e-4), 2.0001, 1e-15); /* e^(1/sigma) overflows, coth is 1 */
    assert_close(plsh_paper_psi(1e12), 3e12 + 1, 1e-12);
    double psi = plsh_paper_psi(4), eps = 9;
    double tail = 1000 * exp(-5000 * eps * eps / (16 * psi * psi + 4 * psi * eps));
    assert_close(plsh_paper_spectral_tail(1000, 4, 5000, eps), tail, 1e-12);
    assert_close(plsh_paper_spectral_tail(2000, 4, 5000, eps), 2 * tail, 1e-12);
    assert_true(plsh_paper_spectral_tail(1000, 4, 1, 0.01) == 1);
    assert_true(plsh_paper_spectral_tail(1000, 4, 1, INFINITY) == 0);
    eps = plsh_paper_spectral_error(1000, 4, 5000, 0.01);
    assert_close(plsh_paper_spectral_tail(1000, 4, 5000, eps), 0.01, 1e-9);
    assert_true(llabs(plsh_paper_spectral_samples(1000, 4, eps, 0.01) - 5000) <= 1);
    assert_close(plsh_paper_max_error(100, 400, 0.01), sqrt(log(2e4 / 0.01) / 800), 1e-12);
    assert_close(plsh_paper_block_bound(8, 20, 0.01), 1 + 8 * (3 * log(2000) + 2), 1e-12);
    for (int64_t s = 1; s <= 100000; s *= 10) { /* the C of its inequality for the mean is 4 */
        double l = 1 + log(2.0 * 4250), r = l / (double)s;
        assert_true(plsh_paper_spectral_expectation(4250, 16, s) <=
                    4 * plsh_paper_psi(16) * (sqrt(r) + r));
    }
    double l = log(4 * 4096 / 0.01); /* and of Theorem 2.2 it is 8 */
    for (double p = 1e-4; p <= 1; p *= 10)
        assert_true(plsh_paper_delta_p(4096, 16, 1000, 0.01, p) <=
                    8 * fmin(plsh_paper_psi(16) * p, 1) * sqrt(l / 1000));
    assert_close(plsh_paper_output_bound(0.1, 0.5, 3), 2 * 0.1 / 0.4 * 3, 1e-12);
    assert_true(isinf(plsh_paper_output_bound(0.5, 0.5, 1)));
}

/* The forms that the header states, written down a second time. */
static void test_closed_forms(void **state) {
    (void)state;
    const int64_t n = 1000, s = 300;
    for (int x = 0; x < 5; x++) {
        double sigma = sigmas[x], half = sinh(0.5 / sigma), v = 1 / (2 * half * half);
        double kappa = fmax(sigma, 1 / tanh(0.5 / sigma) / 3), l = log(2000 / 0.01) / (double)s;
        double eps = sqrt(2 * v * l) + kappa * l;
        assert_close(plsh_spectral_error(n, sigma, s, 0.01), eps, 1e-12);
        l = log(2000) / (double)s;
        assert_close(plsh_spectral_expectation(n, sigma, s), sqrt(2 * v * l) + kappa * l, 1e-12);
        assert_true(v <= 2 * sigma * sigma);
        /* The weaker form with Bernstein's denominator. */
        double weak = 2000 * exp(-(double)s * eps * eps / (4 * sigma * sigma + 2 * kappa * eps));
        assert_true(plsh_spectral_tail(n, sigma, s, eps) <= weak * (1 + 1e-9));
    }
    assert_close(plsh_max_tail(100, 400, 0.2), 9900 * exp(-2 * 400 * 0.04), 1e-12);
    assert_true(plsh_max_error(1, 5, 0.01) == 0 && plsh_max_tail(1, 5, 0.01) == 0);
    double g = (plsh_block_bound(8, 20, 0.01) - 1) / 8;
    assert_close((1 + g) * exp(-g), 0.01 / 20, 1e-12);
    assert_close(plsh_block_bound_cuts(101, 8, 20, 0.01),
                 1 + 8 * log(2000 * (1 + 100 * (1 - exp(-0.125)))), 1e-12);
    assert_close(plsh_output_bound(0.1, 0.5, 3), 0.6, 1e-12);
    assert_close(plsh_output_bound(0.7, 0.5, 3), 3, 1e-12);
    assert_close(plsh_output_expectation(1.5, 100, 2), 0.3, 1e-12);
    double row = plsh_row_error(4096, 16, 1000, 0.005), max = plsh_max_error(4096, 1000, 0.005);
    plsh_partition set = plsh_partition_default(16, 1000);
    plsh_bounds bounds;
    plsh_error error;
    assert_int_equal(plsh_bounds_find(&set, 4096, 0.01, &bounds, &error), 0);
    assert_close(plsh_delta_p(&set, 4096, 0.01, 1), bounds.max, 1e-12);
    assert_close(plsh_delta_p(&set, 4096, 0.01, 1e-4), 1e-4 * bounds.spectral, 1e-12);
    set.design = PLSH_DESIGN_IID;
    assert_close(plsh_delta_p(&set, 4096, 0.01, 1), max, 1e-12);
    assert_close(plsh_delta_p(&set, 4096, 0.01, 1e-4), 1e-4 * row, 1e-12);
    set.samples = 1;
    assert_true(plsh_delta_p(&set, 4096, 0.01, 1) == 1);
}

/* eps from delta gives delta back; the samples for (eps, delta) are enough and one fewer are not;
 * the integral is never worse than the closed form, and its pieces agree with each other. */
static void test_inverses(void **state) {
    (void)state;
    const double deltas[] = {1e-9, 0.01, 0.3};
    const int64_t ns[] = {1, 4096, 1000000}, counts[] = {1, 20, 100000};
    for (int x = 0; x < 6 * 27; x++) {
        int64_t n = ns[x / 6 % 3], s = counts[x / 18 % 3];
        double sigma = sigmas[x % 6], delta = deltas[x / 54];
        double eps = plsh_spectral_error(n, sigma, s, delta), more = 1 + 1e-9;
        assert_close(plsh_spectral_tail(n, sigma, s, eps), delta, 1e-9);
        int64_t need = plsh_spectral_samples(n, sigma, eps * more, delta);
        assert_true(need == s || (need == 1 && s == 1));
        double sharp = plsh_spectral_error_integral(n, sigma, s, delta);
        assert_true(sharp <= eps && sharp > 0.01 * eps);
        assert_true(plsh_spectral_tail_integral(n, sigma, s, sharp * 1.0001) <= delta * 1.001);
        assert_true(plsh_spectral_expectation_integral(n, sigma, s) <=
                    plsh_spectral_expectation(n, sigma, s));
        eps = plsh_max_error(n, s, delta);
        if (n > 1) assert_close(plsh_max_tail(n, s, eps), delta, 1e-9);
        if (n > 1) assert_true(plsh_max_samples(n, eps * more, delta) == s);
        assert_close(plsh_block_tail(sigma, s, plsh_block_bound(sigma, s, delta)), delta, 1e-6);
        assert_true(plsh_row_error(n, sigma, s, delta) <= plsh_spectral_error(n, sigma, s, delta));
    }
    int64_t need = plsh_spectral_samples_integral(4096, 16, 0.32, 0.01);
    assert_true(plsh_spectral_error_integral(4096, 16, need, 0.01) <= 0.32);
    assert_true(plsh_spectral_error_integral(4096, 16, need - 1, 0.01) > 0.32);
}

/* Section 12 by its definition: every A and C up to 40 sigma, f by its two sums. The library takes
 * cells of them, each with its largest f, and so a little more. */
static void test_rows(void **state) {
    (void)state;
    enum { MOST = 400 };
    for (int c = 0; c < 6; c++) {
        static double f[MOST], share[MOST];
        const double sigma = c % 3 == 0 ? 1 : c % 3 == 1 ? 3 : 10, q = exp(-1 / sigma);
        const int64_t s = c < 3 ? 200 : 20000;
        const int count = (int)(40 * sigma);
        for (int a = 0; a < count; a++) {
            f[a] = 0, share[a] = (1 - q) * pow(q, a);
            for (int t = 1; t < 2 * count; t++)
                f[a] += t <= a ? (1 - pow(q, t)) * (1 - pow(q, t)) : pow(q, 2 * t);
        }
        double best = INFINITY;
        for (int step = 0; step < 100; step++) {
            const double theta = 0.01 * pow(1.1, step);
            double sum = 0;
            for (int a = 0; a < count; a++)
                for (int b = 0; b < count; b++) {
                    const double x = theta * sqrt(f[a] + f[b]);
                    sum += share[a] * share[b] * (expm1(x) - x);
                }
            best = fmin(best, (log(2 * 4096 / 0.01) / (double)s + sum) / theta);
        }
        const double found = plsh_row_error(4096, sigma, s, 0.01);
        assert_true(found < plsh_spectral_error_integral(4096, sigma, s, 0.01));
        assert_true(found > 0.995 * best && found < 1.02 * best);
    }
}

/* The mean over the frequencies against a plain sum over 2^15 of them, at thetas of both signs:
 * the quadrature has to be right, because a bound must not have an error of its own. */
static double plain_error(double sigma, int64_t s, double level, double theta) {
    enum { COUNT = 1 << 15 };
    const double q = exp(-1 / sigma), x = q * exp(theta), f = (1 + q) / (1 - q);
    const double k = exp(theta) * (1 - q) * (1 - q) / ((1 - x) * (1 - x));
    double sum = 0;
    for (int i = 0; i < COUNT; i++) {
        double sine = sin((i + 0.5) / COUNT * 1.57079632679489662);
        double a = 4 * q * sine * sine / ((1 - q) * (1 - q));
        double g = log(1 + log((1 + a * k) / (1 + a)) / a) - theta * f / (1 + a);
        sum += exp((double)s * g);
    }
    return (level + log(sum / COUNT)) / ((double)s * fabs(theta));
}

static void test_quadrature(void **state) {
    (void)state;
    const int64_t n = 4096, counts[] = {3, 100, 10000};
    for (int x = 0; x < 9; x++) {
        double sigma = x % 3 == 0 ? 0.7 : x % 3 == 1 ? 16 : 256, level = log(2 * 4096 / 0.01);
        int64_t s = counts[x / 3];
        double best[2] = {INFINITY, INFINITY};
        for (int i = 0; i < 60; i++) { /* thetas of both signs */
            double part = (i / 2 + 0.5) / 30, theta = pow(part, 3) / sigma;
            best[i & 1] = fmin(best[i & 1], plain_error(sigma, s, level, i & 1 ? -theta : theta));
        }
        double plain = fmax(best[0], best[1]);
        double sharp = plsh_spectral_error_integral(n, sigma, s, 0.01);
        assert_true(sharp <= plain * (1 + 1e-6) && sharp >= plain * 0.97);
    }
}

/* P and beta* against a second, direct computation in long double. */
static void test_instance(void **state) {
    (void)state;
    enum { N = 37, DIM = 5 };
    float q[N * DIM], k[N * DIM];
    plsh_error error;
    srand(7);
    for (int x = 0; x < N * DIM; x++) {
        q[x] = (float)rand() / (float)RAND_MAX * 6 - 3;
        k[x] = (float)rand() / (float)RAND_MAX * 6 - 3;
    }
    plsh_decay decay = plsh_decay_alibi(4);
    for (int causal = 0; causal < 2; causal++) {
        long double p_norm = 0, beta = 1, variation = 0;
        for (int i = 0; i < N; i++) {
            long double a[N] = {0}, sum = 0, square = 0, kept = 0, wide = 0;
            for (int j = 0; j < (causal ? i + 1 : N); j++) {
                long double dot = 0;
                for (int x = 0; x < DIM; x++) dot += (long double)q[i * DIM + x] * k[j * DIM + x];
                a[j] = expl(dot / sqrtl(DIM));
                sum += a[j];
            }
            for (int j = 0; j < N; j++) {
                square += a[j] / sum * (a[j] / sum);
                long double bias = expl(-fabsl((long double)i - j) / 4);
                kept += a[j] / sum * bias;
                wide += a[j] / sum * bias * sqrtl(1 / bias - 1);
            }
            p_norm = fmaxl(p_norm, sqrtl(square));
            beta = fminl(beta, kept);
            variation = fmaxl(variation, wide / kept);
        }
        plsh_instance instance;
        for (int threads = 1; threads < 8; threads += 3) {
            plsh_instance_head head = {
                .decay = &decay, .n = N, .dim = DIM, .q = q, .k = k, .causal = causal};
            assert_ok(plsh_instance_measure(&head, threads, &instance, &error));
            assert_close(instance.p_norm, (double)p_norm, 1e-12);
            assert_close(instance.beta, (double)beta, 1e-12);
            assert_close(instance.variation, (double)variation, 1e-12);
        }
    }
    plsh_instance instance;
    q[11] = NAN;
    plsh_instance_head head = {.decay = &decay, .n = N, .dim = DIM, .q = q, .k = k, .causal = true};
    assert_fails(plsh_instance_measure(&head, 1, &instance, &error), PLSH_STATUS_NOT_FINITE,
                 "q[2][1]");
    head.scale = NAN;
    assert_fails(plsh_instance_measure(&head, 1, &instance, &error), PLSH_STATUS_INVALID, "scale");
    head.n = 0;
    assert_fails(plsh_instance_measure(&head, 1, &instance, &error), PLSH_STATUS_INVALID, "0 x 5");
}

static void test_hostile(void **state) {
    (void)state;
    const double bad[] = {0, -1, NAN, INFINITY};
    for (int x = 0; x < 4; x++) {
        assert_true(isnan(plsh_paper_psi(bad[x])) && isnan(plsh_spectral_tail(10, bad[x], 5, 1)));
        assert_true(isnan(plsh_spectral_error(10, 2, 5, bad[x])));
        assert_true(isnan(plsh_spectral_error_integral(10, 2, 5, bad[x])));
        assert_true(isnan(plsh_spectral_expectation_integral(10, bad[x], 5)));
        assert_true(plsh_spectral_samples(10, 2, 1, bad[x]) == 0);
        assert_true(plsh_spectral_samples_integral(10, bad[x], 1, 0.1) == 0);
        assert_true(isnan(plsh_max_error(10, 5, bad[x])) && plsh_max_samples(10, 1, bad[x]) == 0);
        assert_true(isnan(plsh_block_bound(bad[x], 5, 0.1)) &&
                    isnan(plsh_block_bound(2, 5, bad[x])));
        assert_true(isnan(plsh_row_error(10, bad[x], 5, 0.1)));
        plsh_partition set = plsh_partition_default(2, 5);
        assert_true(isnan(plsh_delta_p(&set, 10, bad[x], 1)));
    }
    for (int x = 0; x < 3; x++) {
        assert_true(isnan(plsh_spectral_tail_integral(10, 2, 5, bad[x])));
        assert_true(plsh_spectral_samples(10, 2, bad[x], 0.1) == 0);
        assert_true(isnan(plsh_max_tail(10, 5, bad[x])));
    }
    assert_true(isnan(plsh_spectral_tail(0, 2, 5, 1)) && isnan(plsh_max_tail(0, 5, 1)));
    assert_true(isnan(plsh_spectral_tail(10, 2, 0, 1)) && isnan(plsh_max_error(10, 0, 0.1)));
    assert_true(isnan(plsh_block_bound(2, 0, 0.1)) && isnan(plsh_paper_block_bound(2, 5, 0.4)));
    assert_true(plsh_spectral_samples(10, 2, 1e-12, 0.1) == INT64_MAX);
    assert_true(isnan(plsh_output_bound(NAN, 1, 1)) && isnan(plsh_output_bound(0.1, 1, -1)));
    assert_true(isnan(plsh_output_bound(0.1, 0, 1)) && isnan(plsh_output_expectation(1, 0, 1)));
    /* The smallest sigma, where every mask is the identity. */
    assert_true(plsh_spectral_error_integral(4096, 1e-300, 10, 0.01) < 1);
    assert_true(plsh_row_error(4096, 1e-300, 10, 0.01) < 1);
    assert_true(plsh_spectral_error_integral(INT64_MAX / 4, 1e15, 10, 0.01) > 1e14);
}

/* Which bounds hold for which set. */
static void test_find(void **state) {
    (void)state;
    const double log_decay = 0.5;
    for (int variant = 0; variant < 8; variant++) {
        plsh_partition set = plsh_partition_default(16, 64);
        plsh_bounds bounds;
        plsh_error error;
        bool other = variant >= 6, stratified = variant & 1;
        set.scheme = other ? PLSH_SCHEME_INTEGER : (plsh_scheme)(variant / 2);
        set.design = stratified ? PLSH_DESIGN_STRATIFIED : PLSH_DESIGN_IID;
        if (other) set.decay = (plsh_decay){PLSH_DECAY_KERPLE_LOG, 1, log_decay, 0, NULL, 0};
        assert_ok(plsh_bounds_find(&set, 512, 0.01, &bounds, &error));
        bool cuts = set.scheme == PLSH_SCHEME_CUTS;
        bool integer = set.scheme == PLSH_SCHEME_INTEGER;
        assert_true(isnan(bounds.spectral) == other);
        assert_true(isnan(bounds.spectral_expectation) == (other || (stratified && !integer)));
        assert_true(bounds.max <= 1 && (bounds.max < 1) == !(stratified && cuts));
        assert_true(bounds.max_certain == stratified);
        assert_true(isnan(bounds.largest_block) == other);
        assert_fails(plsh_bounds_find(&set, 0, 0.01, &bounds, &error), PLSH_STATUS_INVALID, "n is");
        assert_fails(plsh_bounds_find(&set, 9, 1, &bounds, &error), PLSH_STATUS_INVALID, "delta");
    }
}

static void test_advice(void **state) {
    (void)state;
    plsh_advice advice;
    plsh_error error;
    plsh_advice_case of = {.scheme = PLSH_SCHEME_INTEGER,
                           .design = PLSH_DESIGN_STRATIFIED,
                           .n = 16384,
                           .sigma = 64,
                           .eps = 0.01,
                           .delta = 0.01};
    assert_ok(plsh_advice_make(&of, &advice, &error));
    double eps = 0.01 / tanh(0.5 / 64);
    plsh_partition set = plsh_partition_default(64, advice.samples_theorem);
    plsh_bounds bounds;
    assert_ok(plsh_bounds_find(&set, 16384, 0.01, &bounds, &error));
    assert_true(bounds.spectral <= eps && bounds.spectral > 0.95 * eps);
    assert_true(advice.samples_theorem > 1700 && advice.samples_theorem < 2100);
    assert_true(advice.samples_measured <= advice.samples_theorem);
    assert_true(advice.samples_least == 18);
    assert_non_null(strstr(advice.reason, "no set of fewer than 18 masks can reach this error"));
    of.eps = 0.1; /* between two measurements: 0.444 at 16 samples and 0.095 at 64 */
    assert_ok(plsh_advice_make(&of, &advice, &error));
    assert_true(advice.samples_measured > 55 && advice.samples_measured < 64);
    of.eps = 0.98; /* before the first, 0.942 at 4 */
    assert_ok(plsh_advice_make(&of, &advice, &error));
    assert_int_equal(advice.samples_measured, 4);
    of.eps = 0.01;
    assert_ok(plsh_advice_make(&of, &advice, &error));
    of.scheme = PLSH_SCHEME_BINNING;
    assert_ok(plsh_advice_make(&of, &advice, &error));
    assert_true(advice.samples_theorem == plsh_spectral_samples_integral(16384, 64, eps, 0.01));
    assert_true(advice.samples_paper > 30 * advice.samples_theorem);
    assert_true(advice.samples_measured < advice.samples_theorem);
    assert_true(advice.samples_measured > 2500); /* between 0.02 at 1024 and 0.0088 at 4096 */
    assert_true(advice.samples_measured < 3500);
    /* What is beyond the window is within the error, and one key fewer is not. */
    double q = exp(-1 / 64.0), w = (double)advice.window;
    assert_true(2 * pow(q, w + 1) / (1 - q) <= eps && 2 * pow(q, w) / (1 - q) > eps);
    assert_true(advice.pairs_window < advice.pairs_plsh && advice.pairs_plsh < advice.pairs_dense &&
                strcmp(advice.method, "window") == 0);
    assert_close(advice.pairs_dense, 16384, 1e-12);
    of = (plsh_advice_case){PLSH_SCHEME_CUTS, PLSH_DESIGN_IID, 100, 256, 0.1, 0.01, true};
    assert_ok(plsh_advice_make(&of, &advice, &error));
    assert_string_equal(advice.method, "dense");
    assert_close(advice.pairs_dense, 50.5, 1e-12);
    of = (plsh_advice_case){PLSH_SCHEME_LABELS, PLSH_DESIGN_IID, 100, 2, 0.1, 0.1, true};
    assert_fails(plsh_advice_make(&of, &advice, &error), PLSH_STATUS_INVALID, "scheme 3");
    of = (plsh_advice_case){PLSH_SCHEME_CUTS, PLSH_DESIGN_IID, 100, 2, 1, 0.1, true};
    assert_fails(plsh_advice_make(&of, &advice, &error), PLSH_STATUS_INVALID, "the error is 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paper),    cmocka_unit_test(test_closed_forms),
        cmocka_unit_test(test_inverses), cmocka_unit_test(test_quadrature),
        cmocka_unit_test(test_instance), cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_find),     cmocka_unit_test(test_advice),
        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
