/* attention: the sampled methods: plsh, masks, mean. */
#ifndef PLSH_ATTENTION_SAMPLED_H
#define PLSH_ATTENTION_SAMPLED_H

#include "attention/counting/counting.h"
#include "attention/counting/gathering.h"
#include "attention/forward/tile.h"

/* A thread's buffers for these methods; tile->sampled points to them. */
typedef struct plsh_sampled_buffers {
    void *counts;                  /* events of the tile */
    float *w;                      /* [groups][PLSH_TILE_KEYS][group], rows of weights */
    int32_t *w_row;                /* [groups][PLSH_TILE_KEYS], the row of w that a key uses */
    double *o_sum, *m_sum, *l_sum; /* like o, m, l: sums over the passes of masks and mean */
    double *l_deviation; /* sums of l squared; in the end the standard deviation of l divided by its
                            mean */
    int32_t *key_gathered;          /* [PLSH_TILE_KEYS], the numbers of the gathered keys */
    float *k_gathered, *v_gathered; /* [PLSH_TILE_KEYS][d or dv] */
} plsh_sampled_buffers;

void plsh_sampled_layout(plsh_sampled_buffers *buffers, const plsh_plan *plan, plsh_arena *arena);

/* The counts of the tile's queries under the rows first_draw .. first_draw + draws - 1 of its
 * head's table. */
plsh_counts *plsh_sampled_count(plsh_tile *tile, int64_t first_draw, int64_t draws);

/* The tile under the rows first_draw .. first_draw + draws - 1 of the table, fused: the weights are
 * the counts times factor. Between pack and finish of its pass. */
void plsh_sampled_visit_draws(plsh_tile *tile, int64_t first_draw, int64_t draws, float factor);

/* Which entries of the head's gathering belong to the query at a position of the tile, and to the
 * first key of its sequence. */
typedef struct plsh_sampled_entries {
    int64_t query, key;
} plsh_sampled_entries;

plsh_sampled_entries plsh_sampled_entries_of(const plsh_tile *tile, int64_t position);

/* The same under one draw whose blocks are not contiguous: weights are 0 or 1, and steps consist of
 * gathered keys. */
void plsh_sampled_visit_gathered(plsh_tile *tile, int64_t draw);

/* Computes a whole tile of plsh, masks or mean. */
void plsh_sampled_tile(plsh_tile *tile);

#endif
