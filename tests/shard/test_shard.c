/* tests: the rows that parts of a text need of each other, all parts in one process. */
#include "support/support.h"

#include "plsh/shard.h"
#include "support/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, KV_HEADS = 2, DIM = 8, PARTS = 4, MOST = 900 };

typedef struct text {
    int64_t n, splits[PARTS + 1];
    plsh_head head[HEADS];
    plsh_attention whole;
    float q[HEADS * MOST * DIM], k[KV_HEADS * MOST * DIM];
    plsh_shard *shard[PARTS];
} text;

/* Rows in [heads][n][dim] order for all parts; key 3 is huge. */
static void make_text(text *t, const plsh_decay *decay, bool causal, double eps) {
    t->n = MOST;
    memcpy(t->splits, (int64_t[]){0, 300, 300, 420, MOST}, sizeof t->splits);
    for (int h = 0; h < HEADS; h++) {
        t->head[h] = plsh_head_default(PLSH_METHOD_EXACT, decay);
        t->head[h].eps = eps;
    }
    t->whole = (plsh_attention){.heads = HEADS,
                                .kv_heads = KV_HEADS,
                                .queries = t->n,
                                .keys = t->n,
                                .head_dim = DIM,
                                .causal = causal,
                                .head = t->head,
                                .head_count = HEADS};
    oracle_normal(5, 1, t->q, HEADS * MOST * DIM);
    oracle_normal(6, 1, t->k, KV_HEADS * MOST * DIM);
    for (int x = 0; x < DIM; x++) t->k[3 * DIM + x] *= 9;
}

static plsh_shard_arrays arrays_of(const text *t, int p) {
    const plsh_layout layout = {t->n * DIM, DIM};
    return (plsh_shard_arrays){.q = t->q + t->splits[p] * DIM,
                               .k = t->k + t->splits[p] * DIM,
                               .q_layout = layout,
                               .k_layout = layout};
}

/* All steps of the manual, with memcpy for the collectives. */
static void find_needs(text *t, bool one_range) {
    plsh_error error;
    for (int p = 0; p < PARTS; p++) {
        const plsh_shard_options options = {.whole = &t->whole,
                                            .splits = t->splits,
                                            .parts = PARTS,
                                            .part = p,
                                            .one_range = one_range};
        const plsh_shard_arrays arrays = arrays_of(t, p);
        assert_ok(plsh_shard_create(&options, &t->shard[p], &error));
        assert_ok(plsh_shard_prepare(t->shard[p], &error));
        plsh_shard_begin(t->shard[p], &arrays);
    }
    const plsh_shard_exchange *root = t->shard[t->shard[0]->exchange->root]->exchange;
    for (int p = 0; p < PARTS; p++) {
        memcpy(t->shard[p]->exchange->centre, root->centre,
               (size_t)root->centre_count * sizeof(float));
        plsh_shard_measure(t->shard[p]);
    }
    for (int p = 0; p < PARTS; p++)
        for (int o = 0; o < PARTS; o++)
            memcpy(t->shard[p]->exchange->norms + root->norm_places[o],
                   t->shard[o]->exchange->own_norms, (size_t)root->norm_counts[o] * sizeof(float));
    for (int p = 0; p < PARTS; p++) plsh_shard_find(t->shard[p], false);
    for (int p = 0; p < PARTS; p++) {
        plsh_shard_exchange *x = t->shard[p]->exchange;
        for (int o = 0; o < PARTS; o++)
            memcpy(x->needs + o * x->need_count, t->shard[o]->exchange->own_needs,
                   (size_t)x->need_count * sizeof *x->needs);
        plsh_shard_learn(t->shard[p]);
    }
}

static bool is_fetched(const plsh_shard_unit *unit, int p, int64_t row) {
    if (unit->need[p].begin <= row && row < unit->need[p].end) return true;
    for (int i = 0; i < unit->outliers; i++)
        if ((unit->fetches[p] >> i & 1) && unit->outlier[i].rows.begin <= row &&
            row < unit->outlier[i].rows.end)
            return true;
    return false;
}

/* The share of a row's weight that lies in rows that part p does not get. */
static double absent_share(const text *t, const plsh_shard_unit *unit, int p, int64_t h,
                           int64_t i) {
    double score[MOST], most = -INFINITY, all = 0, absent = 0;
    const int64_t end = t->whole.causal ? i + 1 : t->n;
    for (int64_t j = 0; j < end; j++) {
        double dot = 0;
        for (int x = 0; x < DIM; x++)
            dot +=
                (double)t->q[(h * t->n + i) * DIM + x] * (double)t->k[(h / 2 * t->n + j) * DIM + x];
        score[j] = dot / sqrt(DIM) + plsh_decay_log(&t->head[h].partition.decay, llabs(i - j));
        most = fmax(most, score[j]);
    }
    for (int64_t j = 0; j < end; j++) {
        all += exp(score[j] - most);
        if (!is_fetched(unit, p, j)) absent += exp(score[j] - most);
    }
    return absent / all;
}

/* Rows that are not fetched weigh at most eps / 4 of any row; of a fast decay some are not
 * fetched. */
