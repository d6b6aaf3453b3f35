/* attention: the decode kernels with 16 lanes in two AVX2 registers. */
#include "base/simd/vector_wide.h"

#include "attention/kernels/decode_sum_avx2.h"
#include "attention/kernels/decode_tables.h"

#define DECODE_ROWS 4
#define DECODE_COLUMNS 4

static inline __m256 fold(vector x) { return _mm256_add_ps(v_half(x, 0), v_half(x, 1)); }

static inline void v_sum4(float *to, vector a, vector b, vector c, vector d) {
    sum4_avx2(to, fold(a), fold(b), fold(c), fold(d));
}

#include "attention/kernels/decode_template.h"

const plsh_decode_kernels plsh_decode_wide = DECODE_TABLE("wide", narrow_half_avx2);
