/* tests: the decays, their drops, tails and limits, and the ALiBi slopes. */
#include "support/support.h"

#include "decay/tail.h"

#include <math.h>
#include <stdlib.h>

static const double table[] = {1, 0.5, 0.25, 0.125, 0.125};

static const plsh_decay decays[] = {
    {.kind = PLSH_DECAY_ALIBI, .a = 1e-3},
    {.kind = PLSH_DECAY_ALIBI, .a = 16},
    {.kind = PLSH_DECAY_ALIBI, .a = 1e6, .limit = 0.25},
    {.kind = PLSH_DECAY_KERPLE_LOG, .a = 0.5, .b = 2},
    {.kind = PLSH_DECAY_KERPLE_LOG, .a = 1, .b = 0.1},
    {.kind = PLSH_DECAY_KERPLE_LOG, .a = 3, .b = 1},
    {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.3, .b = 0.5},
    {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.01, .b = 1},
    {.kind = PLSH_DECAY_TRIANGLE, .a = 7.5},
    {.kind = PLSH_DECAY_TRIANGLE, .a = 0.5, .limit = 0.1},
    {.kind = PLSH_DECAY_TABLE, .table = table, .table_size = 5},
};
enum { DECAYS = sizeof decays / sizeof *decays };

static void test_values(void **state) {
    (void)state;
    plsh_error error;
    for (int d = 0; d < DECAYS; d++) {
        const plsh_decay *decay = &decays[d];
        assert_ok(plsh_decay_check_convex(decay, &error));
        assert_true(plsh_decay_value(decay, 0) == 1);
        for (int64_t t = 0; t < 300; t++) {
            double k = plsh_decay_value(decay, t), next = plsh_decay_value(decay, t + 1);
            assert_true(next <= k);
            assert_true(fabs(plsh_decay_drop(decay, t) - (k - next)) <= 4e-16);
            assert_true(k == 0 ? plsh_decay_log(decay, t) < -700
                               : fabs(exp(plsh_decay_log(decay, t)) - k) <= 1e-14 * k);
        }
        double far = plsh_decay_value(decay, INT64_C(1) << 62);
        assert_float_equal(far, plsh_decay_infinity(decay), 1e-3);
    }
}

/* The tail bounds the sum from above, and ALiBi's, the table's and the triangle's are the sum. */
static void test_tail(void **state) {
    (void)state;
    for (int d = 0; d < DECAYS; d++)
        for (int64_t t = 0; t < 50; t += 7)
            for (int64_t count = 0; count < 2000; count = count * 3 + 1) {
                double sum = 0;
                for (int64_t u = t; u < t + count; u++) sum += plsh_decay_value(&decays[d], u);
                double tail = plsh_decay_tail(&decays[d], t, count);
                assert_true(tail >= sum * (1 - 1e-12));
                if (decays[d].kind != PLSH_DECAY_KERPLE_LOG)
                    assert_true(tail <= sum * (1 + 1e-6) + 1e-300);
                else
                    assert_true(tail <= 2 * sum);
            }
}

/* log k(t) between a - h and a + h rises by 2 h times its derivative, but for h^2 / 6 of the third.
 */
static void test_log_gradient(void **state) {
    (void)state;
    for (int d = 0; d < DECAYS; d++)
        for (int64_t t = 0; t < 300; t += 1 + t / 8)
            for (int by_b = 0; by_b < 2; by_b++) {
                plsh_decay low = decays[d], high = decays[d];
                double h = 1e-5 * (by_b ? low.b : low.a), gradient[2];
                *(by_b ? &low.b : &low.a) -= h;
                *(by_b ? &high.b : &high.a) += h;
                plsh_decay_log_gradient(&decays[d], t, gradient);
                double below = plsh_decay_log(&low, t), above = plsh_decay_log(&high, t);
                if (h == 0 || isinf(below) || isinf(above)) {
                    assert_true(gradient[by_b] == 0);
                    continue;
                }
                double rise = (above - below) / (2 * h);
                assert_true(fabs(gradient[by_b] - rise) <=
                            1e-7 * fabs(rise) + 4e-16 * (1 - below) / h);
            }
}

