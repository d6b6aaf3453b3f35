/* attention/cache: pages, the unit in which keys and values are stored, shared and dropped.
 *
 * A page holds PLSH_PAGE_KEYS consecutive tokens of one kv head. Pages are reference counted: forks
 * share them, and a shared page is copied before it is written to. */
#ifndef PLSH_ATTENTION_CACHE_PAGE_H
#define PLSH_ATTENTION_CACHE_PAGE_H

#include "attention/kernels/kernels.h"

#include <stdatomic.h>

enum { PLSH_PAGE_KEYS = PLSH_DECODE_KEYS };

/* In memory: this, then for `bounded` layouts the box (low[d], high[d], floats) and the boxes of
 * the positions [sets][2][dim], then the positions [PLSH_PAGE_KEYS][sets][dim], floats, then the
 * keys [PLSH_PAGE_KEYS][d], then the values [PLSH_PAGE_KEYS][dv], in the storage's type; d and dv
 * padded. */
typedef struct plsh_cache_page {
    atomic_int references;
    int filled; /* rows that norm and box cover */
    float norm; /* no key is longer */
} plsh_cache_page;

typedef struct plsh_cache_page_layout {
    plsh_dtype dtype;
    int64_t head_dim, value_dim;   /* as the user has them */
    int64_t d, dv;                 /* padded */
    int dim;                       /* of positions that are points; 0: row numbers */
    int64_t sets;                  /* of positions of one kv head */
    size_t element;                /* bytes of an element of K or V */
    size_t box, point_box, points; /* offsets within a page, */
    size_t keys, values, bytes;    /* and its size */
    const plsh_kernels *kernels;
} plsh_cache_page_layout;

/* Fills in the rest of a layout that has its dtype, dimensions, sets and kernels. bounded: with
 * norms and boxes, for `exact`. */
void plsh_cache_page_layout_make(plsh_cache_page_layout *layout, bool bounded);

static inline bool plsh_cache_page_is_bounded(const plsh_cache_page_layout *layout) {
    return layout->points != layout->box;
}

static inline char *plsh_cache_page_at(const plsh_cache_page *page, size_t offset) {
    return (char *)page + offset;
}

/* Key row `row` of a page, and value row `row`. */
static inline char *plsh_cache_page_key(const plsh_cache_page *page,
                                        const plsh_cache_page_layout *layout, int64_t row) {
    return (char *)page + layout->keys + (size_t)(row * layout->d) * layout->element;
}

static inline char *plsh_cache_page_value(const plsh_cache_page *page,
                                          const plsh_cache_page_layout *layout, int64_t row) {
    return (char *)page + layout->values + (size_t)(row * layout->dv) * layout->element;
}

/* The positions of row `row`: [sets][dim]. */
static inline float *plsh_cache_page_point(const plsh_cache_page *page,
                                           const plsh_cache_page_layout *layout, int64_t row) {
    return (float *)((char *)page + layout->points) + row * layout->sets * layout->dim;
}

/* An empty page, its padding zero, with one reference. */
plsh_status plsh_cache_page_make(plsh_cache_page **page, const plsh_cache_page_layout *layout,
                                 plsh_error *error);
void plsh_cache_page_share(plsh_cache_page *page);
void plsh_cache_page_release(plsh_cache_page *page);
bool plsh_cache_page_is_shared(const plsh_cache_page *page);
void plsh_cache_page_copy(plsh_cache_page *to, const plsh_cache_page *from,
                          const plsh_cache_page_layout *layout);

/* bounded: takes the rows from..to-1, just written, into norm and box. If `from` is not the end of
 * the covered rows (the page was truncated), they are recomputed from all rows. */
void plsh_cache_page_cover(plsh_cache_page *page, const plsh_cache_page_layout *layout, int from,
                           int to);

/* An upper bound of q . k over the keys of a page, by its box. */
float plsh_cache_page_bound(const plsh_cache_page *page, const plsh_cache_page_layout *layout,
                            const float *q);

#endif
