/* attention: the addresses of the rows of K or V of one kv head, which are in the user's array or
 * in the pages of a decoding cache. */
#ifndef PLSH_ATTENTION_FORWARD_SOURCE_H
#define PLSH_ATTENTION_FORWARD_SOURCE_H

#include "attention/plan/plan.h"

typedef struct plsh_row_source {
    plsh_dtype dtype;
    int dim;
    ptrdiff_t stride;        /* elements from one row to the next */
    const char *base;        /* row 0; NULL: in pages */
    const void *const *page; /* rows i * page_rows .. lie in page[i - first_page] */
    int64_t first_page;
    int page_rows;
    size_t offset; /* bytes in a page before its first row */
} plsh_row_source;

/* Row `row`; in pages, up to page_rows - row % page_rows rows follow it. */
static inline const char *plsh_row_source_at(const plsh_row_source *source, int64_t row) {
    ptrdiff_t bytes = source->stride * (ptrdiff_t)plsh_dtype_size(source->dtype);
    if (source->base) return source->base + row * bytes;
    const char *page = source->page[row / source->page_rows - source->first_page];
    return page + source->offset + row % source->page_rows * bytes;
}

/* to[r * dim + x] = the rows first .. first + count - 1 as float32. */
void plsh_row_source_copy(const plsh_row_source *source, const plsh_kernels *kernel, int64_t first,
                          int count, float *to);

/* The same rows in place where they are float32 and contiguous, otherwise copied to `wide`. */
plsh_key_rows plsh_row_source_take(const plsh_row_source *source, const plsh_kernels *kernel,
                                   int64_t first, int count, float *wide);

/* The same for rows of bfloat16 that stay as they are. */
plsh_pair_rows plsh_row_source_take_pairs(const plsh_row_source *source, int64_t first, int count,
                                          uint16_t *copy);

/* K and V in pages: [kv_heads] each. */
typedef struct plsh_pages {
    const plsh_row_source *k, *v;
} plsh_pages;

/* K of a kv head, or V: of the pages, or if they are NULL of the arrays. */
plsh_row_source plsh_row_source_keys(const plsh_plan *plan, const plsh_forward *arrays,
                                     const plsh_pages *pages, int64_t kv);
plsh_row_source plsh_row_source_values(const plsh_plan *plan, const plsh_forward *arrays,
                                       const plsh_pages *pages, int64_t kv);

#endif
