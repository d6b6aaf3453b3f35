/* linear: the kernels for NEON. 24 sums, 4 vectors of the panel, a broadcast: 29 registers. */
#include "base/simd/vector_neon.h"

#include <string.h>

typedef int32_t vint __attribute__((vector_size(16)));

static inline uint8x8_t v_four_bytes(const uint8_t *p) {
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vreinterpret_u8_u32(vdup_n_u32(four));
}
static inline vint v_bytes(const uint8_t *p) {
    return (vint)vmovl_u16(vget_low_u16(vmovl_u8(v_four_bytes(p))));
}
static inline vint v_signed(const uint8_t *p) {
    int8x8_t bytes = vreinterpret_s8_u8(v_four_bytes(p));
    return (vint)vmovl_s16(vget_low_s16(vmovl_s8(bytes)));
}
static inline vector v_float(vint x) { return vcvtq_f32_s32((int32x4_t)x); }
static inline float v_half_scalar(uint16_t half) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0);
}
static inline float v_total(vector x) {
    return (vgetq_lane_f32(x, 0) + vgetq_lane_f32(x, 2)) +
           (vgetq_lane_f32(x, 1) + vgetq_lane_f32(x, 3));
}

#define BLOCK_ROWS 6
#define BLOCK_VECTORS 4

#include "linear/kernels/template.h"

const plsh_linear_kernels plsh_linear_neon = LINEAR_TABLE("neon");
