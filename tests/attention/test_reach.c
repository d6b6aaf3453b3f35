/* tests: which keys the rows of a part can see, and that parts make up the whole. */
#include "support/support.h"

#include "plsh/attention.h"
#include "support/problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 420, DIM = 8, HEADS = 4, KV_HEADS = 2, METHODS = 9, PARTS = 5, SAMPLES = 9 };

static const int64_t packed[] = {0, 130, 130, 137, 320, ROWS};
enum { SEQUENCES = sizeof packed / sizeof *packed - 1 };
/* Of unequal size, two of them with few rows, one with none. */
static const int64_t split[PARTS + 1] = {0, 150, 150, 153, 331, ROWS};

static int32_t labels[SAMPLES * ROWS];

/* Every method; the sampled ones under every scheme, one after the other from head to head. */
static void set_heads(plsh_head *head, int method, bool own) {
    for (int h = 0; h < HEADS; h++) {
        const plsh_decay decay = plsh_decay_alibi(h == 3 ? 40 : 4 + 3 * h);
        head[h] = plsh_head_default((plsh_method)method, &decay);
        head[h].partition.scheme = (plsh_scheme)(h % 3);
        head[h].partition.design = h < 2 ? PLSH_DESIGN_IID : PLSH_DESIGN_STRATIFIED;
        if (h == 3)
            head[h].partition.design = (plsh_method)method == PLSH_METHOD_PLSH
                                           ? PLSH_DESIGN_GOLDEN_SHIFTED
                                           : PLSH_DESIGN_GOLDEN;
        head[h].partition.samples = SAMPLES;
        head[h].partition.head = (uint32_t)h;
        head[h].window = h == 2 ? 1 : 30 + 40 * h;
        head[h].block = h == 2 ? 1000 : 50 + h;
        if (!own) continue;
        head[h].partition.scheme = PLSH_SCHEME_LABELS;
        head[h].partition.labels = labels;
        head[h].partition.label_count = ROWS;
    }
}

static plsh_attention describe(const plsh_head *head, bool causal, bool cut) {
    return (plsh_attention){.heads = HEADS,
                            .kv_heads = KV_HEADS,
                            .queries = ROWS,
                            .keys = ROWS,
                            .head_dim = DIM,
                            .sequences = cut ? SEQUENCES : 0,
                            .query_offsets = cut ? packed : NULL,
                            .key_offsets = cut ? packed : NULL,
                            .causal = causal,
                            .head = head,
                            .head_count = HEADS};
}

/* ---- reach ----------------------------------------------------------------------------------- */

static bool may_see(const plsh_head *head, bool causal, int64_t i, int64_t j) {
    if (causal && j > i) return false;
    if (head->method == PLSH_METHOD_WINDOW) return llabs(i - j) < head->window;
    if (head->method == PLSH_METHOD_FIXED) return i / head->block == j / head->block;
    if (!plsh_method_is_sampled(head->method)) return true;
    if (head->partition.design == PLSH_DESIGN_GOLDEN_SHIFTED &&
        head->partition.scheme != PLSH_SCHEME_LABELS)
        return plsh_partition_count(&head->partition, i, j) > 0;
    for (int64_t m = 0; m < head->partition.samples; m++)
        if (plsh_partition_same(&head->partition, m, i, j)) return true;
    return false;
}

/* Pair by pair. */
static plsh_range search(const plsh_attention *a, int64_t h, plsh_range rows) {
    plsh_range seen = rows;
    for (int64_t x = 0; x < (a->sequences ? a->sequences : 1); x++) {
        const int64_t begin = a->sequences ? packed[x] : 0,
                      end = a->sequences ? packed[x + 1] : ROWS;
        for (int64_t i = rows.begin; i < rows.end; i++) {
            for (int64_t j = begin; j < end && i >= begin && i < end; j++) {
                if (!may_see(&a->head[h], a->causal, i - begin, j - begin)) continue;
                if (j < seen.begin) seen.begin = j;
                if (j >= seen.end) seen.end = j + 1;
            }
        }
    }
    return seen;
}

