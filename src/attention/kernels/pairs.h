/* attention: scores of bfloat16 queries and keys by products of pairs. The including file has
 * defined what scores.h asks for, with the product of pairs, and makes its table with PAIRS_TABLE.
 */
#ifndef PLSH_KERNELS_PAIRS_H
#define PLSH_KERNELS_PAIRS_H

#include "attention/kernels/scores.h"
#include "base/simd/vector_transpose.h"

/* Words x .. x + count - 1 (1..LANES) of a row; nothing beyond them is read. */
INLINE vector load_words(const uint16_t *row, int x, int count) {
    float words[LANES] = {0.0f};
    memcpy(words, row + 2 * x, (size_t)count * sizeof *words);
    return v_load(words);
}

static void pack_pairs(float *to, plsh_stored_rows from, int rows, int d) {
    const uint16_t *data = from.data;
    for (int first = 0; first < GROUP; first += LANES) {
        for (int x = 0; x < d / 2; x += LANES) {
            const int count = d / 2 - x < LANES ? d / 2 - x : LANES;
            vector block[LANES];
            for (int r = 0; r < LANES; r++)
                block[r] = first + r < rows ? load_words(data + (first + r) * from.stride, x, count)
                                            : v_set(0.0f);
            v_transpose(block);
            for (int i = 0; i < count; i++)
                v_store(to + (ptrdiff_t)(x + i) * GROUP + first, block[i]);
        }
    }
}

static void score_pairs(float *s, float *top, plsh_packed_rows q, plsh_pair_rows k, float factor,
                        plsh_score_bias bias) {
    const word_rows words = {(const char *)k.row, k.stride * (ptrdiff_t)sizeof *k.row, k.count,
                             k.dim / 2};
    score_words(s, top, q, words, factor, bias);
}

#define PAIRS_TABLE                                                                                \
    { .pack = pack_pairs, .scores = score_pairs }

#endif
