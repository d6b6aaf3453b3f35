/* cli: the q, k and v of a model's layers, as arrays, for plsh error. */
#ifndef PLSH_CLI_LM_CAPTURE_H
#define PLSH_CLI_LM_CAPTURE_H

#include "cli/arrays.h"

typedef struct cli_capture_options {
    const char *model, *adapter, *text, *ids;
    cli_integers layers; /* none: all */
    int position;        /* 0: as projected, 1: after RoPE */
    int64_t limit;       /* tokens at most; 0: all */
    int compute;         /* a plsh_compute */
} cli_capture_options;

enum { CLI_CAPTURE_COUNT = 8 };
extern const cli_option cli_capture_table[CLI_CAPTURE_COUNT];

/* Some layers' arrays. `causal`, `scale` and threads are those of the inputs. */
typedef struct cli_capture {
    size_t count;
    int64_t *layers;
    cli_arrays *arrays;
    char *described; /* which attention the model ran, in words */
} cli_capture;

/* Refuses options that need --model where it was not given. */
int cli_capture_check(void);

int cli_capture_run(const cli_capture_options *options, const cli_inputs *inputs,
                    const cli_common *common, cli_capture *out);
void cli_capture_free(cli_capture *capture);

#endif