static void check_reach(const plsh_attention *a) {
    plsh_error error;
    for (int i = 0; i < PARTS; i++) {
        const plsh_range rows = {split[i], split[i + 1]};
        plsh_range all = rows, keys;
        for (int64_t h = 0; h < HEADS; h++) {
            const plsh_range expected = search(a, h, rows);
            assert_ok(plsh_attention_reach(a, h, rows, &keys, &error));
            assert_int_equal(keys.begin, expected.begin);
            assert_int_equal(keys.end, expected.end);
            if (keys.begin < all.begin) all.begin = keys.begin;
            if (keys.end > all.end) all.end = keys.end;
            if (a->sequences) continue;
            assert_ok(plsh_head_reach(&a->head[h], a->causal, ROWS, rows, &keys, &error));
            assert_int_equal(keys.begin, expected.begin);
            assert_int_equal(keys.end, expected.end);
        }
        assert_ok(plsh_attention_reach(a, -1, rows, &keys, &error));
        assert_int_equal(keys.begin, all.begin);
        assert_int_equal(keys.end, all.end);
    }
}

static void test_reach_is_that_of_a_search(void **state) {
    (void)state;
    plsh_head head[HEADS];
    for (int method = 0; method < METHODS; method++) {
        for (int way = 0; way < 4; way++) {
            set_heads(head, method, false);
            const plsh_attention a = describe(head, way & 1, way & 2);
            check_reach(&a);
        }
    }
}

static void test_reach_of_labels(void **state) {
    (void)state;
    plsh_head head[HEADS];
    plsh_error error;
    plsh_range keys;
    set_heads(head, PLSH_METHOD_PLSH, true);
    for (int i = 0; i < SAMPLES * ROWS; i++) labels[i] = i % ROWS / (7 + i / ROWS);
    for (int way = 0; way < 4; way++) {
        const plsh_attention a = describe(head, way & 1, way & 2);
        check_reach(&a);
    }
    for (int i = 0; i < SAMPLES * ROWS; i++) labels[i] = i % 5; /* anywhere */
    assert_ok(plsh_head_reach(head, true, ROWS, (plsh_range){9, 20}, &keys, &error));
    assert_int_equal(keys.begin, 0);
    assert_int_equal(keys.end, 20);
    head[0].partition.label_count = ROWS - 1;
    assert_fails(plsh_head_reach(head, true, ROWS, (plsh_range){9, 20}, &keys, &error),
                 PLSH_STATUS_INVALID, "419 labels per draw");
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Rows begin .. of all heads, and back. */
static float *take_rows(const float *from, int64_t heads, plsh_range rows) {
    const size_t count = (size_t)(rows.end - rows.begin) * DIM;
    float *to = malloc((size_t)heads * count * sizeof *to + 1);
    for (int64_t h = 0; h < heads; h++)
        memcpy(to + (size_t)h * count, from + (h * ROWS + rows.begin) * DIM, count * sizeof *to);
    return to;
}

static void add_rows(float *to, const float *from, int64_t heads, plsh_range rows, int64_t dim) {
    const int64_t count = (rows.end - rows.begin) * dim;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < count; i++)
            to[(h * ROWS + rows.begin) * dim + i] += from[h * count + i];
}

static void assert_near(const float *found, const float *expected, size_t count, double most) {
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)found[i] - (double)expected[i]);
        if (!(error <= most * (1 + fabs((double)expected[i]))))
            fail_msg("[%zu]: %g, not %g", i, (double)found[i], (double)expected[i]);
    }
}

/* What the parts have made so far. */
typedef struct sums {
    float o[HEADS * ROWS * DIM], lse[HEADS * ROWS];
    float d_q[HEADS * ROWS * DIM], d_k[KV_HEADS * ROWS * DIM], d_v[KV_HEADS * ROWS * DIM];
} sums;

