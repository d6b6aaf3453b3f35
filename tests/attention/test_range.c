/* tests: values at the end of float's range, scores beyond it, and what certificates say then. */
#include "support/support.h"

#include "base/memory.h"
#include "plsh/cache.h"
#include "support/oracle.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 2, ROWS = 200, DIM = 8, VALUES = 20, SIZE = HEADS * ROWS * VALUES };

static float q[HEADS * ROWS * DIM], k[HEADS * ROWS * DIM], v[SIZE], o[SIZE], lse[HEADS * ROWS],
    certificate[HEADS * ROWS];
static int32_t labels[4 * ROWS];

static plsh_attention describe(plsh_head *head, plsh_method method, bool causal) {
    for (int h = 0; h < HEADS; h++) {
        const plsh_decay decay = {.kind = PLSH_DECAY_ALIBI, .a = 16};
        head[h] = plsh_head_default(method, &decay);
        head[h].partition.head = (uint32_t)h;
    }
    return (plsh_attention){.heads = HEADS,
                            .queries = ROWS,
                            .keys = ROWS,
                            .head_dim = DIM,
                            .value_dim = VALUES,
                            .causal = causal,
                            .head = head,
                            .head_count = HEADS};
}

static void attend(const plsh_attention *a, plsh_stats *stats) {
    plsh_error error;
    plsh_plan *plan;
    void *workspace;
    assert_ok(plsh_plan_create(a, &plan, &error));
    assert_ok(plsh_allocate(&workspace, plsh_plan_workspace(plan), 1, "test", &error));
    plsh_forward arrays = {.q = q, .k = k, .v = v, .o = o, .lse = lse, .certificate = certificate};
    assert_ok(plsh_plan_forward(plan, &arrays, workspace, stats, &error));
    plsh_release(workspace);
    plsh_plan_destroy(plan);
}

static void decode(const plsh_attention *a) {
    plsh_error error;
    plsh_cache_config config = {.heads = HEADS,
                                .head_dim = DIM,
                                .value_dim = VALUES,
                                .head = a->head,
                                .head_count = HEADS,
                                .isa = a->isa};
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    for (int i = 0, count; i < ROWS; i += count) { /* single tokens, a few, and a chunk */
        count = i < 40 ? 1 : i < 100 ? 5 : ROWS - 100;
        const plsh_layout in = {ROWS * DIM, DIM}, out = {ROWS * VALUES, VALUES};
        const plsh_tokens tokens = {.count = count,
                                    .q = q + i * DIM,
                                    .k = k + i * DIM,
                                    .v = v + i * VALUES,
                                    .o = o + i * VALUES,
                                    .q_layout = in,
                                    .k_layout = in,
                                    .v_layout = out,
                                    .o_layout = out};
        assert_ok(plsh_cache_step(cache, &tokens, NULL, &error));
    }
    plsh_cache_destroy(cache);
}

/* Columns 0 to 3 have values near the largest float, in four ways. In the other columns, which are
 * ordinary, no bit may change. */
static void fill(bool large) {
    oracle_normal(1, 1, q, HEADS * ROWS * DIM);
    oracle_normal(2, 1, k, HEADS * ROWS * DIM);
    oracle_normal(3, 1, v, SIZE);
    for (int i = 0; i < HEADS * ROWS && large; i++) {
        float *row = v + (ptrdiff_t)i * VALUES;
        row[0] = FLT_MAX;
        row[1] = i % 2 ? -3e38f : 3e38f;
        row[2] = 1e38f * row[2] / 4;
        row[3] = -FLT_MAX;
    }
}

static void check_large(const plsh_attention *a, bool decoding) {
    static float plain[SIZE];
    const plsh_method method = a->head->method;
    const bool sampled =
        method == PLSH_METHOD_PLSH || method == PLSH_METHOD_MASKS || method == PLSH_METHOD_MEAN;
    const bool same_bits = !sampled; /* whose tiles take more care where a row is not finite */
    fill(false);
    if (decoding)
        decode(a);
    else
        attend(a, NULL);
    memcpy(plain, o, sizeof o);
    fill(true);
    memset(o, 0xff, sizeof o);
    if (decoding)
        decode(a);
    else
        attend(a, NULL);
    for (int i = 0; i < SIZE; i++) {
        const int column = i % VALUES;
        if (column > 3 && same_bits) assert_memory_equal(&o[i], &plain[i], sizeof *o);
        if (column > 3) assert_true(fabsf(o[i] - plain[i]) <= 1e-5f);
        if (!isfinite(o[i])) fail_msg("row %d, column %d: %g", i / VALUES, column, (double)o[i]);
        if (column == 0) assert_true(o[i] >= FLT_MAX * (1 - 1e-5f));
        if (column == 3) assert_true(o[i] <= -FLT_MAX * (1 - 1e-5f));
    }
}

