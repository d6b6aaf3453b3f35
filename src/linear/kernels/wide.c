/* linear: the shapes of AVX-512 on AVX2, for testing them anywhere. */
#include "base/simd/vector_wide.h"

typedef int32_t vint __attribute__((vector_size(64)));

typedef union vint_halves {
    vint whole;
    __m256i half[2];
} vint_halves;

INLINE_WIDE vint v_bytes(const uint8_t *p) {
    return (vint_halves){.half = {_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                                  _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))}}
        .whole;
}
INLINE_WIDE vint v_signed(const uint8_t *p) {
    return (vint_halves){.half = {_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                                  _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))}}
        .whole;
}
INLINE_WIDE vector v_float(vint x) {
    vint_halves halves = {.whole = x};
    return v_join(_mm256_cvtepi32_ps(halves.half[0]), _mm256_cvtepi32_ps(halves.half[1]));
}
static inline float v_half_scalar(uint16_t half) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}
INLINE_WIDE float v_total(vector x) {
    __m256 eight = _mm256_add_ps(v_half(x, 0), v_half(x, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#define BLOCK_ROWS 12
#define BLOCK_VECTORS 2

#include "linear/kernels/template.h"

const plsh_linear_kernels plsh_linear_wide = LINEAR_TABLE("wide");
