/* weights: the kernels over the vector vocabulary. The including file has defined
 *     LANES, vector, v_*         the vocabulary; LANES is 1 in plain C
 *     vint                       LANES numbers of 32 bits, on which & | << >> work lane by lane
 *     v_bytes(p), v_signed(p)    LANES bytes at p, without and with their sign, as a vint
 *     v_float(i)                 a vint as floats
 *     v_half_scalar(bits)        an IEEE half as a float
 *     v_total(x)                 the sum of the lanes, in a fixed order
 *     BLOCK_ROWS, BLOCK_VECTORS  register block of multiply
 *     DOT_OUTS                   rows of W that one x meets at a time
 * and makes its table with LINEAR_TABLE(name). */
#ifndef PLSH_WEIGHTS_KERNELS_TEMPLATE_H
#define PLSH_WEIGHTS_KERNELS_TEMPLATE_H

#include <string.h>

#include "base/simd/vector_math.h"
#include "weights/kernels/kernels.h"
#include "weights/types.h"

enum {
    WIDTH = BLOCK_VECTORS * LANES,
    GROUP = PLSH_LINEAR_GROUP,
    PARTS = GROUP / LANES,                  /* vectors of a group */
    BIT_PARTS = LANES > 16 ? 1 : 16 / LANES /* vectors of 16 bytes */
};

_Static_assert(GROUP % WIDTH == 0, "a panel is a part of a group");

/* ---- A group of 32 values: x_j = scale q_j + offset, q whole numbers ------------------------ */

typedef struct weight_group {
    vector q[PARTS];
    float scale[2]; /* of the first and of the second 16 values; equal but in Q6_K */
    float offset;
} weight_group;

INLINE float half_at(const uint8_t *bytes) {
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    return v_half_scalar(half);
}

/* The fifth bits: bit j of `high` at value 4 of lane j. */
INLINE vint fifth_bits(uint32_t high, int first) {
#if LANES == 1
    return (vint)(high >> first & 1) << 4;
#else
    uint32_t lane[LANES];
    for (int i = 0; i < LANES; i++) lane[i] = high >> (first + i) << 4 & 16;
    vint bits;
    memcpy(&bits, lane, sizeof bits);
    return bits;
#endif
}

/* 16 bytes: values 0..15 in their low halves, 16..31 in their high ones. */
INLINE void nibbles(vector *q, const uint8_t *p, bool five, uint32_t high) {
    UNROLL for (int i = 0; i < PARTS / 2; i++) {
        vint b = v_bytes(p + i * LANES), low = b & 15, upper = b >> 4;
        if (five) {
            low |= fifth_bits(high, i * LANES);
            upper |= fifth_bits(high, 16 + i * LANES);
        }
        q[i] = v_float(low);
        q[PARTS / 2 + i] = v_float(upper);
    }
}

INLINE bool has_offset(const plsh_weight_type type) {
    return type != PLSH_WEIGHT_Q8_0 && type != PLSH_WEIGHT_Q6_K;
}

INLINE void set_scale(weight_group *group, float scale, float offset) {
    group->scale[0] = group->scale[1] = scale;
    group->offset = offset;
}

/* Q4_K, Q5_K: group g of 8. */
INLINE void k_group(weight_group *group, const uint8_t *block, bool five, int g) {
    const uint8_t *q = block + (five ? 48 : 16) + g / 2 * 32;
    int s, t;
    plsh_weight_k_scale(block + 4, g, &s, &t);
    UNROLL for (int i = 0; i < PARTS; i++) {
        vint b = v_bytes(q + i * LANES);
        b = g % 2 ? b >> 4 : b & 15;
        if (five) b |= (v_bytes(block + 16 + i * LANES) >> g & 1) << 4;
        group->q[i] = v_float(b);
    }
    set_scale(group, half_at(block) * (float)s, -half_at(block + 2) * (float)t);
}

