/* tests: collision counts by events against plsh_partition_same for every pair. */
#include "support/support.h"

#include "attention/counting/counting.h"
#include "base/memory.h"
#include "partition/blocks.h"
#include "partition/shifted.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_TILE = 24 }; /* keys per call of fill */

/* What is counted: a set, and a tile of queries. */
typedef struct test_case {
    plsh_partition set;
    int64_t first, keys;
    int rows, group;
    bool causal, merge;
} test_case;

/* A row of `expected`, for design golden-shifted. */
typedef struct slow_row {
    int *count;
    int64_t low, end;
} slow_row;

static void add_block(void *context, plsh_range block) {
    const slow_row *row = context;
    for (int64_t j = block.begin > row->low ? block.begin : row->low; j < row->end && j < block.end;
         j++)
        row->count[j - row->low]++;
}

/* expected[r][j]: draws in which query first + r and key low + j share a block. */
static void count_slowly(const test_case *c, int64_t low, int64_t width, int *expected) {
    memset(expected, 0, (size_t)(c->rows * width) * sizeof *expected);
    for (int r = 0; r < c->rows && c->set.design == PLSH_DESIGN_GOLDEN_SHIFTED; r++) {
        const int64_t at = c->first + r;
        slow_row row = {expected + r * width, low, c->causal ? at + 1 : c->keys};
        if (row.end > low + width) row.end = low + width;
        plsh_shifted_visit(&c->set, (plsh_range){at, at + 1}, add_block, &row);
    }
    if (c->set.design == PLSH_DESIGN_GOLDEN_SHIFTED) return;
    for (int64_t m = 0; m < c->set.samples; m++) {
        for (int r = 0; r < c->rows; r++) {
            plsh_range block;
            plsh_partition_block(&c->set, m, c->first + r, &block);
            int64_t end = c->causal ? c->first + r + 1 : c->keys;
            if (block.end < end) end = block.end;
            int64_t j = block.begin > 0 ? block.begin : 0;
            if (j < low || end > low + width)
                fail_msg("draw %d: keys %lld..%lld are outside the range", (int)m, (long long)j,
                         (long long)end);
            for (; j < end; j++) expected[r * width + j - low]++;
        }
    }
}

static void check_row(const test_case *c, const float *row, const int *expected, int64_t width,
                      int64_t j, int g, float factor) {
    for (int r = 0; r < c->group; r++) {
        int query = g * c->group + r;
        float want = query < c->rows ? (float)expected[query * width + j] * factor : 0;
        if (row[r] != want)
            fail_msg("scheme %d design %d sigma %g s %lld first %lld rows %d group %d causal %d: "
                     "query %d, key %lld of the range: %g instead of %g",
                     (int)c->set.scheme, (int)c->set.design, c->set.decay.a,
                     (long long)c->set.samples, (long long)c->first, c->rows, c->group, c->causal,
                     query, (long long)j, (double)row[r], (double)want);
    }
}

/* A group's range begins and ends with a key that one of its queries sees. */
static void check_range(const test_case *c, const plsh_counts *counts, const int *expected,
                        int64_t width, int g) {
    plsh_range all = plsh_counts_range(counts, -1), range = plsh_counts_range(counts, g);
    int first = 0, last = 0;
    for (int r = g * c->group; r < c->rows && r < (g + 1) * c->group; r++) {
        first += expected[r * width + range.begin - all.begin];
        last += expected[r * width + range.end - 1 - all.begin];
    }
    assert_true(first > 0 && last > 0);
}

/* What fill writes, for all keys of the tile's range. */
static void check_tile(const test_case *c, plsh_counts *counts) {
    const float factor = 1 / (float)c->set.samples;
    const int groups = (c->rows + c->group - 1) / c->group;
    plsh_range range = plsh_counts_range(counts, -1);
    int64_t width = range.end - range.begin;
    int *expected = malloc((size_t)(c->rows * width) * sizeof *expected);
    const ptrdiff_t stride = KEY_TILE * c->group;
    float *w = malloc((size_t)(groups * stride) * sizeof *w);
    int32_t *row = malloc((size_t)(groups * KEY_TILE) * sizeof *row);
    count_slowly(c, range.begin, width, expected);
    for (int g = 0; g < groups; g++) check_range(c, counts, expected, width, g);
    for (int64_t j = 0; j < width; j += KEY_TILE) {
        int keys = width - j < KEY_TILE ? (int)(width - j) : KEY_TILE;
        for (int i = 0; i < groups * stride; i++) w[i] = -1;
        plsh_counts_fill(counts, range.begin + j, keys, factor,
                         (plsh_counts_weights){w, stride, row, KEY_TILE});
        for (int g = 0; g < groups; g++)
            for (int x = 0; x < keys; x++)
                check_row(c, w + g * stride + row[g * KEY_TILE + x] * c->group, expected, width,
                          j + x, g, factor);
    }
    free(expected);
    free(w);
    free(row);
}

