/* attention: the bias of positions that are points. */
#ifndef PLSH_ATTENTION_PLANE_H
#define PLSH_ATTENTION_PLANE_H

#include "attention/forward/tile.h"

/* Packs the points of the tile's queries. */
void plsh_plane_pack(plsh_tile *tile);

/* The points of group g, and of the keys from `first` on. */
plsh_points plsh_plane_points(const plsh_tile *tile, int g, int64_t first);

/* The distance of row `row` of the tile and a key of its sequence; 0 where one has no position. */
double plsh_plane_distance(const plsh_tile *tile, int64_t row, int64_t key);

/* s = the scores of group g and the keys first .. first + count - 1 without a bias, -inf where
 * causality masks them: adds log2 k of their distances, and sets scratch.top. */
void plsh_plane_bias(plsh_tile *tile, int g, int64_t first, int count, float *s);

#endif
