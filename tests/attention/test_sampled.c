/* tests: plsh, masks and mean against stored numbers and against their definitions in double. */
#include "support/support.h"

#include "base/memory.h"
#include "plsh/io.h"
#include "support/oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- stored numbers ---------------------------------------------------------------------------
 */

static plsh_npy load(const char *folder, const char *name) {
    char file[256];
    plsh_error error;
    plsh_npy array;
    snprintf(file, sizeof file, "golden/masks/%s/%s", folder, name);
    assert_ok(plsh_npy_read(test_shared(file), &array, &error));
    return array;
}

/* The number after "key": in the text after `after`. */
static double number_of(const char *text, const char *after, const char *key) {
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\"%s\":", key);
    text = strstr(strstr(text, after), pattern);
    assert_non_null(text);
    return strtod(text + strlen(pattern), NULL);
}

static char *load_meta(const char *folder) {
    char file[256];
    snprintf(file, sizeof file, "golden/masks/%s/meta.json", folder);
    FILE *stream = fopen(test_shared(file), "r");
    static char text[1 << 16];
    text[fread(text, 1, sizeof text - 1, stream)] = '\0';
    fclose(stream);
    return text;
}

/* Twice the error of plain float32, and a few ulps of the largest value. */
static double tolerance(const char *meta, const char *array) {
    return 2 * number_of(meta, "float32_error", array) +
           4 * 0x1p-24 * number_of(meta, "max_abs", array);
}

static void compare(const char *folder, const char *what, const char *isa, const float *got,
                    const plsh_npy *want, double allowed) {
    double distance = oracle_distance(got, want->data, want->count);
    print_message("%s %s %s: %.2g, allowed %.2g\n", folder, what, isa, distance, allowed);
    if (!(distance <= allowed)) fail_msg("%s %s %s", folder, what, isa);
}

static void check_golden(const char *folder, plsh_method method, const char *isa) {
    plsh_error error;
    plsh_npy q = load(folder, "q.npy"), k = load(folder, "k.npy"), v = load(folder, "v.npy");
    plsh_npy labels = load(folder, "labels.npy"), lse = load(folder, "lse.npy");
    bool mean = method == PLSH_METHOD_MEAN;
    plsh_npy o = load(folder, mean ? "o_mean.npy" : "o.npy");
    const char *meta = load_meta(folder);
    int64_t heads = q.shape[0], s = labels.shape[1], n = labels.shape[2];
    plsh_head *head = calloc((size_t)heads, sizeof *head);
    for (int64_t h = 0; h < heads; h++)
        head[h] = (plsh_head){.method = method,
                              .partition = {.scheme = PLSH_SCHEME_LABELS,
                                            .samples = s,
                                            .labels = (int32_t *)labels.data + h * s * n,
                                            .label_count = n}};
    plsh_attention attention = {.heads = heads,
                                .kv_heads = k.shape[0],
                                .queries = n,
                                .keys = n,
                                .head_dim = q.shape[2],
                                .value_dim = v.shape[2],
                                .causal = strstr(meta, "\"causal\": true") != NULL,
                                .scale = number_of(meta, "{", "scale"),
                                .head = head,
                                .head_count = heads,
                                .isa = isa};
    float *got = malloc(o.count * sizeof *got), *got_lse = malloc(lse.count * sizeof *got_lse);
    assert_ok(plsh_attend(&attention, q.data, k.data, v.data, got, got_lse, &error));
    compare(folder, mean ? "o_mean" : "o", isa, got, &o, tolerance(meta, "o"));
    compare(folder, "lse", isa, got_lse, &lse, tolerance(meta, "lse"));
    free(got);
    free(got_lse);
    free(head);
    plsh_npy *all[] = {&q, &k, &v, &labels, &lse, &o};
    for (int i = 0; i < 6; i++) plsh_npy_free(all[i]);
}

static void test_goldens(void **state) {
    (void)state;
    static const char *const folders[] = {"a_s1", "b_s20_causal", "c_s20_bidirectional", "d_s300",
                                          "e_noncontiguous"};
    for (const char *const *isa = plsh_isa_available(); *isa; isa++) {
        for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
            check_golden(folders[i], PLSH_METHOD_PLSH, *isa);
            check_golden(folders[i], PLSH_METHOD_MASKS, *isa);
            check_golden(folders[i], PLSH_METHOD_MEAN, *isa);
        }
    }
}

