/* linear: products in int8 with registers of 256 bits: stored groups as bytes, and few rows. The
 * including file has defined
 *     i_quads(u, p)   8 sums of 4 products of bytes, u without sign and at most 128, p with sign */
#ifndef PLSH_LINEAR_INT8_X86_H
#define PLSH_LINEAR_INT8_X86_H

#include <immintrin.h>
#include <string.h>

#include "base/simd/vector_math.h"
#include "linear/kernels/int8.h"
#include "linear/types.h"

/* A group of 32 values: u_j (of types of 8 bits the signed q_j), and what they are multiplied by.
 */
typedef struct int8_group {
    __m256i u;
    float scale[2];  /* of the first and of the second 16 values; see plsh_weight_has_halves */
    float offset[2]; /* of the types that have one */
} int8_group;

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

INLINE void set_scale(int8_group *group, float scale, float offset) {
    group->scale[0] = group->scale[1] = scale;
    group->offset[0] = group->offset[1] = offset;
}

/* Q4_K, Q5_K: group g of 8. */
INLINE void k_group(int8_group *group, const uint8_t *block, const bool five, const int g) {
    int s, t;
    plsh_weight_k_scale(block + 4, g, &s, &t);
    group->u = shifted(bytes_at(block + (five ? 48 : 16) + g / 2 * 32), g % 2 * 4, 15);
    if (five)
        group->u =
            _mm256_or_si256(group->u, _mm256_slli_epi16(shifted(bytes_at(block + 16), g, 1), 4));
    set_scale(group, half_at(block) * (float)s, -half_at(block + 2) * (float)t);
}

/* Q6_K: group g of 8, four in each half of the block. */
INLINE void six_group(int8_group *group, const uint8_t *block, const int g) {
    const float d = half_at(block + 208);
    const __m256i low = bytes_at(block + g / 4 * 64 + g % 2 * 32);
    const __m256i high = bytes_at(block + 128 + g / 4 * 32);
    group->u = _mm256_or_si256(shifted(low, g % 4 / 2 * 4, 15),
                               _mm256_slli_epi16(shifted(high, 2 * (g % 4), 3), 4));
    group->scale[0] = d * (float)(int8_t)block[192 + 2 * g];
    group->scale[1] = d * (float)(int8_t)block[193 + 2 * g];
}

/* Q2_K: group g of 8. */
INLINE void two_group(int8_group *group, const uint8_t *block, const int g) {
    const float d = half_at(block + 80), m = half_at(block + 82);
    group->u = shifted(bytes_at(block + 16 + g / 4 * 32), 2 * (g % 4), 3);
    UNROLL for (int h = 0; h < 2; h++) {
        group->scale[h] = d * (float)(block[2 * g + h] & 15);
        group->offset[h] = -m * (float)(block[2 * g + h] >> 4);
    }
}

/* Q3_K: group g of 8. */
INLINE void three_group(int8_group *group, const uint8_t *block, const int g) {
    const float d = half_at(block + 108);
    const __m256i low = bytes_at(block + 32 + g / 4 * 32), high = bytes_at(block);
    group->u =
        _mm256_or_si256(shifted(low, 2 * (g % 4), 3), _mm256_slli_epi16(shifted(high, g, 1), 2));
    UNROLL for (int h = 0; h < 2; h++) group->scale[h] =
        d * (float)plsh_weight_q3_scale(block + 96, 2 * g + h);
}

/* IQ4_NL, IQ4_XS: 16 bytes of indices into the table. */
INLINE void table_group(int8_group *group, const uint8_t *from, float scale) {
    const __m128i table = _mm_loadu_si128((const __m128i *)plsh_weight_iq4);
    group->u = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles(from));
    set_scale(group, scale, 0.0f);
}

/* Group g of a block: 0, or 0..7 in a block of 256. */
INLINE void read_group(int8_group *group, const plsh_weight_type type, const uint8_t *block,
                       const int g) {
    if (type == PLSH_WEIGHT_Q6_K) {
        six_group(group, block, g);
        return;
    }
    if (type == PLSH_WEIGHT_Q2_K) {
        two_group(group, block, g);
        return;
    }
    if (type == PLSH_WEIGHT_Q3_K) {
        three_group(group, block, g);
        return;
    }
    if (plsh_weight_is_table(type)) {
        const bool alone = type == PLSH_WEIGHT_IQ4_NL;
        const int scale = alone ? 1 : plsh_weight_iq4_scale(block, g);
        table_group(group, block + (alone ? 2 : 8 + 16 * g), half_at(block) * (float)scale);
        return;
    }
    if (plsh_int8_is_super(type)) {
        k_group(group, block, type == PLSH_WEIGHT_Q5_K, g);
        return;
    }
    const bool five = plsh_int8_bits(type) == 5;
    const int head = plsh_int8_has_offset(type) ? 4 : 2;
    set_scale(group, half_at(block), plsh_int8_has_offset(type) ? half_at(block + 2) : 0.0f);
    group->u = type == PLSH_WEIGHT_Q8_0 ? bytes_at(block + 2) : nibbles(block + head + five * 4);
    if (five) group->u = _mm256_or_si256(group->u, fifth_bits(block + head));
}

/* ---- A row of a panel ----------------------------------------------------------------------- */

