/* base: the clock. Inline, so that the program and the bench loop use it too (they see no other
 * header of base). */
#ifndef PLSH_BASE_CLOCK_H
#define PLSH_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds: CLOCK_MONOTONIC, which does not advance while the machine is suspended, or the
 * processor time of a thread or process. */
static inline int64_t plsh_clock_read(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Seconds of CLOCK_MONOTONIC. */
static inline double plsh_clock_seconds(void) {
    return 1e-9 * (double)plsh_clock_read(CLOCK_MONOTONIC);
}

#endif