/* ---- definitions ------------------------------------------------------------------------------
 */

/* A problem with room for inputs and outputs. */
typedef struct problem {
    plsh_attention a;
    plsh_head head[4];
    int64_t query_offsets[4], key_offsets[4];
    float *q, *k, *v, *o, *lse;
    size_t o_count, rows;
} problem;

static void set_up(problem *p, uint64_t seed, double magnitude) {
    plsh_attention *a = &p->a;
    int64_t kv = a->kv_heads ? a->kv_heads : a->heads,
            dv = a->value_dim ? a->value_dim : a->head_dim;
    size_t q = (size_t)(a->heads * a->queries * a->head_dim);
    size_t k = (size_t)(kv * a->keys * a->head_dim), v = (size_t)(kv * a->keys * dv);
    p->rows = (size_t)(a->heads * a->queries);
    p->o_count = p->rows * (size_t)dv;
    p->q = malloc(q * sizeof(float) + 1);
    p->k = malloc(k * sizeof(float) + 1);
    p->v = malloc(v * sizeof(float) + 1);
    p->o = malloc(p->o_count * sizeof(float) + 1);
    p->lse = malloc(p->rows * sizeof(float) + 1);
    oracle_normal(seed, magnitude, p->q, q);
    oracle_normal(seed + 1, 1, p->k, k);
    oracle_normal(seed + 2, 1, p->v, v);
    a->head = p->head;
}

static void tear_down(problem *p) {
    float *all[] = {p->q, p->k, p->v, p->o, p->lse};
    for (int i = 0; i < 5; i++) free(all[i]);
}

static void attend_with_lse(problem *p) {
    plsh_error error;
    assert_ok(plsh_attend(&p->a, p->q, p->k, p->v, p->o, p->lse, &error));
}

/* plsh and masks agree with M~ in double. */
static void check_definition(problem *p, const char *what, double allowed) {
    double *o = malloc(p->o_count * sizeof *o + 1), *lse = malloc(p->rows * sizeof *lse + 1);
    oracle_labels labels = oracle_labels_make(p->head, p->a.head_count, p->a.keys);
    oracle_attend(&p->a, p->q, p->k, p->v, oracle_counts, &labels, o, lse);
    free(labels.labels);
    for (int method = 0; method < 2; method++) {
        for (int h = 0; h < p->a.head_count; h++)
            p->head[h].method = method ? PLSH_METHOD_MASKS : PLSH_METHOD_PLSH;
        attend_with_lse(p);
        double distance = oracle_distance(p->o, o, p->o_count);
        double lse_distance = oracle_distance(p->lse, lse, p->rows);
        if (!(distance <= allowed && lse_distance <= allowed * 4))
            fail_msg("%s, %s: o is off by %g, lse by %g", what, method ? "masks" : "plsh", distance,
                     lse_distance);
    }
    free(o);
    free(lse);
}

static void test_schemes(void **state) {
    (void)state;
    for (int variant = 0; variant < 24; variant++) {
        problem p = {
            .a = {.heads = 2, .queries = 230, .keys = 230, .head_dim = 20, .head_count = 2}};
        p.a.causal = variant % 2;
        for (int h = 0; h < 2; h++) {
            plsh_partition *set = &p.head[h].partition;
            *set = plsh_partition_default(h ? 11 : 1.7, 1 + variant % 5 * 9);
            set->scheme = variant / 2 % 3 == 0   ? PLSH_SCHEME_INTEGER
                          : variant / 2 % 3 == 1 ? PLSH_SCHEME_BINNING
                                                 : PLSH_SCHEME_CUTS;
            set->design = variant / 6 % 2 ? PLSH_DESIGN_IID : PLSH_DESIGN_STRATIFIED;
            set->head = (uint32_t)h;
            if (variant / 6 % 2 == 0 && h == 1 && set->scheme != PLSH_SCHEME_CUTS)
                set->design = PLSH_DESIGN_GOLDEN;
            if (variant >= 18 && set->scheme == PLSH_SCHEME_INTEGER) set->decay.limit = 0.2;
        }
        set_up(&p, (uint64_t)variant, 1);
        check_definition(&p, "schemes", 3e-6);
        tear_down(&p);
    }
}

