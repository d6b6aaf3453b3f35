/* partition: the exactly Toeplitz sets of design toeplitz.
 *
 * N(0) = s, N(1), N(2), .. is an integer, convex, decreasing sequence that ends with zeros. With
 * all b offsets of every width b, N(b-1) - 2 N(b) + N(b+1) times, two positions at distance t share
 * exactly N(t) of the s masks, wherever they are. N is the upper envelope of lines
 *     c_k - k t,   k = 1 .. K,   K = round(s (1 - e^(-1/sigma))),   c_K = s,
 *     c_k = round(k sigma (1 + ln(s / (k sigma))) + sigma / (8 k)), at most s:
 * tangents of s e^(-t/sigma), raised by their largest distance from it between the corners. */
#ifndef PLSH_PARTITION_CONVEX_H
#define PLSH_PARTITION_CONVEX_H

#include "plsh/partition.h"

enum { PLSH_CONVEX_SAMPLES = 1 << 20 };

/* N(t), t >= 0. */
int64_t plsh_convex_count(const plsh_partition *set, int64_t t);

/* The samples begin .. end - 1 have this width. Wider samples have lower numbers. */
typedef struct plsh_convex_place {
    int64_t width, begin, end;
} plsh_convex_place;

/* The place of a sample. */
plsh_convex_place plsh_convex_place_of(const plsh_partition *set, int64_t sample);

/* The largest |N(t) / s - k(t)|: the max norm of L* - M~ for n to infinity. */
double plsh_convex_error(const plsh_partition *set);

#endif
