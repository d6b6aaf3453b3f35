/* tests: products of partitions over several axes. */
#include "support/support.h"

#include "plsh/grid.h"

#include <gsl/gsl_cdf.h>
#include <math.h>

/* Labels are equal iff the tokens share a block on every axis. */
static void test_labels_are_products(void **state) {
    (void)state;
    plsh_error error;
    enum { SIDE = 9, N = SIDE * SIDE * SIDE };
    static int64_t positions[N][3];
    static int32_t labels[N];
    for (int i = 0; i < N; i++) {
        positions[i][0] = i / (SIDE * SIDE) - 4;
        positions[i][1] = i / SIDE % SIDE + (INT64_C(1) << 50);
        positions[i][2] = i % SIDE;
    }
    for (int scheme = 0; scheme < 3; scheme++) {
        plsh_partition set = plsh_partition_default(3, 7);
        set.scheme = (plsh_scheme)scheme;
        plsh_grid grid = plsh_grid_make(&set, 3);
        assert_ok(plsh_grid_labels(&grid, 6, positions[0], N, labels, &error));
        int32_t next = 0;
        for (int i = 0; i < N; i++) {
            assert_true(labels[i] <= next);
            next += labels[i] == next;
            for (int j = 0; j < i; j += 5) {
                bool same = true;
                for (int a = 0; a < 3; a++)
                    same &= plsh_partition_same(&grid.axis[a], 6, positions[i][a], positions[j][a]);
                assert_int_equal(labels[i] == labels[j], same);
            }
        }
        assert_true(next > 10);
    }
}

/* E[M_xy] = exp(-|x - y|_1 / sigma) in two and three dimensions, for both designs: a z-test at
 * 1e-9 per case (false alarms below 1e-7 in all), with the power to see 1 %. If the axes took their
 * strata in the same order this would fail. */
static void test_expectation(void **state) {
    (void)state;
    const double limit = gsl_cdf_ugaussian_Qinv(0.5e-9);
    for (int dims = 2; dims <= 3; dims++)
        for (int design = 0; design < 2; design++)
            for (int scheme = 0; scheme < 3; scheme++) {
                enum { SEEDS = 100000, SAMPLES = 8 };
                const double sigma = 6, k = exp(-(1.0 + 2 * (dims - 1)) / sigma);
                double sum = 0, squares = 0;
                for (uint64_t seed = 0; seed < SEEDS; seed++) {
                    plsh_partition set = plsh_partition_default(sigma, SAMPLES);
                    set.seed = seed;
                    set.design = (plsh_design)design;
                    set.scheme = (plsh_scheme)scheme;
                    plsh_grid grid = plsh_grid_make(&set, dims);
                    int hits = 0;
                    for (int64_t m = 0; m < SAMPLES; m++) {
                        bool same = true;
                        for (int a = 0; a < dims && same; a++)
                            same =
                                plsh_partition_same(&grid.axis[a], m, 10 * m, 10 * m + (a ? 2 : 1));
                        hits += same;
                    }
                    double x = (double)hits / SAMPLES;
                    sum += x;
                    squares += x * x;
                }
                double mean = sum / SEEDS, se = sqrt((squares / SEEDS - mean * mean) / SEEDS);
                if (fabs(mean - k) > limit * se)
                    fail_msg("%d-D, scheme %d, design %d: %.5f +- %.5f, expected %.5f", dims,
                             scheme, design, mean, se, k);
                assert_true(0.01 * k > limit * se);
            }
}

static void test_refused(void **state) {
    (void)state;
    plsh_error error;
    int64_t positions[2] = {0, 0};
    int32_t labels[1];
    plsh_partition set = plsh_partition_default(3, 7);
    plsh_grid grid = plsh_grid_make(&set, 2);
    assert_fails(plsh_grid_labels(&grid, 7, positions, 1, labels, &error), PLSH_STATUS_INVALID,
                 "sample is 7");
    assert_fails(plsh_grid_labels(&grid, 0, positions, -1, labels, &error), PLSH_STATUS_INVALID,
                 "n is -1");
    grid.axis[1].axis = 0;
    assert_fails(plsh_grid_labels(&grid, 0, positions, 1, labels, &error), PLSH_STATUS_INVALID,
                 "axis 1");
    grid = plsh_grid_make(&set, 9);
    assert_fails(plsh_grid_labels(&grid, 0, positions, 1, labels, &error), PLSH_STATUS_INVALID,
                 "9 axes");
    grid = plsh_grid_make(&set, 2);
    assert_ok(plsh_grid_labels(&grid, 0, positions, 0, labels, &error));
}

static plsh_status label_once(void *context, plsh_error *error) {
    (void)context;
    int64_t positions[] = {0, 0, 1, 1, 2, 2};
    int32_t labels[3];
    plsh_partition set = plsh_partition_default(3, 7);
    plsh_grid grid = plsh_grid_make(&set, 2);
    return plsh_grid_labels(&grid, 0, positions, 3, labels, error);
}

static void test_no_memory(void **state) {
    (void)state;
    test_every_allocation(label_once, NULL, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels_are_products),
        cmocka_unit_test(test_expectation),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
