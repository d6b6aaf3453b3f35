/* cli: mean and standard deviation, added up one by one (Welford). */
#ifndef PLSH_CLI_MOMENTS_H
#define PLSH_CLI_MOMENTS_H

#include <math.h>

typedef struct cli_moments {
    double count, mean, squares;
} cli_moments;

static inline void cli_moments_add(cli_moments *m, double x) {
    double before = x - m->mean;
    m->count++;
    m->mean += before / m->count;
    m->squares += before * (x - m->mean);
}

/* The standard deviation of the values, not of their mean; 0 for a single value. */
static inline double cli_moments_deviation(const cli_moments *m) {
    return m->count > 1 ? sqrt(m->squares / (m->count - 1)) : 0;
}

#endif
