/* cli: the pictures of plsh draw as SVG: masks and their mean, which tends to the bias matrix;
 * cells of points. */
#ifndef PLSH_CLI_PICTURE_H
#define PLSH_CLI_PICTURE_H

#include "cli/output.h"
#include "cli/positions.h"

#include "plsh/cells.h"

/* Positions that a picture shows at most, and rows (heads) of it: finer cells than these are no
 * longer seen. */
enum { CLI_PICTURE_POSITIONS = 256, CLI_PICTURE_HEADS = 8 };

/* One row per set: a few of its masks, their mean M~, and L*, for positions 0..n-1. Returns an
 * exit code. */
int cli_picture_write(const cli_output *output, const plsh_partition *sets, size_t count,
                      int64_t n);

/* The cells of a few draws of a set, in the plane: points in the colour of their cell, and the
 * hyperplanes. labels: [samples][n]. Returns an exit code. */
int cli_cells_paint(const cli_output *output, const plsh_partition *set, plsh_point_set points,
                    const int32_t *labels);

/* The n x n matrices that pictures show, row by row: the mean of the masks first .. first + count -
 * 1 of a set (an exit code), and L*, the decay itself. */
int cli_masks_mean(const plsh_partition *set, int64_t first, int64_t count, int64_t n,
                   double *weights);
void cli_masks_limit(const plsh_decay *decay, int64_t n, double *weights);

#endif
