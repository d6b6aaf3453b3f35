/* linear: products in int8 for AVX-512 VNNI. 12 sums in int32, 12 in float, 2 vectors of the panel,
 * a broadcast: 27 registers. */
#include "base/simd/vector_avx512.h"
#include "base/simd/vector_math.h"
#include "linear/kernels/int8.h"

#define BLOCK_ROWS 6
#define BLOCK_VECTORS 2
enum { WIDTH = BLOCK_VECTORS * LANES };

typedef int32_t vint __attribute__((vector_size(64)));

INLINE vint i_set(int32_t x) { return (vint)_mm512_set1_epi32(x); }
INLINE vector v_float(vint x) { return _mm512_cvtepi32_ps((__m512i)x); }
INLINE __m256i i_quads(__m256i u, __m256i p) {
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), u, p);
}
INLINE bool stores_signed(const plsh_weight_type type) {
    (void)type;
    return false;
}

INLINE void add_words(const plsh_weight_type type, const int R, const int words,
                      vint sum[][BLOCK_VECTORS], const uint8_t *panel, const int8_t *p,
                      int64_t stride) {
    (void)type;
    UNROLL for (int k = 0; k < words; k++) {
        __m512i w[BLOCK_VECTORS];
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) w[c] =
            _mm512_loadu_si512(panel + (k * WIDTH + c * LANES) * 4);
        UNROLL for (int r = 0; r < R; r++) {
            int32_t word;
            __builtin_memcpy(&word, p + r * stride + k * 4, sizeof word);
            const __m512i x = _mm512_set1_epi32(word);
            UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) sum[r][c] =
                (vint)_mm512_dpbusd_epi32((__m512i)sum[r][c], w[c], x);
        }
    }
}

#include "linear/kernels/int8_x86.h"

#include "linear/kernels/int8_template.h"

const plsh_int8_kernels plsh_int8_vnni = INT8_TABLE("avx512 vnni", &plsh_linear_avx512);
