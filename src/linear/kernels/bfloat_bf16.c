/* linear: products in bfloat16 for AVX-512 BF16. 24 sums, 2 vectors of the panel, a broadcast. */
#include "base/simd/vector_avx512.h"
#include "base/simd/vector_math.h"
#include "linear/kernels/bfloat.h"

#define BLOCK_ROWS 12
#define BLOCK_VECTORS 2
#define PAIRS_ONLY INLINE

typedef __m512i vpair;

INLINE vpair p_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE vpair p_set(const void *p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}
INLINE vector v_pair(vector sum, vpair w, vpair x) {
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
}
INLINE float v_total(vector x) {
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
INLINE unsigned pairs_begin(void) { return 0; }
INLINE void pairs_end(unsigned state) { (void)state; }

#include "linear/kernels/bfloat_template.h"

const plsh_bfloat_kernels plsh_bfloat_avx512 =
    BFLOAT_TABLE("avx512 bf16", true, &plsh_linear_avx512);
