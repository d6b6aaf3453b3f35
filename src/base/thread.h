/* base: how many threads a call uses. Results never depend on the answer:
 * work is cut into pieces whose number and order come from the problem. */
#ifndef PLSH_BASE_THREAD_H
#define PLSH_BASE_THREAD_H

#include <omp.h>

/* requested > 0: that many; otherwise OpenMP's default (all cores, or
 * OMP_NUM_THREADS). */
static inline int plsh_thread_count(int requested) {
    return requested > 0 ? requested : omp_get_max_threads();
}

#endif
