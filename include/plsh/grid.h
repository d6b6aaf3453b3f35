/* plsh/grid.h - positional LSH in more than one dimension.
 *
 * Tokens at positions x in Z^D and the decay prod_a k_a(|x_a - y_a|), which for ALiBi is exp(-|x -
 * y|_1 / sigma): a draw is a partition on every axis, and two tokens share a block iff they do so
 * on every axis. The blocks are boxes, so their tokens are not adjacent in memory. A draw is
 * therefore given to the sampled methods as labels (PLSH_SCHEME_LABELS).
 *
 *     plsh_partition set = plsh_partition_default(8.0, 20);
 *     plsh_grid grid = plsh_grid_make(&set, 2);
 *     for (int64_t m = 0; m < 20; m++)
 *         plsh_grid_labels(&grid, m, positions, n, labels + m * n, &error); */
#ifndef PLSH_GRID_H
#define PLSH_GRID_H

#include "plsh/partition.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLSH_GRID_AXES = 8 };

typedef struct plsh_grid {
    int dims; /* 1..PLSH_GRID_AXES */
    plsh_partition axis[PLSH_GRID_AXES];
} plsh_grid;

/* The same decay and design on `dims` independent axes; change grid.axis[a].decay for
 * axes that differ. */
PLSH_API plsh_grid plsh_grid_make(const plsh_partition *set, int dims);

/* Labels of n tokens at positions[n][dims] in draw `sample`: equal iff they share a block,
 * numbered 0, 1, .. in the order of first appearance. O(n). */
PLSH_API plsh_status plsh_grid_labels(const plsh_grid *grid, int64_t sample,
                                      const int64_t *positions, int64_t n, int32_t *labels,
                                      plsh_error *error);

#ifdef __cplusplus
}
#endif

#endif
