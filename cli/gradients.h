/* cli: gradients of attention on arrays, for plsh attend. */
#ifndef PLSH_CLI_GRADIENTS_H
#define PLSH_CLI_GRADIENTS_H

#include "cli/attention.h"
#include "cli/output.h"

typedef struct cli_gradients {
    const char *d_o;                       /* read */
    const char *d_q, *d_k, *d_v, *d_decay; /* written */
} cli_gradients;

enum { CLI_GRADIENTS_COUNT = 5 };
extern const cli_option cli_gradients_options[CLI_GRADIENTS_COUNT];

/* Is any of them asked for? */
bool cli_gradients_asked(const cli_gradients *given);

/* Reads d_o, where any is asked for: float32, of the output's shape. */
int cli_gradients_read(const cli_gradients *given, const plsh_attention *a, plsh_npy *out);

/* Runs the backward pass on `inputs` and writes those of the four outputs (d_q, d_k,
 * d_v, d_decay) that have a path. */
int cli_gradients_run(const cli_output *outputs, const cli_arrays *arrays, cli_attention *attention,
                      const plsh_backward *inputs, cli_run *run);

#endif
