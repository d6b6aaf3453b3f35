/* attention: plans made, and their forward pass. */
#ifndef PLSH_ATTENTION_RUN_FORWARD_H
#define PLSH_ATTENTION_RUN_FORWARD_H

#include "attention/forward/source.h"

/* Bytes of the workspace: the summaries of all kv heads, and a tile for every thread. False where
 * they do not fit in a size_t. */
bool plsh_forward_size(const plsh_plan *plan, size_t *bytes);

/* The forward pass of a plan that is `paged` over K and V in pages; the number of pairs. k and v of
 * `arrays` are not looked at, and there is no certificate. One sequence. Pages that no query can
 * reach need not be there, where no head of their kv head is `exact`. */
int64_t plsh_plan_forward_pages(const plsh_plan *plan, const plsh_forward *arrays,
                                const plsh_pages *pages, void *workspace);

/* A plan for plsh_plan_forward_pages alone. */
plsh_status plsh_plan_create_paged(const plsh_attention *attention, plsh_plan **plan,
                                   plsh_error *error);

/* One whose size is that of such a plan, in memory that does not grow with the keys. It cannot run:
 * it has no decay tables. */
plsh_status plsh_plan_create_measured(const plsh_attention *attention, plsh_plan **plan,
                                      plsh_error *error);

#endif
