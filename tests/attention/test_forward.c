/* tests: the forward pass of dense, exact, window, fixed and none. */
#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/golden.h"
#include "support/oracle.h"
#include "support/problem.h"

/* Heads of sigma 2, 4, 8, .. */
static problem *make(plsh_attention a, plsh_method method) {
    problem *p = problem_make(a, 1);
    for (int h = 0; h < PROBLEM_HEADS; h++) {
        double sigma = ldexp(2.0, h);
        p->head[h] = (plsh_head){.method = method,
                                 .partition = plsh_partition_default(sigma, 20),
                                 .window = 3 + (int64_t)(3 * sigma),
                                 .block = 5 + (int64_t)(2 * sigma)};
    }
    return p;
}

static plsh_status attend(problem *p, plsh_error *error) {
    return plsh_attend(&p->a, p->q, p->k, p->v, p->o, p->lse, error);
}

/* Pairs scored by a run that must succeed. */
static int64_t pairs_of(problem *p) {
    plsh_error error;
    assert_ok(problem_forward(p, &error));
    return p->forward.pairs;
}

/* The weight of the problem's own method. */
static double method_weight(const void *heads, int64_t h, int64_t p, int64_t j) {
    const plsh_head *head = (const plsh_head *)heads + h;
    int64_t t = p < j ? j - p : p - j;
    switch (head->method) {
    case PLSH_METHOD_NONE: return 1.0;
    case PLSH_METHOD_FIXED: return p / head->block == j / head->block;
    case PLSH_METHOD_WINDOW: return t < head->window ? oracle_decay(heads, h, p, j) : 0.0;
    default: return oracle_decay(heads, h, p, j);
    }
}

/* The error of a plain float32 implementation grows with the scores; 2e-6 per unit of the largest
 * is twice what torch shows on the reference data. */
static void compare(problem *p, const char *what, double tolerance) {
    size_t rows = p->rows;
    double *o = malloc((p->o_count + 1) * sizeof *o), *lse = malloc((rows + 1) * sizeof *lse);
    oracle_attend(&p->a, p->q, p->k, p->v, method_weight, p->head, o, lse);
    double o_error = oracle_distance(p->o, o, p->o_count);
    double lse_error = oracle_distance(p->lse, lse, rows);
    if (!(o_error <= tolerance && lse_error <= 4 * tolerance)) {
        fail_msg("%s: o is off by %g, lse by %g", what, o_error, lse_error);
    }
    free(o);
    free(lse);
}

/* ---- Reference data ---------------------------------------------------------------------------
 */

static void test_golden(void **state) {
    (void)state;
    static const char *const cases[] = {"attention/a_n1",           "attention/b_n7",
                                        "attention/c_gqa_causal",   "attention/d_gqa_bidirectional",
                                        "attention/e_value_dim",    "attention/f_odd",
                                        "attention/g_large_scores", "attention/h_decode",
                                        "attention/i_equal_keys",   "attention/j_extreme_sigma"};
    for (size_t x = 0; x < sizeof cases / sizeof *cases; x++) {
        for (int method = PLSH_METHOD_DENSE; method <= PLSH_METHOD_EXACT; method++) {
            golden g;
            plsh_head head[PROBLEM_HEADS];
            plsh_error error;
            golden_read(&g, cases[x]);
            plsh_attention a = golden_attention(&g, (plsh_method)method, head);
            float *o = malloc(g.o.count * 4), *lse = malloc(g.lse.count * 4);
            assert_ok(plsh_attend(&a, g.q.data, g.k.data, g.v.data, o, lse, &error));
            golden_compare(&g, cases[x], "o", &g.o, o);
            golden_compare(&g, cases[x], "lse", &g.lse, lse);
            free(o);
            free(lse);
            golden_free(&g);
        }
    }
}

/* ---- Every method and shape against double ----------------------------------------------------
 */

static const plsh_method methods[] = {PLSH_METHOD_DENSE, PLSH_METHOD_EXACT, PLSH_METHOD_WINDOW,
                                      PLSH_METHOD_FIXED, PLSH_METHOD_NONE};
enum { METHODS = sizeof methods / sizeof *methods };

