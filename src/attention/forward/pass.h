/* attention: the forward pass of a tile. */
#ifndef PLSH_ATTENTION_FORWARD_PASS_H
#define PLSH_ATTENTION_FORWARD_PASS_H

#include "attention/forward/tile.h"

/* m, l and o of every group, over the keys that a walk visits. For `exact`, keys whose weight is
 * negligible once scored are left out of the sums (bounds.h). */
extern const plsh_tile_pass plsh_forward_pass;

#endif
