/* tests: gradients against the reference data and the double oracle, and their properties. */
#include "support.h"

#include "golden.h"
#include "gradients.h"
#include "plsh/attention.h"

#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct outcome {
    float *o, *lse, *d_q, *d_k, *d_v;
    double *d_decay;
    plsh_report forward, backward;
} outcome;

static void make_outcome(const plsh_attention *a, outcome *g) {
    int64_t kv = a->kv_heads ? a->kv_heads : a->heads,
            dv = a->value_dim ? a->value_dim : a->head_dim;
    *g = (outcome){.o = malloc((size_t)(a->heads * a->queries * dv + 1) * 4),
                   .lse = malloc((size_t)(a->heads * a->queries + 1) * 4),
                   .d_q = malloc((size_t)(a->heads * a->queries * a->head_dim + 1) * 4),
                   .d_k = malloc((size_t)(kv * a->keys * a->head_dim + 1) * 4),
                   .d_v = malloc((size_t)(kv * a->keys * dv + 1) * 4),
                   .d_decay = malloc((size_t)a->heads * 16)};
}

static void free_outcome(outcome *g) {
    free(g->o);
    free(g->lse);
    free(g->d_q);
    free(g->d_k);
    free(g->d_v);
    free(g->d_decay);
}

/* A workspace of exactly its size, and not zero. It allocates, the pass does not. */
static plsh_status run_backward(const plsh_attention *a, const plsh_backward *b,
                                plsh_report *report, plsh_error *error) {
    plsh_plan *plan;
    plsh_status status = plsh_plan_create(a, &plan, error);
    if (status) return status;
    void *workspace;
    size_t size = plsh_plan_backward_workspace(plan);
    status = plsh_allocate(&workspace, size, 1, "workspace", error);
    if (!status) memset(workspace, 0xa5, size);
    if (!status) plsh_memory_fail_after(0);
    if (!status) status = plsh_plan_backward(plan, b, workspace, report, error);
    plsh_memory_fail_after(-1);
    plsh_release(workspace);
    plsh_plan_destroy(plan);
    return status;
}

/* Forward and backward of a descriptor without gaps, into fresh arrays. */
static plsh_status run(const plsh_attention *a, const void *q, const void *k, const void *v,
                       const float *d_o, outcome *g, plsh_error *error) {
    make_outcome(a, g);
    plsh_plan *plan;
    plsh_status status = plsh_plan_create(a, &plan, error);
    if (status) return status;
    void *workspace = NULL;
    status = plsh_allocate(&workspace, plsh_plan_workspace(plan), 1, "workspace", error);
    plsh_forward f = {.q = q, .k = k, .v = v, .o = g->o, .lse = g->lse};
    if (!status) status = plsh_plan_forward(plan, &f, workspace, &g->forward, error);
    plsh_release(workspace);
    plsh_plan_destroy(plan);
    plsh_backward b = {.q = q,
                       .k = k,
                       .v = v,
                       .o = g->o,
                       .lse = g->lse,
                       .d_o = d_o,
                       .d_q = g->d_q,
                       .d_k = g->d_k,
                       .d_v = g->d_v,
                       .d_decay = g->d_decay};
    return status ? status : run_backward(a, &b, &g->backward, error);
}

