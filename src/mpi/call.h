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
    plsh_status status; /* the first failure of attention; the exchange of messages continues */
    plsh_error error;
} plsh_mpi_call;

/* Attention of a unit's heads by one of its plans: these queries, these keys, k and v as the plan
 * has them. o and d_q where the user's are, or at `o`, `d_q`, in the user's layout; so with lse,
 * which is [heads][own queries]. */
typedef struct plsh_mpi_part {
    plsh_range queries, keys;
    const plsh_plan *plan;
    bool some_keys; /* backward: other parts have the rest */
    bool certifies; /* forward: its certificate is that of the queries */
    const void *k, *v;
    float *o, *lse;         /* forward: instead of the user's */
    float *d_k, *d_v, *d_q; /* backward; d_q: instead of the user's */
} plsh_mpi_part;

void plsh_mpi_call_attend(plsh_mpi_call *call, const plsh_mpi_unit *unit,
                          const plsh_mpi_part *part);

/* The two kinds of units. For halos: begin for all of them, then near, then far, then end. */
plsh_status plsh_mpi_halo_prepare(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error);
plsh_status plsh_mpi_halo_begin(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error);
void plsh_mpi_halo_near(plsh_mpi_call *call, plsh_mpi_unit *unit);
plsh_status plsh_mpi_halo_far(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error);
plsh_status plsh_mpi_halo_end(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error);

plsh_status plsh_mpi_rotation_prepare(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error);
plsh_status plsh_mpi_rotation_run(plsh_mpi_call *call, plsh_mpi_unit *unit, plsh_error *error);

/* Collective: sets asks, need, near and outliers of the units that are `exact`, or of all but those
 * that rotate for a certificate. The shard is prepared. */
plsh_status plsh_mpi_fades_find(plsh_mpi_call *call, bool certificate, plsh_error *error);

#endif
