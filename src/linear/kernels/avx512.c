/* linear: the kernels for AVX-512. 24 sums, 2 vectors of the panel, a broadcast. */
#include "base/simd/vector_avx512.h"

typedef int32_t vint __attribute__((vector_size(64)));

static inline vint v_bytes(const uint8_t *p) {
    return (vint)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
static inline vint v_signed(const uint8_t *p) {
    return (vint)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}
static inline vector v_float(vint x) { return _mm512_cvtepi32_ps((__m512i)x); }
static inline float v_half_scalar(uint16_t half) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}
static inline float v_total(vector x) {
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#define BLOCK_ROWS 12
#define BLOCK_VECTORS 2

#include "linear/kernels/template.h"

const plsh_linear_kernels plsh_linear_avx512 = LINEAR_TABLE("avx512");