static void check_golden(const char *name, plsh_method method) {
    plsh_error error;
    golden g;
    golden_read(&g, name);
    plsh_head head[8];
    plsh_attention a = golden_attention(&g, method, head);
    for (const char *const *isa = plsh_isa_available(); *isa; isa++) {
        outcome got;
        char what[100];
        a.isa = *isa;
        snprintf(what, sizeof(what), "%s, method %d, %s", name, (int)method, *isa);
        assert_ok(run(&a, g.q.data, g.k.data, g.v.data, g.d_o.data, &got, &error));
        golden_compare(&g, what, "dq", &g.d_q, got.d_q);
        golden_compare(&g, what, "dk", &g.d_k, got.d_k);
        golden_compare(&g, what, "dv", &g.d_v, got.d_v);
        free_outcome(&got);
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

/* Normal numbers as doubles that are floats. */
static double *normals(uint64_t seed, int64_t count) {
    double *to = malloc((size_t)(count + 1) * sizeof(double));
    for (int64_t i = 0; i < count; i++) {
        plsh_random r = plsh_random_at((plsh_stream){seed, 0, 77}, (uint64_t)i);
        double radius = sqrt(-2 * log(plsh_random_unit(r.word[0])));
        to[i] = (double)(float)(radius * cos(6.283185307179586 * plsh_random_unit(r.word[1])));
    }
    return to;
}

static float *floats(const double *from, int64_t count) {
    float *to = malloc((size_t)(count + 1) * sizeof(float));
    for (int64_t i = 0; i < count; i++) to[i] = (float)from[i];
    return to;
}

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

static bool is_sampled(plsh_method method) {
    return method == PLSH_METHOD_PLSH || method == PLSH_METHOD_MASKS || method == PLSH_METHOD_MEAN;
}

static plsh_head make_head(plsh_method method, const plsh_decay *decay, uint32_t h) {
    return (plsh_head){.method = method,
                       .window = 11,
                       .block = 13,
                       .partition = {.scheme = PLSH_SCHEME_INTEGER,
                                     .design = PLSH_DESIGN_STRATIFIED,
                                     .decay = *decay,
                                     .samples = 5,
                                     .seed = 3,
                                     .head = h}};
}

/* A problem with its arrays. */
typedef struct subject {
    gradient_problem problem;
    plsh_head head[4];
    double *q, *k, *v, *d_o;
} subject;

static void make_subject(subject *s, plsh_method method, const plsh_decay *decay, bool causal,
                         int64_t queries, int64_t keys) {
    int64_t heads = 4, kv = 2, d = 12, dv = 9;
    for (uint32_t h = 0; h < 4; h++) s->head[h] = make_head(method, decay, h);
    s->q = normals(1, heads * queries * d);
    s->k = normals(2, kv * keys * d);
    s->v = normals(3, kv * keys * dv);
    s->d_o = normals(4, heads * queries * dv);
    s->problem = (gradient_problem){.heads = heads,
                                    .kv_heads = kv,
                                    .queries = queries,
                                    .keys = keys,
                                    .d = d,
                                    .dv = dv,
                                    .causal = causal,
                                    .scale = 0.4,
                                    .q = s->q,
                                    .k = s->k,
                                    .v = s->v,
                                    .d_o = s->d_o,
                                    .head = s->head,
                                    .sample = -1};
}

static void free_subject(subject *s) {
    free(s->q);
    free(s->k);
    free(s->v);
    free(s->d_o);
}

static plsh_attention describe(const gradient_problem *p) {
    return (plsh_attention){.heads = p->heads,
                            .kv_heads = p->kv_heads,
                            .queries = p->queries,
                            .keys = p->keys,
                            .head_dim = p->d,
                            .value_dim = p->dv,
                            .causal = p->causal,
                            .scale = p->scale,
                            .head = p->head,
                            .head_count = p->heads};
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
        if (is_sampled(method) && i % DECAYS >= CONVEX) continue;
        subject s;
        make_subject(&s, method, &decays[i % DECAYS], i % 2, 15, 19);
        gradients g = method == PLSH_METHOD_MEAN ? gradients_mean(&s.problem)
                                                 : gradients_attention(&s.problem);
        for (int n = 0; n < 5; n++) {
            assert_float_equal(slope_of(&s.problem, &s.q[n * 131]), g.d_q[n * 131], 1e-7);
            assert_float_equal(slope_of(&s.problem, &s.k[n * 89]), g.d_k[n * 89], 1e-7);
            assert_float_equal(slope_of(&s.problem, &s.v[n * 67]), g.d_v[n * 67], 1e-7);
        }
        for (int h = 0; h < 4 && !is_sampled(method); h++) {
            plsh_decay *decay = &s.head[h].partition.decay;
            assert_float_equal(slope_of(&s.problem, &decay->a), g.d_decay[2 * h], 1e-6);
            assert_float_equal(slope_of(&s.problem, &decay->b), g.d_decay[2 * h + 1], 1e-6);
        }
        gradients_free(&g);
        free_subject(&s);
    }
}

static void compare(const char *what, const char *array, const float *got, const double *want,
                    int64_t count) {
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        worst = fmax(worst, isnan(got[i]) ? INFINITY : fabs((double)got[i] - want[i]));
        largest = fmax(largest, fabs(want[i]));
    }
    if (!(worst <= 3e-6 * (largest + 1)))
        fail_msg("%s: %s is off by %g of %g", what, array, worst, largest);
}

