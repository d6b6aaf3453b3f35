/* base: the vector vocabulary on AVX-512, 16 lanes. */
#ifndef PLSH_BASE_SIMD_VECTOR_AVX512_H
#define PLSH_BASE_SIMD_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define LANES 16
typedef __m512 vector;

static inline vector v_set(float x) { return _mm512_set1_ps(x); }
static inline vector v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, vector x) { _mm512_storeu_ps(p, x); }
static inline vector v_fma(vector a, vector b, vector c) { return _mm512_fmadd_ps(a, b, c); }
/* b where either is NaN. */
static inline vector v_max(vector a, vector b) { return _mm512_max_ps(a, b); }
static inline vector v_sqrt(vector x) { return _mm512_sqrt_ps(x); }
/* a where x == y, otherwise b. */
static inline vector v_if_equal(vector x, vector y, vector a, vector b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ), b, a);
}
/* The low 8 bits of each lane's representation become its exponent. */
static inline vector v_shift_exponent(vector x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23));
}

static inline __mmask16 v_lane_mask(int count) { return (__mmask16)((1u << count) - 1); }
/* The first count (1..LANES) lanes; nothing beyond them is read. The rest is zero. */
static inline vector v_load_first(const float *p, int count) {
    return _mm512_maskz_loadu_ps(v_lane_mask(count), p);
}
static inline void v_store_first(float *p, int count, vector x) {
    _mm512_mask_storeu_ps(p, v_lane_mask(count), x);
}

static inline vector v_load_half(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline vector v_load_bfloat(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* 2^x for x < 100 or NaN, to 1.2 ulp; 0 below 2^-126. vreduce gives x - floor(x), vscalef
 * multiplies by 2^floor(x): 8 instructions instead of the 11 of the portable way, and
 * -inf needs no clamp. The polynomial is the minimax one for 2^f relative to 2^f on [0, 1] with
 * constant 1. Results below the normal range are cut: arithmetic with them is slow. */
#define V_HAS_EXP2
static inline vector v_exp2(vector x) {
    vector f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vector y = v_set(0x1.e974fap-10f);
    y = v_fma(y, f, v_set(0x1.277856p-7f));
    y = v_fma(y, f, v_set(0x1.c91ce6p-5f));
    y = v_fma(y, f, v_set(0x1.ebdb56p-3f));
    y = v_fma(y, f, v_set(0x1.62e4bap-1f));
    y = v_fma(y, f, v_set(1.0f));
    __mmask16 normal = _mm512_cmp_ps_mask(x, v_set(-126.0f), _CMP_NLT_UQ); /* or NaN */
    return _mm512_maskz_scalef_ps(normal, y, x);
}

typedef uint64_t v_words __attribute__((vector_size(64)));
/* The low 32 bits of each lane of 64 times b. */
static inline v_words v_multiply_low(v_words a, uint32_t b) {
    return (v_words)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
}

#endif
