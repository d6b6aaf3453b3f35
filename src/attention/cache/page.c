/* attention: the pages of a decoding cache. */
#include "attention/cache/cache.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static size_t align(size_t bytes) {
    return (bytes + PLSH_ALIGNMENT - 1) / PLSH_ALIGNMENT * PLSH_ALIGNMENT;
}

plsh_page_form plsh_page_form_make(const plsh_cache_config *config, bool bounded,
                                   const plsh_decode_kernels *kernels) {
    plsh_page_form form = {.dtype = config->dtype,
                           .head_dim = config->head_dim,
                           .value_dim = config->value_dim,
                           .kernels = kernels};
    form.d = plsh_decode_columns(form.head_dim);
    form.dv = plsh_decode_columns(form.value_dim);
    form.element = plsh_dtype_size(config->dtype);
    form.box = align(sizeof(plsh_page));
    form.keys = form.box + (bounded ? align(2 * (size_t)form.d * sizeof(float)) : 0);
    form.values = form.keys + PLSH_PAGE * (size_t)form.d * form.element;
    form.bytes = form.values + PLSH_PAGE * (size_t)form.dv * form.element;
    return form;
}

static void page_release(plsh_page *page) {
    if (atomic_fetch_sub_explicit(&page->references, 1, memory_order_acq_rel) == 1)
        plsh_release(page);
}

static plsh_status page_make(plsh_page **page, const plsh_page_form *form, plsh_error *error) {
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, form->bytes, "a page of keys and values", error);
    *page = memory;
    if (!status) atomic_init(&(*page)->references, 1);
    return status;
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

/* Takes the rows from `filled` up to `rows` into norm and box. Anything that is not finite makes
 * the bounds infinite: they rule out nothing then. */
static void page_bound_rows(plsh_page *page, const plsh_page_form *form, int rows) {
    float *low = (float *)plsh_page_at(page, form->box), *high = low + form->d;
    for (int r = page->filled; r < rows; r++) {
        const char *row = plsh_page_at(page, form->keys) + (size_t)r * form->d * form->element;
        double square = 0;
        for (int64_t x = 0; x < form->head_dim; x++) {
            float y = plsh_dtype_load(form->dtype, row, x);
            square += (double)y * y;
            if (r == 0 || !(low[x] <= y)) low[x] = y;
            if (r == 0 || !(high[x] >= y)) high[x] = y;
        }
        float norm = (float)(sqrt(square) * (1 + 0x1p-22));
        if (!(norm <= page->norm)) page->norm = norm < INFINITY ? norm : INFINITY;
    }
    page->filled = rows;
}

float plsh_page_bound(const plsh_page *page, const plsh_page_form *form, const float *q) {
    const float *low = (const float *)plsh_page_at(page, form->box), *high = low + form->d;
    float sum[16] = {0}, size[16] = {0}; /* d is a multiple of 16; separate sums vectorise */
    for (int64_t x = 0; x < form->d; x += 16) {
        for (int i = 0; i < 16; i++) {
            float a = q[x + i] * low[x + i], b = q[x + i] * high[x + i];
            float top = a > b ? a : b;
            sum[i] += top;
            size[i] += fabsf(top);
        }
    }
    for (int i = 1; i < 16; i++) sum[0] += sum[i], size[0] += size[i];
    return sum[0] + size[0] * 0x1p-16f; /* rounding of 32 + 16 additions, and of the score's own */
}

static void tree_set(plsh_store *store, int64_t number, float norm) {
    int64_t node = store->leaves + number;
    store->norm[node] = norm;
    while (node > 1) {
        node /= 2;
        float a = store->norm[2 * node], b = store->norm[2 * node + 1];
        store->norm[node] = a > b ? a : b;
    }
}

float plsh_store_norm(const plsh_store *store, int64_t begin, int64_t end) {
    return store->norm[(store->leaves + begin) / (end - begin)];
}

/* Doubles the leaves until `pages` fit: the old tree becomes the left half of the new one. */
static plsh_status tree_reserve(plsh_store *store, int64_t pages, plsh_error *error) {
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

/* ---- Stores ---------------------------------------------------------------------------------- */

static plsh_status table_reserve(plsh_store *store, int64_t pages, plsh_error *error) {
    if (pages <= store->capacity) return PLSH_STATUS_OK;
    int64_t capacity = store->capacity ? store->capacity : 8;
    while (capacity < pages) capacity *= 2;
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, (size_t)capacity, sizeof(plsh_page *), "the table of pages", error);
    if (status) return status;
    if (store->count) memcpy(memory, store->page, (size_t)store->count * sizeof(plsh_page *));
    plsh_release(store->page);
    store->page = memory;
    store->capacity = capacity;
    return PLSH_STATUS_OK;
}

/* The last page for this store alone, if it is to be written to and others hold it too. */
static plsh_status own_last(plsh_store *store, const plsh_page_form *form, plsh_error *error) {
    plsh_page **last = &store->page[store->count - 1], *copy;
    if (atomic_load_explicit(&(*last)->references, memory_order_acquire) == 1)
        return PLSH_STATUS_OK;
    plsh_status status = page_make(&copy, form, error);
    if (status) return status;
    copy->filled = (*last)->filled;
    copy->norm = (*last)->norm;
    memcpy(plsh_page_at(copy, form->box), plsh_page_at(*last, form->box), form->bytes - form->box);
    page_release(*last);
    *last = copy;
    return PLSH_STATUS_OK;
}

