/* linear: the kernels over the vector vocabulary. The including file has defined
 *     LANES, vector, v_*         the vocabulary; LANES is 1 in plain C
 *     vint                       LANES numbers of 32 bits, on which & | << >> work lane by lane
 *     v_bytes(p), v_signed(p)    LANES bytes at p, without and with their sign, as a vint
 *     v_float(i)                 a vint as floats
 *     v_half_scalar(bits)        an IEEE half as a float
 *     v_total(x)                 the sum of the lanes, in a fixed order
 *     BLOCK_ROWS, BLOCK_VECTORS  register block of multiply
 * and makes its table with LINEAR_TABLE(name). */
#ifndef PLSH_LINEAR_KERNELS_TEMPLATE_H
#define PLSH_LINEAR_KERNELS_TEMPLATE_H

#include <string.h>

#include "base/simd/vector_math.h"
#include "linear/kernels/kernels.h"
#include "linear/types.h"

enum {
    WIDTH = BLOCK_VECTORS * LANES,
    GROUP = PLSH_LINEAR_GROUP,
    PARTS = GROUP / LANES /* vectors of a group */
};

_Static_assert(GROUP % WIDTH == 0, "a panel is a part of a group");

/* ---- A group of 32 values: x_j = scale q_j + offset, q whole numbers ------------------------ */

typedef struct weight_group {
    vector q[PARTS];
    float scale[2]; /* of the first and of the second 16 values; see plsh_weight_has_halves */
    float offset[2];
} weight_group;

INLINE float half_at(const uint8_t *bytes) {
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    return v_half_scalar(half);
}

/* The fifth bits of LANES values: bit `first` + j of `high`, as 16 in lane j. */
INLINE vint fifth_bits(uint32_t high, int first) {
#if LANES == 1
    return (vint)(high >> first & 1) << 4;
#else
    typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
    bits lane;
    UNROLL for (int i = 0; i < LANES; i++) lane[i] = (uint32_t)i;
    return (vint)(((bits){0} + (high >> first)) >> lane & 1) << 4;
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
    return type != PLSH_WEIGHT_Q8_0 && type != PLSH_WEIGHT_Q6_K && type != PLSH_WEIGHT_Q3_K &&
           !plsh_weight_is_table(type);
}

INLINE void set_scale(weight_group *group, float scale, float offset) {
    group->scale[0] = group->scale[1] = scale;
    group->offset[0] = group->offset[1] = offset;
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
    group->offset[0] = group->offset[1] = 0.0f;
}

/* Q2_K: group g of 8. */
INLINE void two_group(weight_group *group, const uint8_t *block, int g) {
    const uint8_t *q = block + 16 + g / 4 * 32;
    UNROLL for (int i = 0; i < PARTS; i++) group->q[i] =
        v_float(v_bytes(q + i * LANES) >> 2 * (g % 4) & 3);
    const float d = half_at(block + 80), m = half_at(block + 82);
    UNROLL for (int h = 0; h < 2; h++) {
        group->scale[h] = d * (float)(block[2 * g + h] & 15);
        group->offset[h] = -m * (float)(block[2 * g + h] >> 4);
    }
}

/* Q3_K: group g of 8. */
INLINE void three_group(weight_group *group, const uint8_t *block, int g) {
    const uint8_t *low = block + 32 + g / 4 * 32;
    UNROLL for (int i = 0; i < PARTS; i++) {
        vint b = v_bytes(low + i * LANES) >> 2 * (g % 4) & 3;
        group->q[i] = v_float((b | (v_bytes(block + i * LANES) >> g & 1) << 2) - 4);
    }
    const float d = half_at(block + 108);
    UNROLL for (int h = 0; h < 2; h++) {
        group->scale[h] = d * (float)plsh_weight_q3_scale(block + 96, 2 * g + h);
        group->offset[h] = 0.0f;
    }
}

/* IQ4_NL, IQ4_XS: 16 bytes of indices into the table, as in nibbles(). */
INLINE void table_group(weight_group *group, const uint8_t *p, float scale) {
    uint8_t value[GROUP];
    for (int j = 0; j < GROUP / 2; j++) {
        value[j] = (uint8_t)plsh_weight_iq4[p[j] & 15];
        value[j + GROUP / 2] = (uint8_t)plsh_weight_iq4[p[j] >> 4];
    }
    UNROLL for (int i = 0; i < PARTS; i++) group->q[i] = v_float(v_signed(value + i * LANES));
    set_scale(group, scale, 0.0f);
}

