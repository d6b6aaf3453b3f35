/* attention: summaries of keys and values, made before the tiles, by which `exact` and certificates
 * decide: means, boxes and norms of the keys, ranges of the values. See plsh_bounds in plan.h. */
#ifndef PLSH_ATTENTION_SUMMARY_H
#define PLSH_ATTENTION_SUMMARY_H

#include "attention/forward/source.h"

/* Where the summaries of a kv head lie in its part of the workspace. */
plsh_bounds plsh_summary_at(const plsh_plan *plan, char *memory);

/* The mean of a few keys of a sequence, then the summary of one piece, and then the running
 * maxima, of a kv head whose keys are at k. wide: a buffer of bound_keys * head_dim floats. */
void plsh_summary_mean(const plsh_plan *plan, const plsh_bounds *bounds, const plsh_row_source *k,
                       int64_t sequence, float *wide);
void plsh_summary_piece(const plsh_plan *plan, const plsh_bounds *bounds, const plsh_row_source *k,
                        int64_t sequence, int64_t piece, float *wide);

/* The range of a sequence's values, which only certificates need. wide: value_dim floats. */
void plsh_summary_values(const plsh_plan *plan, const plsh_bounds *bounds, const plsh_row_source *v,
                         int64_t sequence, float *wide);
void plsh_summary_maxima(const plsh_plan *plan, const plsh_bounds *bounds);

/* All of that that the plan's heads (and a certificate, if arrays has one) need, for all kv heads,
 * by the threads of a parallel region; memory: bounds_bytes per kv head. */
void plsh_summary_make(const plsh_plan *plan, const plsh_forward *arrays, const plsh_pages *pages,
                       char *memory, float *wide, float *v_wide);

#endif
