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

#endif
