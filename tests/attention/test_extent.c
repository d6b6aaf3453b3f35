/* tests: a plan for up to n rows serves every shorter call with the bits of a plan made for it. */
#include "support/support.h"

#include "plsh/attention.h"
#include "support/problem.h"

#include <stdlib.h>
#include <string.h>

enum { QUERIES = 300, KEYS = 700, DIM = 8, HEADS = 4, SEQUENCES = 3 };

static const double table[] = {1, 0.9, 0.5, 0.3, 0.4, 0.1};
static int32_t labels[4 * KEYS];

static const plsh_decay decays[] = {
    {.kind = PLSH_DECAY_ALIBI, .a = 20},
    {.kind = PLSH_DECAY_KERPLE_LOG, .a = 3, .b = 0.5},
    {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.3, .b = 0.7, .limit = 1e-6},
    {.kind = PLSH_DECAY_TABLE, .table = table, .table_size = 6},
};
enum { DECAYS = sizeof decays / sizeof *decays };

/* Every method, and the sampled ones once more with labels that are not contiguous. */
static void set_heads(plsh_head *head, int method, int decay) {
    for (int h = 0; h < HEADS; h++) {
        head[h] = plsh_head_default((plsh_method)(method % 9), &decays[decay]);
        head[h].partition.samples = 4;
        head[h].partition.head = (uint32_t)h;
        head[h].window = 30 + h;
        head[h].block = 50 + h;
        if (method < 9) continue;
        head[h].partition.scheme = PLSH_SCHEME_LABELS;
        head[h].partition.labels = labels;
        head[h].partition.label_count = KEYS;
    }
}

static bool is_served(int method, int decay) {
    bool sampled = method % 9 == PLSH_METHOD_PLSH || method % 9 == PLSH_METHOD_MASKS ||
                   method % 9 == PLSH_METHOD_MEAN;
    if (method % 9 == PLSH_METHOD_AUTO) return false; /* chooses by the plan's lengths */
    if (method >= 9) return sampled;
    return !sampled || decays[decay].kind != PLSH_DECAY_TABLE; /* which is not convex */
}

typedef struct result {
    float o[HEADS * QUERIES * DIM], lse[HEADS * QUERIES], certificate[HEADS * QUERIES];
    float d_q[HEADS * QUERIES * DIM], d_k[HEADS * KEYS * DIM], d_v[HEADS * KEYS * DIM];
    double d_decay[2 * HEADS];
    plsh_stats forward, backward;
} result;

/* Both passes, in workspaces that are no larger than they must be and not zero. */
static void run_both_passes(const plsh_plan *plan, const plsh_extent *extent, const problem *p,
                            result *out) {
    plsh_error error;
    size_t bytes = plsh_plan_workspace(plan), back = plsh_plan_backward_workspace(plan);
    void *workspace = aligned_alloc(64, bytes), *other = aligned_alloc(64, back);
    memset(workspace, 0xff, bytes);
    memset(other, 0xff, back);
    memset(out, 0, sizeof *out);
    const plsh_forward forward = {.q = p->q,
                                  .k = p->k,
                                  .v = p->v,
                                  .o = out->o,
                                  .lse = out->lse,
                                  .certificate = out->certificate,
                                  .extent = extent};
    assert_ok(plsh_plan_forward(plan, &forward, workspace, &out->forward, &error));
    const plsh_backward backward = {.q = p->q,
                                    .k = p->k,
                                    .v = p->v,
                                    .o = out->o,
                                    .lse = out->lse,
                                    .d_o = p->d_o,
                                    .d_q = out->d_q,
                                    .d_k = out->d_k,
                                    .d_v = out->d_v,
                                    .d_decay = out->d_decay,
                                    .extent = extent};
    assert_ok(plsh_plan_backward(plan, &backward, other, &out->backward, &error));
    free(workspace);
    free(other);
}

