/* head: checks of descriptors. */
#include "head/check.h"

#include <math.h>

#include "base/dtype.h"
#include "base/status.h"
#include "decay/tail.h"
#include "head/bound.h"
#include "partition/draw.h"
#include "plsh/cells.h"

/* Multiplied by log2 e, this is still in float's range. */
static const double SCALE_MAX = 1e38;

static plsh_status check_range(const char *name, int64_t value, int64_t low, int64_t high,
                               plsh_error *error) {
    if (value >= low && value <= high) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID, "%s is %lld; %lld to %lld", name, (long long)value,
                     (long long)low, (long long)high);
}

static plsh_status check_dtype(const char *name, plsh_dtype dtype, plsh_error *error) {
    if (plsh_dtype_is_attended(dtype)) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID, "%s is %s; float32, float16 or bfloat16", name,
                     plsh_dtype_name(dtype));
}

static plsh_status check_sizes(const plsh_shape *shape, plsh_error *error) {
    plsh_status status = check_range("heads", shape->heads, 1, PLSH_HEADS_MAX, error);
    if (!status) status = check_range("kv_heads", shape->kv_heads, 1, shape->heads, error);
    if (!status) status = check_range("head_dim", shape->head_dim, 1, PLSH_DIM_MAX, error);
    if (!status) status = check_range("value_dim", shape->value_dim, 1, PLSH_DIM_MAX, error);
    if (!status) status = check_range("threads", shape->threads, 0, PLSH_THREADS_MAX, error);
    if (status) return status;
    if (shape->heads % shape->kv_heads != 0) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "kv_heads is %lld; it must divide heads, %lld",
                         (long long)shape->kv_heads, (long long)shape->heads);
    }
    if (!(fabs(shape->scale) <= SCALE_MAX)) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "scale is %g; a number of at most %g",
                         shape->scale, SCALE_MAX);
    }
    return check_dtype("dtype", shape->dtype, error);
}

plsh_status plsh_check_o_dtype(plsh_dtype dtype, plsh_error *error) {
    return check_dtype("o_dtype", dtype, error);
}

plsh_status plsh_check_layout(plsh_layout *layout, const char *name, int64_t heads, int64_t rows,
                              int64_t dim, plsh_error *error) {
    const int64_t most =
        INT64_C(1) << 58; /* elements: the sum of two such distances in bytes fits in 64 bits */
    *layout = plsh_layout_or(*layout, rows, dim);
    int64_t head = layout->head_stride, row = layout->row_stride, last;
    bool overflow = __builtin_mul_overflow(head, heads, &last) || last > most ||
                    __builtin_mul_overflow(row, rows, &last) || last > most;
    if (overflow) {
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "strides of %s: %lld and %lld are too large",
                         name, (long long)head, (long long)row);
    }
    if (head < 0 || row < 0) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "strides of %s: head %lld, row %lld; they must not be negative", name,
                         (long long)head, (long long)row);
    }
    bool rows_apart = rows <= 1 || row >= dim;
    bool heads_apart = heads <= 1 || rows == 0 || head >= dim;
    bool nested = heads <= 1 || rows <= 1 || head >= (rows - 1) * row + dim ||
                  row >= (heads - 1) * head + dim;
    if (!rows_apart || !heads_apart || !nested) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "strides of %s: head %lld, row %lld make rows of %lld elements overlap",
                         name, (long long)head, (long long)row, (long long)dim);
    }
    return PLSH_STATUS_OK;
}

/* Offsets of one array: they begin with 0, never decrease, and end with `rows`. */
static plsh_status check_offsets(const char *name, const int64_t *offset, int64_t sequences,
                                 int64_t rows, plsh_error *error) {
    for (int64_t x = 0; x <= sequences; x++) {
        int64_t least = x == 0 ? 0 : offset[x - 1], most = x == 0 ? 0 : rows;
        if (x == sequences) least = rows;
        if (offset[x] >= least && offset[x] <= most) continue;
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%s[%lld] is %lld; offsets begin with 0, never decrease and end with %lld",
                         name, (long long)x, (long long)offset[x], (long long)rows);
    }
    return PLSH_STATUS_OK;
}

