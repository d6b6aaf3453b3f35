/* attention/cache: the keys that a head sees, and their weights. */
#ifndef PLSH_ATTENTION_CACHE_MASK_H
#define PLSH_ATTENTION_CACHE_MASK_H

#include "attention/cache/blocks.h"
#include "decay/tail.h"
#include "plsh/attention.h"

/* The formula of the log2 weights of a row of keys. */
typedef enum plsh_cache_mask_kind {
    PLSH_MASK_FLAT,   /* 0 */
    PLSH_MASK_SLOPE,  /* ALiBi: -t slope */
    PLSH_MASK_TABLE,  /* log2 k(t) from a table by t */
    PLSH_MASK_COUNTS, /* log2 (draws whose block of the query has begun) / s */
    PLSH_MASK_LABELS  /* log2 (draws with equal labels) / s */
} plsh_cache_mask_kind;

/* A head as decoding needs it: constant, shared by forks. */
typedef struct plsh_cache_mask {
    plsh_head head; /* auto resolved */
    const char *reason;
    plsh_cache_mask_kind kind;
    bool points;       /* positions are points: weights are those of points.h */
    double slope;      /* log2(e) / sigma */
    float *count_log2; /* [blocks + 1]: log2 (c / s) */
} plsh_cache_mask;

plsh_status plsh_cache_mask_make(plsh_cache_mask *mask, const plsh_head *head, bool points,
                                 plsh_error *error);
void plsh_cache_mask_clear(plsh_cache_mask *mask);

/* The first position that a query at `position` may see. For the sampled methods `blocks` are moved
 * to the position; if NULL, the blocks are computed from the partition. */
int64_t plsh_cache_mask_reach(const plsh_cache_mask *mask, plsh_cache_blocks *blocks,
                              int64_t position);

/* The part of a mask that follows the sequence. */
typedef struct plsh_cache_mask_state {
    plsh_cache_blocks query, oldest; /* for attending; for dropping keys */
    plsh_decay_table *decay;         /* MASK_TABLE, once there is a token */
} plsh_cache_mask_state;

plsh_status plsh_cache_mask_state_make(plsh_cache_mask_state *state, const plsh_cache_mask *mask,
                                       plsh_error *error);
plsh_status plsh_cache_mask_state_fork(plsh_cache_mask_state *fork,
                                       const plsh_cache_mask_state *state,
                                       const plsh_cache_mask *mask, plsh_error *error);
void plsh_cache_mask_state_clear(plsh_cache_mask_state *state);
size_t plsh_cache_mask_state_bytes(const plsh_cache_mask_state *state, const plsh_cache_mask *mask);
/* Room in the tables for a sequence of this length. */
plsh_status plsh_cache_mask_state_reserve(plsh_cache_mask_state *state, const plsh_cache_mask *mask,
                                          int64_t length, plsh_error *error);

/* The mask of one query. */
typedef struct plsh_cache_mask_row {
    const plsh_cache_mask *mask;
    const plsh_cache_mask_state *state;
    const int64_t *begins; /* MASK_COUNTS: [blocks], ascending */
    int64_t position;
    int64_t sample; /* mean: the one draw that counts; otherwise -1 */
} plsh_cache_mask_row;

/* s[0..count) = log2 of the weights of the keys at from..from + count - 1. */
void plsh_cache_mask_row_weights(const plsh_cache_mask_row *row, int64_t from, int count, float *s);

/* log2 of k(t) + ... + k(t+count-1), or more. */
static inline double plsh_cache_mask_row_log2_tail(const plsh_cache_mask_row *row, int64_t t,
                                                   int64_t count) {
    return plsh_decay_table_log2_tail(row->state->decay, &row->mask->head.partition.decay, t,
                                      count);
}

#endif
