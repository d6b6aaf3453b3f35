/* attention: a proven bound on the error of every output row.
 *
 * With weights M instead of the decay L, o = sum A M v / D and D = sum A M, A = exp(score):
 *
 *     |o - o*| <= 2 |V|max sum_j A_ij |L_ij - M_ij| / D_i,
 *
 * since o - o* = sum_j A (M - L) (v - o*) / D, and no entry of v - o* exceeds 2 |V|max; 2 |V|max is
 * also a bound by itself. The sum is taken pair by pair where M is not 0 and further out, until
 * what |q| max|k| says about the rest is small against it. */
#ifndef PLSH_ATTENTION_CERTIFICATE_H
#define PLSH_ATTENTION_CERTIFICATE_H

#include "attention/forward/tile.h"

/* Lays out the tile's part behind `used` bytes, and returns where it ends. */
size_t plsh_certificate_layout(const plsh_plan *plan, plsh_tile *tile, char *memory, size_t used);

/* Fills in tile->certificate_out. The tile is finished; its sums m, l are still there. */
void plsh_tile_certify(plsh_tile *tile);

#endif