plsh_status plsh_store_reserve(plsh_store *store, const plsh_page_form *form, int64_t used,
                               int64_t length, plsh_error *error) {
    int64_t pages = (length + PLSH_PAGE - 1) / PLSH_PAGE, before = store->count;
    plsh_status status = table_reserve(store, pages - store->first, error);
    if (!status && plsh_page_is_bounded(form)) status = tree_reserve(store, pages, error);
    if (!status && used % PLSH_PAGE != 0 && length > used) status = own_last(store, form, error);
    while (!status && store->first + store->count < pages) {
        status = page_make(&store->page[store->count], form, error);
        if (!status) store->count++;
    }
    if (status)
        while (store->count > before) page_release(store->page[--store->count]);
    return status;
}

/* One row into a page, rounded where the storage is narrower. The padding stays zero. */
static void put_row(const plsh_page_form *form, char *to, const void *from, int64_t at,
                    plsh_dtype dtype, int64_t dim) {
    if (dtype == form->dtype) {
        memcpy(to, (const char *)from + (size_t)at * form->element, (size_t)dim * form->element);
    } else if (form->dtype == PLSH_DTYPE_FLOAT16) {
        form->kernels->narrow_half((uint16_t *)to, (const float *)from + at, dim);
    } else {
        const float *row = (const float *)from + at;
        for (int64_t x = 0; x < dim; x++) ((uint16_t *)to)[x] = plsh_float_to_bfloat(row[x]);
    }
}

void plsh_store_write(plsh_store *store, const plsh_page_form *form, int64_t position,
                      int64_t count, const plsh_rows *rows) {
    for (int64_t i = 0; i < count;) {
        int64_t number = (position + i) / PLSH_PAGE;
        int from = (int)((position + i) % PLSH_PAGE), to = from;
        plsh_page *page = plsh_store_page(store, number);
        for (; to < PLSH_PAGE && i < count; to++, i++) {
            put_row(form, plsh_page_at(page, form->keys) + (size_t)to * form->d * form->element,
                    rows->k, i * rows->k_stride, rows->dtype, form->head_dim);
            put_row(form, plsh_page_at(page, form->values) + (size_t)to * form->dv * form->element,
                    rows->v, i * rows->v_stride, rows->dtype, form->value_dim);
        }
        if (!plsh_page_is_bounded(form)) continue;
        if (page->filled != from) page->filled = 0, page->norm = 0; /* was truncated */
        page_bound_rows(page, form, to);
        tree_set(store, number, page->norm);
    }
}

void plsh_store_bound(plsh_store *store, const plsh_page_form *form, int64_t length) {
    if (!plsh_page_is_bounded(form)) return;
    for (int64_t number = store->first; number * PLSH_PAGE < length; number++) {
        plsh_page *page = plsh_store_page(store, number);
        int64_t rows = length - number * PLSH_PAGE;
        page->filled = 0, page->norm = 0;
        page_bound_rows(page, form, rows < PLSH_PAGE ? (int)rows : PLSH_PAGE);
        tree_set(store, number, page->norm);
    }
}

void plsh_store_drop(plsh_store *store, int64_t first) {
    int64_t drop = first / PLSH_PAGE - store->first;
    if (drop <= 0) return;
    if (drop > store->count) drop = store->count;
    for (int64_t i = 0; i < drop; i++) page_release(store->page[i]);
    store->count -= drop;
    store->first += drop;
    memmove(store->page, store->page + drop, (size_t)store->count * sizeof(plsh_page *));
}

void plsh_store_truncate(plsh_store *store, int64_t length) {
    int64_t pages = (length + PLSH_PAGE - 1) / PLSH_PAGE;
    if (pages < store->first) pages = store->first;
    while (store->first + store->count > pages) {
        page_release(store->page[--store->count]);
        if (store->norm) tree_set(store, store->first + store->count, 0);
    }
}

plsh_status plsh_store_fork(const plsh_store *store, plsh_store *fork, plsh_error *error) {
    *fork = (plsh_store){.first = store->first};
    plsh_status status = table_reserve(fork, store->count, error);
    if (!status && store->norm) status = tree_reserve(fork, store->leaves, error);
    if (status) {
        plsh_store_clear(fork);
        return status;
    }
    if (store->norm) memcpy(fork->norm, store->norm, 2 * (size_t)store->leaves * sizeof(float));
    for (int64_t i = 0; i < store->count; i++) {
        atomic_fetch_add_explicit(&store->page[i]->references, 1, memory_order_relaxed);
        fork->page[i] = store->page[i];
    }
    fork->count = store->count;
    return PLSH_STATUS_OK;
}

void plsh_store_clear(plsh_store *store) {
    for (int64_t i = 0; i < store->count; i++) page_release(store->page[i]);
    plsh_release(store->page);
    plsh_release(store->norm);
    *store = (plsh_store){0};
}

size_t plsh_store_bytes(const plsh_store *store, const plsh_page_form *form) {
    return (size_t)store->count * form->bytes + (size_t)store->capacity * sizeof(plsh_page *) +
           2 * (size_t)store->leaves * sizeof(float);
}
