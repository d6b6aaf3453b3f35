/* partition: decays as mixtures of exponentials, k(r) = E[exp(-R r)].
 *
 *     ALiBi          R = 1 / sigma
 *     KERPLE-log     (1 + b r)^-a:  R = b Gamma(a)
 *     KERPLE-power   exp(-a r^b), 0 < b <= 1:  R = a^(1/b) S, S positive stable of index b
 *     a limit l      R = 0 with probability l */
#ifndef PLSH_PARTITION_RATE_H
#define PLSH_PARTITION_RATE_H

#include "plsh/partition.h"

/* PLSH_STATUS_UNSUPPORTED where the decay is no such mixture. */
plsh_status plsh_rate_check(const plsh_decay *decay, plsh_error *error);

/* R of a sample of the set, at most 1e300. Stratified: the quantiles are spread evenly over the
 * samples. */
double plsh_rate_of(const plsh_partition *set, int64_t sample);

/* The x with Pr[Gamma(a) <= x] = u, 0 < a <= 1e6, 0 < u < 1, to a relative 1e-12; 0 where it is
 * below e^-740. */
double plsh_rate_gamma_quantile(double a, double u);

#endif