/* Q6_K: group g of 8, four in each half of the block. */
INLINE void six_group(weight_group *group, const uint8_t *block, int g) {
    const uint8_t *low = block + g / 4 * 64 + g % 2 * 32, *high = block + 128 + g / 4 * 32;
    UNROLL for (int i = 0; i < PARTS; i++) {
        vint b = v_bytes(low + i * LANES);
        b = g % 4 / 2 ? b >> 4 : b & 15;
        b |= (v_bytes(high + i * LANES) >> 2 * (g % 4) & 3) << 4;
        group->q[i] = v_float(b - 32);
    }
    float d = half_at(block + 208);
    group->scale[0] = d * (float)(int8_t)block[192 + 2 * g];
    group->scale[1] = d * (float)(int8_t)block[193 + 2 * g];
    group->offset = 0.0f;
}

/* The group of number `at` of a row. */
INLINE void read_group(weight_group *group, const plsh_weight_type type, const uint8_t *row,
                       int64_t at) {
    const bool super = type >= PLSH_WEIGHT_Q4_K;
    const size_t bytes = type == PLSH_WEIGHT_Q8_0   ? 34
                         : type == PLSH_WEIGHT_Q4_0 ? 18
                         : type == PLSH_WEIGHT_Q4_1 ? 20
                         : type == PLSH_WEIGHT_Q5_0 ? 22
                         : type == PLSH_WEIGHT_Q5_1 ? 24
                         : type == PLSH_WEIGHT_Q4_K ? 144
                         : type == PLSH_WEIGHT_Q5_K ? 176
                                                    : 210;
    const uint8_t *block = row + (size_t)(super ? at / 8 : at) * bytes;
    uint32_t high = 0;
    float d = 0.0f;
    if (!super) d = half_at(block);
    if (type == PLSH_WEIGHT_Q8_0) {
        UNROLL for (int i = 0; i < PARTS; i++) group->q[i] =
            v_float(v_signed(block + 2 + i * LANES));
        set_scale(group, d, 0.0f);
    } else if (type == PLSH_WEIGHT_Q4_0) {
        nibbles(group->q, block + 2, false, 0);
        set_scale(group, d, -8.0f * d);
    } else if (type == PLSH_WEIGHT_Q4_1) {
        nibbles(group->q, block + 4, false, 0);
        set_scale(group, d, half_at(block + 2));
    } else if (type == PLSH_WEIGHT_Q5_0) {
        memcpy(&high, block + 2, 4);
        nibbles(group->q, block + 6, true, high);
        set_scale(group, d, -16.0f * d);
    } else if (type == PLSH_WEIGHT_Q5_1) {
        memcpy(&high, block + 4, 4);
        nibbles(group->q, block + 8, true, high);
        set_scale(group, d, half_at(block + 2));
    } else if (type == PLSH_WEIGHT_Q6_K) {
        six_group(group, block, (int)(at % 8));
    } else {
        k_group(group, block, type == PLSH_WEIGHT_Q5_K, (int)(at % 8));
    }
}

/* LANES plain numbers at any address. */
INLINE vector load_plain(const plsh_weight_type type, const uint8_t *row, int64_t at) {
    const void *from = row + at * (type == PLSH_WEIGHT_F32 ? 4 : 2);
    if (type == PLSH_WEIGHT_F32) return v_load(from);
    return type == PLSH_WEIGHT_F16 ? v_load_half(from) : v_load_bfloat(from);
}

/* ---- Stored values as floats ---------------------------------------------------------------- */

