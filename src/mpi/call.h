/* mpi: one forward or backward call: its arrays, and the attention on some rows. */
#ifndef PLSH_MPI_CALL_H
#define PLSH_MPI_CALL_H

#include "mpi/transfer.h"

typedef struct plsh_mpi_call {
    plsh_mpi_plan *plan;
    const plsh_forward *forward;   /* or NULL */
    const plsh_backward *backward; /* or NULL */
    const void *q, *k, *v;         /* of either */
    double *d_decay;               /* [heads][2], sums of this rank, or NULL */
    plsh_status status;            /* the first failure of attention; messages go on */
    plsh_error error;
} plsh_mpi_call;

/* Attention of a unit's heads: these queries, these keys. `own`: k and v are the user's; else
 * without gaps. o and d_q where the user's are, or at `o`, `d_q`, in the user's layout; so with
 * lse, which is [heads][own queries]. */
typedef struct plsh_mpi_part {
    plsh_block queries, keys;
    bool own, some_keys;
    const void *k, *v;
    float *o, *lse;         /* forward: instead of the user's */
    float *d_k, *d_v, *d_q; /* backward; d_q: instead of the user's */
} plsh_mpi_part;

void plsh_mpi_call_attend(plsh_mpi_call *call, const plsh_mpi_unit *unit,
                          const plsh_mpi_part *part);

/* Elements of o (columns = value_dim) or q of a unit's own queries from its first to its last. */
size_t plsh_mpi_call_span(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit, plsh_layout layout,
                          int64_t columns);

/* The two ways of a unit. Halos: begin for all of them, then near, then far, then end. */
plsh_status plsh_mpi_halo_prepare(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error);
plsh_status plsh_mpi_halo_begin(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error);
void plsh_mpi_halo_near(plsh_mpi_call *call, plsh_mpi_unit *unit);
plsh_status plsh_mpi_halo_far(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error);
plsh_status plsh_mpi_halo_end(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error);

plsh_status plsh_mpi_rotation_prepare(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error);
plsh_status plsh_mpi_rotation_run(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error);

#endif