/* Grouped heads, value_dim, few queries, several sequences, 0 and 1 rows. */
static void test_shapes(void **state) {
    (void)state;
    static const struct {
        int64_t heads, kv, queries, keys, d, dv;
    } shapes[] = {{4, 2, 150, 150, 7, 13}, {2, 1, 5, 333, 64, 64},  {1, 1, 1, 1, 1, 1},
                  {3, 3, 97, 97, 80, 1},   {1, 1, 400, 401, 1, 33}, {2, 2, 1, 300, 128, 96}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int causal = 0; causal < 2; causal++) {
            problem p = {.a = {.heads = shapes[i].heads,
                               .kv_heads = shapes[i].kv,
                               .queries = shapes[i].queries,
                               .keys = shapes[i].keys,
                               .head_dim = shapes[i].d,
                               .value_dim = shapes[i].dv,
                               .causal = causal,
                               .head_count = 1}};
            p.head[0].partition = plsh_partition_default(9, 12);
            set_up(&p, i, 1);
            check_definition(&p, "shapes", 3e-6);
            tear_down(&p);
        }
    }
}

static void test_sequences(void **state) {
    (void)state;
    problem p = {.a = {.heads = 2,
                       .queries = 130,
                       .keys = 210,
                       .head_dim = 16,
                       .head_count = 2,
                       .sequences = 3},
                 .query_offsets = {0, 100, 100, 130},
                 .key_offsets = {0, 140, 145, 210}};
    p.a.query_offsets = p.query_offsets;
    p.a.key_offsets = p.key_offsets;
    p.head[0].partition = plsh_partition_default(30, 20);
    p.head[1].partition = plsh_partition_default(3, 50);
    set_up(&p, 5, 1);
    check_definition(&p, "sequences", 3e-6);
    p.a.causal = true;
    check_definition(&p, "sequences, causal", 3e-6);
    tear_down(&p);
}

/* Scores of +-1e4: the maximum must be that of the visible scores; larger scores of masked keys
 * must not matter. */
static void test_large_scores(void **state) {
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        problem p = {.a = {.heads = 1,
                           .queries = 200,
                           .keys = 200,
                           .head_dim = 8,
                           .head_count = 1,
                           .causal = causal}};
        p.head[0].partition = plsh_partition_default(8, 30);
        set_up(&p, 9, 3000);
        check_definition(&p, "large scores", 0.02); /* float scores of 1e4 are off by 1e-3 */
        tear_down(&p);
    }
}

/* Labels in any order, draws of both kinds, more keys per block than a step holds. */
static void test_labels(void **state) {
    (void)state;
    enum { N = 500, S = 4 };
    int32_t *labels = malloc(sizeof(int32_t) * N * S);
    for (int kind = 0; kind < 3; kind++) {
        for (int causal = 0; causal < 2; causal++) {
            problem p = {.a = {.heads = 1,
                               .queries = N,
                               .keys = N,
                               .head_dim = 12,
                               .value_dim = 5,
                               .head_count = 1,
                               .causal = causal}};
            for (int i = 0; i < N * S; i++)
                labels[i] = kind == 0 ? i % N * 7 % 5 - 2 : kind == 1 ? i % N / 17 : i * 31 % 2;
            p.head[0].partition = (plsh_partition){
                .scheme = PLSH_SCHEME_LABELS, .samples = S, .labels = labels, .label_count = N};
            set_up(&p, 3, 1);
            check_definition(&p, "labels", 3e-6);
            tear_down(&p);
        }
    }
    free(labels);
}

/* ---- the machinery ----------------------------------------------------------------------------
 */

static void test_threads(void **state) {
    (void)state;
    static const plsh_method methods[] = {PLSH_METHOD_PLSH, PLSH_METHOD_MASKS, PLSH_METHOD_MEAN,
                                          PLSH_METHOD_PLSH};
    problem p = {.a = {.heads = 4,
                       .queries = 700,
                       .keys = 700,
                       .head_dim = 32,
                       .head_count = 4,
                       .causal = true}};
    for (int h = 0; h < 4; h++) {
        p.head[h].method = methods[h];
        p.head[h].partition = plsh_partition_default(h == 3 ? 100 : 10, 30);
    }
    set_up(&p, 21, 1);
    p.a.threads = 1;
    attend_with_lse(&p);
    float *one = malloc(p.o_count * sizeof *one), *one_lse = malloc(p.rows * sizeof *one_lse);
    memcpy(one, p.o, p.o_count * sizeof *one);
    memcpy(one_lse, p.lse, p.rows * sizeof *one_lse);
    for (int threads = 2; threads <= 7; threads += 5) {
        p.a.threads = threads;
        memset(p.o, 0, p.o_count * sizeof *p.o);
        attend_with_lse(&p);
        assert_memory_equal(one, p.o, p.o_count * sizeof *one);
        assert_memory_equal(one_lse, p.lse, p.rows * sizeof *one_lse);
    }
    free(one);
    free(one_lse);
    tear_down(&p);
}

