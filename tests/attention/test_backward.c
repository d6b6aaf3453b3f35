/* tests: gradients against the reference data and the double oracle, and their properties. */
#include "support/support.h"

#include "support/golden.h"
#include "support/gradients.h"
#include "support/oracle.h"
#include "support/problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void solve(problem *p) {
    plsh_error error;
    assert_ok(problem_forward(p, &error));
    assert_ok(problem_backward(p, &error));
}

static void check_golden(const char *name, plsh_method method) {
    golden g;
    golden_read(&g, name);
    plsh_head head[8];
    plsh_attention a = golden_attention(&g, method, head);
    for (const char *const *isa = plsh_isa_available(); *isa; isa++) {
        char what[100];
        snprintf(what, sizeof(what), "%s, method %d, %s", name, (int)method, *isa);
        problem *p = problem_make(a, 1);
        memcpy(p->head, head, sizeof head);
        p->a.isa = *isa;
        memcpy(p->q, g.q.data, p->q_count * 4);
        memcpy(p->k, g.k.data, p->k_count * 4);
        memcpy(p->v, g.v.data, p->v_count * 4);
        memcpy(p->d_o, g.d_o.data, p->o_count * 4);
        solve(p);
        golden_compare(&g, what, "dq", &g.d_q, p->d_q);
        golden_compare(&g, what, "dk", &g.d_k, p->d_k);
        golden_compare(&g, what, "dv", &g.d_v, p->d_v);
        problem_free(p);
    }
    golden_free(&g);
}

static void test_golden_attention(void **state) {
    (void)state;
    static const char *const cases[] = {
        "a_n1",  "b_n7",           "c_gqa_causal", "d_gqa_bidirectional", "e_value_dim",
        "f_odd", "g_large_scores", "h_decode",     "i_equal_keys",        "j_extreme_sigma"};
    for (int i = 0; i < 10; i++) {
        char name[64];
        snprintf(name, sizeof(name), "attention/%s", cases[i]);
        check_golden(name, PLSH_METHOD_DENSE);
        check_golden(name, PLSH_METHOD_EXACT);
    }
}

static void test_golden_masks(void **state) {
    (void)state;
    static const char *const cases[] = {"a_s1", "b_s20_causal", "c_s20_bidirectional", "d_s300",
                                        "e_noncontiguous"};
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof(name), "masks/%s", cases[i]);
        check_golden(name, PLSH_METHOD_PLSH);
        check_golden(name, PLSH_METHOD_MASKS);
    }
}

/* ---- Against double ------------------------------------------------------------------------- */

static const double table[] = {1, 0.7, 0.5, 0.4, 0.33, 0.3, 0.28};

static const plsh_decay decays[] = {
    {.kind = PLSH_DECAY_ALIBI, .a = 6},
    {.kind = PLSH_DECAY_ALIBI, .a = 3, .limit = 0.1},
    {.kind = PLSH_DECAY_KERPLE_LOG, .a = 1.5, .b = 0.7},
    {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.4, .b = 0.6},
    {.kind = PLSH_DECAY_TRIANGLE, .a = 17.5},
    {.kind = PLSH_DECAY_TRIANGLE, .a = 9.5, .limit = 0.05},
    {.kind = PLSH_DECAY_TABLE, .table = table, .table_size = 7},
    {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.02, .b = 1.7}, /* not convex: no sampling */
};
enum { DECAYS = 8, CONVEX = 7 };

enum { SAMPLES = 8 }; /* of every head; golden-shifted takes 7 at least */

static plsh_head make_head(plsh_method method, const plsh_decay *decay, uint32_t h) {
    const bool lattice = h == 1 && decay->kind == PLSH_DECAY_ALIBI && decay->limit == 0;
    return (plsh_head){.method = method,
                       .window = 11,
                       .block = 13,
                       .partition = {.scheme = PLSH_SCHEME_INTEGER,
                                     .design = !lattice ? PLSH_DESIGN_STRATIFIED
                                               : method == PLSH_METHOD_PLSH
                                                   ? PLSH_DESIGN_GOLDEN_SHIFTED
                                                   : PLSH_DESIGN_GOLDEN,
                                     .decay = *decay,
                                     .samples = SAMPLES,
                                     .seed = 3,
                                     .head = h}};
}

