/* cli: declarations shared by plsh norms and the report. */
#ifndef PLSH_CLI_NORMS_H
#define PLSH_CLI_NORMS_H

#include "plsh/decay.h"

/* The seed of the draws for one decay and number of samples: the same whichever others are asked
 * for, and unrelated to theirs. Repetition r is head r. */
uint64_t cli_norms_seed(uint64_t seed, const plsh_decay *decay, int64_t samples);

#endif