static void check_needs(const text *t, double eps, bool one_range, int64_t *absent_rows) {
    for (int p = 0; p < PARTS; p++) {
        const plsh_shard *shard = t->shard[p];
        assert_int_equal(shard->units, KV_HEADS);
        for (int64_t u = 0; u < shard->units; u++) {
            const plsh_shard_unit *unit = &shard->unit[u];
            assert_true(unit->fades && unit->asks && unit->heads == 2 && unit->kv_heads == 1);
            if (one_range) assert_true(unit->fetches[p] == 0);
            assert_memory_equal(unit->need, t->shard[0]->unit[u].need, sizeof(plsh_range) * PARTS);
            for (int64_t i = t->splits[p]; i < t->splits[p + 1]; i += 17)
                for (int64_t h = unit->head; h < unit->head + unit->heads; h++)
                    assert_true(absent_share(t, unit, p, h, i) <= eps / 4);
            if (t->splits[p] < t->splits[p + 1])
                for (int64_t j = 0; j < t->splits[p + 1]; j++)
                    *absent_rows += !is_fetched(unit, p, j);
        }
    }
}

static void test_needs(void **state) {
    (void)state;
    static const double bump[] = {1, 0.5, 1e-9, 1e-9, 0, 0, 0, 0.2, 0};
    const plsh_decay decays[] = {plsh_decay_alibi(2),
                                 plsh_decay_alibi(15),
                                 {.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.5, .b = 0.9},
                                 {.kind = PLSH_DECAY_KERPLE_LOG, .a = 12, .b = 0.3},
                                 {.kind = PLSH_DECAY_TABLE, .table = bump, .table_size = 9}};
    text *t = malloc(sizeof *t);
    bool singly = false; /* was an outlier fetched by itself? */
    for (int c = 0; c < 5 * 2 * 2 * 2; c++) {
        const double eps = c / 4 % 2 ? 0x1p-24 : 1e-2;
        const bool one_range = c % 2;
        int64_t absent_rows = 0;
        make_text(t, &decays[c / 8], c / 2 % 2, eps);
        find_needs(t, one_range);
        check_needs(t, eps, one_range, &absent_rows);
        if (c / 8 == 0) assert_true(absent_rows > 0);
        for (int p = 0; p < PARTS; p++)
            for (int u = 0; u < KV_HEADS; u++) singly |= t->shard[p]->unit[u].fetches[p] != 0;
        for (int p = 0; p < PARTS; p++) plsh_shard_destroy(t->shard[p]);
    }
    assert_true(singly);
    free(t);
}

/* Units by kind and kv head, what they reach, and which of the own queries reach no others. */
static void test_units(void **state) {
    (void)state;
    plsh_error error;
    text *t = malloc(sizeof *t);
    const plsh_decay decay = plsh_decay_alibi(4);
    make_text(t, &decay, true, 0);
    for (int h = 0; h < HEADS; h++) {
        t->head[h].method = h < 2 ? PLSH_METHOD_NONE : PLSH_METHOD_WINDOW;
        t->head[h].window = 10 * h;
    }
    plsh_shard_options options = {
        .whole = &t->whole, .splits = t->splits, .parts = PARTS, .part = 2};
    assert_ok(plsh_shard_create(&options, &t->shard[2], &error));
    const plsh_shard_unit *unit = t->shard[2]->unit;
    assert_int_equal(t->shard[2]->units, 2);
    assert_true(unit[0].rotates && !unit[0].fades && unit[0].heads == 2);
    assert_true(!unit[1].rotates && unit[1].head == 2 && unit[1].kv_head == 1);
    assert_int_equal(unit[1].reach[2].begin, 300 - 29);
    assert_int_equal(unit[1].reach[2].end, 420);
    assert_int_equal(unit[1].near.begin, 300 + 29);
    assert_int_equal(unit[1].near.end, 420);
    plsh_shard_destroy(t->shard[2]);
    assert_float_equal(plsh_shard_eps(0, 2), 0.75 * 0x1p-24, 0);
    assert_float_equal(plsh_shard_eps(0.1, 1), 0.1, 0);
    assert_int_equal(plsh_shard_split(10, 3, 2), 6);
    free(t);
}

static void test_refused(void **state) {
    (void)state;
    plsh_error error;
    text *t = malloc(sizeof *t);
    const plsh_decay decay = plsh_decay_alibi(4);
    make_text(t, &decay, true, 0);
    plsh_shard *shard;
    plsh_shard_options options = {.whole = &t->whole, .parts = PARTS, .part = PARTS};
    assert_fails(plsh_shard_create(&options, &shard, &error), PLSH_STATUS_INVALID,
                 "part 4 of 4; 0 to parts - 1");
    assert_null(shard);
    options.part = 0;
    t->splits[1] = MOST + 1;
    options.splits = t->splits;
    assert_fails(plsh_shard_create(&options, &shard, &error), PLSH_STATUS_INVALID,
                 "splits[1] is 901; they begin with 0, never decrease and end with 900");
    options.splits = NULL;
    t->head[1].method = PLSH_METHOD_AUTO;
    assert_fails(plsh_shard_create(&options, &shard, &error), PLSH_STATUS_INVALID,
                 "head 1: auto has to be resolved first, by plsh_plan_head");
    free(t);
}

static plsh_status create_and_prepare(void *context, plsh_error *error) {
    const plsh_shard_options *options = context;
    plsh_shard *shard;
    plsh_status status = plsh_shard_create(options, &shard, error);
    if (!status) status = plsh_shard_prepare(shard, error);
    plsh_shard_destroy(shard);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    text *t = malloc(sizeof *t);
    const plsh_decay decay = plsh_decay_alibi(4);
    make_text(t, &decay, true, 0);
    plsh_shard_options options = {.whole = &t->whole, .parts = PARTS, .part = 1};
    test_every_allocation(create_and_prepare, &options, 15);
    free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_needs),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
