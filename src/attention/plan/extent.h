/* attention: the lengths of a call, and all of a plan that depends on them.
 *
 * A call that is shorter than its plan runs on a copy of the plan that is cut to its lengths; the
 * arrays of the copy lie at the front of the workspace. */
#ifndef PLSH_ATTENTION_EXTENT_H
#define PLSH_ATTENTION_EXTENT_H

#include "attention/plan/plan.h"

/* Where the sequences of the plan lie (NULL: keys from 0, queries last), and the longest span. */
void plsh_extent_place(plsh_plan *plan, const plsh_place *places);

/* Do the queries of `fixed` and sampled heads lie among their keys, and do these have labels? */
plsh_status plsh_extent_check_places(const plsh_plan *plan, plsh_error *error);

/* Do all queries lie among their keys? Certificates ask for it. */
plsh_status plsh_extent_check_inside(const plsh_plan *plan, plsh_error *error);

/* Tiles, items and pieces for the plan's lengths, into the arrays that it has for them, and the
 * tails of its decays. */
void plsh_extent_cut(plsh_plan *plan);

/* The most tiles, and the most bytes of a kv head's bounds, of any call of the plan. */
int64_t plsh_extent_most_tiles(const plsh_plan *plan);
size_t plsh_extent_most_bounds(const plsh_plan *plan);

/* Bytes at the front of the workspace. */
size_t plsh_extent_bytes(const plsh_plan *plan);

/* *call = the plan with the lengths and layouts of a call; NULL: its own. Then, for a call that has
 * queries, what depends on them, and the rest of the workspace. */
plsh_status plsh_extent_take(const plsh_plan *plan, const plsh_extent *extent, plsh_plan *call,
                             plsh_error *error);
plsh_status plsh_extent_fit(plsh_plan *call, const plsh_extent *extent, char *workspace,
                            char **rest, plsh_error *error);

#endif
