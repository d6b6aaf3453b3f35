/* attention/cache: the keys and values of one kv head, in pages. */
#include "attention/cache/store.h"

#include "base/dtype.h"
#include "base/memory.h"

#include <string.h>

/* ---- The tree of norms ----------------------------------------------------------------------- */

static void tree_set(plsh_cache_store *store, int64_t number, float norm) {
    int64_t node = store->leaves + number;
    store->norm[node] = norm;
    while (node > 1) {
        node /= 2;
        float a = store->norm[2 * node], b = store->norm[2 * node + 1];
        store->norm[node] = a > b ? a : b;
    }
}

float plsh_cache_store_norm(const plsh_cache_store *store, int64_t begin, int64_t end) {
    return store->norm[(store->leaves + begin) / (end - begin)];
}

/* Doubles the leaves until `pages` fit: the old tree becomes the left half of the new one. */
static plsh_status tree_reserve(plsh_cache_store *store, int64_t pages, plsh_error *error) {
    if (pages <= store->leaves) return PLSH_STATUS_OK;
    int64_t leaves = store->leaves ? store->leaves : 8;
    while (leaves < pages) leaves *= 2;
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, 2 * (size_t)leaves, sizeof(float), "norms of pages", error);
    if (status) return status;
    float *norm = memory;
    int64_t old = store->leaves;
    if (old) memcpy(norm + leaves, store->norm + old, (size_t)old * sizeof(float));
    for (int64_t node = leaves - 1; node > 0; node--)
        norm[node] = norm[2 * node] > norm[2 * node + 1] ? norm[2 * node] : norm[2 * node + 1];
    plsh_release(store->norm);
    store->norm = norm;
    store->leaves = leaves;
    return PLSH_STATUS_OK;
}

/* ---- Pages ----------------------------------------------------------------------------------- */

static plsh_status table_reserve(plsh_cache_store *store, int64_t pages, plsh_error *error) {
    if (pages <= store->capacity) return PLSH_STATUS_OK;
    int64_t capacity = store->capacity ? store->capacity : 8;
    while (capacity < pages) capacity *= 2;
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, (size_t)capacity, sizeof *store->page, "the table of pages", error);
    if (status) return status;
    if (store->count) memcpy(memory, store->page, (size_t)store->count * sizeof *store->page);
    plsh_release(store->page);
    store->page = memory;
    store->capacity = capacity;
    return PLSH_STATUS_OK;
}

/* Copies the last page if other stores share it and it will be written to. */
static plsh_status own_last(plsh_cache_store *store, const plsh_cache_page_layout *layout,
                            plsh_error *error) {
    void **last = &store->page[store->count - 1];
    plsh_cache_page *copy;
    if (!plsh_cache_page_is_shared(*last)) return PLSH_STATUS_OK;
    plsh_status status = plsh_cache_page_make(&copy, layout, error);
    if (status) return status;
    plsh_cache_page_copy(copy, *last, layout);
    plsh_cache_page_release(*last);
    *last = copy;
    return PLSH_STATUS_OK;
}

plsh_status plsh_cache_store_reserve(plsh_cache_store *store, const plsh_cache_page_layout *layout,
                                     int64_t used, int64_t length, plsh_error *error) {
    int64_t pages = (length + PLSH_PAGE_KEYS - 1) / PLSH_PAGE_KEYS, before = store->count;
    plsh_status status = table_reserve(store, pages - store->first, error);
    if (!status && plsh_cache_page_is_bounded(layout)) status = tree_reserve(store, pages, error);
    if (!status && used % PLSH_PAGE_KEYS != 0 && length > used)
        status = own_last(store, layout, error);
    while (!status && store->first + store->count < pages) {
        plsh_cache_page *page;
        status = plsh_cache_page_make(&page, layout, error);
        if (!status) store->page[store->count++] = page;
    }
    if (status)
        while (store->count > before) plsh_cache_page_release(store->page[--store->count]);
    return status;
}

/* One row into a page, rounded where the storage is narrower. The padding stays zero. */
static void put_row(const plsh_cache_page_layout *layout, char *to, const void *from, int64_t at,
                    plsh_dtype dtype, int64_t dim) {
    if (dtype == layout->dtype) {
        memcpy(to, (const char *)from + (size_t)at * layout->element,
               (size_t)dim * layout->element);
    } else {
        plsh_kernels_narrow(layout->kernels, layout->dtype, to, (const float *)from + at, dim);
    }
}