/* A problem, and the same for the oracle: its inputs as doubles. */
typedef struct subject {
    problem *p;
    gradient_problem exact;
    double *q, *k, *v, *d_o;
} subject;

static double *widened(const float *from, size_t count) {
    double *to = malloc((count + 1) * sizeof(double));
    for (size_t i = 0; i < count; i++) to[i] = (double)from[i];
    return to;
}

static subject make_subject(plsh_method method, const plsh_decay *decay, bool causal,
                            int64_t queries, int64_t keys) {
    plsh_attention a = {.heads = 4,
                        .kv_heads = 2,
                        .queries = queries,
                        .keys = keys,
                        .head_dim = 12,
                        .value_dim = 9,
                        .causal = causal,
                        .scale = 0.4};
    problem *p = problem_make(a, 1);
    for (uint32_t h = 0; h < 4; h++) p->head[h] = make_head(method, decay, h);
    subject s = {.p = p,
                 .q = widened(p->q, p->q_count),
                 .k = widened(p->k, p->k_count),
                 .v = widened(p->v, p->v_count),
                 .d_o = widened(p->d_o, p->o_count)};
    s.exact = (gradient_problem){.heads = a.heads,
                                 .kv_heads = a.kv_heads,
                                 .queries = queries,
                                 .keys = keys,
                                 .d = a.head_dim,
                                 .dv = a.value_dim,
                                 .causal = causal,
                                 .scale = a.scale,
                                 .q = s.q,
                                 .k = s.k,
                                 .v = s.v,
                                 .d_o = s.d_o,
                                 .head = p->head,
                                 .sample = -1};
    return s;
}

static void free_subject(subject *s) {
    double *arrays[] = {s->q, s->k, s->v, s->d_o};
    for (int i = 0; i < 4; i++) free(arrays[i]);
    problem_free(s->p);
}

static gradients answer(const subject *s) {
    return s->p->head[0].method == PLSH_METHOD_MEAN ? gradients_mean(&s->exact)
                                                    : gradients_attention(&s->exact);
}

/* (f(x + h) - f(x - h)) / 2h */
static double slope_of(const gradient_problem *p, double *x) {
    const double h = 1e-5, at = *x;
    *x = at + h;
    double high = gradients_value(p);
    *x = at - h;
    double low = gradients_value(p);
    *x = at;
    return (high - low) / (2 * h);
}

/* The oracle's gradients are the slopes of its value. */
static void test_differences(void **state) {
    (void)state;
    static const plsh_method methods[] = {PLSH_METHOD_DENSE,  PLSH_METHOD_PLSH,  PLSH_METHOD_MEAN,
                                          PLSH_METHOD_WINDOW, PLSH_METHOD_FIXED, PLSH_METHOD_NONE};
    for (int i = 0; i < 6 * DECAYS; i++) {
        plsh_method method = methods[i / DECAYS];
        if (plsh_method_is_sampled(method) && i % DECAYS >= CONVEX) continue;
        subject s = make_subject(method, &decays[i % DECAYS], i % 2, 15, 19);
        if (i % 3 == 0) s.exact.dropout = (plsh_attention_dropout){.p = 0.3, .seed = 8};
        gradients g = answer(&s);
        for (int n = 0; n < 5; n++) {
            assert_float_equal(slope_of(&s.exact, &s.q[n * 131]), g.d_q[n * 131], 1e-7);
            assert_float_equal(slope_of(&s.exact, &s.k[n * 89]), g.d_k[n * 89], 1e-7);
            assert_float_equal(slope_of(&s.exact, &s.v[n * 67]), g.d_v[n * 67], 1e-7);
        }
        for (int h = 0; h < 4 && !plsh_method_is_sampled(method); h++) {
            plsh_decay *decay = &s.p->head[h].partition.decay;
            assert_float_equal(slope_of(&s.exact, &decay->a), g.d_decay[2 * h], 1e-6);
            assert_float_equal(slope_of(&s.exact, &decay->b), g.d_decay[2 * h + 1], 1e-6);
        }
        gradients_free(&g);
        free_subject(&s);
    }
}