INLINE void unpack(const plsh_weight_type type, const void *from, uint8_t *bytes, float *scale,
                   float *offset, int64_t count) {
    const int groups = plsh_int8_is_super(type) ? 8 : 1;
    const uint8_t *block = from;
    for (int64_t i = 0; i < count / 32; i += groups, block += plsh_weight_block_bytes(type)) {
        UNROLL for (int g = 0; g < groups; g++) {
            int8_group group;
            read_group(&group, type, block, g);
            if (plsh_int8_bits(type) == 8 && !stores_signed(type))
                group.u = _mm256_xor_si256(group.u, _mm256_set1_epi8((char)0x80));
            _mm256_storeu_si256((__m256i *)(bytes + (i + g) * 32), group.u);
            const int per_group = plsh_weight_has_halves(type) ? 2 : 1;
            UNROLL for (int h = 0; h < per_group; h++) {
                scale[per_group * (i + g) + h] = group.scale[h];
                if (plsh_int8_has_offset(type)) offset[per_group * (i + g) + h] = group.offset[h];
            }
        }
    }
}

/* ---- Few rows ------------------------------------------------------------------------------- */

/* The prefetch distance in bytes; consecutive rows of W are contiguous. */
enum { AHEAD = 1024, TOGETHER = PLSH_LINEAR_FEW_ROWS };

typedef struct dot_sums {
    __m256 lanes[TOGETHER][2];
    float rest[TOGETHER][2];
} dot_sums;

/* Group `at` of a row of W against rows r .. r + R - 1 of x. */
INLINE void dot_group(const plsh_weight_type type, const int R, dot_sums *sums,
                      const plsh_int8_rows *x, int r, const int8_group *group, const int odd,
                      int64_t at) {
    const int64_t groups = x->in / 32;
    __m256 scale = _mm256_set1_ps(group->scale[0]);
    if (plsh_weight_has_halves(type))
        scale = _mm256_set_m128(_mm_set1_ps(group->scale[1]), _mm_set1_ps(group->scale[0]));
    __m256i w = group->u;
    if (!plsh_int8_has_offset(type) && plsh_int8_bits(type) != 8)
        w = _mm256_sub_epi8(w, _mm256_set1_epi8((char)plsh_int8_less(type)));
    const __m256i size = plsh_int8_has_offset(type) ? w : _mm256_abs_epi8(w);
    UNROLL for (int i = 0; i < R; i++) {
        const int64_t row = r + i;
        __m256i p = bytes_at((const uint8_t *)x->p + row * x->in + at * 32);
        if (!plsh_int8_has_offset(type)) p = _mm256_sign_epi8(p, w);
        const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(x->scale[row * groups + at]));
        sums->lanes[i][odd] =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(i_quads(size, p)), both, sums->lanes[i][odd]);
        const int per_group = plsh_weight_has_halves(type) ? 2 : 1;
        if (!plsh_int8_has_offset(type)) continue;
        UNROLL for (int h = 0; h < per_group; h++) {
            const float sum = plsh_int8_sum(type, x, row, at * per_group + h);
            sums->rest[i][odd] = __builtin_fmaf(group->offset[h], sum, sums->rest[i][odd]);
        }
    }
}

INLINE float total(__m256 even, __m256 odd) {
    const __m256 both = _mm256_add_ps(even, odd);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* y[r .. r + R)[o]. */
INLINE void dot_one(const plsh_weight_type type, const int R, const plsh_int8_dot *dot, int64_t o,
                    int r) {
    const uint8_t *row = (const uint8_t *)dot->weight + (size_t)o * dot->row_bytes;
    const int step = plsh_int8_is_super(type) ? 8 : 2, bytes = plsh_weight_block_bytes(type);
    const int64_t groups = dot->x.in / 32;
    int8_group group;
    dot_sums sums;
    UNROLL for (int i = 0; i < R; i++) {
        sums.lanes[i][0] = sums.lanes[i][1] = _mm256_setzero_ps();
        sums.rest[i][0] = sums.rest[i][1] = 0.0f;
    }
    int64_t at = 0;
    for (; at + step <= groups; at += step) {
        UNROLL for (int i = 0; i < step; i++) {
            const uint8_t *block = plsh_int8_is_super(type) ? row : row + i * bytes;
            if (i % 2 == 0) __builtin_prefetch(block + AHEAD + i * 16);
            read_group(&group, type, block, plsh_int8_is_super(type) ? i : 0);
            dot_group(type, R, &sums, &dot->x, r, &group, i % 2, at + i);
        }
        row += plsh_int8_is_super(type) ? bytes : step * bytes;
    }
    if (at < groups) {
        read_group(&group, type, row, 0);
        dot_group(type, R, &sums, &dot->x, r, &group, 0, at);
    }
    UNROLL for (int i = 0; i < R; i++) {
        const float start = dot->start ? dot->start[(r + i) * dot->start_stride + o] : 0.0f;
        const float rest = sums.rest[i][0] + sums.rest[i][1];
        dot->y[(r + i) * dot->y_stride + o] =
            start + (total(sums.lanes[i][0], sums.lanes[i][1]) + rest);
    }
}

/* Row by row of W, so that memory is read in order. */
INLINE void dot_few(const plsh_weight_type type, const plsh_int8_dot *dot) {
    for (int64_t o = 0; o < dot->outs; o++) {
        int r = 0;
        for (; r + 4 <= dot->rows; r += 4) dot_one(type, 4, dot, o, r);
        for (; r + 2 <= dot->rows; r += 2) dot_one(type, 2, dot, o, r);
        if (r < dot->rows) dot_one(type, 1, dot, o, r);
    }
}

#endif
