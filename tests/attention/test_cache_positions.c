/* tests: a decoding cache whose positions are points gives what one pass over the whole sequence
 * gives. */
#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "plsh/cache.h"

enum { HEADS = 4, KV = 2, D = 24, DV = 16, N = 700 };

static double unit(uint64_t seed, int64_t i) {
    return plsh_random_unit(plsh_random_at((plsh_stream){seed, 3, 77}, (uint64_t)i).word[0]);
}

static float *make_rows(uint64_t seed, int64_t count, double scale) {
    float *rows = malloc((size_t)count * sizeof *rows);
    for (int64_t i = 0; i < count; i++) rows[i] = (float)(scale * (2 * unit(seed, i) - 1));
    return rows;
}

/* [sets, N, dim]. GATES: growing positions, at another speed in each set. HOLES: likewise,
 * and some rows have none. */
typedef enum cloud { GATES, RANDOM, HOLES } cloud;

static float *make_points(cloud kind, int64_t sets, int dim) {
    static const double speeds[HEADS] = {0.002, 0.3, 1.5, 1.5};
    float *points = malloc((size_t)(sets * N * dim) * sizeof *points);
    for (int64_t set = 0; set < sets; set++) {
        double sum = 0;
        for (int64_t row = 0; row < N; row++) {
            sum += unit(5, row) * speeds[set];
            for (int i = 0; i < dim; i++) {
                const int64_t at = (set * N + row) * dim + i;
                points[at] = kind == RANDOM ? (float)(60 * unit(6, at)) : (float)sum;
                if (kind == HOLES && unit(7, row) < 0.05) points[at] = NAN;
            }
        }
    }
    return points;
}

typedef struct setting {
    plsh_method method;
    const plsh_decay *decay;
    double radius;
    cloud kind;
    int dim;
    int64_t sets;
    plsh_dtype dtype;
    double limit; /* of the difference to a pass in float32 */
} setting;

static const plsh_decay alibi = {.kind = PLSH_DECAY_ALIBI, .a = 2},
                        kerple = {.kind = PLSH_DECAY_KERPLE_LOG, .a = 3, .b = 1};

static const setting settings[] = {
    {PLSH_METHOD_EXACT, &alibi, 0, GATES, 1, HEADS, 0, 2e-6},
    {PLSH_METHOD_DENSE, &alibi, 0, GATES, 1, HEADS, 0, 2e-6},
    {PLSH_METHOD_AUTO, &alibi, 0, RANDOM, 2, 1, 0, 2e-6},
    {PLSH_METHOD_EXACT, &alibi, 0, HOLES, 3, HEADS, 0, 2e-6},
    {PLSH_METHOD_EXACT, &kerple, 0, RANDOM, 2, HEADS, 0, 2e-6},
    {PLSH_METHOD_WINDOW, &alibi, 9.5, RANDOM, 2, 1, 0, 2e-6},
    {PLSH_METHOD_WINDOW, &kerple, 20, HOLES, 1, HEADS, 0, 2e-6},
    {PLSH_METHOD_NONE, &alibi, 0, RANDOM, 3, 1, 0, 2e-6},
    {PLSH_METHOD_EXACT, &alibi, 0, GATES, 1, 1, PLSH_DTYPE_FLOAT16, 2e-3},
};

typedef struct data {
    plsh_head head;
    float *q, *k, *v, *points, *whole, *whole_lse, *o, *lse;
} data;

static data data_make(const setting *s) {
    plsh_error error;
    data d = {.head = plsh_head_default(s->method, s->decay),
              .q = make_rows(1, HEADS * N * D, 2),
              .k = make_rows(2, KV * N * D, 2),
              .v = make_rows(3, KV * N * DV, 1),
              .points = make_points(s->kind, s->sets, s->dim),
              .whole = malloc(sizeof(float) * HEADS * N * DV),
              .whole_lse = malloc(sizeof(float) * HEADS * N),
              .o = calloc(HEADS * N * DV, sizeof(float)),
              .lse = calloc(HEADS * N, sizeof(float))};
    d.head.radius = s->radius;
    const plsh_attention attention = {
        .heads = HEADS,
        .kv_heads = KV,
        .queries = N,
        .keys = N,
        .head_dim = D,
        .value_dim = DV,
        .positions = {.dim = s->dim, .sets = s->sets, .key = d.points},
        .causal = true,
        .head = &d.head,
        .head_count = 1};
    plsh_plan *plan;
    assert_ok(plsh_plan_create(&attention, &plan, &error));
    void *workspace = aligned_alloc(64, (plsh_plan_workspace(plan) + 63) / 64 * 64);
    const plsh_forward arrays = {.q = d.q, .k = d.k, .v = d.v, .o = d.whole, .lse = d.whole_lse};
    assert_ok(plsh_plan_forward(plan, &arrays, workspace, NULL, &error));
    plsh_plan_destroy(plan);
    free(workspace);
    return d;
}

