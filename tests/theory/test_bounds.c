/* tests: the bounds of the theorems against their formulas, and their inverses. */
#include "support/support.h"

#include "plsh/theory.h"

#include <math.h>
#include <stdlib.h>

static void assert_close(double a, double b, double relative) {
    if (!(fabs(a - b) <= relative * fabs(b))) fail_msg("%.17g is not %.17g", a, b);
}

static const double sigmas[] = {0.05, 1, 2, 16, 256, 1e6};

static void test_psi(void **state) {
    (void)state;
    for (int x = 1; x < 5; x++) {
        double e = exp(1 / sigmas[x]);
        assert_close(plsh_psi(sigmas[x]), 1 + sigmas[x] + (e + 1) / (e - 1), 1e-12);
    }
    assert_close(plsh_psi(1e-4), 2.0001, 1e-15); /* e^(1/sigma) overflows, coth is 1 */
    assert_close(plsh_psi(1e12), 3e12 + 1, 1e-12);
    assert_true(plsh_psi(16) > 2 && plsh_psi(16) < 3 * 16 + 2);
}

/* The published form: n exp(-s e^2 / (16 Psi^2 + 4 Psi e)), and twice that for both signs. */
static void test_spectral_tail(void **state) {
    (void)state;
    double psi = plsh_psi(4), eps = 9;
    double tail = 1000 * exp(-5000 * eps * eps / (16 * psi * psi + 4 * psi * eps));
    assert_close(plsh_spectral_tail(1000, 4, 5000, eps), tail, 1e-12);
    assert_close(plsh_spectral_tail_two_sided(1000, 4, 5000, eps), 2 * tail, 1e-12);
    assert_true(plsh_spectral_tail(1000, 4, 1, 0.01) == 1);
    assert_true(plsh_spectral_tail(1000, 4, 1, INFINITY) == 0);
    assert_close(plsh_max_tail(100, 400, 0.2), 2e4 * exp(-2 * 400 * 0.04), 1e-12);
    assert_close(plsh_block_bound(8, 20, 0.01), 1 + 8 * (3 * log(2000) + 2), 1e-12);
}

/* eps from delta gives delta back; the samples for (eps, delta) are enough and one fewer are not.
 */
static void test_inverses(void **state) {
    (void)state;
    const double deltas[] = {1e-9, 0.01, 0.3};
    const int64_t ns[] = {1, 4096, 1000000}, counts[] = {1, 20, 100000};
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 3; c++)
                for (int d = 0; d < 3; d++) {
                    int64_t n = ns[b], s = counts[c];
                    double sigma = sigmas[a], delta = deltas[d];
                    double eps = plsh_spectral_error(n, sigma, s, delta);
                    assert_close(plsh_spectral_tail(n, sigma, s, eps), delta, 1e-9);
                    int64_t need = plsh_spectral_samples(n, sigma, eps * (1 + 1e-9), delta);
                    assert_true(need <= s && (s == 1 || need >= s - 1));
                    assert_true(plsh_spectral_tail(n, sigma, need, eps * (1 + 1e-9)) <= delta);
                    eps = plsh_spectral_error_two_sided(n, sigma, s, delta);
                    assert_close(plsh_spectral_tail_two_sided(n, sigma, s, eps), delta, 1e-9);
                    assert_true(plsh_spectral_samples_two_sided(n, sigma, eps, delta) <= s + 1);
                    eps = plsh_max_error(n, s, delta);
                    assert_close(plsh_max_tail(n, s, eps), delta, 1e-9);
                    need = plsh_max_samples(n, eps * (1 + 1e-9), delta);
                    assert_true(need <= s && plsh_max_tail(n, need, eps * (1 + 1e-9)) <= delta);
                    assert_true(need == 1 || plsh_max_tail(n, need - 1, eps) > delta);
                    double size = plsh_block_bound(sigma, s, delta);
                    assert_close(plsh_block_tail(sigma, s, size), delta, 1e-9);
                }
}

/* E||X|| <= integral of min(1, 2 n exp(..)): the closed bound lies above the integral, and not far;
 * and the stated constant 4 holds. */
static void test_expectation(void **state) {
    (void)state;
    for (int a = 1; a < 5; a++)
        for (int64_t s = 1; s <= 100000; s *= 10) {
            const int64_t n = 4250;
            double bound = plsh_spectral_expectation(n, sigmas[a], s), integral = 0;
            double step = bound / 20000;
            for (int x = 0; x < 200000; x++)
                integral += step * plsh_spectral_tail_two_sided(n, sigmas[a], s, (x + 0.5) * step);
            assert_true(integral <= bound && bound < 1.1 * integral);
            double l = 1 + log(2.0 * (double)n), r = l / (double)s;
            assert_true(bound <= 4 * plsh_psi(sigmas[a]) * (sqrt(r) + r));
        }
}

