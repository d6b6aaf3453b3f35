/* attention: making plans. */
#ifndef PLSH_ATTENTION_CREATE_H
#define PLSH_ATTENTION_CREATE_H

#include "plsh/attention.h"

/* A plan for plsh_plan_forward_pages alone. */
plsh_status plsh_plan_create_paged(const plsh_attention *attention, plsh_plan **plan,
                                   plsh_error *error);

/* One whose size is that of such a plan, in memory that does not grow with the keys. It cannot run:
 * it has no decay tables. */
plsh_status plsh_plan_create_measured(const plsh_attention *attention, plsh_plan **plan,
                                      plsh_error *error);

#endif
