/* tests: one check for plans and caches. The same descriptors, good and bad, drawn at random, have
 * the same outcome in both, and the same numbers; extremes of every number of the public structs
 * are refused or do what the largest sensible value does; outputs that overlap inputs are refused.
 * Under the undefined-behaviour sanitizer this is also a test of the arithmetic on the way. */
#include "support/support.h"

#include "base/random.h"
#include "plsh/attention.h"
#include "plsh/cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 40, DIM = 8, HEADS = 4 };

static plsh_random stream(uint64_t run, uint64_t index) {
    return plsh_random_at((plsh_stream){run, 7, 3}, index);
}

static float number(uint64_t run, uint64_t index) {
    return (float)(4.0 * plsh_random_unit(stream(run, index).word[0]) - 2.0);
}

/* ---- names and defaults ---- */

static void test_names(void **state) {
    (void)state;
    plsh_error error;
    for (int i = 0; i <= PLSH_METHOD_AUTO; i++) {
        plsh_method method = (plsh_method)99;
        assert_ok(plsh_method_find(plsh_method_names()[i], &method, &error));
        assert_int_equal(method, i);
    }
    for (int i = 0; i <= PLSH_SCHEME_LABELS; i++) {
        plsh_scheme scheme = (plsh_scheme)99;
        assert_ok(plsh_scheme_find(plsh_scheme_names()[i], &scheme, &error));
        assert_int_equal(scheme, i);
    }
    for (int i = 0; i <= PLSH_DESIGN_AUTO; i++) {
        plsh_design design = (plsh_design)99;
        assert_ok(plsh_design_find(plsh_design_names()[i], &design, &error));
        assert_int_equal(design, i);
    }
    assert_null(plsh_method_names()[PLSH_METHOD_AUTO + 1]);
    assert_null(plsh_scheme_names()[PLSH_SCHEME_HYPERPLANES + 1]);
    assert_null(plsh_design_names()[PLSH_DESIGN_AUTO + 1]);
    plsh_method method;
    assert_fails(plsh_method_find("flash", &method, &error), PLSH_STATUS_INVALID,
                 "method 'flash' is unknown; one of dense, exact, plsh");
}

static void test_defaults(void **state) {
    (void)state;
    plsh_error error;
    plsh_head heads[6];
    assert_ok(plsh_heads_alibi(6, PLSH_METHOD_FIXED, heads, &error));
    for (int h = 0; h < 6; h++) {
        const double sigma = heads[h].partition.decay.a;
        assert_int_equal(heads[h].window, (int64_t)ceil(27 * sigma));
        assert_int_equal(heads[h].block, (int64_t)ceil(2 * sigma));
        assert_int_equal(heads[h].partition.head, h);
        assert_int_equal(heads[h].partition.samples, 20);
    }
    /* 1/e is reached at (e - 1) / 0.1 = 17.2; at distance 3 of the table; and never. */
    const double entries[] = {1, 0.9, 0.5, 0.3, 0.6};
    const plsh_decay log = {.kind = PLSH_DECAY_KERPLE_LOG, .a = 1, .b = 0.1};
    const plsh_decay table = {.kind = PLSH_DECAY_TABLE, .table = entries, .table_size = 5};
    plsh_decay flat = plsh_decay_alibi(5);
    flat.limit = 0.5;
    assert_int_equal(plsh_head_default(PLSH_METHOD_FIXED, &log).block, 36);
    assert_int_equal(plsh_head_default(PLSH_METHOD_WINDOW, &table).window, 81);
    assert_true(plsh_head_default(PLSH_METHOD_WINDOW, &flat).window >= INT64_C(1) << 60);
    const plsh_decay tiny = plsh_decay_alibi(1e-300), huge = plsh_decay_alibi(1e15);
    assert_int_equal(plsh_head_default(PLSH_METHOD_FIXED, &tiny).block, 1);
    assert_int_equal(plsh_head_default(PLSH_METHOD_FIXED, &huge).block, 2000000000000000);
}

