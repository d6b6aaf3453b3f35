/* attention/cache: pages. */
#include "attention/cache/page.h"

#include "attention/cache/points.h"
#include "base/dtype.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

static size_t align(size_t bytes) {
    return (bytes + PLSH_ALIGNMENT - 1) / PLSH_ALIGNMENT * PLSH_ALIGNMENT;
}

void plsh_cache_page_layout_make(plsh_cache_page_layout *layout, bool bounded) {
    const size_t point = (size_t)(layout->sets * layout->dim) * sizeof(float);
    layout->d = plsh_decode_columns(layout->head_dim);
    layout->dv = plsh_decode_columns(layout->value_dim);
    layout->element = plsh_dtype_size(layout->dtype);
    layout->box = align(sizeof(plsh_cache_page));
    layout->point_box = layout->box + (bounded ? align(2 * (size_t)layout->d * sizeof(float)) : 0);
    layout->points = layout->point_box + (bounded ? align(2 * point) : 0);
    layout->keys = layout->points + align(PLSH_PAGE_KEYS * point);
    layout->values = layout->keys + PLSH_PAGE_KEYS * (size_t)layout->d * layout->element;
    layout->bytes = layout->values + PLSH_PAGE_KEYS * (size_t)layout->dv * layout->element;
}

plsh_status plsh_cache_page_make(plsh_cache_page **page, const plsh_cache_page_layout *layout,
                                 plsh_error *error) {
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, 1, layout->bytes, "a page of keys and values", error);
    *page = memory;
    if (!status) atomic_init(&(*page)->references, 1);
    return status;
}

void plsh_cache_page_share(plsh_cache_page *page) {
    atomic_fetch_add_explicit(&page->references, 1, memory_order_relaxed);
}

void plsh_cache_page_release(plsh_cache_page *page) {
    if (atomic_fetch_sub_explicit(&page->references, 1, memory_order_acq_rel) == 1)
        plsh_release(page);
}

bool plsh_cache_page_is_shared(const plsh_cache_page *page) {
    return atomic_load_explicit(&page->references, memory_order_acquire) != 1;
}

void plsh_cache_page_copy(plsh_cache_page *to, const plsh_cache_page *from,
                          const plsh_cache_page_layout *layout) {
    to->filled = from->filled;
    to->norm = from->norm;
    memcpy(plsh_cache_page_at(to, layout->box), plsh_cache_page_at(from, layout->box),
           layout->bytes - layout->box);
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

/* A value that is not finite makes the bounds infinite, so that they exclude no key. */
void plsh_cache_page_cover(plsh_cache_page *page, const plsh_cache_page_layout *layout, int from,
                           int to) {
    if (page->filled != from) page->filled = 0, page->norm = 0;
    float *low = (float *)plsh_cache_page_at(page, layout->box), *high = low + layout->d;
    for (int r = page->filled; r < to; r++) {
        const char *row = plsh_cache_page_key(page, layout, r);
        double square = 0;
        for (int64_t x = 0; x < layout->head_dim; x++) {
            float y = plsh_dtype_load(layout->dtype, row, x);
            square += (double)y * y;
            if (r == 0 || !(low[x] <= y)) low[x] = y;
            if (r == 0 || !(high[x] >= y)) high[x] = y;
        }
        if (layout->dim > 0) plsh_cache_points_cover(page, layout, r);
        float norm = (float)(sqrt(square) * (1 + 0x1p-22));
        if (!(norm <= page->norm)) page->norm = norm < INFINITY ? norm : INFINITY;
    }
    page->filled = to;
}

float plsh_cache_page_bound(const plsh_cache_page *page, const plsh_cache_page_layout *layout,
                            const float *q) {
    const float *low = (const float *)plsh_cache_page_at(page, layout->box),
                *high = low + layout->d;
    float sum[16] = {0}, size[16] = {0}; /* d is a multiple of 16; separate sums vectorise */
    for (int64_t x = 0; x < layout->d; x += 16) {
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