static void test_methods(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 2, 23, 24, 25, 48, 95, 97, 127, 128, 129, 300};
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        for (size_t x = 0; x < sizeof lengths / sizeof *lengths; x++) {
            for (int causal = 0; causal < 2; causal++) {
                problem *p = make((plsh_attention){.heads = 4,
                                                   .kv_heads = 2,
                                                   .queries = lengths[x],
                                                   .keys = lengths[x],
                                                   .head_dim = 20,
                                                   .value_dim = 13,
                                                   .causal = causal},
                                  methods[m]);
                assert_ok(attend(p, &error));
                compare(p, "methods", 4e-6);
                problem_free(p);
            }
        }
    }
}

static void test_dimensions(void **state) {
    (void)state;
    static const int64_t dims[] = {1, 3, 8, 15, 17, 33, 64, 80, 96, 128, 200, 512};
    plsh_error error;
    for (size_t x = 0; x < sizeof dims / sizeof *dims; x++) {
        for (int m = 0; m < 2; m++) {
            problem *p = make((plsh_attention){.heads = 2,
                                               .queries = 70,
                                               .keys = 150,
                                               .head_dim = dims[x],
                                               .value_dim = dims[11 - x],
                                               .causal = x % 2},
                              methods[m]);
            assert_ok(attend(p, &error));
            compare(p, "dimensions", 4e-6);
            problem_free(p);
        }
    }
}

/* A method per head, and one head for all. */
static void test_heads(void **state) {
    (void)state;
    plsh_error error;
    problem *p = make(
        (plsh_attention){.heads = 5, .queries = 120, .keys = 133, .head_dim = 32, .causal = true},
        PLSH_METHOD_DENSE);
    for (int h = 0; h < 5; h++) p->head[h].method = methods[h];
    assert_ok(attend(p, &error));
    compare(p, "a method per head", 2e-6);
    p->a.head_count = 1;
    p->head[0].method = PLSH_METHOD_WINDOW;
    assert_ok(attend(p, &error));
    compare(p, "one head for all", 2e-6);
    problem_free(p);
}

static void test_decays(void **state) {
    (void)state;
    static const double table[] = {1.0, 0.3, 0.6, 0.0, 0.2, 0.1}; /* neither convex nor falling */
    const plsh_decay decays[] = {{.kind = PLSH_DECAY_KERPLE_LOG, .a = 1.5, .b = 0.7},
                                 {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.2, .b = 0.5},
                                 {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.01, .b = 2.0},
                                 {.kind = PLSH_DECAY_TRIANGLE, .a = 17.5},
                                 {.kind = PLSH_DECAY_ALIBI, .a = 3.0, .limit = 0.01},
                                 {.kind = PLSH_DECAY_TABLE, .table = table, .table_size = 6}};
    plsh_error error;
    for (size_t x = 0; x < sizeof decays / sizeof *decays; x++) {
        for (int m = 0; m < 3; m++) {
            problem *p = make(
                (plsh_attention){
                    .heads = 2, .queries = 200, .keys = 230, .head_dim = 16, .causal = m % 2},
                methods[m]);
            p->head[0].partition.decay = p->head[1].partition.decay = decays[x];
            p->head[1].partition.decay.limit = 0.25;
            assert_ok(attend(p, &error));
            compare(p, "decays", 2e-6);
            problem_free(p);
        }
    }
}

static void test_large_scores(void **state) {
    (void)state;
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        problem *p = make((plsh_attention){.heads = 2,
                                           .queries = 150,
                                           .keys = 150,
                                           .head_dim = 64,
                                           .causal = true,
                                           .scale = 1e4 / 64 / 3},
                          methods[m]);
        assert_ok(attend(p, &error));
        /* Scores reach 1e4, an ulp of which is 1e-3: weights are right to a few of those. */
        compare(p, "scores of 1e4", 2e-2);
        for (size_t i = 0; i < p->o_count; i++) assert_true(isfinite(p->o[i]));
        problem_free(p);
    }
}

/* ---- Properties -------------------------------------------------------------------------------
 */

static void test_rows_sum_to_one(void **state) {
    (void)state;
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        problem *p = make(
            (plsh_attention){
                .heads = 8, .queries = 700, .keys = 700, .head_dim = 32, .value_dim = 3},
            methods[m]);
        for (size_t i = 0; i < p->v_count; i++) p->v[i] = 1.0f;
        assert_ok(attend(p, &error));
        for (size_t i = 0; i < p->o_count; i++) {
            assert_true(fabsf(p->o[i] - 1.0f) < 1e-5f);
        }
        problem_free(p);
    }
}