INLINE bool is_super(const plsh_weight_type type) { return type >= PLSH_WEIGHT_Q4_K; }

/* Group g of a block: 0, or 0..7 in a block of 256. */
INLINE void read_group(weight_group *group, const plsh_weight_type type, const uint8_t *block,
                       const int g) {
    uint32_t high = 0;
    float d = 0.0f;
    if (!is_super(type)) d = half_at(block);
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
    } else if (type == PLSH_WEIGHT_IQ4_NL) {
        table_group(group, block + 2, d);
    } else if (type == PLSH_WEIGHT_IQ4_XS) {
        d = half_at(block) * (float)plsh_weight_iq4_scale(block, g);
        table_group(group, block + 8 + 16 * g, d);
    } else if (type == PLSH_WEIGHT_Q6_K) {
        six_group(group, block, g);
    } else if (type == PLSH_WEIGHT_Q2_K) {
        two_group(group, block, g);
    } else if (type == PLSH_WEIGHT_Q3_K) {
        three_group(group, block, g);
    } else {
        k_group(group, block, type == PLSH_WEIGHT_Q5_K, g);
    }
}

/* LANES plain numbers at any address. */
INLINE vector load_plain(const plsh_weight_type type, const uint8_t *row, int64_t at) {
    const void *from = row + at * (type == PLSH_WEIGHT_F32 ? 4 : 2);
    if (type == PLSH_WEIGHT_F32) return v_load(from);
    return type == PLSH_WEIGHT_F16 ? v_load_half(from) : v_load_bfloat(from);
}

/* ---- Stored values as floats ---------------------------------------------------------------- */

/* Vector i of a group. */
INLINE vector group_values(const plsh_weight_type type, const weight_group *group, const int i) {
    const vector scale = v_set(group->scale[i * 2 / PARTS]);
    if (!has_offset(type)) return scale * group->q[i];
    return v_fma(scale, group->q[i], v_set(group->offset[i * 2 / PARTS]));
}

INLINE void widen_group(const plsh_weight_type type, const uint8_t *block, const int g, float *to) {
    weight_group group;
    read_group(&group, type, block, g);
    UNROLL for (int i = 0; i < PARTS; i++) {
        v_store(to + i * LANES, group_values(type, &group, i));
    }
}

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
    const int groups = is_super(type) ? 8 : 1;
    const uint8_t *block = from;
    for (int64_t i = 0; i < count; i += groups * GROUP, block += plsh_weight_block_bytes(type)) {
        UNROLL for (int g = 0; g < groups; g++) widen_group(type, block, g, to + i + g * GROUP);
    }
}

/* ---- Few rows: dot products on the stored type ---------------------------------------------- */

/* The prefetch distance in bytes; consecutive rows of W are contiguous. */
enum { AHEAD = 1024 };

/* Independent accumulators for q types and for plain numbers, and the most rows of x that share a
 * load of W: 16 registers do not hold 4 x 4 sums. */
enum { CHAINS = 2, PLAIN_CHAINS = 4, TOGETHER = PLSH_LINEAR_FEW_ROWS };

/* One row of W against some vectors x: the vectors, and their sums so far. */
typedef struct dot_sums {
    plsh_const_matrix x;
    plsh_const_matrix of_groups; /* the sums of the groups of x */
    vector lanes[TOGETHER][PLAIN_CHAINS];
    float rest[TOGETHER];
} dot_sums;

/* Group `at` of the row against R vectors. It is number i of those that are unrolled: of the block,
 * or, where a block is one group, block i. */
INLINE void dot_group(const plsh_weight_type type, const int R, dot_sums *sums, const int i,
                      const uint8_t *block, int64_t at) {
    weight_group group;
    read_group(&group, type, block, is_super(type) ? i : 0);
    UNROLL for (int r = 0; r < R; r++) {
        const float *xs = sums->x.data + r * sums->x.stride + at * GROUP;
        vector *sum = &sums->lanes[r][i % CHAINS];
        if (type == PLSH_WEIGHT_Q2_K) { /* the sums of x are those of whole groups */
            UNROLL for (int part = 0; part < PARTS; part++) *sum =
                v_fma(group_values(type, &group, part), v_load(xs + part * LANES), *sum);
            continue;
        }
        vector p = group.q[0] * v_load(xs);
        UNROLL for (int part = 1; part < PARTS; part++) {
            if (plsh_weight_has_halves(type) && part == PARTS / 2) {
                *sum = v_fma(v_set(group.scale[0]), p, *sum);
                p = group.q[part] * v_load(xs + part * LANES);
            } else {
                p = v_fma(group.q[part], v_load(xs + part * LANES), p);
            }
        }
        *sum = v_fma(v_set(group.scale[1]), p, *sum);
        if (has_offset(type)) {
            sums->rest[r] +=
                group.offset[0] * sums->of_groups.data[r * sums->of_groups.stride + at];
        }
    }
}

