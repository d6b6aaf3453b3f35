/* attention/cache: the blocks of all draws of a partition that hold one position, following it. */
#ifndef PLSH_ATTENTION_CACHE_BLOCKS_H
#define PLSH_ATTENTION_CACHE_BLOCKS_H

#include "plsh/partition.h"

typedef struct plsh_cache_block {
    int64_t begin, end, sample;
} plsh_cache_block;

/* How many blocks there may be: one per draw, or for design golden-shifted the most that hold a
 * position. */
int64_t plsh_cache_blocks_most(const plsh_partition *set);

/* The blocks sorted by their begins; fillers up to `most` begin at INT64_MAX. A move costs O(1) if
 * no block ends, otherwise O(s) and a lookup in the partition for each block that ended. */
typedef struct plsh_cache_blocks {
    int64_t position;
    int64_t next_end;        /* the first position at which some block has ended */
    plsh_cache_block *block; /* [most], and as much scratch */
} plsh_cache_blocks;

plsh_status plsh_cache_blocks_make(plsh_cache_blocks *blocks, const plsh_partition *set,
                                   plsh_error *error);
void plsh_cache_blocks_copy(plsh_cache_blocks *to, const plsh_cache_blocks *from,
                            const plsh_partition *set);
void plsh_cache_blocks_clear(plsh_cache_blocks *blocks);
size_t plsh_cache_blocks_bytes(const plsh_cache_blocks *blocks, const plsh_partition *set);

/* Moves to a position, forwards or back. */
void plsh_cache_blocks_move(plsh_cache_blocks *blocks, const plsh_partition *set, int64_t position);

#endif
