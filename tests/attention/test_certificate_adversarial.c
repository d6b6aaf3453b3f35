/* tests: certificates against inputs made to break them: huge scores far away, where the decay has
 * underflowed, for every method, decay, layout of sequences and type.
 *
 * A violation is an error beyond the certificate, which contains what rounding may add.
 * PLSH_TEST_RUNS=10000 runs more of them. */
#include "support/support.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "plsh/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 3, HEADS = 2, KEYS = 400, TABLE = 40, SAMPLES = 30, DIM = 16 };

/* ---- dice (splitmix64) ---------------------------------------------------------------------- */

static uint64_t dice;

static double unit(void) {
    uint64_t x = (dice += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}
static bool chance(double p) { return unit() < p; }
static int64_t between(int64_t least, int64_t most) {
    return least + (int64_t)(unit() * (double)(most - least + 1));
}
/* Spread evenly over the orders of magnitude. */
static double magnitude(double least, double most) { return least * pow(most / least, unit()); }
static double normal(void) {
    double radius = sqrt(-2 * log(1 - unit()));
    return radius * cos(6.283185307179586 * unit());
}

/* ---- a random case -------------------------------------------------------------------------- */

typedef struct trial {
    plsh_attention a;
    plsh_head head[HEADS];
    double table[HEADS][TABLE];
    int32_t labels[HEADS][SAMPLES * KEYS * SEQUENCES];
    int64_t query_offset[SEQUENCES + 1], key_offset[SEQUENCES + 1];
    float *q, *k, *v, *o, *certificate; /* q, k, v: as the library reads them; o: as it wrote it */
} trial;

static plsh_decay random_decay(double *table, bool convex) {
    plsh_decay decay = {.kind = (plsh_decay_kind)between(0, PLSH_DECAY_TABLE)};
    if (chance(0.4)) decay.kind = PLSH_DECAY_ALIBI;
    switch (decay.kind) {
    case PLSH_DECAY_ALIBI: decay.a = magnitude(1e-3, 1e4); break;
    case PLSH_DECAY_KERPLE_LOG:
        decay.a = magnitude(0.1, 100);
        decay.b = magnitude(1e-3, 1e3);
        break;
    case PLSH_DECAY_KERPLE_POWER:
        decay.a = magnitude(1e-4, 1e3);
        decay.b = magnitude(0.1, convex ? 1 : 2);
        break;
    case PLSH_DECAY_TRIANGLE: decay.a = magnitude(0.5, 300); break;
    case PLSH_DECAY_TABLE: /* log-convex and falling, or anything, zeros included */
        decay.table = table;
        decay.table_size = (size_t)between(1, TABLE);
        double power = magnitude(0.01, 100);
        for (size_t t = 0; t < decay.table_size; t++) {
            table[t] = convex ? pow(1 + (double)t, -power) : chance(0.3) ? 0 : magnitude(1e-300, 1);
        }
        table[0] = 1;
        break;
    }
    if (chance(0.1)) decay.limit = magnitude(1e-6, 0.9);
    return decay;
}

static void random_head(trial *t, int h) {
    plsh_head *head = &t->head[h];
    plsh_partition *set = &head->partition;
    static const plsh_method methods[] = {PLSH_METHOD_EXACT, PLSH_METHOD_PLSH,   PLSH_METHOD_MASKS,
                                          PLSH_METHOD_MEAN,  PLSH_METHOD_WINDOW, PLSH_METHOD_FIXED,
                                          PLSH_METHOD_DENSE};
    head->method = methods[between(0, 6)];
    bool sampled = head->method == PLSH_METHOD_PLSH || head->method == PLSH_METHOD_MASKS ||
                   head->method == PLSH_METHOD_MEAN;
    *set = plsh_partition_default(1, between(1, SAMPLES));
    set->decay = random_decay(t->table[h], sampled);
    set->seed = (uint64_t)between(0, 1 << 30);
    set->design = chance(0.5) ? PLSH_DESIGN_IID : PLSH_DESIGN_STRATIFIED;
    if (set->decay.kind == PLSH_DECAY_ALIBI && set->decay.limit == 0) {
        set->scheme = (plsh_scheme)between(0, 2);
        if (set->decay.a > 100) set->scheme = PLSH_SCHEME_INTEGER; /* cuts walks to the ends */
    }
    if (set->decay.kind == PLSH_DECAY_ALIBI && set->decay.limit == 0 && chance(0.3)) {
        static const plsh_design lattices[] = {PLSH_DESIGN_GOLDEN, PLSH_DESIGN_GOLDEN_SHIFTED,
                                               PLSH_DESIGN_TOEPLITZ};
        set->scheme = PLSH_SCHEME_INTEGER;
        set->design = lattices[between(0, head->method == PLSH_METHOD_PLSH ? 2 : 0)];
        plsh_error unused; /* toeplitz takes small sigma only */
        if (plsh_partition_check(set, &unused)) set->design = PLSH_DESIGN_GOLDEN;
    }
    if (chance(0.1)) {
        bool scattered = chance(0.5);
        set->scheme = PLSH_SCHEME_LABELS;
        set->labels = t->labels[h];
        set->label_count = KEYS * SEQUENCES;
        int64_t width = between(1, 50);
        for (int64_t i = 0; i < set->samples * set->label_count; i++) {
            t->labels[h][i] = (int32_t)(scattered ? between(0, 4) : i % set->label_count / width);
        }
    }
    head->eps = magnitude(1e-7, 0.5);
    head->window = (int64_t)magnitude(1, 2 * KEYS);
    head->block = (int64_t)magnitude(1, 2 * KEYS);
}

static void random_shape(trial *t) {
    plsh_attention *a = &t->a;
    int64_t sequences = chance(0.3) ? between(2, SEQUENCES) : 1;
    for (int64_t x = 0; x < sequences; x++) {
        int64_t keys = chance(0.5) ? (int64_t)magnitude(1, 100) : between(1, KEYS);
        int64_t queries = chance(0.6) ? keys : between(0, keys);
        t->key_offset[x + 1] = t->key_offset[x] + keys;
        t->query_offset[x + 1] = t->query_offset[x] + queries;
    }
    *a = (plsh_attention){.heads = between(1, HEADS),
                          .queries = t->query_offset[sequences],
                          .keys = t->key_offset[sequences],
                          .head_dim = between(1, DIM),
                          .value_dim = between(1, 8),
                          .sequences = sequences,
                          .query_offsets = t->query_offset,
                          .key_offsets = t->key_offset,
                          .causal = chance(0.5),
                          .dtype = (plsh_dtype)between(0, 2),
                          .head = t->head,
                          .threads = 1};
    if (chance(0.5)) a->dtype = PLSH_DTYPE_FLOAT32;
    a->o_dtype = chance(0.3) ? (plsh_dtype)between(0, 2) : PLSH_DTYPE_FLOAT32;
    a->kv_heads = chance(0.5) ? 1 : a->heads;
    a->head_count = a->heads;
    a->scale = magnitude(0.1, 2);
    int available = 0;
    while (plsh_isa_available()[available]) available++;
    a->isa = plsh_isa_available()[between(0, available - 1)];
    for (int h = 0; h < a->heads; h++) random_head(t, h);
}

/* A few keys whose first element gives some query a score that roughly cancels the decay of their
 * distance, with values that differ from all others. */
static void plant_keys(trial *t, float lever) {
    const plsh_attention *a = &t->a;
    for (int64_t i = between(0, 4); i > 0; i--) {
        int64_t x = between(0, a->sequences - 1), kv = between(0, a->kv_heads - 1);
        int64_t keys = t->key_offset[x + 1] - t->key_offset[x];
        int64_t j = between(0, keys - 1), p = between(0, keys - 1);
        const plsh_decay *decay = &t->head[between(0, a->heads - 1)].partition.decay;
        double score = 6 * normal() - plsh_decay_log(decay, llabs(p - j));
        if (chance(0.3) || !(score < 1e5)) score = magnitude(1, 1e4);
        int64_t row = kv * a->keys + t->key_offset[x] + j;
        t->k[row * a->head_dim] = (float)fmin(60000, score / a->scale / (double)lever);
        for (int64_t c = 0; c < a->value_dim && chance(0.7); c++) {
            t->v[row * a->value_dim + c] = (float)(normal() * magnitude(1, 100));
        }
    }
}

static float *random_array(int64_t count, double scale, double offset) {
    float *to = malloc(((size_t)count + 1) * sizeof *to);
    for (int64_t i = 0; i < count; i++) to[i] = (float)(scale * normal() + offset);
    return to;
}

static trial *random_trial(uint64_t seed) {
    dice = seed * 0x2545f4914f6cdd1du;
    trial *t = calloc(1, sizeof *t);
    random_shape(t);
    const plsh_attention *a = &t->a;
    const float lever = (float)magnitude(0.5, 5);
    t->q = random_array(a->heads * a->queries * a->head_dim, magnitude(0.1, 8), 0);
    t->k = random_array(a->kv_heads * a->keys * a->head_dim, 1, chance(0.3) ? 3 : 0);
    t->v =
        random_array(a->kv_heads * a->keys * a->value_dim, 1, chance(0.3) ? magnitude(1, 1e4) : 0);
    t->o = calloc((size_t)(a->heads * a->queries * a->value_dim) + 1, sizeof(float));
    t->certificate = calloc((size_t)(a->heads * a->queries) + 1, sizeof(float));
    for (int64_t i = 0; i < a->heads * a->queries; i++) {
        if (chance(0.9)) t->q[i * a->head_dim] = lever;
    }
    plant_keys(t, lever);
    return t;
}

static void free_trial(trial *t) {
    void *all[] = {t->q, t->k, t->v, t->o, t->certificate, t};
    for (int i = 0; i < 6; i++) free(all[i]);
}

/* o as float32. */
static void widen_output(trial *t) {
    const plsh_attention *a = &t->a;
    const int64_t count = a->heads * a->queries * a->value_dim;
    const size_t bytes = (size_t)count * plsh_dtype_size(a->o_dtype);
    void *narrow = malloc(bytes + 1);
    memcpy(narrow, t->o, bytes);
    for (int64_t i = 0; i < count; i++) t->o[i] = plsh_dtype_load(a->o_dtype, narrow, i);
    free(narrow);
}

/* ---- the run -------------------------------------------------------------------------------- */

/* x in the type; x itself becomes what is left of it. To be freed. */
static void *as_type(float *x, int64_t count, plsh_dtype type) {
    uint16_t *bits = malloc(((size_t)count + 1) * sizeof *bits);
    for (int64_t i = 0; i < count; i++) {
        bool half = type == PLSH_DTYPE_FLOAT16;
        bits[i] = half ? plsh_float_to_half(x[i]) : plsh_float_to_bfloat(x[i]);
        x[i] = half ? plsh_half_to_float(bits[i]) : plsh_bfloat_to_float(bits[i]);
    }
    return bits;
}

static void run_trial(trial *t) {
    plsh_attention *a = &t->a;
    plsh_error error;
    plsh_plan *plan;
    void *workspace, *typed[3] = {NULL};
    plsh_forward arrays = {
        .q = t->q, .k = t->k, .v = t->v, .o = t->o, .certificate = t->certificate};
    if (a->dtype != PLSH_DTYPE_FLOAT32) {
        arrays.q = typed[0] = as_type(t->q, a->heads * a->queries * a->head_dim, a->dtype);
        arrays.k = typed[1] = as_type(t->k, a->kv_heads * a->keys * a->head_dim, a->dtype);
        arrays.v = typed[2] = as_type(t->v, a->kv_heads * a->keys * a->value_dim, a->dtype);
    }
    assert_ok(plsh_plan_create(a, &plan, &error));
    assert_ok(plsh_allocate(&workspace, plsh_plan_workspace(plan), 1, "test", &error));
    assert_ok(plsh_plan_forward(plan, &arrays, workspace, NULL, &error));
    plsh_release(workspace);
    plsh_plan_destroy(plan);
    for (int i = 0; i < 3; i++) free(typed[i]);
    widen_output(t);
}

/* ---- the truth ------------------------------------------------------------------------------ */

/* One row by the definition, in double and in the log domain. rounding: about what float does to
 * it. */
typedef struct truth {
    double o[8], rounding, most; /* the largest |v| */
} truth;

static truth exact_row(const trial *t, int64_t h, int64_t x, int64_t i) {
    const plsh_attention *a = &t->a;
    const int64_t d = a->head_dim, dv = a->value_dim;
    const int64_t keys = t->key_offset[x + 1] - t->key_offset[x];
    const int64_t p = i - t->query_offset[x] + keys - (t->query_offset[x + 1] - t->query_offset[x]);
    const int64_t seen = a->causal ? p + 1 : keys;
    const int64_t first = h / (a->heads / a->kv_heads) * a->keys + t->key_offset[x];
    const float *q = t->q + (h * a->queries + i) * d;
    double score[KEYS], off[KEYS], top = -INFINITY, sum = 0, range = 0;
    for (int64_t j = 0; j < seen; j++) {
        const float *k = t->k + (first + j) * d;
        double dot = 0, size = 0, decay = plsh_decay_log(&t->head[h].partition.decay, llabs(p - j));
        for (int64_t c = 0; c < d; c++) dot += (double)q[c] * (double)k[c];
        for (int64_t c = 0; c < d; c++) size += fabs((double)q[c] * (double)k[c]);
        score[j] = dot * a->scale + decay;
        off[j] = 0x1p-23 * ((double)(d + 4) * size * a->scale + 2 * fabs(decay) + 8);
        top = fmax(top, score[j]);
    }
    truth row = {.most = 0};
    for (int64_t j = 0; j < seen; j++) sum += exp(score[j] - top);
    for (int64_t c = 0; c < dv; c++) {
        double low = INFINITY, high = -INFINITY;
        for (int64_t j = 0; j < seen; j++) {
            double v = (double)t->v[(first + j) * dv + c];
            row.o[c] += exp(score[j] - top) / sum * v;
            low = fmin(low, v);
            high = fmax(high, v);
            row.most = fmax(row.most, fabs(v));
        }
        range = fmax(range, high - low);
    }
    for (int64_t j = 0; j < seen; j++) { /* a score of -inf has weight 0, however far it is off */
        if (score[j] > top - 700) row.rounding += range * exp(score[j] - top) / sum * expm1(off[j]);
    }
    row.rounding += (double)seen * 0x1p-23 * row.most;
    return row;
}

/* ---- the tests ------------------------------------------------------------------------------ */

static const char *const NAMES[] = {"dense", "exact", "plsh", "masks", "mean", "window", "fixed"};

/* Rows whose error is beyond their certificate; sharp: those with a significant error. */
static int count_violations(const trial *t, uint64_t seed, int *sharp) {
    const plsh_attention *a = &t->a;
    int violations = 0;
    for (int64_t h = 0; h < a->heads; h++) {
        for (int64_t x = 0; x < a->sequences; x++) {
            for (int64_t i = t->query_offset[x]; i < t->query_offset[x + 1]; i++) {
                truth row = exact_row(t, h, x, i);
                double error = 0, bound = (double)t->certificate[h * a->queries + i];
                for (int64_t c = 0; c < a->value_dim; c++) {
                    double o = (double)t->o[(h * a->queries + i) * a->value_dim + c];
                    error = fmax(error, fabs(o - row.o[c]));
                }
                if (t->head[h].method == PLSH_METHOD_FIXED && isnan(bound)) continue;
                *sharp += error > 10 * row.rounding && bound < 10 * error;
                if (error <= bound + 1e-12 * row.most) continue; /* that of `truth` */
                violations++;
                print_message("run %llu, %s, decay %d a %g b %g, row %lld: error %g, "
                              "certificate %g, rounding %g\n",
                              (unsigned long long)seed, NAMES[t->head[h].method],
                              (int)t->head[h].partition.decay.kind, t->head[h].partition.decay.a,
                              t->head[h].partition.decay.b, (long long)i, error, bound,
                              row.rounding);
            }
        }
    }
    return violations;
}

static void test_random(void **state) {
    (void)state;
    const char *asked = getenv("PLSH_TEST_RUNS");
    const int runs = asked ? atoi(asked) : 1000;
    int violated = 0, sharp = 0;
    for (uint64_t seed = 1; seed <= (uint64_t)runs; seed++) {
        trial *t = random_trial(seed);
        run_trial(t);
        violated += count_violations(t, seed, &sharp) > 0;
        free_trial(t);
    }
    print_message("%d runs, %d with a violation; %d rows with an error within 10 of the bound\n",
                  runs, violated, sharp);
    assert_int_equal(violated, 0);
    assert_true(sharp > runs); /* the dice do find errors */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
