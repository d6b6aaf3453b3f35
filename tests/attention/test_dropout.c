/* attention: dropout of weights: which pairs are dropped, and which options are refused. That o and
 * the gradients are those of these pairs is in test_backward.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/oracle.h"
#include "support/problem.h"
#include "support/support.h"

enum { ROWS = 256, HEADS = 2 };

/* Keys that all weigh the same, values that are the unit vectors: o is Z / ROWS. */
static problem *make_visible(plsh_attention_dropout dropout, plsh_method method) {
    problem *p = problem_make(
        (plsh_attention){
            .heads = HEADS, .queries = ROWS, .keys = ROWS, .head_dim = 4, .value_dim = ROWS},
        1);
    for (int h = 0; h < HEADS; h++) p->head[h] = (plsh_head){.method = method, .block = ROWS};
    memset(p->k, 0, p->k_count * sizeof *p->k);
    memset(p->v, 0, p->v_count * sizeof *p->v);
    for (int i = 0; i < HEADS * ROWS; i++) p->v[i * ROWS + i % ROWS] = 1;
    p->dropout = dropout;
    return p;
}

/* Z as a forward call has it, [HEADS][ROWS][ROWS] times ROWS; to be freed. */
static float *seen(plsh_attention_dropout dropout, plsh_method method, const char *isa) {
    plsh_error error;
    problem *p = make_visible(dropout, method);
    p->a.isa = isa;
    assert_ok(problem_forward(p, &error));
    float *z = malloc(p->o_count * sizeof *z);
    memcpy(z, p->o, p->o_count * sizeof *z);
    problem_free(p);
    return z;
}

static int64_t count_zeros(const float *z, size_t count) {
    int64_t zeros = 0;
    for (size_t i = 0; i < count; i++) zeros += z[i] == 0;
    return zeros;
}

/* Where both are 0, of pairs of independent ones of which a share p is 0. */
static void assert_independent(const float *a, const float *b, size_t count, double p) {
    int64_t both = 0;
    for (size_t i = 0; i < count; i++) both += a[i] == 0 && b[i] == 0;
    const double n = (double)count, mean = p * p;
    if (!(fabs((double)both - n * mean) <= 6 * sqrt(n * mean * (1 - mean))))
        fail_msg("%lld of %zu are dropped in both; %g expected", (long long)both, count, n * mean);
}

/* ---- The law --------------------------------------------------------------------------------- */

/* Shares of zeros within six standard errors: with other seeds one of 5e8 cases would fail; there
 * are fewer than 100. */
static void test_share(void **state) {
    (void)state;
    static const double shares[] = {0.001, 0.1, 0.5, 0.9};
    const size_t count = (size_t)HEADS * ROWS * ROWS;
    for (uint64_t i = 0; i < 8; i++) {
        const double p = shares[i / 2], quantised = round(p * 65536) / 65536;
        float *z = seen((plsh_attention_dropout){.p = p, .seed = i}, PLSH_METHOD_NONE, NULL);
        const double n = (double)count, off = (double)count_zeros(z, count) - n * quantised;
        if (!(fabs(off) <= 6 * sqrt(n * quantised * (1 - quantised))))
            fail_msg("p = %g: %g too many are dropped of %g", p, off, n);
        for (size_t x = 0; x < count; x++)
            if (z[x] != 0) assert_float_equal(z[x] * ROWS, 1 / (1 - quantised), 1e-4);
        free(z);
    }
}

/* Neighbours among queries and keys, other heads, seeds, rows further on: independent. */
static void test_independence(void **state) {
    (void)state;
    const double p = 0.3;
    const size_t head = (size_t)ROWS * ROWS, count = HEADS * head;
    const plsh_attention_dropout base = {.p = p, .seed = 1};
    float *z = seen(base, PLSH_METHOD_NONE, NULL);
    assert_independent(z, z + head, head, p);
    for (size_t shift = 1; shift < 20; shift++) {
        assert_independent(z, z + shift, head - shift, p);
        assert_independent(z, z + shift * ROWS, head - shift * ROWS, p);
    }
    plsh_attention_dropout others[] = {base, base, base, base, base, base};
    others[0].seed = 2;
    others[1].seed = UINT64_C(1) << 40 | 1;
    others[2].head = 2;
    others[3].query = ROWS;
    others[4].key = ROWS;
    others[5].key = INT64_C(1) << 32;
    for (int i = 0; i < 6; i++) {
        float *other = seen(others[i], PLSH_METHOD_NONE, NULL);
        assert_independent(z, other, count, p);
        free(other);
    }
    free(z);
}

/* The same pairs on every instruction set and for another method, and they are the oracle's. */
static void test_same_pairs(void **state) {
    (void)state;
    const plsh_attention_dropout dropout = {.p = 0.2, .seed = 9, .head = 3, .query = 5, .key = 7};
    for (const char *const *isa = plsh_isa_available(); *isa; isa++) {
        float *none = seen(dropout, PLSH_METHOD_NONE, *isa);
        float *fixed = seen(dropout, PLSH_METHOD_FIXED, *isa);
        for (int64_t i = 0; i < HEADS * ROWS * ROWS; i++) {
            double want = oracle_drop(&dropout, i / ROWS / ROWS, i / ROWS % ROWS, i % ROWS);
            assert_true((none[i] == 0) == (want == 0));
            assert_true((fixed[i] == 0) == (want == 0));
        }
        free(none);
        free(fixed);
    }
}

