/* attention: the shapes of AVX-512 on AVX2, for testing them anywhere. */
#include "base/simd/vector_wide.h"

#define GROUP_VECTORS 3
#define KEY_BLOCK 8
#define ROW_BLOCK 6
#define COLUMN_BLOCK 4

#include "attention/kernels/template.h"

const plsh_kernels plsh_kernels_wide = KERNEL_TABLE("wide");