/* Columns 1 and 2 against the same attention to values that are 2^-64 times as large. */
static void check_scaled(const plsh_attention *a, bool decoding) {
    static float large[SIZE];
    memcpy(large, o, sizeof o);
    for (int i = 0; i < SIZE; i++) v[i] *= 0x1p-64f;
    if (decoding)
        decode(a);
    else
        attend(a, NULL);
    for (int i = 0; i < SIZE; i++)
        if (i % VALUES == 1 || i % VALUES == 2)
            assert_true(fabs((double)large[i] - (double)o[i] * 0x1p64) <= 3e38 * 2e-5);
}

static void test_large_values(void **state) {
    (void)state;
    for (const char *const *isa = plsh_isa_available(); *isa; isa++)
        for (int method = 0; method <= PLSH_METHOD_AUTO; method++)
            for (int way = 0; way < 4; way++) {
                plsh_head head[HEADS];
                const bool causal = way & 1, decoding = way & 2;
                plsh_attention a = describe(head, (plsh_method)method, causal);
                a.isa = *isa;
                if (decoding && !causal) continue;
                check_large(&a, decoding);
                check_scaled(&a, decoding);
            }
}

/* Blocks that are gathered, and halves. */
static void test_large_values_elsewhere(void **state) {
    (void)state;
    plsh_head head[HEADS];
    plsh_attention a = describe(head, PLSH_METHOD_PLSH, true);
    for (int i = 0; i < 4 * ROWS; i++) labels[i] = i % (3 + i / ROWS);
    for (int h = 0; h < HEADS; h++) {
        head[h].partition.scheme = PLSH_SCHEME_LABELS;
        head[h].partition.samples = 4;
        head[h].partition.labels = labels;
        head[h].partition.label_count = ROWS;
    }
    check_large(&a, false);
    check_scaled(&a, false);
    check_large(&a, true);
}

/* An infinite value is no overflow: it stays in the rows that see it. */
static void test_infinite_values(void **state) {
    (void)state;
    plsh_head head[HEADS];
    const plsh_attention a = describe(head, PLSH_METHOD_DENSE, true);
    fill(false);
    v[100 * VALUES] = INFINITY;
    v[50 * VALUES + 1] = -INFINITY;
    attend(&a, NULL);
    for (int i = 0; i < ROWS; i++) {
        assert_true(i < 100 ? isfinite(o[i * VALUES]) : o[i * VALUES] == INFINITY);
        assert_true(i < 50 ? isfinite(o[i * VALUES + 1]) : o[i * VALUES + 1] == -INFINITY);
        assert_true(isfinite(o[i * VALUES + 2]));
        if (i >= 50) assert_true(isnan(certificate[i]));
        if (i < 32) assert_false(isnan(certificate[i])); /* pieces of 32 keys have one range */
    }
}

/* ---- certificates ---------------------------------------------------------------------------- */

static void test_certificate_of_large_values(void **state) {
    (void)state;
    plsh_head head[HEADS];
    const plsh_attention a = describe(head, PLSH_METHOD_EXACT, true);
    plsh_stats stats;
    fill(true);
    attend(&a, &stats);
    for (int i = 0; i < HEADS * ROWS; i++) assert_true(isfinite(certificate[i]));
    assert_true(stats.error_bound <= 1e36);
}

/* Rows that are NaN: of NaN in q, of NaN in a key that they see, of scores that overflow though q
 * and k are finite. Their certificates are NaN, all others numbers. */
static void test_certificate_of_nan(void **state) {
    (void)state;
    for (const char *const *isa = plsh_isa_available(); *isa; isa++)
        for (int method = 0; method <= PLSH_METHOD_AUTO; method++)
            for (int what = 0; what < 3; what++) {
                plsh_head head[HEADS];
                plsh_attention a = describe(head, (plsh_method)method, true);
                plsh_stats stats;
                a.isa = *isa;
                fill(false);
                if (what == 0) q[70 * DIM + 3] = NAN;
                if (what == 1) k[70 * DIM + 3] = NAN;
                if (what == 2) q[70 * DIM + 3] = k[70 * DIM + 3] = 3e38f;
                attend(&a, &stats);
                int wrong = 0;
                for (int i = 0; i < HEADS * ROWS; i++) {
                    bool nan = false;
                    for (int c = 0; c < VALUES; c++) nan |= isnan(o[i * VALUES + c]);
                    if (nan) assert_true(isnan(certificate[i]));
                    if (i < 70 || i >= ROWS) assert_false(nan || isnan(certificate[i]));
                    wrong += nan;
                }
                assert_true(wrong > 0 && isnan(stats.error_bound));
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_values),
        cmocka_unit_test(test_large_values_elsewhere),
        cmocka_unit_test(test_infinite_values),
        cmocka_unit_test(test_certificate_of_large_values),
        cmocka_unit_test(test_certificate_of_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
