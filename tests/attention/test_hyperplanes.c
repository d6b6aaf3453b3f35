/* tests: the sampled methods on points, whose blocks are cells of hyperplanes. */
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "plsh/cells.h"
#include "support/plane_oracle.h"
#include "support/problem.h"

static double unit(uint64_t seed, int64_t i) {
    return plsh_random_unit(plsh_random_at((plsh_stream){seed, 7, 1001}, (uint64_t)i).word[0]);
}

/* Points in a square, some of them without a position if `holes`. */
static float *make_points(uint64_t seed, int64_t rows, int dim, bool holes) {
    float *points = malloc(((size_t)(rows * dim) + 1) * sizeof *points);
    for (int64_t i = 0; i < rows * dim; i++)
        points[i] = holes && unit(seed + 1, i / dim) < 0.1 ? NAN : (float)(16 * unit(seed, i));
    return points;
}

static plsh_head head_of(plsh_method method, plsh_decay decay, int h, int64_t samples) {
    plsh_head head = plsh_head_default(method, &decay);
    head.partition.scheme = PLSH_SCHEME_HYPERPLANES;
    head.partition.samples = samples;
    head.partition.head = (uint32_t)h;
    return head;
}

/* M~ of every query and key, from the labels of each row and the definition. */
static double *find_weights(const plsh_attention *a, const plsh_head *heads) {
    const int dim = a->positions.dim;
    const size_t pairs = (size_t)(a->queries * a->keys), n = (size_t)(a->queries + a->keys);
    double *weights = calloc((size_t)a->heads * pairs + 1, sizeof *weights);
    float *points = malloc((n * (size_t)dim + 1) * sizeof *points);
    int32_t *label = malloc((n + 1) * sizeof *label);
    for (int64_t h = 0; h < a->heads; h++) {
        const int64_t set = a->positions.sets == 1 ? 0 : h;
        const size_t bytes = sizeof *points * (size_t)dim;
        memcpy(points, a->positions.key + set * a->keys * dim, bytes * (size_t)a->keys);
        memcpy(points + a->keys * dim, a->positions.query + set * a->queries * dim,
               bytes * (size_t)a->queries);
        const plsh_partition *of = &heads[h].partition;
        for (int64_t m = 0; m < of->samples; m++) {
            plsh_error error;
            assert_ok(plsh_cells_label(of, m, 1, (plsh_point_set){dim, (int64_t)n, points}, label,
                                       1, &error));
            for (size_t x = 0; x < pairs; x++) {
                const int32_t key = label[x % (size_t)a->keys];
                const int32_t query = label[(size_t)a->keys + x / (size_t)a->keys];
                const bool every = query == PLSH_CELL_EVERY || key == PLSH_CELL_EVERY;
                if (every || query == key)
                    weights[(size_t)h * pairs + x] += 1 / (double)of->samples;
            }
        }
    }
    free(points);
    free(label);
    return weights;
}

static void check_problem(problem *p, const char *what) {
    plsh_error error;
    double *weights = find_weights(&p->a, p->head);
    const plane_case c = {&p->a, p->head, p->dropout, weights};
    double_plane_result exact = double_plane_attend(&c, p->q, p->k, p->v, p->d_o);
    float_plane_result plain = float_plane_attend(&c, p->q, p->k, p->v, p->d_o);
    assert_ok(problem_forward(p, &error));
    assert_ok(problem_backward(p, &error));
    plane_compare(what, "o", p->o, plain.o, exact.o, p->o_count, 1e-6);
    plane_compare(what, "lse", p->lse, plain.lse, exact.lse, p->rows, 1e-6);
    plane_compare(what, "d_q", p->d_q, plain.d_q, exact.d_q, p->q_count, 1e-6);
    plane_compare(what, "d_k", p->d_k, plain.d_k, exact.d_k, p->k_count, 1e-6);
    plane_compare(what, "d_v", p->d_v, plain.d_v, exact.d_v, p->v_count, 1e-6);
    for (int64_t i = 0; i < 2 * p->a.heads; i++) {
        const double size = fabs(exact.d_decay[i]), off = fabs(p->d_decay[i] - exact.d_decay[i]);
        if (!(off <= 1e-3 * size + 1e-3))
            fail_msg("%s: d_decay[%d] is %g, not %g", what, (int)i, p->d_decay[i],
                     exact.d_decay[i]);
    }
    double_plane_free(&exact);
    float_plane_free(&plain);
    free(weights);
}

