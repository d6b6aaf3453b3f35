/* base: the vector vocabulary with 16 lanes in two AVX2 registers. Slow; it lets a machine
 * without AVX-512 test what the template does at 16 lanes. */
#ifndef PLSH_BASE_SIMD_VECTOR_WIDE_H
#define PLSH_BASE_SIMD_VECTOR_WIDE_H

#include <immintrin.h>
#include <stdint.h>

/* Always inline: there is no calling convention for such a vector. */
#define INLINE_WIDE static inline __attribute__((always_inline))

#define LANES 16
typedef float vector __attribute__((vector_size(64)));

typedef union vector_halves {
    vector whole;
    __m256 half[2];
} vector_halves;

INLINE_WIDE vector v_join(__m256 low, __m256 high) {
    return (vector_halves){.half = {low, high}}.whole;
}
INLINE_WIDE __m256 v_half(vector x, int i) { return (vector_halves){.whole = x}.half[i]; }

INLINE_WIDE vector v_set(float x) { return v_join(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
INLINE_WIDE vector v_load(const float *p) {
    return v_join(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
INLINE_WIDE void v_store(float *p, vector x) {
    _mm256_storeu_ps(p, v_half(x, 0));
    _mm256_storeu_ps(p + 8, v_half(x, 1));
}
INLINE_WIDE vector v_fma(vector a, vector b, vector c) {
    return v_join(_mm256_fmadd_ps(v_half(a, 0), v_half(b, 0), v_half(c, 0)),
                  _mm256_fmadd_ps(v_half(a, 1), v_half(b, 1), v_half(c, 1)));
}
/* b where either is NaN. */
INLINE_WIDE vector v_max(vector a, vector b) {
    return v_join(_mm256_max_ps(v_half(a, 0), v_half(b, 0)),
                  _mm256_max_ps(v_half(a, 1), v_half(b, 1)));
}
INLINE_WIDE vector v_sqrt(vector x) {
    return v_join(_mm256_sqrt_ps(v_half(x, 0)), _mm256_sqrt_ps(v_half(x, 1)));
}
INLINE_WIDE __m256 v_half_if_equal(__m256 x, __m256 y, __m256 a, __m256 b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_EQ_OQ));
}
/* a where x == y, otherwise b. */
INLINE_WIDE vector v_if_equal(vector x, vector y, vector a, vector b) {
    return v_join(v_half_if_equal(v_half(x, 0), v_half(y, 0), v_half(a, 0), v_half(b, 0)),
                  v_half_if_equal(v_half(x, 1), v_half(y, 1), v_half(a, 1), v_half(b, 1)));
}
INLINE_WIDE __m256 v_half_shift(__m256 x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23));
}
/* The low 8 bits of each lane's representation become its exponent. */
INLINE_WIDE vector v_shift_exponent(vector x) {
    return v_join(v_half_shift(v_half(x, 0)), v_half_shift(v_half(x, 1)));
}

INLINE_WIDE __m256i v_half_mask(int count, int i) {
    static const int32_t ramp[32] = {0,  0,  0,  0,  0,  0,  0,  0,  -1, -1, -1, -1, -1, -1, -1, -1,
                                     -1, -1, -1, -1, -1, -1, -1, -1, 0,  0,  0,  0,  0,  0,  0,  0};
    int first = count - 8 * i; /* lanes of this half, below 0 and above 8 included */
    first = first < 0 ? 0 : first > 8 ? 8 : first;
    return _mm256_loadu_si256((const __m256i *)(ramp + 24 - first));
}
/* The first count (1..LANES) lanes; nothing beyond them is read. The rest is zero. */
INLINE_WIDE vector v_load_first(const float *p, int count) {
    return v_join(_mm256_maskload_ps(p, v_half_mask(count, 0)),
                  _mm256_maskload_ps(p + 8, v_half_mask(count, 1)));
}
INLINE_WIDE void v_store_first(float *p, int count, vector x) {
    _mm256_maskstore_ps(p, v_half_mask(count, 0), v_half(x, 0));
    _mm256_maskstore_ps(p + 8, v_half_mask(count, 1), v_half(x, 1));
}

INLINE_WIDE vector v_load_half(const uint16_t *p) {
    return v_join(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))));
}
INLINE_WIDE __m256 v_half_bfloat(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
INLINE_WIDE vector v_load_bfloat(const uint16_t *p) {
    return v_join(v_half_bfloat(p), v_half_bfloat(p + 8));
}

typedef uint64_t v_words __attribute__((vector_size(64)));
typedef union v_words_halves {
    v_words whole;
    __m256i half[2];
} v_words_halves;
/* The low 32 bits of each lane of 64 times b. */
INLINE_WIDE v_words v_multiply_low(v_words a, uint32_t b) {
    v_words_halves x = {.whole = a};
    for (int i = 0; i < 2; i++) x.half[i] = _mm256_mul_epu32(x.half[i], _mm256_set1_epi64x(b));
    return x.whole;
}

#endif