static void data_free(data *d) {
    float *all[] = {d->q, d->k, d->v, d->points, d->whole, d->whole_lse, d->o, d->lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static plsh_cache_config config_of(const setting *s, const data *d, int threads) {
    return (plsh_cache_config){.heads = HEADS,
                               .kv_heads = KV,
                               .head_dim = D,
                               .value_dim = DV,
                               .dtype = s->dtype,
                               .head = &d->head,
                               .head_count = 1,
                               .position_dim = s->dim,
                               .position_sets = s->sets,
                               .threads = threads};
}

/* Copies of the positions of the tokens first .. first + count - 1: [sets, count, dim]. */
static float *points_of(const setting *s, const data *d, int64_t first, int64_t count) {
    float *to = malloc((size_t)(s->sets * count * s->dim) * sizeof *to + 1);
    for (int64_t set = 0; set < s->sets; set++)
        memcpy(to + set * count * s->dim, d->points + (set * N + first) * s->dim,
               (size_t)(count * s->dim) * sizeof *to);
    return to;
}

/* A step of `count` tokens; its lse is written with the layout of a step of its own. */
static void step(plsh_cache *cache, const setting *s, data *d, int64_t first, int64_t count,
                 plsh_stats *stats) {
    plsh_error error;
    float *points = points_of(s, d, first, count),
          *lse = malloc(sizeof(float) * (size_t)(HEADS * count));
    const plsh_tokens tokens = {.count = count,
                                .q = d->q + first * D,
                                .k = d->k + first * D,
                                .v = d->v + first * DV,
                                .o = d->o + first * DV,
                                .lse = lse,
                                .positions = points,
                                .q_layout = {N * D, D},
                                .k_layout = {N * D, D},
                                .v_layout = {N * DV, DV},
                                .o_layout = {N * DV, DV}};
    assert_ok(plsh_cache_step(cache, &tokens, stats, &error));
    for (int64_t h = 0; h < HEADS; h++)
        memcpy(d->lse + h * N + first, lse + h * count, (size_t)count * sizeof *lse);
    free(points), free(lse);
}

static void compare(const setting *s, const data *d, const char *what) {
    double off = 0, off_lse = 0;
    for (int64_t i = 0; i < HEADS * N * DV; i++)
        off = fmax(off, fabs((double)d->o[i] - (double)d->whole[i]));
    for (int64_t i = 0; i < HEADS * N; i++)
        off_lse = fmax(off_lse, fabs((double)d->lse[i] - (double)d->whole_lse[i]));
    if (!(off <= s->limit) || !(off_lse <= 10 * s->limit))
        fail_msg("%s, %s, dim %d: o is off by %g, lse by %g", what, plsh_method_names()[s->method],
                 s->dim, off, off_lse);
}

/* Steps of one token, of a few, and of prompts through a plan. */
static int64_t size_of(int64_t number, int64_t left) {
    static const int64_t sizes[] = {40, 1, 1, 7, 130, 1, 33, 2, 64, 1, 1, 3};
    const int64_t count = sizes[number % 12];
    return count < left ? count : left;
}

static void test_steps(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const setting *s = &settings[i];
        data d = data_make(s);
        for (int threads = 1; threads <= 2; threads++) {
            plsh_error error;
            plsh_cache *cache;
            const plsh_cache_config config = config_of(s, &d, threads);
            assert_ok(plsh_cache_create(&config, &cache, &error));
            for (int64_t done = 0, number = 0, count; done < N; done += count, number++) {
                count = size_of(number, N - done);
                step(cache, s, &d, done, count, NULL);
            }
            assert_int_equal(plsh_cache_first(cache, 0), 0);
            compare(s, &d, "steps");
            plsh_cache_destroy(cache);
        }
        data_free(&d);
    }
}

/* One token at a time: `exact` reads a part of what `dense` reads where gates forget. */
static void test_exact_reads_less(void **state) {
    (void)state;
    int64_t pairs[2] = {0};
    for (int i = 0; i < 2; i++) {
        const setting *s = &settings[i];
        plsh_error error;
        plsh_cache *cache;
        data d = data_make(s);
        const plsh_cache_config config = config_of(s, &d, 1);
        assert_ok(plsh_cache_create(&config, &cache, &error));
        for (int64_t done = 0; done < N; done++) {
            plsh_stats stats;
            step(cache, s, &d, done, 1, &stats);
            pairs[i] += stats.pairs;
        }
        compare(s, &d, "tokens");
        plsh_cache_destroy(cache);
        data_free(&d);
    }
    assert_int_equal(pairs[1], (int64_t)HEADS * N * (N + 1) / 2);
    assert_in_range(pairs[0], 1, pairs[1] * 3 / 4);
}

/* Forks, truncation and a file keep the positions: what follows has the same bits. */
static void test_fork_truncate_save(void **state) {
    (void)state;
    const setting *s = &settings[3];
    const char *path = test_path("cache");
    plsh_error error;
    data d = data_make(s), other = data_make(s);
    plsh_cache *cache, *fork, *loaded;
    const plsh_cache_config config = config_of(s, &d, 1);
    assert_ok(plsh_cache_create(&config, &cache, &error));
    for (int64_t done = 0; done < 200; done += 50) step(cache, s, &d, done, 50, NULL);
    assert_ok(plsh_cache_fork(cache, &fork, &error));
    step(fork, s, &other, 300, 30, NULL); /* other tokens */
    assert_ok(plsh_cache_truncate(fork, 200, &error));
    assert_ok(plsh_cache_save(fork, path, &error));
    assert_ok(plsh_cache_load(&config, path, &loaded, &error));
    plsh_cache *all[] = {cache, fork, loaded};
    for (int i = 0; i < 3; i++) {
        for (int64_t done = 200; done < N; done += 25) step(all[i], s, &other, done, 25, NULL);
        if (i == 0) memcpy(d.o, other.o, sizeof(float) * HEADS * N * DV);
        for (int64_t h = 0; h < HEADS; h++)
            assert_memory_equal(d.o + (h * N + 200) * DV, other.o + (h * N + 200) * DV,
                                sizeof(float) * (N - 200) * DV);
        plsh_cache_destroy(all[i]);
    }
    plsh_cache_config changed = config;
    changed.position_sets = 1;
    assert_fails(plsh_cache_load(&changed, path, &loaded, &error), PLSH_STATUS_INVALID,
                 "position_sets is 4, the config's is 1");
    data_free(&d), data_free(&other);
}

static void test_refusals(void **state) {
    (void)state;
    plsh_error error;
    plsh_cache *cache;
    float row[HEADS * D] = {0}, point[3] = {0}, o[HEADS * DV];
    plsh_head head = plsh_head_default(PLSH_METHOD_EXACT, &alibi);
    const plsh_cache_config good = {.heads = HEADS,
                                    .kv_heads = KV,
                                    .head_dim = D,
                                    .value_dim = DV,
                                    .head = &head,
                                    .head_count = 1,
                                    .position_dim = 2};
    plsh_cache_config config = good;
    config.position_dim = 4;
    assert_fails(plsh_cache_create(&config, &cache, &error), PLSH_STATUS_INVALID, "1 to 3");
    config = good;
    config.position_sets = 3;
    assert_fails(plsh_cache_create(&config, &cache, &error), PLSH_STATUS_INVALID, "sets is 3");
    head.method = PLSH_METHOD_FIXED;
    head.block = 8;
    assert_fails(plsh_cache_create(&good, &cache, &error), PLSH_STATUS_UNSUPPORTED, "fixed");
    head = plsh_head_default(PLSH_METHOD_PLSH, &alibi);
    head.partition.scheme = PLSH_SCHEME_HYPERPLANES;
    head.partition.design = PLSH_DESIGN_IID;
    assert_fails(plsh_cache_create(&good, &cache, &error), PLSH_STATUS_UNSUPPORTED, "not plsh");
    head = plsh_head_default(PLSH_METHOD_EXACT, &alibi);
    assert_ok(plsh_cache_create(&good, &cache, &error));
    plsh_tokens token = {.count = 1, .q = row, .k = row, .v = row, .o = o};
    assert_fails(plsh_cache_step(cache, &token, NULL, &error), PLSH_STATUS_INVALID,
                 "positions of the tokens must not be NULL");
    token.positions = point;
    point[1] = INFINITY;
    assert_fails(plsh_cache_step(cache, &token, NULL, &error), PLSH_STATUS_NOT_FINITE,
                 "coordinate 1 of row 0");
    assert_int_equal(plsh_cache_length(cache), 0);
    plsh_cache_destroy(cache);
    config = good;
    config.position_dim = 0;
    assert_ok(plsh_cache_create(&config, &cache, &error));
    assert_fails(plsh_cache_step(cache, &token, NULL, &error), PLSH_STATUS_INVALID,
                 "the cache counts rows");
    plsh_cache_destroy(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps), cmocka_unit_test(test_exact_reads_less),
        cmocka_unit_test(test_fork_truncate_save), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
