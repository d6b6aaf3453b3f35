/* attention: the decode kernels for AVX2 + FMA. */
#include "base/simd/vector_avx2.h"

#include "attention/kernels/decode_sum_avx2.h"
#include "attention/kernels/decode_tables.h"

#define DECODE_ROWS 2
#define DECODE_COLUMNS 4

static inline void v_sum4(float *to, vector a, vector b, vector c, vector d) {
    sum4_avx2(to, a, b, c, d);
}

#include "attention/kernels/decode_template.h"

const plsh_decode_kernels plsh_decode_avx2 = DECODE_TABLE("avx2", narrow_half_avx2);