/* ---- a descriptor for both ---- */

typedef struct descriptor {
    plsh_attention a;
    plsh_head head[HEADS];
    int64_t undo;
} descriptor;

static const double table[] = {1, 0.6, 0.4, 0.3, 0.3};

static descriptor plain(plsh_method method) {
    descriptor d = {.a = {.heads = HEADS,
                          .kv_heads = 2,
                          .queries = ROWS,
                          .keys = ROWS,
                          .head_dim = DIM,
                          .causal = true,
                          .head_count = HEADS,
                          .threads = 1}};
    for (int h = 0; h < HEADS; h++) {
        d.head[h] = (plsh_head){.method = method,
                                .partition = plsh_partition_default(1.5 + 4 * h, 6),
                                .window = 5 + h,
                                .block = 7 + h};
        d.head[h].partition.head = (uint32_t)h;
    }
    return d;
}

typedef struct arrays {
    float q[HEADS * ROWS * DIM], k[HEADS * ROWS * DIM], v[HEADS * ROWS * DIM];
    float o[HEADS * ROWS * DIM], lse[HEADS * ROWS];
} arrays;

static void fill(arrays *x, uint64_t run) {
    for (int i = 0; i < HEADS * ROWS * DIM; i++) {
        x->q[i] = number(run, (uint64_t)i);
        x->k[i] = number(run + 1, (uint64_t)i);
        x->v[i] = number(run + 2, (uint64_t)i);
    }
}

static plsh_status run_plan(const descriptor *d, const arrays *in, arrays *out, plsh_error *error) {
    plsh_attention a = d->a;
    a.head = d->head;
    *out = (arrays){0};
    return plsh_attend(&a, in->q, in->k, in->v, out->o, out->lse, error);
}

/* Token by token, so that it is the decoding that is compared. */
static plsh_status run_cache(const descriptor *d, const arrays *in, arrays *out,
                             plsh_error *error) {
    const plsh_attention *a = &d->a;
    const plsh_cache_config config = {.heads = a->heads,
                                      .kv_heads = a->kv_heads,
                                      .head_dim = a->head_dim,
                                      .value_dim = a->value_dim,
                                      .dtype = a->dtype,
                                      .scale = a->scale,
                                      .head = d->head,
                                      .head_count = a->head_count,
                                      .undo = d->undo,
                                      .threads = a->threads,
                                      .isa = a->isa};
    plsh_cache *cache;
    plsh_status status = plsh_cache_create(&config, &cache, error);
    *out = (arrays){0};
    const int64_t dim = a->head_dim, wide = a->value_dim ? a->value_dim : a->head_dim;
    for (int64_t t = 0; !status && t < a->queries; t++) {
        float lse[HEADS];
        const plsh_tokens token = {.count = 1,
                                   .dtype = PLSH_DTYPE_FLOAT32,
                                   .q = in->q + t * dim,
                                   .k = in->k + t * dim,
                                   .v = in->v + t * wide,
                                   .o = out->o + t * wide,
                                   .lse = lse,
                                   .q_layout = {a->queries * dim, dim},
                                   .k_layout = {a->queries * dim, dim},
                                   .v_layout = {a->queries * wide, wide},
                                   .o_layout = {a->queries * wide, wide}};
        status = plsh_cache_step(cache, &token, NULL, error);
        for (int64_t h = 0; h < a->heads; h++) out->lse[h * a->queries + t] = lse[h];
    }
    plsh_cache_destroy(cache);
    return status;
}

/* For the message of a failure. */
static char described[400];