/* plsh and masks, forward and backward: grouped heads, packed sequences, positions per head, points
 * without a position, queries elsewhere than keys, causal or not, dropout. */
static void test_against_oracle(void **state) {
    (void)state;
    static const int64_t query_offsets[] = {0, 40, 40, 139, 200};
    static const int64_t key_offsets[] = {0, 60, 70, 169, 300};
    const plsh_decay decays[] = {
        {.kind = PLSH_DECAY_ALIBI, .a = 5},
        {.kind = PLSH_DECAY_KERPLE_LOG, .a = 1.5, .b = 0.5},
        {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.4, .b = 0.7},
        {.kind = PLSH_DECAY_ALIBI, .a = 2, .limit = 0.2},
    };
    for (int i = 0; i < 32; i++) {
        const bool packed = i & 1, sets = i & 2, causal = i & 4, holes = i & 8;
        const plsh_method method = i & 16 ? PLSH_METHOD_MASKS : PLSH_METHOD_PLSH;
        const int dim = 1 + i % 3;
        float *key = make_points(11, (sets ? 4 : 1) * 300, dim, holes);
        float *query = make_points(12, (sets ? 4 : 1) * 200, dim, holes);
        plsh_attention a = {.heads = 4,
                            .kv_heads = 2,
                            .queries = 200,
                            .keys = 300,
                            .head_dim = 24,
                            .value_dim = 13,
                            .causal = causal,
                            .positions = {dim, sets ? 4 : 1, key, query}};
        if (packed) {
            a.sequences = 4;
            a.query_offsets = query_offsets;
            a.key_offsets = key_offsets;
        }
        problem *p = problem_make(a, 5);
        for (int h = 0; h < 4; h++) p->head[h] = head_of(method, decays[(h + i) % 4], h, 7);
        if (i % 5 == 0) p->dropout = (plsh_attention_dropout){.p = 0.25, .seed = 3};
        char what[64];
        snprintf(what, sizeof what, "case %d", i);
        check_problem(p, what);
        problem_free(p);
        free(key);
        free(query);
    }
}

/* Queries that are the last keys: their positions need not be given. */
static void test_last_keys(void **state) {
    (void)state;
    plsh_error error;
    float *points = make_points(3, 150, 2, true);
    plsh_attention a = {.heads = 2,
                        .queries = 100,
                        .keys = 150,
                        .head_dim = 16,
                        .positions = {2, 1, points, points + 2 * 50}};
    float *first = NULL;
    for (int i = 0; i < 2; i++) {
        problem *p = problem_make(a, 5);
        for (int h = 0; h < 2; h++)
            p->head[h] = head_of(PLSH_METHOD_PLSH, plsh_decay_alibi(4), h, 9);
        assert_ok(problem_forward(p, &error));
        if (i == 0) {
            first = malloc(p->o_count * sizeof *first);
            memcpy(first, p->o, p->o_count * sizeof *first);
        } else {
            assert_memory_equal(first, p->o, p->o_count * sizeof *first);
        }
        problem_free(p);
        a.positions.query = NULL;
    }
    free(first);
    free(points);
}

/* The cells are labels: given as the user's, every sampled method has the same bits, and those of
 * one thread are those of three. */
