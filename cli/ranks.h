/* cli: the processes that a command runs on. plsh is alone (cli/ranks/alone.c); plsh-mpi is started
 * by mpirun, once for each rank (cli/ranks/mpi.c). Only the first rank prints: the output of others
 * is discarded, and their messages are held back until the first failure is known. */
#ifndef PLSH_CLI_RANKS_H
#define PLSH_CLI_RANKS_H

#include "plsh/ranks.h"

void cli_ranks_begin(int *argc, char ***argv);

/* Starts the watch: if a rank gives no sign of life for so many seconds, the program ends; 0: no
 * watch. All ranks call it. */
int cli_ranks_watch(double seconds);

/* The end of the program, on every rank: the exit code, that of the first rank that failed. If a
 * rank fails and the others cannot be informed, MPI ends them. */
int cli_ranks_end(int code);

int cli_rank(void); /* 0: the first */
int cli_rank_count(void);

/* CLI_DONE where all ranks say so, otherwise the code of the first that failed. All call it. */
int cli_ranks_agree(int code);

/* The largest of each number over all ranks. All call it. */
void cli_ranks_most(double *numbers, int count);

/* The ranks as libplsh_lm takes them, NULL for one process: a mesh of data x sequence, "2x4" (NULL:
 * all in one sequence). They live until the program ends. */
int cli_ranks_mesh(const char *mesh, const plsh_ranks **out);

#endif