/* A value that is not finite reaches the rows that see it, and no others. */
static void test_not_finite(void **state) {
    (void)state;
    enum { N = 300, BAD = 150 };
    for (int method = 0; method < 2; method++) {
        problem p = {.a = {.heads = 1, .queries = N, .keys = N, .head_dim = 4, .head_count = 1}};
        p.head[0].partition = plsh_partition_default(10, 5);
        p.head[0].method = method ? PLSH_METHOD_MASKS : PLSH_METHOD_PLSH;
        set_up(&p, 33, 1);
        p.v[BAD * 4 + 1] = NAN;
        attend_with_lse(&p);
        for (int i = 0; i < N; i++) {
            bool sees = plsh_partition_count(&p.head[0].partition, i, BAD) > 0;
            assert_int_equal(isnan(p.o[i * 4 + 1]), sees);
            assert_true(isfinite(p.o[i * 4]) && isfinite(p.lse[i]));
        }
        p.v[BAD * 4 + 1] = 0;
        p.k[BAD * 4] = NAN;
        attend_with_lse(&p);
        for (int i = 0; i < N; i++) {
            bool sees = plsh_partition_count(&p.head[0].partition, i, BAD) > 0;
            assert_int_equal(isnan(p.o[i * 4]), sees);
            assert_int_equal(isnan(p.lse[i]), sees);
        }
        tear_down(&p);
    }
}

static void test_refusals(void **state) {
    (void)state;
    plsh_error error;
    int32_t labels[10] = {0};
    problem p = {.a = {.heads = 1, .queries = 11, .keys = 11, .head_dim = 4, .head_count = 1}};
    set_up(&p, 1, 1);
    p.head[0] = (plsh_head){
        .method = PLSH_METHOD_PLSH,
        .partition = {
            .scheme = PLSH_SCHEME_LABELS, .samples = 1, .labels = labels, .label_count = 10}};
    assert_fails(plsh_attend(&p.a, p.q, p.k, p.v, p.o, NULL, &error), PLSH_STATUS_INVALID,
                 "10 labels");
    p.head[0].partition = plsh_partition_default(8, 0);
    assert_fails(plsh_attend(&p.a, p.q, p.k, p.v, p.o, NULL, &error), PLSH_STATUS_INVALID,
                 "samples");
    p.head[0].partition = plsh_partition_default(8, 4);
    p.head[0].partition.decay = (plsh_decay){.kind = PLSH_DECAY_KERPLE_POWER, .a = 0.01, .b = 2};
    assert_fails(plsh_attend(&p.a, p.q, p.k, p.v, p.o, NULL, &error), PLSH_STATUS_UNSUPPORTED, "");
    tear_down(&p);
}

static plsh_status attend(void *context, plsh_error *error) {
    problem *p = context;
    return plsh_attend(&p->a, p->q, p->k, p->v, p->o, p->lse, error);
}

static void test_memory(void **state) {
    (void)state;
    int32_t labels[2 * 20];
    for (int i = 0; i < 40; i++) labels[i] = i * 7 % 3;
    problem p = {.a = {.heads = 3, .queries = 20, .keys = 20, .head_dim = 4, .head_count = 3}};
    p.head[0] = (plsh_head){.method = PLSH_METHOD_PLSH, .partition = plsh_partition_default(8, 4)};
    p.head[1] = (plsh_head){.method = PLSH_METHOD_MEAN, .partition = plsh_partition_default(8, 4)};
    p.head[2] = (plsh_head){
        .method = PLSH_METHOD_MASKS,
        .partition = {
            .scheme = PLSH_SCHEME_LABELS, .samples = 2, .labels = labels, .label_count = 20}};
    set_up(&p, 1, 1);
    test_every_allocation(attend, &p, 10);
    tear_down(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),      cmocka_unit_test(test_schemes),
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_large_scores), cmocka_unit_test(test_labels),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
