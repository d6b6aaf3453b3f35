/* cli: cells of points: plsh draw --positions. */
#ifndef PLSH_CLI_CELLS_H
#define PLSH_CLI_CELLS_H

#include "cli/output.h"
#include "cli/positions.h"

#include "plsh/cells.h"

/* The cells of a few draws of a set, in the plane: points in the colour of their cell, and the
 * hyperplanes. labels: [samples][n]. Returns an exit code. */
int cli_cells_paint(const cli_output *output, const plsh_partition *set, plsh_point_set points,
                    const int32_t *labels);

#endif
