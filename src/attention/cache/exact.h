/* attention/cache: the range of keys that an `exact` query has to read. */
#ifndef PLSH_ATTENTION_CACHE_EXACT_H
#define PLSH_ATTENTION_CACHE_EXACT_H

#include "attention/cache/pass.h"
#include "attention/cache/store.h"

/* The first page that has to be read: all keys of the pages before it weigh at most 2^budget. Uses
 * mask_row and norm of the query. Pages from `end` on are not considered. */
int64_t plsh_cache_exact_first_page(const plsh_cache_query *query, const plsh_cache_store *store,
                                    int64_t end, double budget);

/* The first round: the newest keys. */
void plsh_cache_exact_begin(plsh_cache_query *query, const plsh_cache_page_layout *layout);

/* The range of round 1, 2, ... : keys that the weights so far cannot rule out, newest first. */
void plsh_cache_exact_continue(plsh_cache_query *query, const plsh_cache_store *store, int round);

/* Can this page, whose keys have the log2 weights s, be left out? */
bool plsh_cache_exact_may_skip(const plsh_cache_query *query, const plsh_cache_page *page,
                               const plsh_cache_page_layout *layout, const float *s, int count);

#endif
