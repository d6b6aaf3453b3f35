/* attention: scores of bfloat16 keys by AVX-512 BF16; all else is of AVX-512. */
#include "base/simd/vector_avx512.h"
#include "base/simd/vector_math.h"

#define GROUP_VECTORS 3
#define KEY_BLOCK 8
#define GROUP (GROUP_VECTORS * LANES)

INLINE vector multiply_words(vector q, vector k, vector sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)q, (__m512bh)k);
}

#include "attention/kernels/pairs.h"

const plsh_pair_kernels plsh_pairs_bf16 = PAIRS_TABLE;
