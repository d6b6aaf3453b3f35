/* attention: the sampled methods: plsh, masks, mean. */
#ifndef PLSH_ATTENTION_SAMPLED_H
#define PLSH_ATTENTION_SAMPLED_H

#include "attention/forward/tile.h"
#include "attention/sampled/counting.h"
#include "attention/sampled/gathering.h"

/* What a sampled head needs besides: its draws, compiled, and how many groups a tile has. The
 * head's method, the plan's shape, kernel and longest sequence are set. */
plsh_status plsh_sampled_prepare(const plsh_plan *plan, plsh_head_plan *head, plsh_error *error);
void plsh_sampled_release(plsh_head_plan *head);

/* Lays out the tile's part for sampled heads behind `used` bytes, and returns where it ends. */
size_t plsh_sampled_layout(const plsh_plan *plan, plsh_tile *tile, char *memory, size_t used);

/* The counts of the tile's queries under the rows first_draw .. first_draw + draws - 1 of its
 * head's table. */
plsh_counts *plsh_tile_count(plsh_tile *tile, int64_t first_draw, int64_t draws);

/* The tile under the rows first_draw .. first_draw + draws - 1 of the table, fused: the weights are
 * the counts times factor. Between pack and finish of its pass. */
void plsh_tile_visit_draws(plsh_tile *tile, int64_t first_draw, int64_t draws, float factor);

/* The same under one draw whose blocks are not contiguous, weights 0 and 1. The steps are of
 * gathered keys, tile->key_gathered. */
void plsh_tile_visit_gathered(plsh_tile *tile, int64_t draw);

/* A tile of plsh, masks or mean, from begin to finish. */
void plsh_tile_sample(plsh_tile *tile);

/* One group against keys first .. first + count - 1 of the step at hand, under the weights of
 * plsh_counts_fill: those of key j are w[row[j] * group + r]. */
void plsh_tile_visit_weighted(plsh_tile *tile, int g, int64_t first, int count, const float *w,
                              const int32_t *row);

#endif
