/* tests: the golden lattice against its definition. Nothing here is random. */
#include "support/support.h"

#include "partition/golden.h"
#include "plsh/theory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static plsh_partition make(double sigma, int64_t samples) {
    plsh_partition set = plsh_partition_default(sigma, samples);
    plsh_error error;
    set.design = PLSH_DESIGN_GOLDEN;
    assert_ok(plsh_partition_check(&set, &error));
    return set;
}

/* ---- the definition: long double, no period, no heap ----------------------------------------- */

enum { LISTED = 100000 };

typedef struct lattice_block {
    long double begin, end;
} lattice_block;

static int by_begin(const void *x, const void *y) {
    const lattice_block *a = x, *b = y;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static int falling(const void *x, const void *y) {
    const long double a = *(const long double *)x, b = *(const long double *)y;
    return (a < b) - (a > b);
}

/* All blocks that begin in from .. to, from >= 0: then x >= x', that is k >= 0 and m > 0. */
static int64_t list_blocks(double sigma, int64_t s, double from, double to, lattice_block *list) {
    const long double root_5 = sqrtl(5), phi = (1 + root_5) / 2, root = sqrtl(root_5 * s);
    const long double least = root * expl(from / sigma), most = root * expl(to / sigma);
    int64_t count = 0;
    for (int64_t k = 0; (long double)k * root_5 < most; k++)
        for (int64_t m = 1; (long double)m + (long double)k * phi < most; m++) {
            const long double x = (long double)m + (long double)k * phi;
            const int64_t norm = m * m + m * k - k * k;
            if (x < least || norm <= 0 || (long double)norm >= root_5 * (long double)s) continue;
            list[count++] = (lattice_block){sigma * logl(x / root),
                                            -sigma * logl((long double)norm / x / root)};
        }
    return count;
}

/* s M~_ij: the blocks that hold i and are open at j. Open are the newest and the s - 1 of the
 * latest end of all that began before it. */
static int count_shared(const lattice_block *list, int64_t count, int64_t s, int64_t i, int64_t j) {
    int64_t newest = -1;
    for (int64_t b = 0; b < count; b++)
        if (list[b].begin <= (long double)j) newest = b;
    if (list[newest].begin <= (long double)i) return (int)s;
    static long double end[LISTED];
    for (int64_t b = 0; b < newest; b++) end[b] = list[b].end;
    qsort(end, (size_t)newest, sizeof *end, falling);
    const long double least = s > 1 ? end[s - 2] : INFINITY;
    int shared = 0;
    for (int64_t b = 0; b < newest; b++)
        shared += list[b].end >= least && list[b].begin <= (long double)i;
    return shared;
}

static void test_definition(void **state) {
    (void)state;
    static const int64_t samples[] = {1, 2, 3, 5, 20, 33};
    static const double sigmas[] = {0.7, 3, 5.3};
    lattice_block *list = malloc(LISTED * sizeof *list), *many = malloc(LISTED * sizeof *many);
    for (size_t x = 0; x < 6; x++)
        for (size_t y = 0; y < 3; y++) {
            const plsh_partition set = make(sigmas[y], samples[x]);
            const int64_t s = samples[x], first = (int64_t)(-12 * sigmas[y]);
            /* One period is listed, and repeated. */
            const double period = 0.96242365011920690 * sigmas[y];
            int64_t count = list_blocks(sigmas[y], s, -1e-9, period - 1e-9, list), all = 0;
            assert_true(60 * count <= LISTED);
            for (int p = -40; p < 20; p++)
                for (int64_t b = 0; b < count; b++)
                    many[all++] = (lattice_block){list[b].begin + p * (long double)period,
                                                  list[b].end + p * (long double)period};
            qsort(many, (size_t)all, sizeof *many, by_begin);
            for (int64_t i = first; i < first + 12; i++)
                for (int64_t j = i; j < i + (int64_t)(4 * sigmas[y]) + 2; j++)
                    assert_int_equal(plsh_partition_count(&set, i, j),
                                     i == j ? s : count_shared(many, all, s, i, j));
        }
    free(list);
    free(many);
}

static int rising(const void *x, const void *y) {
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

/* The begins of 1000 periods later, to a position in 10^9: what the constants have to be. */
static void test_begins(void **state) {
    (void)state;
    static lattice_block list[LISTED];
    static int64_t begin[LISTED];
    const double sigma = 1e6, period = 0.96242365011920690 * sigma;
    for (int64_t s = 1; s < 60; s = 2 * s + 3) {
        const plsh_partition set = make(sigma, s);
        const int64_t count = list_blocks(sigma, s, 0, period, list);
        const long double later = 1000 * (long double)period;
        int64_t found = 0;
        for (int64_t m = 0; m < s; m++) {
            plsh_range block = {0, (int64_t)later};
            while (plsh_partition_block(&set, m, block.end, &block),
                   (long double)block.begin < later + period) {
                if ((long double)block.begin >= later) begin[found++] = block.begin;
            }
        }
        qsort(list, (size_t)count, sizeof *list, by_begin);
        qsort(begin, (size_t)found, sizeof *begin, rising);
        assert_int_equal(found, count);
        for (int64_t b = 0; b < count; b++)
            assert_true(fabsl((long double)begin[b] - later - list[b].begin) <= 1.5L);
    }
}

/* ---- the error ------------------------------------------------------------------------------- */

/* The bound is certain, and no more than a third above what a line of 1500 positions shows. The
 * number that docs/mathematics.md gives for it, (1.4 + 0.33 ln s) / s, is not exceeded. */
static void test_max_error(void **state) {
    (void)state;
    static const int64_t samples[] = {2, 7, 20, 27, 64};
    for (size_t x = 0; x < 5; x++) {
        const plsh_partition set = make(60, samples[x]);
        double most = 0;
        for (int64_t i = 0; i < 120; i++)
            for (int64_t j = i + 1; j < i + 500; j += 1 + (j - i) / 16) {
                const double share = (double)plsh_partition_count(&set, i, j) / (double)set.samples;
                most = fmax(most, fabs(share - exp(-(double)(j - i) / 60)));
            }
        const double bound = plsh_max_certain(&set), s = (double)set.samples;
        assert_true(most <= bound && bound <= 1.34 * most);
        assert_true(bound <= (1.4 + 0.33 * log(s)) / s);
        assert_true(bound >= 0.5 / s); /* no s masks can do better, for large sigma */
    }
}

/* The theorem's bound holds where the error is computed, and is what is returned above. */
static void test_theorem(void **state) {
    (void)state;
    plsh_partition set = make(16, 1 << 13);
    const double computed = plsh_max_certain(&set);
    set = make(16, (1 << 13) + 1);
    const double theorem = plsh_max_certain(&set);
    assert_true(computed < (1.4 + 0.33 * log(1 << 13)) / (1 << 13));
    assert_true(computed < theorem && theorem < 0.005);
    const double delta = 3.01 * log(sqrt(sqrt(5) * 8193) + 3.62) + 0.56;
    assert_float_equal(theorem, (2 * delta + 2) / 8193, 1e-12);
}

/* The largest sum of a row of |L* - M~|, or the largest block (or the norm of L*), if that is less:
 * simulated norms are far below. */
static double spectral_bound(double sigma, double max, double longest) {
    const double q = exp(-1 / sigma), most = fmax((1 + q) / (1 - q), longest);
    return fmin(most, 2 * (max * (longest - 1) + pow(q, longest) / (1 - q)));
}

static void test_bounds(void **state) {
    (void)state;
    for (int x = 0; x < 6; x++) {
        const plsh_partition set = make(x % 2 ? 60 : 4, x < 2 ? 3 : x < 4 ? 27 : 300);
        plsh_bounds bounds;
        plsh_norms norms;
        plsh_error error;
        assert_ok(plsh_bounds_find(&set, 700, 0.01, &bounds, &error));
        assert_true(bounds.max_certain);
        plsh_status status = plsh_norms_measure(&set, 700, NULL, &norms, &error);
        if (status == PLSH_STATUS_UNSUPPORTED) skip(); /* no ARPACK */
        assert_ok(status);
        assert_true(norms.spectral <= bounds.spectral && norms.max <= bounds.max);
        const double spectral = spectral_bound(x % 2 ? 60 : 4, bounds.max, bounds.largest_block);
        assert_float_equal(bounds.spectral, spectral, 1e-9 * spectral);
        assert_true((double)norms.largest_block <= bounds.largest_block);
        assert_true((double)norms.largest_block >= 0.9 * bounds.largest_block - 2);
    }
}

/* What the advice says is enough is enough: the certain number by its bound, the measured one by a
 * measurement, for several sigmas. */
static void test_advice(void **state) {
    (void)state;
    static const double sigmas[] = {0.5, 1, 2, 16, 128};
    static const double errors[] = {0.3, 0.1, 0.03, 0.01};
    for (int x = 0; x < 20; x++) {
        const double sigma = sigmas[x / 4], eps = errors[x % 4], whole = 1 / tanh(0.5 / sigma);
        const plsh_advice_case of = {.scheme = PLSH_SCHEME_INTEGER,
                                     .design = PLSH_DESIGN_GOLDEN,
                                     .n = 600,
                                     .sigma = sigma,
                                     .eps = eps,
                                     .delta = 0.01};
        plsh_advice advice;
        plsh_bounds bounds;
        plsh_norms norms;
        plsh_error error;
        assert_ok(plsh_advice_make(&of, &advice, &error));
        plsh_partition set = make(sigma, advice.samples_theorem);
        assert_ok(plsh_bounds_find(&set, of.n, 0.01, &bounds, &error));
        assert_true(bounds.spectral <= eps * whole);
        assert_true(advice.samples_least <= advice.samples_measured);
        assert_true(advice.samples_measured <= advice.samples_theorem);
        set = make(sigma, advice.samples_measured);
        plsh_status status = plsh_norms_measure(&set, of.n, NULL, &norms, &error);
        if (status == PLSH_STATUS_UNSUPPORTED) skip(); /* no ARPACK */
        assert_ok(status);
        assert_true(norms.spectral <= eps * whole);
    }
}

/* ---- positions ------------------------------------------------------------------------------- */

/* Blocks tile the line at any position, for any sigma, and the longest is the longest. */
static void test_positions(void **state) {
    (void)state;
    static const double sigmas[] = {1e-30, 1e-3, 0.1, 1, 3.7, 64, 1e6, 0x1p48};
    static const int64_t starts[] = {0, -150, 1000000007, (INT64_C(1) << 61) - 400,
                                     -(INT64_C(1) << 61) + 100};
    for (size_t x = 0; x < 8; x++)
        for (size_t y = 0; y < 5; y++)
            for (int64_t s = 1; s < 20; s += 9) {
                const plsh_partition set = make(sigmas[x], s);
                const plsh_golden_line line = plsh_golden_line_of(&set);
                for (int64_t m = 0; m < s; m++) {
                    plsh_range block, last;
                    plsh_partition_block(&set, m, starts[y], &block);
                    for (int k = 0; k < 40; k++) {
                        assert_true(block.end - block.begin <= plsh_golden_longest(&line));
                        last = block;
                        plsh_partition_block(&set, m, block.end - 1, &block);
                        assert_true(block.begin == last.begin && block.end == last.end);
                        if (block.end > INT64_C(1) << 61) break;
                        plsh_partition_block(&set, m, last.end, &block);
                        assert_true(block.begin == last.end && block.end > block.begin);
                    }
                }
            }
}

/* After a period the blocks are the same ones, and a sample does not come back to its slot at once.
 * sigma is such that the period has 1000 positions. */
static void test_period(void **state) {
    (void)state;
    const plsh_partition set = make(1000 / 0.96242365011920690, 50);
    for (int64_t i = 0; i < 1000; i += 7)
        for (int64_t j = i; j < i + 4000; j += 501)
            assert_int_equal(plsh_partition_count(&set, i, j),
                             plsh_partition_count(&set, i + 5000, j + 5000));
}

static void test_refused(void **state) {
    (void)state;
    plsh_error error;
    plsh_partition set = make(4, 5);
    set.scheme = PLSH_SCHEME_CUTS;
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_UNSUPPORTED, "cuts");
    set = make(4, 5);
    set.decay.limit = 0.1;
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_UNSUPPORTED, "ALiBi");
    set.decay = (plsh_decay){.kind = PLSH_DECAY_TRIANGLE, .a = 9};
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_UNSUPPORTED, "ALiBi");
    set = make(4, 5);
    set.samples = (1 << 16) + 1;
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_INVALID, "2^16");
    set = make(4, 5);
    set.decay.a = 0x1.8p48;
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_INVALID, "2^48");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition), cmocka_unit_test(test_begins),
        cmocka_unit_test(test_max_error),  cmocka_unit_test(test_theorem),
        cmocka_unit_test(test_bounds),     cmocka_unit_test(test_advice),
        cmocka_unit_test(test_positions),  cmocka_unit_test(test_period),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