/* What the library makes of a subject, on one instruction set, is `want` up to rounding. */
static void check_subject(const subject *s, const char *isa, const gradients *want) {
    plsh_error error;
    const gradient_problem *p = &s->problem;
    plsh_method method = s->head[0].method;
    int64_t q_count = p->heads * p->queries * p->d, k_count = p->kv_heads * p->keys * p->d;
    int64_t o_count = p->heads * p->queries * p->dv, v_count = p->kv_heads * p->keys * p->dv;
    float *q = floats(s->q, q_count), *k = floats(s->k, k_count), *v = floats(s->v, v_count);
    float *d_o = floats(s->d_o, o_count);
    plsh_attention a = describe(p);
    a.isa = isa;
    outcome got;
    char what[100];
    snprintf(what, sizeof(what), "method %d, decay %d, causal %d, %s", (int)method,
             (int)s->head[0].partition.decay.kind, p->causal, isa);
    assert_ok(run(&a, q, k, v, d_o, &got, &error));
    compare(what, "dq", got.d_q, want->d_q, q_count);
    compare(what, "dk", got.d_k, want->d_k, k_count);
    compare(what, "dv", got.d_v, want->d_v, v_count);
    for (int64_t i = 0; i < 2 * p->heads; i++) {
        double off = fabs(got.d_decay[i] - want->d_decay[i]), size = fabs(want->d_decay[i]);
        if (!(off <= 2e-5 * (1 + size)))
            fail_msg("%s: d_decay[%d] is %g, not %g", what, (int)i, got.d_decay[i],
                     want->d_decay[i]);
    }
    /* masks scores the union of its blocks, once. */
    if (method == PLSH_METHOD_MASKS)
        assert_true(got.backward.pairs <= got.forward.pairs);
    else
        assert_int_equal(got.forward.pairs, got.backward.pairs);
    free_outcome(&got);
    free(q);
    free(k);
    free(v);
    free(d_o);
}

static void test_methods(void **state) {
    (void)state;
    for (int method = 0; method < PLSH_METHOD_AUTO; method++) {
        for (int i = 0; i < 2 * DECAYS; i++) {
            if (is_sampled((plsh_method)method) && i % DECAYS >= CONVEX) continue;
            subject s;
            make_subject(&s, (plsh_method)method, &decays[i % DECAYS], i / DECAYS,
                         i % 3 ? 150 : 133, 150);
            gradients want = method == PLSH_METHOD_MEAN ? gradients_mean(&s.problem)
                                                        : gradients_attention(&s.problem);
            for (const char *const *isa = plsh_isa_available(); *isa; isa++)
                check_subject(&s, *isa, &want);
            gradients_free(&want);
            free_subject(&s);
        }
    }
}

/* ---- Properties ----------------------------------------------------------------------------- */

static void assert_same(const char *what, const void *a, const void *b, int64_t bytes) {
    if (memcmp(a, b, (size_t)bytes) != 0) fail_msg("%s: not the same bits", what);
}

