/* tests: the true error of a row never exceeds its certificate; and how tight they are. */
#include "support/support.h"

#include "base/memory.h"
#include "support/oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One run: inputs, the output under test, the certificate, and the exact output in double. */
typedef struct trial {
    plsh_attention a;
    plsh_head head[2];
    double magnitude, key_scale; /* of q; every 16th key is this much longer */
    float *q, *k, *v, *o, *certificate;
    double *exact, error_bound;
    size_t rows, dv;
} trial;

static void set_up(trial *t, uint64_t seed) {
    plsh_attention *a = &t->a;
    size_t d = (size_t)a->head_dim, q = (size_t)(a->heads * a->queries) * d;
    t->dv = a->value_dim ? (size_t)a->value_dim : d;
    size_t kv = (size_t)((a->kv_heads ? a->kv_heads : a->heads) * a->keys);
    t->rows = (size_t)(a->heads * a->queries);
    t->q = malloc(q * sizeof(float));
    t->k = malloc(kv * d * sizeof(float));
    t->v = malloc(kv * t->dv * sizeof(float));
    t->o = malloc(t->rows * t->dv * sizeof(float));
    t->certificate = malloc(t->rows * sizeof(float));
    t->exact = malloc(t->rows * t->dv * sizeof(double));
    oracle_normal(seed, t->magnitude, t->q, q);
    oracle_normal(seed + 1, 1, t->k, kv * d);
    oracle_normal(seed + 2, 1, t->v, kv * t->dv);
    for (size_t j = 0; j < kv; j += 16)
        for (size_t x = 0; x < d; x++) t->k[j * d + x] *= (float)t->key_scale;
    a->head = t->head;
    oracle_attend(a, t->q, t->k, t->v, oracle_decay, t->head, t->exact, NULL);
}

static void tear_down(trial *t) {
    void *all[] = {t->q, t->k, t->v, t->o, t->certificate, t->exact};
    for (int i = 0; i < 6; i++) free(all[i]);
}

static void run_trial(trial *t) {
    plsh_error error;
    plsh_plan *plan;
    void *workspace;
    plsh_stats stats;
    assert_ok(plsh_plan_create(&t->a, &plan, &error));
    assert_ok(plsh_allocate(&workspace, plsh_plan_workspace(plan), 1, "test", &error));
    memset(t->certificate, 0xff, t->rows * sizeof *t->certificate);
    plsh_forward arrays = {
        .q = t->q, .k = t->k, .v = t->v, .o = t->o, .certificate = t->certificate};
    assert_ok(plsh_plan_forward(plan, &arrays, workspace, &stats, &error));
    t->error_bound = stats.error_bound;
    plsh_release(workspace);
    plsh_plan_destroy(plan);
}

static double row_error(const trial *t, size_t row) {
    double most = 0;
    for (size_t c = 0; c < t->dv; c++) {
        double error = fabs((double)t->o[row * t->dv + c] - t->exact[row * t->dv + c]);
        if (!(error <= most)) most = error;
    }
    return most;
}

