/* attention: can a call run on these arrays? */
#ifndef PLSH_ATTENTION_ARRAYS_H
#define PLSH_ATTENTION_ARRAYS_H

#include "attention/plan/plan.h"

/* The arrays that a call reads are there, the workspace is and lies where it must, nothing that is
 * written overlaps anything else, dropout is one, and, where the plan asks for it, the inputs are
 * finite. For calls with at least one query. */
plsh_status plsh_forward_check(const plsh_plan *plan, const plsh_forward *arrays,
                               const void *workspace, plsh_error *error);
plsh_status plsh_backward_check(const plsh_plan *plan, const plsh_backward *arrays,
                                const void *workspace, plsh_error *error);

#endif