INLINE void dot_groups(const plsh_weight_type type, const int R, dot_sums *sums, const uint8_t *row,
                       int64_t in) {
    const int64_t groups = in / GROUP;
    const int step = is_super(type) ? 8 : CHAINS, bytes = plsh_weight_block_bytes(type);
    int64_t at = 0;
    for (; at + step <= groups; at += step) {
        UNROLL for (int i = 0; i < step; i++) {
            const uint8_t *block = is_super(type) ? row : row + i * bytes;
            if (!is_super(type) || i % 2 == 0) __builtin_prefetch(block + AHEAD + i * 16);
            dot_group(type, R, sums, i, block, at + i);
        }
        row += is_super(type) ? bytes : step * bytes;
    }
    if (at < groups) dot_group(type, R, sums, 0, row, at);
}

/* The same for plain numbers, and the remainder after whole vectors. */
INLINE void dot_plain(const plsh_weight_type type, const int R, dot_sums *sums, const uint8_t *row,
                      int64_t in) {
    const plsh_const_matrix x = sums->x;
    const int bytes = type == PLSH_WEIGHT_F32 ? 4 : 2;
    int64_t k = 0;
    for (; k + PLAIN_CHAINS * LANES <= in; k += PLAIN_CHAINS * LANES) {
        __builtin_prefetch(row + k * bytes + AHEAD);
        if (PLAIN_CHAINS * LANES * bytes > 64) __builtin_prefetch(row + k * bytes + AHEAD + 64);
        UNROLL for (int i = 0; i < PLAIN_CHAINS; i++) {
            vector w = load_plain(type, row, k + i * LANES);
            UNROLL for (int r = 0; r < R; r++) {
                vector *sum = &sums->lanes[r][i];
                *sum = v_fma(w, v_load(x.data + r * x.stride + k + i * LANES), *sum);
            }
        }
    }
    for (; k < in; k++) {
        float w;
        plsh_weight_kinds[type].widen(row + k * bytes, &w, 1);
        UNROLL for (int r = 0; r < R; r++) sums->rest[r] += w * x.data[r * x.stride + k];
    }
}

/* y[r .. r + R)[o]. */
INLINE void dot_one(const plsh_weight_type type, const int R, const plsh_linear_dot *dot, int64_t o,
                    int r) {
    const uint8_t *row = (const uint8_t *)dot->weight + (size_t)o * dot->row_bytes;
    const int chains = type <= PLSH_WEIGHT_BF16 ? PLAIN_CHAINS : CHAINS;
    dot_sums sums = {.x = {dot->x + r * dot->x_stride, dot->x_stride},
                     .of_groups = {dot->sums + r * dot->sums_stride, dot->sums_stride}};
    UNROLL for (int i = 0; i < R; i++) {
        UNROLL for (int c = 0; c < chains; c++) sums.lanes[i][c] = v_set(0.0f);
    }
    if (type <= PLSH_WEIGHT_BF16)
        dot_plain(type, R, &sums, row, dot->in);
    else
        dot_groups(type, R, &sums, row, dot->in);
    UNROLL for (int i = 0; i < R; i++) {
        vector *lanes = sums.lanes[i], total = lanes[0] + lanes[1];
        if (chains == 4) total = total + (lanes[2] + lanes[3]);
        float start = dot->start ? dot->start[(r + i) * dot->start_stride + o] : 0.0f;
        dot->y[(r + i) * dot->y_stride + o] = start + (v_total(total) + sums.rest[i]);
    }
}

