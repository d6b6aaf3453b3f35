/* attention: is a descriptor one that can be run? */
#include <float.h>
#include <math.h>

#include "attention/plan/plan.h"
#include "base/dtype.h"
#include "base/status.h"

static plsh_status check_sizes(const plsh_attention *a, plsh_error *error) {
    if (a->heads < 1) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "heads is %lld; at least 1",
                         (long long)a->heads);
    }
    if (a->kv_heads < 1 || a->heads % a->kv_heads != 0) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "kv_heads is %lld; it must divide heads, %lld",
                         (long long)a->kv_heads, (long long)a->heads);
    }
    if (a->head_dim < 1 || a->head_dim > PLSH_DIM_MAX) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "head_dim is %lld; 1 to %d",
                         (long long)a->head_dim, PLSH_DIM_MAX);
    }
    if (a->value_dim < 1 || a->value_dim > PLSH_DIM_MAX) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "value_dim is %lld; 1 to %d",
                         (long long)a->value_dim, PLSH_DIM_MAX);
    }
    if (a->queries < 0 || a->keys < a->queries || a->keys > INT64_C(1) << 40) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld queries and %lld keys; 0 <= queries <= keys <= 2^40",
                         (long long)a->queries, (long long)a->keys);
    }
    if (!(fabs(a->scale) <= FLT_MAX)) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "scale is %g; a number that is finite as a float", a->scale);
    }
    if (!plsh_dtype_is_attended(a->dtype)) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "dtype is %s; float32, float16 or bfloat16",
                         plsh_dtype_name(a->dtype));
    }
    if (a->threads < 0 || a->threads > 4096) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "threads is %d; 0 (all) to 4096", a->threads);
    }
    return PLSH_STATUS_OK;
}

/* Fills in a layout of zeros; refuses rows or heads that overlap. */
static plsh_status check_layout(plsh_layout *layout, const char *name, int64_t heads, int64_t rows,
                                int64_t dim, plsh_error *error) {
    if (layout->head_stride == 0 && layout->row_stride == 0) {
        *layout = (plsh_layout){.head_stride = rows * dim, .row_stride = dim};
    }
    int64_t head = layout->head_stride, row = layout->row_stride, last;
    bool overflow = __builtin_mul_overflow(head, heads, &last) ||
                    __builtin_mul_overflow(row, rows, &last) || last > INT64_C(1) << 60 ||
                    head > (INT64_C(1) << 60) / heads;
    if (overflow) {
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "strides of %s: %lld and %lld are too large",
                         name, (long long)head, (long long)row);
    }
    bool rows_apart = rows <= 1 || row >= dim;
    bool heads_apart = heads <= 1 || rows == 0 || head >= dim;
    bool nested = heads <= 1 || rows <= 1 || head >= (rows - 1) * row + dim ||
                  row >= (heads - 1) * head + dim;
    if (head < 0 || row < 0 || !rows_apart || !heads_apart || !nested) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "strides of %s: head %lld, row %lld make rows of %lld elements overlap",
                         name, (long long)head, (long long)row, (long long)dim);
    }
    return PLSH_STATUS_OK;
}

static plsh_status check_offsets(const plsh_attention *a, plsh_error *error) {
    const int64_t *q = a->query_offsets, *k = a->key_offsets;
    if (a->sequences < 0 || (a->sequences > 0 && (!q || !k))) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "sequences is %lld; positive needs query_offsets and key_offsets",
                         (long long)a->sequences);
    }
    if (a->sequences == 0) return PLSH_STATUS_OK;
    for (int64_t x = 0; x < a->sequences; x++) {
        int64_t queries = q[x + 1] - q[x], keys = k[x + 1] - k[x];
        if (queries < 0 || keys < queries) {
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "sequence %lld has %lld queries and %lld keys; 0 <= queries <= keys",
                             (long long)x, (long long)queries, (long long)keys);
        }
    }
    if (q[0] != 0 || k[0] != 0 || q[a->sequences] != a->queries || k[a->sequences] != a->keys) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "offsets must begin with 0 and end with queries, %lld, and keys, %lld",
                         (long long)a->queries, (long long)a->keys);
    }
    return PLSH_STATUS_OK;
}

static plsh_status check_method(const plsh_head *head, int64_t h, plsh_error *error) {
    if ((unsigned)head->method > PLSH_METHOD_AUTO) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "head %lld: method %d is unknown",
                         (long long)h, (int)head->method);
    }
    if (!(head->eps >= 0.0 && head->eps < 1.0)) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "head %lld: eps is %g; 0 (2^-24) to below 1",
                         (long long)h, head->eps);
    }
    if (head->method == PLSH_METHOD_WINDOW && head->window < 1) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "head %lld: window is %lld; at least 1",
                         (long long)h, (long long)head->window);
    }
    if (head->method == PLSH_METHOD_FIXED && head->block < 1) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "head %lld: block is %lld; at least 1",
                         (long long)h, (long long)head->block);
    }
    return PLSH_STATUS_OK;
}

static plsh_status check_heads(const plsh_attention *a, plsh_error *error) {
    if (!a->head || (a->head_count != 1 && a->head_count != a->heads)) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "head_count is %lld; 1, or heads (%lld), with an array of that length",
                         (long long)a->head_count, (long long)a->heads);
    }
    for (int64_t h = 0; h < a->head_count; h++) {
        plsh_status status = check_method(&a->head[h], h, error);
        if (!status && plsh_head_has_decay(&a->head[h])) {
            status = plsh_decay_check(&a->head[h].partition.decay, error);
        }
        if (status) return status;
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_attention_check(const plsh_attention *attention, plsh_attention *shape,
                                 plsh_error *error) {
    *shape = *attention;
    plsh_attention *a = shape;
    if (a->kv_heads == 0) a->kv_heads = a->heads;
    if (a->value_dim == 0) a->value_dim = a->head_dim;
    plsh_status status = check_sizes(a, error);
    if (status) return status;
    if (a->scale == 0.0) a->scale = 1.0 / sqrt((double)a->head_dim);
    status = check_layout(&a->q, "q", a->heads, a->queries, a->head_dim, error);
    if (!status) status = check_layout(&a->k, "k", a->kv_heads, a->keys, a->head_dim, error);
    if (!status) status = check_layout(&a->v, "v", a->kv_heads, a->keys, a->value_dim, error);
    if (!status) status = check_layout(&a->o, "o", a->heads, a->queries, a->value_dim, error);
    if (!status) status = check_offsets(a, error);
    if (!status) status = check_heads(a, error);
    return status;
}
