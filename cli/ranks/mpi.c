/* cli: the ranks of plsh-mpi, which mpirun starts once for each rank. */
#include "cli/command.h"
#include "cli/message.h"
#include "cli/output.h"
#include "cli/ranks.h"

#include "plsh/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    PATIENCE = 5
}; /* seconds that a rank which failed waits for the others to have failed too */

static struct {
    int rank, count;
    MPI_Comm
        end; /* the communicator on which ranks meet at the end, apart from all other messages */
    const plsh_ranks *mesh;
    plsh_mpi_watch *watch;
} ranks;

int cli_rank(void) { return ranks.rank; }
int cli_rank_count(void) { return ranks.count; }

void cli_ranks_begin(int *argc, char ***argv) {
    int provided;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks.count);
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks.end);
    if (ranks.rank == 0) return;
    cli_message_hold(ranks.rank);
    if (freopen("/dev/null", "w", stdout) == NULL) MPI_Abort(MPI_COMM_WORLD, CLI_FAILED);
}

/* ---- Ranks that are lost --------------------------------------------------------------------- */

static void tell_lost(void *context, const char *message) {
    (void)context;
    cli_outputs_remove();
    if (message != NULL) cli_message_last(message);
}

int cli_ranks_watch(double seconds) {
    plsh_error error;
    if (ranks.count == 1 || seconds == 0) return CLI_DONE;
    const plsh_status status =
        plsh_mpi_watch_start(MPI_COMM_WORLD, seconds, tell_lost, NULL, &ranks.watch, &error);
    if (status == PLSH_STATUS_UNSUPPORTED && !cli_option_given("timeout")) return CLI_DONE;
    return status == PLSH_STATUS_OK ? CLI_DONE : cli_fail_error(&error);
}

/* ---- Agreeing -------------------------------------------------------------------------------- */

/* The first rank that failed, and its code: the least of rank * CODES + code over those that did.
 */
enum { CODES = 256 };

static int failure_of(int code) {
    return code == CLI_DONE ? ranks.count * CODES : ranks.rank * CODES + code;
}

static int code_of(int first) {
    if (first == ranks.count * CODES) return CLI_DONE;
    if (first / CODES == ranks.rank) cli_message_release();
    return first % CODES;
}

int cli_ranks_agree(int code) {
    int mine = failure_of(code), first;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return code_of(first);
}

void cli_ranks_most(double *numbers, int count) {
    MPI_Allreduce(MPI_IN_PLACE, numbers, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

/* Do all ranks get here? A rank that succeeded waits for the others. A failed rank waits for a
 * limited time only: others may be blocked on it. */
static bool meet(int mine, int *first) {
    MPI_Request request;
    int done = 0;
    const struct timespec pause = {.tv_nsec = 10000000};
    MPI_Iallreduce(&mine, first, 1, MPI_INT, MPI_MIN, ranks.end, &request);
    const double begin = MPI_Wtime();
    while (!done) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (!done && mine < ranks.count * CODES && MPI_Wtime() - begin > PATIENCE) return false;
        if (!done) nanosleep(&pause, NULL);
    }
    return true;
}

int cli_ranks_end(int code) {
    int first = 0;
    if (!meet(failure_of(code), &first)) {
        cli_message_release();
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    code = code_of(first);
    plsh_mpi_ranks_destroy(ranks.mesh);
    plsh_mpi_watch_stop(ranks.watch);
    MPI_Comm_free(&ranks.end);
    MPI_Finalize();
    return code;
}

/* ---- A mesh ---------------------------------------------------------------------------------- */

/* "2x4": 2 groups; 0: no such mesh of these ranks. */
static int groups_of(const char *mesh) {
    char *end;
    if (mesh == NULL) return 1;
    long groups = strtol(mesh, &end, 10);
    if (end == mesh || *end != 'x' || groups < 1 || groups > ranks.count) return 0;
    const char *second = end + 1;
    long each = strtol(second, &end, 10);
    bool whole = end != second && *end == '\0';
    return whole && each > 0 && each <= ranks.count && groups * each == ranks.count ? (int)groups
                                                                                    : 0;
}

int cli_ranks_mesh(const char *mesh, const plsh_ranks **out) {
    plsh_error error;
    const int groups = groups_of(mesh);
    *out = NULL;
    int code = CLI_DONE;
    if (groups == 0)
        code = cli_usage("--mesh %s: data x sequence, whose product is the number of ranks, %d",
                         mesh, ranks.count);
    code = cli_ranks_agree(code);
    if (code != CLI_DONE) return code;
    if (ranks.count == 1) return CLI_DONE;
    if (ranks.mesh == NULL &&
        plsh_mpi_ranks_create(MPI_COMM_WORLD, groups, &ranks.mesh, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    *out = ranks.mesh;
    return CLI_DONE;
}
