/* head: a bound on the rounding error of a row (docs/rounding.md). */
#ifndef PLSH_HEAD_ROUNDING_H
#define PLSH_HEAD_ROUNDING_H

#include <stdbool.h>
#include <stdint.h>

#include "plsh/dtype.h"

/* A query q and the keys that it may see. Scores are in units of log2: q' = scale log2(e) q. |k| is
 * at least the norm of every key. */
typedef struct plsh_rounding_row {
    double score;    /* |q'| |k| */
    double weighted; /* see plsh_rounding_weighted */
    double log_sum;  /* log2 of the row's sum of weights, if it is biased */
    int64_t keys;    /* that it may see */
    int32_t rises;   /* how often the maximum of its scores rose */
    bool biased;     /* the decay is part of the scores */
} plsh_rounding_row;

/* In how many roundings coordinate x of d takes part: those of the factor of q, of their product,
 * of the product with k_x, of up to d - x additions, and of the addition of the bias. */
static inline int plsh_roundings_of(int d, int x) { return d - x + 4; }

/* |w| |k|, w the vector of the q'_x plsh_roundings_of(d, x), and what products of pairs of bfloat16
 * lose where numbers below 2^-126 count as 0; factor is |scale log2(e)|. */
static inline double plsh_rounding_weighted(double w, double key, double factor) {
    return w * key + 0x1p-93 * (w + factor * (key + 1));
}

/* With R the range and |V| the largest absolute value of the columns of V, rounding moves a row by
 * at most R weights + |V| values. */
typedef struct plsh_rounding {
    double weights, values;
    double log; /* log2 of the row's sum of weights is off by at most this much, with the decay or
                   without it */
} plsh_rounding;

plsh_rounding plsh_rounding_of(const plsh_rounding_row *row);

/* The rounding of the output to its type, relative to |V|. */
static inline double plsh_rounding_of_type(plsh_dtype type) {
    return type == PLSH_DTYPE_FLOAT32 ? 0 : type == PLSH_DTYPE_FLOAT16 ? 0x1.01p-11 : 0x1.01p-8;
}

#endif
