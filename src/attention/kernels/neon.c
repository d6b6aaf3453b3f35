/* attention: the kernels for NEON. 24 sums, 6 or 4 vectors, a broadcast: 31 registers of 32. */
#include "base/simd/vector_neon.h"

#define GROUP_VECTORS 6
#define KEY_BLOCK 4
#define ROW_BLOCK 6
#define COLUMN_BLOCK 4

#include "attention/kernels/template.h"

const plsh_kernels plsh_kernels_neon = KERNEL_TABLE("neon");