static void compare(const char *what, const char *array, const float *got, const double *want,
                    size_t count) {
    double worst = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        worst = fmax(worst, isnan(got[i]) ? INFINITY : fabs((double)got[i] - want[i]));
        largest = fmax(largest, fabs(want[i]));
    }
    if (!(worst <= 3e-6 * (largest + 1)))
        fail_msg("%s: %s is off by %g of %g", what, array, worst, largest);
}

/* The gradients of a subject, on one instruction set, equal `want` up to rounding. */
static void check_subject(const subject *s, const char *isa, const gradients *want) {
    problem *p = s->p;
    plsh_method method = p->head[0].method;
    char what[100];
    snprintf(what, sizeof(what), "method %d, decay %d, causal %d, %s", (int)method,
             (int)p->head[0].partition.decay.kind, p->a.causal, isa);
    p->a.isa = isa;
    solve(p);
    compare(what, "o", p->o, want->o, p->o_count);
    compare(what, "dq", p->d_q, want->d_q, p->q_count);
    compare(what, "dk", p->d_k, want->d_k, p->k_count);
    compare(what, "dv", p->d_v, want->d_v, p->v_count);
    for (int64_t i = 0; i < 2 * p->a.heads; i++) {
        double off = fabs(p->d_decay[i] - want->d_decay[i]), size = fabs(want->d_decay[i]);
        if (!(off <= 2e-5 * (1 + size)))
            fail_msg("%s: d_decay[%d] is %g, not %g", what, (int)i, p->d_decay[i],
                     want->d_decay[i]);
    }
    /* masks scores the union of its blocks, once. */
    if (method == PLSH_METHOD_MASKS)
        assert_true(p->backward.pairs <= p->forward.pairs);
    else
        assert_int_equal(p->forward.pairs, p->backward.pairs);
}

static void test_methods(void **state) {
    (void)state;
    for (int method = 0; method < PLSH_METHOD_AUTO; method++) {
        for (int i = 0; i < 2 * DECAYS; i++) {
            if (plsh_method_is_sampled((plsh_method)method) && i % DECAYS >= CONVEX) continue;
            subject s = make_subject((plsh_method)method, &decays[i % DECAYS], i / DECAYS,
                                     i % 3 ? 150 : 133, 150);
            gradients want = answer(&s);
            for (const char *const *isa = plsh_isa_available(); *isa; isa++)
                check_subject(&s, *isa, &want);
            gradients_free(&want);
            free_subject(&s);
        }
    }
}

/* A problem with dropout; its first rows have odd numbers. */
static subject make_dropping(plsh_method method, double p, bool causal, int64_t queries,
                             int64_t keys) {
    subject s = make_subject(method, &decays[0], causal, queries, keys);
    s.p->dropout = s.exact.dropout = (plsh_attention_dropout){
        .p = p, .seed = 11, .head = 5, .query = 3 * keys, .key = (INT64_C(1) << 33) + 1};
    return s;
}

/* Sizes just around the tiles' edges, every method; o too. */
static void test_dropout(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {95, 127}, {96, 128}, {97, 129}, {150, 150}};
    for (int method = 0; method < PLSH_METHOD_AUTO; method++) {
        for (int i = 0; i < 10; i++) {
            subject s = make_dropping((plsh_method)method, i % 3 ? 0.1 : 0.6, i % 2,
                                      sizes[i / 2][0], sizes[i / 2][1]);
            gradients want = answer(&s);
            for (const char *const *isa = plsh_isa_available(); *isa; isa++)
                check_subject(&s, *isa, &want);
            gradients_free(&want);
            free_subject(&s);
        }
    }
}

/* Labels that are not contiguous: the gradient of the decay uses the positions of the gathered
 * keys. */
static void test_scattered_labels(void **state) {
    (void)state;
    static int32_t labels[SAMPLES * 150];
    for (int i = 0; i < SAMPLES * 150; i++) labels[i] = i * 7 % (3 + i / 150);
    for (int i = 0; i < 6; i++) {
        const plsh_method methods[] = {PLSH_METHOD_PLSH, PLSH_METHOD_MASKS, PLSH_METHOD_MEAN};
        subject s = make_subject(methods[i / 2], &decays[2 * (i & 1)], i & 1, 133, 150);
        for (int h = 0; h < 4; h++) {
            s.p->head[h].partition.scheme = PLSH_SCHEME_LABELS;
            s.p->head[h].partition.labels = labels;
            s.p->head[h].partition.label_count = 150;
        }
        if (i % 2) s.p->dropout = s.exact.dropout = (plsh_attention_dropout){.p = 0.2, .seed = 4};
        gradients want = answer(&s);
        for (const char *const *isa = plsh_isa_available(); *isa; isa++)
            check_subject(&s, *isa, &want);
        gradients_free(&want);
        free_subject(&s);
    }
}

