/* tests: the bound on rounding errors is the theorem of docs/rounding.md, and at most 0.5 % more.
 */
#include "support/support.h"

#include "head/rounding.h"

#include <math.h>

static void assert_bounds(double got, double theorem) {
    if (!(got >= theorem && got <= theorem * 1.005))
        fail_msg("%.17g, the theorem has %.17g", got, theorem);
}

/* The numbers of section 5, from those of sections 1 to 4. */
static void check(plsh_rounding_row row) {
    const double u = ldexp(1, -24), n = (double)row.keys;
    const double alpha = u * row.weighted;
    const double mean = fmax(0, row.score + 2 * alpha + 2 * log2(n) - row.log_sum + 1);
    const double z = row.biased ? 3 * u * log(2) * mean : 0;
    const double y = alpha * log(2) + 96 * u;
    const plsh_rounding got = plsh_rounding_of(&row);
    assert_bounds(got.weights, y / 2 + z + 4 * u + n * ldexp(1, -60));
    assert_bounds(got.values, u * (176 + 8 * (double)row.rises));
    /* A weight's own error twice, that of a count or of a decay, and that of the bias. */
    assert_bounds(got.log, (2 * y + 96 * u) / log(2) + z / log(2));
}

static void test_theorem(void **state) {
    (void)state;
    static const double sizes[] = {0, 1, 30, 5000}, sums[] = {-100, 0, 9};
    static const int64_t keys[] = {1, 100, 1000000, INT64_C(1) << 50};
    for (int i = 0; i < 4 * 4 * 3 * 2; i++) {
        const double size = sizes[i % 4];
        check((plsh_rounding_row){.score = size,
                                  .weighted = i % 5 == 0 ? 1e8 : 20 * size,
                                  .keys = keys[i / 4 % 4],
                                  .log_sum = sums[i / 16 % 3],
                                  .biased = i / 48,
                                  .rises = i % 7});
    }
}

/* Coordinate x: the factor of q, its product with q and that with k, d - x additions, the bias. */
static void test_counts(void **state) {
    (void)state;
    for (int d = 1; d <= 512; d *= 8)
        for (int x = 0; x < d; x++)
            assert_int_equal(plsh_roundings_of(d, x), 1 + 1 + 1 + d - x + 1);
    assert_true(plsh_rounding_weighted(3, 7, 2) >= 21);
    assert_true(plsh_rounding_weighted(0, 0, 2) >= 2 * ldexp(1, -93)); /* sums that count as 0 */
    assert_true(plsh_rounding_weighted(0, 1, 2) >= 4 * ldexp(1, -93));
    assert_true(plsh_rounding_weighted(1, 0, 0) >= ldexp(1, -93));
}

/* What is not finite has no bound. */
static void test_not_finite(void **state) {
    (void)state;
    const plsh_rounding got =
        plsh_rounding_of(&(plsh_rounding_row){.score = NAN, .weighted = NAN, .keys = 3});
    assert_true(got.weights == INFINITY && got.log == INFINITY);
}

/* Rounding to nearest: half a unit of the last place. */
static void test_types(void **state) {
    (void)state;
    assert_true(plsh_rounding_of_type(PLSH_DTYPE_FLOAT32) == 0);
    assert_bounds(plsh_rounding_of_type(PLSH_DTYPE_FLOAT16), ldexp(1, -11));
    assert_bounds(plsh_rounding_of_type(PLSH_DTYPE_BFLOAT16), ldexp(1, -8));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_theorem), cmocka_unit_test(test_counts),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
