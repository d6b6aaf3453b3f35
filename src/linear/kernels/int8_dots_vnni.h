/* linear: few rows in int8 with registers of 512 bits. An even group of a row of W lies in the
 * lower half of a register and the odd one after it in the upper half, which are the two sums that
 * plsh_int8_dot defines. Several rows of W share what is read of x. The registers of 256
 * bits of int8_x86.h, with one row of W at a time, are limited by unpacking, not by memory. Q2_K,
 * Q3_K and IQ4_XS stay with the narrow registers. */
#ifndef PLSH_LINEAR_INT8_DOTS_VNNI_H
#define PLSH_LINEAR_INT8_DOTS_VNNI_H

#include "linear/kernels/int8_x86.h"

enum { MOST_OUTS = 4 }; /* rows of W at a time: what 32 registers hold */

/* Two groups of a row of W: w = scale (u - less) + offset. */
typedef struct int8_pair {
    __m512i u;
    __m512 scale;  /* of every sum of four products */
    __m128 offset; /* of the even and of the odd group */
} int8_pair;

/* What a block of 256 values has once: scales of its 8 groups (Q6_K: of its 16 halves) and their
 * offsets. */
typedef struct int8_block {
    __m512 scale;
    __m256 offset;
} int8_block;

/* `even` in the lower half of a register, `odd` in the upper. */
INLINE __m512i in_halves(long long even, long long odd) {
    return _mm512_setr_epi64(even, even, even, even, odd, odd, odd, odd);
}

INLINE __m512i twice(const uint8_t *p) { return _mm512_broadcast_i64x4(bytes_at(p)); }

INLINE uint32_t word_at(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* The scales of two blocks, halves number 0 and `odd` of the 64 bytes, each in 8 lanes. */
INLINE __m512 spread_scales(__m512i head, const int odd) {
    const __m512i even_odd =
        _mm512_setr_epi64(0, 0, odd * 0x0001000100010001LL, odd * 0x0001000100010001LL, 0, 0, 0, 0);
    return _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutexvar_epi16(even_odd, head)));
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
    pair->scale = spread_scales(head, odd);
    pair->offset = _mm_setzero_ps();
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
    if (plsh_int8_has_offset(type)) {
        const __m512i places = _mm512_castsi128_si512(_mm_cvtsi32_si128(1 | (odd + 1) << 16));
        pair->offset = _mm_cvtph_ps(_mm512_castsi512_si128(_mm512_permutexvar_epi16(places, head)));
    }
}

/* 8 bytes as floats, times `by`. */
INLINE __m256 scaled_bytes(uint64_t bytes, float by) {
    const __m256i whole = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
    return _mm256_mul_ps(_mm256_set1_ps(by), _mm256_cvtepi32_ps(whole));
}

INLINE void read_block(int8_block *to, const plsh_weight_type type, const uint8_t *block) {
    if (type == PLSH_WEIGHT_Q6_K) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(block + 192));
        const __m512 whole = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
        to->scale = _mm512_mul_ps(_mm512_set1_ps(half_at(block + 208)), whole);
        to->offset = _mm256_setzero_ps();
        return;
    }
    /* plsh_weight_k_scale for all groups: four in each word */
    const uint32_t a = word_at(block + 4), b = word_at(block + 8), c = word_at(block + 12);
    const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, upper = 0x30303030;
    const uint64_t s = (uint64_t)((c & four) | (a >> 2 & upper)) << 32 | (a & six);
    const uint64_t t = (uint64_t)((c >> 4 & four) | (b >> 2 & upper)) << 32 | (b & six);
    to->scale = _mm512_castps256_ps512(scaled_bytes(s, half_at(block)));
    to->offset = scaled_bytes(t, -half_at(block + 2));
}

