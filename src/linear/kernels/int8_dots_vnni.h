/* linear: few rows in int8 with registers of 512 bits. An even group of a row of W lies in the
 * lower half of a register and the odd one after it in the upper half. Otherwise the sums are those
 * of int8_x86.h, whose registers of 256 bits are limited by unpacking, not by memory. Q2_K, Q3_K
 * and IQ4_XS stay with the narrow registers. */
#ifndef PLSH_LINEAR_INT8_DOTS_VNNI_H
#define PLSH_LINEAR_INT8_DOTS_VNNI_H

#include "linear/kernels/int8_x86.h"

/* Two groups of a row of W: w = scale (u - less) + offset. */
typedef struct int8_pair {
    __m512i u;
    __m128 factors; /* the scales of the groups and their offsets; Q6_K: the scales of 4 halves */
} int8_pair;

/* `even` in the lower half of a register, `odd` in the upper. */
INLINE __m512i in_halves(long long even, long long odd) {
    return _mm512_setr_epi64(even, even, even, even, odd, odd, odd, odd);
}

INLINE __m512i twice(const uint8_t *p) { return _mm512_broadcast_i64x4(bytes_at(p)); }

/* The scales of two blocks, halves number 0 and `odd` of the 64 bytes, and the offsets after each.
 */
INLINE __m128 pair_factors(__m512i head, const int odd) {
    const __m128i at = _mm_setr_epi16(0, (short)odd, 1, (short)(odd + 1), 0, 0, 0, 0);
    return _mm_cvtph_ps(
        _mm512_castsi512_si128(_mm512_permutexvar_epi16(_mm512_castsi128_si512(at), head)));
}

/* The 16 bytes at half number `at` and those at `at` + `odd`: of each, the low nibbles and then the
 * high ones. */
INLINE __m512i pair_nibbles(__m512i head, const int at, const int odd) {
    const __m512i step = _mm512_set_epi64(
        0x0007000600050004, 0x0003000200010000, 0x0007000600050004, 0x0003000200010000,
        0x0007000600050004, 0x0003000200010000, 0x0007000600050004, 0x0003000200010000);
    const __m512i first = in_halves(at * 0x0001000100010001LL, (at + odd) * 0x0001000100010001LL);
    const __m512i both = _mm512_permutexvar_epi16(_mm512_add_epi16(first, step), head);
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    return _mm512_and_si512(_mm512_srlv_epi64(both, shift), _mm512_set1_epi8(15));
}

/* Types with blocks of 32 values; `count` of the two blocks are there. */
INLINE void read_pair(int8_pair *pair, const plsh_weight_type type, const uint8_t *block,
                      const int count) {
    const int bytes = plsh_weight_block_bytes(type), odd = bytes / 2;
    const int words = count * odd > 32 ? 32 : count * odd;
    const __mmask32 there = (__mmask32)((1ULL << words) - 1);
    const __m512i head = _mm512_maskz_loadu_epi16(there, block);
    pair->factors = pair_factors(head, odd);
    if (type == PLSH_WEIGHT_Q8_0) {
        pair->u = _mm512_castsi256_si512(bytes_at(block + 2));
        pair->u = _mm512_inserti64x4(
            pair->u, count == 2 ? bytes_at(block + bytes + 2) : _mm256_setzero_si256(), 1);
        pair->u = _mm512_xor_si512(pair->u, _mm512_set1_epi8((char)0x80));
        return;
    }
    const bool five = plsh_int8_bits(type) == 5;
    const int at = (plsh_int8_has_offset(type) ? 2 : 1) + (five ? 2 : 0);
    pair->u = pair_nibbles(head, at, odd);
    if (plsh_weight_is_table(type)) {
        const __m128i table = _mm_xor_si128(_mm_loadu_si128((const __m128i *)plsh_weight_iq4),
                                            _mm_set1_epi8((char)0x80));
        pair->u = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), pair->u);
    }
    if (five) {
        const uint8_t *bits = block + 2 * (at - 2);
        const uint64_t upper = count == 2 ? word_at(bits + bytes) : 0;
        pair->u = _mm512_mask_add_epi8(pair->u, upper << 32 | word_at(bits), pair->u,
                                       _mm512_set1_epi8(16));
    }
}

