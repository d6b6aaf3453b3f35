/* attention: sums of large values.
 *
 * The output of a row is a mean of rows of V and no larger than they are, but its sums, before they
 * are divided, are up to n times as large: with |v| = 3e38 they overflow. So if the weights of a
 * row are finite and its output is not, the row is computed again with weights that are
 * 2^-PLSH_HEADROOM times as large (the maximum that they are relative to is raised by that much),
 * and the entries that were not finite are replaced. All others keep their bits. Entries that are
 * not finite in the second run either come from inputs that are not finite, or from scores that
 * overflow. */
#ifndef PLSH_ATTENTION_HEADROOM_H
#define PLSH_ATTENTION_HEADROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "plsh/dtype.h"

/* In units of log2: 2^40 keys, times 2^16 by dropout, and rounding. */
enum { PLSH_HEADROOM = 64 };

/* Has a row whose sum of weights 2^m l is finite an entry that is not finite? */
bool plsh_headroom_is_needed(const float *o, int64_t dim, float m, float l);

/* Replaces the entries of o that are not finite by sum[c] * factor, where that is. is_mean: the
 * result is a mean of finite numbers, which rounding must not make infinite. */
void plsh_headroom_mend(plsh_dtype dtype, void *o, const float *sum, double factor, bool is_mean,
                        int64_t dim);

#endif