static void check_case(const test_case *c) {
    plsh_error error;
    plsh_counting *counting;
    void *workspace;
    assert_ok(plsh_partition_check(&c->set, &error));
    assert_ok(plsh_counting_create(&c->set, c->merge, &counting, &error));
    size_t size = plsh_counts_size(counting, c->rows, c->group, c->causal);
    assert_ok(plsh_allocate(&workspace, size, 1, "test", &error));
    memset(workspace, 0x5a, size); /* nothing depends on what was there */
    plsh_counts_tile tile = {c->first, c->keys,   0, c->rows,
                             c->group, c->causal, 0, counting->draws};
    plsh_counts *counts = plsh_counts_begin(workspace, counting, &tile);
    check_tile(c, counts);
    plsh_release(workspace);
    plsh_counting_destroy(counting);
}

/* Tiles at odd positions of a short and of a long sequence, both ways. */
static void check_tiles(plsh_partition set) {
    static const struct {
        int64_t first, keys;
        int rows, group;
    } tiles[] = {{0, 1, 1, 16},     {0, 5, 5, 16},        {0, 100, 96, 16},   {37, 500, 48, 48},
                 {131, 150, 19, 8}, {4097, 8000, 33, 16}, {9999, 10050, 1, 4}};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        for (int causal = 0; causal < 2; causal++) {
            check_case(&(test_case){set, tiles[i].first, tiles[i].keys, tiles[i].rows,
                                    tiles[i].group, causal, i % 2});
        }
    }
}

static const double SIGMAS[] = {0.5, 1, 2, 7.3, 40, 1000};

static void test_grids(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof SIGMAS / sizeof *SIGMAS; i++) {
        for (int variant = 0; variant < 5; variant++) {
            plsh_partition set = plsh_partition_default(SIGMAS[i], 1 + 13 * (int)i);
            set.scheme = variant & 1 ? PLSH_SCHEME_BINNING : PLSH_SCHEME_INTEGER;
            set.design = variant & 2 ? PLSH_DESIGN_IID : PLSH_DESIGN_STRATIFIED;
            set.seed = 7 + i;
            check_tiles(set);
        }
    }
}

static void test_golden(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof SIGMAS / sizeof *SIGMAS; i++) {
        plsh_partition set = plsh_partition_default(SIGMAS[i], 1 + 13 * (int)i);
        plsh_error error;
        set.design = PLSH_DESIGN_GOLDEN;
        assert_ok(plsh_partition_check(&set, &error));
        check_tiles(set);
        set.decay.a *= 0.01; /* positions of a tile do not fit into 64 bits */
        check_tiles(set);
    }
}

static void test_other_designs(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof SIGMAS / sizeof *SIGMAS; i++)
        for (int shifted = 0; shifted < 2; shifted++) {
            plsh_partition set = plsh_partition_default(SIGMAS[i], 7 + 13 * (int)i);
            plsh_error error;
            set.design = shifted ? PLSH_DESIGN_GOLDEN_SHIFTED : PLSH_DESIGN_TOEPLITZ;
            if (shifted && set.decay.a < 0.1) continue;
            assert_ok(plsh_partition_check(&set, &error));
            check_tiles(set);
        }
}

static void test_cuts(void **state) {
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        plsh_partition set = plsh_partition_default(SIGMAS[i], 3);
        set.scheme = PLSH_SCHEME_CUTS;
        set.design = i & 1 ? PLSH_DESIGN_IID : PLSH_DESIGN_STRATIFIED;
        check_tiles(set);
    }
}

/* Far from the origin fixed-point positions leave 63 bits. */
static void test_far(void **state) {
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        plsh_partition set = plsh_partition_default(variant & 2 ? 100 : 3, 20);
        set.scheme = variant & 1 ? PLSH_SCHEME_BINNING : PLSH_SCHEME_INTEGER;
        if (variant >= 3) {
            plsh_error error;
            set.design = variant == 3 ? PLSH_DESIGN_GOLDEN : PLSH_DESIGN_GOLDEN_SHIFTED;
            assert_ok(plsh_partition_check(&set, &error));
        }
        int64_t far = (INT64_C(1) << 40) + 12345;
        check_case(&(test_case){set, far, far + 1000, 96, 16, false, true});
        check_case(&(test_case){set, far, far + 1000, 96, 16, true, true});
        far = (INT64_C(1) << 29) - 5; /* binning: the last of the fast path */
        check_case(&(test_case){set, far, far + 1000, 17, 16, true, true});
        far = (INT64_C(1) << 55) + 3;
        check_case(&(test_case){set, far, far + 1000, 17, 16, false, true});
    }
}

/* A draw whose edge lies just after a far position: there the quotient by a reciprocal comes out
 * one too large. */
