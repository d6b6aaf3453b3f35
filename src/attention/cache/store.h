/* attention/cache: the keys and values of one kv head, in pages. Old keys are dropped by releasing
 * pages at the front. */
#ifndef PLSH_ATTENTION_CACHE_STORE_H
#define PLSH_ATTENTION_CACHE_STORE_H

#include "attention/cache/page.h"

typedef struct plsh_cache_store {
    int64_t first;    /* number of the first page: it holds position first * PLSH_PAGE_KEYS */
    int64_t count;    /* pages */
    int64_t capacity; /* of `page` */
    void **page;      /* plsh_cache_page */
    /* bounded: a binary tree of norms, leaves [leaves, 2 leaves) for page 0, 1, ... */
    int64_t leaves;
    float *norm;
} plsh_cache_store;

static inline plsh_cache_page *plsh_cache_store_page(const plsh_cache_store *store,
                                                     int64_t number) {
    return store->page[number - store->first];
}

/* Rows of keys and values as the caller passes them. */
typedef struct plsh_cache_rows {
    const void *k, *v;
    int64_t k_stride, v_stride; /* elements between rows */
    plsh_dtype dtype;
    const float *points; /* of the first set of the kv head, if positions are points */
    int64_t set_stride;  /* elements between sets */
} plsh_cache_rows;

/* Pages for the positions up to `length`, the last one now in use ready to be written from row
 * `used` on (its own copy where it was shared). On failure the visible state of the store is
 * unchanged. */
plsh_status plsh_cache_store_reserve(plsh_cache_store *store, const plsh_cache_page_layout *layout,
                                     int64_t used, int64_t length, plsh_error *error);
/* Writes rows at position..position + count - 1, which are reserved. */
void plsh_cache_store_write(plsh_cache_store *store, const plsh_cache_page_layout *layout,
                            int64_t position, int64_t count, const plsh_cache_rows *rows);
/* Recomputes norms and boxes of all pages of a sequence of this length, if the layout has them. */
void plsh_cache_store_bound(plsh_cache_store *store, const plsh_cache_page_layout *layout,
                            int64_t length);
/* Releases the pages that lie wholly before position `first`, or at and after `length`. */
void plsh_cache_store_drop(plsh_cache_store *store, int64_t first);
void plsh_cache_store_truncate(plsh_cache_store *store, int64_t length);
plsh_status plsh_cache_store_fork(const plsh_cache_store *store, plsh_cache_store *fork,
                                  plsh_error *error);
void plsh_cache_store_clear(plsh_cache_store *store);
size_t plsh_cache_store_bytes(const plsh_cache_store *store, const plsh_cache_page_layout *layout);

/* The longest key of the pages begin..end-1, where these are one node of the tree: end - begin is
 * a power of two that divides begin. */
float plsh_cache_store_norm(const plsh_cache_store *store, int64_t begin, int64_t end);

#endif
