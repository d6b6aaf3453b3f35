/* attention: the walk of `exact` and `window` over points. */
#ifndef PLSH_ATTENTION_PLANE_WALK_H
#define PLSH_ATTENTION_PLANE_WALK_H

#include "attention/forward/tile.h"

/* Runs the tile's pass over its keys, from near to far. */
void plsh_plane_walk(plsh_tile *tile);

#endif
