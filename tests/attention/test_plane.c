/* tests: positions that are points: every method and gradient against double. */
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "support/oracle.h"
#include "support/plane_oracle.h"
#include "support/problem.h"

/* ---- Points --------------------------------------------------------------------------------- */

typedef enum cloud { RANDOM, GRID, EQUAL, LINE, SCALES, FAR, HOLES, ROWS, CLOUDS } cloud;

static double unit(uint64_t seed, int64_t i) {
    return plsh_random_unit(plsh_random_at((plsh_stream){seed, 7, 1001}, (uint64_t)i).word[0]);
}

/* Coordinate i of point `row`. */
static float coordinate(cloud kind, uint64_t seed, int64_t row, int i, int dim) {
    const int64_t number = row * dim + i, side = 9;
    const double u = unit(seed, number);
    switch (kind) {
    case GRID: return (float)(i == 0 ? row % side : i == 1 ? row / side % side : row / side / side);
    case EQUAL: return 4.25f;
    case LINE: return (float)(40 * unit(seed, row * dim) * (i + 1)); /* a line through the origin */
    case SCALES: return (float)(pow(10, 24 * unit(seed + 1, number) - 12) * (u < 0.5 ? -1 : 1));
    case FAR: return (float)(1e6 + 20 * u);
    case HOLES: return unit(seed + 2, row) < 0.2 ? NAN : (float)(20 * u);
    case ROWS: return i == 0 ? (float)row : 0.0f;
    default: return (float)(20 * u);
    }
}

static float *make_points(cloud kind, uint64_t seed, int64_t sets, int64_t rows, int dim) {
    float *points = malloc(((size_t)(sets * rows * dim) + 1) * sizeof *points);
    for (int64_t i = 0; i < sets * rows * dim; i++)
        points[i] = coordinate(kind, seed + (uint64_t)(i / dim / rows), i / dim % rows,
                               (int)(i % dim), dim);
    return points;
}

/* ---- Cases ---------------------------------------------------------------------------------- */

static plane_case case_of(const problem *p) {
    return (plane_case){.a = &p->a, .head = p->head, .dropout = p->dropout};
}

/* The gradients by positions; where the queries are the last keys, both parts in one. */
static void compare_positions(problem *p, const char *what, double_plane_result *exact,
                              float_plane_result *plain) {
    plsh_error error;
    const plsh_positions *at = &p->a.positions;
    const plsh_attention *a = &p->a;
    const int64_t whole_q[] = {0, a->queries}, whole_k[] = {0, a->keys};
    const int64_t *q_at = a->sequences ? a->query_offsets : whole_q;
    const int64_t *k_at = a->sequences ? a->key_offsets : whole_k;
    const size_t keys = (size_t)(at->sets * a->keys * at->dim);
    const size_t queries = (size_t)(at->sets * a->queries * at->dim);
    float *d_y = calloc(keys + 1, sizeof *d_y), *d_x = calloc(queries + 1, sizeof *d_x);
    plsh_backward arrays = problem_arrays(p);
    arrays.d_q = arrays.d_k = arrays.d_v = NULL;
    arrays.d_decay = NULL;
    arrays.d_key_positions = d_y;
    if (at->query) arrays.d_query_positions = d_x;
    assert_ok(problem_run_backward(&p->a, &arrays, NULL, &error));
    for (int64_t i = 0; !at->query && i < at->sets * (a->sequences ? a->sequences : 1); i++) {
        const int64_t x = a->sequences ? i % a->sequences : 0;
        const int64_t set = a->sequences ? i / a->sequences : i, count = q_at[x + 1] - q_at[x];
        const int64_t to = (set * a->keys + k_at[x + 1] - count) * at->dim;
        const int64_t from = (set * a->queries + q_at[x]) * at->dim;
        for (int64_t c = 0; c < count * at->dim; c++) {
            exact->d_y[to + c] += exact->d_x[from + c];
            plain->d_y[to + c] += plain->d_x[from + c];
        }
    }
    plane_compare(what, "d_key_positions", d_y, plain->d_y, exact->d_y, keys, 2e-6);
    if (at->query)
        plane_compare(what, "d_query_positions", d_x, plain->d_x, exact->d_x, queries, 2e-6);
    free(d_x);
    free(d_y);
}