/* Row by row of W, so that memory is read in order. */
INLINE void dot_any(const plsh_weight_type type, const plsh_linear_dot *dot) {
    const bool four = type > PLSH_WEIGHT_BF16 || LANES == 16;
    for (int64_t o = 0; o < dot->outs; o++) {
        int r = 0;
        for (; four && r + 4 <= dot->rows; r += 4) dot_one(type, 4, dot, o, r);
        for (; r + 2 <= dot->rows; r += 2) dot_one(type, 2, dot, o, r);
        if (r < dot->rows) dot_one(type, 1, dot, o, r);
    }
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

/* The first R rows against the whole width: y and start have room for it. by_rows: a_step is 1,
 * otherwise a_row is. */
INLINE void multiply_block(const int R, const bool by_rows, plsh_linear_product p) {
    vector sum[BLOCK_ROWS][BLOCK_VECTORS];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) sum[r][c] =
            p.start ? v_load(p.start + r * p.start_stride + c * LANES) : v_set(0.0f);
    }
    for (int64_t k = 0; k < p.depth; k++) {
        vector b[BLOCK_VECTORS];
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) b[c] =
            v_load(p.panel + k * WIDTH + c * LANES);
        UNROLL for (int r = 0; r < R; r++) {
            vector x = v_set(by_rows ? p.a[r * p.a_row + k] : p.a[k * p.a_step + r]);
            UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) sum[r][c] = v_fma(x, b[c], sum[r][c]);
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++)
            v_store(p.y + r * p.y_stride + c * LANES, sum[r][c]);
    }
}

/* Rows m .. m + R - 1 of any number of columns: the last columns, if they do not fill the width,
 * are computed in a buffer. */
INLINE void multiply_rows(const int R, const bool by_rows, const plsh_linear_product *all,
                          int64_t m) {
    plsh_linear_product p = *all;
    p.a += m * p.a_row;
    p.y += m * p.y_stride;
    if (p.start) p.start += m * p.start_stride;
    if (p.columns == WIDTH) {
        multiply_block(R, by_rows, p);
        return;
    }
    float tile[BLOCK_ROWS][WIDTH] = {{0.0f}};
    const size_t bytes = (size_t)p.columns * sizeof(float);
    plsh_linear_product beside = p;
    beside.start = beside.y = tile[0];
    beside.start_stride = beside.y_stride = WIDTH;
    for (int r = 0; p.start && r < R; r++) memcpy(tile[r], p.start + r * p.start_stride, bytes);
    multiply_block(R, by_rows, beside);
    for (int r = 0; r < R; r++) memcpy(p.y + r * p.y_stride, tile[r], bytes);
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
LINEAR_TYPE(PLSH_WEIGHT_Q2_K, q2_k)
LINEAR_TYPE(PLSH_WEIGHT_Q3_K, q3_k)
LINEAR_TYPE(PLSH_WEIGHT_IQ4_NL, iq4_nl)
LINEAR_TYPE(PLSH_WEIGHT_IQ4_XS, iq4_xs)

#define LINEAR_ROW(function)                                                                       \
    {                                                                                              \
        [PLSH_WEIGHT_F32] = function##_f32, [PLSH_WEIGHT_F16] = function##_f16,                    \
        [PLSH_WEIGHT_BF16] = function##_bf16, [PLSH_WEIGHT_Q8_0] = function##_q8_0,                \
        [PLSH_WEIGHT_Q4_0] = function##_q4_0, [PLSH_WEIGHT_Q4_1] = function##_q4_1,                \
        [PLSH_WEIGHT_Q5_0] = function##_q5_0, [PLSH_WEIGHT_Q5_1] = function##_q5_1,                \
        [PLSH_WEIGHT_IQ4_NL] = function##_iq4_nl, [PLSH_WEIGHT_Q4_K] = function##_q4_k,            \
        [PLSH_WEIGHT_Q5_K] = function##_q5_k, [PLSH_WEIGHT_Q6_K] = function##_q6_k,                \
        [PLSH_WEIGHT_Q2_K] = function##_q2_k, [PLSH_WEIGHT_Q3_K] = function##_q3_k,                \
        [PLSH_WEIGHT_IQ4_XS] = function##_iq4_xs                                                   \
    }

#define LINEAR_TABLE(isa)                                                                          \
    {                                                                                              \
        .name = (isa), .width = WIDTH, .widen = LINEAR_ROW(widen), .dot = LINEAR_ROW(dot),         \
        .transpose = transpose_panel, .multiply = multiply                                         \
    }

#endif