static void describe(const descriptor *d) {
    int used = snprintf(described, sizeof described,
                        "%lld rows, scale %g:", (long long)d->a.queries, d->a.scale);
    for (int h = 0; h < HEADS; h++) {
        const plsh_head *head = &d->head[h];
        used +=
            snprintf(described + used, sizeof described - (size_t)used,
                     " [%d: decay %d %g %g %g, scheme %d, s %lld, %lld, %lld, eps %g]",
                     (int)head->method, (int)head->partition.decay.kind, head->partition.decay.a,
                     head->partition.decay.b, head->partition.decay.limit,
                     (int)head->partition.scheme, (long long)head->partition.samples,
                     (long long)head->window, (long long)head->block, head->eps);
        if (used >= (int)sizeof described) break;
    }
}

static void assert_alike(const float *a, const float *b, size_t count, float tolerance) {
    for (size_t i = 0; i < count; i++) {
        if (isnan(a[i]) && isnan(b[i])) continue;
        if (a[i] == b[i] || fabsf(a[i] - b[i]) <= tolerance * (1 + fabsf(a[i]))) continue;
        fail_msg("element %zu: %.9g by the plan, %.9g by the cache: %s", i, (double)a[i],
                 (double)b[i], described);
    }
}

/* Was it refused? */
static bool compare_both(const descriptor *d, const arrays *in, float tolerance) {
    static arrays plan, cache;
    describe(d);
    plsh_error first = {0}, second = {0};
    plsh_status by_plan = run_plan(d, in, &plan, &first);
    plsh_status by_cache = run_cache(d, in, &cache, &second);
    if (by_plan != by_cache)
        fail_msg("the plan says \"%s\", the cache \"%s\": %s", by_plan ? first.message : "ok",
                 by_cache ? second.message : "ok", described);
    if (by_plan) {
        assert_string_equal(first.message, second.message);
        return true;
    }
    assert_alike(plan.o, cache.o, sizeof plan.o / sizeof(float), tolerance);
    assert_alike(plan.lse, cache.lse, sizeof plan.lse / sizeof(float), tolerance);
    return false;
}

/* ---- random descriptors ---- */

static uint64_t draw(uint64_t run, uint64_t *index, uint64_t below) {
    return stream(run, (*index)++).word[0] % below;
}

static plsh_head random_head(uint64_t run, uint64_t *at) {
    static const double sigmas[] = {1e-3, 0.7, 3, 20, 1e6, 1e15, 0, -1, NAN, INFINITY, 1e16};
    static const int64_t sizes[] = {1, 2, 9, 64, INT64_MAX, INT64_MAX - 1, 0, -1, INT64_MIN};
    static const int64_t samples[] = {1, 3, 20, 0, -1, INT64_MAX};
    static const double shares[] = {0, 0.25, 1, -0.1, 2, NAN};
    static const double eps[] = {0, 1e-3, 1, -1, NAN};
    const bool good = draw(run, at, 3) > 0; /* only the first entries */
    plsh_head head = {.method = (plsh_method)draw(run, at, good ? 9 : 11)};
    head.partition = plsh_partition_default(sigmas[draw(run, at, good ? 6 : 11)],
                                            samples[draw(run, at, good ? 3 : 6)]);
    head.partition.decay.kind = (plsh_decay_kind)draw(run, at, good ? 5 : 6);
    head.partition.decay.b = 0.5 * (double)draw(run, at, good ? 3 : 6);
    if (good && head.partition.decay.b == 0) head.partition.decay.b = 0.25;
    head.partition.decay.limit = draw(run, at, 4) ? 0 : shares[draw(run, at, good ? 2 : 6)];
    head.partition.decay.table = draw(run, at, good ? 100 : 4) ? table : NULL;
    head.partition.decay.table_size = 5;
    head.partition.scheme = (plsh_scheme)draw(run, at, good ? 3 : 5);
    head.partition.design = (plsh_design)draw(run, at, good ? 2 : 3);
    head.window = sizes[draw(run, at, good ? 6 : 9)];
    head.block = sizes[draw(run, at, good ? 6 : 9)];
    head.eps = eps[draw(run, at, good ? 2 : 5)];
    return head;
}