/* Runs both passes and compares everything. */
static void check_problem(problem *p, const char *what) {
    plsh_error error;
    const plane_case c = case_of(p);
    double_plane_result exact = double_plane_attend(&c, p->q, p->k, p->v, p->d_o);
    float_plane_result plain = float_plane_attend(&c, p->q, p->k, p->v, p->d_o);
    assert_ok(problem_forward(p, &error));
    compare_positions(p, what, &exact, &plain);
    assert_ok(problem_backward(p, &error));
    plane_compare(what, "o", p->o, plain.o, exact.o, p->o_count, 2e-6);
    plane_compare(what, "lse", p->lse, plain.lse, exact.lse, p->rows, 2e-6);
    plane_compare(what, "d_q", p->d_q, plain.d_q, exact.d_q, p->q_count, 2e-6);
    plane_compare(what, "d_k", p->d_k, plain.d_k, exact.d_k, p->k_count, 2e-6);
    plane_compare(what, "d_v", p->d_v, plain.d_v, exact.d_v, p->v_count, 2e-6);
    for (int64_t i = 0; i < 2 * p->a.heads; i++) {
        const double size = fabs(exact.d_decay[i]), off = fabs(p->d_decay[i] - exact.d_decay[i]);
        const double plain_off = fabs(plain.d_decay[i] - exact.d_decay[i]);
        if (!(off <= 4 * plain_off + 1e-3 * size + 1e-4))
            fail_msg("%s: d_decay[%d] is %g, off by %g, a plain one by %g", what, (int)i,
                     exact.d_decay[i], off, plain_off);
    }
    double_plane_free(&exact);
    float_plane_free(&plain);
}

static plsh_head head_of(plsh_method method, plsh_decay decay) {
    return (plsh_head){.method = method,
                       .partition = {.decay = decay, .samples = 1, .design = PLSH_DESIGN_IID},
                       .radius = 6.5};
}

static problem *make_problem(plsh_attention a, plsh_method method, plsh_decay decay) {
    problem *p = problem_make(a, 5);
    for (int h = 0; h < PROBLEM_HEADS; h++) {
        p->head[h] = head_of(method, decay);
        if (decay.kind == PLSH_DECAY_ALIBI) p->head[h].partition.decay.a *= 1 + h;
    }
    return p;
}

static const plsh_method methods[] = {PLSH_METHOD_DENSE, PLSH_METHOD_EXACT, PLSH_METHOD_WINDOW,
                                      PLSH_METHOD_NONE};
enum { METHODS = sizeof methods / sizeof *methods };

/* Every kind of points, dimension and method. */
static void test_clouds(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 33, 150, 300};
    for (int m = 0; m < METHODS; m++) {
        for (int kind = 0; kind < CLOUDS; kind++) {
            for (int i = 0; i < 12; i++) {
                const int dim = 1 + i % 3;
                const int64_t n = lengths[i % 4];
                float *points = make_points((cloud)kind, (uint64_t)i, 1, n, dim);
                problem *p = make_problem(
                    (plsh_attention){.heads = 2,
                                     .queries = n,
                                     .keys = n,
                                     .head_dim = 20,
                                     .value_dim = 13,
                                     .causal = i % 2,
                                     .positions = {.dim = dim, .sets = 1, .key = points}},
                    methods[m], plsh_decay_alibi(3));
                char what[64];
                snprintf(what, sizeof what, "%s cloud %d case %d", plsh_method_names()[methods[m]],
                         kind, i);
                check_problem(p, what);
                problem_free(p);
                free(points);
            }
        }
    }
}

static void test_sigmas(void **state) {
    (void)state;
    for (int m = 0; m < METHODS; m++) {
        for (int e = -3; e <= 6; e++) {
            float *points = make_points(RANDOM, 3, 1, 200, 2);
            problem *p = make_problem((plsh_attention){.heads = 1,
                                                       .queries = 200,
                                                       .keys = 200,
                                                       .head_dim = 16,
                                                       .positions = {2, 1, points, NULL}},
                                      methods[m], plsh_decay_alibi(pow(10, e)));
            check_problem(p, "sigmas");
            problem_free(p);
            free(points);
        }
    }
}

