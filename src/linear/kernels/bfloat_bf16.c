/* linear: products in bfloat16 for AVX-512 BF16. 24 sums, 2 vectors of the panel, a broadcast. */
#include "base/simd/vector_avx512.h"
#include "base/simd/vector_math.h"
#include "linear/kernels/amx.h"

#define BLOCK_ROWS 12
#define BLOCK_VECTORS 2
#define PAIRS_ONLY INLINE

typedef __m512i vpair;

INLINE vpair p_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE vpair p_set(const void *p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}
INLINE vector v_pair(vector sum, vpair w, vpair x) {
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
}
INLINE float v_total(vector x) {
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
INLINE unsigned pairs_begin(void) { return 0; }
INLINE void pairs_end(unsigned state) { (void)state; }

#include "linear/kernels/bfloat_template.h"

/* vcvtneps2bf16 treats numbers below 2^-126 as 0. */
INLINE __m256i narrow_lanes(__mmask16 mask, const float *from) {
    return (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from));
}

INLINE __mmask16 first_lanes(int64_t count) {
    return count < LANES ? v_lane_mask((int)count) : (__mmask16)-1;
}

static void narrow(const float *from, uint16_t *to, int64_t count) {
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES)
        _mm512_storeu_si512(to + i, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + LANES),
                                                                 _mm512_loadu_ps(from + i)));
    for (; i < count; i += LANES) {
        const __mmask16 mask = first_lanes(count - i);
        _mm256_mask_storeu_epi16(to + i, mask, narrow_lanes(mask, from + i));
    }
}

/* The numbers of two vectors, one after the other, in turn: 0, 16, 1, 17, .. */
INLINE __m512i in_turn(__m512i both) {
    const __m512i first = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i turn = _mm512_or_si512(
        first, _mm512_slli_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(LANES)), 16));
    return _mm512_permutexvar_epi16(turn, both);
}

static void narrow_pairs(const float *a, const float *b, uint16_t *to, int count) {
    int i = 0;
    for (; i + LANES <= count; i += LANES)
        _mm512_storeu_si512(to + 2 * i, in_turn((__m512i)_mm512_cvtne2ps_pbh(
                                            _mm512_loadu_ps(b + i), _mm512_loadu_ps(a + i))));
    for (; i < count; i += LANES) {
        const __mmask16 mask = first_lanes(count - i);
        const __m512i low = _mm512_cvtepu16_epi32(narrow_lanes(mask, a + i));
        const __m512i high = _mm512_cvtepu16_epi32(narrow_lanes(mask, b + i));
        _mm512_mask_storeu_epi32(to + 2 * i, mask,
                                 _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

#define TABLE(isa, by_tiles)                                                                       \
    {                                                                                              \
        .name = (isa), .native = true, .plain = &plsh_linear_avx512, .tiles = (by_tiles),          \
        .narrow = narrow, .narrow_pairs = narrow_pairs, .dot = dot_few, .multiply = multiply       \
    }

const plsh_bfloat_kernels plsh_bfloat_avx512 = TABLE("avx512 bf16", NULL);
#if PLSH_WITH_AMX
const plsh_bfloat_kernels plsh_bfloat_amx = TABLE("avx512 amx", &plsh_tiles_amx);
#endif