static descriptor random_descriptor(uint64_t run) {
    static const double scales[] = {0, 0.3, -0.3, 1e-300, 1, NAN, INFINITY, 1e39, -1e39};
    uint64_t at = 0;
    descriptor d = plain(PLSH_METHOD_DENSE);
    d.a.queries = d.a.keys = 1 + (int64_t)draw(run, &at, ROWS);
    d.a.scale = scales[draw(run, &at, draw(run, &at, 4) ? 5 : 9)];
    if (draw(run, &at, 8) == 0) d.a.kv_heads = (int64_t)draw(run, &at, 7) - 1;
    if (draw(run, &at, 8) == 0) d.a.value_dim = (int64_t)draw(run, &at, DIM + 2) - 1;
    if (draw(run, &at, 8) == 0) d.a.threads = (int[]){-1, 2, 4097}[draw(run, &at, 3)];
    if (draw(run, &at, 16) == 0) d.a.head_count = (int64_t)draw(run, &at, 6) - 1;
    if (draw(run, &at, 16) == 0) d.a.dtype = (plsh_dtype)(3 + draw(run, &at, 12));
    if (draw(run, &at, 16) == 0) d.a.heads = draw(run, &at, 2) ? 0 : INT64_MAX;
    if (draw(run, &at, 16) == 0) d.a.head_dim = draw(run, &at, 2) ? 513 : INT64_MIN;
    if (draw(run, &at, 16) == 0) d.a.isa = "mmx";
    for (int h = 0; h < HEADS; h++) d.head[h] = random_head(run, &at);
    return d;
}

static void test_random_descriptors(void **state) {
    (void)state;
    static arrays in;
    int refused = 0;
    fill(&in, 1);
    for (uint64_t run = 0; run < 3000; run++) {
        descriptor d = random_descriptor(run);
        if (run % 2) /* one head for all: fewer chances to be wrong */
            for (int h = 1; h < HEADS; h++) d.head[h] = d.head[0];
        /* `auto` chooses by the length in one, and not in the other: exact to eps either way. */
        float tolerance = 2e-5f;
        for (int h = 0; h < HEADS; h++)
            if (d.head[h].eps > 0) tolerance = 1e-1f;
        refused += compare_both(&d, &in, tolerance);
    }
    assert_in_range(refused, 500, 2500); /* both kinds are there */
}

/* ---- numbers that are not finite ---- */

static void test_not_finite(void **state) {
    (void)state;
    static arrays in;
    static const float values[] = {-INFINITY, INFINITY, NAN};
    for (int method = 0; method <= PLSH_METHOD_AUTO; method++)
        for (int i = 0; i < 3; i++)
            for (int rows = 1; rows <= 3; rows += 2)
                for (int which = 0; which < 3; which++) {
                    descriptor d = plain((plsh_method)method);
                    fill(&in, 5);
                    d.a.queries = d.a.keys = rows;
                    float *array = which == 0 ? in.q : which == 1 ? in.k : in.v;
                    for (int x = 0; x < HEADS * rows * DIM; x++) {
                        in.q[x] = fabsf(in.q[x]) + 0.1f; /* so that -inf stays -inf */
                        in.k[x] = fabsf(in.k[x]) + 0.1f;
                    }
                    for (int x = 0; x < HEADS * rows * DIM; x++)
                        if (which < 2 || x % 5 == 0) array[x] = values[i];
                    compare_both(&d, &in, 2e-5f);
                }
}

/* A row all of whose keys weigh nothing is 0, and its lse -inf. */
static void test_key_of_minus_infinity(void **state) {
    (void)state;
    plsh_error error;
    static arrays in, out;
    for (int method = 0; method <= PLSH_METHOD_AUTO; method++) {
        descriptor d = plain((plsh_method)method);
        d.a.queries = d.a.keys = 1;
        for (int x = 0; x < HEADS * DIM; x++) in.q[x] = 1, in.k[x] = -INFINITY, in.v[x] = 3;
        for (int both = 0; both < 2; both++) {
            assert_ok((both ? run_cache : run_plan)(&d, &in, &out, &error));
            for (int x = 0; x < HEADS * DIM; x++) assert_true(out.o[x] == 0);
            for (int h = 0; h < HEADS; h++) assert_true(out.lse[h] == -INFINITY);
        }
    }
}

