/* attention: dropout of weights. */
#include "attention/forward/drop.h"

#include <math.h>

#include "attention/kernels/kernels.h"
#include "base/random.h"

enum { EACH = 8, LEVELS = 1 << 16 }; /* pairs that one draw decides about, 16 bits each */

plsh_drop plsh_drop_make(const plsh_attention_dropout *dropout, int64_t h, int64_t query,
                         int64_t key) {
    if (dropout->p == 0.0) return (plsh_drop){0};
    const plsh_stream stream = {
        .seed = dropout->seed, .head = (uint32_t)(dropout->head + h), .purpose = PLSH_PURPOSE_DROP};
    const double below = fmin(fmax(1.0, round(dropout->p * LEVELS)), LEVELS - 1);
    return (plsh_drop){.seed = plsh_random_at(stream, 0).word[0],
                       .query = dropout->query + query,
                       .key = dropout->key + key,
                       .below = (int32_t)below,
                       .scale = (float)(LEVELS / (LEVELS - below))};
}

/* z[0 .. EACH): Z of the pairs of one draw. */
static void fill_draw(const plsh_drop *drop, plsh_random random, float *z) {
    const uint32_t word[EACH / 2] = {(uint32_t)random.word[0], (uint32_t)(random.word[0] >> 32),
                                     (uint32_t)random.word[1], (uint32_t)(random.word[1] >> 32)};
    for (int x = 0; x < EACH / 2; x++) {
        z[x] = (int32_t)(word[x] & 0xffff) < drop->below ? 0.0f : drop->scale;
        z[x + EACH / 2] = (int32_t)(word[x] >> 16) < drop->below ? 0.0f : drop->scale;
    }
}

void plsh_drop_multiply(const plsh_drop *drop, float *a, int group, int64_t query, int rows,
                        const int32_t *keys, int64_t first, int count) {
    const uint64_t begin = (uint64_t)(drop->query + query);
    const int skip = (int)(begin % EACH); /* queries of the first draw that come before */
    float z[PLSH_GROUP_MAX + 2 * EACH];
    for (int j = 0; j < count; j++) {
        const uint64_t key = (uint64_t)(drop->key + (keys ? keys[j] : first + j));
        const plsh_stream stream = {drop->seed, (uint32_t)key, (uint32_t)(key >> 32)};
        for (int i = 0; i < skip + rows; i += EACH) {
            fill_draw(drop, plsh_random_at(stream, (begin + (uint64_t)i) / EACH), z + i);
        }
        float *row = a + (ptrdiff_t)j * group;
        for (int r = 0; r < rows; r++) row[r] *= z[skip + r];
    }
}
