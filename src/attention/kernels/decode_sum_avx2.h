/* attention: sums over lanes and half-precision stores on AVX2, for the 8-lane decode kernels and
 * those whose vectors are made of 8-lane ones. */
#ifndef PLSH_KERNELS_DECODE_SUM_AVX2_H
#define PLSH_KERNELS_DECODE_SUM_AVX2_H

#include "base/dtype.h"

#include <immintrin.h>

/* to[0..3] = the sums of the lanes of a, b, c, d. */
static inline void sum4_avx2(float *to, __m256 a, __m256 b, __m256 c, __m256 d) {
    __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

static void narrow_half_avx2(uint16_t *to, const float *from, int64_t count) {
    int64_t x = 0;
    for (; x + 8 <= count; x += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + x), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(to + x), half);
    }
    for (; x < count; x++) to[x] = plsh_float_to_half(from[x]);
}

#endif