/* Later keys change no bit of earlier rows, even if they are NaN. `exact` decides for the queries
 * of a group together, so there rows may change by up to eps. */
static void test_causality(void **state) {
    (void)state;
    enum { N = 500, CUT = 333, GROUP = 48, D = 24 };
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        problem *p = make(
            (plsh_attention){.heads = 3, .queries = N, .keys = N, .head_dim = D, .causal = true},
            methods[m]);
        assert_ok(attend(p, &error));
        float *before = malloc(p->o_count * 4);
        memcpy(before, p->o, p->o_count * 4);
        for (int h = 0; h < 3; h++) {
            for (int j = CUT; j < N; j++) {
                for (int x = 0; x < D; x++) {
                    p->k[(h * N + j) * D + x] = p->v[(h * N + j) * D + x] = NAN;
                }
            }
        }
        assert_ok(attend(p, &error));
        for (int h = 0; h < 3; h++) {
            int same = methods[m] == PLSH_METHOD_EXACT ? CUT / GROUP * GROUP : CUT;
            assert_memory_equal(before + h * N * D, p->o + h * N * D, (size_t)same * D * 4);
            for (int i = same * D; i < CUT * D; i++)
                assert_true(fabsf(before[h * N * D + i] - p->o[h * N * D + i]) < 1e-6f);
            for (int i = CUT * D; i < N * D; i++) assert_true(isnan(p->o[h * N * D + i]));
        }
        free(before);
        problem_free(p);
    }
}

/* NaN in an input that has a weight never gives a finite output. */
static void test_nan(void **state) {
    (void)state;
    enum { N = 300, D = 16 };
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        for (int which = 0; which < 3; which++) {
            problem *p = make(
                (plsh_attention){
                    .heads = 1, .queries = N, .keys = N, .head_dim = D, .causal = true},
                methods[m]);
            float *array = which == 0 ? p->q : which == 1 ? p->k : p->v;
            array[150 * D + 5] = which == 1 ? INFINITY : NAN;
            if (which == 1) array[150 * D + 6] = -INFINITY;
            assert_ok(attend(p, &error));
            for (int x = 0; x < D; x++) {
                float y = p->o[150 * D + x];
                assert_true(isnan(y) || (which == 2 && x != 5) || which == 1);
                assert_false(isnan(p->o[149 * D + x]));
            }
            problem_free(p);
        }
    }
}

/* Only differences of positions matter: dropping the first keys shifts all positions. */
static void test_shift(void **state) {
    (void)state;
    enum { N = 400, CUT = 131, D = 32 };
    plsh_error error;
    problem *p =
        make((plsh_attention){.heads = 1, .queries = N, .keys = N, .head_dim = D, .causal = true},
             PLSH_METHOD_WINDOW);
    p->head[0].window = 50;
    assert_ok(attend(p, &error));
    float *o = malloc((N - CUT) * D * 4);
    p->a.queries = p->a.keys = N - CUT;
    assert_ok(plsh_attend(&p->a, p->q + CUT * D, p->k + CUT * D, p->v + CUT * D, o, NULL, &error));
    for (int i = 50 * D; i < (N - CUT) * D; i++) {
        assert_true(fabsf(o[i] - p->o[CUT * D + i]) < 2e-6f);
    }
    free(o);
    problem_free(p);
}

/* `exact` agrees with dense to rounding, scores fewer pairs, and a coarser eps fewer still. */
static void test_exact(void **state) {
    (void)state;
    plsh_error error;
    for (int causal = 0; causal < 2; causal++) {
        plsh_attention a = {
            .heads = 6, .queries = 1200, .keys = 1200, .head_dim = 64, .causal = causal};
        problem *dense = make(a, PLSH_METHOD_DENSE), *exact = make(a, PLSH_METHOD_EXACT);
        int64_t all = pairs_of(dense), some = pairs_of(exact);
        assert_int_equal(all, 6 * (causal ? 1200 * 1201 / 2 : 1200 * 1200));
        assert_true(some < all);
        for (size_t i = 0; i < dense->o_count; i++) {
            assert_true(fabsf(dense->o[i] - exact->o[i]) < 2e-6f);
        }
        for (size_t i = 0; i < (size_t)(a.heads * a.queries); i++) {
            assert_true(fabsf(dense->lse[i] - exact->lse[i]) < 4e-6f);
        }
        for (int h = 0; h < 6; h++) exact->head[h].eps = 1e-3;
        int64_t fewer = pairs_of(exact);
        assert_true(fewer < some);
        for (size_t i = 0; i < dense->o_count; i++) { /* 2 |V|max eps / (1 - eps) */
            assert_true(fabsf(dense->o[i] - exact->o[i]) < 2 * 6 * 1.01e-3f);
        }
        assert_ok(attend(exact, &error));
        problem_free(dense);
        problem_free(exact);
    }
}

