/* cli: plsh runs as a single process: the functions of cli/ranks.h for one rank. */
#include "cli/command.h"
#include "cli/message.h"
#include "cli/ranks.h"

#include <string.h>

void cli_ranks_begin(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
}

int cli_ranks_watch(double seconds) {
    (void)seconds;
    if (!cli_option_given("timeout")) return CLI_DONE;
    return cli_usage("--timeout: this is one process; mpirun starts several of plsh-mpi");
}

int cli_ranks_end(int code) { return code; }
int cli_rank(void) { return 0; }
int cli_rank_count(void) { return 1; }
int cli_ranks_agree(int code) { return code; }

void cli_ranks_most(double *numbers, int count) {
    (void)numbers;
    (void)count;
}

int cli_ranks_mesh(const char *mesh, const plsh_ranks **out) {
    *out = NULL;
    if (mesh == NULL || strcmp(mesh, "1x1") == 0) return CLI_DONE;
    return cli_usage("--mesh %s: this is one process; mpirun starts several of plsh-mpi", mesh);
}
