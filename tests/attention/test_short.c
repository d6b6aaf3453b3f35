/* tests: every method, forward, backward and decoding, on one small problem against double. Short
 * enough for every instruction set, and for an emulator. */
#include "support/support.h"

#include "plsh/cache.h"
#include "support/gradients.h"
#include "support/oracle.h"
#include "support/problem.h"

#include <math.h>
#include <stdlib.h>

enum { N = 150, D = 20, DV = 17 };

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

int main(void) {
    if (!test_has_isa(NULL)) return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_methods)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
