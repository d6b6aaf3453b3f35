/* linear: products in int8 for NEON: products in int16, added in pairs to int32. */
#include "base/simd/vector_neon.h"

#define BLOCK_ROWS 4
#define BLOCK_VECTORS 4
enum { WIDTH = BLOCK_VECTORS * LANES };

#include "linear/kernels/int8_plain.h"

typedef int32_t vint __attribute__((vector_size(16)));

INLINE vint i_set(int32_t x) { return (vint)vdupq_n_s32(x); }
INLINE vector v_float(vint x) { return vcvtq_f32_s32((int32x4_t)x); }

/* The 4 words of a vector of the panel, 2 columns in each half, against one word of p. */
INLINE vint add_word(vint sum, int8x16_t w, int8x8_t p) {
    const int16x8_t low = vmull_s8(vget_low_s8(w), p), high = vmull_s8(vget_high_s8(w), p);
    const int32x4_t pairs_low = vpaddlq_s16(low), pairs_high = vpaddlq_s16(high);
    return sum + (vint)vpaddq_s32(pairs_low, pairs_high);
}

INLINE void add_words(const plsh_weight_type type, const int R, const int words,
                      vint sum[][BLOCK_VECTORS], const uint8_t *panel, const int8_t *p,
                      int64_t stride) {
    (void)type;
    for (int k = 0; k < words; k++) {
        int8x16_t w[BLOCK_VECTORS];
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) w[c] =
            vreinterpretq_s8_u8(vld1q_u8(panel + (k * WIDTH + c * LANES) * 4));
        UNROLL for (int r = 0; r < R; r++) {
            int32_t word;
            __builtin_memcpy(&word, p + r * stride + k * 4, sizeof word);
            const int8x8_t x = vreinterpret_s8_s32(vdup_n_s32(word));
            UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) sum[r][c] = add_word(sum[r][c], w[c], x);
        }
    }
}

#include "linear/kernels/int8_template.h"

const plsh_int8_kernels plsh_int8_neon =
    INT8_TABLE("neon", &plsh_linear_neon, true, PLSH_LINEAR_FEW, NULL);
