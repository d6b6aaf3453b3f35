/* attention: the kernels for AVX2 + FMA. 12 sums, 3 vectors of queries, a key: 16 registers. */
#include "base/simd/vector_avx2.h"

#include "attention/kernels/decode_sum_avx2.h"

#define GROUP_VECTORS 3
#define KEY_BLOCK 4
#define ROW_BLOCK 6
#define COLUMN_BLOCK 2
#define DECODE_ROWS 2
#define DECODE_COLUMNS 4

static inline void v_sum4(float *to, vector a, vector b, vector c, vector d) {
    sum4_avx2(to, a, b, c, d);
}

#include "attention/kernels/template.h"

const plsh_kernels plsh_kernels_avx2 = KERNEL_TABLE("avx2", narrow_half_avx2, NULL);
