/* base: the vector vocabulary on NEON (AArch64), 4 lanes. */
#ifndef PLSH_BASE_SIMD_VECTOR_NEON_H
#define PLSH_BASE_SIMD_VECTOR_NEON_H

#include <arm_neon.h>
#include <stdint.h>

#define LANES 4
typedef float32x4_t vector;

static inline vector v_set(float x) { return vdupq_n_f32(x); }
static inline vector v_load(const float *p) { return vld1q_f32(p); }
static inline void v_store(float *p, vector x) { vst1q_f32(p, x); }
static inline vector v_fma(vector a, vector b, vector c) { return vfmaq_f32(c, a, b); }
/* NaN where either is NaN. */
static inline vector v_max(vector a, vector b) { return vmaxq_f32(a, b); }
static inline vector v_sqrt(vector x) { return vsqrtq_f32(x); }
/* a where x == y, otherwise b. */
static inline vector v_if_equal(vector x, vector y, vector a, vector b) {
    return vbslq_f32(vceqq_f32(x, y), a, b);
}
/* The low 8 bits of each lane's representation become its exponent. */
static inline vector v_shift_exponent(vector x) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(x), 23));
}

/* The first count (1..LANES) lanes; nothing beyond them is read. The rest is zero. */
static inline vector v_load_first(const float *p, int count) {
    float lane[LANES] = {0};
    for (int i = 0; i < count; i++) lane[i] = p[i];
    return vld1q_f32(lane);
}
static inline void v_store_first(float *p, int count, vector x) {
    float lane[LANES];
    vst1q_f32(lane, x);
    for (int i = 0; i < count; i++) p[i] = lane[i];
}

static inline vector v_load_half(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline vector v_load_bfloat(const uint16_t *p) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(p)), 16));
}

typedef uint64_t v_words __attribute__((vector_size(16)));
/* The low 32 bits of each lane of 64 times b. */
static inline v_words v_multiply_low(v_words a, uint32_t b) {
    return (v_words)vmull_n_u32(vmovn_u64((uint64x2_t)a), b);
}

#endif
