/* mpi: how far `exact` has to fetch, and what a certificate has to add for the rest. */
#ifndef PLSH_MPI_FADES_H
#define PLSH_MPI_FADES_H

#include "mpi/call.h"

typedef struct plsh_mpi_fades plsh_mpi_fades;

void plsh_mpi_fades_free(plsh_mpi_fades *fades);

#endif