static int compare(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Prints how tight the certificate is, for errors beyond `ordinary` ones of float. */
static void check(trial *t, const char *name, double ordinary) {
    double *ratio = malloc(t->rows * sizeof *ratio), most = 0;
    for (size_t i = 0; i < t->rows; i++) {
        double error = row_error(t, i), bound = (double)t->certificate[i];
        if (!(error <= bound))
            fail_msg("%s: row %zu is off by %g, its certificate is %g", name, i, error, bound);
        ratio[i] = bound / (error + ordinary);
        if (bound > most) most = bound;
    }
    assert_float_equal(t->error_bound, most, 0);
    qsort(ratio, t->rows, sizeof *ratio, compare);
    print_message("%-44s largest %9.3g, certificate / error: median %.3g, least %.3g\n", name, most,
                  ratio[t->rows / 2], ratio[0]);
    free(ratio);
}

static const char *const SCHEMES[] = {"binning", "integer", "cuts"};

static void test_sampled(void **state) {
    (void)state;
    for (int variant = 0; variant < 24; variant++) {
        trial t = {.a = {.heads = 2,
                         .queries = 300,
                         .keys = 330,
                         .head_dim = 24,
                         .value_dim = 9,
                         .head_count = 2,
                         .causal = variant % 2},
                   .magnitude = variant % 4 < 2 ? 1 : 8,
                   .key_scale = 1};
        for (int h = 0; h < 2; h++) {
            plsh_partition *set = &t.head[h].partition;
            *set = plsh_partition_default(h ? 20 : 3, variant < 12 ? 20 : 2000);
            set->scheme = (plsh_scheme)(variant / 4 % 3);
            if (set->scheme == PLSH_SCHEME_CUTS) set->samples = 20;
            set->design = variant % 3 ? PLSH_DESIGN_STRATIFIED : PLSH_DESIGN_IID;
            t.head[h].method = h && set->samples == 20 ? PLSH_METHOD_MASKS : PLSH_METHOD_PLSH;
        }
        char name[96];
        snprintf(name, sizeof name, "%s, s %d, |q| x %g, %s", SCHEMES[t.head[0].partition.scheme],
                 (int)t.head[0].partition.samples, t.magnitude,
                 t.a.causal ? "causal" : "bidirectional");
        set_up(&t, (uint64_t)variant);
        run_trial(&t);
        check(&t, name, 1e-5 * t.magnitude);
        tear_down(&t);
    }
}

/* Window and exact, with keys of uneven length, down to windows that miss nearly everything. */
static void test_truncated(void **state) {
    (void)state;
    static const double sizes[] = {1e-6, 1e-3, 0.3};
    for (int variant = 0; variant < 12; variant++) {
        bool exact = variant % 2;
        double size = sizes[variant / 4];
        trial t = {.a = {.heads = 2,
                         .kv_heads = 1,
                         .queries = 400,
                         .keys = 400,
                         .head_dim = 32,
                         .head_count = 2,
                         .causal = variant / 2 % 2},
                   .magnitude = 2,
                   .key_scale = variant / 4 == 1 ? 3 : 1};
        for (int h = 0; h < 2; h++) {
            double sigma = h ? 15 : 2.5;
            t.head[h] = (plsh_head){.method = exact ? PLSH_METHOD_EXACT : PLSH_METHOD_WINDOW,
                                    .partition.decay = plsh_decay_alibi(sigma),
                                    .eps = size,
                                    .window = 1 + (int64_t)(sigma * -log(size))};
        }
        char name[96];
        snprintf(name, sizeof name, "%s %g, keys x %g, %s", exact ? "exact" : "window", size,
                 t.key_scale, t.a.causal ? "causal" : "bidirectional");
        set_up(&t, 50 + (uint64_t)variant);
        run_trial(&t);
        check(&t, name, 1e-5);
        tear_down(&t);
    }
}

/* Other decays, and labels in any order: the certificate is against the decay that is given. */
static void test_others(void **state) {
    (void)state;
    enum { N = 200, S = 3 };
    int32_t labels[S * N];
    for (int i = 0; i < S * N; i++) labels[i] = i * 37 % 4;
    for (int variant = 0; variant < 6; variant++) {
        trial t = {.a = {.heads = 1,
                         .queries = N,
                         .keys = N,
                         .head_dim = 16,
                         .head_count = 1,
                         .causal = variant % 2},
                   .magnitude = 1,
                   .key_scale = 1};
        plsh_partition set = plsh_partition_default(12, 60);
        if (variant / 2 == 0)
            set.decay = (plsh_decay){.kind = PLSH_DECAY_KERPLE_LOG, .a = 1, .b = 1};
        if (variant / 2 == 1) set.decay.limit = 0.1;
        if (variant / 2 == 2)
            set = (plsh_partition){.scheme = PLSH_SCHEME_LABELS,
                                   .samples = S,
                                   .labels = labels,
                                   .label_count = N,
                                   .decay = plsh_decay_alibi(30)};
        t.head[0] = (plsh_head){.method = PLSH_METHOD_PLSH, .partition = set};
        set_up(&t, 80 + (uint64_t)variant);
        run_trial(&t);
        static const char *const names[] = {"kerple-log", "limit 0.1", "scattered labels"};
        check(&t, names[variant / 2], 1e-5);
        tear_down(&t);
    }
}

/* Methods without an error, and heads without a decay to be certified against. */
static void test_trivial(void **state) {
    (void)state;
    static const plsh_method methods[] = {PLSH_METHOD_DENSE, PLSH_METHOD_NONE, PLSH_METHOD_FIXED,
                                          PLSH_METHOD_PLSH};
    int32_t labels[30] = {0};
    for (int i = 0; i < 4; i++) {
        trial t = {.a = {.heads = 1, .queries = 30, .keys = 30, .head_dim = 8, .head_count = 1},
                   .magnitude = 1,
                   .key_scale = 1};
        t.head[0] = (plsh_head){
            .method = methods[i], .partition = plsh_partition_default(8, 4), .block = 10};
        set_up(&t, 7);
        if (i >= 2)
            t.head[0].partition = (plsh_partition){
                .scheme = PLSH_SCHEME_LABELS, .samples = 1, .labels = labels, .label_count = 30};
        run_trial(&t);
        for (size_t r = 0; r < t.rows; r++) {
            if (i < 2)
                assert_true(t.certificate[r] > 0 && t.certificate[r] < 2e-4f); /* rounding alone */
            else
                assert_true(isnan(t.certificate[r]));
        }
        assert_int_equal(isnan(t.error_bound), i >= 2);
        tear_down(&t);
    }
}

/* Only the visible rows of V matter: if their range is 0, the only error is that of rounding. */
static void test_range(void **state) {
    (void)state;
    trial t = {.a = {.heads = 1,
                     .queries = 100,
                     .keys = 100,
                     .head_dim = 8,
                     .head_count = 1,
                     .causal = true},
               .magnitude = 1,
               .key_scale = 1};
    t.head[0] = (plsh_head){.method = PLSH_METHOD_PLSH, .partition = plsh_partition_default(8, 4)};
    set_up(&t, 7);
    for (size_t i = 0; i < 100 * t.dv; i++) t.v[i] = i < 64 * t.dv ? 1000 : 1001;
    run_trial(&t);
    const double rounding = 1000 * 0x1p-24 * 300; /* about 250 roundings of |V| */
    for (size_t r = 0; r < 64; r++) assert_true((double)t.certificate[r] < rounding);
    for (size_t r = 64; r < 100; r++)
        assert_true((double)t.certificate[r] > 0.03 && (double)t.certificate[r] < 1 + rounding);
    tear_down(&t);
}

/* Values with a large common part: the certificate of every method contains what rounding does to
 * it, and is not much more than that. k_offset: the same for the keys, whose scores are then large
 * sums, whose rounding moves the weights. */
static void check_offset(plsh_method method, double offset, double k_offset, double most) {
    trial t = {.a = {.heads = 1,
                     .queries = 1024,
                     .keys = 1024,
                     .head_dim = 64,
                     .value_dim = 8,
                     .head_count = 1,
                     .causal = true},
               .magnitude = 1,
               .key_scale = 1};
    t.head[0] = (plsh_head){
        .method = method, .partition = plsh_partition_default(8, 64), .window = 216, .block = 16};
    if (method == PLSH_METHOD_NONE) t.head[0].partition.decay = plsh_decay_alibi(1e12);
    set_up(&t, 7);
    for (size_t i = 0; i < 1024 * t.dv; i++) t.v[i] += (float)offset;
    for (size_t i = 0; i < 1024 * 64; i++) t.k[i] += (float)k_offset;
    oracle_attend(&t.a, t.q, t.k, t.v, oracle_decay, t.head, t.exact, NULL);
    run_trial(&t);
    char name[64];
    snprintf(name, sizeof name, "%s, V + %g, K + %g", plsh_method_names()[method], offset,
             k_offset);
    check(&t, name, 1e-6);
    assert_true(t.error_bound < most);
    tear_down(&t);
}

static void test_offset(void **state) {
    (void)state;
    check_offset(PLSH_METHOD_DENSE, 0, 0, 5e-4);
    check_offset(PLSH_METHOD_EXACT, 0, 0, 5e-4);
    check_offset(PLSH_METHOD_NONE, 0, 1000, 0.2); /* the rounding of scores alone */
    static const plsh_method nearly_exact[] = {PLSH_METHOD_DENSE, PLSH_METHOD_EXACT,
                                               PLSH_METHOD_WINDOW};
    for (int i = 0; i < 3; i++) {
        check_offset(nearly_exact[i], 1000, 0, 0.02);
        check_offset(nearly_exact[i], 1e6, 0, 20);
        check_offset(nearly_exact[i], 0, 1000, 0.2);
        check_offset(nearly_exact[i], 1000, 1000, 0.2);
    }
    static const plsh_method others[] = {PLSH_METHOD_PLSH, PLSH_METHOD_MASKS, PLSH_METHOD_MEAN,
                                         PLSH_METHOD_FIXED};
    for (int i = 0; i < 4; i++) {
        check_offset(others[i], 1000, 0, 8);
        check_offset(others[i], 0, 1000, 8);
    }
}

/* The rounding of sums alone: all weights are 1, and of every value 15 of 32 units in the last
 * place of a sum of 32 to 64 are lost, 15 2^-24 of the mean. */
static void test_long_sums(void **state) {
    (void)state;
    for (int64_t keys = 64; keys <= 64000; keys *= 1000) {
        trial t = {.a = {.heads = 1,
                         .queries = 4,
                         .keys = keys,
                         .head_dim = 2,
                         .head_count = 1,
                         .causal = true},
                   .key_scale = 1};
        t.head[0] = (plsh_head){.method = PLSH_METHOD_NONE};
        set_up(&t, 3);
        for (size_t i = 0; i < t.rows * t.dv; i++) t.exact[i] = 1 + 15 * 0x1p-23;
        for (size_t i = 0; i < (size_t)keys * t.dv; i++) t.v[i] = 1 + 15 * 0x1p-23f;
        run_trial(&t);
        check(&t, "none, equal values", 1e-9);
        assert_true(row_error(&t, 3) > 12 * 0x1p-24 || keys > 64);
        assert_true(t.error_bound < 0x1p-24 * 400);
        tear_down(&t);
    }
}

/* Equal keys, whose scores equal the bounds by norms: `exact` charges exactly the weight that it
 * leaves out. */
static void test_exact_is_tight(void **state) {
    (void)state;
    trial t = {.a = {.heads = 1,
                     .queries = 400,
                     .keys = 400,
                     .head_dim = 1,
                     .head_count = 1,
                     .causal = true},
               .magnitude = 1,
               .key_scale = 1};
    t.head[0] = (plsh_head){
        .method = PLSH_METHOD_EXACT, .partition.decay = plsh_decay_alibi(30), .eps = 0.3};
    set_up(&t, 7);
    for (size_t i = 0; i < 400; i++) {
        t.q[i] = t.k[i] = 1;
        t.v[i] = i < 200 ? 1 : 0;
    }
    oracle_attend(&t.a, t.q, t.k, t.v, oracle_decay, t.head, t.exact, NULL);
    run_trial(&t);
    check(&t, "exact, equal keys", 1e-6);
    double tightest = INFINITY;
    for (size_t i = 0; i < 400; i++) {
        double error = row_error(&t, i);
        if (error > 1e-3) tightest = fmin(tightest, (double)t.certificate[i] / error);
    }
    assert_true(tightest < 1.5);
    tear_down(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sampled), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_others),  cmocka_unit_test(test_trivial),
        cmocka_unit_test(test_range),   cmocka_unit_test(test_exact_is_tight),
        cmocka_unit_test(test_offset),  cmocka_unit_test(test_long_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