/* What is not convex and decreasing is refused, with the first t that breaks it. */
static void test_not_convex(void **state) {
    (void)state;
    plsh_error error;
    plsh_decay gauss = {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.01, .b = 2};
    assert_ok(plsh_decay_check(&gauss, &error));
    assert_fails(plsh_decay_check_convex(&gauss, &error), PLSH_STATUS_UNSUPPORTED, "t = 1,");
    static const double window[] = {1, 1, 1, 0}, rising[] = {1, 0.2, 0.1, 0.3};
    plsh_decay hard = {.kind = PLSH_DECAY_TABLE, .table = window, .table_size = 4};
    assert_fails(plsh_decay_check_convex(&hard, &error), PLSH_STATUS_UNSUPPORTED, "t = 2,");
    plsh_decay rises = {.kind = PLSH_DECAY_TABLE, .table = rising, .table_size = 4};
    assert_fails(plsh_decay_check_convex(&rises, &error), PLSH_STATUS_UNSUPPORTED,
                 "rises at t = 3");
}

/* Decided in O(1), and rightly, for the smallest and largest a: exp(-a t^p) with p > 1 is not
 * convex at t = 1 up to the root of 1 - 2 exp(-a) + exp(-a 2^p), and convex beyond. */
static void test_convex_by_formula(void **state) {
    (void)state;
    plsh_error error;
    const double powers[] = {nextafter(1, 2), 1.0001, 1.5, 1.9, 2};
    for (int i = 0; i < 5; i++) {
        plsh_decay decay = {.kind = PLSH_DECAY_KERPLE_POWER, .b = powers[i]};
        const double small[] = {1e-300, 1e-17, 1e-9, (powers[i] - 1) / powers[i]};
        for (int k = 0; k < 4; k++) {
            decay.a = fmin(small[k], small[3]);
            decay.limit = 0;
            assert_fails(plsh_decay_check_convex(&decay, &error), PLSH_STATUS_UNSUPPORTED,
                         "not convex at t = 1");
            decay.limit = 1; /* the same weight everywhere */
            assert_ok(plsh_decay_check_convex(&decay, &error));
        }
    }
    /* The root for p = 2: x = exp(-a) with x^3 + x^2 + x = 1. */
    const double root = 0.609377863436;
    plsh_decay gauss = {.kind = PLSH_DECAY_KERPLE_POWER, .a = root * (1 - 1e-9), .b = 2};
    assert_fails(plsh_decay_check_convex(&gauss, &error), PLSH_STATUS_UNSUPPORTED, "t = 1");
    const double above[] = {root * (1 + 1e-9), 1, 40, 1e15};
    for (int i = 0; i < 4; i++) {
        gauss.a = above[i];
        assert_ok(plsh_decay_check_convex(&gauss, &error));
        for (int64_t t = 0; t < 30; t++)
            assert_true(plsh_decay_drop(&gauss, t) >= plsh_decay_drop(&gauss, t + 1));
    }
    const plsh_decay slow = {.kind = PLSH_DECAY_KERPLE_POWER, .a = 1e-300, .b = 1};
    assert_ok(plsh_decay_check_convex(&slow, &error));
}

/* log of k(t) + ... + k(t+count-1), which does not underflow. */
static double log_sum(const plsh_decay *decay, int64_t t, int64_t count) {
    double most = -INFINITY, sum = 0;
    for (int64_t u = t; u < t + count; u++) most = fmax(most, plsh_decay_log(decay, u));
    if (most == -INFINITY) return most;
    for (int64_t u = t; u < t + count; u++) sum += exp(plsh_decay_log(decay, u) - most);
    return most + log(sum);
}

