/* shard: ranges of rows. */
#ifndef PLSH_SHARD_RANGE_H
#define PLSH_SHARD_RANGE_H

#include "plsh/partition.h"

static inline int64_t plsh_block_size(plsh_block block) {
    return block.end > block.begin ? block.end - block.begin : 0;
}

static inline plsh_block plsh_block_common(plsh_block a, plsh_block b) {
    const int64_t begin = a.begin > b.begin ? a.begin : b.begin;
    const int64_t end = a.end < b.end ? a.end : b.end;
    return (plsh_block){begin, end > begin ? end : begin};
}

/* The least range that holds both; an empty one holds nothing. */
static inline plsh_block plsh_block_hull(plsh_block a, plsh_block b) {
    if (plsh_block_size(a) == 0) return b;
    if (plsh_block_size(b) == 0) return a;
    return (plsh_block){a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

#endif
