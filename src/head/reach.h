/* head: which keys queries can see, from the description of their head alone. */
#ifndef PLSH_HEAD_REACH_H
#define PLSH_HEAD_REACH_H

#include "plsh/head.h"

/* The keys of a sequence of `length` of them that queries at these positions may see, for methods
 * that do not sample; of a head that passed plsh_check_head. Queries may lie beyond the keys. It is
 * inline because tiles and decoding call it in every step. */
static inline plsh_range plsh_reach_visible(const plsh_head *head, bool causal, int64_t length,
                                            plsh_range queries) {
    plsh_range keys = {0, causal && queries.end < length ? queries.end : length}, near = keys;
    if (head->method == PLSH_METHOD_WINDOW) {
        near = (plsh_range){queries.begin - head->window + 1, queries.end + head->window - 1};
    } else if (head->method == PLSH_METHOD_FIXED) {
        near = (plsh_range){queries.begin / head->block * head->block,
                            ((queries.end - 1) / head->block + 1) * head->block};
    }
    if (near.begin > keys.begin) keys.begin = near.begin;
    if (near.end < keys.end) keys.end = near.end;
    return keys;
}

/* The same for every method; there is a query, and queries lie among the keys. */
plsh_range plsh_reach_keys(const plsh_head *head, bool causal, int64_t length, plsh_range queries);

#endif
