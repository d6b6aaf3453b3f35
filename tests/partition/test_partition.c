/* tests: blocks are contiguous, agree with each other, and hold at the edges of the ranges. */
#include "support/support.h"

#include "partition/draw.h"
#include "plsh/partition.h"
#include "plsh/thread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const plsh_scheme schemes[] = {PLSH_SCHEME_BINNING, PLSH_SCHEME_INTEGER, PLSH_SCHEME_CUTS};
static const plsh_design designs[] = {PLSH_DESIGN_IID, PLSH_DESIGN_STRATIFIED};

static plsh_partition make(int scheme, int design, double sigma, int64_t samples) {
    plsh_partition set = plsh_partition_default(sigma, samples);
    set.scheme = schemes[scheme];
    set.design = designs[design];
    return set;
}

/* Every position lies in its block, its neighbours in the block have the same block, and the next
 * block begins where this one ends. */
static void check_blocks(const plsh_partition *set, int64_t from, int count) {
    for (int64_t sample = 0; sample < set->samples; sample++) {
        plsh_range block = {from, from}, last;
        for (int64_t i = from; i < from + count; i++) {
            last = block;
            plsh_partition_block(set, sample, i, &block);
            assert_true(block.begin <= i && i < block.end);
            if (i == from) continue;
            bool same = last.begin == block.begin && last.end == block.end;
            assert_true(same || (last.end == block.begin && block.begin == i));
            assert_true(plsh_partition_same(set, sample, i - 1, i) == same);
        }
    }
}

static void test_contiguity(void **state) {
    (void)state;
    plsh_error error;
    const double sigmas[] = {1e-3, 0.1, 1, 3.7, 64};
    const int64_t starts[] = {0,
                              -150,
                              1000000007,
                              (INT64_C(1) << 53) - 50,
                              (INT64_C(1) << 62) - 400,
                              -(INT64_C(1) << 62) + 100};
    for (int scheme = 0; scheme < 3; scheme++)
        for (int design = 0; design < 2; design++)
            for (int x = 0; x < 5; x++)
                for (int y = 0; y < 6; y++) {
                    plsh_partition set = make(scheme, design, sigmas[x], 3);
                    assert_ok(plsh_partition_check(&set, &error));
                    check_blocks(&set, starts[y], 300);
                }
}

/* sigma = 1e6 and beyond: the grids have long blocks; walking on by block ends still tiles the
 * line, and sizes are floor(b) or ceil(b). */
static void test_long_blocks(void **state) {
    (void)state;
    for (int scheme = 0; scheme < 2; scheme++)
        for (double sigma = 1e6; sigma < 2e12; sigma *= 1e6) {
            plsh_partition set = make(scheme, 0, sigma, 4);
            for (int64_t sample = 0; sample < 4; sample++) {
                double b, c;
                plsh_partition_draw(&set, sample, &b, &c);
                assert_true(c >= 0 && c < b);
                int64_t at = (INT64_C(1) << 61) + sample;
                plsh_range block, again;
                for (int k = 0; k < 50; k++, at = block.end) {
                    plsh_partition_block(&set, sample, at, &block);
                    if (k > 0) assert_true(block.begin == at);
                    double size = (double)(block.end - block.begin);
                    assert_true(size == floor(b) || size == ceil(b));
                    plsh_partition_block(&set, sample, block.end - 1, &again);
                    assert_true(again.begin == block.begin && again.end == block.end);
                }
            }
        }
}

/* label(i) = floor((i - c) / b) of the paper, in long double, away from rounding. */
static void test_definition(void **state) {
    (void)state;
    for (int design = 0; design < 2; design++)
        for (int scheme = 0; scheme < 2; scheme++) {
            plsh_partition set = make(scheme, design, 5, 40);
            for (int64_t sample = 0; sample < 40; sample++) {
                double b, c;
                plsh_partition_draw(&set, sample, &b, &c);
                for (int64_t i = -100; i < 100; i++)
                    for (int64_t j = i; j < i + 20; j++) {
                        bool same =
                            floorl(((long double)i - c) / b) == floorl(((long double)j - c) / b);
                        assert_true(plsh_partition_same(&set, sample, i, j) == same);
                    }
            }
        }
}

