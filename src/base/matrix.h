/* base: views of matrices of float32. */
#ifndef PLSH_BASE_MATRIX_H
#define PLSH_BASE_MATRIX_H

#include <stddef.h>

/* A matrix in memory: element x of row r is data[r * stride + x]. */
typedef struct plsh_matrix {
    float *data;
    ptrdiff_t stride;
} plsh_matrix;

typedef struct plsh_const_matrix {
    const float *data;
    ptrdiff_t stride;
} plsh_const_matrix;

#endif