/* ---- Properties ----------------------------------------------------------------------------- */

/* Heads of all methods side by side. */
static problem *make_all(plsh_attention a, uint64_t seed) {
    static const plsh_method methods[PROBLEM_HEADS] = {
        PLSH_METHOD_DENSE,  PLSH_METHOD_EXACT, PLSH_METHOD_PLSH, PLSH_METHOD_MASKS,
        PLSH_METHOD_WINDOW, PLSH_METHOD_FIXED, PLSH_METHOD_NONE, PLSH_METHOD_MEAN};
    a.heads = PROBLEM_HEADS;
    problem *p = problem_make(a, seed);
    for (uint32_t h = 0; h < PROBLEM_HEADS; h++) {
        plsh_decay decay = plsh_decay_alibi(2.0 + 3.0 * h);
        p->head[h] = make_head(methods[h], &decay, h);
        p->head[h].window = 100;
        p->head[h].block = 150;
    }
    return p;
}

static void assert_same(const char *what, const void *a, const void *b, size_t bytes) {
    if (memcmp(a, b, bytes) != 0) fail_msg("%s: not the same bits", what);
}

static void assert_same_gradients(const char *what, const problem *a, const problem *b) {
    assert_same(what, a->d_q, b->d_q, a->q_count * 4);
    assert_same(what, a->d_k, b->d_k, a->k_count * 4);
    assert_same(what, a->d_v, b->d_v, a->v_count * 4);
    assert_same(what, a->d_decay, b->d_decay, PROBLEM_HEADS * 16);
}

static void test_threads(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        plsh_attention a = {.kv_heads = i & 1 ? 1 : 4,
                            .queries = i & 4 ? 200 : 700,
                            .keys = i & 4 ? 230 : 760,
                            .head_dim = 16,
                            .causal = i & 2,
                            .threads = 1,
                            .isa = i & 4 ? "reference" : NULL};
        const plsh_attention_dropout dropout = {.p = i % 3 ? 0.0 : 0.25, .seed = 6};
        problem *one = make_all(a, 10);
        one->dropout = dropout;
        solve(one);
        static const int threads[] = {1, 2, 7, 2};
        for (int t = 0; t < 4; t++) {
            a.threads = threads[t];
            problem *more = make_all(a, 10);
            more->dropout = dropout;
            solve(more);
            assert_same("threads", one->o, more->o, one->o_count * 4);
            assert_same_gradients("threads", one, more);
            assert_int_equal(one->backward.pairs, more->backward.pairs);
            problem_free(more);
        }
        problem_free(one);
    }
}

enum { PACKED_D = 10, PACKED_DV = 7, PACKED_QUERIES = 300, PACKED_KEYS = 400 };

/* The gradients of the queries and keys from these on, a sequence by itself, into `alone`. */
static void solve_sequence(const problem *all, problem *alone, int64_t q_at, int64_t k_at) {
    plsh_error error;
    plsh_attention *a = &alone->a;
    a->q = (plsh_layout){PACKED_QUERIES * PACKED_D, PACKED_D};
    a->k = (plsh_layout){PACKED_KEYS * PACKED_D, PACKED_D};
    a->v = (plsh_layout){PACKED_KEYS * PACKED_DV, PACKED_DV};
    a->o = (plsh_layout){PACKED_QUERIES * PACKED_DV, PACKED_DV};
    for (int64_t h = 0; h < PROBLEM_HEADS; h++)
        memcpy(alone->lse + h * a->queries, all->lse + h * PACKED_QUERIES + q_at,
               (size_t)a->queries * 4);
    plsh_backward arrays = {.q = all->q + q_at * PACKED_D,
                            .k = all->k + k_at * PACKED_D,
                            .v = all->v + k_at * PACKED_DV,
                            .o = all->o + q_at * PACKED_DV,
                            .lse = alone->lse,
                            .d_o = all->d_o + q_at * PACKED_DV,
                            .d_q = alone->d_q + q_at * PACKED_D,
                            .d_k = alone->d_k + k_at * PACKED_D,
                            .d_v = alone->d_v + k_at * PACKED_DV,
                            .d_decay = alone->d_decay};
    assert_ok(problem_run_backward(a, &arrays, NULL, &error));
}

