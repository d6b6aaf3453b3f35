/* linear: products in int8 with registers of 256 bits: stored groups as bytes, and few rows. The
 * including file has defined
 *     stores_signed(type)        see int8_template.h
 *     sum_words(type, word, p)   4 sums for each half of p: of the products of byte 4 k + i of the
 *                                half with byte i of each number of word[k], k = 0 .. 3 */
#ifndef PLSH_LINEAR_INT8_X86_H
#define PLSH_LINEAR_INT8_X86_H

#include <immintrin.h>
#include <string.h>

#include "base/simd/vector_math.h"
#include "linear/kernels/int8.h"
#include "linear/types.h"

INLINE float half_at(const uint8_t *bytes) {
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

INLINE __m256i bytes_at(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }

/* The bits x >> by of every byte that `mask` keeps, 0 <= by < 8. */
INLINE __m256i shifted(__m256i x, const int by, const int mask) {
    return _mm256_and_si256(_mm256_srli_epi16(x, by), _mm256_set1_epi8((char)mask));
}

/* 16 bytes: values 0..15 in their low halves, 16..31 in their high ones. */
INLINE __m256i nibbles(const uint8_t *p) {
    const __m128i b = _mm_loadu_si128((const __m128i *)p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(b, 4), b), _mm256_set1_epi8(15));
}

/* 16 in byte j where bit j is set. */
INLINE __m256i fifth_bits(const uint8_t *p) {
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    const __m256i spread =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i each =
        _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(each, bit), _mm256_set1_epi8(16));
}

/* Q6_K: group g of 8, four in each half of the block. */
INLINE __m256i six_values(const uint8_t *block, const int g) {
    const __m256i low = bytes_at(block + g / 4 * 64 + g % 2 * 32);
    const __m256i high = bytes_at(block + 128 + g / 4 * 32);
    return _mm256_or_si256(shifted(low, g % 4 / 2 * 4, 15),
                           _mm256_slli_epi16(shifted(high, 2 * (g % 4), 3), 4));
}

/* Group g of a block, 0 or 0..7 in a block of 256: u_j, of types of 8 bits the signed q_j. */
INLINE __m256i read_values(const plsh_weight_type type, const uint8_t *block, const int g) {
    if (type == PLSH_WEIGHT_Q8_0) return bytes_at(block + 2);
    if (type == PLSH_WEIGHT_Q6_K) return six_values(block, g);
    if (type == PLSH_WEIGHT_Q2_K) return shifted(bytes_at(block + 16 + g / 4 * 32), 2 * (g % 4), 3);
    if (type == PLSH_WEIGHT_Q3_K)
        return _mm256_or_si256(shifted(bytes_at(block + 32 + g / 4 * 32), 2 * (g % 4), 3),
                               _mm256_slli_epi16(shifted(bytes_at(block), g, 1), 2));
    if (plsh_weight_is_table(type)) {
        const __m128i table = _mm_loadu_si128((const __m128i *)plsh_weight_iq4);
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table),
                                   nibbles(block + (type == PLSH_WEIGHT_IQ4_NL ? 2 : 8 + 16 * g)));
    }
    const bool five = plsh_int8_bits(type) == 5;
    if (plsh_int8_is_super(type)) {
        const __m256i low = shifted(bytes_at(block + (five ? 48 : 16) + g / 2 * 32), g % 2 * 4, 15);
        if (!five) return low;
        return _mm256_or_si256(low, _mm256_slli_epi16(shifted(bytes_at(block + 16), g, 1), 4));
    }
    const int head = plsh_int8_has_offset(type) ? 4 : 2;
    if (!five) return nibbles(block + head);
    return _mm256_or_si256(nibbles(block + head + 4), fifth_bits(block + head));
}

/* ---- Scales and offsets of a block of 256 values -------------------------------------------- */

/* Those of 8 groups, or of 16 halves of groups: whole numbers, and what they are multiplied by. */
typedef struct int8_factors {
    __m128i scale, offset; /* bytes */
    float by, offset_by;
} int8_factors;