/* Arrays of a descriptor, filled with normal numbers. */
typedef struct inputs {
    float *q, *k, *v, *d_o;
    int64_t q_count, k_count, v_count, o_count;
} inputs;

static inputs make_inputs(const plsh_attention *a, uint64_t seed) {
    int64_t kv = a->kv_heads ? a->kv_heads : a->heads,
            dv = a->value_dim ? a->value_dim : a->head_dim;
    inputs in = {.q_count = a->heads * a->queries * a->head_dim,
                 .k_count = kv * a->keys * a->head_dim,
                 .v_count = kv * a->keys * dv,
                 .o_count = a->heads * a->queries * dv};
    float **to[] = {&in.q, &in.k, &in.v, &in.d_o};
    int64_t counts[] = {in.q_count, in.k_count, in.v_count, in.o_count};
    for (int i = 0; i < 4; i++) {
        double *x = normals(seed + (uint64_t)i, counts[i]);
        *to[i] = floats(x, counts[i]);
        free(x);
    }
    return in;
}

static void free_inputs(inputs *in) {
    free(in->q);
    free(in->k);
    free(in->v);
    free(in->d_o);
}

/* Heads of all methods side by side. */
enum { ALL_HEADS = 8 };
static void all_methods(plsh_head *head) {
    static const plsh_method methods[ALL_HEADS] = {
        PLSH_METHOD_DENSE,  PLSH_METHOD_EXACT, PLSH_METHOD_PLSH, PLSH_METHOD_MASKS,
        PLSH_METHOD_WINDOW, PLSH_METHOD_FIXED, PLSH_METHOD_NONE, PLSH_METHOD_MEAN};
    for (uint32_t h = 0; h < ALL_HEADS; h++) {
        plsh_decay decay = plsh_decay_alibi(2.0 + 3.0 * h);
        head[h] = make_head(methods[h], &decay, h);
        head[h].window = 100;
        head[h].block = 150;
    }
}

static void assert_same_outcome(const char *what, const outcome *a, const outcome *b,
                                const inputs *in) {
    assert_same(what, a->d_q, b->d_q, in->q_count * 4);
    assert_same(what, a->d_k, b->d_k, in->k_count * 4);
    assert_same(what, a->d_v, b->d_v, in->v_count * 4);
    assert_same(what, a->d_decay, b->d_decay, ALL_HEADS * 16);
}

static void test_threads(void **state) {
    (void)state;
    plsh_error error;
    plsh_head head[ALL_HEADS];
    all_methods(head);
    for (int i = 0; i < 8; i++) {
        plsh_attention a = {.heads = ALL_HEADS,
                            .kv_heads = i & 1 ? 1 : 4,
                            .queries = i & 4 ? 200 : 700,
                            .keys = i & 4 ? 230 : 760,
                            .head_dim = 16,
                            .causal = i & 2,
                            .head = head,
                            .head_count = ALL_HEADS,
                            .threads = 1,
                            .isa = i & 4 ? "reference" : NULL};
        inputs in = make_inputs(&a, 10);
        outcome one, more;
        assert_ok(run(&a, in.q, in.k, in.v, in.d_o, &one, &error));
        static const int threads[] = {1, 2, 7, 2};
        for (int t = 0; t < 4; t++) {
            a.threads = threads[t];
            assert_ok(run(&a, in.q, in.k, in.v, in.d_o, &more, &error));
            assert_same_outcome("threads", &one, &more, &in);
            assert_int_equal(one.backward.pairs, more.backward.pairs);
            free_outcome(&more);
        }
        free_outcome(&one);
        free_inputs(&in);
    }
}

