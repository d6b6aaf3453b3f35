/* cli: gradients of attention on arrays, for plsh attend. */
#ifndef PLSH_CLI_GRADIENTS_H
#define PLSH_CLI_GRADIENTS_H

#include "cli/attention.h"
#include "cli/output.h"
#include "cli/positions.h"

typedef struct cli_gradients {
    const char *d_o;                       /* read */
    const char *d_q, *d_k, *d_v, *d_decay; /* written */
    const char *d_positions, *d_query_positions;
} cli_gradients;

enum { CLI_GRADIENTS = 6, CLI_GRADIENTS_COUNT = CLI_GRADIENTS + 1 };
extern const cli_option cli_gradients_options[CLI_GRADIENTS_COUNT];

/* Is any of them asked for? */
bool cli_gradients_asked(const cli_gradients *given);

/* Reads d_o, where any is asked for: float32, of the output's shape. */
int cli_gradients_read(const cli_gradients *given, const plsh_attention *a, plsh_npy *out);

/* What a backward pass reads. */
typedef struct cli_gradients_call {
    const cli_arrays *arrays;
    const cli_positions *positions;
    cli_attention *attention;
    const plsh_backward *inputs;
} cli_gradients_call;

/* Runs it and writes the outputs [CLI_GRADIENTS] that have a path, in the order of
 * cli_gradients. */
int cli_gradients_run(const cli_output *outputs, const cli_gradients_call *call, cli_run *run);

#endif
