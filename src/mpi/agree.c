/* mpi: a failure of one rank becomes a failure of all ranks. */
#include "mpi/agree.h"

#include <limits.h>
#include <string.h>

#include "base/status.h"

plsh_status plsh_mpi_try(int code, const char *what, plsh_error *error) {
    if (code == MPI_SUCCESS) return PLSH_STATUS_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return plsh_fail(error, PLSH_STATUS_IO, "MPI, %s: %.180s", what, text);
}

/* A rank has failed: finds the lowest one, and broadcasts its message. */
static plsh_status tell(MPI_Comm communicator, plsh_status mine, plsh_error *error) {
    int rank = 0, ranks = 0, speaker = 0;
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &ranks);
    const int failed = mine ? rank : ranks;
    plsh_status status =
        plsh_mpi_try(MPI_Allreduce(&failed, &speaker, 1, MPI_INT, MPI_MIN, communicator),
                     "agreeing on an error", error);
    if (status) return status;
    struct {
        int status;
        char message[sizeof error->message];
    } failure = {.status = (int)mine};
    if (speaker == rank && error) memcpy(failure.message, error->message, sizeof failure.message);
    status = plsh_mpi_try(MPI_Bcast(&failure.status, 1, MPI_INT, speaker, communicator),
                          "passing on an error", error);
    if (!status)
        status = plsh_mpi_try(
            MPI_Bcast(failure.message, sizeof failure.message, MPI_CHAR, speaker, communicator),
            "passing on an error", error);
    if (status) return status;
    return plsh_fail(error, (plsh_status)failure.status, "rank %d: %.230s", speaker,
                     failure.message);
}

plsh_status plsh_mpi_agree(MPI_Comm communicator, plsh_status mine, plsh_error *error) {
    const int status = (int)mine;
    int worst = 0;
    plsh_status failed =
        plsh_mpi_try(MPI_Allreduce(&status, &worst, 1, MPI_INT, MPI_MAX, communicator),
                     "agreeing that all went well", error);
    if (failed) return failed;
    return worst ? tell(communicator, mine, error) : PLSH_STATUS_OK;
}

plsh_status plsh_mpi_agree_asked(MPI_Comm communicator, plsh_status mine, plsh_mpi_asked *asked,
                                 plsh_error *error) {
    const int rows = asked->of_rows, none = INT_MIN;
    const int own[5] = {(int)mine, asked->has_rows ? rows : none, asked->has_rows ? -rows : none,
                        asked->of_all, -asked->of_all};
    int most[5];
    plsh_status failed = plsh_mpi_try(MPI_Allreduce(own, most, 5, MPI_INT, MPI_MAX, communicator),
                                      "agreeing on a call", error);
    if (failed) return failed;
    if (most[0]) return tell(communicator, mine, error);
    const bool same_rows = most[1] == none || most[1] == -most[2], same = most[3] == -most[4];
    asked->of_rows = most[1] == none ? 0 : most[1];
    if (same_rows && same) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "the ranks do not ask for the same outputs; each is NULL on all of them that "
                     "have rows, or on none");
}

plsh_status plsh_mpi_agree_same(MPI_Comm communicator, uint64_t number, const char *what,
                                plsh_error *error) {
    uint64_t first = number;
    plsh_status status = plsh_mpi_try(MPI_Bcast(&first, 1, MPI_UINT64_T, 0, communicator),
                                      "comparing with rank 0", error);
    if (status) return status;
    if (first != number)
        status = plsh_fail(error, PLSH_STATUS_INVALID, "%s is not that of rank 0", what);
    return plsh_mpi_agree(communicator, status, error);
}
