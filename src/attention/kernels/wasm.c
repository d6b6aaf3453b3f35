/* attention: the kernels for WebAssembly. A browser on x86 has 16 registers: 8 sums, 4 vectors, a
 * broadcast and a product, which is not fused with its sum. */
#include "base/simd/vector_wasm.h"

#define GROUP_VECTORS 4
#define KEY_BLOCK 2
#define ROW_BLOCK 4
#define COLUMN_BLOCK 2
#define DECODE_ROWS 2
#define DECODE_COLUMNS 4

static inline void v_sum4(float *to, vector a, vector b, vector c, vector d) {
    const vector ab =
        __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
    const vector cd =
        __builtin_shufflevector(c, d, 0, 2, 4, 6) + __builtin_shufflevector(c, d, 1, 3, 5, 7);
    v_store(to, __builtin_shufflevector(ab, cd, 0, 2, 4, 6) +
                    __builtin_shufflevector(ab, cd, 1, 3, 5, 7));
}

static void narrow_half_wasm(uint16_t *to, const float *from, int64_t count) {
    for (int64_t x = 0; x < count; x++) to[x] = plsh_float_to_half(from[x]);
}

#include "attention/kernels/template.h"

const plsh_kernels plsh_kernels_wasm = KERNEL_TABLE("wasm", narrow_half_wasm, NULL);
