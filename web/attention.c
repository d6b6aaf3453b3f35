/* web: one head of attention, by several methods on the same numbers. */
#include "base/clock.h"
#include "bench/bench.h"
#include "web/web.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int64_t n, dim;
    bool causal;
    plsh_decay decay;
    float *q, *k, *v, *o, *reference; /* parts of one block of memory */
} problem;

static plsh_attention describe(const plsh_head *head) {
    return (plsh_attention){.heads = 1,
                            .queries = problem.n,
                            .keys = problem.n,
                            .head_dim = problem.dim,
                            .causal = problem.causal,
                            .head = head,
                            .head_count = 1,
                            .threads = 1};
}

bool web_attention_begin(int n, int dim, double sigma, bool causal, int seed) {
    web_attention_end();
    const int64_t count = (int64_t)n * dim;
    problem.q = malloc(5 * (size_t)count * sizeof(float));
    if (problem.q == NULL) {
        strcpy(web_error_target()->message, "out of memory");
        return false;
    }
    problem.n = n;
    problem.dim = dim;
    problem.causal = causal;
    problem.decay = plsh_decay_alibi(sigma);
    problem.k = problem.q + count;
    problem.v = problem.k + count;
    problem.o = problem.v + count;
    problem.reference = problem.o + count;
    bench_fill_normal(problem.q, (size_t)count, (uint64_t)seed); /* as plsh bench */
    bench_fill_normal(problem.k, (size_t)count, (uint64_t)seed + 1);
    bench_fill_normal(problem.v, (size_t)count, (uint64_t)seed + 2);
    const plsh_head head = plsh_head_default(PLSH_METHOD_EXACT, &problem.decay);
    const plsh_attention exact = describe(&head);
    return plsh_attend(&exact, problem.q, problem.k, problem.v, problem.reference, NULL,
                       web_error_target()) == PLSH_STATUS_OK;
}

void web_attention_end(void) {
    free(problem.q);
    memset(&problem, 0, sizeof problem);
}

/* out[1], out[2]: errors of o against the reference. */
static void compare_outputs(double out[4]) {
    double error = 0, size = 0, most = 0;
    for (int64_t i = 0; i < problem.n * problem.dim; i++) {
        const double e = (double)problem.o[i] - (double)problem.reference[i];
        error += e * e;
        size += (double)problem.reference[i] * (double)problem.reference[i];
        most = fmax(most, fabs(e));
    }
    out[1] = sqrt(error / size);
    out[2] = most;
}

static plsh_status run_plan(const plsh_plan *plan, double out[4]) {
    plsh_stats stats = {0};
    const plsh_forward arrays = {.q = problem.q, .k = problem.k, .v = problem.v, .o = problem.o};
    void *workspace = aligned_alloc(64, plsh_plan_workspace(plan));
    plsh_status status = PLSH_STATUS_NO_MEMORY;
    const double begin = plsh_clock_seconds();
    if (workspace != NULL)
        status = plsh_plan_forward(plan, &arrays, workspace, &stats, web_error_target());
    else
        strcpy(web_error_target()->message, "out of memory");
    out[0] = 1e3 * (plsh_clock_seconds() - begin);
    out[3] = (double)stats.pairs;
    free(workspace);
    return status;
}

bool web_attention_run(int method, int design, int samples, int window, int isa, double out[4]) {
    plsh_head head = plsh_head_default((plsh_method)method, &problem.decay);
    head.partition.design = (plsh_design)design;
    head.partition.samples = samples;
    head.window = window;
    plsh_attention attention = describe(&head);
    attention.isa = web_name(WEB_ISAS, isa);
    plsh_plan *plan = NULL;
    plsh_status status = plsh_plan_create(&attention, &plan, web_error_target());
    if (status == PLSH_STATUS_OK) status = run_plan(plan, out);
    plsh_plan_destroy(plan);
    if (status == PLSH_STATUS_OK) compare_outputs(out);
    return status == PLSH_STATUS_OK;
}
