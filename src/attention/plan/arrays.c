/* attention: checks the arrays of a call. */
#include "attention/plan/plan.h"

#include "base/memory.h"
#include "base/status.h"

static plsh_status check_workspace(const void *workspace, plsh_error *error) {
    if ((uintptr_t)workspace % PLSH_ALIGNMENT == 0) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID, "the workspace must lie on a multiple of %d",
                     PLSH_ALIGNMENT);
}

/* Arrays of a call as the check of overlaps takes them. */
static plsh_check_array queries_of(const plsh_plan *plan, const char *name, const void *data,
                                   plsh_dtype dtype, bool written) {
    const plsh_attention *s = &plan->shape;
    return (plsh_check_array){
        name, data, plsh_dtype_size(dtype), s->q, s->heads, s->queries, s->head_dim, written};
}

static plsh_check_array outputs_of(const plsh_plan *plan, const char *name, const void *data,
                                   plsh_dtype dtype, bool written) {
    const plsh_attention *s = &plan->shape;
    return (plsh_check_array){name,     data,       plsh_dtype_size(dtype), s->o,
                              s->heads, s->queries, s->value_dim,           written};
}

static plsh_check_array keys_of(const plsh_plan *plan, const char *name, const void *data,
                                plsh_dtype dtype, bool written) {
    const plsh_attention *s = &plan->shape;
    return (plsh_check_array){
        name, data, plsh_dtype_size(dtype), s->k, s->kv_heads, s->keys, s->head_dim, written};
}

static plsh_check_array values_of(const plsh_plan *plan, const char *name, const void *data,
                                  plsh_dtype dtype, bool written) {
    const plsh_attention *s = &plan->shape;
    return (plsh_check_array){name,        data,    plsh_dtype_size(dtype), s->v,
                              s->kv_heads, s->keys, s->value_dim,           written};
}

/* `each` numbers of `size` bytes for every head, without gaps. */
static plsh_check_array rows_of(const plsh_plan *plan, const char *name, const void *data,
                                size_t size, int64_t each, bool written) {
    const int64_t heads = plan->shape.heads;
    return (plsh_check_array){name, data, size, {each, 1}, heads, each, 1, written};
}

/* Gradients by positions: `rows` points of every set. */
static plsh_check_array points_of(const plsh_plan *plan, const char *name, const float *data,
                                  int64_t rows) {
    const int64_t each = rows * plan->points.dim;
    return (plsh_check_array){name, data, sizeof(float), {each, 1}, plan->points.sets,
                              each, 1,    true};
}

static plsh_status check_points(const plsh_plan *plan, const plsh_backward *a, plsh_error *error) {
    if ((a->d_key_positions || a->d_query_positions) && plan->points.dim == 0)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "gradients of positions, but the plan has no positions");
    for (int64_t h = 0; (a->d_key_positions || a->d_query_positions) && h < plan->shape.heads; h++)
        if (plsh_method_is_sampled(plan->head[h].head.method))
            return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                             "head %lld: a sampled mask has no gradients by positions",
                             (long long)h);
    if (a->d_query_positions && !plan->points.query_given)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "d_query_positions without positions of the queries: d_key_positions has "
                         "their gradients");
    return PLSH_STATUS_OK;
}

static plsh_status check_dropout(const plsh_plan *plan, const plsh_attention_dropout *dropout,
                                 plsh_error *error) {
    if (!(dropout->p >= 0.0 && dropout->p < 1.0)) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "dropout of %g; at least 0, and less than 1",
                         dropout->p);
    }
    if (dropout->head < 0 || dropout->head > (INT64_C(1) << 32) - plan->shape.heads ||
        dropout->query < 0 || dropout->query > PLSH_ROWS_MAX || dropout->key < 0 ||
        dropout->key > PLSH_ROWS_MAX) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "dropout from head %lld, rows %lld and %lld on; 0 or more, heads below "
                         "2^32, rows at most %lld",
                         (long long)dropout->head, (long long)dropout->query,
                         (long long)dropout->key, (long long)PLSH_ROWS_MAX);
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_forward_check(const plsh_plan *plan, const plsh_forward *a, const void *workspace,
                               plsh_error *error) {
    const plsh_dtype dtype = plan->shape.dtype;
    const int64_t n = plan->shape.queries;
    if (!a->q || !a->k || !a->v || !a->o || !workspace) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "q, k, v, o and the workspace must not be NULL");
    }
    if (a->certificate && a->dropout.p != 0.0) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "certificates are of attention without dropout");
    }
    const plsh_check_array arrays[] = {
        queries_of(plan, "q", a->q, dtype, false),
        keys_of(plan, "k", a->k, dtype, false),
        values_of(plan, "v", a->v, dtype, false),
        outputs_of(plan, "o", a->o, plan->shape.o_dtype, true),
        rows_of(plan, "lse", a->lse, sizeof(float), n, true),
        rows_of(plan, "certificate", a->certificate, sizeof(float), n, true),
    };
    plsh_status status = check_workspace(workspace, error);
    if (!status) status = check_dropout(plan, &a->dropout, error);
    if (!status) status = plsh_check_overlap(arrays, 6, error);
    if (status || !plan->shape.check_finite) return status;
    return plsh_check_finite(plan, a, NULL, error);
}

plsh_status plsh_backward_check(const plsh_plan *plan, const plsh_backward *a,
                                const void *workspace, plsh_error *error) {
    const plsh_dtype dtype = plan->shape.dtype, wide = PLSH_DTYPE_FLOAT32;
    if (!a->q || !a->k || !a->v || !a->o || !a->lse || !a->d_o || !workspace) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "q, k, v, o, lse, d_o and the workspace must not be NULL");
    }
    const plsh_check_array arrays[] = {
        queries_of(plan, "q", a->q, dtype, false),
        keys_of(plan, "k", a->k, dtype, false),
        values_of(plan, "v", a->v, dtype, false),
        outputs_of(plan, "o", a->o, wide, false),
        outputs_of(plan, "d_o", a->d_o, wide, false),
        rows_of(plan, "lse", a->lse, sizeof(float), plan->shape.queries, false),
        queries_of(plan, "d_q", a->d_q, wide, true),
        keys_of(plan, "d_k", a->d_k, wide, true),
        values_of(plan, "d_v", a->d_v, wide, true),
        rows_of(plan, "d_decay", a->d_decay, sizeof(double), 2, true),
        points_of(plan, "d_key_positions", a->d_key_positions, plan->shape.keys),
        points_of(plan, "d_query_positions", a->d_query_positions, plan->shape.queries),
    };
    plsh_status status = check_workspace(workspace, error);
    if (!status) status = check_dropout(plan, &a->dropout, error);
    if (!status) status = check_points(plan, a, error);
    if (!status) status = plsh_check_overlap(arrays, 12, error);
    if (status || !plan->shape.check_finite) return status;
    const plsh_forward inputs = {.q = a->q, .k = a->k, .v = a->v};
    return plsh_check_finite(plan, &inputs, a->d_o, error);
}