/* A call for some queries and some keys; results are for the part's rows. */
typedef struct part_call {
    plsh_range rows, keys;
    plsh_extent extent;
    int64_t query_offsets[SEQUENCES + 1], key_offsets[SEQUENCES + 1];
    plsh_place places[SEQUENCES + 1];
    float *q, *k, *v;
} part_call;

static void begin_call(part_call *c, const problem *p, plsh_range rows, plsh_range keys) {
    *c = (part_call){.rows = rows, .keys = keys};
    plsh_extent_part(p->a.sequences, p->a.key_offsets, rows, keys, c->query_offsets, c->key_offsets,
                     c->places, &c->extent);
    c->q = take_rows(p->q, HEADS, rows);
    c->k = take_rows(p->k, KV_HEADS, keys);
    c->v = take_rows(p->v, KV_HEADS, keys);
}

static void end_call(part_call *c) {
    free(c->q);
    free(c->k);
    free(c->v);
}

static void forward_part(const plsh_plan *plan, part_call *c, void *workspace, float *o,
                         float *lse) {
    plsh_error error;
    const plsh_forward arrays = {
        .q = c->q, .k = c->k, .v = c->v, .o = o, .lse = lse, .extent = &c->extent};
    assert_ok(plsh_plan_forward(plan, &arrays, workspace, NULL, &error));
}

