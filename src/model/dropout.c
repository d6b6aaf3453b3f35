/* model: dropout from a counter. */
#include "model/dropout.h"

#include "base/random.h"
#include "base/thread.h"

enum { PURPOSE_DROPOUT = 0x64726f70, EACH = 4 }; /* EACH: numbers that one draw decides about */

static uint64_t seed_of(const plsh_dropout *dropout) {
    return dropout->seed ^ (dropout->step * UINT64_C(0x9e3779b97f4a7c15));
}

typedef struct drawn_mask {
    plsh_stream stream;
    uint32_t below;
    float scale;
    int64_t first, columns;
    plsh_const_matrix x;
    float *to;
} drawn_mask;

static void apply_rows(void *context, int64_t row, int64_t end, int slot) {
    const drawn_mask *m = context;
    const int64_t draws = (m->columns + EACH - 1) / EACH;
    (void)slot;
    for (int64_t r = row; r < end; r++) {
        for (int64_t d = 0; d < draws; d++) {
            plsh_random random = plsh_random_at(m->stream, (uint64_t)((m->first + r) * draws + d));
            for (int i = 0; i < EACH && d * EACH + i < m->columns; i++) {
                int64_t c = d * EACH + i;
                uint32_t word = (uint32_t)(random.word[i / 2] >> (32 * (i % 2)));
                m->to[r * m->columns + c] =
                    word < m->below ? 0.0f : m->x.data[r * m->x.stride + c] * m->scale;
            }
        }
    }
}

void plsh_dropout_apply(plsh_dropout_mask mask, int64_t rows, int64_t columns, plsh_const_matrix x,
                        float *to, int threads) {
    const double p =
        mask.place <= PLSH_DROPOUT_MLP_OUT ? mask.dropout->hidden : mask.dropout->adapter;
    drawn_mask m = {.stream = {.seed = seed_of(mask.dropout),
                               .head = (uint32_t)mask.layer * 8 + (uint32_t)mask.place,
                               .purpose = PURPOSE_DROPOUT},
                    .below = (uint32_t)(p * 4294967296.0),
                    .scale = (float)(1.0 / (1.0 - p)),
                    .first = mask.dropout->first,
                    .columns = columns,
                    .x = x,
                    .to = to};
    plsh_thread_rows(threads, rows, 1, apply_rows, &m);
}

plsh_attention_dropout plsh_dropout_of_weights(const plsh_dropout *dropout, int64_t layer,
                                               int64_t heads) {
    return (plsh_attention_dropout){.p = dropout->weights,
                                    .seed = seed_of(dropout),
                                    .head = layer * heads,
                                    .query = dropout->group_first,
                                    .key = dropout->group_first};
}
