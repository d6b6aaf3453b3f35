/* attention: the shapes of AVX-512 on AVX2, for testing them anywhere; in the tests' build only. */
#include "base/simd/vector_wide.h"

#include "attention/kernels/decode_sum_avx2.h"

#define GROUP_VECTORS 3
#define KEY_BLOCK 8
#define ROW_BLOCK 6
#define COLUMN_BLOCK 4
#define DECODE_ROWS 4
#define DECODE_COLUMNS 4

static inline __m256 fold(vector x) { return _mm256_add_ps(v_half(x, 0), v_half(x, 1)); }

static inline void v_sum4(float *to, vector a, vector b, vector c, vector d) {
    sum4_avx2(to, fold(a), fold(b), fold(c), fold(d));
}

#include "attention/kernels/template.h"

const plsh_kernels plsh_kernels_wide = KERNEL_TABLE("wide", narrow_half_avx2, &plsh_pairs_wide);
