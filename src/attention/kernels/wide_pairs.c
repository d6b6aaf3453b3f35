/* attention: scores of bfloat16 keys as AVX-512 BF16 computes them, on AVX2; in the tests' build
 * only. A result that is rounded up to exactly 2^-126 is kept, where the processor may return 0. */
#include "base/simd/vector_wide.h"

#define GROUP_VECTORS 3
#define KEY_BLOCK 8
#define GROUP (GROUP_VECTORS * LANES)

/* x, or 0 with its sign where |x| < 2^-126. */
INLINE_WIDE __m256 normal_or_zero(__m256 x) {
    const __m256 sign = _mm256_set1_ps(-0.0f), least = _mm256_set1_ps(0x1p-126f);
    const __m256 small = _mm256_cmp_ps(_mm256_andnot_ps(sign, x), least, _CMP_LT_OQ);
    return _mm256_andnot_ps(_mm256_andnot_ps(sign, small), x);
}

INLINE_WIDE __m256 first_of(__m256 pair) {
    const __m256i word = _mm256_castps_si256(pair);
    return normal_or_zero(_mm256_castsi256_ps(_mm256_slli_epi32(word, 16)));
}

INLINE_WIDE __m256 second_of(__m256 pair) {
    const __m256 high = _mm256_castsi256_ps(_mm256_set1_epi32((int32_t)0xffff0000));
    return normal_or_zero(_mm256_and_ps(pair, high));
}

INLINE_WIDE __m256 multiply_half(__m256 q, __m256 k, __m256 sum) {
    sum = normal_or_zero(_mm256_fmadd_ps(second_of(q), second_of(k), sum));
    return normal_or_zero(_mm256_fmadd_ps(first_of(q), first_of(k), sum));
}

INLINE_WIDE vector multiply_words(vector q, vector k, vector sum) {
    return v_join(multiply_half(v_half(q, 0), v_half(k, 0), v_half(sum, 0)),
                  multiply_half(v_half(q, 1), v_half(k, 1), v_half(sum, 1)));
}

#include "attention/kernels/pairs.h"

const plsh_pair_kernels plsh_pairs_wide = PAIRS_TABLE;
