/* attention: a tile of one query, by the kernels for decoding. */
#ifndef PLSH_ATTENTION_ROW_H
#define PLSH_ATTENTION_ROW_H

#include "attention/forward/tile.h"

/* Computes the tile, if it is one query of a forward pass over contiguous keys; otherwise false. */
bool plsh_row_tile(plsh_tile *tile);

#endif