/* ---- extremes ---- */

/* A window or block longer than the sequence gives the results of one as long as the sequence. */
static void test_extreme_sizes(void **state) {
    (void)state;
    plsh_error error;
    static arrays in, expected, out;
    static const int64_t sizes[] = {ROWS + 1,         INT64_C(1) << 40,
                                    INT64_C(1) << 61, (INT64_C(1) << 62) + 1,
                                    INT64_MAX - 1,    INT64_MAX};
    fill(&in, 9);
    for (int fixed = 0; fixed < 2; fixed++)
        for (int causal = 0; causal < 2; causal++)
            for (int i = 0; i < 6; i++) {
                descriptor d = plain(fixed ? PLSH_METHOD_FIXED : PLSH_METHOD_WINDOW);
                d.a.causal = causal;
                for (int h = 0; h < HEADS; h++) d.head[h].window = d.head[h].block = ROWS;
                assert_ok(run_plan(&d, &in, &expected, &error));
                for (int h = 0; h < HEADS; h++) d.head[h].window = d.head[h].block = sizes[i];
                assert_ok(run_plan(&d, &in, &out, &error));
                assert_memory_equal(&out, &expected, sizeof out);
                plsh_plan *plan;
                d.a.head = d.head;
                assert_ok(plsh_plan_create(&d.a, &plan, &error));
                void *workspace = aligned_alloc(64, plsh_plan_workspace(plan));
                float certificate[HEADS * ROWS];
                plsh_stats stats;
                const plsh_forward given = {.q = in.q,
                                            .k = in.k,
                                            .v = in.v,
                                            .o = out.o,
                                            .lse = out.lse,
                                            .certificate = certificate};
                assert_ok(plsh_plan_forward(plan, &given, workspace, &stats, &error));
                const int64_t all = causal ? ROWS * (ROWS + 1) / 2 : ROWS * ROWS;
                assert_int_equal(stats.pairs, HEADS * all);
                assert_true(plsh_plan_predicted_pairs(plan) >= 0);
                free(workspace);
                plsh_plan_destroy(plan);
                if (causal) compare_both(&d, &in, 2e-5f);
            }
}

static const int64_t integers[] = {INT64_MIN,
                                   INT64_MIN + 1,
                                   -(INT64_C(1) << 32),
                                   -1,
                                   INT64_C(1) << 31,
                                   INT64_C(1) << 32,
                                   (INT64_C(1) << 40) + 1,
                                   INT64_C(1) << 61,
                                   INT64_C(1) << 62,
                                   INT64_MAX - 1,
                                   INT64_MAX};
static const double doubles[] = {-INFINITY, -1.7976931348623157e308, -1,  -5e-324, 5e-324,
                                 1e-300,    1.7976931348623157e308,  NAN, INFINITY};
enum { INTEGERS = sizeof integers / sizeof *integers, DOUBLES = sizeof doubles / sizeof *doubles };

/* The numbers of a descriptor: where they are. */
static const size_t integer_fields[] = {
    offsetof(descriptor, a.heads),
    offsetof(descriptor, a.kv_heads),
    offsetof(descriptor, a.head_dim),
    offsetof(descriptor, a.value_dim),
    offsetof(descriptor, a.head_count),
    offsetof(descriptor, undo),
    offsetof(descriptor, head[1].window),
    offsetof(descriptor, head[1].block),
    offsetof(descriptor, head[1].partition.samples),
    offsetof(descriptor, head[1].partition.seed),
    offsetof(descriptor, head[1].partition.label_count),
};
static const size_t double_fields[] = {
    offsetof(descriptor, a.scale),
    offsetof(descriptor, head[1].eps),
    offsetof(descriptor, head[1].partition.decay.a),
    offsetof(descriptor, head[1].partition.decay.b),
    offsetof(descriptor, head[1].partition.decay.limit),
};
enum {
    INTEGER_FIELDS = sizeof integer_fields / sizeof *integer_fields,
    DOUBLE_FIELDS = sizeof double_fields / sizeof *double_fields
};

