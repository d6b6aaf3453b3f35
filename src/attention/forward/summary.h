/* attention: summaries of keys and values, made before the tiles, by which `exact` and certificates
 * decide: means, boxes and norms of the keys, ranges of the values. */
#ifndef PLSH_ATTENTION_SUMMARY_H
#define PLSH_ATTENTION_SUMMARY_H

#include "attention/forward/source.h"

/* The summaries of keys that `exact` and certificates decide by, of one kv head, in the workspace.
 * A score's part q.mean is the same for all keys of a row, so keys are measured from the mean of a
 * few of their sequence. For every piece of plan->bound_keys keys: its box, |k - mean|max, the
 * radius of the ball around the box's centre, the running maxima from both ends, and the range of
 * the values so far. */
typedef struct plsh_summary {
    /* K and V as float32 in the order of places, [keys][d] and [keys][dv]; NULL where rows and
     * places are the same. Tiles would otherwise gather each row once for every 96 queries, a
     * quarter of the time. */
    float *k_placed, *v_placed;
    float *mean;                            /* [sequences][d] */
    float *box;                             /* [pieces][2 d], `exact` only */
    float *norm, *norm_before, *norm_after; /* before: pieces 0..t, after: t..last */
    float *radius;
    float *v_half_range; /* certificates only: half of the largest max - min of a column of V,
                          * rounded up, from the begin of the sequence to the end of the piece */
    float *v_most;       /* and the largest |v| there */
} plsh_summary;

/* Where the summaries of a kv head lie in its part of the workspace. */
plsh_summary plsh_summary_at(const plsh_plan *plan, char *memory);

/* Where a slot of plsh_thread_run widens bound_keys rows of K, and one of V. */
typedef struct plsh_summary_buffers {
    float *k, *v;
} plsh_summary_buffers;

/* What the plan's heads (and a certificate, if arrays has one) need, for all kv heads, by the
 * plan's threads. memory: summary_bytes per kv head; buffers_of(context, slot): a slot's own. */
void plsh_summary_make(const plsh_plan *plan, const plsh_forward *arrays, const plsh_pages *pages,
                       char *memory, plsh_summary_buffers (*buffers_of)(void *context, int slot),
                       void *context);

#endif
