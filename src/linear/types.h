/* linear: the types of stored numbers, one row each. */
#ifndef PLSH_LINEAR_TYPES_H
#define PLSH_LINEAR_TYPES_H

#include "plsh/weights.h"

typedef struct plsh_weight_kind {
    const char *name;
    int block, bytes;        /* values and bytes of a block */
    int gguf;                /* its number there; -1: none */
    const char *safetensors; /* its name there; NULL: none */
    /* to[count] = the values, exactly, from any address; count is a whole number of blocks. NULL:
     * not computed with.
     */
    void (*widen)(const void *from, float *to, int64_t count);
    /* The nearest values of the type; false where one is NaN, Inf or beyond its range, whose index
     * is *bad then. NULL: the type cannot be written. */
    bool (*narrow)(const float *from, void *to, int64_t count, int64_t *bad);
} plsh_weight_kind;

extern const plsh_weight_kind plsh_weight_kinds[PLSH_WEIGHT_TYPES];

/* Bytes of a block: a constant where `type` is one. */
static inline int plsh_weight_block_bytes(const plsh_weight_type type) {
    return type == PLSH_WEIGHT_Q8_0     ? 34
           : type == PLSH_WEIGHT_Q4_0   ? 18
           : type == PLSH_WEIGHT_Q4_1   ? 20
           : type == PLSH_WEIGHT_Q5_0   ? 22
           : type == PLSH_WEIGHT_Q5_1   ? 24
           : type == PLSH_WEIGHT_Q4_K   ? 144
           : type == PLSH_WEIGHT_Q5_K   ? 176
           : type == PLSH_WEIGHT_Q6_K   ? 210
           : type == PLSH_WEIGHT_Q2_K   ? 84
           : type == PLSH_WEIGHT_Q3_K   ? 110
           : type == PLSH_WEIGHT_IQ4_NL ? 18
           : type == PLSH_WEIGHT_IQ4_XS ? 136
                                        : plsh_weight_kinds[type].bytes;
}

/* Bytes of `count` values, a whole number of blocks. */
static inline size_t plsh_weight_bytes_of(plsh_weight_type type, int64_t count) {
    const plsh_weight_kind *kind = &plsh_weight_kinds[type];
    return (size_t)(count / kind->block) * (size_t)kind->bytes;
}

/* Prefetches `count` stored values: rows of W are read piece by piece, in an order that hardware
 * prefetchers do not predict. Without this, packing panels of q8_0 took 1.5 times as long. The
 * address may be beyond the last row. */
static inline void plsh_weight_prefetch(const char *from, plsh_weight_type type, int64_t count) {
    const size_t bytes = plsh_weight_bytes_of(type, count);
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

/* By their names in files; false: there is no such type. */
bool plsh_weight_type_of_gguf(uint32_t number, plsh_weight_type *type);

/* What ggml calls the type of this number ("q3_K"), for messages; "unknown" for any other
 * number. */
const char *plsh_weight_ggml_name(uint32_t number);
bool plsh_weight_type_of_safetensors(const char *name, plsh_weight_type *type);

/* Bytes of a tensor of this shape; false where they overflow or a row is not a whole number of
 * blocks. A tensor without dimensions holds one value. */
bool plsh_weight_type_size(plsh_weight_type type, int rank, const int64_t *shape, size_t *size);

/* Do the two halves of a group of 32 values have scales (and offsets) of their own? */
static inline bool plsh_weight_has_halves(const plsh_weight_type type) {
    return type == PLSH_WEIGHT_Q6_K || type == PLSH_WEIGHT_Q2_K || type == PLSH_WEIGHT_Q3_K;
}

/* Are the stored numbers indices into plsh_weight_iq4? */
static inline bool plsh_weight_is_table(const plsh_weight_type type) {
    return type == PLSH_WEIGHT_IQ4_NL || type == PLSH_WEIGHT_IQ4_XS;
}

/* The 16 numbers of IQ4_NL and IQ4_XS. */
extern const int8_t plsh_weight_iq4[16];

/* Scale s and offset t of group j of 8 in the 12 bytes of Q4_K and Q5_K, 6 bits each. */
static inline void plsh_weight_k_scale(const uint8_t *packed, int j, int *s, int *t) {
    if (j < 4) {
        *s = packed[j] & 63;
        *t = packed[j + 4] & 63;
    } else {
        *s = (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
        *t = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
    }
}

/* Scale of run i of 16 in the 12 bytes of Q3_K: 4 low bits in the first 8 bytes, 2 high bits in the
 * last 4. */
static inline int plsh_weight_q3_scale(const uint8_t *packed, int i) {
    return ((packed[i % 8] >> i / 8 * 4 & 15) | (packed[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32;
}

/* Scale of group g of 8 of a block of IQ4_XS: 2 high bits in bytes 2 and 3, 4 low bits in bytes
 * 4 to 7. */
static inline int plsh_weight_iq4_scale(const uint8_t *block, int g) {
    return ((block[4 + g / 2] >> g % 2 * 4 & 15) | (block[2 + g / 4] >> g % 4 * 2 & 3) << 4) - 32;
}

#endif