/* A key of huge norm far away is found, not cut off. */
static void test_exact_outlier(void **state) {
    (void)state;
    enum { N = 3000, D = 32 };
    for (int causal = 0; causal < 2; causal++) {
        plsh_attention a = {.heads = 2, .queries = N, .keys = N, .head_dim = D, .causal = causal};
        problem *dense = make(a, PLSH_METHOD_DENSE), *exact = make(a, PLSH_METHOD_EXACT);
        for (int h = 0; h < 2; h++) {
            for (int x = 0; x < D; x++) {
                dense->k[h * N * D + 7 * D + x] *= 200;
                dense->k[h * N * D + 2500 * D + x] *= 200;
            }
        }
        memcpy(exact->k, dense->k, dense->k_count * 4);
        int64_t all = pairs_of(dense), some = pairs_of(exact);
        assert_true(some < all / 2);
        size_t reached = 0;
        for (size_t i = 0; i < dense->o_count; i++) {
            assert_true(fabsf(dense->o[i] - exact->o[i]) < 1e-4f);
            size_t j = i % D, h = i / (N * (size_t)D);
            reached += fabsf(exact->o[i] - dense->v[h * N * D + 7 * D + j]) < 1e-6f &&
                       i % (N * (size_t)D) > 500 * D;
        }
        assert_true(reached > D); /* rows beyond 500 that look at key 7 alone */
        problem_free(dense);
        problem_free(exact);
    }
}

/* ---- Layouts, threads, types ------------------------------------------------------------------
 */

static void expect_same(const problem *p, const problem *other) {
    assert_memory_equal(p->o, other->o, p->o_count * 4);
    assert_memory_equal(p->lse, other->lse, (size_t)(p->a.heads * p->a.queries) * 4);
}

static void test_threads(void **state) {
    (void)state;
    static const int threads[] = {2, 7};
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        plsh_attention a = {.heads = 6,
                            .kv_heads = 3,
                            .queries = 500,
                            .keys = 777,
                            .head_dim = 40,
                            .causal = m % 2 == 0,
                            .threads = 1};
        problem *one = make(a, methods[m]);
        assert_ok(attend(one, &error));
        for (int x = 0; x < 2; x++) {
            a.threads = threads[x];
            problem *more = make(a, methods[m]);
            assert_ok(attend(more, &error));
            expect_same(one, more);
            problem_free(more);
        }
        problem_free(one);
    }
}

static void test_layouts(void **state) {
    (void)state;
    enum { N = 210, D = 20, DV = 36, H = 4, KV = 2 };
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        problem *p = make((plsh_attention){.heads = H,
                                           .kv_heads = KV,
                                           .queries = N,
                                           .keys = N,
                                           .head_dim = D,
                                           .value_dim = DV,
                                           .causal = m % 2},
                          methods[m]);
        assert_ok(attend(p, &error));
        problem *other = make(p->a, methods[m]);
        other->a.head = other->head;
        plsh_layout q = {D, H * D}, k = {D + 3, KV * (D + 3)}, v = {N * (DV + 5), DV + 5};
        plsh_layout o = {DV, H * DV};
        other->a.q = q, other->a.k = k, other->a.v = v, other->a.o = o;
        float *qs = problem_scatter(p->q, H, N, D, q, N * H * D);
        float *ks = problem_scatter(p->k, KV, N, D, k, N * KV * (D + 3));
        float *vs = problem_scatter(p->v, KV, N, DV, v, KV * N * (DV + 5));
        float *expected = problem_scatter(p->o, H, N, DV, o, N * H * DV);
        assert_ok(plsh_attend(&other->a, qs, ks, vs, other->o, other->lse, &error));
        assert_memory_equal(expected, other->o, N * H * DV * 4);
        assert_memory_equal(p->lse, other->lse, H * N * 4);
        free(qs);
        free(ks);
        free(vs);
        free(expected);
        problem_free(p);
        problem_free(other);
    }
}

