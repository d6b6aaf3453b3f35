/* attention: the kernels for AVX2 + FMA. 12 sums, 3 vectors of queries, a key: 16 registers. */
#include "base/simd/vector_avx2.h"

#define GROUP_VECTORS 3
#define KEY_BLOCK 4
#define ROW_BLOCK 6
#define COLUMN_BLOCK 2

#include "attention/kernels/template.h"

const plsh_kernels plsh_kernels_avx2 = KERNEL_TABLE("avx2");
