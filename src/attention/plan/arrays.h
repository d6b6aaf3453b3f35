/* attention: checks the arrays of a call. */
#ifndef PLSH_ATTENTION_ARRAYS_H
#define PLSH_ATTENTION_ARRAYS_H

#include "attention/plan/plan.h"

/* Checks that the arrays that a call reads and the workspace are given, that the workspace is
 * aligned, that outputs overlap no other array, that dropout is valid, and, if the plan asks for
 * it, that the inputs are finite. For calls with at least one query. */
plsh_status plsh_forward_check(const plsh_plan *plan, const plsh_forward *arrays,
                               const void *workspace, plsh_error *error);
plsh_status plsh_backward_check(const plsh_plan *plan, const plsh_backward *arrays,
                                const void *workspace, plsh_error *error);

#endif