/* Sequence x, or all rows where there is only one. */
static plsh_status check_sequence(const plsh_extent *e, int64_t x, plsh_error *error) {
    const int64_t queries =
        e->sequences ? e->query_offsets[x + 1] - e->query_offsets[x] : e->queries;
    const int64_t keys = e->sequences ? e->key_offsets[x + 1] - e->key_offsets[x] : e->keys;
    if (!e->places && keys < queries) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "sequence %lld has %lld queries and %lld keys; queries <= keys",
                         (long long)x, (long long)queries, (long long)keys);
    }
    const plsh_place at = e->places ? e->places[x] : (plsh_place){0, 0};
    const int64_t most = PLSH_POSITIONS - PLSH_ROWS_MAX;
    if (at.query >= 0 && at.key >= 0 && at.query <= most && at.key <= most) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "sequence %lld: queries from position %lld, keys from %lld; 0 to 2^61 - 2^40",
                     (long long)x, (long long)at.query, (long long)at.key);
}

plsh_status plsh_check_rows(const plsh_extent *e, plsh_error *error) {
    if (e->queries < 0 || e->keys < 0 || (!e->places && e->keys < e->queries) ||
        e->keys > PLSH_ROWS_MAX || e->queries > PLSH_ROWS_MAX) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld queries and %lld keys; 0 <= queries <= keys <= 2^40",
                         (long long)e->queries, (long long)e->keys);
    }
    if (e->sequences < 0 || e->sequences > PLSH_ROWS_MAX ||
        (e->sequences > 0 && (!e->query_offsets || !e->key_offsets))) {
        return plsh_fail(
            error, PLSH_STATUS_INVALID,
            "sequences is %lld; with more than 0, query_offsets and key_offsets must be given",
            (long long)e->sequences);
    }
    plsh_status status = PLSH_STATUS_OK;
    if (e->sequences) {
        status = check_offsets("query_offsets", e->query_offsets, e->sequences, e->queries, error);
        if (status) return status;
        status = check_offsets("key_offsets", e->key_offsets, e->sequences, e->keys, error);
    }
    const int64_t sequences = e->sequences ? e->sequences : 1;
    for (int64_t x = 0; !status && x < sequences; x++) status = check_sequence(e, x, error);
    return status;
}

static plsh_status check_method(const plsh_head *head, int64_t h, bool points, plsh_error *error) {
    if ((unsigned)head->method > PLSH_METHOD_AUTO) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "head %lld: method %d is unknown",
                         (long long)h, (int)head->method);
    }
    if (!(head->eps >= 0.0 && head->eps < 1.0)) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "head %lld: eps is %g; 0 (2^-24) to below 1",
                         (long long)h, head->eps);
    }
    if (head->method == PLSH_METHOD_WINDOW && head->window < 1 && !(points && head->radius > 0.0)) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "head %lld: window is %lld; at least 1",
                         (long long)h, (long long)head->window);
    }
    if (head->method == PLSH_METHOD_FIXED && head->block < 1) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "head %lld: block is %lld; at least 1",
                         (long long)h, (long long)head->block);
    }
    return PLSH_STATUS_OK;
}

/* A partition for attention, which loops over all of its draws and counts them in floats. */
static plsh_status check_partition(const plsh_partition *set, bool points, plsh_error *error) {
    plsh_status status = points ? plsh_cells_check(set, error) : plsh_partition_check(set, error);
    if (status || set->samples <= PLSH_SAMPLES_MAX) return status;
    return plsh_fail(error, PLSH_STATUS_INVALID, "samples is %lld; attention takes 1 to 2^24",
                     (long long)set->samples);
}

