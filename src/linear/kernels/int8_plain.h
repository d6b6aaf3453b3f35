/* linear: products in int8 in plain C: stored groups as bytes, and few rows. */
#ifndef PLSH_LINEAR_INT8_PLAIN_H
#define PLSH_LINEAR_INT8_PLAIN_H

#include "base/dtype.h"
#include "base/simd/vector_math.h"
#include "linear/kernels/int8.h"
#include "linear/types.h"

/* A group of 32 values: w_j = scale q_j + offset. */
typedef struct int8_group {
    int8_t q[32];
    float scale[2];  /* of the first and of the second 16 values; see plsh_weight_has_halves */
    float offset[2]; /* of the types that have one */
} int8_group;

INLINE float half_at(const uint8_t *bytes) {
    return plsh_half_to_float((uint16_t)(bytes[0] | bytes[1] << 8));
}

INLINE void set_scale(int8_group *group, float scale, float offset) {
    group->scale[0] = group->scale[1] = scale;
    group->offset[0] = group->offset[1] = offset;
}

/* Q4_K, Q5_K: group g of 8. */
INLINE void k_group(int8_group *group, const uint8_t *block, const bool five, const int g) {
    const uint8_t *from = block + (five ? 48 : 16) + g / 2 * 32;
    int s, t;
    plsh_weight_k_scale(block + 4, g, &s, &t);
    for (int j = 0; j < 32; j++) {
        const int high = five ? (block[16 + j] >> g & 1) << 4 : 0;
        group->q[j] = (int8_t)((from[j] >> g % 2 * 4 & 15) | high);
    }
    set_scale(group, half_at(block) * (float)s, -half_at(block + 2) * (float)t);
}

/* Q6_K: group g of 8, four in each half of the block. */
INLINE void six_group(int8_group *group, const uint8_t *block, const int g) {
    const uint8_t *low = block + g / 4 * 64 + g % 2 * 32, *high = block + 128 + g / 4 * 32;
    const float d = half_at(block + 208);
    for (int j = 0; j < 32; j++)
        group->q[j] =
            (int8_t)(((low[j] >> g % 4 / 2 * 4 & 15) | (high[j] >> 2 * (g % 4) & 3) << 4) - 32);
    group->scale[0] = d * (float)(int8_t)block[192 + 2 * g];
    group->scale[1] = d * (float)(int8_t)block[193 + 2 * g];
}

/* Q2_K: group g of 8. */
INLINE void two_group(int8_group *group, const uint8_t *block, const int g) {
    const float d = half_at(block + 80), m = half_at(block + 82);
    for (int j = 0; j < 32; j++)
        group->q[j] = (int8_t)(block[16 + g / 4 * 32 + j] >> 2 * (g % 4) & 3);
    for (int h = 0; h < 2; h++) {
        group->scale[h] = d * (float)(block[2 * g + h] & 15);
        group->offset[h] = -m * (float)(block[2 * g + h] >> 4);
    }
}

/* Q3_K: group g of 8. */
INLINE void three_group(int8_group *group, const uint8_t *block, const int g) {
    const float d = half_at(block + 108);
    for (int j = 0; j < 32; j++) {
        const int low = block[32 + g / 4 * 32 + j] >> 2 * (g % 4) & 3;
        group->q[j] = (int8_t)((low | (block[j] >> g & 1) << 2) - 4);
    }
    for (int h = 0; h < 2; h++)
        group->scale[h] = d * (float)plsh_weight_q3_scale(block + 96, 2 * g + h);
}

/* IQ4_NL, IQ4_XS: 16 bytes of indices into the table. */
INLINE void table_group(int8_group *group, const uint8_t *from, float scale) {
    for (int j = 0; j < 32; j++) group->q[j] = plsh_weight_iq4[from[j % 16] >> j / 16 * 4 & 15];
    set_scale(group, scale, 0.0f);
}

/* Types of 32 values per block. */
INLINE void small_group(int8_group *group, const plsh_weight_type type, const uint8_t *block) {
    const bool five = plsh_int8_bits(type) == 5;
    const uint8_t *fifth = block + (plsh_int8_has_offset(type) ? 4 : 2), *from = fifth + five * 4;
    for (int j = 0; j < 32; j++) {
        const int high = five ? (fifth[j / 8] >> j % 8 & 1) << 4 : 0;
        const int u = type == PLSH_WEIGHT_Q8_0 ? block[2 + j] ^ 0x80
                                               : (from[j % 16] >> j / 16 * 4 & 15) | high;
        group->q[j] = (int8_t)(u - plsh_int8_less(type));
    }
    set_scale(group, half_at(block), plsh_int8_has_offset(type) ? half_at(block + 2) : 0.0f);
}

