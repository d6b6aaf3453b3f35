/* base: the vector vocabulary on AVX2 + FMA, 8 lanes. */
#ifndef PLSH_BASE_SIMD_VECTOR_AVX2_H
#define PLSH_BASE_SIMD_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define LANES 8
typedef __m256 vector;

static inline vector v_set(float x) { return _mm256_set1_ps(x); }
static inline vector v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, vector x) { _mm256_storeu_ps(p, x); }
static inline vector v_fma(vector a, vector b, vector c) { return _mm256_fmadd_ps(a, b, c); }
/* b where either is NaN. */
static inline vector v_max(vector a, vector b) { return _mm256_max_ps(a, b); }
static inline vector v_sqrt(vector x) { return _mm256_sqrt_ps(x); }
/* a where x == y, otherwise b. */
static inline vector v_if_equal(vector x, vector y, vector a, vector b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_EQ_OQ));
}
/* The low 8 bits of each lane's representation become its exponent. */
static inline vector v_shift_exponent(vector x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23));
}

static inline __m256i v_lane_mask(int count) {
    static const int32_t ramp[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(ramp + 8 - count));
}
/* The first count (1..LANES) lanes; nothing beyond them is read. The rest is zero. */
static inline vector v_load_first(const float *p, int count) {
    return _mm256_maskload_ps(p, v_lane_mask(count));
}
static inline void v_store_first(float *p, int count, vector x) {
    _mm256_maskstore_ps(p, v_lane_mask(count), x);
}

static inline vector v_load_half(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline vector v_load_bfloat(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

typedef uint64_t v_words __attribute__((vector_size(32)));
/* The low 32 bits of each lane of 64 times b. */
static inline v_words v_multiply_low(v_words a, uint32_t b) {
    return (v_words)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
}

#endif
