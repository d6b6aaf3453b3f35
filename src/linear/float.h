/* linear: panels of b for products in float32. */
#ifndef PLSH_LINEAR_FLOAT_H
#define PLSH_LINEAR_FLOAT_H

#include "linear/kernels/kernels.h"
#include "linear/linear.h"

enum { PLSH_FLOAT_DEPTH = 256 }; /* of a panel */

/* Where b[k .. k + depth)[n .. n + columns) is, and where it goes. */
typedef struct plsh_float_pack {
    const plsh_linear_kernels *kernels;
    float *panels;  /* [columns / width][DEPTH][width] */
    float *widened; /* [PLSH_LINEAR_GROUP][256], or [columns] */
    int64_t k, n;
    int depth, columns;
} plsh_float_pack;

/* b[k][n] = W[n][k], b[k][n] = W[k][n], b = x. */
void plsh_float_pack_transposed(const plsh_float_pack *pack, const plsh_linear *layer);
void plsh_float_pack_weights(const plsh_float_pack *pack, const plsh_linear *layer);
void plsh_float_pack_floats(const plsh_float_pack *pack, plsh_const_matrix x);

#endif