/* Packed sequences equal one call each; empty ones and ones without queries are fine. */
static void test_packed(void **state) {
    (void)state;
    static const int64_t queries[] = {0, 40, 40, 41, 241, 241, 300};
    static const int64_t keys[] = {0, 40, 40, 60, 260, 269, 400};
    enum { D = 16, S = 6 };
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        problem *p = make((plsh_attention){.heads = 3,
                                           .queries = 300,
                                           .keys = 400,
                                           .head_dim = D,
                                           .sequences = S,
                                           .query_offsets = queries,
                                           .key_offsets = keys,
                                           .causal = m % 2},
                          methods[m]);
        assert_ok(attend(p, &error));
        compare(p, "packed", 2e-6);
        problem_free(p);
    }
}

/* Halves are only converted, but for q and k of bfloat16 with an even head_dim. */
static void test_half_inputs(void **state) {
    (void)state;
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        for (int type = PLSH_DTYPE_FLOAT16; type <= PLSH_DTYPE_BFLOAT16; type++) {
            plsh_attention a = {.heads = 2,
                                .queries = 150,
                                .keys = 300,
                                .head_dim = 21,
                                .value_dim = 17,
                                .causal = m % 2};
            problem *p = make(a, methods[m]);
            uint16_t *halves[3];
            problem_halve(p, (plsh_dtype)type, halves);
            assert_ok(attend(p, &error));
            problem *half = make(a, methods[m]);
            half->a.dtype = (plsh_dtype)type;
            assert_ok(
                plsh_attend(&half->a, halves[0], halves[1], halves[2], half->o, half->lse, &error));
            expect_same(p, half);
            for (int i = 0; i < 3; i++) free(halves[i]);
            problem_free(p);
            problem_free(half);
        }
    }
}

/* bfloat16 with an even head_dim, where some instruction sets multiply pairs. */
static void test_pairs(void **state) {
    (void)state;
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        for (const char *const *isa = plsh_isa_available(); *isa; isa++) {
            problem *p = make((plsh_attention){.heads = 4,
                                               .kv_heads = 2,
                                               .queries = 250,
                                               .keys = 300,
                                               .head_dim = 22,
                                               .value_dim = 17,
                                               .causal = m % 2,
                                               .isa = *isa},
                              methods[m]);
            uint16_t *halves[3];
            problem_halve(p, PLSH_DTYPE_BFLOAT16, halves);
            p->a.dtype = PLSH_DTYPE_BFLOAT16;
            assert_ok(plsh_attend(&p->a, halves[0], halves[1], halves[2], p->o, p->lse, &error));
            compare(p, *isa, 2e-6);
            for (int i = 0; i < 3; i++) free(halves[i]);
            problem_free(p);
        }
    }
}

/* count floats whose end, or beginning, lies against a page that may not be touched. */
static float *guarded(size_t count, bool from_start) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = count * 4;
    size_t size = (bytes + page - 1) / page * page;
    char *map = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(mprotect(map + page, size, PROT_READ | PROT_WRITE), 0);
    return (float *)(void *)(map + page + (from_start ? 0 : size - bytes));
}

static void test_guard_pages(void **state) {
    (void)state;
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        for (int start = 0; start < 2; start++) {
            problem *p = make((plsh_attention){.heads = 1,
                                               .queries = 131,
                                               .keys = 161,
                                               .head_dim = 19,
                                               .value_dim = 21,
                                               .causal = m % 2},
                              methods[m]);
            size_t rows = (size_t)p->a.queries;
            float *q = guarded(p->q_count, start), *k = guarded(p->k_count, start);
            float *v = guarded(p->v_count, start), *o = guarded(p->o_count, start);
            float *lse = guarded(rows, start);
            memcpy(q, p->q, p->q_count * 4);
            memcpy(k, p->k, p->k_count * 4);
            memcpy(v, p->v, p->v_count * 4);
            assert_ok(plsh_attend(&p->a, q, k, v, o, lse, &error));
            assert_ok(attend(p, &error));
            assert_memory_equal(o, p->o, p->o_count * 4);
            assert_memory_equal(lse, p->lse, rows * 4);
            problem_free(p); /* the pages go with the process */
        }
    }
}

