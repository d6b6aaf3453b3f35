/* attention/cache: positions that are points: weights by distance, and bounds on them. */
#include "attention/cache/points.h"

#include <math.h>

#include "base/numbers.h"
#include "decay/tail.h"

/* The boxes of a page: [sets][least .., most ..]. */
static float *boxes_of(const plsh_cache_page *page, const plsh_cache_page_layout *layout) {
    return (float *)(void *)plsh_cache_page_at(page, layout->point_box);
}

/* The box of a key without a position is all of space: that key is near everything. */
void plsh_cache_points_cover(plsh_cache_page *page, const plsh_cache_page_layout *layout, int row) {
    const int dim = layout->dim;
    const float *point = plsh_cache_page_point(page, layout, row);
    float *box = boxes_of(page, layout);
    for (int64_t set = 0; set < layout->sets; set++, point += dim, box += 2 * dim) {
        bool none = false;
        for (int i = 0; i < dim; i++) none |= isnan(point[i]);
        for (int i = 0; i < dim; i++) {
            const float low = none ? -INFINITY : point[i], high = none ? INFINITY : point[i];
            if (row == 0 || low < box[i]) box[i] = low;
            if (row == 0 || high > box[dim + i]) box[dim + i] = high;
        }
    }
}

/* |x - y|; 0 where one has no position. */
static double distance(const float *x, const float *y, int dim) {
    double square = 0;
    for (int i = 0; i < dim; i++) {
        const double apart = (double)x[i] - (double)y[i];
        square += apart * apart;
    }
    return isnan(square) ? 0 : sqrt(square);
}

bool plsh_cache_points_weights(const plsh_cache_query *query, const plsh_cache_page *page,
                               const plsh_cache_page_layout *layout, int from, int count,
                               float *s) {
    const plsh_cache_mask *mask = query->mask_row.mask;
    const plsh_decay *decay = &mask->head.partition.decay;
    const bool linear = plsh_decay_is_linear(decay);
    const double radius =
        mask->head.method == PLSH_METHOD_WINDOW ? mask->head.radius : (double)INFINITY;
    const float *y = plsh_cache_page_point(page, layout, from) + query->set * layout->dim;
    bool any = false;
    for (int j = 0; j < count; j++, y += layout->sets * layout->dim) {
        const double t = distance(query->point, y, layout->dim);
        s[j] = (double)(float)t >= radius ? -INFINITY
               : linear                   ? (float)(-mask->slope * t)
                                          : (float)(plsh_decay_log_at(decay, t) * PLSH_LOG2_E);
        any |= s[j] > -INFINITY;
    }
    return any;
}

/* The least distance of a point to those of a box; 0 where it has no position. */
static double distance_to_box(const float *x, const float *box, int dim) {
    double square = 0;
    for (int i = 0; i < dim; i++) {
        const double before = (double)box[i] - (double)x[i],
                     behind = (double)x[i] - (double)box[dim + i];
        const double gap = before > behind ? before : behind;
        if (isnan(x[i])) return 0;
        if (gap > 0) square += gap * gap;
    }
    return sqrt(square) * (1 - 0x1p-40);
}

/* log2 of the largest k at distances of at least t, rounded up. */
static double log2_most(const plsh_cache_mask *mask, double t) {
    const plsh_decay *decay = &mask->head.partition.decay;
    if (plsh_decay_is_linear(decay)) return -mask->slope * t;
    if (!plsh_decay_is_decreasing(decay)) return 0; /* k is at most 1 */
    const double log = plsh_decay_log_at(decay, t) * PLSH_LOG2_E;
    return log + 1e-6 + 1e-6 * fabs(log);
}

/* From the oldest page on, adds up bounds of whole pages, norm, distance and number of keys, while
 * the sum is within the budget. New points may be near old ones, so no tree can rule out many pages
 * at once. Checking a page costs about a hundredth of reading it. */
int64_t plsh_cache_points_first_page(const plsh_cache_query *query, const plsh_cache_store *store,
                                     int64_t end, double budget) {
    const plsh_cache_page_layout *layout = query->layout;
    double sum = 0;
    for (int64_t number = store->first; number < end; number++) {
        const plsh_cache_page *page = plsh_cache_store_page(store, number);
        const float *box = boxes_of(page, layout) + query->set * 2 * layout->dim;
        const double t = distance_to_box(query->point, box, layout->dim);
        sum += exp2(query->norm * (double)page->norm + log2_most(query->mask_row.mask, t) +
                    log2(PLSH_PAGE_KEYS) - budget);
        if (!(sum <= 1)) return number;
    }
    return end;
}
