/* mpi: exchanges the summaries from which shards find the rows that `exact` and certificates
 * need. */
#ifndef PLSH_MPI_FADES_H
#define PLSH_MPI_FADES_H

#include "mpi/call.h"

/* Collective: sets asks, need, near and outliers of the units that are `exact`, or of all but those
 * that rotate for a certificate. The shard is prepared. */
plsh_status plsh_mpi_fades_find(plsh_mpi_call *call, bool certificate, plsh_error *error);

#endif