/* ---- Errors -----------------------------------------------------------------------------------
 */

static void test_empty(void **state) {
    (void)state;
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        problem *p = make((plsh_attention){.heads = 1, .head_dim = 8}, methods[m]);
        assert_ok(attend(p, &error));
        assert_ok(plsh_attend(&p->a, NULL, NULL, NULL, NULL, NULL, &error));
        p->a.keys = 100; /* keys that no query sees */
        assert_ok(plsh_attend(&p->a, NULL, NULL, NULL, NULL, NULL, &error));
        problem_free(p);
    }
}

static void test_errors(void **state) {
    (void)state;
    plsh_error error;
    problem *p = make((plsh_attention){.heads = 4, .queries = 10, .keys = 12, .head_dim = 8},
                      PLSH_METHOD_DENSE);
    const plsh_attention good = p->a;
#define REFUSES(change, status, text)                                                              \
    p->a = good;                                                                                   \
    p->a.change;                                                                                   \
    assert_fails(attend(p, &error), status, text)
    REFUSES(heads = 0, PLSH_STATUS_INVALID, "heads is 0");
    REFUSES(kv_heads = 3, PLSH_STATUS_INVALID, "kv_heads is 3");
    REFUSES(head_dim = 513, PLSH_STATUS_INVALID, "head_dim is 513");
    REFUSES(head_dim = 0, PLSH_STATUS_INVALID, "head_dim is 0");
    REFUSES(value_dim = -1, PLSH_STATUS_INVALID, "value_dim is -1");
    REFUSES(queries = 13, PLSH_STATUS_INVALID, "13 queries and 12 keys");
    REFUSES(queries = -1, PLSH_STATUS_INVALID, "-1 queries");
    REFUSES(scale = NAN, PLSH_STATUS_INVALID, "scale is nan");
    REFUSES(dtype = (plsh_dtype)3, PLSH_STATUS_INVALID, "dtype is float64");
    REFUSES(threads = -1, PLSH_STATUS_INVALID, "threads is -1");
    REFUSES(head_count = 2, PLSH_STATUS_INVALID, "head_count is 2");
    REFUSES(head = NULL, PLSH_STATUS_INVALID, "head_count is 4");
    REFUSES(sequences = 1, PLSH_STATUS_INVALID, "query_offsets");
    REFUSES(q.row_stride = 7, PLSH_STATUS_INVALID, "strides of q");
    REFUSES(k.row_stride = -8, PLSH_STATUS_INVALID, "strides of k");
    REFUSES(o.row_stride = INT64_MAX, PLSH_STATUS_OVERFLOW, "strides of o");
    REFUSES(isa = "mmx", PLSH_STATUS_UNSUPPORTED, "reference");
#undef REFUSES
    p->a = good;
    static const int64_t down[] = {0, 7, 4, 10}, up[] = {0, 8, 9, 12}, last[] = {0, 8, 9, 11};
    p->a.sequences = 3;
    p->a.query_offsets = down;
    p->a.key_offsets = up;
    assert_fails(attend(p, &error), PLSH_STATUS_INVALID, "query_offsets[2] is 4");
    p->a.query_offsets = p->a.key_offsets = last;
    assert_fails(attend(p, &error), PLSH_STATUS_INVALID, "end with 10");
    p->a = good;
    const plsh_head head = p->head[2];
#define REFUSES(change, text)                                                                      \
    p->head[2] = head;                                                                             \
    p->head[2].change;                                                                             \
    assert_fails(attend(p, &error), PLSH_STATUS_INVALID, text)
    REFUSES(method = (plsh_method)99, "head 2: method 99");
    REFUSES(eps = 1.0, "head 2: eps is 1");
    REFUSES(eps = NAN, "head 2: eps is nan");
    REFUSES(partition.decay.a = 0, "sigma is 0");
    p->head[2].partition.decay.a = 2;
    REFUSES(method = PLSH_METHOD_WINDOW; p->head[2].window = 0, "head 2: window is 0");
    REFUSES(method = PLSH_METHOD_FIXED; p->head[2].block = -4, "head 2: block is -4");
#undef REFUSES
    p->head[2] = head;
    assert_fails(plsh_attend(&p->a, NULL, p->k, p->v, p->o, NULL, &error), PLSH_STATUS_INVALID,
                 "NULL");
    problem_free(p);
}

