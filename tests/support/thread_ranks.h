/* tests: ranks that are threads of one process, to test what libplsh_lm asks of ranks without MPI.
 * Attention is that of one process: every rank gathers all rows and keeps its own. */
#ifndef PLSH_TESTS_THREAD_RANKS_H
#define PLSH_TESTS_THREAD_RANKS_H

#include "plsh/ranks.h"

/* Calls `work` once for each rank of a mesh, each in a thread of its own, and waits for all. */
void test_ranks_run(int groups, int ranks, void (*work)(const plsh_ranks *ranks, void *context),
                    void *context);

#endif