INLINE uint32_t word_at(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* plsh_weight_k_scale for all groups: four in each word. */
INLINE int8_factors k_factors(const uint8_t *block) {
    const uint32_t a = word_at(block + 4), b = word_at(block + 8), c = word_at(block + 12);
    const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, upper = 0x30303030;
    const uint64_t s = (uint64_t)((c & four) | (a >> 2 & upper)) << 32 | (a & six);
    const uint64_t t = (uint64_t)((c >> 4 & four) | (b >> 2 & upper)) << 32 | (b & six);
    return (int8_factors){_mm_cvtsi64_si128((long long)s), _mm_cvtsi64_si128((long long)t),
                          half_at(block), -half_at(block + 2)};
}

INLINE int8_factors two_factors(const uint8_t *block) {
    const __m128i both = _mm_loadu_si128((const __m128i *)block), low = _mm_set1_epi8(15);
    return (int8_factors){_mm_and_si128(both, low), _mm_and_si128(_mm_srli_epi16(both, 4), low),
                          half_at(block + 80), -half_at(block + 82)};
}

INLINE int8_factors three_factors(const uint8_t *block) {
    int8_t scale[16];
    for (int i = 0; i < 16; i++) scale[i] = (int8_t)plsh_weight_q3_scale(block + 96, i);
    return (int8_factors){.scale = _mm_loadu_si128((const __m128i *)scale),
                          .by = half_at(block + 108)};
}

INLINE int8_factors table_factors(const uint8_t *block) {
    int8_t scale[16] = {0};
    for (int g = 0; g < 8; g++) scale[g] = (int8_t)plsh_weight_iq4_scale(block, g);
    return (int8_factors){.scale = _mm_loadu_si128((const __m128i *)scale), .by = half_at(block)};
}

INLINE int8_factors read_factors(const plsh_weight_type type, const uint8_t *block) {
    if (type == PLSH_WEIGHT_Q6_K)
        return (int8_factors){.scale = _mm_loadu_si128((const __m128i *)(block + 192)),
                              .by = half_at(block + 208)};
    if (type == PLSH_WEIGHT_Q2_K) return two_factors(block);
    if (type == PLSH_WEIGHT_Q3_K) return three_factors(block);
    return plsh_weight_is_table(type) ? table_factors(block) : k_factors(block);
}

/* Bytes 8 part .. 8 part + 7 as floats, times `by`. */
INLINE __m256 scaled_bytes(__m128i bytes, const int part, float by) {
    const __m128i eight = part ? _mm_unpackhi_epi64(bytes, bytes) : bytes;
    return _mm256_mul_ps(_mm256_set1_ps(by), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)));
}

/* ---- A row of a panel ----------------------------------------------------------------------- */

/* The bytes are signed where the kernels' panels hold such. */
INLINE __m256i read_bytes(const plsh_weight_type type, const uint8_t *block, const int g) {
    const __m256i values = read_values(type, block, g);
    if (plsh_int8_bits(type) != 8 || stores_signed(type)) return values;
    return _mm256_xor_si256(values, _mm256_set1_epi8((char)0x80));
}

INLINE void unpack(const plsh_weight_type type, const void *from, uint8_t *bytes, float *scale,
                   float *offset, int64_t count) {
    const int groups = plsh_int8_is_super(type) ? 8 : 1;
    const int per_group = plsh_weight_has_halves(type) ? 2 : 1;
    const uint8_t *block = from;
    for (int64_t i = 0; i < count / 32; i += groups, block += plsh_weight_block_bytes(type)) {
        UNROLL for (int g = 0; g < groups; g++)
            _mm256_storeu_si256((__m256i *)(bytes + (i + g) * 32), read_bytes(type, block, g));
        if (!plsh_int8_is_super(type)) {
            scale[i] = half_at(block);
            if (plsh_int8_has_offset(type)) offset[i] = half_at(block + 2);
            continue;
        }
        const int8_factors f = read_factors(type, block);
        UNROLL for (int part = 0; part < per_group; part++) {
            const int64_t at = per_group * i + 8 * part;
            _mm256_storeu_ps(scale + at, scaled_bytes(f.scale, part, f.by));
            if (plsh_int8_has_offset(type))
                _mm256_storeu_ps(offset + at, scaled_bytes(f.offset, part, f.offset_by));
        }
    }
}

/* ---- Few rows ------------------------------------------------------------------------------- */

/* Rows of W that are read side by side. Their words of 4 bytes are transposed, so that a register
 * adds up the products of each of them in a lane of its own. */
enum { OUTS = 4, TOGETHER = PLSH_LINEAR_FEW_ROWS, AHEAD = 2048 };