static problem *make_problem(void) {
    const plsh_attention a = {
        .heads = HEADS, .kv_heads = 2, .queries = QUERIES, .keys = KEYS, .head_dim = DIM};
    for (int i = 0; i < 4 * KEYS; i++) labels[i] = i * 7 % 5;
    return problem_make(a, 3);
}

/* The plan of a large shape, cut to `extent`, against a plan of that shape. */
static void compare(problem *p, const plsh_plan *large, const plsh_extent *extent,
                    const plsh_head *head, bool causal, int threads) {
    static result expected, found;
    plsh_error error;
    plsh_attention a = p->a;
    a.causal = causal;
    a.head = head;
    a.head_count = HEADS;
    a.threads = threads;
    a.queries = extent->queries;
    a.keys = extent->keys;
    a.sequences = extent->sequences;
    a.query_offsets = extent->query_offsets;
    a.key_offsets = extent->key_offsets;
    plsh_plan *small;
    assert_ok(plsh_plan_create(&a, &small, &error));
    run_both_passes(small, NULL, p, &expected);
    run_both_passes(large, extent, p, &found);
    assert_memory_equal(&found, &expected, sizeof found);
    plsh_plan_destroy(small);
}

static const int64_t query_offsets[][SEQUENCES + 1] = {
    {0, 100, 200, 300}, {0, 7, 7, 50}, {0, 150, 151, 290}, {0, 0, 40, 41}};
static const int64_t key_offsets[][SEQUENCES + 1] = {
    {0, 300, 500, 700}, {0, 260, 261, 561}, {0, 150, 450, 600}, {0, 300, 340, 400}};

static void test_bits(void **state) {
    (void)state;
    plsh_error error;
    problem *p = make_problem();
    static const int64_t lengths[][2] = {{300, 700}, {1, 1},    {96, 96},   {97, 400}, {0, 20},
                                         {300, 513}, {13, 512}, {200, 256}, {50, 257}};
    for (int method = 0; method < 18; method++)
        for (int decay = 0; decay < DECAYS; decay++)
            for (int causal = 0; causal < 2; causal++) {
                if (!is_served(method, decay)) continue;
                plsh_head head[HEADS];
                set_heads(head, method, decay);
                plsh_attention a = p->a;
                a.causal = causal;
                a.head = head;
                a.head_count = HEADS;
                a.threads = 2;
                plsh_plan *plan;
                assert_ok(plsh_plan_create(&a, &plan, &error));
                for (int i = 0; i < 9; i++) {
                    if ((i + method + decay) % 3 != 0) continue; /* a third of them each time */
                    const plsh_extent extent = {.queries = lengths[i][0], .keys = lengths[i][1]};
                    compare(p, plan, &extent, head, causal, 1 + i % 2);
                }
                plsh_plan_destroy(plan);
                a.sequences = SEQUENCES;
                a.query_offsets = query_offsets[0];
                a.key_offsets = key_offsets[0];
                assert_ok(plsh_plan_create(&a, &plan, &error));
                int i = 1 + (method + decay + causal) % 3;
                const plsh_extent extent = {query_offsets[i][SEQUENCES],
                                            key_offsets[i][SEQUENCES],
                                            SEQUENCES,
                                            query_offsets[i],
                                            key_offsets[i],
                                            NULL};
                compare(p, plan, &extent, head, causal, 2);
                const plsh_extent one = {.queries = 20, .keys = 290};
                compare(p, plan, &one, head, causal, 2);
                plsh_plan_destroy(plan);
            }
    problem_free(p);
}