static plsh_head settle_design(plsh_head head) {
    head.partition.design = plsh_design_choose(&head.partition);
    return head;
}

/* Design golden-shifted is refused where single masks are needed. */
static plsh_status check_masks(const plsh_head *head, plsh_error *error) {
    if (head->method == PLSH_METHOD_PLSH || !plsh_partition_is_shifted(&head->partition))
        return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "design golden-shifted counts blocks and has no single masks: method plsh "
                     "takes it, %s does not",
                     plsh_method_names()[head->method]);
}

static plsh_status check_head(const plsh_head *given, int64_t h, bool points, plsh_error *error) {
    plsh_status status = check_method(given, h, points, error);
    if (status) return status;
    const plsh_head settled = settle_design(*given), *head = &settled;
    plsh_error inner = {0};
    if (plsh_head_has_decay(head)) status = plsh_decay_check(&head->partition.decay, &inner);
    if (!status && plsh_method_is_sampled(head->method)) {
        status = check_partition(&head->partition, points, &inner);
        if (!status) status = check_masks(head, &inner);
    }
    if (!status) return status;
    return plsh_fail(error, status, "head %lld: %.200s", (long long)h, inner.message);
}

static plsh_status check_heads(const plsh_shape *shape, plsh_error *error) {
    if (!shape->head || (shape->head_count != 1 && shape->head_count != shape->heads)) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "head_count is %lld; 1, or heads (%lld), with an array of that length",
                         (long long)shape->head_count, (long long)shape->heads);
    }
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t h = 0; !status && h < shape->head_count; h++) {
        status = check_head(&shape->head[h], h, shape->points, error);
    }
    return status;
}

plsh_status plsh_check_shape(plsh_shape *shape, plsh_error *error) {
    if (shape->kv_heads == 0) shape->kv_heads = shape->heads;
    if (shape->value_dim == 0) shape->value_dim = shape->head_dim;
    plsh_status status = check_sizes(shape, error);
    if (status) return status;
    if (shape->scale == 0.0) shape->scale = 1.0 / sqrt((double)shape->head_dim);
    return check_heads(shape, error);
}

plsh_head plsh_check_head(const plsh_shape *shape, int64_t h) {
    plsh_head head = settle_design(shape->head[shape->head_count == 1 ? 0 : h]);
    if (head.eps == 0.0) head.eps = PLSH_BOUND_EPS;
    if (head.window > PLSH_POSITIONS) head.window = PLSH_POSITIONS;
    if (head.block > PLSH_POSITIONS) head.block = PLSH_POSITIONS;
    return head;
}

/* The largest coordinate: a sum of three squares of differences is still a float. */
static const float COORDINATE_MAX = 1e18f;

plsh_status plsh_check_points(const plsh_positions *p, const char *name, const float *points,
                              int64_t rows, plsh_error *error) {
    if (rows == 0) return PLSH_STATUS_OK;
    if (!points)
        return plsh_fail(error, PLSH_STATUS_INVALID, "positions of the %s must not be NULL", name);
    for (int64_t i = 0; i < p->sets * rows * p->dim; i++) {
        if (fabsf(points[i]) <= COORDINATE_MAX || isnan(points[i])) continue;
        return plsh_fail(error, PLSH_STATUS_NOT_FINITE,
                         "positions of the %s: coordinate %lld of row %lld of set %lld is %g; at "
                         "most 1e18 in size, or NaN for no position",
                         name, (long long)(i % p->dim), (long long)(i / p->dim % rows),
                         (long long)(i / p->dim / rows), (double)points[i]);
    }
    return PLSH_STATUS_OK;
}