/* Every one of them at its extremes, in heads of every method and decay: the plan and the cache
 * agree on whether it is refused, and where it is not, on the numbers. */
static void test_extreme_descriptors(void **state) {
    (void)state;
    static arrays in;
    fill(&in, 13);
    for (int method = 0; method <= PLSH_METHOD_AUTO; method++)
        for (int kind = 0; kind <= PLSH_DECAY_TABLE; kind++) {
            descriptor d = plain((plsh_method)method);
            for (int h = 0; h < HEADS; h++) {
                d.head[h].partition.decay.kind = (plsh_decay_kind)kind;
                d.head[h].partition.decay.b = 0.5;
                d.head[h].partition.decay.table = table;
                d.head[h].partition.decay.table_size = 5;
            }
            for (int f = 0; f < INTEGER_FIELDS; f++)
                for (int i = 0; i < INTEGERS; i++) {
                    descriptor extreme = d;
                    memcpy((char *)&extreme + integer_fields[f], &integers[i], sizeof(int64_t));
                    bool undo = integer_fields[f] == offsetof(descriptor, undo);
                    if (undo && integers[i] != INT64_C(1) << 61) continue; /* a plan has none */
                    compare_both(&extreme, &in, 2e-5f);
                }
            for (int f = 0; f < DOUBLE_FIELDS; f++)
                for (int i = 0; i < DOUBLES; i++) {
                    descriptor extreme = d;
                    memcpy((char *)&extreme + double_fields[f], &doubles[i], sizeof(double));
                    compare_both(&extreme, &in, 2e-5f);
                }
        }
}

/* Bad rows, offsets and strides are all refused, and no array is written. */
static void test_extreme_shapes(void **state) {
    (void)state;
    plsh_error error;
    static arrays in, out;
    for (int i = 0; i < INTEGERS; i++) {
        int64_t offsets[] = {0, integers[i], ROWS}, good[] = {0, 3, ROWS};
        for (int field = 0; field < 13; field++) {
            descriptor d = plain(PLSH_METHOD_EXACT);
            d.a.head = d.head;
            plsh_attention *a = &d.a;
            int64_t *fields[] = {&a->queries,       &a->sequences,     &a->q.head_stride,
                                 &a->q.row_stride,  &a->k.head_stride, &a->k.row_stride,
                                 &a->v.head_stride, &a->v.row_stride,  &a->o.head_stride,
                                 &a->o.row_stride};
            if (field < 10) *fields[field] = integers[i];
            if (field == 10)
                a->keys = integers[i] > 0 && integers[i] < INT64_C(1) << 40 ? -1 : integers[i];
            if (field > 10) {
                a->sequences = 2;
                a->query_offsets = field == 11 ? offsets : good;
                a->key_offsets = field == 12 ? offsets : good;
            }
            plsh_plan *plan;
            plsh_status status = plsh_plan_create(a, &plan, &error);
            bool strides = field >= 2 && field < 10 && integers[i] > 0;
            if (!strides) assert_true(status != PLSH_STATUS_OK);
            plsh_plan_destroy(plan); /* rows far apart are allowed; that memory is never touched */
        }
    }
    const plsh_head head = plain(PLSH_METHOD_EXACT).head[0];
    const plsh_cache_config config = {.heads = 2, .head_dim = DIM, .head = &head, .head_count = 1};
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    for (int i = 0; i < INTEGERS; i++)
        for (int field = 0; field < 9; field++) {
            plsh_tokens t = {.count = 2, .q = in.q, .k = in.k, .v = in.v, .o = out.o};
            int64_t *fields[] = {&t.count,
                                 &t.q_layout.head_stride,
                                 &t.q_layout.row_stride,
                                 &t.k_layout.head_stride,
                                 &t.k_layout.row_stride,
                                 &t.v_layout.head_stride,
                                 &t.v_layout.row_stride,
                                 &t.o_layout.head_stride,
                                 &t.o_layout.row_stride};
            if (field == 0 && integers[i] > 0 && integers[i] <= INT64_C(1) << 40) continue;
            if (field % 2 == 0 && field > 0 && integers[i] > 0) continue; /* far apart: allowed */
            *fields[field] = integers[i];
            assert_true(plsh_cache_step(cache, &t, NULL, &error) != PLSH_STATUS_OK);
            assert_int_equal(plsh_cache_length(cache), 0);
        }
    plsh_cache_destroy(cache);
}

