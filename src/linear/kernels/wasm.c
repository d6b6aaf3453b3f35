/* linear: the kernels for WebAssembly. 8 sums, 2 vectors of the panel, a broadcast, a product: 12
 * of the 16 registers that a browser has on x86. */
#include "base/simd/vector_wasm.h"

typedef int32_t vint __attribute__((vector_size(16)));

static inline vint v_bytes(const uint8_t *p) {
    const v128_t four = wasm_v128_load32_zero(p);
    return (vint)wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(four));
}
static inline vint v_signed(const uint8_t *p) {
    const v128_t four = wasm_v128_load32_zero(p);
    return (vint)wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(four));
}
static inline vector v_float(vint x) { return (vector)wasm_f32x4_convert_i32x4((v128_t)x); }
static inline float v_half_scalar(uint16_t half) { return plsh_half_to_float(half); }
static inline float v_total(vector x) { return (x[0] + x[2]) + (x[1] + x[3]); }

#define BLOCK_ROWS 4
#define BLOCK_VECTORS 2

#include "linear/kernels/template.h"

const plsh_linear_kernels plsh_linear_wasm = LINEAR_TABLE("wasm");