/* The gradients of a sequence among others are those of it alone. */
static void test_packed(void **state) {
    (void)state;
    plsh_error error;
    plsh_head head[ALL_HEADS];
    all_methods(head);
    const int64_t q_at[] = {0, 130, 130, 131, 300}, k_at[] = {0, 150, 160, 161, 400};
    plsh_attention a = {.heads = ALL_HEADS,
                        .kv_heads = 2,
                        .queries = 300,
                        .keys = 400,
                        .head_dim = 10,
                        .value_dim = 7,
                        .sequences = 4,
                        .query_offsets = q_at,
                        .key_offsets = k_at,
                        .head = head,
                        .head_count = ALL_HEADS};
    for (int causal = 0; causal < 2; causal++) {
        a.causal = causal;
        inputs in = make_inputs(&a, 20);
        outcome all;
        assert_ok(run(&a, in.q, in.k, in.v, in.d_o, &all, &error));
        double d_decay[2 * ALL_HEADS] = {0};
        for (int x = 0; x < 4; x++) {
            plsh_attention one = a;
            one.sequences = 0;
            one.queries = q_at[x + 1] - q_at[x];
            one.keys = k_at[x + 1] - k_at[x];
            if (one.queries == 0) { /* its keys have no gradient */
                for (int64_t i = k_at[x] * 10; i < k_at[x + 1] * 10; i++)
                    assert_true(all.d_k[i] == 0 && all.d_k[400 * 10 + i] == 0);
                continue;
            }
            one.q = (plsh_layout){300 * 10, 10};
            one.k = (plsh_layout){400 * 10, 10};
            one.v = (plsh_layout){400 * 7, 7};
            one.o = (plsh_layout){300 * 7, 7};
            outcome got;
            float *lse = malloc(sizeof(float) * ALL_HEADS * 300);
            for (int64_t h = 0; h < ALL_HEADS; h++)
                memcpy(lse + h * one.queries, all.lse + h * 300 + q_at[x], (size_t)one.queries * 4);
            make_outcome(&a, &got);
            plsh_backward b = {.q = in.q + q_at[x] * 10,
                               .k = in.k + k_at[x] * 10,
                               .v = in.v + k_at[x] * 7,
                               .o = all.o + q_at[x] * 7,
                               .lse = lse,
                               .d_o = in.d_o + q_at[x] * 7,
                               .d_q = got.d_q + q_at[x] * 10,
                               .d_k = got.d_k + k_at[x] * 10,
                               .d_v = got.d_v + k_at[x] * 7,
                               .d_decay = got.d_decay};
            assert_ok(run_backward(&one, &b, NULL, &error));
            for (int i = 0; i < 2 * ALL_HEADS; i++) d_decay[i] += got.d_decay[i];
            for (int64_t h = 0; h < ALL_HEADS; h++) {
                int64_t at = (h * 300 + q_at[x]) * 10;
                assert_same("packed dq", got.d_q + at, all.d_q + at, one.queries * 40);
            }
            for (int64_t h = 0; h < 2; h++) {
                int64_t at = h * 400 + k_at[x];
                assert_same("packed dk", got.d_k + at * 10, all.d_k + at * 10, one.keys * 40);
                assert_same("packed dv", got.d_v + at * 7, all.d_v + at * 7, one.keys * 28);
            }
            free(lse);
            free_outcome(&got);
        }
        for (int i = 0; i < 2 * ALL_HEADS; i++)
            assert_float_equal(d_decay[i], all.d_decay[i], 1e-12 * (1 + fabs(d_decay[i])));
        free_outcome(&all);
        free_inputs(&in);
    }
}