static void backward_part(const plsh_plan *plan, const problem *p, part_call *c, void *workspace,
                          const sums *whole, bool some_keys, sums *out) {
    plsh_error error;
    const size_t queries = (size_t)c->extent.queries, keys = (size_t)c->extent.keys;
    float *o = take_rows(whole->o, HEADS, c->rows), *d_o = take_rows(p->d_o, HEADS, c->rows);
    float *lse = malloc(HEADS * queries * sizeof *lse + 1);
    for (size_t h = 0; h < HEADS; h++)
        memcpy(lse + h * queries, whole->lse + h * ROWS + c->rows.begin, queries * sizeof *lse);
    float *d_q = calloc(HEADS * queries * DIM + 1, sizeof *d_q);
    float *d_k = calloc(KV_HEADS * keys * DIM + 1, sizeof *d_k);
    float *d_v = calloc(KV_HEADS * keys * DIM + 1, sizeof *d_v);
    const plsh_backward arrays = {.q = c->q,
                                  .k = c->k,
                                  .v = c->v,
                                  .o = o,
                                  .lse = lse,
                                  .d_o = d_o,
                                  .d_q = d_q,
                                  .d_k = d_k,
                                  .d_v = d_v,
                                  .extent = &c->extent,
                                  .some_keys = some_keys};
    assert_ok(plsh_plan_backward(plan, &arrays, workspace, NULL, &error));
    add_rows(out->d_q, d_q, HEADS, c->rows, DIM);
    add_rows(out->d_k, d_k, KV_HEADS, c->keys, DIM);
    add_rows(out->d_v, d_v, KV_HEADS, c->keys, DIM);
    float *all[] = {o, d_o, lse, d_q, d_k, d_v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void compare(const problem *p, const sums *found) {
    assert_near(found->o, p->o, HEADS * ROWS * DIM, 2e-6);
    assert_near(found->lse, p->lse, HEADS * ROWS, 2e-6);
    assert_near(found->d_q, p->d_q, HEADS * ROWS * DIM, 1e-5);
    assert_near(found->d_k, p->d_k, KV_HEADS * ROWS * DIM, 1e-5);
    assert_near(found->d_v, p->d_v, KV_HEADS * ROWS * DIM, 1e-5);
}

/* The problem solved whole, and a plan with workspaces for its parts. */
typedef struct setting {
    problem *p;
    plsh_plan *plan;
    void *workspace, *back;
} setting;

static setting begin_setting(int method, bool own, int way) {
    plsh_error error;
    setting s = {.p = problem_make(describe(NULL, way & 1, way & 2), 7)};
    set_heads(s.p->head, method, own);
    s.p->a.head = s.p->head;
    s.p->a.head_count = HEADS;
    assert_ok(problem_forward(s.p, &error));
    assert_ok(problem_backward(s.p, &error));
    assert_ok(plsh_plan_create(&s.p->a, &s.plan, &error));
    s.workspace = aligned_alloc(64, plsh_plan_workspace(s.plan));
    s.back = aligned_alloc(64, plsh_plan_backward_workspace(s.plan));
    return s;
}

static void end_setting(setting *s) {
    free(s->workspace);
    free(s->back);
    plsh_plan_destroy(s->plan);
    problem_free(s->p);
}

/* Every part with the keys that its rows can see, and no other. */
static void solve_by_reach(int method, bool own, int way) {
    static sums found;
    memset(&found, 0, sizeof found);
    plsh_error error;
    setting s = begin_setting(method, own, way);
    for (int i = 0; i < PARTS; i++) {
        const plsh_range rows = {split[i], split[i + 1]};
        plsh_range keys;
        part_call c;
        assert_ok(plsh_attention_reach(&s.p->a, -1, rows, &keys, &error));
        begin_call(&c, s.p, rows, keys);
        const size_t count = HEADS * (size_t)c.extent.queries;
        float *o = calloc(count * DIM + 1, sizeof *o), *lse = calloc(count + 1, sizeof *lse);
        forward_part(s.plan, &c, s.workspace, o, lse);
        add_rows(found.o, o, HEADS, rows, DIM);
        add_rows(found.lse, lse, HEADS, rows, 1);
        backward_part(s.plan, s.p, &c, s.back, &found, false, &found);
        free(o);
        free(lse);
        end_call(&c);
    }
    compare(s.p, &found);
    end_setting(&s);
}

static void test_parts_by_reach_make_the_whole(void **state) {
    (void)state;
    for (int method = 0; method < METHODS; method++)
        for (int way = 0; way < 4; way++) solve_by_reach(method, false, way);
    for (int adjacent = 0; adjacent < 2; adjacent++) {
        for (int i = 0; i < SAMPLES * ROWS; i++)
            labels[i] = adjacent ? i % ROWS / (7 + i / ROWS) : i * 7 % 5;
        for (int way = 0; way < 4; way++) solve_by_reach(PLSH_METHOD_PLSH, true, way);
    }
}

/* o and lse of the part join those of the keys so far: weights e^lse. */
static void merge(sums *to, const float *o, const float *lse, plsh_range rows) {
    const int64_t count = rows.end - rows.begin;
    for (int64_t i = 0; i < HEADS * count; i++) {
        const int64_t at = i / count * ROWS + rows.begin + i % count;
        if (lse[i] == -INFINITY) continue;
        const double all = fmax((double)to->lse[at], (double)lse[i]) +
                           log1p(exp(-fabs((double)to->lse[at] - (double)lse[i])));
        const double old = exp((double)to->lse[at] - all), now = exp((double)lse[i] - all);
        for (int x = 0; x < DIM; x++)
            to->o[at * DIM + x] =
                (float)(old * (double)to->o[at * DIM + x] + now * (double)o[i * DIM + x]);
        to->lse[at] = (float)all;
    }
}

/* Every part against every part's keys, whether they lie before, among or after its queries. */
static void solve_by_blocks(int method, int way) {
    static sums found;
    memset(&found, 0, sizeof found);
    for (int i = 0; i < HEADS * ROWS; i++) found.lse[i] = -INFINITY;
    setting s = begin_setting(method, false, way);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < PARTS * PARTS; i++) {
            const plsh_range rows = {split[i / PARTS], split[i / PARTS + 1]};
            part_call c;
            begin_call(&c, s.p, rows, (plsh_range){split[i % PARTS], split[i % PARTS + 1]});
            const size_t count = HEADS * (size_t)c.extent.queries;
            float *o = calloc(count * DIM + 1, sizeof *o), *lse = calloc(count + 1, sizeof *lse);
            if (pass == 0) {
                forward_part(s.plan, &c, s.workspace, o, lse);
                merge(&found, o, lse, rows);
            } else {
                backward_part(s.plan, s.p, &c, s.back, &found, true, &found);
            }
            free(o);
            free(lse);
            end_call(&c);
        }
    }
    compare(s.p, &found);
    end_setting(&s);
}