static void test_decays(void **state) {
    (void)state;
    static const double table[] = {1, 0.7, 0.75, 0.2, 0.1, 0.05};
    const plsh_decay decays[] = {
        {.kind = PLSH_DECAY_ALIBI, .a = 4, .limit = 0.1},
        {.kind = PLSH_DECAY_KERPLE_LOG, .a = 1.5, .b = 2},
        {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.3, .b = 0.7},
        {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.01, .b = 2},
        {.kind = PLSH_DECAY_TRIANGLE, .a = 7},
        {.kind = PLSH_DECAY_TABLE, .table = table, .table_size = 6},
    };
    for (int m = 0; m < METHODS; m++) {
        for (size_t i = 0; i < sizeof decays / sizeof *decays; i++) {
            float *points = make_points(i % 2 ? HOLES : RANDOM, i, 1, 170, 2);
            problem *p = make_problem((plsh_attention){.heads = 1,
                                                       .queries = 170,
                                                       .keys = 170,
                                                       .head_dim = 16,
                                                       .causal = i % 2,
                                                       .positions = {2, 1, points, NULL}},
                                      methods[m], decays[i]);
            check_problem(p, "decays");
            problem_free(p);
            free(points);
        }
    }
}

/* Grouped heads, packed sequences, fewer queries than keys, a set of positions per head, positions
 * of the queries apart, dropout. */
static void test_shapes(void **state) {
    (void)state;
    static const int64_t query_offsets[] = {0, 40, 40, 139, 200};
    static const int64_t key_offsets[] = {0, 60, 70, 169, 300};
    for (int i = 0; i < 8 * METHODS; i++) {
        const bool apart = i & 1, packed = i & 2, sets = i & 4;
        float *key = make_points(RANDOM, 11, sets ? 4 : 1, 300, 2);
        float *query = make_points(HOLES, 12, sets ? 4 : 1, 200, 2);
        plsh_attention a = {.heads = 4,
                            .kv_heads = 2,
                            .queries = 200,
                            .keys = 300,
                            .head_dim = 24,
                            .causal = packed,
                            .positions = {2, sets ? 4 : 1, key, apart ? query : NULL}};
        if (packed) {
            a.sequences = 4;
            a.query_offsets = query_offsets;
            a.key_offsets = key_offsets;
        }
        problem *p = make_problem(a, methods[i / 8], plsh_decay_alibi(2.5));
        check_problem(p, "shapes");
        p->dropout = (plsh_attention_dropout){.p = 0.25, .seed = 3};
        check_problem(p, "dropout");
        problem_free(p);
        free(key);
        free(query);
    }
}

/* Halves are widened; what they hold is exact here. Scores of bfloat16 may be sums of pairs. */
static void test_halves(void **state) {
    (void)state;
    float *points = make_points(RANDOM, 2, 1, 210, 2);
    for (int i = 0; i < 2 * METHODS; i++) {
        const plsh_dtype type = i % 2 ? PLSH_DTYPE_FLOAT16 : PLSH_DTYPE_BFLOAT16;
        plsh_error error;
        uint16_t *halves[3];
        problem *p = make_problem((plsh_attention){.heads = 2,
                                                   .queries = 210,
                                                   .keys = 210,
                                                   .head_dim = 16,
                                                   .positions = {2, 1, points, NULL}},
                                  methods[i / 2], plsh_decay_alibi(3));
        problem_halve(p, type, halves);
        assert_ok(problem_forward(p, &error));
        float *o = malloc(p->o_count * sizeof *o);
        memcpy(o, p->o, p->o_count * sizeof *o);
        p->a.dtype = type;
        assert_ok(plsh_attend(&p->a, halves[0], halves[1], halves[2], p->o, NULL, &error));
        for (size_t x = 0; x < p->o_count; x++)
            assert_true(fabsf(o[x] - p->o[x]) <= (type == PLSH_DTYPE_FLOAT16 ? 0.0f : 3e-6f));
        free(o);
        for (int x = 0; x < 3; x++) free(halves[x]);
        problem_free(p);
    }
    free(points);
}

/* Row numbers as positions: the line, to rounding. */
static void test_line(void **state) {
    (void)state;
    plsh_error error;
    for (int i = 0; i < 2 * METHODS; i++) {
        float *points = make_points(ROWS, 2, 1, 400, 1 + i % 2);
        plsh_attention a = {
            .heads = 2, .queries = 400, .keys = 400, .head_dim = 16, .causal = i % 2};
        problem *p = make_problem(a, methods[i / 2], plsh_decay_alibi(9));
        for (int h = 0; h < 2; h++) p->head[h].window = 7; /* 0 .. 6: those below the radius 6.5 */
        assert_ok(problem_forward(p, &error));
        float *o = malloc(p->o_count * sizeof *o);
        memcpy(o, p->o, p->o_count * sizeof *o);
        p->a.positions = (plsh_positions){1 + i % 2, 1, points, NULL};
        assert_ok(problem_forward(p, &error));
        for (size_t x = 0; x < p->o_count; x++) assert_true(fabsf(o[x] - p->o[x]) < 3e-6f);
        free(o);
        free(points);
        problem_free(p);
    }
}

