/* attention: a proven bound on the error of every output row.
 *
 * The method uses weights M, exact attention the decay L: o = sum A M v / D~, D~ = sum A M,
 * A = exp(score), and o* = sum A L v / D. With E+ and E- the sums of A (M - L) over its positive
 * and of its negative parts, D = D~ - E+ + E-, and R the largest range (max - min) of a column of
 * V,
 *
 *     |o - o*| <= R max(E+, E-) / max(D, D~) = R max(E+ / D~, E- / (D~ - E+ + E-)):
 *
 * o and o* are means of the same rows of V, so at most R times the total variation distance of
 * their weights apart, which is sum A (M / D~ - L / D)+ <= E+ / D~ if D~ >= D, and by symmetry at
 * most E- / D if not. The right side grows with E+ and with E-, so an upper bound may stand for
 * what is not scored. `mean` adds R / 2 times the standard deviation of its masks' sums over their
 * mean. All sums are in the log domain: a weight that underflows does not make its pair vanish.
 * What rounding may add (head/rounding.h) is added to the result. */
#ifndef PLSH_ATTENTION_CERTIFICATE_H
#define PLSH_ATTENTION_CERTIFICATE_H

#include "attention/forward/tile.h"

/* A thread's sums of the differences between the weights M and the decay L, as 2^m l like those of
 * the softmax; tile->certificate points to them. */
typedef struct plsh_certificate_sums {
    float *over_m, *over_l, *over_low;    /* [groups][group], of A (M - L) where M > L */
    float *under_m, *under_l, *under_low; /* of A (L - M) where M < L */
    float *rest; /* log2 of an upper bound of the part that was not scored */
    float *s;    /* [PLSH_TILE_KEYS][group], scores */
} plsh_certificate_sums;

void plsh_certificate_layout(plsh_certificate_sums *sums, const plsh_plan *plan, plsh_arena *arena);

/* Fills in tile->arrays.certificate. The tile is finished; its sums m, l are still there. */
void plsh_certificate_fill(plsh_tile *tile);

#endif
