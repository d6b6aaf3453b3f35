/* partition: the diagonals of s M~, from the farthest to the main one.
 *
 * A block [e, f) of length L counts on the diagonals t < L, for the rows e .. f - 1 - t. Going from
 * t + 1 to t, row i gains the blocks that end at i + t + 1 and are longer than t:
 *     C_t(i) = C_{t+1}(i) + A_t(i + t + 1),    A_t(f) = number of blocks [f - L, f) with L > t.
 * The blocks of a grid of width b have floor(b) or floor(b) + 1 positions, so the blocks of a draw
 * are added to A when t reaches its width. That takes one increment per block, and otherwise only
 * vector additions. */
#ifndef PLSH_PARTITION_DIAGONALS_H
#define PLSH_PARTITION_DIAGONALS_H

#include "partition/blocks.h"

typedef struct plsh_diagonals {
    const plsh_draws *draws;
    int64_t begin, rows; /* of the matrix: begin .. begin + rows - 1 */
    int64_t last;        /* n - begin; positions below count from begin */
    int64_t waiting;     /* the draws 0 .. waiting - 1 are not in A yet */
    int32_t *ends;       /* A(f) at 2 f; at 2 f + 1 its increment on the next diagonal */
    int32_t *cut;        /* blocks of x positions that n cuts off */
    /* The current diagonal. */
    int64_t t, count;
    int32_t *entry; /* entry[i] = s M~(begin + i, begin + i + t), 0 <= i < count */
} plsh_diagonals;

/* Rows begin <= i < end of the n x n matrix. Starts before the diagonal t = min(longest, n -
 * begin), beyond which all counts are 0 (unless a draw is a single block). `draws` is borrowed;
 * grids only. */
plsh_status plsh_diagonals_open(const plsh_draws *draws, int64_t n, int64_t begin, int64_t end,
                                plsh_diagonals *diagonals, plsh_error *error);

/* The next nearer diagonal; after t = 0 there is none. */
void plsh_diagonals_next(plsh_diagonals *diagonals);
void plsh_diagonals_close(plsh_diagonals *diagonals);

#endif
