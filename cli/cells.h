/* cli: cells of points: plsh draw --positions. */
#ifndef PLSH_CLI_CELLS_H
#define PLSH_CLI_CELLS_H

#include "cli/output.h"

#include "plsh/cells.h"
#include "plsh/io.h"

/* Positions as they were read: points of `sets` heads. */
typedef struct cli_points {
    plsh_npy array;
    int64_t sets, n;
    int dim;
} cli_points;

/* Reads [n], [n, D] or [heads, n, D], D = 1 to 3. Returns an exit code. */
int cli_points_read(const char *path, cli_points *out);
void cli_points_free(cli_points *points);

/* The points of a head: those of one set serve all. */
plsh_point_set cli_points_of(const cli_points *points, size_t head);

/* The cells of a few draws of a set, in the plane: points in the colour of their cell, and the
 * hyperplanes. labels: [samples][n]. Returns an exit code. */
int cli_cells_paint(const cli_output *output, const plsh_partition *set, plsh_point_set points,
                    const int32_t *labels);

#endif
