/* attention/cache: positions that are points: weights by distance, and bounds on them. */
#ifndef PLSH_ATTENTION_CACHE_POINTS_H
#define PLSH_ATTENTION_CACHE_POINTS_H

#include "attention/cache/pass.h"
#include "attention/cache/store.h"

/* bounded: extends the boxes of a page by the points of row `row`, the next row of the page. */
void plsh_cache_points_cover(plsh_cache_page *page, const plsh_cache_page_layout *layout, int row);

/* s[0..count) = log2 of the weights of the page's keys from .. from + count - 1 for a query with a
 * point. Returns whether any of them is above 0. */
bool plsh_cache_points_weights(const plsh_cache_query *query, const plsh_cache_page *page,
                               const plsh_cache_page_layout *layout, int from, int count, float *s);

/* plsh_cache_exact_first_page for a query with a point. */
int64_t plsh_cache_points_first_page(const plsh_cache_query *query, const plsh_cache_store *store,
                                     int64_t end, double budget);

#endif