/* p is never rounded to 0, nor to 1. */
static void test_ends(void **state) {
    (void)state;
    const size_t count = (size_t)HEADS * ROWS * ROWS;
    float *few = seen((plsh_attention_dropout){.p = 1e-12, .seed = 1}, PLSH_METHOD_NONE, NULL);
    float *many = seen((plsh_attention_dropout){.p = 1 - 1e-12, .seed = 4}, PLSH_METHOD_NONE, NULL);
    for (size_t i = 0; i < count; i++) assert_true(isfinite(few[i]) && isfinite(many[i]));
    assert_true(count_zeros(few, count) <= 24); /* 2 expected; more than 24: 1e-17 */
    assert_true(count_zeros(many, count) >= (int64_t)count - 24);
    /* None: 0.14 each, but not for these seeds. */
    assert_true(count_zeros(few, count) > 0 && count_zeros(many, count) < (int64_t)count);
    free(few);
    free(many);
}

/* ---- Parts of a whole ------------------------------------------------------------------------ */

/* Some rows of packed sequences, which say where they lie, are those of the whole. */
static void test_part(void **state) {
    (void)state;
    enum { N = 300, D = 8, FROM = 130, TO = 277 };
    static const int64_t offsets[] = {0, 100, 100, 140, 300};
    plsh_error error;
    plsh_decay decay = plsh_decay_alibi(20);
    problem *p = problem_make((plsh_attention){.heads = 4,
                                               .kv_heads = 2,
                                               .queries = N,
                                               .keys = N,
                                               .head_dim = D,
                                               .causal = true,
                                               .sequences = 4,
                                               .query_offsets = offsets,
                                               .key_offsets = offsets},
                              2);
    for (int h = 0; h < 4; h++) p->head[h] = plsh_head_default(PLSH_METHOD_DENSE, &decay);
    p->dropout = (plsh_attention_dropout){.p = 0.3, .seed = 5};
    assert_ok(problem_forward(p, &error));
    plsh_attention part = p->a;
    const plsh_layout layout = {N * D, D};
    part.q = part.k = part.v = part.o = layout;
    int64_t q_at[5], k_at[5];
    plsh_place places[5];
    plsh_extent extent;
    plsh_range rows = {FROM, TO}, keys;
    assert_ok(plsh_attention_reach(&p->a, -1, rows, &keys, &error));
    plsh_extent_part(4, offsets, rows, keys, q_at, k_at, places, &extent);
    part.queries = extent.queries, part.keys = extent.keys, part.sequences = extent.sequences;
    part.query_offsets = q_at, part.key_offsets = k_at, part.places = places;
    /* Heads 2 and 3 alone. */
    part.heads = part.head_count = 2, part.kv_heads = 1;
    float *o = calloc((size_t)4 * N * D, sizeof *o);
    plsh_plan *plan;
    assert_ok(plsh_plan_create(&part, &plan, &error));
    void *workspace = aligned_alloc(64, plsh_plan_workspace(plan));
    const plsh_forward arrays = {
        .q = p->q + (2 * N + FROM) * D,
        .k = p->k + (N + keys.begin) * D,
        .v = p->v + (N + keys.begin) * D,
        .o = o,
        .dropout = {.p = 0.3, .seed = 5, .head = 2, .query = FROM, .key = keys.begin}};
    assert_ok(plsh_plan_forward(plan, &arrays, workspace, NULL, &error));
    for (int64_t i = 0; i < 2 * (TO - FROM) * D; i++) {
        const int64_t h = i / ((TO - FROM) * D), x = i % ((TO - FROM) * D);
        assert_float_equal(o[h * N * D + x], p->o[(h + 2) * N * D + FROM * D + x], 1e-6);
    }
    free(workspace);
    free(o);
    plsh_plan_destroy(plan);
    problem_free(p);
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void test_refusals(void **state) {
    (void)state;
    static const double bad[] = {-0.1, 1.0, 1.5, NAN, INFINITY, -INFINITY};
    plsh_error error;
    for (int i = 0; i < 6; i++) {
        problem *p = make_visible((plsh_attention_dropout){.p = bad[i]}, PLSH_METHOD_NONE);
        assert_fails(problem_forward(p, &error), PLSH_STATUS_INVALID, "at least 0");
        assert_fails(problem_backward(p, &error), PLSH_STATUS_INVALID, "at least 0");
        problem_free(p);
    }
    static const plsh_attention_dropout wrong[] = {
        {.head = -1},         {.head = (INT64_C(1) << 32) - 1},
        {.query = -1},        {.key = -1},
        {.query = INT64_MAX}, {.key = INT64_MAX}};
    for (int i = 0; i < 6; i++) {
        problem *p = make_visible(wrong[i], PLSH_METHOD_NONE);
        assert_fails(problem_forward(p, &error), PLSH_STATUS_INVALID, "dropout from head");
        problem_free(p);
    }
    problem *p = make_visible((plsh_attention_dropout){.p = 0.1}, PLSH_METHOD_NONE);
    plsh_plan *plan;
    assert_ok(plsh_plan_create(&p->a, &plan, &error));
    void *workspace = aligned_alloc(64, plsh_plan_workspace(plan));
    const plsh_forward arrays = {
        .q = p->q, .k = p->k, .v = p->v, .o = p->o, .certificate = p->lse, .dropout = p->dropout};
    assert_fails(plsh_plan_forward(plan, &arrays, workspace, NULL, &error), PLSH_STATUS_UNSUPPORTED,
                 "certificates");
    free(workspace);
    plsh_plan_destroy(plan);
    problem_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),      cmocka_unit_test(test_independence),
        cmocka_unit_test(test_same_pairs), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_part),       cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
