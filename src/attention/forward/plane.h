/* attention: the bias of positions that are points, and distances to points and boxes. */
#ifndef PLSH_ATTENTION_PLANE_H
#define PLSH_ATTENTION_PLANE_H

#include "attention/forward/tile.h"

/* Packs the points of the tile's queries. */
void plsh_plane_pack(plsh_tile *tile);

/* The points of group g, and of the keys from `first` on. */
plsh_points plsh_plane_points(const plsh_tile *tile, int g, int64_t first);

/* The distance of row `row` of the tile and a key of its sequence; 0 where one has no position. */
double plsh_plane_distance(const plsh_tile *tile, int64_t row, int64_t key);

/* Are there pairs that are masked by their points, or by the rows of their places, and not by the
 * places themselves? */
bool plsh_plane_masks(const plsh_tile *tile);

/* The scores of such pairs of group g and the keys first .. first + count - 1 become -inf: keys
 * after a query's row if causal, and beyond the radius of `window`. Returns the pairs that are
 * left. */
int64_t plsh_plane_mask(plsh_tile *tile, int g, int64_t first, int count, float *s);

/* The opposite, for certificates of `window`: the scores of pairs inside the radius become -inf, so
 * that only those remain that the window leaves out. */
void plsh_plane_mask_near(plsh_tile *tile, int g, int64_t first, int count, float *s);

/* s = the scores of group g and the keys first .. first + count - 1 without a bias, -inf where they
 * are masked: adds log2 k of their distances, and sets scratch.top. */
void plsh_plane_bias(plsh_tile *tile, int g, int64_t first, int count, float *s);

/* The row that query r has among the keys: it sees no later ones if causal. */
static inline int64_t plsh_plane_position(const plsh_tile *tile, int r) {
    return tile->at.position - tile->at.row + plsh_tile_row(tile, r);
}

/* log2 of the largest k at distances of at least t, rounded up. */
float plsh_plane_log_most(const plsh_head_plan *head, float t);

/* t[r] = the least distance of row r of group g to the points of piece `piece` of the sequence,
 * rounded down; returns the least of them. */
float plsh_plane_to_piece(const plsh_tile *tile, int g, int64_t piece, float *t);

#endif
