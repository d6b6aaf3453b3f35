/* base: the vector vocabulary on WebAssembly's 128-bit vectors, 4 lanes. */
#ifndef PLSH_BASE_SIMD_VECTOR_WASM_H
#define PLSH_BASE_SIMD_VECTOR_WASM_H

#include <stdint.h>
#include <wasm_simd128.h>

#include "base/dtype.h"

#define LANES 4
typedef float vector __attribute__((vector_size(16)));

static inline vector v_set(float x) { return (vector)wasm_f32x4_splat(x); }
static inline vector v_load(const float *p) { return (vector)wasm_v128_load(p); }
static inline void v_store(float *p, vector x) { wasm_v128_store(p, (v128_t)x); }
/* Two roundings: these vectors have no fused multiply-add. */
static inline vector v_fma(vector a, vector b, vector c) { return a * b + c; }
/* b where either is NaN. One instruction on x86, where f32x4.max would be seven. */
static inline vector v_max(vector a, vector b) {
    return (vector)wasm_f32x4_pmax((v128_t)b, (v128_t)a);
}
static inline vector v_sqrt(vector x) { return (vector)wasm_f32x4_sqrt((v128_t)x); }
/* a where x == y, otherwise b. */
static inline vector v_if_equal(vector x, vector y, vector a, vector b) {
    return (vector)wasm_v128_bitselect((v128_t)a, (v128_t)b, wasm_f32x4_eq((v128_t)x, (v128_t)y));
}
/* The low 8 bits of each lane's representation become its exponent. */
static inline vector v_shift_exponent(vector x) { return (vector)wasm_i32x4_shl((v128_t)x, 23); }

/* The first count (1..LANES) lanes; nothing beyond them is read. The rest is zero. */
static inline vector v_load_first(const float *p, int count) {
    float lane[LANES] = {0};
    for (int i = 0; i < count; i++) lane[i] = p[i];
    return v_load(lane);
}
static inline void v_store_first(float *p, int count, vector x) {
    for (int i = 0; i < count; i++) p[i] = x[i];
}

/* A half's bits in a float's place, times 2^112, have the value: subnormal halves too. Infinity and
 * NaN, whose exponent is 31, get the largest exponent of a float. */
static inline vector v_load_half(const uint16_t *p) {
    const v128_t bits = wasm_u32x4_load16x4(p);
    const v128_t sign = wasm_i32x4_shl(wasm_v128_and(bits, wasm_i32x4_splat(0x8000)), 16);
    const v128_t rest = wasm_i32x4_shl(wasm_v128_and(bits, wasm_i32x4_splat(0x7fff)), 13);
    const v128_t value = wasm_f32x4_mul(rest, wasm_f32x4_splat(0x1p112f));
    const v128_t special = wasm_i32x4_ge(rest, wasm_i32x4_splat(0x7c00 << 13));
    const v128_t top = wasm_v128_and(special, wasm_i32x4_splat(0x7f800000));
    return (vector)wasm_v128_or(wasm_v128_or(value, top), sign);
}
static inline vector v_load_bfloat(const uint16_t *p) {
    return (vector)wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16);
}

typedef uint64_t v_words __attribute__((vector_size(16)));
/* The low 32 bits of each lane of 64 times b. */
static inline v_words v_multiply_low(v_words a, uint32_t b) {
    return (a & (uint64_t)UINT32_MAX) * (uint64_t)b;
}

#endif