static void test_output(void **state) {
    (void)state;
    double max = plsh_max_error(4096, 1000, 0.005);
    double spectral = plsh_spectral_error_two_sided(4096, 16, 1000, 0.005);
    assert_close(plsh_delta_p(4096, 16, 1000, 0.01, 1), max, 1e-12);
    assert_close(plsh_delta_p(4096, 16, 1000, 0.01, 1e-4), 1e-4 * spectral, 1e-12);
    /* The theorem's form with its constant, 8. */
    double l = log(4 * 4096 / 0.01);
    for (double p = 1e-4; p <= 1; p *= 10)
        assert_true(plsh_delta_p(4096, 16, 1000, 0.01, p) <=
                    8 * fmin(plsh_psi(16) * p, 1) * sqrt(l / 1000));
    assert_close(plsh_output_bound(0.1, 0.5, 3), 2 * 0.1 / 0.4 * 3, 1e-12);
    assert_true(isinf(plsh_output_bound(0.5, 0.5, 1)));
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
        long double p_norm = 0, beta = 1;
        for (int i = 0; i < N; i++) {
            long double a[N] = {0}, sum = 0, square = 0, kept = 0;
            for (int j = 0; j < (causal ? i + 1 : N); j++) {
                long double dot = 0;
                for (int x = 0; x < DIM; x++) dot += (long double)q[i * DIM + x] * k[j * DIM + x];
                a[j] = expl(dot / sqrtl(DIM));
                sum += a[j];
            }
            for (int j = 0; j < N; j++) {
                square += a[j] / sum * (a[j] / sum);
                kept += a[j] / sum * expl(-fabsl((long double)i - j) / 4);
            }
            p_norm = fmaxl(p_norm, sqrtl(square));
            beta = fminl(beta, kept);
        }
        plsh_instance instance;
        for (int threads = 1; threads < 8; threads += 3) {
            assert_ok(
                plsh_instance_measure(&decay, N, DIM, q, k, 0, causal, threads, &instance, &error));
            assert_close(instance.p_norm, (double)p_norm, 1e-12);
            assert_close(instance.beta, (double)beta, 1e-12);
        }
    }
    plsh_instance instance;
    q[11] = NAN;
    assert_fails(plsh_instance_measure(&decay, N, DIM, q, k, 0, true, 1, &instance, &error),
                 PLSH_STATUS_NOT_FINITE, "q[2][1]");
    assert_fails(plsh_instance_measure(&decay, 0, DIM, q, k, 0, true, 1, &instance, &error),
                 PLSH_STATUS_INVALID, "0 x 5");
    assert_fails(plsh_instance_measure(&decay, N, DIM, q, k, NAN, true, 1, &instance, &error),
                 PLSH_STATUS_INVALID, "scale");
}

static void test_hostile(void **state) {
    (void)state;
    const double bad[] = {0, -1, NAN, INFINITY};
    for (int x = 0; x < 4; x++) {
        assert_true(isnan(plsh_psi(bad[x])));
        assert_true(isnan(plsh_spectral_tail(10, bad[x], 5, 1)));
        assert_true(isnan(plsh_spectral_error(10, 2, 5, bad[x])));
        assert_true(plsh_spectral_samples(10, 2, 1, bad[x]) == 0);
        assert_true(isnan(plsh_max_error(10, 5, bad[x])));
        assert_true(plsh_max_samples(10, 0.1, bad[x]) == 0);
        assert_true(isnan(plsh_block_bound(bad[x], 5, 0.1)));
        assert_true(isnan(plsh_block_bound(2, 5, bad[x])));
        assert_true(isnan(plsh_delta_p(10, 2, 5, bad[x], 1)));
        assert_true(isnan(plsh_spectral_expectation(10, bad[x], 5)));
    }
    for (int x = 0; x < 3; x++) {
        assert_true(isnan(plsh_spectral_tail(10, 2, 5, bad[x])));
        assert_true(plsh_spectral_samples(10, 2, bad[x], 0.1) == 0);
        assert_true(isnan(plsh_max_tail(10, 5, bad[x])));
    }
    assert_true(isnan(plsh_spectral_tail(0, 2, 5, 1)) && isnan(plsh_max_tail(0, 5, 1)));
    assert_true(isnan(plsh_spectral_tail(10, 2, 0, 1)) && isnan(plsh_max_error(10, 0, 0.1)));
    assert_true(isnan(plsh_block_bound(2, 0, 0.1)) && isnan(plsh_block_bound(2, 5, 0.4)));
    assert_true(plsh_spectral_samples(10, 2, 1e-12, 0.1) == INT64_MAX);
    assert_true(isnan(plsh_output_bound(NAN, 1, 1)) && isnan(plsh_output_bound(0.1, 1, -1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_psi),      cmocka_unit_test(test_spectral_tail),
        cmocka_unit_test(test_inverses), cmocka_unit_test(test_expectation),
        cmocka_unit_test(test_output),   cmocka_unit_test(test_instance),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
