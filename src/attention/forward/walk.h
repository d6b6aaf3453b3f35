/* attention: the walk over the keys of the methods that do not sample. */
#ifndef PLSH_ATTENTION_WALK_H
#define PLSH_ATTENTION_WALK_H

#include "attention/forward/tile.h"

/* A tile of dense, exact, window, fixed or none, from begin to finish. */
void plsh_walk_tile(plsh_tile *tile);

#endif