static void test_empty(void **state) {
    (void)state;
    plsh_error error;
    for (int m = 0; m < METHODS; m++) {
        problem *p = make_problem(
            (plsh_attention){.heads = 1, .head_dim = 8, .positions = {.dim = 2, .sets = 1}},
            methods[m], plsh_decay_alibi(3));
        assert_ok(problem_forward(p, &error));
        assert_ok(problem_backward(p, &error));
        problem_free(p);
    }
}

static void test_threads(void **state) {
    (void)state;
    plsh_error error;
    float *points = make_points(HOLES, 2, 2, 700, 2);
    for (int m = 0; m < METHODS; m++) {
        problem *p[2];
        for (int i = 0; i < 2; i++) {
            p[i] = make_problem((plsh_attention){.heads = 2,
                                                 .kv_heads = 1,
                                                 .queries = 700,
                                                 .keys = 700,
                                                 .head_dim = 16,
                                                 .threads = i ? 4 : 1,
                                                 .positions = {2, 2, points, NULL}},
                                methods[m], plsh_decay_alibi(2));
            assert_ok(problem_forward(p[i], &error));
            assert_ok(problem_backward(p[i], &error));
        }
        assert_memory_equal(p[0]->o, p[1]->o, p[0]->o_count * sizeof(float));
        assert_memory_equal(p[0]->d_q, p[1]->d_q, p[0]->q_count * sizeof(float));
        assert_memory_equal(p[0]->d_k, p[1]->d_k, p[0]->k_count * sizeof(float));
        assert_memory_equal(p[0]->d_v, p[1]->d_v, p[0]->v_count * sizeof(float));
        problem_free(p[0]);
        problem_free(p[1]);
    }
    free(points);
}

/* ---- What exact leaves out ------------------------------------------------------------------ */

/* Tiles of a picture, row by row: those above and below one another are not adjacent. */
static float *make_picture(int64_t n, int64_t width) {
    float *points = malloc((size_t)(2 * n) * sizeof *points);
    for (int64_t i = 0; i < n; i++) {
        points[2 * i] = (float)(i % width);
        points[2 * i + 1] = (float)(i / width);
    }
    return points;
}

/* Distant keys are not scored: of 3600 tiles of a picture, with sigma 0.4, most; with rows in a
 * good order already, as with a time that grows, too. */
static void test_pairs(void **state) {
    (void)state;
    const int64_t n = 3600;
    float *picture = make_picture(n, 60), *times = malloc((size_t)n * sizeof *times);
    for (int64_t i = 0; i < n; i++) times[i] = 0.3f * (float)i + 0.1f * (float)unit(1, i);
    for (int i = 0; i < 4; i++) {
        const plsh_method method = i < 2 ? PLSH_METHOD_EXACT : PLSH_METHOD_WINDOW;
        const plsh_positions positions = {2 - i % 2, 1, i % 2 ? times : picture, NULL};
        problem *p = make_problem((plsh_attention){.heads = 1,
                                                   .queries = n,
                                                   .keys = n,
                                                   .head_dim = 8,
                                                   .causal = i % 2,
                                                   .positions = positions},
                                  method, plsh_decay_alibi(0.4));
        check_problem(p, "pairs");
        const double share = (double)p->forward.pairs / (double)(n * n);
        if (!(share < 0.4 && p->forward.pairs > n)) fail_msg("case %d: %g of all", i, share);
        assert_int_equal(p->forward.pairs, p->backward.pairs);
        problem_free(p);
    }
    free(picture);
    free(times);
}

/* Small scores, large ones, small and large sigma and eps, any points and shape: what the
 * certificate says is never exceeded. PLSH_PLANE_RUNS: how many (default 300). */
