/* tests: o in half precision is the o of float32, rounded, to the bit. */
#include "support/support.h"

#include "plsh/attention.h"
#include "support/cache_cases.h"
#include "support/problem.h"

#include <stdlib.h>
#include <string.h>

static const plsh_dtype narrow_types[] = {PLSH_DTYPE_FLOAT16, PLSH_DTYPE_BFLOAT16};

/* The bits that `count` numbers should have; to be freed. */
static uint16_t *rounded(plsh_dtype dtype, const float *from, size_t count) {
    plsh_error error;
    uint16_t *to = malloc(count * sizeof *to);
    assert_ok(plsh_dtype_from_float(dtype, to, from, count, &error));
    return to;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

enum { QUERIES = 211, KEYS = 333, DIM = 20, HEADS = 4, METHODS = 12, GAP = 3 };

static int32_t labels[4 * KEYS];

/* Every method, and the sampled ones once more with labels that are not contiguous. */
static void set_heads(plsh_head *head, int method) {
    const plsh_decay decay = {.kind = PLSH_DECAY_ALIBI, .a = 20};
    static const plsh_method with_labels[] = {PLSH_METHOD_PLSH, PLSH_METHOD_MASKS,
                                              PLSH_METHOD_MEAN};
    for (int i = 0; i < 4 * KEYS; i++) labels[i] = i * 7 % 5;
    for (int h = 0; h < HEADS; h++) {
        head[h] =
            plsh_head_default(method < 9 ? (plsh_method)method : with_labels[method - 9], &decay);
        head[h].partition.samples = 4;
        head[h].partition.head = (uint32_t)h;
        if (method < 9) continue;
        head[h].partition.scheme = PLSH_SCHEME_LABELS;
        head[h].partition.labels = labels;
        head[h].partition.label_count = KEYS;
    }
}

typedef struct outcome {
    void *o;
    float lse[HEADS * QUERIES], certificate[HEADS * QUERIES];
    int64_t pairs;
} outcome;

static void run_forward(const problem *p, const plsh_attention *a, outcome *out) {
    plsh_error error;
    plsh_plan *plan;
    plsh_stats stats;
    assert_ok(plsh_plan_create(a, &plan, &error));
    void *workspace = aligned_alloc(64, plsh_plan_workspace(plan));
    const plsh_forward arrays = {.q = p->q,
                                 .k = p->k,
                                 .v = p->v,
                                 .o = out->o,
                                 .lse = out->lse,
                                 .certificate = out->certificate};
    assert_ok(plsh_plan_forward(plan, &arrays, workspace, &stats, &error));
    out->pairs = stats.pairs;
    free(workspace);
    plsh_plan_destroy(plan);
}

/* The gaps of o are filled with a pattern that stays, being rounded as the rest is. */
static void compare(const problem *p, plsh_attention a, plsh_dtype dtype, size_t count) {
    static outcome wide, narrow;
    float *o = malloc(count * sizeof *o);
    for (size_t i = 0; i < count; i++) o[i] = 77;
    uint16_t *found = rounded(dtype, o, count);
    wide.o = o;
    a.o_dtype = PLSH_DTYPE_FLOAT32;
    run_forward(p, &a, &wide);
    narrow.o = found;
    a.o_dtype = dtype;
    run_forward(p, &a, &narrow);
    uint16_t *expected = rounded(dtype, o, count);
    assert_memory_equal(found, expected, count * sizeof *found);
    assert_memory_equal(narrow.lse, wide.lse, sizeof wide.lse);
    const size_t rows = sizeof wide.certificate / sizeof *wide.certificate;
    for (size_t i = 0; i < rows; i++) /* the rounding of o is in it */
        assert_false(narrow.certificate[i] < wide.certificate[i]);
    assert_int_equal(narrow.pairs, wide.pairs);
    free(o), free(found), free(expected);
}

/* A plain call, and packed sequences in rows with gaps, [rows, heads, dim]. */
static void compare_both(problem *p, int value_dim) {
    const int64_t query_offsets[] = {0, 1, 100, QUERIES}, key_offsets[] = {0, 70, 200, KEYS};
    for (int t = 0; t < 2; t++) {
        plsh_attention a = p->a;
        a.head = p->head;
        a.head_count = HEADS;
        a.causal = t == 0;
        compare(p, a, narrow_types[t], (size_t)(HEADS * QUERIES * value_dim));
        const int64_t width = value_dim + GAP;
        a.o = (plsh_layout){width, HEADS * width};
        a.sequences = 3;
        a.query_offsets = query_offsets;
        a.key_offsets = key_offsets;
        compare(p, a, narrow_types[t], (size_t)(HEADS * QUERIES * width));
    }
}

static problem *make_problem(int value_dim) {
    const plsh_attention a = {.heads = HEADS,
                              .kv_heads = 2,
                              .queries = QUERIES,
                              .keys = KEYS,
                              .head_dim = DIM,
                              .value_dim = value_dim,
                              .threads = 2};
    return problem_make(a, 5);
}

static void test_every_method(void **state) {
    (void)state;
    static const int value_dims[] = {1, 19, 64};
    for (int i = 0; i < 3; i++) {
        problem *p = make_problem(value_dims[i]);
        for (int method = 0; method < METHODS; method++) {
            set_heads(p->head, method);
            compare_both(p, value_dims[i]);
        }
        problem_free(p);
    }
}

/* An output that is finite as float32 but too large for float16 does not trigger a second run. */
static void test_numbers_beyond_half(void **state) {
    (void)state;
    problem *p = make_problem(19);
    for (size_t i = 0; i < p->v_count; i++) p->v[i] *= 60000;
    for (int method = 0; method < METHODS; method++) {
        set_heads(p->head, method);
        compare_both(p, 19);
    }
    problem_free(p);
}

static void test_types_that_o_cannot_have(void **state) {
    (void)state;
    plsh_error error;
    problem *p = make_problem(8);
    set_heads(p->head, PLSH_METHOD_EXACT);
    plsh_attention a = p->a;
    a.head = p->head, a.head_count = HEADS;
    plsh_plan *plan;
    for (int t = PLSH_DTYPE_FLOAT64; t <= PLSH_DTYPE_BOOL + 1; t++) {
        a.o_dtype = (plsh_dtype)t;
        assert_fails(plsh_plan_create(&a, &plan, &error), PLSH_STATUS_INVALID, "o_dtype is");
    }
    problem_free(p);
}

/* o of halves takes half the bytes: the memory right after it is neither written nor counted as an
 * overlap. */
static void test_overlap_counts_bytes(void **state) {
    (void)state;
    plsh_error error;
    problem *p = make_problem(DIM);
    set_heads(p->head, PLSH_METHOD_EXACT);
    plsh_attention a = p->a;
    a.head = p->head, a.head_count = HEADS;
    a.o_dtype = PLSH_DTYPE_FLOAT16;
    const size_t count = HEADS * QUERIES * DIM;
    float *both = calloc(2 * count, sizeof *both); /* o of halves, and q right behind */
    uint16_t *o = (uint16_t *)both;
    float *q = both + count / 2;
    memcpy(q, p->q, count * sizeof *q);
    assert_ok(plsh_attend(&a, q, p->k, p->v, o, NULL, &error));
    assert_memory_equal(q, p->q, count * sizeof *q);
    assert_fails(plsh_attend(&a, q, p->k, p->v, o + 1, NULL, &error), PLSH_STATUS_INVALID,
                 "q and o share memory");
    a.o_dtype = PLSH_DTYPE_FLOAT32;
    assert_fails(plsh_attend(&a, q, p->k, p->v, o, NULL, &error), PLSH_STATUS_INVALID,
                 "q and o share memory");
    free(both);
    problem_free(p);
}

/* ---- Caches ---------------------------------------------------------------------------------- */

enum { SEQUENCES = 2 };

typedef struct stream {
    plsh_cache *cache[SEQUENCES];
    test_data data[SEQUENCES];
    uint16_t *o[SEQUENCES];
    int64_t done;
} stream;

static size_t o_count(const test_case *c) { return (size_t)(c->heads * c->length * c->value_dim); }

static stream stream_make(const test_case *c) {
    plsh_error error;
    stream s = {.done = 0};
    const plsh_cache_config config = test_config(c);
    for (int i = 0; i < SEQUENCES; i++) {
        assert_ok(plsh_cache_create(&config, &s.cache[i], &error));
        s.data[i] = test_data_make(c, (uint64_t)i);
        s.o[i] = calloc(o_count(c), sizeof(uint16_t));
    }
    return s;
}

static void stream_free(stream *s) {
    for (int i = 0; i < SEQUENCES; i++) {
        plsh_cache_destroy(s->cache[i]);
        test_data_free(&s->data[i]);
        free(s->o[i]);
    }
}

/* A chunk of a prompt, a few tokens, single ones; single steps and batches in turn. */
static void stream_step(stream *s, const test_case *c, int piece, plsh_dtype o_dtype) {
    static const int64_t sizes[] = {97, 1, 33, 5, 1, 1};
    plsh_error error;
    plsh_tokens tokens[SEQUENCES];
    int64_t left = c->length - s->done, count = sizes[piece % 6] < left ? sizes[piece % 6] : left;
    for (int i = 0; i < SEQUENCES; i++) {
        tokens[i] = test_tokens(c, &s->data[i], s->done, count);
        tokens[i].o_dtype = o_dtype;
        if (o_dtype != PLSH_DTYPE_FLOAT32)
            tokens[i].o = s->o[i] + s->done * tokens[i].o_layout.row_stride;
    }
    s->done += count;
    if (piece % 2 == 0) {
        assert_ok(plsh_cache_step_batch(s->cache, tokens, SEQUENCES, NULL, &error));
        return;
    }
    for (int i = 0; i < SEQUENCES; i++)
        assert_ok(plsh_cache_step(s->cache[i], &tokens[i], NULL, &error));
}

static void test_caches(void **state) {
    (void)state;
    for (const test_case *c = test_cases; c->name; c++) {
        if (c->length > 1000) continue;
        for (int t = 0; t < 2; t++) {
            stream wide = stream_make(c), narrow = stream_make(c);
            for (int piece = 0; wide.done < c->length; piece++) {
                stream_step(&wide, c, piece, PLSH_DTYPE_FLOAT32);
                stream_step(&narrow, c, piece, narrow_types[t]);
            }
            for (int i = 0; i < SEQUENCES; i++) {
                uint16_t *expected = rounded(narrow_types[t], wide.data[i].o, o_count(c));
                assert_memory_equal(narrow.o[i], expected, o_count(c) * sizeof(uint16_t));
                free(expected);
            }
            stream_free(&wide), stream_free(&narrow);
        }
    }
}

static void test_types_that_tokens_cannot_have(void **state) {
    (void)state;
    plsh_error error;
    const test_case *c = test_cases;
    stream s = stream_make(c);
    plsh_tokens tokens = test_tokens(c, &s.data[0], 0, 1);
    tokens.o_dtype = PLSH_DTYPE_FLOAT64;
    assert_fails(plsh_cache_step(s.cache[0], &tokens, NULL, &error), PLSH_STATUS_INVALID,
                 "o_dtype is float64");
    assert_int_equal(plsh_cache_length(s.cache[0]), 0);
    stream_free(&s);
}

int main(void) {
    if (!test_has_isa(NULL)) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_method),
        cmocka_unit_test(test_numbers_beyond_half),
        cmocka_unit_test(test_types_that_o_cannot_have),
        cmocka_unit_test(test_overlap_counts_bytes),
        cmocka_unit_test(test_caches),
        cmocka_unit_test(test_types_that_tokens_cannot_have),
    };
    return cmocka_run_group_tests_name("output", tests, NULL, NULL);
}
