/* attention: the kernels for AVX-512. 24 sums, 3 or 4 vectors, a broadcast: 29 registers of 32. */
#include "base/simd/vector_avx512.h"

#include "attention/kernels/decode_sum_avx2.h"

#define GROUP_VECTORS 3
#define KEY_BLOCK 8
#define ROW_BLOCK 6
#define COLUMN_BLOCK 4
#define DECODE_ROWS 4
#define DECODE_COLUMNS 4

static inline __m256 fold(vector x) {
    return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
}

static inline void v_sum4(float *to, vector a, vector b, vector c, vector d) {
    sum4_avx2(to, fold(a), fold(b), fold(c), fold(d));
}

#include "attention/kernels/template.h"

const plsh_kernels plsh_kernels_avx512 = KERNEL_TABLE("avx512", narrow_half_avx2, NULL);
const plsh_kernels plsh_kernels_bf16 =
    KERNEL_TABLE("avx512bf16", narrow_half_avx2, &plsh_pairs_bf16);
