/* theory: declarations shared by the files of bounds. */
#ifndef PLSH_THEORY_BOUNDS_H
#define PLSH_THEORY_BOUNDS_H

#include "plsh/theory.h"

static inline bool plsh_is_probability(double delta) { return delta > 0 && delta < 1; }

/* A number of samples: rounded up, at least 1, INT64_MAX where it is too large. */
int64_t plsh_samples_round(double s);

/* The least value of f on [low, high] (golden section), if f falls and then rises. For other f some
 * value of f. */
double plsh_minimise(double (*f)(const void *context, double x), const void *context, double low,
                     double high);

/* The spectral norm of a stratified integer set of ALiBi, for the widths that the set has drawn;
 * the probability is that of the rotations. INFINITY: not computed, because it would take more than
 * 64 MB or visit more than 2^20 samples. */
typedef struct plsh_strata_error {
    double error;       /* exceeded with probability at most delta */
    double expectation; /* at least the mean */
    double certain;     /* never exceeded: the larger of the norms of L* and M~ */
} plsh_strata_error;

plsh_status plsh_strata_bound(const plsh_partition *set, int64_t n, double delta,
                              plsh_strata_error *found, plsh_error *error);

#endif
