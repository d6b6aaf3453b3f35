/* decay: sums of k(t), which bound the weight of far keys. All such sums are made here.
 *
 *     plsh_decay_tail, plsh_decay_log_tail   one sum, of any distances (public)
 *     plsh_decay_sums                        sums for every distance, for the walk over tiles
 *     plsh_decay_table                       sums at every page, for decoding
 *
 * Sums are rounded up. Logarithms are taken where k itself may underflow: a far key with a large
 * score may still matter. */
#ifndef PLSH_DECAY_TAIL_H
#define PLSH_DECAY_TAIL_H

#include "plsh/decay.h"

#include <math.h>
#include <stdatomic.h>

/* ALiBi without a limit: log k(t) is linear in t. */
static inline bool plsh_decay_is_linear(const plsh_decay *decay) {
    return decay->kind == PLSH_DECAY_ALIBI && decay->limit == 0.0;
}

/* k(t) >= k(t+1) for all t? Only a table may rise. */
bool plsh_decay_is_decreasing(const plsh_decay *decay);

/* ---- Sums for every distance ----------------------------------------------------------------- */

enum { PLSH_TAIL_OCTAVES = 34 }; /* of distances up to 2^41 */

/* The octave of a distance: 0 for 0..256, 1 for 257..512, ... Sums stop at the end of the octave
 * that holds the longest distance. A call that is shorter than its plan therefore gets the sums of
 * a plan of its own length. */
static inline int plsh_tail_octave(int64_t t) {
    return t <= 256 ? 0 : 64 - __builtin_clzll((unsigned long long)(t - 1) >> 8);
}

/* log2 k(t) and log2 of the sums of k. A linear decay needs no table. */
typedef struct plsh_decay_sums {
    double slope;          /* linear: log2 k(t) = -slope t */
    float log_total;       /* linear: all of k(0) + k(1) + ... */
    const float *log_k;    /* otherwise: log2 k(t); NULL if linear, or without a decay */
    const float *log_tail; /* from t to the end of t's octave */
    float octave_sum[PLSH_TAIL_OCTAVES];  /* a whole octave */
    float octave_rest[PLSH_TAIL_OCTAVES]; /* the octaves beyond it, to that of the longest */
    bool decreasing;                      /* k(t) >= k(t+1) for all t */
} plsh_decay_sums;

/* Floats of the table for distances up to `longest`: 0 for a linear decay. */
int64_t plsh_decay_sums_size(const plsh_decay *decay, int64_t longest);

/* Fills in all but octave_rest. The table, of that size, is borrowed. */
void plsh_decay_sums_fill(plsh_decay_sums *sums, const plsh_decay *decay, int64_t longest,
                          float *table);

/* Sets octave_rest for distances up to `longest`, which is at most that of the table. */
void plsh_decay_sums_cut(plsh_decay_sums *sums, int64_t longest);

/* log2(2^a + 2^b), rounded up. */
static inline float plsh_log2_sum_up(float a, float b) {
    const float most = a > b ? a : b, least = a > b ? b : a;
    if (least == -INFINITY) return most;
    const float sum = most + log2f(1.0f + exp2f(least - most));
    return sum + (1e-6f + fabsf(sum) * 0x1p-22f);
}

/* log2 of k(t) + k(t+1) + ..., at most. */
static inline float plsh_decay_sums_rest(const plsh_decay_sums *sums, int64_t t) {
    if (sums->log_k)
        return plsh_log2_sum_up(sums->log_tail[t], sums->octave_rest[plsh_tail_octave(t)]);
    return sums->log_total - (float)(sums->slope * (double)t) * (1.0f - 0x1p-20f);
}

/* log2 of the sum of k over `count` distances, none of them below t, at most. */
static inline float plsh_decay_sums_some(const plsh_decay_sums *sums, int64_t t, int count) {
    float rest = plsh_decay_sums_rest(sums, t), each = log2f((float)count) + 1e-3f;
    if (!sums->log_k) each -= (float)(sums->slope * (double)t) * (1.0f - 0x1p-20f);
    if (sums->log_k && sums->decreasing) each += sums->log_k[t];
    return rest < each ? rest : each;
}

/* ---- Sums at every page ---------------------------------------------------------------------- */

/* log2 k(t) for all distances below `size`, and sums at every `step` of them. It does not change
 * once it is filled; several caches share one. */
typedef struct plsh_decay_table {
    atomic_int references;
    int64_t size, step; /* size is a multiple of step */
    float *log2;        /* [size], log2 k(t) */
    double *sum;        /* [size / step], k(t) from t = step x to the end of the table; or NULL */
} plsh_decay_table;

/* Replaces a table (NULL: none) by one of `size` distances. The sums are made if asked for and if
 * the decay's tail has no closed form. */
plsh_status plsh_decay_table_grow(plsh_decay_table **table, const plsh_decay *decay, int64_t size,
                                  int64_t step, bool with_sums, plsh_error *error);

plsh_decay_table *plsh_decay_table_share(plsh_decay_table *table); /* NULL is fine */
void plsh_decay_table_release(plsh_decay_table *table);            /* NULL is fine */
size_t plsh_decay_table_bytes(const plsh_decay_table *table);      /* of its arrays; NULL: 0 */

/* log2 of k(t) + ... + k(t+count-1), at most; table: NULL, or that of this decay. */
double plsh_decay_table_log2_tail(const plsh_decay_table *table, const plsh_decay *decay, int64_t t,
                                  int64_t count);

#endif
