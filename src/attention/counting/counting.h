/* attention: collision counts of a partition set: for a tile of queries and its keys, in how many
 * draws a pair shares a block.
 *
 * For a fixed row every block that holds it is an interval, so s M~ falls by steps on either side
 * of the diagonal. A block [a, e) that meets a tile of queries is one event for the tile, "at key a
 * the queries of the block gain 1", and without causality a second, "at key e they lose 1". The
 * keys are walked from left to right with one running count per query, which is written for every
 * pair. A tile has about s (1 + rows / sigma) events; those at its own positions, most of them for
 * a small sigma, are added up in a square array.
 *
 *     plsh_counting *counting;                          // once, in the plan
 *     plsh_counting_create(&set, true, &counting, &error);
 *     plsh_counts *counts = workspace;                  // per thread
 *     plsh_counts_begin(counts, counting, tile, ..);    // per tile of queries
 *     plsh_counts_fill(counts, key, keys, ..);          // per tile of keys, left to right */
#ifndef PLSH_ATTENTION_COUNTING_H
#define PLSH_ATTENTION_COUNTING_H

#include "partition/golden.h"

/* The farthest key from a tile of queries that can be counted. */
#define PLSH_COUNTING_REACH (INT64_C(1) << 30)

/* One draw of a grid, or several equal ones. All have the fraction bits of the set. */
typedef struct plsh_counting_draw {
    int64_t width, offset; /* as in plsh_draw; width 0: one block holds everything */
    double inverse;        /* 1 / width */
    float times;           /* how many draws of the set this is */
} plsh_counting_draw;

/* A set compiled for counting. Constant after creation. */
typedef struct plsh_counting {
    plsh_partition set;
    int shift;     /* fraction bits of the grids */
    int64_t draws; /* rows of the table; of other schemes than grids: s. Design golden-shifted: the
                    * most blocks of a position; a tile takes all of its rows */
    plsh_counting_draw *draw; /* grids only */
    plsh_golden_line golden;  /* design golden, merged: row m is a slot, not draw m */
} plsh_counting;

/* merge: equal draws become one row, which is cheaper to count; otherwise row m is draw m. The
 * labels of a user's set have to be contiguous: equal labels are adjacent. */
plsh_status plsh_counting_create(const plsh_partition *set, bool merge, plsh_counting **out,
                                 plsh_error *error);
void plsh_counting_destroy(plsh_counting *counting); /* NULL is fine */

typedef struct plsh_counts plsh_counts;

/* Bytes of the counts of tiles of `rows` queries in groups of `group`, a multiple of 4. */
size_t plsh_counts_size(const plsh_counting *counting, int rows, int group, bool causal);

/* Which tile: queries first .. first + rows - 1, keys 0 .. keys - 1, counted from the key at
 * position `origin`, and the rows first_draw .. first_draw + draws - 1 of the table. */
typedef struct plsh_counts_tile {
    int64_t first, keys, origin;
    int rows, group;
    bool causal;
    int64_t first_draw, draws;
} plsh_counts_tile;

/* Makes the events of a tile; its counts are read by plsh_counts_fill. workspace: of the size
 * above, 64-byte aligned. Returns workspace. */
plsh_counts *plsh_counts_begin(void *workspace, const plsh_counting *counting,
                               const plsh_counts_tile *tile);

/* The keys [begin, end) outside which all counts of group g (queries g * group ..) are 0; of the
 * whole tile for g = -1. begin = end = 0 where there are none. */
plsh_range plsh_counts_range(const plsh_counts *counts, int g);

/* Weights of pairs of a tile's queries and some keys. Most keys have the weights of the key before,
 * so there is a table of rows: the weight of query g * group + r and key j is
 *     w[g * w_stride + row[g * row_stride + j] * group + r],
 * 0 for lanes past the tile's queries. w_stride: room for a row of `group` floats per key. */
typedef struct plsh_counts_weights {
    float *w;
    ptrdiff_t w_stride;
    int32_t *row;
    ptrdiff_t row_stride;
} plsh_counts_weights;

/* Fills in the counts of the keys key .. key + keys - 1, times factor. Each call begins where the
 * one before ended, the first at the begin of the tile's range. */
void plsh_counts_fill(plsh_counts *counts, int64_t key, int keys, float factor,
                      plsh_counts_weights weights);

#endif