INLINE void widen(const plsh_weight_type type, const void *from, float *to, int64_t count) {
    if (type <= PLSH_WEIGHT_BF16) {
        int64_t whole = count / LANES * LANES;
        for (int64_t i = 0; i < whole; i += LANES) v_store(to + i, load_plain(type, from, i));
        if (whole < count)
            plsh_weight_kinds[type].widen((const char *)from +
                                              (size_t)whole * (type == PLSH_WEIGHT_F32 ? 4 : 2),
                                          to + whole, count - whole);
        return;
    }
    for (int64_t g = 0; g < count / GROUP; g++) {
        weight_group group;
        read_group(&group, type, from, g);
        vector offset = v_set(group.offset);
        UNROLL for (int i = 0; i < PARTS; i++) {
            vector scale = v_set(group.scale[i * 2 / PARTS]);
            vector value = scale * group.q[i];
            if (has_offset(type)) value = v_fma(scale, group.q[i], offset);
            v_store(to + g * GROUP + i * LANES, value);
        }
    }
}

/* ---- Few rows: dot products on the stored type ---------------------------------------------- */

/* sum[o][r] += the whole groups of O rows of W against R vectors. */
INLINE void dot_groups(const plsh_weight_type type, const int O, const int R, vector (*sum)[4],
                       float (*rest)[4], const plsh_linear_dot *dot, const uint8_t *row) {
    const int64_t groups = dot->in / GROUP;
    for (int64_t g = 0; g < groups; g++) {
        const float *x = dot->x + g * GROUP;
        weight_group group[DOT_OUTS];
        UNROLL for (int o = 0; o < O; o++) {
            __builtin_prefetch(row + (size_t)o * dot->row_bytes + 2048 +
                               (size_t)g * (GROUP / 32 * 20));
            read_group(&group[o], type, row + (size_t)o * dot->row_bytes, g);
        }
        UNROLL for (int r = 0; r < R; r++) {
            vector part[PARTS];
            UNROLL for (int i = 0; i < PARTS; i++) part[i] =
                v_load(x + r * dot->x_stride + i * LANES);
            UNROLL for (int o = 0; o < O; o++) {
                vector p = group[o].q[0] * part[0];
                UNROLL for (int i = 1; i < PARTS; i++) {
                    if (type == PLSH_WEIGHT_Q6_K && i == PARTS / 2) {
                        sum[o][r] = v_fma(v_set(group[o].scale[0]), p, sum[o][r]);
                        p = group[o].q[i] * part[i];
                    } else {
                        p = v_fma(group[o].q[i], part[i], p);
                    }
                }
                sum[o][r] = v_fma(v_set(group[o].scale[1]), p, sum[o][r]);
                if (has_offset(type))
                    rest[o][r] += group[o].offset * dot->sums[r * dot->sums_stride + g];
            }
        }
    }
}

/* The same for plain numbers, and what is left behind whole vectors. */
INLINE void dot_plain(const plsh_weight_type type, const int O, const int R, vector (*sum)[4],
                      float (*rest)[4], const plsh_linear_dot *dot, const uint8_t *row) {
    const int64_t whole = dot->in / LANES * LANES;
    for (int64_t k = 0; k < whole; k += LANES) {
        vector w[DOT_OUTS];
        UNROLL for (int o = 0; o < O; o++) w[o] =
            load_plain(type, row + (size_t)o * dot->row_bytes, k);
        UNROLL for (int r = 0; r < R; r++) {
            vector x = v_load(dot->x + r * dot->x_stride + k);
            UNROLL for (int o = 0; o < O; o++) sum[o][r] = v_fma(w[o], x, sum[o][r]);
        }
    }
    for (int64_t k = whole; k < dot->in; k++) {
        UNROLL for (int o = 0; o < O; o++) {
            float w;
            const uint8_t *at = row + (size_t)o * dot->row_bytes;
            plsh_weight_kinds[type].widen(at + (size_t)k * (type == PLSH_WEIGHT_F32 ? 4 : 2), &w,
                                          1);
            UNROLL for (int r = 0; r < R; r++) rest[o][r] += w * dot->x[r * dot->x_stride + k];
        }
    }
}

