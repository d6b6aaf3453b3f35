/* partition: the rows of M~ as step functions, one after the other.
 *
 * Row i of s M~ falls from s (design golden-shifted: about s) at j = i to 0 on either side. The
 * matrix is symmetric, so only the right side is kept. A row differs from the preceding row only by
 * the blocks that begin in it. They change the histogram of the ends of the current blocks; the
 * running sum of the histogram is the row. O(1) per block and O(reach) per row, O(s + reach) memory
 * for grids. */
#ifndef PLSH_PARTITION_ROWS_H
#define PLSH_PARTITION_ROWS_H

#include "partition/blocks.h"

typedef struct plsh_rows {
    plsh_blocks blocks;
    int64_t at;      /* row within the chunk */
    int64_t open;    /* blocks that hold the row: s, except in design golden-shifted */
    int64_t top;     /* no current block ends later; relative to the chunk */
    int32_t *ending; /* current blocks that end before chunk row i */
    int64_t window;  /* entries of ending */
    /* The current row. */
    int64_t row, reach; /* 0 beyond reach; the last counts within may be 0 too */
    int32_t *count;     /* count[t] = s M~(row, row + t), 0 <= t < reach; 0 beyond */
} plsh_rows;

/* Rows begin <= i < end of the n x n matrix with n = end. `draws` is borrowed. */
plsh_status plsh_rows_open(const plsh_draws *draws, int64_t begin, int64_t end, plsh_rows *rows,
                           plsh_error *error);

/* The next row; *more is false after the last. */
plsh_status plsh_rows_next(plsh_rows *rows, bool *more, plsh_error *error);
void plsh_rows_close(plsh_rows *rows);

#endif
