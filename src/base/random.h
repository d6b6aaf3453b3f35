/* base: random numbers without state. A number is a pure function of (seed,
 * stream, index): the same on every thread, rank and ISA. */
#ifndef PLSH_BASE_RANDOM_H
#define PLSH_BASE_RANDOM_H

/* Random123 refuses to compile for processors that it does not know; for these, plain C is
 * selected. */
#if defined(__wasm__)
#define __riscv
#include <Random123/philox.h>
#undef __riscv
#else
#include <Random123/philox.h>
#endif
#include <stdint.h>

/* A stream of random numbers. purpose: tells apart the uses of random numbers within a head; every
 * use has a number of its own ((PLSH_)PURPOSE_*, where it draws). */
typedef struct plsh_stream {
    uint64_t seed;
    uint32_t head;
    uint32_t purpose;
} plsh_stream;

typedef struct plsh_random {
    uint64_t word[2];
} plsh_random;

/* The two 64-bit words number `index` of a stream (Philox4x32-10, Salmon et
 * al. 2011): the seed is the key, (index, head, purpose) the counter. */
static inline plsh_random plsh_random_at(plsh_stream stream, uint64_t index) {
    philox4x32_key_t key = {{(uint32_t)stream.seed, (uint32_t)(stream.seed >> 32)}};
    philox4x32_ctr_t counter = {
        {(uint32_t)index, (uint32_t)(index >> 32), stream.head, stream.purpose}};
    philox4x32_ctr_t r = philox4x32(counter, key);
    return (plsh_random){{(uint64_t)r.v[1] << 32 | r.v[0], (uint64_t)r.v[3] << 32 | r.v[2]}};
}

/* A word as a double in the open interval (0, 1): (top 52 bits + 1/2) / 2^52. */
static inline double plsh_random_unit(uint64_t word) {
    return ((double)(word >> 12) + 0.5) * 0x1p-52;
}

#endif
