/* linear: products of many rows by AMX: eight tiles of 16 rows of 64 bytes, which one instruction
 * multiplies.
 *
 * Tested through an emulation of the instructions (amx_emulated.h); it has never run on a processor
 * that has them. */
#ifndef PLSH_LINEAR_AMX_H
#define PLSH_LINEAR_AMX_H

#include "linear/kernels/bfloat.h"
#include "linear/kernels/int8.h"

enum { PLSH_TILE_ROWS = 16, PLSH_TILE_COLUMNS = 16, PLSH_TILE_BYTES = 64 };

/* Tiles are registers of a thread. It sets their shapes, multiplies, and releases them before it
 * does anything else. */
typedef struct plsh_tile_kernels {
    /* Sets the shapes. A tile holds `bytes` of each row of a, or of each column of b: 64 in
     * bfloat16, in int8 a run of values that share a scale. */
    void (*begin)(int bytes);
    void (*end)(void);
    /* plsh_int8_kernels.multiply for a multiple of 16 rows and a whole panel: the same bits. */
    void (*int8)(const plsh_int8_kernels *, plsh_weight_type, const plsh_int8_product *);
    /* plsh_bfloat_kernels.multiply with a_step = 1. The number of rows of a is a multiple of 16;
     * its rows and the panel are padded with zeros to a multiple of 32 values. Of every 32 values
     * the even and the odd products are summed separately, from 0 and in order; then even plus odd
     * is added to y. Adding a product rounds once, and numbers below 2^-126 count as 0. */
    void (*bfloat)(const plsh_bfloat_kernels *, const plsh_bfloat_product *);
} plsh_tile_kernels;

/* Sets the shapes of the tiles of these kernels, for int8 weights of this type. NULL: they have no
 * tiles. */
static inline const plsh_tile_kernels *plsh_tiles_begin(const plsh_int8_kernels *int8,
                                                        const plsh_bfloat_kernels *bfloat,
                                                        plsh_weight_type type) {
    const plsh_tile_kernels *tiles = int8 ? int8->tiles : bfloat ? bfloat->tiles : NULL;
    if (tiles) tiles->begin(!int8 ? PLSH_TILE_BYTES : plsh_weight_has_halves(type) ? 16 : 32);
    return tiles;
}

extern const plsh_tile_kernels plsh_tiles_amx;

/* In the tests' build only: the instructions emulated, and how many threads hold tiles. */
extern const plsh_tile_kernels plsh_tiles_emulated;
int plsh_tiles_emulated_held(void);

#endif
