/* tests: the translated golden lattice against its definition, and the law of its counts. */
#include "support/support.h"

#include "partition/shifted.h"
#include "plsh/theory.h"

#include <math.h>

static plsh_partition make(double sigma, int64_t samples, uint64_t seed) {
    plsh_partition set = plsh_partition_default(sigma, samples);
    plsh_error error;
    set.design = PLSH_DESIGN_GOLDEN_SHIFTED;
    set.seed = seed;
    assert_ok(plsh_partition_check(&set, &error));
    return set;
}

/* ---- the definition: long double, no slabs --------------------------------------------------- */

/* The points x = m + k phi + tau with 0 < x <= A and 0 < x' < B: blocks that hold i and j >= i.
 * (x x' < X follows.) */
static int count_points(const plsh_partition *set, int64_t i, int64_t j) {
    const long double phi = (1 + sqrtl(5)) / 2, root = sqrtl(sqrtl(5) * (long double)set->samples);
    const plsh_random random = plsh_partition_random(set, 2, 0);
    const long double dm = ldexpl((long double)random.word[0], -64);
    const long double dk = ldexpl((long double)random.word[1], -64);
    const long double a = root * expl((long double)i / set->decay.a);
    const long double b = root * expl(-(long double)j / set->decay.a);
    int count = 0;
    for (int64_t k = (int64_t)(-b / 2) - 3; k < (int64_t)(a / 2) + 3; k++) {
        const long double y = (long double)k + dk;
        const long double least = fmaxl(-y * phi, y / phi);
        for (int64_t m = (int64_t)floorl(least - dm) - 1;; m++) {
            const long double x = (long double)m + dm + y * phi, conjugate = x - y * sqrtl(5);
            if (x > a || conjugate >= b) break;
            count += x > 0 && conjugate > 0;
        }
    }
    return count;
}

static void test_definition(void **state) {
    (void)state;
    static const int64_t samples[] = {7, 20, 33, 100};
    static const double sigmas[] = {0.7, 3, 5.3};
    for (size_t x = 0; x < 4; x++)
        for (size_t y = 0; y < 3; y++) {
            const plsh_partition set = make(sigmas[y], samples[x], 5 + x);
            const int64_t far = (int64_t)(4 * sigmas[y]);
            for (int64_t i = -far; i <= far; i++)
                for (int64_t j = i; j <= i + far + 1; j++) {
                    assert_int_equal(plsh_partition_count(&set, i, j), count_points(&set, i, j));
                    assert_int_equal(plsh_partition_count(&set, j, i), count_points(&set, i, j));
                }
        }
}

/* ---- the law --------------------------------------------------------------------------------- */

/* The mean of 3000 sets is within 5.5 standard errors of s k(t), at every distance and far from the
 * origin: a wrong alarm has a chance of 4e-8 for each of the 45 numbers. */
static void test_unbiased(void **state) {
    (void)state;
    static const int64_t places[] = {0, -1000003, INT64_C(1) << 60};
    enum { SETS = 3000 };
    for (size_t x = 0; x < 3; x++)
        for (int64_t t = 0; t < 15; t++) {
            double sum = 0, square = 0;
            for (int seed = 0; seed < SETS; seed++) {
                plsh_partition set = plsh_partition_default(6, 12);
                set.design = PLSH_DESIGN_GOLDEN_SHIFTED;
                set.seed = (uint64_t)seed;
                const double c = (double)plsh_partition_count(&set, places[x], places[x] + t);
                sum += c, square += c * c;
            }
            const double mean = sum / SETS, variance = square / SETS - mean * mean;
            const double exact = 12 * exp(-(double)t / 6);
            assert_true(fabs(mean - exact) <= 5.5 * sqrt(variance / SETS) + 1e-12);
            assert_true(variance < 4); /* independent draws: up to 3 s/12; here about 1 */
        }
}

/* No entry errs by more than is certain, every position is in a block, and the spectral norm is
 * within its bound. */
