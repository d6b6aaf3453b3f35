/* attention: the decode kernels for NEON (AArch64). */
#include "base/simd/vector_neon.h"

#include "attention/kernels/decode_tables.h"
#include "base/dtype.h"

#define DECODE_ROWS 4
#define DECODE_COLUMNS 4

static inline void v_sum4(float *to, vector a, vector b, vector c, vector d) {
    vst1q_f32(to, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}

static void narrow_half_neon(uint16_t *to, const float *from, int64_t count) {
    int64_t x = 0;
    for (; x + 4 <= count; x += 4)
        vst1_u16(to + x, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + x))));
    for (; x < count; x++) to[x] = plsh_float_to_half(from[x]);
}

#include "attention/kernels/decode_template.h"

const plsh_decode_kernels plsh_decode_neon = DECODE_TABLE("neon", narrow_half_neon);
