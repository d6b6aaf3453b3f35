/* linear: a panel of W in int8 with registers of 512 bits. Two groups of 16 rows of W are unpacked
 * as in int8_dots_vnni.h and transposed without being written as rows before. */
#ifndef PLSH_LINEAR_INT8_PACK_VNNI_H
#define PLSH_LINEAR_INT8_PACK_VNNI_H

#include "base/simd/vector_transpose.h"
#include "linear/kernels/int8_dots_vnni.h"

/* Number i of `from` is that of run number i of a column: scales, or offsets. */
INLINE void put_factors(float *to, const float *from, const int runs) {
    UNROLL for (int i = 0; i < runs; i++) to[i * WIDTH] = from[i];
}

/* How many of the LANES columns from c on there are. */
INLINE int columns_from(const plsh_int8_packing *p, int c) {
    const int left = p->columns - c;
    return left < 0 ? 0 : left < LANES ? left : LANES;
}

/* Groups at .. at + 1 (or only the first) of up to LANES rows of W into as many columns. In a block
 * of 256 values they are pair number i. Of blocks of 32 also the scales and offsets. */
INLINE void pack_pair(const plsh_weight_type type, const plsh_int8_packing *p, int64_t at, int c,
                      const int i, const int groups) {
    const bool super = plsh_int8_is_super(type);
    const int have = columns_from(p, c), bytes = plsh_weight_block_bytes(type);
    const int64_t number = at * WIDTH + c; /* of the first scale */
    vector rows[LANES];
    for (int r = 0; r < have; r++) {
        const uint8_t *row = (const uint8_t *)p->weight + (size_t)(c + r) * p->row_bytes;
        const uint8_t *block = row + (super ? at / 8 : at) * bytes;
        __builtin_prefetch(block + WIDTH * p->row_bytes + i * 64); /* in the next panel */
        if (super) {
            rows[r] = _mm512_castsi512_ps(pair_values(type, block, i));
            continue;
        }
        int8_pair pair;
        float factors[4];
        read_pair(&pair, type, block, groups);
        rows[r] = _mm512_castsi512_ps(pair.u);
        _mm_storeu_ps(factors, pair.factors);
        put_factors(p->scale + number + r, factors, groups);
        if (plsh_int8_has_offset(type)) put_factors(p->offset + number + r, factors + 2, groups);
    }
    for (int r = have; r < LANES; r++) rows[r] = v_set(0.0f);
    v_transpose(rows);
    float *to = (float *)(void *)p->panel + at * 8 * WIDTH + c;
    UNROLL for (int k = 0; k < 8 * groups; k++) v_store(to + k * WIDTH, rows[k]);
}

/* The scales and offsets of a block of 256 values, the groups from `at` on, of LANES columns. */
INLINE void pack_factors(const plsh_weight_type type, const plsh_int8_packing *p, int64_t at,
                         int c) {
    const int parts = plsh_weight_has_halves(type) ? 2 : 1, have = columns_from(p, c);
    for (int r = 0; r < have; r++) {
        const uint8_t *block = (const uint8_t *)p->weight + (size_t)(c + r) * p->row_bytes +
                               at / 8 * plsh_weight_block_bytes(type);
        const int8_factors f = read_factors(type, block);
        UNROLL for (int part = 0; part < parts; part++) {
            const int64_t number = (at * parts + 8 * part) * WIDTH + c + r;
            float of[8];
            _mm256_storeu_ps(of, scaled_bytes(f.scale, part, f.by));
            put_factors(p->scale + number, of, 8);
            if (!plsh_int8_has_offset(type)) continue;
            _mm256_storeu_ps(of, scaled_bytes(f.offset, part, f.offset_by));
            put_factors(p->offset + number, of, 8);
        }
    }
}

/* All groups of LANES columns from c on. */
INLINE void pack_columns(const plsh_weight_type type, const plsh_int8_packing *p, int c) {
    const bool super = plsh_int8_is_super(type);
    const int64_t groups = p->depth / 32, step = super ? 8 : 2;
    int64_t at = 0;
    for (; at + step <= groups; at += step) {
        if (super) pack_factors(type, p, at, c);
        UNROLL for (int i = 0; i < step / 2; i++) pack_pair(type, p, at + 2 * i, c, i, 2);
    }
    if (!super && at < groups) pack_pair(type, p, at, c, 0, 1);
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