/* How far ahead memory is asked for: the same place of later rows, at least 4 KiB away. Found by
 * measuring Q4_1, Q8_0 and Q4_K from memory: the next OUTS rows of 576 values are too near (up to
 * 1.4 times the time), 10 KiB too far (1.2 times). Long rows are read ahead within themselves: OUTS
 * of them would not stay in the first cache. */
INLINE size_t ahead_of(size_t row_bytes) {
    const size_t next = OUTS * row_bytes;
    return next <= 8192 ? (2 * AHEAD + next - 1) / next * next : AHEAD;
}

/* Where a kernel is: a row of W, and the next. A row that stands for OUTS is 0 bytes from itself.
 */
typedef struct dot_place {
    const uint8_t *row;
    size_t next, ahead;
} dot_place;

/* y[r][o .. o + outs), outs = 1 or OUTS. */
INLINE __m128 load_outs(const plsh_int8_dot *dot, int r, int64_t o, int outs) {
    if (!dot->start) return _mm_setzero_ps();
    const float *from = dot->start + r * dot->start_stride + o;
    return outs == OUTS ? _mm_loadu_ps(from) : _mm_load_ss(from);
}

INLINE void store_outs(const plsh_int8_dot *dot, int r, int64_t o, int outs, __m128 y) {
    float *to = dot->y + r * dot->y_stride + o;
    if (outs == OUTS)
        _mm_storeu_ps(to, y);
    else
        _mm_store_ss(to, y);
}

/* 4 x 4 words of 4 bytes in each half of the registers. */
INLINE void transpose_words(__m256i word[4]) {
    const __m256i ab = _mm256_unpacklo_epi32(word[0], word[1]);
    const __m256i cd = _mm256_unpacklo_epi32(word[2], word[3]);
    const __m256i high_ab = _mm256_unpackhi_epi32(word[0], word[1]);
    const __m256i high_cd = _mm256_unpackhi_epi32(word[2], word[3]);
    word[0] = _mm256_unpacklo_epi64(ab, cd);
    word[1] = _mm256_unpackhi_epi64(ab, cd);
    word[2] = _mm256_unpacklo_epi64(high_ab, high_cd);
    word[3] = _mm256_unpackhi_epi64(high_ab, high_cd);
}

/* Word k: number k of each half of a group, of OUTS rows of W. */
INLINE void read_words(__m256i word[4], const plsh_weight_type type, const dot_place *place,
                       const int g) {
    UNROLL for (int j = 0; j < OUTS; j++) {
        const uint8_t *block = place->row + (size_t)j * place->next;
        if (g % 2 == 0) __builtin_prefetch(block + place->ahead + g * 32);
        word[j] = read_bytes(type, block, g);
    }
    transpose_words(word);
}

/* to[i] = number i of each register. */
INLINE void transpose_eight(__m128 to[8], const __m256 from[4]) {
    __m256i word[4];
    UNROLL for (int j = 0; j < 4; j++) word[j] = _mm256_castps_si256(from[j]);
    transpose_words(word);
    UNROLL for (int i = 0; i < 4; i++) {
        to[i] = _mm_castsi128_ps(_mm256_castsi256_si128(word[i]));
        to[i + 4] = _mm_castsi128_ps(_mm256_extracti128_si256(word[i], 1));
    }
}

/* The scales and offsets of a block of OUTS rows of W. */
typedef struct outs_factors {
    __m128 scale[16], offset[16];
} outs_factors;

INLINE void read_outs_factors(outs_factors *to, const plsh_weight_type type,
                              const dot_place *place) {
    int8_factors f[OUTS];
    UNROLL for (int j = 0; j < OUTS; j++) f[j] =
        read_factors(type, place->row + (size_t)j * place->next);
    for (int part = 0; part < (plsh_weight_has_halves(type) ? 2 : 1); part++) {
        __m256 scale[OUTS], offset[OUTS];
        UNROLL for (int j = 0; j < OUTS; j++) {
            scale[j] = scaled_bytes(f[j].scale, part, f[j].by);
            if (plsh_int8_has_offset(type))
                offset[j] = scaled_bytes(f[j].offset, part, f[j].offset_by);
        }
        transpose_eight(to->scale + 8 * part, scale);
        if (plsh_int8_has_offset(type)) transpose_eight(to->offset + 8 * part, offset);
    }
}

