/* mpi: what `exact` has to fetch, and what a certificate has to add for the rest.
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
 * One key of large norm far away (the first of a text, that every query looks at) would fetch
 * all rows up to it. So M leaves out the few tiles of largest norm of a kv head, the outliers; tile
 * T of n rows, whose nearest one is at distance t, is bounded by itself,
 *
 *     exp(scale q_i.c + |scale q_i| M_T) (k(t) + ... + k(t+n-1)),     M_T = max of T's |k_j - c|.
 *
 * Rows are fetched tile by tile, in one stretch, until the rest is at most 15/16 of eps / 4 of
 * every row (both sides together). Of the outliers beyond, each that may weigh more than its share
 * of the last 16th is fetched, too. Such a tile is one more part of the attention of the queries
 * that need it, dense, merged by its lse (merge.h); its gradients go back as those of the stretch.
 * NaN satisfies no comparison, so it fetches everything. */
#ifndef PLSH_MPI_FADES_H
#define PLSH_MPI_FADES_H

#include "mpi/call.h"

/* The memory for it, once. */
plsh_status plsh_mpi_fades_make(plsh_mpi_plan *plan, plsh_error *error);
void plsh_mpi_fades_free(plsh_mpi_fades *fades);

/* Collective: sets asks, need, near and outliers of the units that are `exact`, or of all but those
 * that rotate for a certificate. */
plsh_status plsh_mpi_fades_find(plsh_mpi_call *call, bool certificate, plsh_error *error);

/* Adds to the certificate what the rows that were not fetched may have weighed. */
void plsh_mpi_fades_certify(plsh_mpi_call *call);

#endif