INLINE void dot_block(const plsh_weight_type type, const int O, const int R,
                      const plsh_linear_dot *dot, int64_t first) {
    const uint8_t *row = (const uint8_t *)dot->weight + (size_t)first * dot->row_bytes;
    vector sum[DOT_OUTS][4];
    float rest[DOT_OUTS][4] = {{0.0f}};
    UNROLL for (int o = 0; o < O; o++) {
        UNROLL for (int r = 0; r < R; r++) sum[o][r] = v_set(0.0f);
    }
    if (type <= PLSH_WEIGHT_BF16)
        dot_plain(type, O, R, sum, rest, dot, row);
    else
        dot_groups(type, O, R, sum, rest, dot, row);
    UNROLL for (int o = 0; o < O; o++) {
        UNROLL for (int r = 0; r < R; r++) {
            float start = dot->start ? dot->start[r * dot->start_stride + first + o] : 0.0f;
            dot->y[r * dot->y_stride + first + o] = start + (v_total(sum[o][r]) + rest[o][r]);
        }
    }
}

INLINE void dot_rows(const plsh_weight_type type, const int R, const plsh_linear_dot *dot) {
    int64_t o = 0;
    for (; o + DOT_OUTS <= dot->outs; o += DOT_OUTS) dot_block(type, DOT_OUTS, R, dot, o);
    for (; o < dot->outs; o++) dot_block(type, 1, R, dot, o);
}

INLINE void dot_any(const plsh_weight_type type, const plsh_linear_dot *dot) {
    if (dot->rows == 1)
        dot_rows(type, 1, dot);
    else if (dot->rows == 2)
        dot_rows(type, 2, dot);
    else if (dot->rows == 3)
        dot_rows(type, 3, dot);
    else
        dot_rows(type, 4, dot);
}

/* ---- Many rows: a panel of W as floats ------------------------------------------------------ */

#if LANES > 1
#include "base/simd/vector_transpose.h"
#endif

static void transpose_panel(float *to, const float *from, ptrdiff_t stride, int rows, int count) {
    for (int first = 0; first < WIDTH; first += LANES) {
        const int have = rows - first;
        int k = 0;
#if LANES > 1
        for (; k + LANES <= count; k += LANES) {
            vector block[LANES];
            for (int r = 0; r < LANES; r++)
                block[r] = r < have ? v_load(from + (first + r) * stride + k) : v_set(0.0f);
            v_transpose(block);
            UNROLL for (int i = 0; i < LANES; i++)
                v_store(to + (ptrdiff_t)(k + i) * WIDTH + first, block[i]);
        }
#endif
        for (; k < count; k++) {
            for (int r = 0; r < LANES; r++)
                to[(ptrdiff_t)k * WIDTH + first + r] =
                    r < have ? from[(first + r) * stride + k] : 0.0f;
        }
    }
}

/* R rows against the whole width. `y` and `start` have room for the width. */
INLINE void multiply_block(const int R, const bool by_rows, const float *a, ptrdiff_t a_stride,
                           const float *panel, int64_t depth, const float *start,
                           ptrdiff_t start_stride, float *y, ptrdiff_t y_stride) {
    vector sum[BLOCK_ROWS][BLOCK_VECTORS];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) sum[r][c] =
            start ? v_load(start + r * start_stride + c * LANES) : v_set(0.0f);
    }
    for (int64_t k = 0; k < depth; k++) {
        vector b[BLOCK_VECTORS];
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) b[c] = v_load(panel + k * WIDTH + c * LANES);
        UNROLL for (int r = 0; r < R; r++) {
            vector x = v_set(by_rows ? a[r * a_stride + k] : a[k * a_stride + r]);
            UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) sum[r][c] = v_fma(x, b[c], sum[r][c]);
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++)
            v_store(y + r * y_stride + c * LANES, sum[r][c]);
    }
}