/* The logarithm of a tail bounds the sum from above, close to it, where the sum underflows too. */
static void test_log_tail(void **state) {
    (void)state;
    static const plsh_decay far[] = {{.kind = PLSH_DECAY_KERPLE_POWER, .a = 2, .b = 1.5},
                                     {.kind = PLSH_DECAY_KERPLE_LOG, .a = 100, .b = 1e4}};
    for (int d = 0; d < DECAYS + 2; d++) {
        const plsh_decay *decay = d < DECAYS ? &decays[d] : &far[d - DECAYS];
        for (int64_t t = 0; t < 20000; t = t * 4 + 3)
            for (int64_t count = 1; count < 3000; count *= 7) {
                const double sum = log_sum(decay, t, count);
                const double tail = plsh_decay_log_tail(decay, t, count);
                assert_true(tail >= sum - 1e-10 * fabs(sum));
                assert_true(tail <= sum + log((double)count) + 1e-5 || sum == -INFINITY);
                if (plsh_decay_is_linear(decay))
                    assert_true(tail <= sum + 1e-8 + 1e-10 * fabs(sum));
            }
        assert_true(plsh_decay_log_tail(decay, 5, 0) == -INFINITY);
    }
}

/* The tables of plans and of caches bound the same sums. */
static void test_tables_of_sums(void **state) {
    (void)state;
    enum { LONGEST = 700, STEP = 64, SIZE = 1024 };
    plsh_error error;
    for (int d = 0; d < DECAYS; d++) {
        const plsh_decay *decay = &decays[d];
        plsh_decay_sums sums;
        float *memory = malloc((size_t)plsh_decay_sums_size(decay, LONGEST) * sizeof(float) + 1);
        plsh_decay_sums_fill(&sums, decay, LONGEST, memory);
        plsh_decay_sums_cut(&sums, LONGEST);
        plsh_decay_table *pages = NULL;
        assert_ok(plsh_decay_table_grow(&pages, decay, STEP, STEP, true, &error));
        assert_ok(plsh_decay_table_grow(&pages, decay, SIZE, STEP, true, &error));
        assert_int_equal(pages->sum != NULL,
                         decay->kind == PLSH_DECAY_KERPLE_POWER || decay->kind == PLSH_DECAY_TABLE);
        for (int64_t t = 0; t < LONGEST; t += 13) {
            const double log2_e = 1 / log(2), rest = log_sum(decay, t, LONGEST + 1 - t) * log2_e;
            const double some = log_sum(decay, t, 30) * log2_e;
            assert_true((double)plsh_decay_sums_rest(&sums, t) >= rest - 1e-6 * fabs(rest));
            assert_true((double)plsh_decay_sums_some(&sums, t, 30) >= some - 1e-6 * fabs(some));
            assert_true(plsh_decay_table_log2_tail(pages, decay, t, 30) >=
                        some - 1e-6 * fabs(some));
        }
        plsh_decay_table_release(plsh_decay_table_share(pages));
        plsh_decay_table_release(pages);
        free(memory);
    }
}

/* However slow the decay and far the way, a tail comes back; at the ends of int64_t, too. */
static void test_extreme_distances(void **state) {
    (void)state;
    const plsh_decay slow[] = {{.kind = PLSH_DECAY_KERPLE_POWER, .a = 1e-17, .b = 1.5},
                               {.kind = PLSH_DECAY_KERPLE_POWER, .a = 1e-6, .b = 0.5},
                               {.kind = PLSH_DECAY_KERPLE_POWER, .a = 1e-300, .b = 2}};
    const double n = 0x1p40;
    for (int i = 0; i < 3; i++) {
        double tail = plsh_decay_tail(&slow[i], 0, INT64_C(1) << 40);
        assert_true(tail >= n * plsh_decay_value(&slow[i], INT64_C(1) << 40) && tail <= n * 1.001);
    }
    /* The integral of exp(-a u^(1/2)) from 0 on is 2 / a^2. */
    assert_float_equal(plsh_decay_tail(&slow[1], 0, INT64_MAX) / 2e12, 1, 1e-2);
    for (int d = 0; d < DECAYS; d++) {
        assert_true(isfinite(plsh_decay_value(&decays[d], INT64_MAX)));
        assert_true(plsh_decay_drop(&decays[d], INT64_MAX) >= 0);
        assert_true(plsh_decay_tail(&decays[d], INT64_MAX - 5, INT64_MAX) >= 0);
    }
}

