/* attention: the kernels for AVX-512. 24 sums, 3 or 4 vectors, a broadcast: 29 registers of 32. */
#include "base/simd/vector_avx512.h"

#define GROUP_VECTORS 3
#define KEY_BLOCK 8
#define ROW_BLOCK 6
#define COLUMN_BLOCK 4

#include "attention/kernels/template.h"

const plsh_kernels plsh_kernels_avx512 = KERNEL_TABLE("avx512");