static void test_blocks_of_keys_make_the_whole(void **state) {
    (void)state;
    const plsh_method methods[] = {PLSH_METHOD_DENSE, PLSH_METHOD_NONE, PLSH_METHOD_WINDOW,
                                   PLSH_METHOD_EXACT};
    for (int i = 0; i < 4; i++)
        for (int way = 0; way < 4; way++) solve_by_blocks(methods[i], way);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_bad_parts_are_refused(void **state) {
    (void)state;
    plsh_error error;
    plsh_head head[HEADS];
    plsh_range keys;
    set_heads(head, PLSH_METHOD_PLSH, false);
    plsh_attention a = describe(head, true, false);
    assert_fails(plsh_attention_reach(&a, 4, (plsh_range){0, 1}, &keys, &error),
                 PLSH_STATUS_INVALID, "head 4; -1 (all) to 3");
    assert_fails(plsh_attention_reach(&a, 0, (plsh_range){3, ROWS + 1}, &keys, &error),
                 PLSH_STATUS_INVALID, "rows 3 to 421; 0 <= begin <= end <= 420");
    assert_fails(plsh_head_reach(head, true, -1, (plsh_range){0, 0}, &keys, &error),
                 PLSH_STATUS_INVALID, "-1 keys");
    head[0].partition.samples = (INT64_C(1) << 24) + 1;
    assert_fails(plsh_head_reach(head, true, ROWS, (plsh_range){0, 1}, &keys, &error),
                 PLSH_STATUS_INVALID, "head 0: samples is 16777217; attention takes 1 to 2^24");
    assert_fails(plsh_attention_reach(&a, 0, (plsh_range){0, 1}, &keys, &error),
                 PLSH_STATUS_INVALID, "attention takes 1 to 2^24");
    set_heads(head, PLSH_METHOD_PLSH, false);
    a.queries = 1;
    assert_fails(plsh_attention_reach(&a, 0, (plsh_range){0, 1}, &keys, &error),
                 PLSH_STATUS_INVALID, "not the same rows");
    plsh_plan *plan;
    plsh_place place = {.query = 20, .key = 30};
    a.places = &place;
    assert_fails(plsh_plan_create(&a, &plan, &error), PLSH_STATUS_INVALID,
                 "queries from position 20 to 21, keys to 450; a fixed or sampled head's");
    place.key = -1;
    assert_fails(plsh_plan_create(&a, &plan, &error), PLSH_STATUS_INVALID, "keys from -1");
    set_heads(head, PLSH_METHOD_DENSE, false);
    place.key = 30;
    assert_ok(plsh_plan_create(&a, &plan, &error));
    static float rows[HEADS * ROWS * DIM], one[HEADS * DIM], o[HEADS * DIM], certificate[HEADS];
    void *workspace = aligned_alloc(64, plsh_plan_workspace(plan));
    plsh_forward arrays = {.q = one, .k = rows, .v = rows, .o = o, .certificate = certificate};
    assert_fails(plsh_plan_forward(plan, &arrays, workspace, NULL, &error), PLSH_STATUS_INVALID,
                 "a certificate needs queries that lie among the keys");
    arrays.certificate = NULL;
    const plsh_place far = {.query = 20, .key = 31};
    arrays.extent = &(plsh_extent){.queries = 1, .keys = ROWS, .places = &far};
    assert_fails(plsh_plan_forward(plan, &arrays, workspace, NULL, &error), PLSH_STATUS_INVALID,
                 "the plan's longest");
    free(workspace);
    plsh_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reach_is_that_of_a_search),
        cmocka_unit_test(test_reach_of_labels),
        cmocka_unit_test(test_parts_by_reach_make_the_whole),
        cmocka_unit_test(test_blocks_of_keys_make_the_whole),
        cmocka_unit_test(test_bad_parts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