/* A prompt in chunks over keys that lie with room to grow: the rows of one pass over all of it. */
static void test_chunks(void **state) {
    (void)state;
    plsh_error error;
    problem *p = make_problem();
    static const int64_t chunks[] = {96, 7, 60, 1, 36}; /* 200 */
    static float all[HEADS * 200 * DIM], part[HEADS * 96 * DIM];
    plsh_head head[HEADS];
    set_heads(head, PLSH_METHOD_WINDOW, 0);
    plsh_attention a = p->a;
    a.causal = true;
    a.head = head;
    a.head_count = HEADS;
    a.k = a.v = (plsh_layout){KEYS * DIM, DIM};
    a.queries = a.keys = 200;
    assert_ok(plsh_attend(&a, p->q, p->k, p->v, all, NULL, &error));
    a.queries = 96;
    a.keys = KEYS;
    plsh_plan *plan;
    assert_ok(plsh_plan_create(&a, &plan, &error));
    void *workspace = aligned_alloc(64, plsh_plan_workspace(plan));
    for (int64_t i = 0, done = 0; i < 5; done += chunks[i++]) {
        float *q = malloc((size_t)(HEADS * chunks[i] * DIM) * sizeof *q);
        for (int64_t h = 0; h < HEADS; h++)
            memcpy(q + h * chunks[i] * DIM, p->q + (h * 200 + done) * DIM,
                   (size_t)(chunks[i] * DIM) * sizeof *q);
        const plsh_extent extent = {.queries = chunks[i], .keys = done + chunks[i]};
        const plsh_forward arrays = {.q = q, .k = p->k, .v = p->v, .o = part, .extent = &extent};
        assert_ok(plsh_plan_forward(plan, &arrays, workspace, NULL, &error));
        for (int64_t x = 0; x < HEADS * chunks[i] * DIM; x++) {
            int64_t h = x / (chunks[i] * DIM), rest = x % (chunks[i] * DIM);
            assert_float_equal(part[x], all[(h * 200 + done) * DIM + rest], 2e-6);
        }
        free(q);
    }
    free(workspace);
    plsh_plan_destroy(plan);
    problem_free(p);
}

static void test_what_does_not_fit_is_refused(void **state) {
    (void)state;
    plsh_error error;
    problem *p = make_problem();
    plsh_head head[HEADS];
    set_heads(head, PLSH_METHOD_EXACT, 1);
    plsh_attention a = p->a;
    a.head = head;
    a.head_count = HEADS;
    plsh_plan *plan;
    assert_ok(plsh_plan_create(&a, &plan, &error));
    static const struct {
        plsh_extent extent;
        const char *text;
    } bad[] = {{{.queries = 301, .keys = 700}, "301 queries"},
               {{.queries = 3, .keys = 701}, "701 keys"},
               {{.queries = 3, .keys = 2}, "3 queries and 2 keys"},
               {{.queries = -1, .keys = 2}, "-1 queries"},
               {{.queries = INT64_MIN, .keys = INT64_MAX}, "queries"},
               {{.queries = 3, .keys = 9, .sequences = 1}, "query_offsets"},
               {{50, 561, SEQUENCES, query_offsets[1], key_offsets[1], NULL}, "3 sequences"}};
    for (int i = 0; i < 7; i++) {
        const plsh_forward forward = {.extent = &bad[i].extent};
        const plsh_backward backward = {.extent = &bad[i].extent};
        assert_fails(plsh_plan_forward(plan, &forward, NULL, NULL, &error), PLSH_STATUS_INVALID,
                     bad[i].text);
        assert_fails(plsh_plan_backward(plan, &backward, NULL, NULL, &error), PLSH_STATUS_INVALID,
                     bad[i].text);
    }
    const plsh_extent good = {.queries = 3, .keys = 9};
    const plsh_forward arrays = {.extent = &good};
    assert_fails(plsh_plan_forward(plan, &arrays, NULL, NULL, &error), PLSH_STATUS_INVALID, "NULL");
    plsh_plan_destroy(plan);
    a.sequences = SEQUENCES;
    a.query_offsets = query_offsets[0];
    a.key_offsets = key_offsets[0];
    assert_ok(plsh_plan_create(&a, &plan, &error));
    const plsh_extent longer = {.queries = 3, .keys = 301};
    const plsh_forward long_one = {.extent = &longer};
    assert_fails(plsh_plan_forward(plan, &long_one, NULL, NULL, &error), PLSH_STATUS_INVALID,
                 "a sequence of 301 keys; the plan's longest has 300");
    plsh_plan_destroy(plan);
    problem_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests_name("extent", tests, NULL, NULL);
}
