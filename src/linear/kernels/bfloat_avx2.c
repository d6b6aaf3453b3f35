/* linear: products in bfloat16 for AVX2, two fused multiply-adds for a pair. MXCSR makes them treat
 * numbers below 2^-126 as 0, as AVX-512 BF16 does always. */
#include "base/simd/vector_avx2.h"
#include "base/simd/vector_math.h"
#include "linear/kernels/bfloat.h"

#define BLOCK_ROWS 4
#define BLOCK_VECTORS 2
/* Compilers may move arithmetic across a change of MXCSR, but not a call: so these functions are
 * not inlined. */
#define PAIRS_ONLY __attribute__((noinline)) static

typedef __m256i vpair;

INLINE vpair p_load(const void *p) { return _mm256_loadu_si256(p); }
INLINE vpair p_set(const void *p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
}
INLINE vector p_first(vpair x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
INLINE vector p_second(vpair x) {
    const __m256i high = _mm256_set1_epi32((int32_t)0xffff0000);
    return _mm256_castsi256_ps(_mm256_and_si256(x, high));
}
INLINE vector v_pair(vector sum, vpair w, vpair x) {
    return v_fma(p_first(w), p_first(x), v_fma(p_second(w), p_second(x), sum));
}
INLINE float v_total(vector x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
INLINE unsigned pairs_begin(void) {
    enum { ZERO_RESULTS = 0x8000, ZERO_OPERANDS = 0x40 };
    const unsigned state = _mm_getcsr();
    _mm_setcsr(state | ZERO_RESULTS | ZERO_OPERANDS);
    return state;
}
INLINE void pairs_end(unsigned state) { _mm_setcsr(state); }

#include "linear/kernels/bfloat_template.h"

const plsh_bfloat_kernels plsh_bfloat_avx2 = BFLOAT_TABLE("avx2", &plsh_linear_avx2);
