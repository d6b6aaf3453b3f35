/* base: transposes a square of LANES vectors; for vocabularies of 4, 8 and 16 lanes. */
#ifndef PLSH_BASE_SIMD_VECTOR_TRANSPOSE_H
#define PLSH_BASE_SIMD_VECTOR_TRANSPOSE_H

#include "base/simd/vector_math.h"

#if LANES == 4
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#elif LANES == 8
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif LANES == 16
#define ZIP_LOW(a, b)                                                                              \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(a, b)                                                                             \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#endif

/* Exchanges rows[i][j] and rows[j][i]. Each round of zips rotates the bits of (row, lane) by one
 * place; log2 LANES rounds transpose. */
INLINE void v_transpose(vector *rows) {
    UNROLL for (int round = 1; round < LANES; round *= 2) {
        vector zipped[LANES];
        UNROLL for (int i = 0; i < LANES / 2; i++) {
            zipped[2 * i] = ZIP_LOW(rows[i], rows[i + LANES / 2]);
            zipped[2 * i + 1] = ZIP_HIGH(rows[i], rows[i + LANES / 2]);
        }
        UNROLL for (int i = 0; i < LANES; i++) rows[i] = zipped[i];
    }
}

#endif
