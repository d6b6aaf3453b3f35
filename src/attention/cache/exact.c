/* attention/cache: the range of keys that an `exact` query has to read.
 *
 * If the keys seen so far have the sum l 2^m, all others together may weigh eps l 2^m
 * (head/bound.h). To stop, it bounds the weight of the keys of the pages [0, P) by a sum over a few
 * groups of pages: 2^(|q| longest key of the group) times the sum of k(t). The groups double with
 * the distance, so that one huge key far back (many models have some near position 0) loosens only
 * the bound of its own group, where the decay is small. Single pages are skipped by norm or box. */
#include "attention/cache/exact.h"

#include "attention/cache/points.h"
#include "head/bound.h"

#include <math.h>

void plsh_cache_exact_begin(plsh_cache_query *query, const plsh_cache_page_layout *layout) {
    double square = 0;
    for (int64_t x = 0; x < layout->d; x++) square += (double)query->q[x] * query->q[x];
    query->norm = sqrt(square) * (1 + 1e-6);
    query->bounded = false;
    int64_t page =
        query->to / PLSH_PAGE_KEYS; /* at least the last key; 64 to 127 keys if there are as many */
    query->from = page > 0 ? (page - 1) * PLSH_PAGE_KEYS : 0;
}

/* log2 of the weight that the row may leave out at one place: by stopping (OLDER), or by skipping
 * single pages (PAGES). NaN if the sum is NaN: then nothing is left out. */
static double budget_log2(const plsh_cache_query *query, plsh_bound_share share) {
    const double eps = plsh_bound_of(query->mask_row.mask->head.eps, share, 1);
    return (double)query->m + log2((double)query->l * eps);
}

/* log2 of a bound of the keys of the pages begin..end-1, none longer than `longest`. */
static double group_log2(const plsh_cache_query *query, int64_t begin, int64_t end, float longest) {
    int64_t nearest = query->mask_row.position - (end * PLSH_PAGE_KEYS - 1);
    return query->norm * (double)longest +
           plsh_cache_mask_row_log2_tail(&query->mask_row, nearest, (end - begin) * PLSH_PAGE_KEYS);
}

/* Is the bound on the weight of the pages before `end` within the budget? */
static bool is_rest_small(const plsh_cache_query *query, const plsh_cache_store *store, int64_t end,
                          double budget) {
    if (end == 0 || group_log2(query, 0, end, store->norm[1]) <= budget) return true;
    int64_t newest = query->mask_row.position / PLSH_PAGE_KEYS;
    double sum = 0;
    while (end > 0) {
        int64_t size = end & -end;
        while (size > 1 && size > newest - end) size /= 2;
        float longest = plsh_cache_store_norm(store, end - size, end);
        sum += exp2(group_log2(query, end - size, end, longest) - budget);
        if (!(sum <= 1)) return false;
        end -= size;
    }
    return true;
}

/* A page P <= end for which the pages before P are negligible (is_rest_small), found by
 * bisection. */
int64_t plsh_cache_exact_first_page(const plsh_cache_query *query, const plsh_cache_store *store,
                                    int64_t end, double budget) {
    if (query->point) return plsh_cache_points_first_page(query, store, end, budget);
    if (is_rest_small(query, store, end, budget)) return end;
    int64_t small = 0, large = end;
    while (large - small > 1) {
        int64_t middle = small + (large - small) / 2;
        if (is_rest_small(query, store, middle, budget))
            small = middle;
        else
            large = middle;
    }
    return small;
}

void plsh_cache_exact_continue(plsh_cache_query *query, const plsh_cache_store *store, int round) {
    /* A round goes four times as far as the one before: more sums may allow the next round to stop
     * earlier, and there are few rounds. */
    enum { FIRST_PAGES = 32 };
    int64_t end = query->from / PLSH_PAGE_KEYS;
    double budget = budget_log2(query, PLSH_BOUND_OLDER);
    int64_t first = plsh_cache_exact_first_page(query, store, end, budget);
    int64_t most = (int64_t)FIRST_PAGES << (2 * (round < 20 ? round - 1 : 19));
    if (end - first > most) first = end - most;
    query->to = query->from;
    query->from = first * PLSH_PAGE_KEYS;
    query->bounded = true;
    int64_t pages = query->mask_row.position / PLSH_PAGE_KEYS + 1; /* an equal part for each */
    query->skip_log2 = (float)(budget_log2(query, PLSH_BOUND_PAGES) - log2((double)pages) - 1e-3);
}

bool plsh_cache_exact_may_skip(const plsh_cache_query *query, const plsh_cache_page *page,
                               const plsh_cache_page_layout *layout, const float *s, int count) {
    if (!(page->norm < INFINITY)) return false;
    float top = -INFINITY;
    for (int j = 0; j < count; j++) top = s[j] > top ? s[j] : top;
    float left = query->skip_log2 - top - 6; /* 6 = log2 of the 64 keys of a page */
    return (float)query->norm * page->norm <= left ||
           plsh_cache_page_bound(page, layout, query->q) <= left;
}
