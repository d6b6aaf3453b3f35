/* partition: the golden lattice moved by a random vector (design golden-shifted).
 *
 * Blocks are the points x of Z[phi] + tau with x > 0, x' > 0 and x x' < X = sqrt(5) s, from
 * sigma ln(x / sqrt X) to -sigma ln(x' / sqrt X); s M~_ij is the number of blocks that hold both i
 * and j (docs/mathematics.md, section 22). Slab j holds the blocks that begin in period j of
 * golden.h. Division by phi^2 takes slab j to slab 0 and tau, in the coordinates (m, k) of m + k
 * phi, to tau times [[2, -1], [-1, 1]]^j modulo 1: exact in turns of 2^-64, at any position. */
#ifndef PLSH_PARTITION_SHIFTED_H
#define PLSH_PARTITION_SHIFTED_H

#include "partition/golden.h"

/* With fewer than 7 samples the theorem does not guarantee a block at every position; with a
 * smaller sigma there are more than 16 slabs per position. */
enum { PLSH_SHIFTED_LEAST_SAMPLES = 7, PLSH_SHIFTED_LEAST_SIGMA_INVERSE = 16 };

/* How far s M~_ij can be from s L*_ij: 3.01 ln(sqrt X + 3.62) + 0.56. */
double plsh_shifted_delta(int64_t samples);

/* No position is in more blocks than this. */
int64_t plsh_shifted_most(int64_t samples);

/* No block has more positions than this: longer ones are cut off. */
int64_t plsh_shifted_longest(const plsh_partition *set);

/* Calls visit for every block that holds one of the positions begin <= i < end, in an order that
 * depends on the set and on begin alone. Positions as in plsh/partition.h. O(s) for the blocks of
 * one position. */
typedef void plsh_shifted_visitor(void *context, plsh_range block);
void plsh_shifted_visit(const plsh_partition *set, plsh_range rows, plsh_shifted_visitor *visit,
                        void *context);

/* The first begin and the last end of these blocks. */
plsh_range plsh_shifted_hull(const plsh_partition *set, plsh_range rows);

/* How many blocks hold both i and j. */
int64_t plsh_shifted_count(const plsh_partition *set, int64_t i, int64_t j);

#endif
