/* attention: are the inputs finite? */
#ifndef PLSH_ATTENTION_FINITE_H
#define PLSH_ATTENTION_FINITE_H

#include "attention/plan/plan.h"

/* PLSH_STATUS_NOT_FINITE with the array, head, row and column of the first NaN or Inf in q, k, v
 * and d_o (NULL: none), in that order. */
plsh_status plsh_check_finite(const plsh_plan *plan, const plsh_forward *arrays, const float *d_o,
                              plsh_error *error);

#endif