static void check_certificate(uint64_t run) {
    plsh_error error;
    const uint64_t s = 1000 + run;
    const int dim = 1 + (int)(3 * unit(s, 0));
    const int64_t n = 1 + (int64_t)(600 * unit(s, 1)),
                  q = 1 + (int64_t)(unit(s, 2) * (double)(n - 1));
    const int64_t sets = unit(s, 3) < 0.5 ? 1 : 2;
    const cloud kind = (cloud)((int)(CLOUDS * unit(s, 4)));
    float *points = make_points(kind, s, sets, n, dim);
    const plsh_method method = unit(s, 5) < 0.7 ? PLSH_METHOD_EXACT : PLSH_METHOD_WINDOW;
    plsh_decay decay = plsh_decay_alibi(pow(10, 4 * unit(s, 6) - 2));
    if (unit(s, 7) < 0.2) decay = (plsh_decay){.kind = PLSH_DECAY_KERPLE_LOG, .a = 4, .b = 2};
    if (unit(s, 7) > 0.9) decay = (plsh_decay){.kind = PLSH_DECAY_TRIANGLE, .a = 9};
    problem *p = make_problem((plsh_attention){.heads = 2,
                                               .kv_heads = unit(s, 8) < 0.5 ? 1 : 2,
                                               .queries = q,
                                               .keys = n,
                                               .head_dim = 1 + (int64_t)(12 * unit(s, 9)),
                                               .value_dim = 3,
                                               .causal = unit(s, 10) < 0.5,
                                               .scale = pow(10, 1.5 * unit(s, 11) - 1),
                                               .positions = {dim, sets, points, NULL}},
                              method, decay);
    for (int h = 0; h < 2; h++) {
        p->head[h].eps = pow(10, -6 * unit(s, 12 + h));
        if (p->head[h].eps >= 1) p->head[h].eps = 0.5;
        p->head[h].radius = pow(10, 3 * unit(s, 14 + h) - 1);
    }
    float *certificate = malloc((p->rows + 1) * sizeof *certificate);
    plsh_plan *plan;
    assert_ok(plsh_plan_create(&p->a, &plan, &error));
    void *workspace = aligned_alloc(64, plsh_plan_workspace(plan));
    const plsh_forward arrays = {
        .q = p->q, .k = p->k, .v = p->v, .o = p->o, .lse = p->lse, .certificate = certificate};
    assert_ok(plsh_plan_forward(plan, &arrays, workspace, NULL, &error));
    plsh_head whole[2];
    for (int h = 0; h < 2; h++) {
        whole[h] = p->head[h];
        whole[h].method = PLSH_METHOD_DENSE;
    }
    const plane_case c = {.a = &p->a, .head = whole};
    double_plane_result exact = double_plane_attend(&c, p->q, p->k, p->v, p->d_o);
    float_plane_result plain = float_plane_attend(&c, p->q, p->k, p->v, p->d_o);
    double rounding = oracle_distance(plain.o, exact.o, p->o_count);
    for (size_t r = 0; r < p->rows; r++) {
        for (size_t i = 3 * r; i < 3 * r + 3; i++) {
            const double off = fabs((double)p->o[i] - exact.o[i]);
            if (isfinite(exact.lse[r]) && !(off <= (double)certificate[r] + 3 * rounding + 1e-5))
                fail_msg("run %llu row %zu: off by %g, certified %g, rounding %g",
                         (unsigned long long)run, r, off, (double)certificate[r], rounding);
        }
        if (method == PLSH_METHOD_EXACT && isfinite(exact.lse[r]))
            assert_true((double)certificate[r] <=
                        10 * p->head[r / (size_t)q].eps / (1 - p->head[r / (size_t)q].eps) + 1e-3);
    }
    double_plane_free(&exact);
    float_plane_free(&plain);
    free(workspace);
    plsh_plan_destroy(plan);
    problem_free(p);
    free(certificate);
    free(points);
}

static void test_certificates(void **state) {
    (void)state;
    const char *runs = getenv("PLSH_PLANE_RUNS");
    const long count = runs ? atol(runs) : 300;
    for (long run = 0; run < count; run++) check_certificate((uint64_t)run);
}

static void test_auto(void **state) {
    (void)state;
    plsh_error error;
    const float points[6] = {0, 1, 2, 3, 4, 5};
    const plsh_decay decays[] = {plsh_decay_alibi(3),
                                 {.kind = PLSH_DECAY_TRIANGLE, .a = 4},
                                 {.kind = PLSH_DECAY_ALIBI, .a = 3, .limit = 0.1}};
    const plsh_method expected[] = {PLSH_METHOD_EXACT, PLSH_METHOD_WINDOW, PLSH_METHOD_DENSE};
    for (int i = 0; i < 3; i++) {
        plsh_plan *plan;
        const char *reason;
        problem *p = make_problem((plsh_attention){.heads = 1,
                                                   .queries = 6,
                                                   .keys = 6,
                                                   .head_dim = 4,
                                                   .positions = {1, 1, points, NULL}},
                                  PLSH_METHOD_AUTO, decays[i]);
        assert_ok(plsh_plan_create(&p->a, &plan, &error));
        assert_int_equal(plsh_plan_head(plan, 0, &reason).method, expected[i]);
        test_message_holds(reason, plsh_method_names()[expected[i]]);
        plsh_plan_destroy(plan);
        assert_ok(problem_forward(p, &error));
        problem_free(p);
    }
}

