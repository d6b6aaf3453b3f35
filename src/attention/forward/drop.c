/* attention: dropout of weights. */
#include "attention/forward/drop.h"

#include <math.h>
#include <string.h>

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

typedef int32_t bits __attribute__((vector_size(16)));
typedef uint32_t unsigned_bits __attribute__((vector_size(16)));
typedef float quad __attribute__((vector_size(16)));

/* z[0 .. EACH): Z of the pairs of one draw. Branch-free: random outcomes mispredict. */
static void fill_draw(const plsh_drop *drop, uint64_t first, uint64_t second, float *z) {
    const unsigned_bits word = {(uint32_t)first, (uint32_t)(first >> 32), (uint32_t)second,
                                (uint32_t)(second >> 32)};
    const float s = drop->scale;
    const quad scale = {s, s, s, s};
    const bits low = (bits)(word & 0xffff) >= drop->below; /* -1 where it is, otherwise 0 */
    const bits high = (bits)(word >> 16) >= drop->below;
    const quad kept[2] = {(quad)((bits)scale & low), (quad)((bits)scale & high)};
    memcpy(z, kept, sizeof kept);
}

void plsh_drop_multiply(const plsh_drop *drop, const plsh_kernels *kernel, float *a,
                        plsh_drop_pairs pairs) {
    const int64_t begin = drop->query + pairs.query;
    const int rows = pairs.rows, count = pairs.count;
    uint64_t key[PLSH_TILE_KEYS], words[2][PLSH_TILE_KEYS];
    for (int j = 0; j < PLSH_TILE_KEYS; j++) key[j] = 0;
    for (int j = 0; j < count; j++)
        key[j] = (uint64_t)(drop->key + (pairs.keys ? pairs.keys[j] : pairs.first + j));
    /* Lane 0 of the first draw may be a query before these. */
    for (int at = -(int)(begin % EACH); at < rows; at += EACH) {
        const int from = at < 0 ? -at : 0, to = rows - at < EACH ? rows - at : EACH;
        kernel->draw(words[0], words[1], drop->seed, (uint64_t)(begin + at) / EACH, key, count);
        for (int j = 0; j < count; j++) {
            float z[EACH], *row = a + ((ptrdiff_t)j * kernel->group + at + from);
            fill_draw(drop, words[0][j], words[1][j], z);
            if (to - from == EACH) { /* as nearly always: in vectors */
                for (int x = 0; x < EACH; x++) row[x] *= z[x];
            } else {
                for (int x = from; x < to; x++) row[x - from] *= z[x];
            }
        }
    }
}
