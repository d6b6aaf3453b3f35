/* cli: gradients of attention on arrays, for plsh attend. */
#ifndef PLSH_CLI_GRADIENTS_H
#define PLSH_CLI_GRADIENTS_H

#include "cli/arrays.h"

typedef struct cli_gradients {
    const char *d_o;                       /* read */
    const char *d_q, *d_k, *d_v, *d_decay; /* written */
} cli_gradients;

enum { CLI_GRADIENTS_COUNT = 5 };
extern const cli_option cli_gradients_options[CLI_GRADIENTS_COUNT];

/* Is any of them asked for? */
bool cli_gradients_asked(const cli_gradients *given);

/* Reads d_o, runs the backward pass of the plan and writes what was asked for. o and lse: those of
 * the forward pass. */
int cli_gradients_run(const cli_gradients *given, const cli_arrays *arrays, const plsh_plan *plan,
                      const float *o, const float *lse, cli_run *run);

#endif