/* [rows, heads, dim] with gaps gives the same bits, and gaps are left alone. */
static void test_layouts(void **state) {
    (void)state;
    plsh_error error;
    plsh_head head[ALL_HEADS];
    all_methods(head);
    enum { N = 210, D = 9, DV = 13, PAD = 3 };
    plsh_attention a = {.heads = ALL_HEADS,
                        .kv_heads = 2,
                        .queries = N,
                        .keys = N,
                        .head_dim = D,
                        .value_dim = DV,
                        .causal = true,
                        .head = head,
                        .head_count = ALL_HEADS};
    inputs in = make_inputs(&a, 30);
    outcome plain;
    assert_ok(run(&a, in.q, in.k, in.v, in.d_o, &plain, &error));
    struct {
        const float *from;
        const float *result;
        float *in, *out;
        int64_t heads, dim;
    } array[4] = {{in.q, plain.d_q, NULL, NULL, ALL_HEADS, D},
                  {in.k, plain.d_k, NULL, NULL, 2, D},
                  {in.v, plain.d_v, NULL, NULL, 2, DV},
                  {in.d_o, plain.o, NULL, NULL, ALL_HEADS, DV}};
    for (int x = 0; x < 4; x++) {
        int64_t heads = array[x].heads, dim = array[x].dim, step = dim + PAD;
        size_t size = (size_t)(N * heads * step) * 4;
        array[x].in = malloc(size);
        array[x].out = malloc(size);
        for (int64_t i = 0; i < N * heads * step; i++) array[x].in[i] = array[x].out[i] = 77.0f;
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < N; i++)
                for (int64_t c = 0; c < dim; c++) {
                    int64_t at = (i * heads + h) * step + c, from = (h * N + i) * dim + c;
                    array[x].in[at] = array[x].from[from];
                    if (x == 3) array[x].out[at] = plain.o[from];
                }
    }
    a.q = (plsh_layout){D + PAD, ALL_HEADS * (D + PAD)};
    a.k = (plsh_layout){D + PAD, 2 * (D + PAD)};
    a.v = (plsh_layout){DV + PAD, 2 * (DV + PAD)};
    a.o = (plsh_layout){DV + PAD, ALL_HEADS * (DV + PAD)};
    plsh_backward b = {.q = array[0].in,
                       .k = array[1].in,
                       .v = array[2].in,
                       .o = array[3].out,
                       .lse = plain.lse,
                       .d_o = array[3].in,
                       .d_q = array[0].out,
                       .d_k = array[1].out,
                       .d_v = array[2].out};
    assert_ok(run_backward(&a, &b, NULL, &error));
    for (int x = 0; x < 4; x++) {
        int64_t heads = array[x].heads, dim = array[x].dim, step = dim + PAD;
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < N; i++)
                for (int64_t c = 0; c < step; c++) {
                    float got = array[x].out[(i * heads + h) * step + c];
                    assert_true(got == (c < dim ? array[x].result[(h * N + i) * dim + c] : 77.0f));
                }
        free(array[x].in);
        free(array[x].out);
    }
    free_outcome(&plain);
    free_inputs(&in);
}

/* What is not asked for is not needed for the rest. */
static void test_some_outputs(void **state) {
    (void)state;
    plsh_error error;
    plsh_head head[ALL_HEADS];
    all_methods(head);
    plsh_attention a = {.heads = ALL_HEADS,
                        .kv_heads = 4,
                        .queries = 200,
                        .keys = 220,
                        .head_dim = 8,
                        .head = head,
                        .head_count = ALL_HEADS};
    inputs in = make_inputs(&a, 40);
    outcome all, some;
    assert_ok(run(&a, in.q, in.k, in.v, in.d_o, &all, &error));
    for (int asked = 0; asked < 16; asked++) {
        make_outcome(&a, &some);
        plsh_backward b = {.q = in.q,
                           .k = in.k,
                           .v = in.v,
                           .o = all.o,
                           .lse = all.lse,
                           .d_o = in.d_o,
                           .d_q = asked & 1 ? some.d_q : NULL,
                           .d_k = asked & 2 ? some.d_k : NULL,
                           .d_v = asked & 4 ? some.d_v : NULL,
                           .d_decay = asked & 8 ? some.d_decay : NULL};
        assert_ok(run_backward(&a, &b, NULL, &error));
        if (asked & 1) assert_same("dq alone", some.d_q, all.d_q, in.q_count * 4);
        if (asked & 2) assert_same("dk alone", some.d_k, all.d_k, in.k_count * 4);
        if (asked & 4) assert_same("dv alone", some.d_v, all.d_v, in.v_count * 4);
        if (asked & 8) assert_same("d_decay alone", some.d_decay, all.d_decay, ALL_HEADS * 16);
        free_outcome(&some);
    }
    free_outcome(&all);
    free_inputs(&in);
}

