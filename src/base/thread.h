/* base: how many threads a call uses. Results never depend on the answer:
 * work is cut into pieces whose number and order come from the problem. */
#ifndef PLSH_BASE_THREAD_H
#define PLSH_BASE_THREAD_H

#include <omp.h>

/* What a parallel region may ask for, of `threads`: 1 in a child that was forked from a process
 * with threads, where OpenMP would wait for ever for those it lost; and no more than can be made,
 * where OpenMP would end the process. That is tried once for each calling thread and number. */
int plsh_thread_team(int threads);

/* requested > 0: that many; otherwise OpenMP's default (all cores, or
 * OMP_NUM_THREADS); both within the above. */
static inline int plsh_thread_count(int requested) {
    return plsh_thread_team(requested > 0 ? requested : omp_get_max_threads());
}

#endif
