/* cli: attention by all processes of a command: one plan, or one over the ranks of plsh-mpi, each
 * of which has the whole arrays and works on its own rows. Implemented in cli/ranks. */
#ifndef PLSH_CLI_ATTENTION_H
#define PLSH_CLI_ATTENTION_H

#include "cli/arrays.h"

typedef struct cli_attention cli_attention;

/* One pass: its time and its counts. */
typedef struct cli_run {
    double seconds;
    plsh_stats stats;
    int64_t bytes_sent; /* over ranks: the largest numbers of any rank */
    double waited;
} cli_run;

/* Arrays in the default layouts, one sequence. */
int cli_attention_create(const plsh_attention *whole, cli_attention **out);
void cli_attention_destroy(cli_attention *attention); /* NULL is fine */

/* The plan of the whole attention: heads, instruction set, predictions. */
const plsh_plan *cli_attention_plan(const cli_attention *attention);

/* The first rank gets the whole results, the other ranks those of their rows. The stats are sums
 * over all ranks. */
int cli_attention_forward(cli_attention *attention, const plsh_forward *arrays, cli_run *run);
int cli_attention_backward(cli_attention *attention, const plsh_backward *arrays, cli_run *run);

#endif
