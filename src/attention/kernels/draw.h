/* attention: random words over the vector vocabulary, a key per 64-bit lane; part of template.h. */
#ifndef PLSH_KERNELS_DRAW_H
#define PLSH_KERNELS_DRAW_H

#include "base/random.h"

/* Philox4x32-10 as in base/random.h. A word of 32 bits is the low half of a lane; the
 * multiplication ignores the high half. */
INLINE void draw_rounds(v_words c[4], uint64_t seed) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        const v_words a = v_multiply_low(c[0], PHILOX_M4x32_0);
        const v_words b = v_multiply_low(c[2], PHILOX_M4x32_1);
        c[0] = (b >> 32) ^ c[1] ^ (uint64_t)key[0];
        c[2] = (a >> 32) ^ c[3] ^ (uint64_t)key[1];
        c[1] = b;
        c[3] = a;
        key[0] += PHILOX_W32_0;
        key[1] += PHILOX_W32_1;
    }
}

static void draw(uint64_t *first, uint64_t *second, uint64_t seed, uint64_t index,
                 const uint64_t *key, int keys) {
    const v_words zero = {0}, low = zero + (uint64_t)UINT32_MAX, at = zero + index;
    for (int j = 0; j < keys; j += LANES / 2) {
        v_words c[4] = {at, at >> 32};
        memcpy(&c[2], key + j, sizeof c[2]);
        c[3] = c[2] >> 32;
        draw_rounds(c, seed);
        c[0] = (c[0] & low) | c[1] << 32;
        c[2] = (c[2] & low) | c[3] << 32;
        memcpy(first + j, &c[0], sizeof c[0]);
        memcpy(second + j, &c[2], sizeof c[2]);
    }
}

#endif