/* Halves are widened and nothing else: the bits of the same numbers as float32. */
static void test_halves(void **state) {
    (void)state;
    plsh_error error;
    plsh_head head[ALL_HEADS];
    all_methods(head);
    plsh_attention a = {.heads = ALL_HEADS,
                        .kv_heads = 2,
                        .queries = 150,
                        .keys = 170,
                        .head_dim = 20,
                        .causal = true,
                        .head = head,
                        .head_count = ALL_HEADS};
    inputs in = make_inputs(&a, 50);
    float *wide[] = {in.q, in.k, in.v};
    int64_t counts[] = {in.q_count, in.k_count, in.v_count};
    uint16_t *half[3];
    for (int dtype = PLSH_DTYPE_FLOAT16; dtype <= PLSH_DTYPE_BFLOAT16; dtype++) {
        for (int x = 0; x < 3; x++) {
            half[x] = malloc((size_t)counts[x] * 2);
            for (int64_t i = 0; i < counts[x]; i++) {
                uint32_t bits;
                memcpy(&bits, &wide[x][i], 4);
                half[x][i] = (uint16_t)(bits >> 16); /* bfloat16, cut */
                bits &= 0xffff0000;
                if (dtype == PLSH_DTYPE_FLOAT16) { /* a pattern of a half in [0.25, 8) */
                    half[x][i] = (uint16_t)((bits >> 16 & 0x8000) | 0x3400 | (bits >> 16 & 0x13ff));
                    wide[x][i] = plsh_half_to_float(half[x][i]);
                } else {
                    memcpy(&wide[x][i], &bits, 4);
                }
            }
        }
        outcome narrow, full;
        a.dtype = PLSH_DTYPE_FLOAT32;
        assert_ok(run(&a, in.q, in.k, in.v, in.d_o, &full, &error));
        a.dtype = (plsh_dtype)dtype;
        assert_ok(run(&a, half[0], half[1], half[2], in.d_o, &narrow, &error));
        assert_same_outcome("halves", &full, &narrow, &in);
        free_outcome(&full);
        free_outcome(&narrow);
        for (int x = 0; x < 3; x++) free(half[x]);
    }
    free_inputs(&in);
}

/* Gradients are linear in dO: those of 2 a are twice those of a, to the bit; of a + b the sums. */
static void test_linear(void **state) {
    (void)state;
    plsh_error error;
    plsh_head head[ALL_HEADS];
    all_methods(head);
    plsh_attention a = {.heads = ALL_HEADS,
                        .kv_heads = 4,
                        .queries = 190,
                        .keys = 190,
                        .head_dim = 16,
                        .causal = true,
                        .head = head,
                        .head_count = ALL_HEADS};
    inputs x = make_inputs(&a, 60), y = make_inputs(&a, 70);
    float *sum = malloc((size_t)x.o_count * 4), *twice = malloc((size_t)x.o_count * 4);
    for (int64_t i = 0; i < x.o_count; i++) {
        sum[i] = x.d_o[i] + y.d_o[i];
        twice[i] = 2 * x.d_o[i];
    }
    outcome one, two, both, doubled;
    assert_ok(run(&a, x.q, x.k, x.v, x.d_o, &one, &error));
    assert_ok(run(&a, x.q, x.k, x.v, y.d_o, &two, &error));
    assert_ok(run(&a, x.q, x.k, x.v, sum, &both, &error));
    assert_ok(run(&a, x.q, x.k, x.v, twice, &doubled, &error));
    const float *p[3][4] = {{one.d_q, two.d_q, both.d_q, doubled.d_q},
                            {one.d_k, two.d_k, both.d_k, doubled.d_k},
                            {one.d_v, two.d_v, both.d_v, doubled.d_v}};
    const int64_t counts[] = {x.q_count, x.k_count, x.v_count};
    for (int z = 0; z < 3; z++) {
        for (int64_t i = 0; i < counts[z]; i++) {
            assert_true(p[z][3][i] == 2 * p[z][0][i]);
            double want = (double)p[z][0][i] + (double)p[z][1][i];
            assert_float_equal(p[z][2][i], want, 2e-5);
        }
    }
    free(sum);
    free(twice);
    outcome *all[] = {&one, &two, &both, &doubled};
    for (int i = 0; i < 4; i++) free_outcome(all[i]);
    free_inputs(&x);
    free_inputs(&y);
}

