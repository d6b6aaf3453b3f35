/* attention: the keys that `exact` may leave out. */
#ifndef PLSH_ATTENTION_BOUNDS_H
#define PLSH_ATTENTION_BOUNDS_H

#include "attention/forward/tile.h"

/* Begins the walk of a tile: norms of its queries. */
void plsh_bounds_begin(plsh_tile *tile);

/* Decides which of the keys first .. end - 1, all of one step, group g has to score: `runs` of
 * them, in order, at most PLSH_BOUNDS_RUNS. Returns their number. The others are charged to the
 * budget. */
enum { PLSH_BOUNDS_RUNS = PLSH_TILE_KEYS / PLSH_BOUND_KEYS };
int plsh_bounds_select(plsh_tile *tile, int g, int64_t first, int64_t end, plsh_range *runs);

/* plsh_tile_weigh for the keys first .. first + count - 1 of the step. False if their weight is so
 * small that group g leaves them out: then m, l and l_low are as before. */
bool plsh_bounds_weigh(plsh_tile *tile, int g, int64_t first, int count, float *s);

/* Can group g stop: is all before key `end` (left), or from key `begin` on (right), negligible? */
bool plsh_bounds_stop_left(plsh_tile *tile, int g, int64_t end);
bool plsh_bounds_stop_right(plsh_tile *tile, int g, int64_t begin);

/* The same two over points (plane_walk.h). keys: those of step plane.at of the walk, about whose
 * pieces is decided; and can group g stop after this step? */
int plsh_bounds_select_points(plsh_tile *tile, int g, plsh_range keys, plsh_range *runs);
bool plsh_bounds_stop_points(plsh_tile *tile, int g);

#endif
