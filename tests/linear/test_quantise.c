/* weights: floats to q types and back: how far off values are. */
#include <math.h>
#include <string.h>

#include "linear/problem.h"

enum { COUNT = 2048 };

static const plsh_weight_type types[] = {PLSH_WEIGHT_Q8_0, PLSH_WEIGHT_Q6_K, PLSH_WEIGHT_Q5_0,
                                         PLSH_WEIGHT_Q4_K, PLSH_WEIGHT_Q4_1, PLSH_WEIGHT_Q4_0};
enum { TYPES = sizeof types / sizeof *types };

static void there_and_back(plsh_weight_type type, const float *x, float *y) {
    const plsh_weight_kind *kind = &plsh_weight_kinds[type];
    int64_t bad = -1;
    void *stored = make((size_t)(COUNT / kind->block * kind->bytes), 1);
    assert_true(kind->narrow(x, stored, COUNT, &bad));
    kind->widen(stored, y, COUNT);
    plsh_release(stored);
}

/* A sum of 12 uniform numbers: nearly normal, mean 0, variance 1. */
static void fill_normal(float *x, uint32_t seed) {
    for (int i = 0; i < COUNT; i++) {
        float sum = -6.0f;
        for (int k = 0; k < 12; k++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) * 0x1p-24f;
        }
        x[i] = sum;
    }
}

static double relative_error(const float *x, const float *y) {
    double off = 0.0, size = 0.0;
    for (int i = 0; i < COUNT; i++) {
        off += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
        size += (double)x[i] * (double)x[i];
    }
    return sqrt(off / size);
}

/* The root of the mean square error of normal weights, as a share of theirs. A step of the extreme
 * value of 32 normal numbers, about 2.1 deviations on one side, over 8 steps has 0.08. */
static void test_error(void **unused) {
    (void)unused;
    static const double most[TYPES] = {0.006, 0.019, 0.042, 0.080, 0.086, 0.086};
    float x[COUNT], y[COUNT];
    for (int scale = -10; scale <= 8; scale += 6) {
        fill_normal(x, 7);
        for (int i = 0; i < COUNT; i++) x[i] = ldexpf(x[i], scale);
        for (int t = 0; t < TYPES; t++) {
            there_and_back(types[t], x, y);
            const double error = relative_error(x, y);
            if (!(error < most[t]))
                fail_msg("%s: relative error %.4f", plsh_weight_type_name(types[t]), error);
        }
    }
}

/* Every value is within half a step of the stored scale, or was cut off at its end. */
static void check_odd(const float *x, double allowed) {
    float y[COUNT];
    for (int t = 0; t < TYPES; t++) {
        there_and_back(types[t], x, y);
        for (int i = 0; i < COUNT; i++)
            if (!(fabs((double)x[i] - (double)y[i]) <= allowed))
                fail_msg("%s: value %d is %g, was %g", plsh_weight_type_name(types[t]), i,
                         (double)y[i], (double)x[i]);
    }
}

static void test_odd(void **unused) {
    (void)unused;
    float x[COUNT] = {0};
    check_odd(x, 0.0);
    for (int i = 0; i < COUNT; i++) x[i] = 3.0f;
    check_odd(x, 0.01);
    for (int i = 0; i < COUNT; i++) x[i] = -3.0f;
    check_odd(x, 0.01);
    for (int i = 0; i < COUNT; i++) x[i] = i % 32 == 5 ? 65504.0f : 0.0f; /* one in every block */
    check_odd(x, 40.0);
    for (int i = 0; i < COUNT; i++) x[i] = i == 300 ? -50.0f : 0.0f; /* one in all of them */
    check_odd(x, 0.1);
    for (int i = 0; i < COUNT; i++) x[i] = 1e-30f * (float)(i % 7); /* below float16 */
    check_odd(x, 1e-29);
}

static void test_refused(void **unused) {
    (void)unused;
    static const float wrong[] = {NAN, INFINITY, -70000.0f};
    for (int t = 0; t < TYPES; t++) {
        uint8_t to[512];
        for (int w = 0; w < 3; w++) {
            float x[256] = {0};
            int64_t bad = -1;
            x[77] = wrong[w];
            assert_false(plsh_weight_kinds[types[t]].narrow(x, to, 256, &bad));
            assert_int_equal(bad, 77);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_odd),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