/* Any number of columns: those that do not fill the width go through a tile beside. */
INLINE void multiply_rows(const int R, const bool by_rows, const plsh_linear_product *p,
                          int64_t m) {
    const float *a = p->a + m * p->a_row;
    const ptrdiff_t a_stride = by_rows ? p->a_row : p->a_step;
    const float *start = p->start ? p->start + m * p->start_stride : NULL;
    float *y = p->y + m * p->y_stride;
    if (p->columns == WIDTH) {
        multiply_block(R, by_rows, a, a_stride, p->panel, p->depth, start, p->start_stride, y,
                       p->y_stride);
        return;
    }
    float tile[BLOCK_ROWS][WIDTH] = {{0.0f}};
    const size_t bytes = (size_t)p->columns * sizeof(float);
    for (int r = 0; start && r < R; r++) memcpy(tile[r], start + r * p->start_stride, bytes);
    multiply_block(R, by_rows, a, a_stride, p->panel, p->depth, tile[0], WIDTH, tile[0], WIDTH);
    for (int r = 0; r < R; r++) memcpy(y + r * p->y_stride, tile[r], bytes);
}

INLINE void multiply_any(const bool by_rows, const plsh_linear_product *p) {
    int64_t m = 0;
    for (; m + BLOCK_ROWS <= p->rows; m += BLOCK_ROWS) multiply_rows(BLOCK_ROWS, by_rows, p, m);
    if (BLOCK_ROWS > 6 && m + 6 <= p->rows) {
        multiply_rows(6, by_rows, p, m);
        m += 6;
    }
    if (BLOCK_ROWS > 4 && m + 4 <= p->rows) {
        multiply_rows(4, by_rows, p, m);
        m += 4;
    }
    if (BLOCK_ROWS > 2 && m + 2 <= p->rows) {
        multiply_rows(2, by_rows, p, m);
        m += 2;
    }
    for (; m < p->rows; m++) multiply_rows(1, by_rows, p, m);
}

static void multiply(const plsh_linear_product *product) {
    if (product->a_step == 1)
        multiply_any(true, product);
    else
        multiply_any(false, product);
}

/* ---- The table ------------------------------------------------------------------------------ */

#define LINEAR_TYPE(TYPE, name)                                                                    \
    static void widen_##name(const void *from, float *to, int64_t count) {                         \
        widen(TYPE, from, to, count);                                                              \
    }                                                                                              \
    static void dot_##name(const plsh_linear_dot *dot) { dot_any(TYPE, dot); }

LINEAR_TYPE(PLSH_WEIGHT_F32, f32)
LINEAR_TYPE(PLSH_WEIGHT_F16, f16)
LINEAR_TYPE(PLSH_WEIGHT_BF16, bf16)
LINEAR_TYPE(PLSH_WEIGHT_Q8_0, q8_0)
LINEAR_TYPE(PLSH_WEIGHT_Q4_0, q4_0)
LINEAR_TYPE(PLSH_WEIGHT_Q4_1, q4_1)
LINEAR_TYPE(PLSH_WEIGHT_Q5_0, q5_0)
LINEAR_TYPE(PLSH_WEIGHT_Q5_1, q5_1)
LINEAR_TYPE(PLSH_WEIGHT_Q4_K, q4_k)
LINEAR_TYPE(PLSH_WEIGHT_Q5_K, q5_k)
LINEAR_TYPE(PLSH_WEIGHT_Q6_K, q6_k)

#define LINEAR_TABLE(isa)                                                                          \
    {                                                                                              \
        .name = (isa), .width = WIDTH,                                                             \
        .widen = {widen_f32,  widen_f16,  widen_bf16, widen_q8_0, widen_q4_0, widen_q4_1,          \
                  widen_q5_0, widen_q5_1, widen_q4_k, widen_q5_k, widen_q6_k},                     \
        .dot = {dot_f32,  dot_f16,  dot_bf16, dot_q8_0, dot_q4_0, dot_q4_1,                        \
                dot_q5_0, dot_q5_1, dot_q4_k, dot_q5_k, dot_q6_k},                                 \
        .transpose = transpose_panel, .multiply = multiply                                         \
    }

#endif