/* A key or value that is not finite does not reach the gradients of the queries before it. */
static void test_masked_nan(void **state) {
    (void)state;
    plsh_error error;
    plsh_head head[ALL_HEADS];
    all_methods(head);
    plsh_attention a = {.heads = ALL_HEADS,
                        .queries = 120,
                        .keys = 120,
                        .head_dim = 8,
                        .causal = true,
                        .head = head,
                        .head_count = ALL_HEADS};
    inputs in = make_inputs(&a, 80);
    outcome clean, dirty;
    assert_ok(run(&a, in.q, in.k, in.v, in.d_o, &clean, &error));
    for (int64_t h = 0; h < ALL_HEADS; h++)
        for (int c = 0; c < 8; c++) {
            in.k[(h * 120 + 119) * 8 + c] = NAN;
            in.v[(h * 120 + 119) * 8 + c] = NAN;
        }
    assert_ok(run(&a, in.q, in.k, in.v, in.d_o, &dirty, &error));
    for (int64_t i = 0; i < in.q_count; i++)
        if (i / 8 % 120 < 119) assert_float_equal(clean.d_q[i], dirty.d_q[i], 1e-5);
    free_outcome(&clean);
    free_outcome(&dirty);
    free_inputs(&in);
}

static void test_refusals(void **state) {
    (void)state;
    plsh_error error;
    plsh_decay decay = plsh_decay_alibi(4);
    plsh_head head = make_head(PLSH_METHOD_DENSE, &decay, 0);
    plsh_attention a = {.heads = 1,
                        .queries = 5,
                        .keys = 5,
                        .head_dim = 4,
                        .head = &head,
                        .head_count = 1,
                        .check_finite = true};
    inputs in = make_inputs(&a, 90);
    outcome out;
    assert_ok(run(&a, in.q, in.k, in.v, in.d_o, &out, &error));
    plsh_backward b = {
        .q = in.q, .k = in.k, .v = in.v, .o = out.o, .lse = out.lse, .d_o = in.d_o, .d_q = out.d_q};
    plsh_backward missing = b;
    missing.lse = NULL;
    assert_fails(run_backward(&a, &missing, NULL, &error), PLSH_STATUS_INVALID, "lse");
    in.d_o[13] = NAN;
    assert_fails(run_backward(&a, &b, NULL, &error), PLSH_STATUS_NOT_FINITE,
                 "d_o is not finite at head 0, row 3, column 1");
    in.k[7] = INFINITY;
    assert_fails(run_backward(&a, &b, NULL, &error), PLSH_STATUS_NOT_FINITE, "row 1, column 3");
    free_outcome(&out);
    free_inputs(&in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_attention), cmocka_unit_test(test_golden_masks),
        cmocka_unit_test(test_differences),      cmocka_unit_test(test_methods),
        cmocka_unit_test(test_threads),          cmocka_unit_test(test_packed),
        cmocka_unit_test(test_layouts),          cmocka_unit_test(test_some_outputs),
        cmocka_unit_test(test_halves),           cmocka_unit_test(test_linear),
        cmocka_unit_test(test_masked_nan),       cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
