/* head: checks of descriptors, and the defaults that zeros in them stand for. Plans, caches and
 * shards all use these. */
#ifndef PLSH_HEAD_CHECK_H
#define PLSH_HEAD_CHECK_H

#include "plsh/head.h"
#include "plsh/thread.h"

enum {
    PLSH_DIM_MAX = 512, /* head_dim and value_dim */
    PLSH_HEADS_MAX = 1 << 20,
    PLSH_SAMPLES_MAX = 1 << 24 /* counts of draws are floats, which are exact up to here */
};
#define PLSH_ROWS_MAX (INT64_C(1) << 40) /* of one call */
#define PLSH_POSITIONS                                                                             \
    (INT64_C(1) << 61) /* of a sequence; sums of a few of them fit in 64 bits                      \
                        */

/* Is the decay all zeros? A head that does not use its decay may leave it so. */
static inline bool plsh_decay_is_unset(const plsh_decay *decay) {
    return decay->kind == PLSH_DECAY_ALIBI && decay->a == 0.0;
}

/* Does the head use its decay? A sampled head with labels does not need one: its decay may be
 * zeros, and then there is no certificate. */
static inline bool plsh_head_has_decay(const plsh_head *head) {
    if (plsh_decay_is_unset(&head->partition.decay) && plsh_method_is_sampled(head->method) &&
        head->partition.scheme == PLSH_SCHEME_LABELS) {
        return false;
    }
    return head->method != PLSH_METHOD_FIXED && head->method != PLSH_METHOD_NONE;
}

/* Is there a decay to compare the head's result with? `fixed` may have one, for certificates. */
static inline bool plsh_head_knows_decay(const plsh_head *head) {
    const plsh_decay *decay = &head->partition.decay;
    plsh_error unused;
    if (head->method != PLSH_METHOD_FIXED) return plsh_head_has_decay(head);
    return !plsh_decay_is_unset(decay) && plsh_decay_check(decay, &unused) == PLSH_STATUS_OK;
}

/* The part of the descriptor that plans and caches share. */
typedef struct plsh_shape {
    int64_t heads, kv_heads, head_dim, value_dim;
    double scale;
    plsh_dtype dtype;
    int threads;
    const plsh_head *head;
    int64_t head_count;
    bool points; /* positions are points, not row numbers */
} plsh_shape;

/* Checks all of it, with the heads, and fills in the defaults. */
plsh_status plsh_check_shape(plsh_shape *shape, plsh_error *error);

/* Float32, float16 or bfloat16. */
plsh_status plsh_check_o_dtype(plsh_dtype dtype, plsh_error *error);

/* Head h of a checked shape as it runs: eps set, window and block no longer than any sequence. */
plsh_head plsh_check_head(const plsh_shape *shape, int64_t h);

/* The strides of a layout: those of rows one after the other if it is zeros. */
static inline plsh_layout plsh_layout_or(plsh_layout layout, int64_t rows, int64_t dim) {
    if (layout.head_stride == 0 && layout.row_stride == 0) return (plsh_layout){rows * dim, dim};
    return layout;
}

/* Fills in a layout of zeros; refuses strides that are negative or make rows or heads overlap. */
plsh_status plsh_check_layout(plsh_layout *layout, const char *name, int64_t heads, int64_t rows,
                              int64_t dim, plsh_error *error);

/* 0 <= queries <= keys <= PLSH_ROWS_MAX; the same for each of the sequences that the offsets
 * define. With places there may be more queries than keys; positions are not negative. */
plsh_status plsh_check_rows(const plsh_extent *e, plsh_error *error);

/* Checks a descriptor and fills in its defaults. plsh_check_layouts checks its layouts alone. */
plsh_status plsh_attention_check(const plsh_attention *attention, plsh_attention *checked,
                                 plsh_error *error);
plsh_status plsh_check_layouts(plsh_attention *attention, plsh_error *error);
/* Check positions that are points: their dimension, sets and heads; and the points themselves,
 * `rows` per set. `name` is the array's name in messages. */
plsh_status plsh_check_positioned(const plsh_shape *shape, const plsh_positions *positions,
                                  plsh_error *error);
plsh_status plsh_check_points(const plsh_positions *positions, const char *name,
                              const float *points, int64_t rows, plsh_error *error);
/* Calls on parts of a sequence know rows, not points. */
plsh_status plsh_check_no_positions(const plsh_attention *attention, plsh_error *error);
plsh_shape plsh_attention_shape(const plsh_attention *attention);

/* An array of a call, for the check below. */
typedef struct plsh_check_array {
    const char *name;
    const void *data; /* NULL: none */
    size_t size;      /* of an element */
    plsh_layout layout;
    int64_t heads, rows, dim;
    bool written;
} plsh_check_array;

/* No array that is written may share memory with another one of the call. Rows of one in the gaps
 * between the rows of another are fine. */
plsh_status plsh_check_overlap(const plsh_check_array *arrays, int count, plsh_error *error);

#endif