/* The same of blocks of 32 values, whose halves are at the front. */
INLINE void read_small_factors(outs_factors *to, const plsh_weight_type type,
                               const dot_place *place) {
    const uint8_t *a = place->row, *b = a + place->next, *c = b + place->next, *d = c + place->next;
    const __m128i four =
        _mm_setr_epi32((int)word_at(a), (int)word_at(b), (int)word_at(c), (int)word_at(d));
    const __m128i turn = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m128i halves = _mm_shuffle_epi8(four, turn);
    to->scale[0] = _mm_cvtph_ps(halves);
    if (plsh_int8_has_offset(type))
        to->offset[0] = _mm_cvtph_ps(_mm_unpackhi_epi64(halves, halves));
}

/* Group `at` of OUTS rows of W against R rows of x from `first` on. It is number g of a block. */
INLINE void dot_group(const plsh_weight_type type, const int R, __m128 *y, const plsh_int8_rows *x,
                      int first, const __m256i word[4], const outs_factors *factors, int64_t at,
                      const int g) {
    const int64_t groups = x->in / 32;
    const int per_group = plsh_weight_has_halves(type) ? 2 : 1;
    UNROLL for (int r = 0; r < R; r++) {
        const int64_t here = (first + r) * groups + at;
        __m256i sum = sum_words(type, word, bytes_at((const uint8_t *)x->p + here * 32));
        if (!plsh_int8_has_offset(type) && !stores_signed(type)) {
            const __m256i less = _mm256_set_m128i(_mm_set1_epi32(x->half[2 * here + 1]),
                                                  _mm_set1_epi32(x->half[2 * here]));
            sum = _mm256_add_epi32(sum, _mm256_slli_epi32(less, plsh_int8_bits(type) - 1));
        }
        __m128i half[2] = {_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)};
        if (per_group == 1) half[0] = _mm_add_epi32(half[0], half[1]);
        const __m128 scale = _mm_set1_ps(x->scale[here]);
        UNROLL for (int h = 0; h < per_group; h++) y[r] = _mm_fmadd_ps(
            _mm_cvtepi32_ps(half[h]), _mm_mul_ps(factors->scale[per_group * g + h], scale), y[r]);
        if (!plsh_int8_has_offset(type)) continue;
        UNROLL for (int h = 0; h < per_group; h++) {
            const __m128 sum_x = _mm_set1_ps(plsh_int8_sum(type, x, first + r, at * per_group + h));
            y[r] = _mm_fmadd_ps(sum_x, factors->offset[per_group * g + h], y[r]);
        }
    }
}

/* y[r .. r + R)[o .. o + outs). */
INLINE void dot_outs(const plsh_weight_type type, const int R, const plsh_int8_dot *dot, int r,
                     int64_t o, int outs) {
    const int step = plsh_int8_is_super(type) ? 8 : 1;
    const int64_t groups = dot->x.in / 32;
    dot_place place = {(const uint8_t *)dot->weight + (size_t)o * dot->row_bytes,
                       outs == OUTS ? dot->row_bytes : 0, ahead_of(dot->row_bytes)};
    __m128 y[TOGETHER];
    UNROLL for (int i = 0; i < R; i++) y[i] = load_outs(dot, r + i, o, outs);
    for (int64_t at = 0; at < groups; at += step, place.row += plsh_weight_block_bytes(type)) {
        outs_factors factors;
        if (step == 8)
            read_outs_factors(&factors, type, &place);
        else
            read_small_factors(&factors, type, &place);
        UNROLL for (int g = 0; g < step; g++) {
            __m256i word[4];
            read_words(word, type, &place, g);
            dot_group(type, R, y, &dot->x, r, word, &factors, at + g, g);
        }
    }
    UNROLL for (int i = 0; i < R; i++) store_outs(dot, r + i, o, outs, y[i]);
}

/* Row by row of W, so that memory is read in order. */
INLINE void dot_few(const plsh_weight_type type, const plsh_int8_dot *dot) {
    int outs;
    for (int64_t o = 0; o < dot->outs; o += outs) {
        int r = 0;
        outs = dot->outs - o < OUTS ? 1 : OUTS;
        for (; r + 4 <= dot->rows; r += 4) dot_outs(type, 4, dot, r, o, outs);
        for (; r + 2 <= dot->rows; r += 2) dot_outs(type, 2, dot, r, o, outs);
        if (r < dot->rows) dot_outs(type, 1, dot, r, o, outs);
    }
}

#endif