static void test_bounds(void **state) {
    (void)state;
    static const int64_t samples[] = {7, 20, 64, 256};
    for (size_t x = 0; x < 4; x++)
        for (uint64_t seed = 1; seed < 6; seed++) {
            const plsh_partition set = make(16, samples[x], seed);
            const plsh_norms_options options = {.threads = 1, .tolerance = 1e-4};
            plsh_norms norms;
            plsh_bounds bounds;
            plsh_error error;
            assert_ok(plsh_norms_measure(&set, 300, &options, &norms, &error));
            assert_ok(plsh_bounds_find(&set, 300, 1e-6, &bounds, &error));
            assert_true(bounds.max_certain);
            assert_true(norms.max > 0 && norms.max <= bounds.max);
            assert_true(norms.max > 0.15 * bounds.max);
            assert_true(norms.spectral <= bounds.spectral);
            assert_true((double)norms.largest_block <= bounds.largest_block);
            for (int64_t i = 0; i < 300; i++)
                assert_in_range(plsh_partition_count(&set, i, i), 1,
                                (uint64_t)plsh_shifted_most(samples[x]));
        }
}

/* A single position is in about s blocks, not in s: the matrix of one entry has that error. */
static void test_single(void **state) {
    (void)state;
    double most = 0;
    for (uint64_t seed = 1; seed < 6; seed++) {
        const plsh_partition set = make(16, 20, seed);
        plsh_norms norms;
        plsh_error error;
        assert_ok(plsh_norms_measure(&set, 1, NULL, &norms, &error));
        const double count = (double)plsh_partition_count(&set, 0, 0);
        assert_float_equal(norms.max, fabs(count / 20 - 1), 1e-12);
        assert_float_equal(norms.spectral, norms.max, 1e-12);
        most = fmax(most, norms.max);
    }
    assert_true(most > 0.04); /* it is a multiple of 1/20 */
}

static void note_longest(void *context, plsh_range block) {
    double *longest = context;
    *longest = fmax(*longest, (double)(block.end - block.begin));
}

/* All bounds by their formulas, which simulated sets are far below. */
static void test_formulas(void **state) {
    (void)state;
    for (int64_t s = 7; s < 5000; s *= 3) {
        const plsh_partition set = make(16, s, 1);
        plsh_bounds bounds;
        plsh_error error;
        assert_ok(plsh_bounds_find(&set, 1 << 20, 0.01, &bounds, &error));
        const double q = exp(-1 / 16.0), b = bounds.largest_block;
        const double delta = 3.01 * log(sqrt(sqrt(5) * (double)s) + 3.62) + 0.56;
        const double row = bounds.max * (2 * b - 1) + 2 * pow(q, b) / (1 - q);
        assert_float_equal(bounds.max, fmin(1, delta / (double)s), 2e-9);
        assert_float_equal(bounds.spectral, fmin(row, (1 + bounds.max) * b), 1e-9 * row);
    }
}

/* The bound on the largest block solves s (1 + g + n / sigma) e^-g = delta; and blocks beyond it
 * are as many as that says: the number expected is delta, and 0.5 of 400 sets with one are 6
 * standard errors above 0.35 (a wrong alarm has a chance of 1e-9). Below, a third of that. */
static void test_longest(void **state) {
    (void)state;
    enum { SETS = 400, N = 512 };
    plsh_bounds bounds;
    plsh_error error;
    plsh_partition set = make(16, 64, 1);
    assert_ok(plsh_bounds_find(&set, 1 << 20, 0.01, &bounds, &error));
    const double g = (bounds.largest_block - 1) / 16;
    assert_float_equal(64 * (1 + g + (1 << 20) / 16.0) * exp(-g), 0.01, 1e-6);
    int beyond = 0;
    assert_ok(plsh_bounds_find(&set, N, 0.35, &bounds, &error));
    for (uint64_t seed = 0; seed < SETS; seed++) {
        double longest = 0;
        set.seed = seed;
        plsh_shifted_visit(&set, (plsh_range){0, N}, note_longest, &longest);
        beyond += longest > bounds.largest_block;
    }
    assert_in_range(beyond, SETS * 0.35 / 3, SETS * 0.5);
}