static void test_check_finite(void **state) {
    (void)state;
    enum { N = 50, D = 9 };
    plsh_error error;
    problem *p = make(
        (plsh_attention){.heads = 2, .queries = N, .keys = N, .head_dim = D, .check_finite = true},
        PLSH_METHOD_DENSE);
    assert_ok(attend(p, &error));
    p->v[N * D + 17 * D + 4] = INFINITY;
    assert_fails(attend(p, &error), PLSH_STATUS_NOT_FINITE,
                 "v is not finite at head 1, row 17, column 4");
    p->k[8] = NAN;
    assert_fails(attend(p, &error), PLSH_STATUS_NOT_FINITE,
                 "k is not finite at head 0, row 0, column 8");
    p->q[2 * N * D - 1] = p->q[N * D + 3] = -INFINITY;
    assert_fails(attend(p, &error), PLSH_STATUS_NOT_FINITE,
                 "q is not finite at head 1, row 0, column 3");
    problem_free(p);
}

static plsh_status attend_twice(void *context, plsh_error *error) {
    problem *p = context;
    plsh_head heads[5];
    plsh_status status = plsh_heads_alibi(5, PLSH_METHOD_EXACT, heads, error);
    return status ? status : attend(p, error);
}

static void test_allocations(void **state) {
    (void)state;
    problem *p = make((plsh_attention){.heads = 3, .queries = 40, .keys = 40, .head_dim = 8},
                      PLSH_METHOD_EXACT);
    p->head[1].partition.decay = (plsh_decay){.kind = PLSH_DECAY_KERPLE_LOG, .a = 1, .b = 1};
    test_every_allocation(attend_twice, p, 8);
    problem_free(p);
}

/* The workspace grows with the tiles and the summaries of keys, never quadratically. */
static void test_workspace(void **state) {
    (void)state;
    plsh_error error;
    plsh_plan *plan;
    problem *p =
        make((plsh_attention){.heads = 1, .head_dim = 64, .threads = 2}, PLSH_METHOD_EXACT);
    p->a.queries = p->a.keys = 1 << 20;
    assert_ok(plsh_plan_create(&p->a, &plan, &error));
    assert_true(plsh_plan_workspace(plan) < (size_t)10 << 20);
    plsh_plan_destroy(plan);
    p->head[0].method = PLSH_METHOD_WINDOW;
    assert_ok(plsh_plan_create(&p->a, &plan, &error));
    assert_true(plsh_plan_workspace(plan) < (size_t)5 << 18);
    plsh_plan_destroy(plan);
    problem_free(p);
}

/* No rows at all, of several heads: nothing is done, and that is no error. */
static void test_no_rows(void **state) {
    (void)state;
    plsh_error error;
    plsh_head heads[2];
    assert_ok(plsh_heads_alibi(2, PLSH_METHOD_EXACT, heads, &error));
    float x[32] = {0};
    plsh_attention attention = {.heads = 2, .head_dim = 16, .head = heads, .head_count = 2};
    assert_ok(plsh_attend(&attention, x, x, x, x, NULL, &error));
    attention.keys = 1;
    assert_ok(plsh_attend(&attention, x, x, x, x, NULL, &error));
}

int main(void) {
    if (!test_has_isa(NULL)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_rows),       cmocka_unit_test(test_golden),
        cmocka_unit_test(test_methods),       cmocka_unit_test(test_dimensions),
        cmocka_unit_test(test_heads),         cmocka_unit_test(test_decays),
        cmocka_unit_test(test_large_scores),  cmocka_unit_test(test_rows_sum_to_one),
        cmocka_unit_test(test_causality),     cmocka_unit_test(test_nan),
        cmocka_unit_test(test_shift),         cmocka_unit_test(test_exact),
        cmocka_unit_test(test_exact_outlier), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_layouts),       cmocka_unit_test(test_packed),
        cmocka_unit_test(test_half_inputs),   cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_guard_pages),   cmocka_unit_test(test_empty),
        cmocka_unit_test(test_errors),        cmocka_unit_test(test_check_finite),
        cmocka_unit_test(test_allocations),   cmocka_unit_test(test_workspace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