static void put_points(const plsh_cache_page_layout *layout, float *to, const plsh_cache_rows *rows,
                       int64_t row) {
    for (int64_t set = 0; set < layout->sets; set++)
        for (int i = 0; i < layout->dim; i++)
            *to++ = rows->points[set * rows->set_stride + row * layout->dim + i];
}

void plsh_cache_store_write(plsh_cache_store *store, const plsh_cache_page_layout *layout,
                            int64_t position, int64_t count, const plsh_cache_rows *rows) {
    for (int64_t i = 0; i < count;) {
        int64_t number = (position + i) / PLSH_PAGE_KEYS;
        int from = (int)((position + i) % PLSH_PAGE_KEYS), to = from;
        plsh_cache_page *page = plsh_cache_store_page(store, number);
        for (; to < PLSH_PAGE_KEYS && i < count; to++, i++) {
            put_row(layout, plsh_cache_page_key(page, layout, to), rows->k, i * rows->k_stride,
                    rows->dtype, layout->head_dim);
            put_row(layout, plsh_cache_page_value(page, layout, to), rows->v, i * rows->v_stride,
                    rows->dtype, layout->value_dim);
            if (layout->dim > 0)
                put_points(layout, plsh_cache_page_point(page, layout, to), rows, i);
        }
        if (!plsh_cache_page_is_bounded(layout)) continue;
        plsh_cache_page_cover(page, layout, from, to);
        tree_set(store, number, page->norm);
    }
}

void plsh_cache_store_bound(plsh_cache_store *store, const plsh_cache_page_layout *layout,
                            int64_t length) {
    if (!plsh_cache_page_is_bounded(layout)) return;
    for (int64_t number = store->first; number * PLSH_PAGE_KEYS < length; number++) {
        plsh_cache_page *page = plsh_cache_store_page(store, number);
        int64_t rows = length - number * PLSH_PAGE_KEYS;
        page->filled = 0, page->norm = 0;
        plsh_cache_page_cover(page, layout, 0, rows < PLSH_PAGE_KEYS ? (int)rows : PLSH_PAGE_KEYS);
        tree_set(store, number, page->norm);
    }
}

void plsh_cache_store_drop(plsh_cache_store *store, int64_t first) {
    int64_t drop = first / PLSH_PAGE_KEYS - store->first;
    if (drop <= 0) return;
    if (drop > store->count) drop = store->count;
    for (int64_t i = 0; i < drop; i++) plsh_cache_page_release(store->page[i]);
    store->count -= drop;
    store->first += drop;
    memmove(store->page, store->page + drop, (size_t)store->count * sizeof *store->page);
}

void plsh_cache_store_truncate(plsh_cache_store *store, int64_t length) {
    int64_t pages = (length + PLSH_PAGE_KEYS - 1) / PLSH_PAGE_KEYS;
    if (pages < store->first) pages = store->first;
    while (store->first + store->count > pages) {
        plsh_cache_page_release(store->page[--store->count]);
        if (store->norm) tree_set(store, store->first + store->count, 0);
    }
}

plsh_status plsh_cache_store_fork(const plsh_cache_store *store, plsh_cache_store *fork,
                                  plsh_error *error) {
    *fork = (plsh_cache_store){.first = store->first};
    plsh_status status = table_reserve(fork, store->count, error);
    if (!status && store->norm) status = tree_reserve(fork, store->leaves, error);
    if (status) {
        plsh_cache_store_clear(fork);
        return status;
    }
    if (store->norm) memcpy(fork->norm, store->norm, 2 * (size_t)store->leaves * sizeof(float));
    for (int64_t i = 0; i < store->count; i++) {
        plsh_cache_page_share(store->page[i]);
        fork->page[i] = store->page[i];
    }
    fork->count = store->count;
    return PLSH_STATUS_OK;
}

void plsh_cache_store_clear(plsh_cache_store *store) {
    for (int64_t i = 0; i < store->count; i++) plsh_cache_page_release(store->page[i]);
    plsh_release(store->page);
    plsh_release(store->norm);
    *store = (plsh_cache_store){0};
}

size_t plsh_cache_store_bytes(const plsh_cache_store *store, const plsh_cache_page_layout *layout) {
    return (size_t)store->count * layout->bytes + (size_t)store->capacity * sizeof *store->page +
           2 * (size_t)store->leaves * sizeof(float);
}
