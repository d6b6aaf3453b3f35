/* mpi: what ranks agree on. */
#ifndef PLSH_MPI_AGREE_H
#define PLSH_MPI_AGREE_H

#include "plsh/mpi.h"

/* Failures of MPI itself, which communicators with MPI_ERRORS_RETURN report. `what` names the
 * operation. */
plsh_status plsh_mpi_try(int code, const char *what, plsh_error *error);

/* Collective: checks that `mine` is OK on all ranks, and that all ask for the same outputs. Outputs
 * that belong to rows are compared among ranks that have rows, and their result is sent to the
 * others; the rest is compared among all. */
typedef struct plsh_mpi_asked {
    bool has_rows;
    int of_rows, of_all; /* a bit for each output, at least 0 */
} plsh_mpi_asked;

plsh_status plsh_mpi_agree_asked(MPI_Comm communicator, plsh_status mine, plsh_mpi_asked *asked,
                                 plsh_error *error);

/* Collective: is the number the same on all ranks? `what` names what it stands for. */
plsh_status plsh_mpi_agree_same(MPI_Comm communicator, uint64_t number, const char *what,
                                plsh_error *error);

#endif
