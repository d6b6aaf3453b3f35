/* attention: what `exact` may leave out. */
#ifndef PLSH_ATTENTION_BOUNDS_H
#define PLSH_ATTENTION_BOUNDS_H

#include "attention/forward/tile.h"

/* Begins the walk of a tile: norms of its queries. */
void plsh_bounds_begin(plsh_tile *tile);

/* Which pieces of the keys first .. end - 1 may group g not leave out? Has the pass visit
 * the runs of those that it must score. */
void plsh_bounds_visit(plsh_tile *tile, int g, int64_t first, int64_t end);

/* Group g has the keys first .. first + count - 1 in its sums, which were l and l_low before: do
 * they weigh so little that it may leave them out all the same? */
bool plsh_bounds_spare(plsh_tile *tile, int g, int64_t first, int count, const float *l,
                       const float *l_low);

/* Can group g stop: is all before key `end` (left), or from key `begin` on (right), negligible? */
bool plsh_bounds_stop_left(plsh_tile *tile, int g, int64_t end);
bool plsh_bounds_stop_right(plsh_tile *tile, int g, int64_t begin);

#endif