/* The gradients of a sequence among others are those of it alone; keys that no query sees have
 * none. */
static void test_packed(void **state) {
    (void)state;
    static const int64_t q_at[] = {0, 130, 130, 131, 300}, k_at[] = {0, 150, 160, 161, 400};
    for (int causal = 0; causal < 2; causal++) {
        plsh_attention a = {.kv_heads = 2,
                            .queries = PACKED_QUERIES,
                            .keys = PACKED_KEYS,
                            .head_dim = PACKED_D,
                            .value_dim = PACKED_DV,
                            .causal = causal};
        problem *all = make_all(a, 20), *alone = make_all(a, 20);
        all->a.sequences = 4;
        all->a.query_offsets = q_at;
        all->a.key_offsets = k_at;
        solve(all);
        double d_decay[2 * PROBLEM_HEADS] = {0};
        for (int x = 0; x < 4; x++) {
            alone->a.queries = q_at[x + 1] - q_at[x];
            alone->a.keys = k_at[x + 1] - k_at[x];
            if (alone->a.queries == 0) continue;
            solve_sequence(all, alone, q_at[x], k_at[x]);
            for (int i = 0; i < 2 * PROBLEM_HEADS; i++) d_decay[i] += alone->d_decay[i];
        }
        for (int i = 0; i < 2 * PROBLEM_HEADS; i++)
            assert_float_equal(d_decay[i], all->d_decay[i], 1e-12 * (1 + fabs(d_decay[i])));
        memcpy(alone->d_decay, all->d_decay, PROBLEM_HEADS * 16);
        assert_same_gradients("packed", all, alone);
        problem_free(all);
        problem_free(alone);
    }
}

/* [rows, heads, dim] with gaps gives the same bits, and gaps are left alone. */
static void test_layouts(void **state) {
    (void)state;
    enum { N = 210, D = 9, DV = 13, PAD = 3, KV = 2 };
    plsh_error error;
    plsh_attention a = {
        .kv_heads = KV, .queries = N, .keys = N, .head_dim = D, .value_dim = DV, .causal = true};
    problem *p = make_all(a, 30);
    solve(p);
    a = p->a;
    a.q = (plsh_layout){D + PAD, PROBLEM_HEADS * (D + PAD)};
    a.k = (plsh_layout){D + PAD, KV * (D + PAD)};
    a.v = (plsh_layout){DV + PAD, KV * (DV + PAD)};
    a.o = (plsh_layout){DV + PAD, PROBLEM_HEADS * (DV + PAD)};
    enum { Q, K, V, O, D_O, D_Q, D_K, D_V, ARRAYS };
    const float *plain[ARRAYS] = {p->q, p->k, p->v, p->o, p->d_o, p->d_q, p->d_k, p->d_v};
    const int64_t dims[ARRAYS] = {D, D, DV, DV, DV, D, D, DV};
    const plsh_layout layouts[ARRAYS] = {a.q, a.k, a.v, a.o, a.o, a.q, a.k, a.v};
    float *wide[ARRAYS], *got[ARRAYS] = {0};
    size_t counts[ARRAYS];
    for (int x = 0; x < ARRAYS; x++) {
        int64_t heads = layouts[x].row_stride / layouts[x].head_stride;
        counts[x] = (size_t)(N * layouts[x].row_stride);
        wide[x] = problem_scatter(plain[x], heads, N, dims[x], layouts[x], counts[x]);
        if (x >= D_Q) got[x] = problem_scatter(NULL, 0, 0, 0, layouts[x], counts[x]);
    }
    plsh_backward arrays = {.q = wide[Q],
                            .k = wide[K],
                            .v = wide[V],
                            .o = wide[O],
                            .lse = p->lse,
                            .d_o = wide[D_O],
                            .d_q = got[D_Q],
                            .d_k = got[D_K],
                            .d_v = got[D_V]};
    assert_ok(problem_run_backward(&a, &arrays, NULL, &error));
    for (int x = D_Q; x < ARRAYS; x++) assert_same("layouts", got[x], wide[x], counts[x] * 4);
    for (int x = 0; x < ARRAYS; x++) free(wide[x]), free(got[x]);
    problem_free(p);
}

