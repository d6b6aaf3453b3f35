/* Attention on arrays: exact ALiBi, then sampled, with a certificate for both.
 *
 *     cc attention.c $(pkg-config --cflags --libs plsh) -o attention && ./attention */
#include <plsh/plsh.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 8, N = 2048, DIM = 64 };

static float *noise(size_t count) {
    float *x = malloc(count * sizeof *x);
    for (size_t i = 0; x != NULL && i < count; i++) x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    return x;
}

/* One method on all heads: returns its output, prints what it did. */
static int run(plsh_method method, const char *name, const float *q, const float *k, const float *v,
               float *o) {
    plsh_error error;
    plsh_head head[HEADS];
    if (plsh_heads_alibi(HEADS, method, head, &error)) goto failed;
    plsh_attention attention = {.heads = HEADS,
                                .queries = N,
                                .keys = N,
                                .head_dim = DIM,
                                .causal = true,
                                .head = head,
                                .head_count = HEADS};
    /* plsh_attend(&attention, q, k, v, o, NULL, &error) would do; a plan also tells what it did. */
    plsh_plan *plan;
    if (plsh_plan_create(&attention, &plan, &error)) goto failed;
    void *workspace = aligned_alloc(64, plsh_plan_workspace(plan));
    float *certificate = malloc(sizeof(float) * HEADS * N);
    plsh_forward io = {.q = q, .k = k, .v = v, .o = o, .certificate = certificate};
    plsh_stats stats;
    plsh_status status = plsh_plan_forward(plan, &io, workspace, &stats, &error);
    free(certificate);
    free(workspace);
    plsh_plan_destroy(plan);
    if (status) goto failed;
    printf("%-6s scored %5.1f %% of the pairs, error proven below %.2g\n", name,
           100.0 * (double)stats.pairs / (HEADS * (N * (N + 1.0) / 2)), stats.error_bound);
    return 0;
failed:
    fprintf(stderr, "%s: %s\n", name, error.message);
    return 1;
}

int main(void) {
    size_t size = (size_t)HEADS * N * DIM;
    float *q = noise(size), *k = noise(size), *v = noise(size);
    float *exact = malloc(size * sizeof *exact), *sampled = malloc(size * sizeof *sampled);
    int failed = q == NULL || k == NULL || v == NULL || exact == NULL || sampled == NULL;
    if (!failed) failed = run(PLSH_METHOD_EXACT, "exact", q, k, v, exact);
    if (!failed) failed = run(PLSH_METHOD_PLSH, "plsh", q, k, v, sampled);
    float worst = 0;
    for (size_t i = 0; !failed && i < size; i++) worst = fmaxf(worst, fabsf(exact[i] - sampled[i]));
    if (!failed) printf("they differ by %.2g at most\n", (double)worst);
    free(q), free(k), free(v), free(exact), free(sampled);
    return failed;
}