/* Groups 2 i and 2 i + 1 of a block of 256. */
INLINE __m512i pair_values(const plsh_weight_type type, const uint8_t *block, const int i) {
    if (type == PLSH_WEIGHT_Q6_K) {
        const __m512i low = _mm512_srli_epi16(_mm512_loadu_si512(block + i / 2 * 64), i % 2 * 4);
        const __m512i turn = i % 2 ? in_halves(0, 62) : in_halves(4, 2);
        const __m512i high = _mm512_rolv_epi64(twice(block + 128 + i / 2 * 32), turn);
        return _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi8(15)),
                               _mm512_and_si512(high, _mm512_set1_epi8(0x30)));
    }
    const bool five = type == PLSH_WEIGHT_Q5_K;
    const __m512i both = twice(block + (five ? 48 : 16) + i * 32);
    const __m512i four =
        _mm512_and_si512(_mm512_srlv_epi64(both, in_halves(0, 4)), _mm512_set1_epi8(15));
    if (!five) return four;
    const __m512i bit = in_halves((1LL << 2 * i) * 0x0101010101010101LL,
                                  (long long)((2ULL << 2 * i) * 0x0101010101010101ULL));
    return _mm512_mask_add_epi8(four, _mm512_test_epi8_mask(twice(block + 16), bit), four,
                                _mm512_set1_epi8(16));
}

INLINE void transpose_pair_words(__m512i word[4]) {
    const __m512i ab = _mm512_unpacklo_epi32(word[0], word[1]);
    const __m512i cd = _mm512_unpacklo_epi32(word[2], word[3]);
    const __m512i high_ab = _mm512_unpackhi_epi32(word[0], word[1]);
    const __m512i high_cd = _mm512_unpackhi_epi32(word[2], word[3]);
    word[0] = _mm512_unpacklo_epi64(ab, cd);
    word[1] = _mm512_unpackhi_epi64(ab, cd);
    word[2] = _mm512_unpacklo_epi64(high_ab, high_cd);
    word[3] = _mm512_unpackhi_epi64(high_ab, high_cd);
}

/* Words as those of read_words, of a pair of OUTS rows of W: number i of a block of 256 values, or
 * `count` blocks of 32. Of these also the scales and offsets. */
INLINE void read_pairs(__m512i word[4], outs_factors *factors, const plsh_weight_type type,
                       const dot_place *place, const int i, const int count) {
    __m128 of[OUTS];
    UNROLL for (int j = 0; j < OUTS; j++) {
        const uint8_t *block = place->row + (size_t)j * place->next;
        __builtin_prefetch(block + place->ahead + i * 64);
        if (plsh_int8_is_super(type)) {
            word[j] = pair_values(type, block, i);
        } else {
            int8_pair pair;
            read_pair(&pair, type, block, count);
            word[j] = pair.u;
            of[j] = pair.factors;
        }
    }
    transpose_pair_words(word);
    if (plsh_int8_is_super(type)) return;
    _MM_TRANSPOSE4_PS(of[0], of[1], of[2], of[3]);
    UNROLL for (int g = 0; g < 2; g++) {
        factors->scale[g] = of[g];
        factors->offset[g] = of[2 + g];
    }
}

/* -(sum of p) of each half of a group, in 4 lanes each. */
INLINE __m512i spread_halves(const int32_t *half, const int count) {
    const __m512i each = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m128i four = count == 2 ? _mm_loadu_si128((const __m128i *)half)
                                    : _mm_loadl_epi64((const __m128i *)half);
    return _mm512_permutexvar_epi32(each, _mm512_castsi128_si512(four));
}

/* The sums of the products of u - less in each half of a group, for each of OUTS rows. */
INLINE __m512i sum_pairs(const plsh_weight_type type, const __m512i word[4],
                         const plsh_int8_rows *x, int64_t here, const int count) {
    const int8_t *from = x->p + here * 32;
    const __m512i p = count == 2
                          ? _mm512_loadu_si512(from)
                          : _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)from));
    __m512i sum = _mm512_setzero_si512();
    if (!plsh_int8_has_offset(type))
        sum = _mm512_slli_epi32(spread_halves(x->half + 2 * here, count),
                                (unsigned)plsh_int8_bits(type) - 1);
    sum = _mm512_dpbusd_epi32(sum, word[0], _mm512_shuffle_epi32(p, 0x00));
    sum = _mm512_dpbusd_epi32(sum, word[1], _mm512_shuffle_epi32(p, 0x55));
    sum = _mm512_dpbusd_epi32(sum, word[2], _mm512_shuffle_epi32(p, 0xaa));
    return _mm512_dpbusd_epi32(sum, word[3], _mm512_shuffle_epi32(p, 0xff));
}

