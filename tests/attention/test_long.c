/* tests: sums over a million keys, forward and backward, against double. The tolerance is twice the
 * error of decoding, whose sums are short. */
#include "support/support.h"

#include "plsh/cache.h"
#include "support/oracle.h"
#include "support/problem.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* A few queries at the end of N keys. */
enum { N = 1 << 20, ROWS = 2, D = 8, DV = 5 };

/* ---- In double ------------------------------------------------------------------------------ */

typedef struct wide_row {
    double lse, o[DV], d_q[D];
    double size_o[DV], size_q[D]; /* sums of the terms' sizes */
} wide_row;

typedef struct wide {
    wide_row row[ROWS];
    double *p, *ds; /* [ROWS][N] */
    double *size;   /* [ROWS][N], P (|dP| + |delta|): what dS is a difference of */
} wide;

static double weight_log(const plsh_head *head, int64_t t) {
    if (t < 0 || (head->method == PLSH_METHOD_WINDOW && t >= head->window)) return -INFINITY;
    return head->partition.decay.a > 0.0 ? -(double)t / head->partition.decay.a : 0.0;
}

/* a.b, and the sum of its terms' sizes. */
static double dot(const float *a, const float *b, int count, double *size) {
    double sum = 0.0;
    *size = 0.0;
    for (int x = 0; x < count; x++) {
        sum += (double)a[x] * (double)b[x];
        *size += fabs((double)a[x] * (double)b[x]);
    }
    return sum;
}

static void attend_row(const problem *p, int i, wide *all) {
    wide_row *row = &all->row[i];
    double *weight = all->p + (size_t)i * N, *ds = all->ds + (size_t)i * N;
    double *size = all->size + (size_t)i * N, top = -INFINITY, sum = 0.0, delta = 0.0,
           mean_size = 0.0;
    for (int64_t j = 0; j < N; j++) {
        weight[j] = dot(p->q + i * D, p->k + j * D, D, &size[j]) / sqrt(D) +
                    weight_log(p->head, N - ROWS + i - j);
        top = fmax(top, weight[j]);
    }
    for (int64_t j = 0; j < N; j++) sum += weight[j] = exp(weight[j] - top);
    row->lse = top + log(sum);
    for (int64_t j = 0; j < N; j++) {
        weight[j] /= sum;
        ds[j] = dot(p->d_o + i * DV, p->v + j * DV, DV, &size[j]);
        delta += weight[j] * ds[j];
        mean_size += weight[j] * size[j];
        for (int c = 0; c < DV; c++) {
            double term = weight[j] * (double)p->v[j * DV + c];
            row->o[c] += term;
            row->size_o[c] += fabs(term);
        }
    }
    for (int64_t j = 0; j < N; j++) {
        ds[j] = weight[j] * (ds[j] - delta) / sqrt(D);
        size[j] = weight[j] * (size[j] + mean_size) / sqrt(D);
        for (int x = 0; x < D; x++) {
            row->d_q[x] += ds[j] * (double)p->k[j * D + x];
            row->size_q[x] += size[j] * fabs((double)p->k[j * D + x]);
        }
    }
}

static wide attend_wide(const problem *p) {
    wide all = {.p = calloc(ROWS * (size_t)N, sizeof(double)),
                .ds = calloc(ROWS * (size_t)N, sizeof(double)),
                .size = calloc(ROWS * (size_t)N, sizeof(double))};
    for (int i = 0; i < ROWS; i++) attend_row(p, i, &all);
    return all;
}

/* ---- Errors --------------------------------------------------------------------------------- */

/* Of what the size of a sum's terms is: largest over all rows and columns. */
typedef struct errors {
    double o, lse, d_q, d_k, d_v;
} errors;

static void raise_to(double *worst, double got, double want, double size) {
    double off = fabs(got - want) / size;
    if (!(off <= *worst)) *worst = off;
}

static errors errors_forward(const wide *all, const float *o, const float *lse) {
    errors worst = {0};
    for (int i = 0; i < ROWS; i++) {
        const wide_row *row = &all->row[i];
        raise_to(&worst.lse, (double)lse[i], row->lse, 1.0);
        for (int c = 0; c < DV; c++)
            raise_to(&worst.o, (double)o[i * DV + c], row->o[c], row->size_o[c]);
    }
    return worst;
}

static void errors_backward(const wide *all, const problem *p, errors *worst) {
    for (int i = 0; i < ROWS; i++) {
        const wide_row *row = &all->row[i];
        for (int x = 0; x < D; x++)
            raise_to(&worst->d_q, (double)p->d_q[i * D + x], row->d_q[x], row->size_q[x]);
    }
    for (int64_t j = 0; j < N; j++) {
        for (int x = 0; x < D; x++) {
            double want = 0.0, size = 1e-20;
            for (int i = 0; i < ROWS; i++) {
                double term = all->ds[i * (size_t)N + (size_t)j] * (double)p->q[i * D + x];
                double full = all->size[i * (size_t)N + (size_t)j];
                want += term, size += full * fabs((double)p->q[i * D + x]);
            }
            raise_to(&worst->d_k, (double)p->d_k[j * D + x], want, size);
        }
        for (int c = 0; c < DV; c++) {
            double want = 0.0, size = 1e-20;
            for (int i = 0; i < ROWS; i++) {
                double term = all->p[i * (size_t)N + (size_t)j] * (double)p->d_o[i * DV + c];
                want += term, size += fabs(term);
            }
            raise_to(&worst->d_v, (double)p->d_v[j * DV + c], want, size);
        }
    }
}

