/* attention: sets up a tile of queries. */
#ifndef PLSH_ATTENTION_SELECT_H
#define PLSH_ATTENTION_SELECT_H

#include "attention/forward/tile.h"

/* Makes it tile number `index` of sequence x of head h, with q, k, v and the summary of its kv head
 * (those of all kv heads are at summaries). */
void plsh_tile_select(plsh_tile *tile, const plsh_forward *arrays, char *summaries, int64_t h,
                      int64_t x, int64_t index);

#endif
