/* attention: the draws of a sampled head, compiled. */
#ifndef PLSH_ATTENTION_DRAWS_H
#define PLSH_ATTENTION_DRAWS_H

#include "attention/plan/plan.h"

/* Fills in counting and counts_bytes, or gathering. The head's method and groups, the plan's shape,
 * kernel and longest sequence are set. */
plsh_status plsh_draws_prepare(const plsh_plan *plan, plsh_head_plan *head, plsh_error *error);
void plsh_draws_release(plsh_head_plan *head);

#endif