static plsh_status check_positioned_head(const plsh_head *head, int64_t h, plsh_error *error) {
    if (head->method == PLSH_METHOD_FIXED)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "head %lld: fixed does not take positions; every other method does",
                         (long long)h);
    /* Squares of distances below 1e-19 are not floats; such a distance is 1e-7 of this sigma. */
    const double least = 1e-12;
    const plsh_decay *decay = &head->partition.decay;
    if (plsh_head_has_decay(head) && plsh_decay_is_linear(decay) && decay->a < least)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "head %lld: sigma is %g; with positions at least %g: scale both",
                         (long long)h, decay->a, least);
    if (head->radius >= 0.0 && head->radius < INFINITY) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID, "head %lld: radius is %g; 0 (window) or more",
                     (long long)h, head->radius);
}

plsh_status plsh_check_positioned(const plsh_shape *shape, const plsh_positions *p,
                                  plsh_error *error) {
    plsh_status status = check_range("positions.dim", p->dim, 1, 3, error);
    if (!status && p->sets != 1 && p->sets != shape->heads)
        status = plsh_fail(error, PLSH_STATUS_INVALID,
                           "positions.sets is %lld; 1, or heads (%lld), one set per head",
                           (long long)p->sets, (long long)shape->heads);
    for (int64_t h = 0; !status && h < shape->head_count; h++)
        status = check_positioned_head(&shape->head[h], h, error);
    return status;
}

static plsh_status check_positions(const plsh_attention *a, plsh_error *error) {
    const plsh_positions *p = &a->positions;
    const int64_t most = INT32_MAX;
    if (p->dim == 0) return PLSH_STATUS_OK;
    const plsh_shape shape = plsh_attention_shape(a);
    plsh_status status = plsh_check_positioned(&shape, p, error);
    if (!status && a->places)
        status = plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                           "positions are for whole sequences: there are no places with them");
    if (!status && (a->keys > most || a->queries > most))
        status = plsh_fail(error, PLSH_STATUS_INVALID,
                           "%lld queries and %lld keys; positions are for at most 2^31 - 1",
                           (long long)a->queries, (long long)a->keys);
    if (!status) status = plsh_check_points(p, "keys", p->key, a->keys, error);
    if (!status && p->query) status = plsh_check_points(p, "queries", p->query, a->queries, error);
    return status;
}

plsh_status plsh_check_no_positions(const plsh_attention *attention, plsh_error *error) {
    if (attention->positions.dim == 0) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "positions are for calls on whole sequences, not for parts of one or for "
                     "several ranks");
}

plsh_shape plsh_attention_shape(const plsh_attention *a) {
    return (plsh_shape){a->heads, a->kv_heads, a->head_dim, a->value_dim,  a->scale,
                        a->dtype, a->threads,  a->head,     a->head_count, a->positions.dim > 0};
}

plsh_status plsh_attention_check(const plsh_attention *attention, plsh_attention *checked,
                                 plsh_error *error) {
    *checked = *attention;
    plsh_attention *a = checked;
    plsh_shape shape = plsh_attention_shape(a);
    plsh_status status = plsh_check_shape(&shape, error);
    if (!status) status = plsh_check_o_dtype(a->o_dtype, error);
    if (status) return status;
    a->kv_heads = shape.kv_heads;
    a->value_dim = shape.value_dim;
    a->scale = shape.scale;
    const plsh_extent rows = {a->queries,       a->keys,        a->sequences,
                              a->query_offsets, a->key_offsets, a->places};
    status = plsh_check_rows(&rows, error);
    if (!status) status = plsh_check_layouts(a, error);
    if (!status) status = check_positions(a, error);
    return status;
}

plsh_status plsh_check_layouts(plsh_attention *a, plsh_error *error) {
    plsh_status status = plsh_check_layout(&a->q, "q", a->heads, a->queries, a->head_dim, error);
    if (!status) status = plsh_check_layout(&a->k, "k", a->kv_heads, a->keys, a->head_dim, error);
    if (!status) status = plsh_check_layout(&a->v, "v", a->kv_heads, a->keys, a->value_dim, error);
    if (!status) status = plsh_check_layout(&a->o, "o", a->heads, a->queries, a->value_dim, error);
    return status;
}