/* A decay that ends at a limit above zero: that share of the draws is one block. */
static void test_limit(void **state) {
    (void)state;
    plsh_partition set = plsh_partition_default(4, 10000);
    set.decay.limit = 0.25;
    int64_t whole = 0;
    for (int64_t sample = 0; sample < set.samples; sample++) {
        plsh_range block;
        plsh_partition_block(&set, sample, 12345, &block);
        whole += block.begin == INT64_MIN && block.end == INT64_MAX;
    }
    assert_true(llabs(whole - 2500) <= 170); /* stratified: to a stratum */
}

static void test_labels(void **state) {
    (void)state;
    plsh_error error;
    int32_t labels[200], own[] = {5, 5, 2, 2, 2, 5};
    for (int scheme = 0; scheme < 3; scheme++) {
        plsh_partition set = make(scheme, 1, 6, 5);
        assert_ok(plsh_partition_labels(&set, 3, 200, labels, &error));
        assert_int_equal(labels[0], 0);
        for (int i = 1; i < 200; i++) {
            bool same = plsh_partition_same(&set, 3, i - 1, i);
            assert_int_equal(labels[i], labels[i - 1] + !same);
        }
        assert_fails(plsh_partition_labels(&set, 0, -1, labels, &error), PLSH_STATUS_INVALID, "-1");
    }
    plsh_partition set = {
        .scheme = PLSH_SCHEME_LABELS, .samples = 1, .labels = own, .label_count = 6};
    assert_ok(plsh_partition_check(&set, &error));
    plsh_range block;
    plsh_partition_block(&set, 0, 3, &block);
    assert_int_equal(block.begin, 2);
    assert_int_equal(block.end, 5);
    assert_true(plsh_partition_same(&set, 0, 0, 5));
    assert_int_equal(plsh_partition_count(&set, 1, 5), 1);
    assert_fails(plsh_partition_labels(&set, 0, 7, labels, &error), PLSH_STATUS_INVALID, "only 6");
}

static void test_refused(void **state) {
    (void)state;
    plsh_error error;
    plsh_partition set = plsh_partition_default(4, 0);
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_INVALID, "samples is 0");
    set = plsh_partition_default(-4, 1);
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_INVALID, "sigma is -4");
    set = plsh_partition_default(NAN, 1);
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_INVALID, "sigma");
    set = make(2, 0, 1e9, 1);
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_INVALID, "cuts");
    set = make(0, 0, 1, 1);
    set.decay = (plsh_decay){.kind = PLSH_DECAY_TRIANGLE, .a = 4};
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_UNSUPPORTED, "binning");
    set.scheme = PLSH_SCHEME_LABELS;
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_INVALID, "none");
    set.scheme = (plsh_scheme)7;
    assert_fails(plsh_partition_check(&set, &error), PLSH_STATUS_INVALID, "scheme 7");
}

typedef struct draw_list {
    const plsh_partition *set;
    plsh_draw draw[1000];
} draw_list;

static void draw_one(void *context, int64_t m, int slot) {
    draw_list *list = context;
    (void)slot;
    list->draw[m] = plsh_draw_get(list->set, m);
}

/* A draw is a pure function: the same bits from any thread, and on any machine. The digest was
 * taken once; it changes only if the definition of the draws does, which breaks saved runs. */
static void test_identity(void **state) {
    (void)state;
    uint64_t digest = 0;
    for (int scheme = 0; scheme < 2; scheme++)
        for (int design = 0; design < 2; design++) {
            plsh_partition set = make(scheme, design, 37.5, 1000);
            draw_list parallel = {.set = &set};
            int64_t width[1000], offset[1000];
            plsh_draw_fill(&set, 3, 997, width + 3, offset + 3);
            plsh_thread_run(7, 1000, draw_one, &parallel);
            for (int64_t m = 0; m < 1000; m++) {
                plsh_draw draw = plsh_draw_get(&set, m);
                assert_true(draw.width == parallel.draw[m].width &&
                            draw.offset == parallel.draw[m].offset);
                assert_true(m < 3 || (draw.width == width[m] && draw.offset == offset[m]));
                digest = (digest ^ (uint64_t)draw.width) * UINT64_C(0x9e3779b97f4a7c15);
                digest = (digest ^ (uint64_t)draw.offset) * UINT64_C(0x9e3779b97f4a7c15);
            }
        }
    assert_true(digest == UINT64_C(0xfa0138d26a5bdded));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contiguity), cmocka_unit_test(test_long_blocks),
        cmocka_unit_test(test_definition), cmocka_unit_test(test_limit),
        cmocka_unit_test(test_labels),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
