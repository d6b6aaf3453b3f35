/* partition: permutations of 0 .. s-1 without a table. */
#ifndef PLSH_PARTITION_PERMUTE_H
#define PLSH_PARTITION_PERMUTE_H

#include <stdint.h>

/* The image of `place`, 0 <= place < s, under a permutation of 0 .. s-1 that depends on the key: a
 * Feistel network on the next even number of bits, applied until the result is below s (cycle
 * walking). */
static inline uint64_t plsh_permuted(uint64_t place, uint64_t s, uint64_t key) {
    int half = 1;
    while (s > UINT64_C(1) << 2 * half) half++;
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        for (int round = 0; round < 4; round++) {
            uint64_t right = place & mask, mixed = (right ^ key) * UINT64_C(0x9e3779b97f4a7c15);
            mixed = (mixed ^ mixed >> 32) * UINT64_C(0xd6e8feb86659fd93);
            place = right << half | ((place >> half ^ mixed >> 32) & mask);
            key = key >> 16 | key << 48; /* rotated by 64 bits after four rounds, so every walk uses
                                            the same key */
        }
    } while (place >= s);
    return place;
}

#endif
