/* tests: the exactly Toeplitz sets, and which design auto is. Nothing here is random. */
#include "support/support.h"

#include "partition/convex.h"
#include "plsh/theory.h"

#include <math.h>

static plsh_partition make(double sigma, int64_t samples) {
    plsh_partition set = plsh_partition_default(sigma, samples);
    plsh_error error;
    set.design = PLSH_DESIGN_TOEPLITZ;
    assert_ok(plsh_partition_check(&set, &error));
    return set;
}

static const double sigmas[] = {0.05, 0.5, 1, 2, 3.7, 8, 40};
static const int64_t samples[] = {1, 2, 5, 20, 64, 300, 1024};

/* The definition: the envelope of all lines. */
static int64_t envelope(double sigma, int64_t s, int64_t t) {
    int64_t steepest = llround((double)s * -expm1(-1 / sigma)), most = 0;
    if (steepest < 1) steepest = 1;
    if ((double)s * exp(-1 / sigma) < 0.25) return t == 0 ? s : 0;
    for (int64_t k = 1; k <= steepest; k++) {
        const double height = (double)k * sigma;
        int64_t c = s;
        if (k < steepest && height < (double)s)
            c = llround(height * (1 + log((double)s / height)) + sigma / (8 * (double)k));
        if (c > s) c = s;
        if (c - k * t > most) most = c - k * t;
    }
    return most;
}

/* N is that, integer, convex, falls from s to 0; and i and i + t share exactly N(t) masks. */
static void test_sequence(void **state) {
    (void)state;
    for (size_t x = 0; x < 7; x++)
        for (size_t y = 0; y < 7; y++) {
            const plsh_partition set = make(sigmas[x], samples[y]);
            int64_t last[2] = {2 * samples[y], samples[y]};
            for (int64_t t = 0; last[1] > 0; t++) {
                const int64_t count = plsh_convex_count(&set, t);
                assert_int_equal(count, envelope(sigmas[x], samples[y], t));
                assert_true(t == 0 || last[0] - 2 * last[1] + count >= 0 || t == 1);
                last[0] = last[1], last[1] = count;
            }
        }
}

static void test_counts(void **state) {
    (void)state;
    for (size_t x = 0; x < 6; x++)
        for (size_t y = 0; y < 6; y++) {
            const plsh_partition set = make(sigmas[x], samples[y]);
            for (int64_t t = 0; t < 3 + 2 * (int64_t)sigmas[x]; t++)
                for (int64_t i = -7; i < 30; i += 3) {
                    assert_int_equal(plsh_partition_count(&set, i, i + t),
                                     plsh_convex_count(&set, t));
                }
        }
}

/* The bounds are the norms on a long line. For sigma 2, s = 1024: 0.0043 by a search of lines,
 * 0.0051 in closed form, 0.0188 for stratified sets. */
static void test_bounds(void **state) {
    (void)state;
    for (size_t x = 0; x < 6; x++)
        for (size_t y = 2; y < 7; y++) {
            const plsh_partition set = make(sigmas[x], samples[y]);
            const plsh_norms_options options = {.threads = 1, .tolerance = 1e-6};
            plsh_norms norms;
            plsh_bounds bounds;
            plsh_error error;
            assert_ok(plsh_norms_measure(&set, 400, &options, &norms, &error));
            assert_ok(plsh_bounds_find(&set, 400, 0.01, &bounds, &error));
            assert_true(bounds.max_certain);
            assert_true(fabs(norms.max - bounds.max) <= 1e-12);
            assert_true(norms.spectral <= bounds.spectral + 1e-9);
            assert_true(bounds.spectral <= 1.1 * norms.spectral + 1e-6);
            assert_int_equal(norms.largest_block, (int64_t)bounds.largest_block);
        }
    const plsh_partition set = make(2, 1024);
    plsh_bounds bounds;
    plsh_error error;
    assert_ok(plsh_bounds_find(&set, 4096, 0.01, &bounds, &error));
    assert_true(bounds.spectral > 0.0043 && bounds.spectral < 0.0055);
    assert_true(bounds.max < 0.0006);
}

/* auto: what had the smaller errors. */
static void test_choice(void **state) {
    (void)state;
    static const struct {
        double sigma;
        int64_t samples;
        plsh_design design;
    } cases[] = {{2, 3, PLSH_DESIGN_STRATIFIED},       {2, 11, PLSH_DESIGN_GOLDEN},
                 {2, 16, PLSH_DESIGN_TOEPLITZ},        {8, 1024, PLSH_DESIGN_GOLDEN},
                 {8, 2048, PLSH_DESIGN_TOEPLITZ},      {64, 20, PLSH_DESIGN_GOLDEN},
                 {64, 100000, PLSH_DESIGN_STRATIFIED}, {1, 100000, PLSH_DESIGN_TOEPLITZ}};
    for (size_t x = 0; x < 8; x++) {
        plsh_partition set = plsh_partition_default(cases[x].sigma, cases[x].samples);
        plsh_error error;
        set.design = PLSH_DESIGN_AUTO;
        assert_int_equal(plsh_design_choose(&set), cases[x].design);
        set.decay.limit = 0.1;
        assert_int_equal(plsh_design_choose(&set), PLSH_DESIGN_STRATIFIED);
        set.decay.limit = 0;
        set.scheme = PLSH_SCHEME_CUTS;
        assert_int_equal(plsh_design_choose(&set), PLSH_DESIGN_STRATIFIED);
        set.design = PLSH_DESIGN_TOEPLITZ;
        assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_UNSUPPORTED, "not with cuts");
    }
    plsh_partition set = plsh_partition_default(2, PLSH_CONVEX_SAMPLES + 1);
    plsh_error error;
    set.design = PLSH_DESIGN_TOEPLITZ;
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_INVALID, "at most 2^20");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequence),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
