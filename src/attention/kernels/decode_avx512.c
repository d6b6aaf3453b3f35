/* attention: the decode kernels for AVX-512. */
#include "base/simd/vector_avx512.h"

#include "attention/kernels/decode_sum_avx2.h"
#include "attention/kernels/decode_tables.h"

#define DECODE_ROWS 4
#define DECODE_COLUMNS 4

static inline __m256 fold(vector x) {
    return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
}

static inline void v_sum4(float *to, vector a, vector b, vector c, vector d) {
    sum4_avx2(to, fold(a), fold(b), fold(c), fold(d));
}

#include "attention/kernels/decode_template.h"

const plsh_decode_kernels plsh_decode_avx512 = DECODE_TABLE("avx512", narrow_half_avx2);
