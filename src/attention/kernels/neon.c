/* attention: the kernels for NEON. 24 sums, 6 or 4 vectors, a broadcast: 31 registers of 32. */
#include "base/simd/vector_neon.h"

#include "base/dtype.h"

#define GROUP_VECTORS 6
#define KEY_BLOCK 4
#define ROW_BLOCK 6
#define COLUMN_BLOCK 4
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

#include "attention/kernels/template.h"

const plsh_kernels plsh_kernels_neon = KERNEL_TABLE("neon", narrow_half_neon, NULL);
