/* tests: every method, forward, backward and decoding, on one small problem against double. Short
 * enough for every instruction set, and for an emulator. */
#include "support/support.h"

#include "plsh/cache.h"
#include "support/gradients.h"
#include "support/oracle.h"
#include "support/problem.h"

#include <math.h>
#include <stdlib.h>

enum { N = 300, D = 20, DV = 17 }; /* long enough for `exact` to leave out keys */

#define ALIBI                                                                                      \
    { .kind = PLSH_DECAY_ALIBI, .a = 20 }
#define DRAWS                                                                                      \
    {                                                                                              \
        .scheme = PLSH_SCHEME_INTEGER, .design = PLSH_DESIGN_STRATIFIED, .decay = ALIBI,           \
        .samples = 8, .seed = 3                                                                    \
    }

static const plsh_head methods[] = {
    {.method = PLSH_METHOD_DENSE, .partition = {.decay = ALIBI}},
    {.method = PLSH_METHOD_EXACT, .partition = {.decay = ALIBI}},
    {.method = PLSH_METHOD_WINDOW, .partition = {.decay = ALIBI}, .window = 33},
    {.method = PLSH_METHOD_FIXED, .block = 50},
    {.method = PLSH_METHOD_NONE},
    {.method = PLSH_METHOD_PLSH, .partition = DRAWS},
    {.method = PLSH_METHOD_MASKS, .partition = DRAWS},
    {.method = PLSH_METHOD_MEAN, .partition = DRAWS},
};

static double *widened(const float *from, size_t count) {
    double *to = malloc((count + 1) * sizeof *to);
    for (size_t i = 0; i < count; i++) to[i] = (double)from[i];
    return to;
}

static void assert_near(const char *what, const float *got, const double *want, size_t count) {
    double off = oracle_distance(got, want, count);
    if (!(off <= 2e-5)) fail_msg("%s is off by %g", what, off);
}

static void check_decoding(const problem *p, const double *o) {
    plsh_error error;
    plsh_cache *cache;
    float *got = calloc(p->o_count, sizeof *got);
    const plsh_cache_config config = {
        .heads = 1, .head_dim = D, .value_dim = DV, .head = p->head, .head_count = 1};
    assert_ok(plsh_cache_create(&config, &cache, &error));
    for (int64_t i = 0; i < N; i++) {
        const plsh_tokens token = {.count = 1,
                                   .q = p->q + i * D,
                                   .k = p->k + i * D,
                                   .v = p->v + i * DV,
                                   .o = got + i * DV};
        assert_ok(plsh_cache_step(cache, &token, NULL, &error));
    }
    assert_near("decoding", got, o, p->o_count);
    plsh_cache_destroy(cache);
    free(got);
}

static void check_method(const plsh_head *head, bool causal) {
    plsh_error error;
    problem *p = problem_make(
        (plsh_attention){
            .heads = 1, .queries = N, .keys = N, .head_dim = D, .value_dim = DV, .causal = causal},
        11);
    p->head[0] = *head;
    double *q = widened(p->q, p->q_count), *k = widened(p->k, p->k_count);
    double *v = widened(p->v, p->v_count), *d_o = widened(p->d_o, p->o_count);
    const gradient_problem wide = {.heads = 1,
                                   .kv_heads = 1,
                                   .queries = N,
                                   .keys = N,
                                   .d = D,
                                   .dv = DV,
                                   .causal = causal,
                                   .scale = 1.0 / sqrt(D),
                                   .q = q,
                                   .k = k,
                                   .v = v,
                                   .d_o = d_o,
                                   .head = p->head,
                                   .sample = -1};
    bool mean = head->method == PLSH_METHOD_MEAN;
    gradients want = mean ? gradients_mean(&wide) : gradients_attention(&wide);
    assert_ok(problem_forward(p, &error));
    assert_near("o", p->o, want.o, p->o_count);
    assert_ok(problem_backward(p, &error));
    assert_near("dQ", p->d_q, want.d_q, p->q_count);
    assert_near("dK", p->d_k, want.d_k, p->k_count);
    assert_near("dV", p->d_v, want.d_v, p->v_count);
    if (causal) check_decoding(p, want.o);
    gradients_free(&want);
    free(q), free(k), free(v), free(d_o);
    problem_free(p);
}

static void test_methods(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        check_method(&methods[i], true);
        check_method(&methods[i], false);
    }
}

/* The last `queries` tokens of n, [heads][queries] after [heads][n] keys: o of one method. */
static problem *run_last(plsh_method method, int64_t queries, int64_t n, bool causal) {
    plsh_error error;
    problem *p = problem_make((plsh_attention){.heads = 2,
                                               .queries = queries,
                                               .keys = n,
                                               .head_dim = 32,
                                               .value_dim = 48,
                                               .causal = causal},
                              17);
    for (int h = 0; h < 2; h++)
        p->head[h] = (plsh_head){.method = method, .partition = {.decay = ALIBI}};
    assert_ok(problem_forward(p, &error));
    assert_ok(problem_backward(p, &error));
    return p;
}

