/* partition: the blocks of all s draws over a range of positions, in the order of their begins.
 *
 * The norms use it: a walk visits every block once, at a few integer operations each. It goes
 * through the range in chunks of rows; within a chunk the blocks are sorted by begin. Memory: O(s)
 * for the walk, plus the blocks of one chunk, about 8 s unless the caller sets the size of
 * chunks. */
#ifndef PLSH_PARTITION_BLOCKS_H
#define PLSH_PARTITION_BLOCKS_H

#include "plsh/partition.h"

/* The draws of a set, computed once and shared by the walks over it. Grids are sorted by floor(b).
 * Those with floor(b) >= n (`n` of plsh_draws_create) come last, in any order. */
typedef struct plsh_draws {
    plsh_partition set;
    int64_t *width, *offset; /* as in plsh_draw; NULL for cuts and labels, which are not grids */
    int shift;
    int64_t longest; /* no block is longer; INT64_MAX where that is not known beforehand */
    double density;  /* about how many blocks begin per position, in all draws together */
} plsh_draws;

/* The set must have passed plsh_partition_check. Labels must be contiguous: every label of a draw
 * one run; PLSH_STATUS_UNSUPPORTED otherwise. */
plsh_status plsh_draws_create(const plsh_partition *set, int64_t n, int threads, plsh_draws *draws,
                              plsh_error *error);
void plsh_draws_destroy(plsh_draws *draws);

/* The draws first .. first + count - 1 of a grid, borrowed: not to be destroyed. Their density is
 * left as that of all; longest is that of the positions below n. */
plsh_draws plsh_draws_part(const plsh_draws *draws, int64_t first, int64_t count);

/* The begin of the block of draw m that holds position `begin`, relative to `begin`. */
int64_t plsh_draws_opening(const plsh_draws *draws, int64_t m, int64_t begin);

/* As plsh_partition_block, from the table. */
plsh_range plsh_draws_block(const plsh_draws *draws, int64_t sample, int64_t position);

/* The longest of all blocks, cut off at 0 and n: the theorem's b_max. */
int64_t plsh_draws_largest_block(const plsh_draws *draws, int64_t n);

typedef struct plsh_blocks {
    const plsh_draws *draws;
    int64_t begin, end; /* of the range */
    int64_t chunk;      /* rows per step */
    int64_t row;        /* the current chunk: rows row .. row + rows - 1 */
    int64_t rows;       /* 0 when the range is exhausted */
    int64_t *next; /* per draw: the edge its next block begins with, relative to the next chunk;
                    * fixed point for grids */
    /* The blocks that begin at row + i are ends[first[i] .. first[i+1]), where they end relative to
     * row, cut off at `end`. */
    uint32_t *first;
    uint32_t *ends;
    size_t capacity;
} plsh_blocks;

/* Begins a walk over begin <= i < end; the blocks that hold `begin` count as beginning there.
 * chunk: rows per step, 0: chosen from the density. `draws` is borrowed. */
plsh_status plsh_blocks_open(const plsh_draws *draws, int64_t begin, int64_t end, int64_t chunk,
                             plsh_blocks *blocks, plsh_error *error);
plsh_status plsh_blocks_next(plsh_blocks *blocks, plsh_error *error);
void plsh_blocks_close(plsh_blocks *blocks);

/* Are equal labels of the first n positions adjacent in every draw? (Checks that labels never
 * decrease.) */
bool plsh_partition_contiguous(const plsh_partition *set, int64_t n);

#endif
