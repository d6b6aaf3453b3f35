/* attention: dropout of weights, Z_ij = 0 with probability p, otherwise 1 / (1 - p).
 *
 * Z is a function of (seed, head, row of q, row of k), so that the backward pass, any thread and
 * any instruction set find the same. The seed of a head is word 0 of
 *
 *     plsh_random_at({seed, head, PLSH_PURPOSE_DROP}, 0)
 *
 * and a draw of the stream {seed of the head, key % 2^32, key / 2^32}, number query / 8, has the 16
 * bits that decide about (query, key): of its 32-bit word query % 4, the low ones where query % 8 <
 * 4, otherwise the high ones. The pair is dropped where they are below 2^16 p. */
#ifndef PLSH_ATTENTION_DROP_H
#define PLSH_ATTENTION_DROP_H

#include "attention/plan/plan.h"

enum { PLSH_PURPOSE_DROP = 0x7a5f696a };

/* The dropout mask of one head and one tile. */
typedef struct plsh_drop {
    uint64_t seed;      /* of the head */
    int64_t query, key; /* numbers of the tile's first row of q, and of its sequence's first of k */
    int32_t below;      /* 2^16 p; 0: nothing is dropped */
    float scale;        /* 1 / (1 - p) */
} plsh_drop;

/* For head h of the call, from these rows of its q and k on. */
plsh_drop plsh_drop_make(const plsh_attention_dropout *dropout, int64_t h, int64_t query,
                         int64_t key);

/* Pairs of the tile's queries query .. query + rows - 1 and `count` keys, at most PLSH_TILE_KEYS.
 */
typedef struct plsh_drop_pairs {
    int64_t query;
    int rows;
    const int32_t *keys; /* NULL: the keys first + j */
    int64_t first;
    int count;
} plsh_drop_pairs;

/* a[j * group + r] *= Z of query + r and key j. */
void plsh_drop_multiply(const plsh_drop *drop, const plsh_kernels *kernel, float *a,
                        plsh_drop_pairs pairs);

#endif
