/* linear: a panel of W in int8 with registers of 512 bits. Two groups of 16 rows of W are unpacked
 * as in int8_dots_vnni.h and transposed without being written as rows before. */
#ifndef PLSH_LINEAR_INT8_PACK_VNNI_H
#define PLSH_LINEAR_INT8_PACK_VNNI_H

#include "base/simd/vector_transpose.h"
#include "linear/kernels/int8_dots_vnni.h"

/* Scales, or offsets, of two groups of a row of W are numbers of a column of the panel. */
INLINE void put_scales(const plsh_weight_type type, float *to, __m512 lanes, const int groups) {
    const int each = plsh_weight_has_halves(type) ? 4 : 8; /* lanes of a scale */
    float all[LANES];
    v_store(all, lanes);
    for (int i = 0; i < groups * 8 / each; i++) to[i * WIDTH] = all[i * each];
}

INLINE void put_offsets(float *to, __m128 two, const int groups) {
    float all[4];
    _mm_storeu_ps(all, two);
    for (int i = 0; i < groups; i++) to[i * WIDTH] = all[i];
}

/* How many of the LANES columns from c on there are. */
INLINE int columns_from(const plsh_int8_packing *p, int c) {
    const int left = p->columns - c;
    return left < 0 ? 0 : left < LANES ? left : LANES;
}

/* Groups at .. at + 1 (or only the first) of up to LANES rows of W into as many columns. In a block
 * of 256 values they are pair number i. */
INLINE void pack_pair(const plsh_weight_type type, const plsh_int8_packing *p, int64_t at, int c,
                      const int8_block *blocks, const int i, const int groups) {
    const bool super = plsh_int8_is_super(type);
    const int run = plsh_weight_has_halves(type) ? 16 : 32, bytes = plsh_weight_block_bytes(type);
    const int have = columns_from(p, c);
    const int64_t number = at * 32 / run * WIDTH + c; /* of the first scale */
    vector rows[LANES];
    for (int r = 0; r < have; r++) {
        const uint8_t *row = (const uint8_t *)p->weight + (size_t)(c + r) * p->row_bytes;
        const uint8_t *block = row + (super ? at / 8 : at) * bytes;
        int8_pair pair;
        __builtin_prefetch(block + WIDTH * p->row_bytes + i * 64); /* in the next panel */
        if (super)
            read_pair_of(&pair, type, &blocks[r], block, i);
        else
            read_pair(&pair, type, block, groups);
        rows[r] = _mm512_castsi512_ps(pair.u);
        put_scales(type, p->scale + number + r, pair.scale, groups);
        if (plsh_int8_has_offset(type)) put_offsets(p->offset + number + r, pair.offset, groups);
    }
    for (int r = have; r < LANES; r++) rows[r] = v_set(0.0f);
    v_transpose(rows);
    float *to = (float *)(void *)p->panel + at * 8 * WIDTH + c;
    UNROLL for (int k = 0; k < 8 * groups; k++) v_store(to + k * WIDTH, rows[k]);
}

/* All groups of LANES columns from c on. */
INLINE void pack_columns(const plsh_weight_type type, const plsh_int8_packing *p, int c) {
    const bool super = plsh_int8_is_super(type);
    const int64_t groups = p->depth / 32, step = super ? 8 : 2;
    const int have = columns_from(p, c);
    int8_block blocks[LANES];
    int64_t at = 0;
    for (; at + step <= groups; at += step) {
        const uint8_t *first = (const uint8_t *)p->weight + (size_t)c * p->row_bytes +
                               at / 8 * plsh_weight_block_bytes(type);
        for (int r = 0; super && r < have; r++)
            read_block(&blocks[r], type, first + (size_t)r * p->row_bytes);
        UNROLL for (int i = 0; i < step / 2; i++) pack_pair(type, p, at + 2 * i, c, blocks, i, 2);
    }
    if (!super && at < groups) pack_pair(type, p, at, c, blocks, 0, 1);
}

INLINE void pack_panel(const plsh_weight_type type, const plsh_int8_packing *p) {
    const int runs = p->depth / (plsh_weight_has_halves(type) ? 16 : 32);
    for (int c = 0; c < WIDTH; c += LANES) pack_columns(type, p, c);
    for (int i = 0; i < runs; i++) {
        for (int c = p->columns; c < WIDTH; c++) {
            p->scale[i * WIDTH + c] = 0.0f;
            if (plsh_int8_has_offset(type)) p->offset[i * WIDTH + c] = 0.0f;
        }
    }
}

#endif
