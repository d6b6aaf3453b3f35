/* linear: products in int8 for AVX-512 VNNI. 12 sums in int32, 12 in float, 2 vectors of the panel,
 * a broadcast: 27 registers. */
#include "base/simd/vector_avx512.h"
#include "base/simd/vector_math.h"
#include "linear/kernels/amx.h"

#define BLOCK_ROWS 6
#define BLOCK_VECTORS 2
enum { WIDTH = BLOCK_VECTORS * LANES };

typedef int32_t vint __attribute__((vector_size(64)));

INLINE vint i_set(int32_t x) { return (vint)_mm512_set1_epi32(x); }
INLINE vector v_float(vint x) { return _mm512_cvtepi32_ps((__m512i)x); }
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

INLINE __m256i sum_words(const plsh_weight_type type, const __m256i word[4], __m256i p) {
    (void)type;
    __m256i sum = _mm256_dpbusd_epi32(_mm256_setzero_si256(), word[0], _mm256_shuffle_epi32(p, 0));
    sum = _mm256_dpbusd_epi32(sum, word[1], _mm256_shuffle_epi32(p, 0x55));
    sum = _mm256_dpbusd_epi32(sum, word[2], _mm256_shuffle_epi32(p, 0xaa));
    return _mm256_dpbusd_epi32(sum, word[3], _mm256_shuffle_epi32(p, 0xff));
}

#include "linear/kernels/int8_dots_vnni.h"
#include "linear/kernels/int8_pack_vnni.h"

#define PACK_TYPE(TYPE, name)                                                                      \
    static void pack_##name(const plsh_int8_packing *p) { pack_panel(TYPE, p); }

PACK_TYPE(PLSH_WEIGHT_Q8_0, q8_0)
PACK_TYPE(PLSH_WEIGHT_Q4_0, q4_0)
PACK_TYPE(PLSH_WEIGHT_Q4_1, q4_1)
PACK_TYPE(PLSH_WEIGHT_Q5_0, q5_0)
PACK_TYPE(PLSH_WEIGHT_Q5_1, q5_1)
PACK_TYPE(PLSH_WEIGHT_IQ4_NL, iq4_nl)
PACK_TYPE(PLSH_WEIGHT_Q4_K, q4_k)
PACK_TYPE(PLSH_WEIGHT_Q5_K, q5_k)
PACK_TYPE(PLSH_WEIGHT_Q6_K, q6_k)

#define DOT_FEW dot_few_wide
#define INT8_PACKS                                                                                 \
    {                                                                                              \
        [PLSH_WEIGHT_Q8_0] = pack_q8_0, [PLSH_WEIGHT_Q4_0] = pack_q4_0,                            \
        [PLSH_WEIGHT_Q4_1] = pack_q4_1, [PLSH_WEIGHT_Q5_0] = pack_q5_0,                            \
        [PLSH_WEIGHT_Q5_1] = pack_q5_1, [PLSH_WEIGHT_IQ4_NL] = pack_iq4_nl,                        \
        [PLSH_WEIGHT_Q4_K] = pack_q4_k, [PLSH_WEIGHT_Q5_K] = pack_q5_k,                            \
        [PLSH_WEIGHT_Q6_K] = pack_q6_k                                                             \
    }
#include "linear/kernels/int8_template.h"

/* Measured on a Zen 5, 6 and 8 rows by dot products and 9 by panels: Q4_1 317, 393 and 271 us for
 * the linear layers of a block of SmolLM2, Q4_K 361, 444 and 401, Q2_K 681, 755 and 564, Q8_0 291,
 * 391 and 384. */
enum { FEW = 5 };

const plsh_int8_kernels plsh_int8_vnni =
    INT8_TABLE("avx512 vnni", &plsh_linear_avx512, false, FEW, NULL);
#if PLSH_WITH_AMX
const plsh_int8_kernels plsh_int8_amx =
    INT8_TABLE("avx512 amx", &plsh_linear_avx512, false, FEW, &plsh_tiles_amx);
#endif