static void test_as_labels(void **state) {
    (void)state;
    plsh_error error;
    enum { N = 250, SAMPLES = 6 };
    float *points = make_points(3, N, 2, false);
    static int32_t labels[2][SAMPLES][N];
    const plsh_method methods[] = {PLSH_METHOD_PLSH, PLSH_METHOD_MASKS, PLSH_METHOD_MEAN};
    for (int m = 0; m < 3; m++) {
        problem *p[3];
        for (int x = 0; x < 3; x++) {
            plsh_attention a = {.heads = 2,
                                .queries = N,
                                .keys = N,
                                .head_dim = 16,
                                .causal = m == 1,
                                .threads = x == 1 ? 3 : 1};
            if (x < 2) a.positions = (plsh_positions){2, 1, points, NULL};
            p[x] = problem_make(a, 5);
            for (int h = 0; h < 2; h++) {
                p[x]->head[h] = head_of(methods[m], plsh_decay_alibi(4), h, SAMPLES);
                plsh_partition *set = &p[x]->head[h].partition;
                if (x < 2) continue;
                assert_ok(plsh_cells_label(set, 0, SAMPLES, (plsh_point_set){2, N, points},
                                           labels[h][0], 1, &error));
                set->scheme = PLSH_SCHEME_LABELS;
                set->labels = labels[h][0];
                set->label_count = N;
            }
            assert_ok(problem_forward(p[x], &error));
            assert_ok(problem_backward(p[x], &error));
            assert_memory_equal(p[x]->o, p[0]->o, p[0]->o_count * sizeof(float));
            assert_memory_equal(p[x]->lse, p[0]->lse, p[0]->rows * sizeof(float));
            assert_memory_equal(p[x]->d_q, p[0]->d_q, p[0]->q_count * sizeof(float));
            assert_memory_equal(p[x]->d_k, p[0]->d_k, p[0]->k_count * sizeof(float));
            assert_memory_equal(p[x]->d_v, p[0]->d_v, p[0]->v_count * sizeof(float));
        }
        for (int x = 0; x < 3; x++) problem_free(p[x]);
    }
    free(points);
}

/* A certificate bounds the distance to the exact result, of a dense call on the same points; with
 * many samples it is small. */
static void test_certificate(void **state) {
    (void)state;
    plsh_error error;
    enum { N = 140 };
    for (int i = 0; i < 12; i++) {
        float *points = make_points((uint64_t)i, N, 1 + i % 3, i % 2);
        problem *p = problem_make((plsh_attention){.heads = 1,
                                                   .queries = N,
                                                   .keys = N,
                                                   .head_dim = 8,
                                                   .causal = i % 4 == 0,
                                                   .positions = {1 + i % 3, 1, points, NULL}},
                                  (uint64_t)i);
        plsh_head *head = &p->head[0];
        *head = head_of(i % 3 == 2 ? PLSH_METHOD_MEAN : PLSH_METHOD_PLSH, plsh_decay_alibi(6), 0,
                        i < 6 ? 5 : 2000);
        if (i % 5 == 1)
            head->partition.decay = (plsh_decay){PLSH_DECAY_KERPLE_LOG, 1.5, 1, 0, 0, 0};
        float certificate[N];
        plsh_plan *plan;
        assert_ok(plsh_plan_create(&p->a, &plan, &error));
        void *workspace = aligned_alloc(64, plsh_plan_workspace(plan));
        assert_ok(plsh_plan_forward(
            plan,
            &(plsh_forward){.q = p->q, .k = p->k, .v = p->v, .o = p->o, .certificate = certificate},
            workspace, NULL, &error));
        free(workspace);
        plsh_plan_destroy(plan);
        float *exact = malloc(p->o_count * sizeof *exact);
        head->method = PLSH_METHOD_DENSE;
        assert_ok(plsh_attend(&p->a, p->q, p->k, p->v, exact, NULL, &error));
        double most = 0;
        for (int64_t r = 0; r < N; r++) {
            double off = 0;
            for (int c = 0; c < 8; c++)
                off = fmax(off, fabs((double)p->o[r * 8 + c] - (double)exact[r * 8 + c]));
            if (!(off <= (double)certificate[r] + 1e-6))
                fail_msg("case %d, row %d: off by %g, certified %g", i, (int)r, off,
                         (double)certificate[r]);
            most = fmax(most, (double)certificate[r]);
        }
        if (i >= 6 && i % 3 != 2 && !(most < 0.6)) fail_msg("case %d: certified %g", i, most);
        free(exact);
        problem_free(p);
        free(points);
    }
}