static void test_names(void **state) {
    (void)state;
    plsh_error error;
    static const int parameters[] = {1, 2, 2, 1, 0};
    for (int i = 0; i <= PLSH_DECAY_TABLE; i++) {
        plsh_decay_kind kind = (plsh_decay_kind)99;
        assert_ok(plsh_decay_find(plsh_decay_names()[i], &kind, &error));
        assert_int_equal(kind, i);
        assert_int_equal(plsh_decay_parameters(kind), parameters[i]);
    }
    assert_null(plsh_decay_names()[PLSH_DECAY_TABLE + 1]);
    plsh_decay_kind kind;
    assert_fails(plsh_decay_find("rope", &kind, &error), PLSH_STATUS_INVALID,
                 "decay 'rope' is unknown; one of alibi, kerple-log");
}

static void test_bad_parameters(void **state) {
    (void)state;
    plsh_error error;
    const double bad[] = {0, -1, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        plsh_decay decay = plsh_decay_alibi(bad[i]);
        assert_fails(plsh_decay_check(&decay, &error), PLSH_STATUS_INVALID, "sigma");
        decay = (plsh_decay){.kind = PLSH_DECAY_KERPLE_LOG, .a = 1, .b = bad[i]};
        assert_fails(plsh_decay_check(&decay, &error), PLSH_STATUS_INVALID, "r2");
    }
    plsh_decay decay = {.kind = PLSH_DECAY_ALIBI, .a = 1, .limit = 1.5};
    assert_fails(plsh_decay_check(&decay, &error), PLSH_STATUS_INVALID, "limit");
    decay = (plsh_decay){.kind = PLSH_DECAY_TABLE};
    assert_fails(plsh_decay_check(&decay, &error), PLSH_STATUS_INVALID, "empty");
    const double two[] = {1, NAN};
    decay = (plsh_decay){.kind = PLSH_DECAY_TABLE, .table = two, .table_size = 2};
    assert_fails(plsh_decay_check(&decay, &error), PLSH_STATUS_INVALID, "entry 1");
    decay.table_size = SIZE_MAX;
    assert_fails(plsh_decay_check(&decay, &error), PLSH_STATUS_INVALID, "more than memory");
    decay = (plsh_decay){.kind = (plsh_decay_kind)99};
    assert_fails(plsh_decay_check(&decay, &error), PLSH_STATUS_INVALID, "kind 99");
}

static void test_slopes(void **state) {
    (void)state;
    plsh_error error;
    double slopes[12];
    assert_ok(plsh_alibi_slopes(4, slopes, &error));
    for (int h = 0; h < 4; h++) assert_true(slopes[h] == ldexp(1, -2 * (h + 1)));
    assert_ok(plsh_alibi_slopes(6, slopes, &error));
    static const int six[] = {-2, -4, -6, -8, -1, -3};
    for (int h = 0; h < 6; h++) assert_true(slopes[h] == ldexp(1, six[h]));
    assert_ok(plsh_alibi_slopes(12, slopes, &error));
    assert_float_equal(slopes[8], exp2(-0.5), 1e-15);
    assert_float_equal(slopes[11], exp2(-3.5), 1e-15);
    assert_ok(plsh_alibi_slopes(1, slopes, &error));
    assert_true(slopes[0] == 0x1p-8);
    assert_fails(plsh_alibi_slopes(0, slopes, &error), PLSH_STATUS_INVALID, "heads is 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_tail),
        cmocka_unit_test(test_log_tail),
        cmocka_unit_test(test_tables_of_sums),
        cmocka_unit_test(test_not_convex),
        cmocka_unit_test(test_bad_parameters),
        cmocka_unit_test(test_slopes),
        cmocka_unit_test(test_log_gradient),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_convex_by_formula),
        cmocka_unit_test(test_extreme_distances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
