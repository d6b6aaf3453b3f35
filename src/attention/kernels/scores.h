/* attention: S = factor K Q^T + bias, over words of 32 bits: floats, or pairs of bfloat16. The
 * including file has defined, besides the vector vocabulary,
 *     GROUP, GROUP_VECTORS, KEY_BLOCK   as template.h says
 *     multiply_words(q, k, sum)         sum + the product of two words, in each lane */
#ifndef PLSH_KERNELS_SCORES_H
#define PLSH_KERNELS_SCORES_H

#include <math.h>
#include <string.h>

#include "attention/kernels/kernels.h"
#include "base/simd/vector_math.h"

/* Rows of `words` words each. */
typedef struct word_rows {
    const char *row;
    ptrdiff_t bytes; /* from one row to the next */
    int count, words;
} word_rows;

/* The vectors that hold the first `rows` rows of a group: one, two, or all. A group is often not
 * full: the last one of a sequence, and the only one of a short sequence. */
INLINE int used_vectors(int rows) {
    if (rows > 0 && rows <= LANES) return 1;
    return rows > 0 && rows <= 2 * LANES && GROUP_VECTORS > 2 ? 2 : GROUP_VECTORS;
}

/* The word at `from`, which may have any address, in each lane. */
INLINE vector set_word(const char *from) {
    float word;
    memcpy(&word, from, sizeof word);
    return v_set(word);
}

/* R keys against the first G vectors of the group: R * G sums in registers. The bias is added last:
 * a sum that began with it would round each of its d steps relative to it. */
INLINE void score_block(const int R, const int G, float *s, float *top, const float *packed,
                        word_rows k, float factor, plsh_score_bias bias) {
    vector sum[KEY_BLOCK][GROUP_VECTORS];
    UNROLL for (int j = 0; j < R; j++) {
        UNROLL for (int g = 0; g < G; g++) { sum[j][g] = v_set(0.0f); }
    }
    for (int x = 0; x < k.words; x++) {
        vector q[GROUP_VECTORS];
        UNROLL for (int g = 0; g < G; g++) {
            q[g] = v_load(packed + (ptrdiff_t)x * GROUP + g * LANES);
        }
        UNROLL for (int j = 0; j < R; j++) {
            vector key = set_word(k.row + j * k.bytes + x * (ptrdiff_t)sizeof(float));
            UNROLL for (int g = 0; g < G; g++) { sum[j][g] = multiply_words(q[g], key, sum[j][g]); }
        }
    }
    UNROLL for (int g = 0; g < G; g++) {
        vector best = v_load(top + g * LANES);
        UNROLL for (int j = 0; j < R; j++) {
            vector y = v_set(factor) * sum[j][g];
            if (bias.at) {
                const vector b = v_load(bias.at + g * LANES - j), none = v_set(-INFINITY);
                y = v_fma(v_set(factor), sum[j][g], b);
                if (bias.masks) y = v_if_equal(b, none, none, y);
            }
            v_store(s + j * GROUP + g * LANES, y);
            best = v_max(best, y);
        }
        v_store(top + g * LANES, best);
    }
    for (int j = 0; j < R; j++) {
        for (int g = G; g < GROUP_VECTORS; g++) v_store(s + j * GROUP + g * LANES, v_set(0.0f));
    }
}

INLINE void score_keys(const int G, float *s, float *top, const float *packed, word_rows k,
                       float factor, plsh_score_bias bias) {
    for (; k.count >= KEY_BLOCK; k.count -= KEY_BLOCK) {
        score_block(KEY_BLOCK, G, s, top, packed, k, factor, bias);
        s += KEY_BLOCK * GROUP;
        k.row += KEY_BLOCK * k.bytes;
        if (bias.at) bias.at -= KEY_BLOCK;
    }
    switch (k.count) {
#define REMAINDER(R)                                                                               \
    case R:                                                                                        \
        if (R < KEY_BLOCK) score_block(R < KEY_BLOCK ? R : 1, G, s, top, packed, k, factor, bias); \
        break;
        REMAINDER(1)
        REMAINDER(2)
        REMAINDER(3)
        REMAINDER(4)
        REMAINDER(5)
        REMAINDER(6)
        REMAINDER(7)
#undef REMAINDER
    default: break;
    }
}

INLINE void score_words(float *s, float *top, plsh_packed_rows q, word_rows k, float factor,
                        plsh_score_bias bias) {
    const int used = used_vectors(q.rows);
    bias.masks = bias.masks && bias.at;
    for (int g = 0; g < GROUP; g++) top[g] = -INFINITY;
    if (used == 1)
        score_keys(1, s, top, q.at, k, factor, bias);
    else if (used == 2 && GROUP_VECTORS > 2)
        score_keys(2, s, top, q.at, k, factor, bias);
    else
        score_keys(GROUP_VECTORS, s, top, q.at, k, factor, bias);
}

#endif