/* Groups 2 i and 2 i + 1 of a block of 256. */
INLINE void read_pair_of(int8_pair *pair, const plsh_weight_type type, const int8_block *of,
                         const uint8_t *block, const int i) {
    pair->offset = _mm_setzero_ps();
    if (type == PLSH_WEIGHT_Q6_K) {
        const __m512i low = _mm512_srli_epi16(_mm512_loadu_si512(block + i / 2 * 64), i % 2 * 4);
        const __m512i turn = i % 2 ? in_halves(0, 62) : in_halves(4, 2);
        const __m512i high = _mm512_rolv_epi64(twice(block + 128 + i / 2 * 32), turn);
        pair->u = _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi8(15)),
                                  _mm512_and_si512(high, _mm512_set1_epi8(0x30)));
        const __m512i of_halves = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        pair->scale =
            _mm512_permutexvar_ps(_mm512_add_epi32(of_halves, _mm512_set1_epi32(4 * i)), of->scale);
        return;
    }
    const bool five = type == PLSH_WEIGHT_Q5_K;
    const __m512i both = twice(block + (five ? 48 : 16) + i * 32);
    pair->u = _mm512_and_si512(_mm512_srlv_epi64(both, in_halves(0, 4)), _mm512_set1_epi8(15));
    if (five) {
        const __m512i bit = in_halves((1LL << 2 * i) * 0x0101010101010101LL,
                                      (long long)((2ULL << 2 * i) * 0x0101010101010101ULL));
        pair->u = _mm512_mask_add_epi8(pair->u, _mm512_test_epi8_mask(twice(block + 16), bit),
                                       pair->u, _mm512_set1_epi8(16));
    }
    const long long even = 2 * i * 0x0000000100000001LL;
    pair->scale = _mm512_permutexvar_ps(in_halves(even, even + 0x0000000100000001LL), of->scale);
    const __m128 four =
        i < 2 ? _mm256_castps256_ps128(of->offset) : _mm256_extractf128_ps(of->offset, 1);
    pair->offset = i % 2 ? _mm_movehl_ps(four, four) : four;
}

/* Two numbers of a row of x, one for each group, 0 where there is only one. */
INLINE __m128 two_at(const float *p, const int count) {
    double both;
    if (count < 2) return _mm_load_ss(p);
    memcpy(&both, p, sizeof both);
    return _mm_castpd_ps(_mm_set_sd(both));
}

INLINE __m512 spread_two(__m128 two) {
    const __m512i even_odd = in_halves(0, 0x0000000100000001LL);
    return _mm512_permutexvar_ps(even_odd, _mm512_castps128_ps512(two));
}

typedef struct pair_sums {
    __m512 lanes[MOST_OUTS][TOGETHER];
    __m128 rest[MOST_OUTS][TOGETHER];
} pair_sums;

/* A pair of O rows of W against rows r .. r + R - 1 of x. */
INLINE void add_pairs(const plsh_weight_type type, const int O, const int R, pair_sums *sums,
                      const int8_pair *pair, const plsh_int8_dot *dot, int r, int64_t at,
                      const int count) {
    const int64_t groups = dot->x.in / 32;
    const __m512i less = _mm512_set1_epi8((char)plsh_int8_less(type));
    UNROLL for (int i = 0; i < R; i++) {
        const int64_t row = r + i;
        const int8_t *from = dot->x.p + row * dot->x.in + at * 32;
        const __m512i p = count == 2
                              ? _mm512_loadu_si512(from)
                              : _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)from));
        const __m512 scale = spread_two(two_at(dot->x.scale + row * groups + at, count));
        __m512i begin = _mm512_setzero_si512();
        if (!plsh_int8_has_offset(type))
            begin = _mm512_sub_epi32(begin, _mm512_dpbusd_epi32(begin, less, p));
        UNROLL for (int o = 0; o < O; o++) {
            const __m512i sum = _mm512_dpbusd_epi32(begin, pair[o].u, p);
            sums->lanes[o][i] = _mm512_fmadd_ps(
                _mm512_cvtepi32_ps(sum), _mm512_mul_ps(pair[o].scale, scale), sums->lanes[o][i]);
            if (!plsh_int8_has_offset(type)) continue;
            const __m128 sum_x = two_at(dot->x.sum + row * groups + at, count);
            sums->rest[o][i] = _mm_fmadd_ps(pair[o].offset, sum_x, sums->rest[o][i]);
        }
    }
}