/* ---- The cases ------------------------------------------------------------------------------ */

/* One token after the other. */
static errors decode(const problem *p, const wide *all) {
    plsh_error error;
    plsh_cache *cache;
    float o[ROWS * DV], lse[ROWS];
    const plsh_cache_config config = {
        .heads = 1, .head_dim = D, .value_dim = DV, .head = p->head, .head_count = 1, .threads = 1};
    const plsh_tokens before = {.count = N - ROWS, .k = p->k, .v = p->v};
    assert_ok(plsh_cache_create(&config, &cache, &error));
    assert_ok(plsh_cache_append(cache, &before, &error));
    for (int i = 0; i < ROWS; i++) {
        const plsh_tokens token = {.count = 1,
                                   .q = p->q + i * D,
                                   .k = p->k + (N - ROWS + i) * D,
                                   .v = p->v + (N - ROWS + i) * DV,
                                   .o = o + i * DV,
                                   .lse = lse + i};
        assert_ok(plsh_cache_step(cache, &token, NULL, &error));
    }
    plsh_cache_destroy(cache);
    return errors_forward(all, o, lse);
}

/* The largest error of one weight, relative to it, in plain float32. */
static double plain_weights(const problem *p, const wide *all) {
    double worst = 0.0;
    for (int64_t i = 0; i < ROWS; i++) {
        for (int64_t j = 0; j < N; j++) {
            float score = 0.0f, bias = (float)weight_log(p->head, N - ROWS + i - j);
            for (int x = 0; x < D; x++) score += p->q[i * D + x] * p->k[j * D + x];
            double want = all->p[i * N + j];
            if (want == 0.0) continue;
            raise_to(&worst, (double)expf(score / sqrtf(D) + bias - (float)all->row[i].lse), want,
                     want);
        }
    }
    return worst;
}

static void require(const char *what, double error, double allowed) {
    allowed += 4.0 * FLT_EPSILON;
    if (!(error <= allowed)) fail_msg("%s is off by %.2g; %.2g is allowed", what, error, allowed);
}

static void check(problem *p) {
    plsh_error error;
    wide all = attend_wide(p);
    errors yard = decode(p, &all);
    assert_ok(problem_forward(p, &error));
    errors got = errors_forward(&all, p->o, p->lse);
    assert_ok(problem_backward(p, &error));
    errors_backward(&all, p, &got);
    /* dK and dV have short sums here; a weight is as far off as the lse it is given. */
    double weight = plain_weights(p, &all) + yard.lse;
    require("o", got.o, 2.0 * yard.o);
    require("lse", got.lse, 2.0 * yard.lse);
    require("dQ", got.d_q, 2.0 * yard.o);
    require("dK", got.d_k, 2.0 * weight);
    require("dV", got.d_v, 2.0 * weight);
    free(all.p);
    free(all.ds);
    free(all.size);
}

static const int32_t one_block[N]; /* labels: as `none`, by the way of the sampled methods */

static const plsh_head cases[] = {
    {.method = PLSH_METHOD_NONE},
    {.method = PLSH_METHOD_DENSE, .partition = {.decay = {.kind = PLSH_DECAY_ALIBI, .a = 1e6}}},
    {.method = PLSH_METHOD_EXACT, .partition = {.decay = {.kind = PLSH_DECAY_ALIBI, .a = 1e6}}},
    {.method = PLSH_METHOD_WINDOW,
     .partition = {.decay = {.kind = PLSH_DECAY_ALIBI, .a = 3e5}},
     .window = N - 777},
    {.method = PLSH_METHOD_PLSH,
     .partition =
         {.scheme = PLSH_SCHEME_LABELS, .samples = 1, .labels = one_block, .label_count = N}},
};

static problem *make(const plsh_head *head) {
    problem *p = problem_make(
        (plsh_attention){
            .heads = 1, .queries = ROWS, .keys = N, .head_dim = D, .value_dim = DV, .causal = true},
        5);
    p->head[0] = *head;
    return p;
}

/* The first two: sums without a bias are the easier ones. */
static void test_random(void **state) {
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        problem *p = make(&cases[i]);
        check(p);
        problem_free(p);
    }
}

/* All keys alike but one, which weighs about as much as the others together, and values of one
 * sign: all rounding errors have the same sign. */
static void test_strong(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        problem *p = make(&cases[i]);
        for (int64_t j = 0; j < N; j++) {
            bool strong = j == N - 1000;
            for (int x = 0; x < D; x++) p->k[j * D + x] *= 1e-4f;
            for (int c = 0; c < DV; c++)
                p->v[j * DV + c] = (strong ? -1.0f : 1.0f) + 1e-2f * p->v[j * DV + c];
            if (strong) p->k[j * D] = 15.5f * sqrtf(D);
        }
        for (int r = 0; r < ROWS; r++) p->q[r * D] = 1.0f;
        check(p);
        problem_free(p);
    }
}

int main(void) {
    if (!test_has_isa(NULL)) return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),
                                       cmocka_unit_test(test_strong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
