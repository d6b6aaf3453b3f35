/* linear: products in bfloat16: a, panels of b and vectors rounded to pairs of bfloat16. */
#ifndef PLSH_LINEAR_BFLOAT_H
#define PLSH_LINEAR_BFLOAT_H

#include "base/arena.h"
#include "linear/kernels/bfloat.h"
#include "linear/linear.h"

/* Rounds to bfloat16, ties to even; numbers below 2^-126 become 0. An odd count is padded with one
 * 0. */
void plsh_bfloat_narrow(const plsh_bfloat_kernels *kernels, const float *from, uint16_t *to,
                        int64_t count);

enum {
    PLSH_BFLOAT_DEPTH = 256, /* of a panel */
    PLSH_BFLOAT_ROWS = 96    /* of a block of a */
};

/* The buffers of a thread. */
typedef struct plsh_bfloat_memory {
    uint16_t *panels; /* [columns / width][DEPTH / 2][width][2] */
    uint16_t *block;  /* of a: [ROWS][DEPTH], or, without tiles, transposed [DEPTH / 2][ROWS][2] */
    uint16_t *rows;   /* of W, before they become columns: [PLSH_LINEAR_GROUP][DEPTH] */
} plsh_bfloat_memory;

/* Room for panels of `columns` columns. */
plsh_bfloat_memory plsh_bfloat_memory_take(plsh_arena *arena, int columns);

/* Where b[k .. k + depth)[n .. n + columns) is, and where it goes. */
typedef struct plsh_bfloat_pack {
    const plsh_bfloat_kernels *kernels;
    plsh_bfloat_memory to;
    float *widened; /* [2][columns], and [DEPTH] */
    int64_t k, n;
    int depth, columns;
} plsh_bfloat_pack;

/* b[k][n] = W[n][k], b[k][n] = W[k][n], b = x. */
void plsh_bfloat_pack_transposed(const plsh_bfloat_pack *pack, const plsh_linear *layer);
void plsh_bfloat_pack_weights(const plsh_bfloat_pack *pack, const plsh_linear *layer);
void plsh_bfloat_pack_floats(const plsh_bfloat_pack *pack, plsh_const_matrix x);

/* a[rows][depth], which begins at `a`, into the block: row by row, or, where a[m][k] is at data[k *
 * stride + m] and kernels have no tiles, pairs of rows. */
void plsh_bfloat_take_block(const plsh_bfloat_kernels *kernels, const plsh_bfloat_memory *to,
                            plsh_const_matrix a, bool transposed, int rows, int depth);

/* Outputs of a layer for few rows x in bfloat16; `dot` has all but weight, row_bytes and outs.
 * Weights of other types are rounded row by row in `row`, which has room for layer->in numbers. */
void plsh_bfloat_dots(const plsh_bfloat_kernels *kernels, const plsh_linear *layer, int64_t first,
                      int64_t outs, plsh_bfloat_dot dot, float *widened, uint16_t *row);

#endif
