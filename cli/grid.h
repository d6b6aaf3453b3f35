/* cli: --grid HxW: tokens on a grid, as labels of products of partitions. */
#ifndef PLSH_CLI_GRID_H
#define PLSH_CLI_GRID_H

#include "cli/options.h"

/* What is drawn on every axis: a set per decay. */
typedef struct cli_grid_sets {
    const cli_partitions *partitions;
    const cli_decay_list *decays;
    int64_t samples;
    uint64_t seed;
} cli_grid_sets;

/* Labels of the n tokens of the grid `text`, row by row, for every head and sample. */
int cli_labels_grid(const char *text, int64_t n, const cli_grid_sets *sets, cli_labels *out);

#endif
