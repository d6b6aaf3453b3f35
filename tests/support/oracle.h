/* tests: attention in double precision by its definition, one pair after the other. */
#ifndef PLSH_TESTS_ORACLE_H
#define PLSH_TESTS_ORACLE_H

#include "plsh/attention.h"

/* The weight of (position p, key j) of a sequence under head h, next to exp(score). */
typedef double (*oracle_weight)(const void *context, int64_t h, int64_t p, int64_t j);

/* o [heads, queries, value_dim] and lse [heads, queries] (either may be NULL) of float arrays in
 * the default layout; zeros of the descriptor have the same meaning as in the library. The oracle
 * applies causality; the weight function does not. */
void oracle_attend(const plsh_attention *attention, const float *q, const float *k, const float *v,
                   oracle_weight weight, const void *context, double *o, double *lse);

/* k(|p - j|); context: the heads of the descriptor. */
double oracle_decay(const void *heads, int64_t h, int64_t p, int64_t j);

/* M~; context: an oracle_labels, the labels of every head's draws, written out. */
typedef struct oracle_labels {
    int32_t *labels; /* [heads][samples of the head][n] */
    int64_t n, first[8], samples[8];
} oracle_labels;

oracle_labels oracle_labels_make(const plsh_head *heads, int64_t count, int64_t n);
double oracle_counts(const void *labels, int64_t h, int64_t p, int64_t j);

/* Z of dropout: pair (row of q, row of k) of head h of a call. */
double oracle_drop(const plsh_attention_dropout *dropout, int64_t h, int64_t query, int64_t key);

/* Normal numbers, the same for the same seed. */
void oracle_normal(uint64_t seed, double scale, float *to, size_t count);

/* The largest |a - b|; infinite where one of them is NaN. */
double oracle_distance(const float *a, const double *b, size_t count);

#endif
