/* mpi: merges the attention of a unit on parts of its keys into that on all keys.
 *
 * Forward: o and lse of a part are merged with those of the parts before,
 *     lse = log(e^lse1 + e^lse2),     o = e^(lse1 - lse) o1 + e^(lse2 - lse) o2.
 * Backward: P = exp(S - lse) needs no part but its own; dQ is summed over the parts. */
#ifndef PLSH_MPI_MERGE_H
#define PLSH_MPI_MERGE_H

#include "mpi/call.h"

/* Rows of a unit in the user's layouts; lse [heads][own queries]. o, lse and d_q are of all parts
 * so far: the user's, except an o that is not float32, and an lse that the user has no array for.
 * part and part_lse are of the current part: o (backward: d_q) and lse, where there are several. */
typedef struct plsh_mpi_merge {
    float *o, *lse, *d_q;
    float *part, *part_lse;
} plsh_mpi_merge;

/* The memory for it, in the plan: units run one after the other, so that all share that of the
 * current part. */
plsh_status plsh_mpi_merge_prepare(const plsh_mpi_call *call, const plsh_mpi_unit *unit,
                                   plsh_error *error);
void plsh_mpi_merge_release(plsh_mpi_plan *plan); /* that of the current part */
plsh_mpi_merge plsh_mpi_merge_of(const plsh_mpi_call *call, const plsh_mpi_unit *unit);

/* Merges the current part, which is complete for these queries. */
void plsh_mpi_merge_part(const plsh_mpi_call *call, const plsh_mpi_unit *unit,
                         const plsh_mpi_merge *merge, plsh_range queries);

/* Forward, after the last part: o of another type than float32 is rounded once. */
void plsh_mpi_merge_finish(const plsh_mpi_call *call, const plsh_mpi_unit *unit,
                           const plsh_mpi_merge *merge);

#endif
