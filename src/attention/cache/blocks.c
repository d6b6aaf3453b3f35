/* attention/cache: the blocks of all draws of a partition that hold one position. */
#include "attention/cache/blocks.h"

#include "base/memory.h"
#include "partition/shifted.h"

#include <string.h>

/* Shell's sort by begin; the gaps are Ciura's. */
static void sort_blocks(plsh_cache_block *block, int64_t count) {
    static const int64_t gaps[] = {4193, 1750, 701, 301, 132, 57, 23, 10, 4, 1};
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++) {
        for (int64_t i = gaps[g]; i < count; i++) {
            plsh_cache_block moved = block[i];
            int64_t at = i;
            for (; at >= gaps[g] && block[at - gaps[g]].begin > moved.begin; at -= gaps[g])
                block[at] = block[at - gaps[g]];
            block[at] = moved;
        }
    }
}

int64_t plsh_cache_blocks_most(const plsh_partition *set) {
    return plsh_partition_is_shifted(set) ? plsh_shifted_most(set->samples) : set->samples;
}

/* Design golden-shifted. */
typedef struct found_blocks {
    plsh_cache_block *block;
    int64_t count;
} found_blocks;

static void take_block(void *context, plsh_range block) {
    found_blocks *found = context;
    const int64_t begin = block.begin > 0 ? block.begin : 0;
    found->block[found->count] = (plsh_cache_block){begin, block.end, found->count};
    found->count++;
}

static void find_shifted(plsh_cache_blocks *blocks, const plsh_partition *set, int64_t position) {
    found_blocks found = {blocks->block, 0};
    const int64_t most = plsh_cache_blocks_most(set);
    plsh_shifted_visit(set, (plsh_range){position, position + 1}, take_block, &found);
    for (int64_t i = found.count; i < most; i++)
        blocks->block[i] = (plsh_cache_block){INT64_MAX, INT64_MAX, i};
    sort_blocks(blocks->block, most);
}

static void find_block(const plsh_partition *set, int64_t position, plsh_cache_block *block) {
    plsh_range found;
    plsh_partition_block(set, block->sample, position, &found);
    block->begin = found.begin > 0 ? found.begin : 0;
    block->end = found.end;
}

/* When moving forwards, new blocks begin later than all blocks that are still open. So the open
 * ones keep their order at the front. */
static void advance(plsh_cache_blocks *blocks, const plsh_partition *set, int64_t position) {
    int64_t samples = set->samples, open = 0, ended = 0;
    plsh_cache_block *block = blocks->block, *scratch = block + samples;
    for (int64_t i = 0; i < samples; i++) {
        if (block[i].end > position)
            block[open++] = block[i];
        else
            scratch[ended++] = block[i];
    }
    for (int64_t i = 0; i < ended; i++) {
        find_block(set, position, &scratch[i]);
        block[open + i] = scratch[i];
    }
    sort_blocks(block + open, ended);
}

void plsh_cache_blocks_move(plsh_cache_blocks *blocks, const plsh_partition *set,
                            int64_t position) {
    if (position == blocks->position) return;
    bool back = position < blocks->position;
    blocks->position = position;
    if (plsh_partition_is_shifted(set)) {
        find_shifted(blocks, set, position);
        return;
    }
    if (!back && position < blocks->next_end) return;
    int64_t samples = set->samples;
    if (back) {
        for (int64_t i = 0; i < samples; i++) find_block(set, position, &blocks->block[i]);
        sort_blocks(blocks->block, samples);
    } else {
        advance(blocks, set, position);
    }
    blocks->next_end = INT64_MAX;
    for (int64_t i = 0; i < samples; i++)
        if (blocks->block[i].end < blocks->next_end) blocks->next_end = blocks->block[i].end;
}

/* At first every block counts as one that ended before position 0, so the first move looks up all
 * blocks. The second half of the memory is scratch of `advance`. */
plsh_status plsh_cache_blocks_make(plsh_cache_blocks *blocks, const plsh_partition *set,
                                   plsh_error *error) {
    *blocks = (plsh_cache_blocks){.position = -1};
    const int64_t most = plsh_cache_blocks_most(set);
    void *memory;
    plsh_status status = plsh_allocate(&memory, 2 * (size_t)most, sizeof(plsh_cache_block),
                                       "blocks of draws", error);
    if (status) return status;
    blocks->block = memory;
    for (int64_t i = 0; i < most; i++) blocks->block[i].sample = i;
    return PLSH_STATUS_OK;
}

void plsh_cache_blocks_copy(plsh_cache_blocks *to, const plsh_cache_blocks *from,
                            const plsh_partition *set) {
    memcpy(to->block, from->block, (size_t)plsh_cache_blocks_most(set) * sizeof(plsh_cache_block));
    to->position = from->position;
    to->next_end = from->next_end;
}

void plsh_cache_blocks_clear(plsh_cache_blocks *blocks) {
    plsh_release(blocks->block);
    *blocks = (plsh_cache_blocks){0};
}

size_t plsh_cache_blocks_bytes(const plsh_cache_blocks *blocks, const plsh_partition *set) {
    return blocks->block ? 2 * (size_t)plsh_cache_blocks_most(set) * sizeof *blocks->block : 0;
}
