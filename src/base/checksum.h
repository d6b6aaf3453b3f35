/* base: a checksum of bytes that detects damage (not tampering).
 *
 *     h = (h ^ word) * K;  h ^= h >> 32        for every 8 bytes, little endian, and the length
 *
 * Each step is one to one in h and in the word: bytes that differ within one word never have the
 * same checksum, others have it with probability 2^-64. */
#ifndef PLSH_BASE_CHECKSUM_H
#define PLSH_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t plsh_checksum_step(uint64_t h, uint64_t word) {
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

static inline uint64_t plsh_checksum(const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    uint64_t h = UINT64_C(0x706c73682d636b73);
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = 0;
        size_t left = size - i < 8 ? size - i : 8;
        for (size_t j = 0; j < left; j++) word |= (uint64_t)at[i + j] << (8 * j);
        h = plsh_checksum_step(h, word);
    }
    return plsh_checksum_step(h, size);
}

#endif