/* ---- overlaps ---- */

static plsh_status forward(const plsh_attention *a, const float *q, const float *k, const float *v,
                           float *o, float *lse, float *certificate, plsh_error *error) {
    plsh_plan *plan;
    plsh_status status = plsh_plan_create(a, &plan, error);
    if (status) return status;
    void *workspace = aligned_alloc(64, plsh_plan_workspace(plan));
    const plsh_forward given = {
        .q = q, .k = k, .v = v, .o = o, .lse = lse, .certificate = certificate};
    status = plsh_plan_forward(plan, &given, workspace, NULL, error);
    free(workspace);
    plsh_plan_destroy(plan);
    return status;
}

static void test_overlaps_are_refused(void **state) {
    (void)state;
    plsh_error error;
    static float x[8 * HEADS * ROWS * DIM], lse[2 * HEADS * ROWS];
    const int64_t all = HEADS * ROWS * DIM, kv = 2 * ROWS * DIM;
    descriptor d = plain(PLSH_METHOD_DENSE);
    d.a.head = d.head;
    float *q = x, *k = q + all, *v = k + kv, *o = v + kv;
    assert_ok(forward(&d.a, q, k, v, o, lse, NULL, &error));
    assert_ok(forward(&d.a, q, q, q, o, lse, NULL, &error)); /* inputs may be one */
    assert_fails(forward(&d.a, q, k, v, q, lse, NULL, &error), PLSH_STATUS_INVALID,
                 "q and o share memory");
    assert_fails(forward(&d.a, q, k, v, v + kv - 1, lse, NULL, &error), PLSH_STATUS_INVALID,
                 "v and o share memory");
    assert_fails(forward(&d.a, q, k, v, o, o + all - 1, NULL, &error), PLSH_STATUS_INVALID,
                 "o and lse share memory");
    assert_fails(forward(&d.a, q, k, v, o, lse, lse + 5, &error), PLSH_STATUS_INVALID,
                 "lse and certificate share memory");
    assert_fails(forward(&d.a, q, k, v, o, k, NULL, &error), PLSH_STATUS_INVALID,
                 "k and lse share memory");
}

/* One buffer of [rows, q | k | v | o], and one of [heads, q | o, rows]: rows between rows. */
static void test_interleaved_arrays_are_fine(void **state) {
    (void)state;
    plsh_error error;
    static float x[8 * HEADS * ROWS * DIM], lse[HEADS * ROWS];
    descriptor d = plain(PLSH_METHOD_DENSE);
    d.a.head = d.head;
    const int64_t row = (HEADS + 2 + 2 + HEADS) * DIM;
    d.a.q = d.a.k = d.a.v = d.a.o = (plsh_layout){DIM, row};
    float *q = x, *k = q + HEADS * DIM, *v = k + 2 * DIM, *o = v + 2 * DIM;
    assert_ok(forward(&d.a, q, k, v, o, lse, NULL, &error));
    assert_fails(forward(&d.a, q, k, v, o - 1, lse, NULL, &error), PLSH_STATUS_INVALID,
                 "v and o share memory");
    assert_fails(forward(&d.a, q, k, v, o + 1, lse, NULL, &error), PLSH_STATUS_INVALID,
                 "q and o share memory"); /* of the next row */
    d.a.q = d.a.o = (plsh_layout){2 * ROWS * DIM, DIM};
    d.a.k = d.a.v = (plsh_layout){0, 0};
    q = x, o = x + ROWS * DIM, k = x + 2 * HEADS * ROWS * DIM, v = k + 2 * ROWS * DIM;
    assert_ok(forward(&d.a, q, k, v, o, lse, NULL, &error));
    assert_fails(forward(&d.a, q, k, v, o + 1, lse, NULL, &error), PLSH_STATUS_INVALID, "q and o");
    assert_fails(forward(&d.a, q, k, v, o - 1, lse, NULL, &error), PLSH_STATUS_INVALID, "q and o");
}

