/* head: the budget of `exact`, and the shares of it that each place may use.
 *
 * Keys are left out of a row if together they weigh at most eps of what the row keeps. Some keys
 * weigh, at most,
 *
 *     exp(the largest score that they can have) * (the sum of k over their distances),
 *
 * where the score is bounded by |q| max |k - c| + q.c for a point c near the keys (Cauchy and
 * Schwarz), or by a box or a ball around them, and decay/tail.h bounds the sum. Every place that
 * leaves out keys charges that bound to its share of eps:
 *
 *     a walk over tiles      PIECES     pieces that their box excludes, or their weights once known
 *                            NORMS      pieces that their norm alone excludes
 *                            REST       everything beyond the point where the walk stops
 *     decoding               OLDER      the pages before those that are read
 *                            PAGES      single pages, an equal part for each of the sequence
 *     a chunk of a prompt    OLDER      the pages before the keys of its plan
 *                            CHUNK      that plan: a walk over tiles, with this much for its eps
 *     a part of a text       ABSENT     rows of others that are not fetched
 *                            1 - ABSENT the calls on the rows that are there, each a walk
 *
 * The shares of a place sum to 1. NORMS, REST and ABSENT are for both sides together if there are
 * two. NaN satisfies no comparison, so it leaves out nothing. */
#ifndef PLSH_HEAD_BOUND_H
#define PLSH_HEAD_BOUND_H

#include <math.h>
#include <stdbool.h>

#define PLSH_BOUND_EPS 0x1p-24 /* the default of a head: float-exact */

typedef enum plsh_bound_share {
    PLSH_BOUND_HALF = -1, /* log2 */
    PLSH_BOUND_QUARTER = -2,
    PLSH_BOUND_PIECES = PLSH_BOUND_HALF,
    PLSH_BOUND_NORMS = PLSH_BOUND_QUARTER,
    PLSH_BOUND_REST = PLSH_BOUND_QUARTER,
    PLSH_BOUND_OLDER = PLSH_BOUND_HALF,
    PLSH_BOUND_PAGES = PLSH_BOUND_HALF,
    PLSH_BOUND_CHUNK = PLSH_BOUND_HALF,
    PLSH_BOUND_ABSENT = PLSH_BOUND_QUARTER
} plsh_bound_share;

/* A share of eps, for each side. */
static inline double plsh_bound_of(double eps, plsh_bound_share share, int sides) {
    return ldexp(eps, (int)share) / sides;
}

/* The same of logarithms to base 2. */
static inline float plsh_bound_log2_of(float log2_eps, plsh_bound_share share, int sides) {
    return log2_eps + (float)((int)share - (sides == 2));
}

#endif
