/* attention: the addresses of the rows of K or V of one kv head. */
#include "attention/forward/source.h"

#include <string.h>

#include "plsh/dtype.h"

/* Of the rows from `first` on, how many lie in one piece. */
static int64_t in_one_piece(const plsh_row_source *source, int64_t first) {
    return source->base ? INT64_MAX : source->page_rows - first % source->page_rows;
}

void plsh_row_source_copy(const plsh_row_source *source, const plsh_kernels *kernel, int64_t first,
                          int count, float *to) {
    while (count > 0) {
        int64_t piece = in_one_piece(source, first);
        int rows = piece < count ? (int)piece : count;
        plsh_stored_rows from = {plsh_row_source_at(source, first), source->dtype, source->stride};
        kernel->widen((plsh_matrix){to, source->dim}, from, rows, source->dim);
        first += rows, count -= rows, to += (ptrdiff_t)rows * source->dim;
    }
}

plsh_key_rows plsh_row_source_take(const plsh_row_source *source, const plsh_kernels *kernel,
                                   int64_t first, int count, float *wide) {
    if (source->dtype == PLSH_DTYPE_FLOAT32 && count <= in_one_piece(source, first)) {
        const char *row = plsh_row_source_at(source, first);
        return (plsh_key_rows){(const float *)(const void *)row, source->stride, count,
                               source->dim};
    }
    plsh_row_source_copy(source, kernel, first, count, wide);
    return (plsh_key_rows){wide, source->dim, count, source->dim};
}

plsh_pair_rows plsh_row_source_take_pairs(const plsh_row_source *source, int64_t first, int count,
                                          uint16_t *copy) {
    if (count <= in_one_piece(source, first)) {
        const char *row = plsh_row_source_at(source, first);
        return (plsh_pair_rows){(const uint16_t *)(const void *)row, source->stride, count,
                                source->dim};
    }
    for (int r = 0; r < count; r++)
        memcpy(copy + (ptrdiff_t)r * source->dim, plsh_row_source_at(source, first + r),
               (size_t)source->dim * sizeof *copy);
    return (plsh_pair_rows){copy, source->dim, count, source->dim};
}

static const char *head_of(const void *array, const plsh_layout *layout, int64_t head,
                           plsh_dtype dtype) {
    return (const char *)array + head * layout->head_stride * (int64_t)plsh_dtype_size(dtype);
}

plsh_row_source plsh_row_source_keys(const plsh_plan *plan, const plsh_forward *arrays,
                                     const plsh_pages *pages, int64_t kv) {
    if (pages) return pages->k[kv];
    const plsh_attention *shape = &plan->shape;
    return (plsh_row_source){.dtype = shape->dtype,
                             .dim = (int)shape->head_dim,
                             .stride = shape->k.row_stride,
                             .base = head_of(arrays->k, &shape->k, kv, shape->dtype)};
}

plsh_row_source plsh_row_source_values(const plsh_plan *plan, const plsh_forward *arrays,
                                       const plsh_pages *pages, int64_t kv) {
    if (pages) return pages->v[kv];
    const plsh_attention *shape = &plan->shape;
    return (plsh_row_source){.dtype = shape->dtype,
                             .dim = (int)shape->value_dim,
                             .stride = shape->v.row_stride,
                             .base = head_of(arrays->v, &shape->v, kv, shape->dtype)};
}
