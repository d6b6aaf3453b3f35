/* shard: ranges of rows. */
#ifndef PLSH_SHARD_RANGE_H
#define PLSH_SHARD_RANGE_H

#include "plsh/partition.h"

static inline int64_t plsh_range_size(plsh_range range) {
    return range.end > range.begin ? range.end - range.begin : 0;
}

static inline plsh_range plsh_range_common(plsh_range a, plsh_range b) {
    const int64_t begin = a.begin > b.begin ? a.begin : b.begin;
    const int64_t end = a.end < b.end ? a.end : b.end;
    return (plsh_range){begin, end > begin ? end : begin};
}

/* The smallest range that holds both. An empty range adds nothing. */
static inline plsh_range plsh_range_hull(plsh_range a, plsh_range b) {
    if (plsh_range_size(a) == 0) return b;
    if (plsh_range_size(b) == 0) return a;
    return (plsh_range){a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

#endif