/* Group g of a block: 0, or 0..7 in a block of 256. */
INLINE void read_group(int8_group *group, const plsh_weight_type type, const uint8_t *block,
                       const int g) {
    if (type == PLSH_WEIGHT_Q6_K)
        six_group(group, block, g);
    else if (type == PLSH_WEIGHT_Q2_K)
        two_group(group, block, g);
    else if (type == PLSH_WEIGHT_Q3_K)
        three_group(group, block, g);
    else if (type == PLSH_WEIGHT_IQ4_NL)
        table_group(group, block + 2, half_at(block));
    else if (type == PLSH_WEIGHT_IQ4_XS)
        table_group(group, block + 8 + 16 * g,
                    half_at(block) * (float)plsh_weight_iq4_scale(block, g));
    else if (plsh_int8_is_super(type))
        k_group(group, block, type == PLSH_WEIGHT_Q5_K, g);
    else
        small_group(group, type, block);
}

/* The panels of plain C and of NEON hold signed numbers. */
INLINE bool stores_signed(const plsh_weight_type type) {
    (void)type;
    return true;
}

INLINE void unpack(const plsh_weight_type type, const void *from, uint8_t *bytes, float *scale,
                   float *offset, int64_t count) {
    const int groups = plsh_int8_is_super(type) ? 8 : 1;
    const uint8_t *block = from;
    for (int64_t i = 0; i < count / 32; i += groups, block += plsh_weight_block_bytes(type)) {
        for (int g = 0; g < groups; g++) {
            int8_group group;
            read_group(&group, type, block, g);
            __builtin_memcpy(bytes + (i + g) * 32, group.q, sizeof group.q);
            const int per_group = plsh_weight_has_halves(type) ? 2 : 1;
            for (int h = 0; h < per_group; h++) {
                scale[per_group * (i + g) + h] = group.scale[h];
                if (plsh_int8_has_offset(type)) offset[per_group * (i + g) + h] = group.offset[h];
            }
        }
    }
}

/* y + group `at` of a row of W times that of x. */
INLINE float dot_group(const plsh_weight_type type, float y, const int8_group *group,
                       const plsh_int8_rows *x, int64_t row, int64_t at) {
    const int64_t groups = x->in / 32;
    const int per_group = plsh_weight_has_halves(type) ? 2 : 1, size = 32 / per_group;
    const int8_t *p = x->p + row * x->in + at * 32;
    const float s = x->scale[row * groups + at];
    for (int h = 0; h < per_group; h++) {
        int32_t sum = 0;
        for (int j = h * size; j < (h + 1) * size; j++) sum += group->q[j] * p[j];
        y = __builtin_fmaf((float)sum, group->scale[h] * s, y);
    }
    for (int h = 0; plsh_int8_has_offset(type) && h < per_group; h++)
        y = __builtin_fmaf(plsh_int8_sum(type, x, row, at * per_group + h), group->offset[h], y);
    return y;
}

INLINE void dot_few(const plsh_weight_type type, const plsh_int8_dot *dot) {
    const int groups = plsh_int8_is_super(type) ? 8 : 1;
    for (int64_t o = 0; o < dot->outs; o++) {
        const uint8_t *block = (const uint8_t *)dot->weight + (size_t)o * dot->row_bytes;
        float y[PLSH_LINEAR_FEW_ROWS] = {0.0f};
        for (int r = 0; dot->start && r < dot->rows; r++)
            y[r] = dot->start[r * dot->start_stride + o];
        for (int64_t at = 0; at < dot->x.in / 32; at++) {
            int8_group group;
            read_group(&group, type, block, (int)(at % groups));
            for (int r = 0; r < dot->rows; r++)
                y[r] = dot_group(type, y[r], &group, &dot->x, r, at);
            if (at % groups == groups - 1) block += plsh_weight_block_bytes(type);
        }
        for (int r = 0; r < dot->rows; r++) dot->y[r * dot->y_stride + o] = y[r];
    }
}

#endif
