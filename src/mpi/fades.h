/* mpi: how far `exact` has to fetch, and what a certificate has to add for the rest.
 *
 * Keys k_j of the rows [begin, e) that a rank does not have weigh, for its query i, at most
 *
 *     exp(scale q_i.c + |scale q_i| M(e)) (k(t) + k(t+1) + ...),      M(e) = max |k_j - c|,
 *
 * where t is the distance of row e - 1, and c is one point for all ranks, near the keys' mean. M is
 * known from the norms of all ranks' tiles of keys. It is compared with what the row weighs at
 * least,
 *
 *     D_i >= sum of exp(scale q_i.k_j) k(|i-j|) over its nearest own keys j.
 *
 * Rows are fetched tile by tile until the rest is at most eps / 4 of every row (both sides
 * together). NaN satisfies no comparison, so it fetches everything. */
#ifndef PLSH_MPI_FADES_H
#define PLSH_MPI_FADES_H

#include "mpi/call.h"

/* The memory for it, once. */
plsh_status plsh_mpi_fades_make(plsh_mpi_plan *plan, plsh_error *error);
void plsh_mpi_fades_free(plsh_mpi_fades *fades);

/* Collective: sets asks, need and near of the units that are `exact`, or of all but those that
 * rotate for a certificate. */
plsh_status plsh_mpi_fades_find(plsh_mpi_call *call, bool certificate, plsh_error *error);

/* Adds to the certificate what the rows that were not fetched may have weighed. */
void plsh_mpi_fades_certify(plsh_mpi_call *call);

#endif
