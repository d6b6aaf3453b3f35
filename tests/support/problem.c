/* tests: a problem of attention with its arrays. */
#include "support/problem.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "support/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *normals(uint64_t seed, size_t count) {
    float *x = malloc((count + 1) * sizeof *x);
    oracle_normal(seed, 1.0, x, count);
    return x;
}

static float *zeros(size_t count) { return calloc(count + 1, sizeof(float)); }

problem *problem_make(plsh_attention a, uint64_t seed) {
    int64_t kv = a.kv_heads ? a.kv_heads : a.heads, dv = a.value_dim ? a.value_dim : a.head_dim;
    problem *p = calloc(1, sizeof *p);
    p->a = a;
    p->a.head = p->head;
    p->a.head_count = a.heads;
    p->rows = (size_t)(a.heads * a.queries);
    p->q_count = p->rows * (size_t)a.head_dim;
    p->o_count = p->rows * (size_t)dv;
    p->k_count = (size_t)(kv * a.keys * a.head_dim);
    p->v_count = (size_t)(kv * a.keys * dv);
    p->q = normals(seed, p->q_count);
    p->k = normals(seed + 1, p->k_count);
    p->v = normals(seed + 2, p->v_count);
    p->d_o = normals(seed + 3, p->o_count);
    p->o = zeros(p->o_count);
    p->lse = zeros(p->rows);
    p->d_q = zeros(p->q_count);
    p->d_k = zeros(p->k_count);
    p->d_v = zeros(p->v_count);
    p->d_decay = calloc((size_t)a.heads, 2 * sizeof *p->d_decay);
    return p;
}

void problem_free(problem *p) {
    float *arrays[] = {p->q, p->k, p->v, p->d_o, p->o, p->lse, p->d_q, p->d_k, p->d_v};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(p->d_decay);
    free(p);
}

/* Either pass: the other's arrays are NULL. */
static plsh_status run_pass(const plsh_attention *a, const plsh_forward *forward,
                            const plsh_backward *backward, plsh_stats *stats, plsh_error *error) {
    plsh_plan *plan;
    void *workspace;
    plsh_status status = plsh_plan_create(a, &plan, error);
    if (status) return status;
    size_t size = forward ? plsh_plan_workspace(plan) : plsh_plan_backward_workspace(plan);
    status = plsh_allocate(&workspace, size, 1, "workspace", error);
    if (!status) {
        memset(workspace, 0xa5, size);
        plsh_memory_fail_after(0);
        status = forward ? plsh_plan_forward(plan, forward, workspace, stats, error)
                         : plsh_plan_backward(plan, backward, workspace, stats, error);
        plsh_memory_fail_after(-1);
    }
    plsh_release(workspace);
    plsh_plan_destroy(plan);
    return status;
}

plsh_status problem_forward(problem *p, plsh_error *error) {
    plsh_forward arrays = {
        .q = p->q, .k = p->k, .v = p->v, .o = p->o, .lse = p->lse, .dropout = p->dropout};
    return run_pass(&p->a, &arrays, NULL, &p->forward, error);
}

plsh_backward problem_arrays(const problem *p) {
    return (plsh_backward){.q = p->q,
                           .k = p->k,
                           .v = p->v,
                           .o = p->o,
                           .lse = p->lse,
                           .d_o = p->d_o,
                           .d_q = p->d_q,
                           .d_k = p->d_k,
                           .d_v = p->d_v,
                           .d_decay = p->d_decay,
                           .dropout = p->dropout};
}

plsh_status problem_run_backward(const plsh_attention *a, const plsh_backward *arrays,
                                 plsh_stats *stats, plsh_error *error) {
    return run_pass(a, NULL, arrays, stats, error);
}

plsh_status problem_backward(problem *p, plsh_error *error) {
    plsh_backward arrays = problem_arrays(p);
    return run_pass(&p->a, NULL, &arrays, &p->backward, error);
}

void problem_halve(problem *p, plsh_dtype type, uint16_t *halves[3]) {
    float *arrays[] = {p->q, p->k, p->v};
    size_t counts[] = {p->q_count, p->k_count, p->v_count};
    for (int i = 0; i < 3; i++) {
        halves[i] = malloc((counts[i] + 1) * sizeof *halves[i]);
        for (size_t j = 0; j < counts[i]; j++) {
            float x = arrays[i][j] = roundf(arrays[i][j] * 8) / 8;
            halves[i][j] =
                type == PLSH_DTYPE_FLOAT16 ? plsh_float_to_half(x) : plsh_float_to_bfloat(x);
        }
    }
}

float *problem_scatter(const float *from, int64_t heads, int64_t rows, int64_t dim, plsh_layout to,
                       size_t count) {
    float *out = malloc(count * sizeof *out);
    for (size_t i = 0; i < count; i++) out[i] = 77;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t r = 0; r < rows; r++)
            memcpy(out + h * to.head_stride + r * to.row_stride, from + (h * rows + r) * dim,
                   (size_t)dim * sizeof *out);
    return out;
}
