/* model: dropout from a counter. */
#include "model/dropout.h"

#include "base/random.h"
#include "base/thread.h"

enum { PURPOSE_DROPOUT = 0x64726f70, EACH = 4 }; /* EACH: numbers that one draw decides about */

static uint64_t seed_of(const plsh_dropout *dropout) {
    return dropout->seed ^ (dropout->step * UINT64_C(0x9e3779b97f4a7c15));
}

void plsh_dropout_apply(const plsh_dropout *dropout, double p, int64_t layer,
                        plsh_dropout_place place, const float *x, int64_t stride, float *to,
                        int64_t rows, int64_t columns, int threads) {
    const plsh_stream stream = {.seed = seed_of(dropout),
                                .head = (uint32_t)layer * 8 + (uint32_t)place,
                                .purpose = PURPOSE_DROPOUT};
    const uint32_t below = (uint32_t)(p * 4294967296.0);
    const float scale = (float)(1.0 / (1.0 - p));
    const int64_t draws = (columns + EACH - 1) / EACH;
#pragma omp parallel for schedule(static)                                                          \
    num_threads(plsh_thread_team(threads)) if (rows > 1 && threads > 1)
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t d = 0; d < draws; d++) {
            plsh_random random =
                plsh_random_at(stream, (uint64_t)((dropout->first + r) * draws + d));
            for (int i = 0; i < EACH && d * EACH + i < columns; i++) {
                int64_t c = d * EACH + i;
                uint32_t word = (uint32_t)(random.word[i / 2] >> (32 * (i % 2)));
                to[r * columns + c] = word < below ? 0.0f : x[r * stride + c] * scale;
            }
        }
    }
}

plsh_attention_dropout plsh_dropout_of_weights(const plsh_dropout *dropout, int64_t layer,
                                               int64_t heads) {
    return (plsh_attention_dropout){.p = dropout->weights,
                                    .seed = seed_of(dropout),
                                    .head = layer * heads,
                                    .query = dropout->group_first,
                                    .key = dropout->group_first};
}