/* Gradients that are not requested do not affect the others. */
static void test_some_outputs(void **state) {
    (void)state;
    plsh_error error;
    plsh_attention a = {.kv_heads = 4, .queries = 200, .keys = 220, .head_dim = 8};
    problem *all = make_all(a, 40);
    solve(all);
    for (int asked = 0; asked < 16; asked++) {
        problem *some = make_all(a, 40);
        assert_ok(problem_forward(some, &error));
        plsh_backward b = problem_arrays(some);
        if (!(asked & 1)) b.d_q = NULL;
        if (!(asked & 2)) b.d_k = NULL;
        if (!(asked & 4)) b.d_v = NULL;
        if (!(asked & 8)) b.d_decay = NULL;
        assert_ok(problem_run_backward(&some->a, &b, NULL, &error));
        if (asked & 1) assert_same("dq alone", some->d_q, all->d_q, all->q_count * 4);
        if (asked & 2) assert_same("dk alone", some->d_k, all->d_k, all->k_count * 4);
        if (asked & 4) assert_same("dv alone", some->d_v, all->d_v, all->v_count * 4);
        if (asked & 8)
            assert_same("d_decay alone", some->d_decay, all->d_decay, PROBLEM_HEADS * 16);
        problem_free(some);
    }
    problem_free(all);
}

/* Half-precision inputs are only converted: the result has the bits of the same numbers as
 * float32. With bfloat16 and an even head_dim, scores may be sums of pairs. */
static void test_halves(void **state) {
    (void)state;
    plsh_error error;
    plsh_attention a = {.kv_heads = 2, .queries = 150, .keys = 170, .causal = true};
    for (int dtype = PLSH_DTYPE_FLOAT16; dtype <= PLSH_DTYPE_BFLOAT16; dtype++) {
        a.head_dim = dtype == PLSH_DTYPE_FLOAT16 ? 20 : 21;
        problem *full = make_all(a, 50), *narrow = make_all(a, 50);
        uint16_t *half[3];
        problem_halve(full, (plsh_dtype)dtype, half);
        solve(full);
        narrow->a.dtype = (plsh_dtype)dtype;
        plsh_backward b = problem_arrays(narrow);
        b.q = half[0], b.k = half[1], b.v = half[2], b.o = full->o, b.lse = full->lse;
        assert_ok(problem_run_backward(&narrow->a, &b, NULL, &error));
        assert_same_gradients("halves", full, narrow);
        for (int x = 0; x < 3; x++) free(half[x]);
        problem_free(full);
        problem_free(narrow);
    }
}

static void assert_near(const char *what, const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(a[i] - b[i]) <= 5e-6f)) fail_msg("%s: %g, not %g", what, a[i], b[i]);
}

/* bfloat16 with an even head_dim: the gradients of float32. */
static void test_pairs(void **state) {
    (void)state;
    plsh_error error;
    for (const char *const *isa = plsh_isa_available(); *isa; isa++) {
        plsh_attention a = {.kv_heads = 2,
                            .queries = 250,
                            .keys = 300,
                            .head_dim = 20,
                            .causal = true,
                            .isa = *isa};
        problem *full = make_all(a, 50), *narrow = make_all(a, 50);
        uint16_t *half[3];
        problem_halve(full, PLSH_DTYPE_BFLOAT16, half);
        solve(full);
        narrow->a.dtype = PLSH_DTYPE_BFLOAT16;
        assert_ok(
            plsh_attend(&narrow->a, half[0], half[1], half[2], narrow->o, narrow->lse, &error));
        plsh_backward b = problem_arrays(narrow);
        b.q = half[0], b.k = half[1], b.v = half[2];
        assert_ok(problem_run_backward(&narrow->a, &b, NULL, &error));
        assert_near(*isa, narrow->d_q, full->d_q, full->q_count);
        assert_near(*isa, narrow->d_k, full->d_k, full->k_count);
        assert_near(*isa, narrow->d_v, full->d_v, full->v_count);
        for (int x = 0; x < 3; x++) free(half[x]);
        problem_free(full);
        problem_free(narrow);
    }
}