/* How far ahead memory is asked for while O rows are read side by side: the same place of the next
 * O rows. At 1024 bytes, for inputs of 576 to 1536, the address lay in the rows that were being
 * read, and Q8_0 from memory took 1.2 to 1.4 times as long. Long rows are read ahead within
 * themselves: O of them would not stay in the first cache. */
INLINE size_t ahead_of(const int O, size_t row_bytes) {
    const size_t next = (size_t)O * row_bytes;
    return next <= 8192 ? next : 2 * AHEAD;
}

/* y[r .. r + R)[o .. o + O). */
INLINE void dot_wide(const plsh_weight_type type, const int O, const int R,
                     const plsh_int8_dot *dot, int64_t o, int r) {
    const bool super = plsh_int8_is_super(type);
    const int bytes = plsh_weight_block_bytes(type), step = super ? 8 : 2;
    const int64_t groups = dot->x.in / 32;
    const size_t ahead = ahead_of(O, dot->row_bytes);
    const uint8_t *row = (const uint8_t *)dot->weight + (size_t)o * dot->row_bytes;
    int8_pair pair[MOST_OUTS];
    int8_block block[MOST_OUTS];
    pair_sums sums;
    UNROLL for (int j = 0; j < O; j++) {
        UNROLL for (int i = 0; i < R; i++) {
            sums.lanes[j][i] = _mm512_setzero_ps();
            sums.rest[j][i] = _mm_setzero_ps();
        }
    }
    int64_t at = 0;
    for (; at + step <= groups; at += step, row += super ? bytes : 2 * bytes) {
        UNROLL for (int i = 0; i < step / 2; i++) {
            UNROLL for (int j = 0; j < O; j++) {
                const uint8_t *from = row + (size_t)j * dot->row_bytes;
                __builtin_prefetch(from + ahead + i * 64);
                if (super && i == 0) read_block(&block[j], type, from);
                if (super)
                    read_pair_of(&pair[j], type, &block[j], from, i);
                else
                    read_pair(&pair[j], type, from, 2);
            }
            add_pairs(type, O, R, &sums, pair, dot, r, at + 2 * i, 2);
        }
    }
    if (!super && at < groups) {
        UNROLL for (int j = 0; j < O; j++)
            read_pair(&pair[j], type, row + (size_t)j * dot->row_bytes, 1);
        add_pairs(type, O, R, &sums, pair, dot, r, at, 1);
    }
    UNROLL for (int j = 0; j < O; j++) {
        UNROLL for (int i = 0; i < R; i++) {
            const float start = dot->start ? dot->start[(r + i) * dot->start_stride + o + j] : 0.0f;
            const __m128 rest = sums.rest[j][i];
            const __m512 lanes = sums.lanes[j][i];
            const float sum =
                total(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
            dot->y[(r + i) * dot->y_stride + o + j] =
                start + (sum + _mm_cvtss_f32(_mm_add_ss(rest, _mm_movehdup_ps(rest))));
        }
    }
}

/* MOST_OUTS rows of W against all rows of x. */
INLINE void dot_rows(const plsh_weight_type type, const plsh_int8_dot *dot, int64_t o) {
    int r = 0;
    for (; r + 4 <= dot->rows; r += 4) {
        for (int j = 0; j < MOST_OUTS; j += 2) dot_wide(type, 2, 4, dot, o + j, r);
    }
    for (; r + 2 <= dot->rows; r += 2) dot_wide(type, MOST_OUTS, 2, dot, o, r);
    if (r < dot->rows) dot_wide(type, MOST_OUTS, 1, dot, o, r);
}

INLINE bool is_wide(const plsh_weight_type type) {
    return type != PLSH_WEIGHT_Q2_K && type != PLSH_WEIGHT_Q3_K && type != PLSH_WEIGHT_IQ4_XS;
}

INLINE void dot_few_wide(const plsh_weight_type type, const plsh_int8_dot *dot) {
    int64_t o = 0;
    if (!is_wide(type)) {
        dot_few(type, dot);
        return;
    }
    for (; o + MOST_OUTS <= dot->outs; o += MOST_OUTS) dot_rows(type, dot, o);
    for (; o < dot->outs; o++) {
        for (int r = 0; r < dot->rows; r++) dot_wide(type, 1, 1, dot, o, r);
    }
}

#endif
