/* linear: products in int8 for AVX2. vpmaddubsw adds two products in int16 and saturates: products
 * of 4, 5 and 6 bits with 127 leave room for 8, 4 and 2 such sums (30480, 31496, 32004), of fewer
 * bits for a whole run; types of 8 bits take |q| and the activation with q's sign, 2 * 128 * 127 =
 * 32512. */
#include "base/simd/vector_avx2.h"
#include "base/simd/vector_math.h"
#include "linear/kernels/int8.h"

#define BLOCK_ROWS 4
#define BLOCK_VECTORS 2
enum { WIDTH = BLOCK_VECTORS * LANES };

typedef int32_t vint __attribute__((vector_size(32)));

INLINE vint i_set(int32_t x) { return (vint)_mm256_set1_epi32(x); }
INLINE vector v_float(vint x) { return _mm256_cvtepi32_ps((__m256i)x); }
INLINE __m256i i_pairs(__m256i sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
INLINE bool stores_signed(const plsh_weight_type type) { return plsh_int8_bits(type) == 8; }

/* 2 sums of 2 products in int16 per column: one word of 4 bytes. */
INLINE __m256i word_sums(const plsh_weight_type type, __m256i w, __m256i size, __m256i x) {
    if (plsh_int8_bits(type) == 8) return _mm256_maddubs_epi16(size, _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
}

INLINE void add_words(const plsh_weight_type type, const int R, const int words,
                      vint sum[][BLOCK_VECTORS], const uint8_t *panel, const int8_t *p,
                      int64_t stride) {
    const int bits = plsh_int8_bits(type), most = bits == 8 ? 1 : 128 >> bits;
    const int some = most < words ? most : words;
    UNROLL for (int from = 0; from < words; from += some) {
        __m256i narrow[BLOCK_ROWS][BLOCK_VECTORS];
        UNROLL for (int k = from; k < from + some; k++) {
            __m256i w[BLOCK_VECTORS], size[BLOCK_VECTORS];
            UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) {
                w[c] = _mm256_loadu_si256((const __m256i *)(panel + (k * WIDTH + c * LANES) * 4));
                size[c] = _mm256_abs_epi8(w[c]);
            }
            UNROLL for (int r = 0; r < R; r++) {
                int32_t word;
                __builtin_memcpy(&word, p + r * stride + k * 4, sizeof word);
                const __m256i x = _mm256_set1_epi32(word);
                UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) {
                    const __m256i two = word_sums(type, w[c], size[c], x);
                    narrow[r][c] = k == from ? two : _mm256_add_epi16(narrow[r][c], two);
                }
            }
        }
        UNROLL for (int r = 0; r < R; r++) {
            UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) sum[r][c] += (vint)i_pairs(narrow[r][c]);
        }
    }
}

INLINE __m256i sum_words(const plsh_weight_type type, const __m256i word[4], __m256i p) {
    const int bits = plsh_int8_bits(type), most = bits == 8 ? 1 : 128 >> bits;
    const int some = most < 4 ? most : 4;
    const __m256i x[4] = {_mm256_shuffle_epi32(p, 0x00), _mm256_shuffle_epi32(p, 0x55),
                          _mm256_shuffle_epi32(p, 0xaa), _mm256_shuffle_epi32(p, 0xff)};
    __m256i sum = _mm256_setzero_si256();
    UNROLL for (int from = 0; from < 4; from += some) {
        __m256i narrow = _mm256_setzero_si256();
        UNROLL for (int k = from; k < from + some; k++) narrow =
            _mm256_add_epi16(narrow, word_sums(type, word[k], _mm256_abs_epi8(word[k]), x[k]));
        sum = _mm256_add_epi32(sum, i_pairs(narrow));
    }
    return sum;
}

#include "linear/kernels/int8_x86.h"

#include "linear/kernels/int8_template.h"

const plsh_int8_kernels plsh_int8_avx2 =
    INT8_TABLE("avx2", &plsh_linear_avx2, true, PLSH_LINEAR_FEW, NULL);