INLINE __m128 add_scaled(__m128i sum, __m128 scale, float s, __m128 y) {
    return _mm_fmadd_ps(_mm_cvtepi32_ps(sum), _mm_mul_ps(scale, _mm_set1_ps(s)), y);
}

/* Groups at and at + 1 of OUTS rows of W against R rows of x from `first` on: a pair as in
 * read_pairs. */
INLINE void dot_pairs(const plsh_weight_type type, const int R, __m128 *y, const plsh_int8_rows *x,
                      int first, const __m512i word[4], const outs_factors *factors, int64_t at,
                      const int i, const int count) {
    UNROLL for (int r = 0; r < R; r++) {
        const int64_t here = (first + r) * (x->in / 32) + at;
        const __m512i sum = sum_pairs(type, word, x, here, count);
        const __m256i even = _mm512_castsi512_si256(sum), odd = _mm512_extracti64x4_epi64(sum, 1);
        const __m128i half[4] = {_mm256_castsi256_si128(even), _mm256_extracti128_si256(even, 1),
                                 _mm256_castsi256_si128(odd), _mm256_extracti128_si256(odd, 1)};
        UNROLL for (int g = 0; g < count; g++) {
            const float s = x->scale[here + g];
            const __m128i both = _mm_add_epi32(half[2 * g], half[2 * g + 1]);
            if (plsh_weight_has_halves(type)) {
                y[r] = add_scaled(half[2 * g], factors->scale[4 * i + 2 * g], s, y[r]);
                y[r] = add_scaled(half[2 * g + 1], factors->scale[4 * i + 2 * g + 1], s, y[r]);
            } else {
                y[r] = add_scaled(both, factors->scale[2 * i + g], s, y[r]);
            }
            if (plsh_int8_has_offset(type))
                y[r] =
                    _mm_fmadd_ps(_mm_set1_ps(x->sum[here + g]), factors->offset[2 * i + g], y[r]);
        }
    }
}

/* y[r .. r + R)[o .. o + outs). */
INLINE void dot_wide(const plsh_weight_type type, const int R, const plsh_int8_dot *dot, int r,
                     int64_t o, int outs) {
    const bool super = plsh_int8_is_super(type);
    const int bytes = plsh_weight_block_bytes(type), step = super ? 8 : 2;
    const int64_t groups = dot->x.in / 32;
    dot_place place = {(const uint8_t *)dot->weight + (size_t)o * dot->row_bytes,
                       outs == OUTS ? dot->row_bytes : 0, ahead_of(dot->row_bytes)};
    outs_factors factors;
    __m512i word[4];
    __m128 y[TOGETHER];
    UNROLL for (int i = 0; i < R; i++) y[i] = load_outs(dot, r + i, o, outs);
    int64_t at = 0;
    for (; at + step <= groups; at += step, place.row += super ? bytes : 2 * bytes) {
        if (super) read_outs_factors(&factors, type, &place);
        UNROLL for (int i = 0; i < step / 2; i++) {
            read_pairs(word, &factors, type, &place, i, 2);
            dot_pairs(type, R, y, &dot->x, r, word, &factors, at + 2 * i, i, 2);
        }
    }
    if (!super && at < groups) {
        read_pairs(word, &factors, type, &place, 0, 1);
        dot_pairs(type, R, y, &dot->x, r, word, &factors, at, 0, 1);
    }
    UNROLL for (int i = 0; i < R; i++) store_outs(dot, r + i, o, outs, y[i]);
}

INLINE bool is_wide(const plsh_weight_type type) {
    return type != PLSH_WEIGHT_Q2_K && type != PLSH_WEIGHT_Q3_K && type != PLSH_WEIGHT_IQ4_XS;
}

INLINE void dot_few_wide(const plsh_weight_type type, const plsh_int8_dot *dot) {
    int outs;
    if (!is_wide(type)) {
        dot_few(type, dot);
        return;
    }
    for (int64_t o = 0; o < dot->outs; o += outs) {
        int r = 0;
        outs = dot->outs - o < OUTS ? 1 : OUTS;
        for (; r + 4 <= dot->rows; r += 4) dot_wide(type, 4, dot, r, o, outs);
        for (; r + 2 <= dot->rows; r += 2) dot_wide(type, 2, dot, r, o, outs);
        if (r < dot->rows) dot_wide(type, 1, dot, r, o, outs);
    }
}

#endif