/* The simulated means (NumPy, 8 sets; theirs scatter by a tenth) of the spectral norm. */
static void test_spectral(void **state) {
    (void)state;
    static const struct {
        int64_t samples;
        double mean;
    } cases[] = {{20, 13.7}, {64, 5.28}, {256, 1.46}};
    for (size_t x = 0; x < 3; x++) {
        double sum = 0;
        for (uint64_t seed = 1; seed <= 12; seed++) {
            const plsh_partition set = make(64, cases[x].samples, seed);
            const plsh_norms_options options = {.threads = 1,
                                                .tolerance = 1e-3,
                                                .skip_max = true,
                                                .kind = seed % 2 ? PLSH_OPERATOR_FREE
                                                                 : PLSH_OPERATOR_BLOCKS};
            plsh_norms norms;
            plsh_error error;
            assert_ok(plsh_norms_measure(&set, 2048, &options, &norms, &error));
            sum += norms.spectral / 12;
        }
        assert_true(sum > 0.7 * cases[x].mean && sum < 1.3 * cases[x].mean);
    }
}

/* ---- chunks ---------------------------------------------------------------------------------- */

typedef struct tally {
    int64_t count;
    uint64_t edges; /* a checksum of all edges, modulo 2^64 */
} tally;

static void add_block(void *context, plsh_range block) {
    tally *all = context;
    all->count++;
    all->edges += (uint64_t)block.begin * 7 + (uint64_t)block.end;
}

typedef struct filter {
    tally all;
    int64_t row;
} filter;

static void add_if_begun(void *context, plsh_range block) {
    filter *at = context;
    if (block.begin >= at->row) add_block(&at->all, block);
}

/* A range has the same blocks in one piece and row by row, near and far. */
static void test_pieces(void **state) {
    (void)state;
    static const int64_t places[] = {-77, 0, INT64_C(1) << 40, INT64_C(1) << 61};
    for (size_t x = 0; x < 4; x++) {
        const plsh_partition set = make(9.5, 40, 3);
        tally whole = {0, 0};
        filter rows = {{0, 0}, places[x]};
        plsh_shifted_visit(&set, (plsh_range){places[x], places[x] + 300}, add_block, &whole);
        plsh_shifted_visit(&set, (plsh_range){places[x], places[x] + 1}, add_block, &rows.all);
        for (int64_t i = 1; i < 300; i++) {
            rows.row = places[x] + i;
            plsh_shifted_visit(&set, (plsh_range){rows.row, rows.row + 1}, add_if_begun, &rows);
        }
        assert_int_equal(whole.count, rows.all.count);
        assert_int_equal(whole.edges, rows.all.edges);
    }
}

static void test_refused(void **state) {
    (void)state;
    plsh_partition set = make(4, 20, 1);
    int32_t labels[8];
    plsh_error error;
    assert_fails(plsh_partition_labels(&set, 0, 8, labels, &error), PLSH_STATUS_UNSUPPORTED,
                 "golden-shifted");
    set.samples = 6;
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_INVALID, "at least 7 samples");
    set.samples = 20, set.decay.a = 0.05;
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_INVALID, "at least 7 samples");
    set.decay.a = 4, set.scheme = PLSH_SCHEME_CUTS;
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_UNSUPPORTED, "not with cuts");
    set.scheme = PLSH_SCHEME_INTEGER, set.design = PLSH_DESIGN_AUTO;
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_INVALID, "plsh_design_choose");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition), cmocka_unit_test(test_unbiased),
        cmocka_unit_test(test_bounds),     cmocka_unit_test(test_spectral),
        cmocka_unit_test(test_formulas),   cmocka_unit_test(test_longest),
        cmocka_unit_test(test_single),     cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