static void test_quotients(void **state) {
    (void)state;
    plsh_error error;
    plsh_counting *counting;
    void *workspace;
    plsh_partition set = plsh_partition_default(3, 1);
    set.scheme = PLSH_SCHEME_BINNING;
    assert_ok(plsh_counting_create(&set, true, &counting, &error));
    size_t size = plsh_counts_size(counting, 1, 4, true);
    assert_ok(plsh_allocate(&workspace, size, 1, "test", &error));
    for (int64_t first = (INT64_C(1) << 28) + 1; first < (INT64_C(1) << 28) + 1000; first += 7) {
        int64_t width = (INT64_C(5) << 32) + first * 12347;
        plsh_draw draw = {width, ((first << 32) + 1) % width, 32};
        counting->shift = draw.shift;
        counting->draw[0] = (plsh_counting_draw){width, draw.offset, 1 / (double)width, 1};
        plsh_counts_tile tile = {first, first + 1, 0, 1, 4, true, 0, 1};
        plsh_counts *counts = plsh_counts_begin(workspace, counting, &tile);
        plsh_range block = plsh_draw_block(&draw, first);
        assert_int_equal(plsh_counts_range(counts, 0).begin, block.begin);
    }
    plsh_release(workspace);
    plsh_counting_destroy(counting);
}

/* Blocks without an end, and heavy tails: more keys than there are slots. */
static void test_long_blocks(void **state) {
    (void)state;
    plsh_partition set = plsh_partition_default(4, 30);
    set.decay.limit = 0.4;
    check_case(&(test_case){set, 7000, 9000, 20, 16, false, true});
    check_case(&(test_case){set, 7000, 9000, 20, 16, true, true});
    set.decay = (plsh_decay){.kind = PLSH_DECAY_KERPLE_LOG, .a = 0.5, .b = 1};
    check_case(&(test_case){set, 7000, 9000, 20, 16, false, true});
    check_case(&(test_case){set, 7000, 9000, 20, 16, true, false});
}

/* Many draws of a small sigma are few different ones; the counts are the same. */
static void test_many_draws(void **state) {
    (void)state;
    plsh_error error;
    plsh_counting *counting;
    plsh_partition set = plsh_partition_default(2, 100000);
    assert_ok(plsh_counting_create(&set, true, &counting, &error));
    assert_true(counting->draws < 1000);
    plsh_counting_destroy(counting);
    set.samples = 3000;
    check_case(&(test_case){set, 77, 200, 20, 16, false, true});
    set.scheme = PLSH_SCHEME_BINNING;
    check_case(&(test_case){set, 77, 200, 20, 16, false, true});
}

/* A part of the table: single masks, whose counts are 0 and 1 and add up to the set's. */
static void test_single_draws(void **state) {
    (void)state;
    plsh_error error;
    plsh_counting *counting;
    void *workspace;
    plsh_partition set = plsh_partition_default(10, 9);
    assert_ok(plsh_counting_create(&set, false, &counting, &error));
    size_t size = plsh_counts_size(counting, 16, 16, true);
    assert_ok(plsh_allocate(&workspace, size, 1, "test", &error));
    float sum[1 << 12] = {0}, w[1 << 12];
    int32_t row[1 << 8];
    for (int m = 0; m < 9; m++) {
        plsh_counts_tile tile = {200, 300, 0, 16, 16, true, m, 1};
        plsh_counts *counts = plsh_counts_begin(workspace, counting, &tile);
        plsh_range range = plsh_counts_range(counts, -1);
        assert_true(range.begin >= 0 && range.end == 216);
        plsh_counts_fill(counts, range.begin, (int)(range.end - range.begin), 1,
                         (plsh_counts_weights){w, 0, row, 0});
        for (int64_t j = range.begin; j < range.end; j++)
            for (int r = 0; r < 16; r++) sum[j * 16 + r] += w[row[j - range.begin] * 16 + r];
    }
    for (int64_t j = 0; j < 216; j++)
        for (int r = 0; r < 16; r++)
            assert_float_equal(sum[j * 16 + r],
                               j > 200 + r ? 0 : (float)plsh_partition_count(&set, 200 + r, j), 0);
    plsh_release(workspace);
    plsh_counting_destroy(counting);
}

static void test_labels(void **state) {
    (void)state;
    int32_t labels[2 * 40];
    for (int i = 0; i < 40; i++) {
        labels[i] = i / 7 - 1;
        labels[40 + i] = i < 33 ? 5 : 9;
    }
    plsh_partition set = {
        .scheme = PLSH_SCHEME_LABELS, .samples = 2, .labels = labels, .label_count = 40};
    assert_true(plsh_partition_contiguous(&set, 40));
    check_case(&(test_case){set, 0, 40, 40, 16, false, true});
    check_case(&(test_case){set, 13, 40, 27, 16, true, true});
    labels[40 + 35] = 5;
    assert_false(plsh_partition_contiguous(&set, 40));
    assert_true(plsh_partition_contiguous(&set, 35));
}

static plsh_status create_and_destroy(void *context, plsh_error *error) {
    plsh_counting *counting;
    plsh_status status = plsh_counting_create(context, true, &counting, error);
    plsh_counting_destroy(counting);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    plsh_partition set = plsh_partition_default(8, 20);
    test_every_allocation(create_and_destroy, &set, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grids),         cmocka_unit_test(test_golden),
        cmocka_unit_test(test_other_designs), cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_far),           cmocka_unit_test(test_quotients),
        cmocka_unit_test(test_long_blocks),   cmocka_unit_test(test_many_draws),
        cmocka_unit_test(test_single_draws),  cmocka_unit_test(test_labels),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