/* Gradients are linear in dO: those of 2 x are twice those of x, to the bit; of x + y the sums. */
static void test_linear(void **state) {
    (void)state;
    enum { X, Y, SUM, TWICE, CASES };
    problem *p[CASES];
    for (int i = 0; i < CASES; i++)
        p[i] = make_all(
            (plsh_attention){
                .kv_heads = 4, .queries = 190, .keys = 190, .head_dim = 16, .causal = true},
            60);
    oracle_normal(73, 1.0, p[Y]->d_o, p[Y]->o_count);
    for (size_t i = 0; i < p[X]->o_count; i++) {
        p[SUM]->d_o[i] = p[X]->d_o[i] + p[Y]->d_o[i];
        p[TWICE]->d_o[i] = 2 * p[X]->d_o[i];
    }
    for (int i = 0; i < CASES; i++) solve(p[i]);
    for (int z = 0; z < 3; z++) {
        const float *g[CASES];
        for (int i = 0; i < CASES; i++) g[i] = z == 0 ? p[i]->d_q : z == 1 ? p[i]->d_k : p[i]->d_v;
        size_t count = z == 0 ? p[X]->q_count : p[X]->k_count; /* v is as wide as k */
        for (size_t i = 0; i < count; i++) {
            assert_true(g[TWICE][i] == 2 * g[X][i]);
            assert_float_equal(g[SUM][i], (double)g[X][i] + (double)g[Y][i], 2e-5);
        }
    }
    for (int i = 0; i < CASES; i++) problem_free(p[i]);
}

/* A key or value that is not finite does not reach the gradients of the queries before it. */
static void test_masked_nan(void **state) {
    (void)state;
    enum { N = 120, D = 8 };
    plsh_attention a = {.queries = N, .keys = N, .head_dim = D, .causal = true};
    problem *clean = make_all(a, 80), *dirty = make_all(a, 80);
    for (int64_t h = 0; h < PROBLEM_HEADS; h++)
        for (int64_t i = ((h + 1) * N - 1) * D; i < (h + 1) * N * D; i++)
            dirty->k[i] = dirty->v[i] = NAN;
    solve(clean);
    solve(dirty);
    for (size_t i = 0; i < clean->q_count; i++)
        if (i / D % N < N - 1) assert_float_equal(clean->d_q[i], dirty->d_q[i], 1e-5);
    problem_free(clean);
    problem_free(dirty);
}

static void test_refusals(void **state) {
    (void)state;
    plsh_error error;
    plsh_decay decay = plsh_decay_alibi(4);
    problem *p = problem_make(
        (plsh_attention){.heads = 1, .queries = 5, .keys = 5, .head_dim = 4, .check_finite = true},
        90);
    p->head[0] = make_head(PLSH_METHOD_DENSE, &decay, 0);
    solve(p);
    plsh_backward missing = problem_arrays(p);
    missing.lse = NULL;
    assert_fails(problem_run_backward(&p->a, &missing, NULL, &error), PLSH_STATUS_INVALID, "lse");
    p->d_o[13] = NAN;
    assert_fails(problem_backward(p, &error), PLSH_STATUS_NOT_FINITE,
                 "d_o is not finite at head 0, row 3, column 1");
    p->k[7] = INFINITY;
    assert_fails(problem_backward(p, &error), PLSH_STATUS_NOT_FINITE, "row 1, column 3");
    problem_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_attention), cmocka_unit_test(test_golden_masks),
        cmocka_unit_test(test_differences),      cmocka_unit_test(test_methods),
        cmocka_unit_test(test_dropout),          cmocka_unit_test(test_scattered_labels),
        cmocka_unit_test(test_threads),          cmocka_unit_test(test_packed),
        cmocka_unit_test(test_layouts),          cmocka_unit_test(test_some_outputs),
        cmocka_unit_test(test_halves),           cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_linear),           cmocka_unit_test(test_masked_nan),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