static void test_overlaps_of_tokens(void **state) {
    (void)state;
    plsh_error error;
    const plsh_head head = plain(PLSH_METHOD_EXACT).head[0];
    const plsh_cache_config config = {.heads = 2, .head_dim = DIM, .head = &head, .head_count = 1};
    static float x[8 * DIM];
    plsh_cache *cache;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    plsh_tokens t = {.count = 1, .q = x, .k = x, .v = x, .o = x + DIM};
    assert_fails(plsh_cache_step(cache, &t, NULL, &error), PLSH_STATUS_INVALID, "q and o");
    t.q = x + 4 * DIM;
    assert_fails(plsh_cache_step(cache, &t, NULL, &error), PLSH_STATUS_INVALID, "k and o");
    t.lse = x + 3 * DIM;
    t.o = x + 2 * DIM;
    assert_fails(plsh_cache_step(cache, &t, NULL, &error), PLSH_STATUS_INVALID, "o and lse");
    assert_int_equal(plsh_cache_length(cache), 0);
    t.lse = NULL;
    assert_ok(plsh_cache_step(cache, &t, NULL, &error));
    plsh_cache_destroy(cache);
}

/* ---- nothing to do ---- */

/* No queries and no workspace: gradients by keys that no query sees are 0. */
static void test_backward_without_queries(void **state) {
    (void)state;
    plsh_error error;
    for (int method = 0; method <= PLSH_METHOD_AUTO; method++) {
        descriptor d = plain((plsh_method)method);
        d.a.head = d.head;
        d.a.queries = 0;
        plsh_plan *plan;
        assert_ok(plsh_plan_create(&d.a, &plan, &error));
        assert_ok(plsh_plan_backward(plan, &(plsh_backward){0}, NULL, NULL, &error));
        float d_k[2 * ROWS * DIM], d_v[2 * ROWS * DIM];
        double d_decay[2 * HEADS];
        memset(d_k, 0xff, sizeof d_k);
        memset(d_v, 0xff, sizeof d_v);
        memset(d_decay, 0xff, sizeof d_decay);
        plsh_stats stats = {.pairs = 5};
        const plsh_backward given = {.d_k = d_k, .d_v = d_v, .d_decay = d_decay};
        assert_ok(plsh_plan_backward(plan, &given, NULL, &stats, &error));
        assert_int_equal(stats.pairs, 0);
        for (int i = 0; i < 2 * ROWS * DIM; i++) assert_true(d_k[i] == 0 && d_v[i] == 0);
        for (int i = 0; i < 2 * HEADS; i++) assert_true(d_decay[i] == 0);
        plsh_plan_destroy(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_random_descriptors),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_key_of_minus_infinity),
        cmocka_unit_test(test_extreme_sizes),
        cmocka_unit_test(test_extreme_descriptors),
        cmocka_unit_test(test_extreme_shapes),
        cmocka_unit_test(test_overlaps_are_refused),
        cmocka_unit_test(test_interleaved_arrays_are_fine),
        cmocka_unit_test(test_overlaps_of_tokens),
        cmocka_unit_test(test_backward_without_queries),
    };
    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