/* `exact` is dense where a sequence or its queries are few, to the bit and in all pairs; else not.
 */
static void test_exact_is_dense_where_short(void **state) {
    (void)state;
    static const struct {
        int64_t queries, n;
        bool is_dense;
    } cases[] = {{256, 256, true}, {16, 2000, true}, {1, 2000, true}, {17, 2000, false}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const int64_t queries = cases[i / 2].queries, n = cases[i / 2].n;
        problem *exact = run_last(PLSH_METHOD_EXACT, queries, n, i % 2 == 0);
        problem *dense = run_last(PLSH_METHOD_DENSE, queries, n, i % 2 == 0);
        assert_int_equal(exact->forward.pairs == dense->forward.pairs, cases[i / 2].is_dense);
        if (queries == 1) assert_int_equal(dense->forward.pairs, 2 * n); /* of each head */
        if (cases[i / 2].is_dense) {
            assert_memory_equal(exact->o, dense->o, exact->o_count * sizeof(float));
            assert_memory_equal(exact->lse, dense->lse, exact->rows * sizeof(float));
            assert_memory_equal(exact->d_k, dense->d_k, exact->k_count * sizeof(float));
        }
        problem_free(exact);
        problem_free(dense);
    }
}

/* The last query as a call of its own: its row of the whole call, to rounding. Keys outside its
 * window are not looked at: they and their values are NaN. */
static void check_last_query(plsh_method method, plsh_decay decay, int64_t keys, bool rows_apart) {
    enum { DIM = 32, WINDOW = 50 };
    plsh_error error;
    const int64_t stride = rows_apart ? DIM + 3 : DIM, last = keys - 1;
    const bool windowed = method == PLSH_METHOD_WINDOW;
    const plsh_head head = {
        .method = method, .partition = {.decay = decay}, .window = windowed ? WINDOW : 0};
    problem *all = problem_make((plsh_attention){.heads = 1,
                                                 .queries = keys,
                                                 .keys = keys,
                                                 .head_dim = DIM,
                                                 .value_dim = DIM,
                                                 .causal = true},
                                23);
    all->head[0] = head;
    assert_ok(problem_forward(all, &error));
    float *rows[2], o[DIM], lse;
    for (int a = 0; a < 2; a++) {
        const float *from = a ? all->v : all->k;
        rows[a] = calloc((size_t)(keys * stride), sizeof(float));
        for (int64_t j = 0; j < keys; j++) {
            const bool hidden = windowed && j <= last - WINDOW;
            for (int x = 0; x < DIM; x++)
                rows[a][j * stride + x] = hidden ? NAN : from[j * DIM + x];
        }
    }
    const plsh_layout layout = {keys * stride, stride};
    const plsh_attention one = {.heads = 1,
                                .queries = 1,
                                .keys = keys,
                                .head_dim = DIM,
                                .value_dim = DIM,
                                .causal = true,
                                .k = layout,
                                .v = layout,
                                .head = &head,
                                .head_count = 1};
    assert_ok(plsh_attend(&one, all->q + last * DIM, rows[0], rows[1], o, &lse, &error));
    for (int x = 0; x < DIM; x++) assert_true(fabsf(o[x] - all->o[last * DIM + x]) <= 2e-6f);
    assert_true(fabsf(lse - all->lse[last]) <= 2e-6f * (1 + fabsf(lse)));
    free(rows[0]), free(rows[1]);
    problem_free(all);
}

static void test_one_query(void **state) {
    (void)state;
    static const plsh_method each[] = {PLSH_METHOD_DENSE, PLSH_METHOD_EXACT, PLSH_METHOD_NONE,
                                       PLSH_METHOD_WINDOW};
    static const plsh_decay decays[] = {ALIBI,
                                        {.kind = PLSH_DECAY_KERPLE_LOG, .a = 2, .b = 0.5},
                                        {.kind = PLSH_DECAY_TRIANGLE, .a = 400}};
    for (size_t i = 0; i < 2 * sizeof each / sizeof *each; i++) {
        for (size_t d = 0; d < sizeof decays / sizeof *decays; d++) {
            check_last_query(each[i / 2], decays[d], 333, i % 2 == 1);
            check_last_query(each[i / 2], decays[d], 20, i % 2 == 1); /* the window is longer */
        }
    }
}

int main(void) {
    if (!test_has_isa(NULL)) return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_methods),
                                       cmocka_unit_test(test_exact_is_dense_where_short),
                                       cmocka_unit_test(test_one_query)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