/* As the number of samples grows, the result becomes that of dense. */
static void test_converges(void **state) {
    (void)state;
    plsh_error error;
    enum { N = 200 };
    float *points = make_points(9, N, 2, true);
    problem *p = problem_make(
        (plsh_attention){
            .heads = 1, .queries = N, .keys = N, .head_dim = 8, .positions = {2, 1, points, NULL}},
        7);
    double error_of[2] = {0, 0};
    float *exact = malloc(p->o_count * sizeof *exact);
    p->head[0] = head_of(PLSH_METHOD_DENSE, plsh_decay_alibi(4), 0, 1);
    assert_ok(plsh_attend(&p->a, p->q, p->k, p->v, exact, NULL, &error));
    for (int x = 0; x < 2; x++) {
        p->head[0] = head_of(PLSH_METHOD_PLSH, plsh_decay_alibi(4), 0, x ? 1600 : 16);
        assert_ok(problem_forward(p, &error));
        for (size_t i = 0; i < p->o_count; i++)
            error_of[x] += pow((double)p->o[i] - (double)exact[i], 2);
    }
    if (!(error_of[1] < error_of[0] / 40 && error_of[1] > 0)) /* 100 times less is expected */
        fail_msg("16 samples: %g, 1600 samples: %g", error_of[0], error_of[1]);
    free(exact);
    free(points);
    problem_free(p);
}

static void test_refused(void **state) {
    (void)state;
    plsh_error error;
    float points[4] = {0, 0, 1, 1}, far[4] = {0, 0, 1e6f, 1e6f}, x[2 * 8] = {0}, o[2 * 8];
    plsh_head head = head_of(PLSH_METHOD_PLSH, plsh_decay_alibi(4), 0, 3);
    plsh_attention a = {.heads = 1,
                        .queries = 2,
                        .keys = 2,
                        .head_dim = 8,
                        .positions = {2, 1, points, NULL},
                        .head = &head,
                        .head_count = 1};
    assert_ok(plsh_attend(&a, x, x, x, o, NULL, &error));
    head.partition.scheme = PLSH_SCHEME_INTEGER;
    assert_fails(plsh_attend(&a, x, x, x, o, NULL, &error), PLSH_STATUS_INVALID,
                 "need scheme hyperplanes");
    head = head_of(PLSH_METHOD_PLSH, (plsh_decay){.kind = PLSH_DECAY_TRIANGLE, .a = 2}, 0, 3);
    assert_fails(plsh_attend(&a, x, x, x, o, NULL, &error), PLSH_STATUS_UNSUPPORTED,
                 "not a mixture of exponentials");
    head = head_of(PLSH_METHOD_PLSH, plsh_decay_alibi(4), 0, 3);
    a.positions.dim = 0;
    assert_fails(plsh_attend(&a, x, x, x, o, NULL, &error), PLSH_STATUS_UNSUPPORTED,
                 "needs their positions");
    a.positions = (plsh_positions){2, 1, far, NULL};
    far[0] = 1e6f + 1;
    far[1] = 1e6f;
    head.partition.decay.a = 0.05;
    assert_fails(plsh_attend(&a, x, x, x, o, NULL, &error), PLSH_STATUS_INVALID,
                 "head 0: a point lies");
}

static plsh_status plan_once(void *context, plsh_error *error) {
    plsh_plan *plan;
    plsh_status status = plsh_plan_create(context, &plan, error);
    if (!status) plsh_plan_destroy(plan);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    float points[8] = {0, 0, 1, 1, 2, 2, 3, 3}, others[8] = {1};
    plsh_head head = head_of(PLSH_METHOD_PLSH, plsh_decay_alibi(4), 0, 3);
    plsh_attention a = {.heads = 1,
                        .queries = 4,
                        .keys = 4,
                        .head_dim = 8,
                        .threads = 1,
                        .positions = {2, 1, points, others},
                        .head = &head,
                        .head_count = 1};
    test_every_allocation(plan_once, &a, 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_oracle), cmocka_unit_test(test_last_keys),
        cmocka_unit_test(test_as_labels),      cmocka_unit_test(test_certificate),
        cmocka_unit_test(test_converges),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