/* ---- What is refused ------------------------------------------------------------------------ */

static void test_refused(void **state) {
    (void)state;
    plsh_error error;
    float points[40] = {0};
    const plsh_attention good = {
        .heads = 2, .queries = 5, .keys = 5, .head_dim = 4, .positions = {2, 1, points, NULL}};
    problem *p = make_problem(good, PLSH_METHOD_DENSE, plsh_decay_alibi(3));
    plsh_attention *a = &p->a;
    plsh_plan *plan;
    assert_ok(problem_forward(p, &error));
    a->positions.dim = 4;
    assert_fails(plsh_plan_create(a, &plan, &error), PLSH_STATUS_INVALID,
                 "positions.dim is 4; 1 to 3");
    a->positions.dim = -1;
    assert_fails(plsh_plan_create(a, &plan, &error), PLSH_STATUS_INVALID, "positions.dim is -1");
    a->positions = (plsh_positions){2, 3, points, NULL};
    assert_fails(plsh_plan_create(a, &plan, &error), PLSH_STATUS_INVALID,
                 "positions.sets is 3; 1, or heads (2)");
    a->positions = (plsh_positions){2, 1, NULL, NULL};
    assert_fails(plsh_plan_create(a, &plan, &error), PLSH_STATUS_INVALID, "must not be NULL");
    a->positions = good.positions;
    points[7] = INFINITY;
    assert_fails(plsh_plan_create(a, &plan, &error), PLSH_STATUS_NOT_FINITE,
                 "coordinate 1 of row 3 of set 0 is inf");
    points[7] = 2e18f;
    assert_fails(plsh_plan_create(a, &plan, &error), PLSH_STATUS_NOT_FINITE, "at most 1e18");
    points[7] = 0;
    const plsh_place place = {0, 0};
    a->places = &place;
    assert_fails(plsh_plan_create(a, &plan, &error), PLSH_STATUS_UNSUPPORTED, "places");
    a->places = NULL;
    p->head[1].method = PLSH_METHOD_FIXED;
    p->head[1].block = 3;
    assert_fails(plsh_plan_create(a, &plan, &error), PLSH_STATUS_UNSUPPORTED,
                 "head 1: fixed does not take positions; every other");
    p->head[1].method = PLSH_METHOD_DENSE;
    p->head[1].radius = NAN;
    assert_fails(plsh_plan_create(a, &plan, &error), PLSH_STATUS_INVALID, "radius is nan");
    p->head[1].radius = 0;
    plsh_range keys;
    assert_fails(plsh_attention_reach(a, -1, (plsh_range){0, 2}, &keys, &error),
                 PLSH_STATUS_UNSUPPORTED, "several ranks");
    assert_ok(plsh_plan_create(a, &plan, &error));
    const plsh_extent extent = {.queries = 3, .keys = 3};
    const plsh_forward arrays = {.extent = &extent};
    assert_fails(plsh_plan_forward(plan, &arrays, NULL, NULL, &error), PLSH_STATUS_UNSUPPORTED,
                 "without an extent");
    plsh_plan_destroy(plan);
    problem_free(p);
}

static plsh_status plan_once(void *context, plsh_error *error) {
    plsh_plan *plan;
    plsh_status status = plsh_plan_create(context, &plan, error);
    if (!status) plsh_plan_destroy(plan);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    float *points = make_points(RANDOM, 2, 1, 300, 2);
    problem *p = make_problem((plsh_attention){.heads = 1,
                                               .queries = 300,
                                               .keys = 300,
                                               .head_dim = 8,
                                               .positions = {2, 1, points, NULL}},
                              methods[0], plsh_decay_alibi(3));
    test_every_allocation(plan_once, &p->a, 3);
    problem_free(p);
    free(points);
}

int main(void) {
    if (!test_has_isa(NULL)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clouds), cmocka_unit_test(test_sigmas),
        cmocka_unit_test(test_decays), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_halves), cmocka_unit_test(test_line),
        cmocka_unit_test(test_empty),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_pairs),  cmocka_unit_test(test_certificates),
        cmocka_unit_test(test_auto),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
