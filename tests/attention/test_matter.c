/* tests: on real Q, K, V `exact` scores at most twice the pairs of the tiles that truly matter. */
#include "support/support.h"

#include "base/memory.h"
#include "plsh/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tiles in which AVX2's kernel scores: QUERIES x KEYS. The last ROWS queries are asked. */
enum { HEADS = 9, KV_HEADS = 3, N = 4096, D = 64, ROWS = 1032, QUERIES = 24, KEYS = 32 };
#define EPS 0x1p-24

static plsh_npy load(const char *layer, char array, const char *ending) {
    plsh_error error;
    char path[256];
    snprintf(path, sizeof path, "data/qkv/smollm2-%s/%c%s.npy", layer, array, ending);
    plsh_npy npy = test_shared_npy(path);
    assert_ok(plsh_npy_to_float32(&npy, &error));
    return npy;
}

static int64_t scored(const float *q, const float *k, double sigma) {
    plsh_error error;
    plsh_head head = {
        .method = PLSH_METHOD_EXACT, .partition = plsh_partition_default(sigma, 1), .eps = EPS};
    plsh_attention a = {.heads = 1,
                        .queries = ROWS,
                        .keys = N,
                        .head_dim = D,
                        .causal = true,
                        .head = &head,
                        .head_count = 1,
                        .isa = "avx2"};
    plsh_plan *plan;
    void *workspace;
    plsh_stats stats;
    float *o = malloc(sizeof(float) * ROWS * D);
    assert_ok(plsh_plan_create(&a, &plan, &error));
    assert_ok(plsh_allocate(&workspace, plsh_plan_workspace(plan), 1, "test", &error));
    plsh_forward arrays = {.q = q, .k = k, .v = k, .o = o};
    assert_ok(plsh_plan_forward(plan, &arrays, workspace, &stats, &error));
    plsh_release(workspace);
    plsh_plan_destroy(plan);
    free(o);
    return stats.pairs;
}

static int by_mass(const void *a, const void *b) {
    double x = **(double *const *)a, y = **(double *const *)b;
    return (x > y) - (x < y);
}

/* Marks the tiles that row i needs: all but the lightest, whose softmax weights together stay
 * below EPS. */
static void mark(const float *q, const float *k, int64_t i, double sigma, bool *matters) {
    static float score[N];
    double mass[N / KEYS] = {0}, *order[N / KEYS], top = -INFINITY, sum = 0, dropped = 0;
    for (int64_t j = 0; j <= i; j++) {
        float dot = 0;
        for (int x = 0; x < D; x++) dot += q[x] * k[j * D + x];
        score[j] = dot / 8 - (float)((double)(i - j) / sigma); /* 8 = sqrt(D) */
        top = fmax(top, (double)score[j]);
    }
    for (int64_t j = 0; j <= i; j++) mass[j / KEYS] += exp((double)score[j] - top);
    for (int t = 0; t < N / KEYS; t++) sum += *(order[t] = &mass[t]);
    qsort(order, N / KEYS, sizeof *order, by_mass);
    for (int t = 0; t < N / KEYS; t++)
        if ((dropped += *order[t]) > EPS * sum) matters[order[t] - mass] = true;
}

/* Pairs (causal ones) of the tiles that some row of theirs needs. */
static int64_t needed(const float *q, const float *k, double sigma) {
    int64_t pairs = 0;
    for (int64_t row = N - ROWS; row < N; row += QUERIES) {
        bool matters[N / KEYS] = {false};
        for (int64_t i = row; i < row + QUERIES; i++)
            mark(q + (i - (N - ROWS)) * D, k, i, sigma, matters);
        for (int64_t j = 0; j < N; j++)
            for (int64_t i = row; i < row + QUERIES; i++) pairs += matters[j / KEYS] && j <= i;
    }
    return pairs;
}

static void check(const char *layer, const char *ending) {
    plsh_npy q = load(layer, 'q', ending), k = load(layer, 'k', ending);
    int64_t all_scored = 0, all_needed = 0;
    for (int h = 0; h < HEADS; h++) {
        double sigma = 1.4 * pow(256 / 1.4, h / 8.0);
        const float *q_h = (float *)q.data + ((int64_t)h * N + N - ROWS) * D;
        const float *k_h = (float *)k.data + (int64_t)(h / (HEADS / KV_HEADS)) * N * D;
        int64_t did = scored(q_h, k_h, sigma), need = needed(q_h, k_h, sigma);
        print_message(
            "%s%s head %d, sigma %5.1f: %4.0f keys per query matter, %4.0f scored: %.2f\n", layer,
            ending, h, sigma, (double)need / ROWS, (double)did / ROWS, (double)did / (double)need);
        all_scored += did;
        all_needed += need;
    }
    double ratio = (double)all_scored / (double)all_needed;
    print_message("%s%s: %.2f times the pairs that matter\n", layer, ending, ratio);
    assert_true(ratio <= 2);
    plsh_npy_free(&q);
    plsh_npy_free(&k);
}

static void test_real_arrays(void **state) {
    (void)state;
    bool known = false;
    for (const char *const *isa = plsh_isa_available(); *isa; isa++) known |= !strcmp(*isa, "avx2");
    if (!known) {
        print_message("skipped: this processor has no AVX2, whose tiles are counted\n");
        skip();
    }
    check("layer00", "");
    check("layer00", "_rope");
    check("layer15", "");
    check("layer15", "_rope");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_real_arrays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
