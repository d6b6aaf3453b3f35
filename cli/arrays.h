/* cli: the arrays that attention commands read, and the attention they ask for. */
#ifndef PLSH_CLI_ARRAYS_H
#define PLSH_CLI_ARRAYS_H

#include "cli/options.h"

#include "plsh/attention.h"

/* ---- q, k, v: attend, error ---- */

typedef struct cli_inputs {
    const char *q, *k, *v;
    cli_integers random; /* instead: heads, n, dim */
    bool causal;
    double scale;
} cli_inputs;

enum { CLI_INPUTS_COUNT = 6 };
extern const cli_option cli_inputs_options[CLI_INPUTS_COUNT];

/* The options that attend and error share: the member `problem` of their settings. */
typedef struct cli_problem {
    cli_inputs inputs;
    cli_decays decays;
    cli_partitions partitions;
    cli_common common;
} cli_problem;

#define CLI_PROBLEM_GROUPS(settings, partitions_table)                                             \
    CLI_GROUP("Arrays", cli_inputs_options, settings, problem.inputs),                             \
        CLI_GROUP("Bias", cli_decays_options, settings, problem.decays),                           \
        CLI_GROUP("Partitions", partitions_table, settings, problem.partitions),                   \
        CLI_GROUP("Common options", cli_common_options, settings, problem.common)

/* Arrays in memory. `attention` has their shape and type, causality, scale and threads; heads are
 * for the caller to fill in. */
typedef struct cli_arrays {
    plsh_npy q, k, v;
    bool random; /* made here, not read */
    plsh_attention attention;
} cli_arrays;

/* Reads the arrays, or draws normal numbers from the seed; checks that the shapes agree. */
int cli_arrays_read(const cli_inputs *inputs, const cli_common *common, cli_arrays *out);
void cli_arrays_free(cli_arrays *arrays);

/* Options of single methods: attend, bench. */
typedef struct cli_knobs {
    double eps, window;
    int64_t block;
} cli_knobs;

enum { CLI_KNOBS_COUNT = 3 };
extern const cli_option cli_knobs_options[CLI_KNOBS_COUNT];

/* Sets all of a head but its partition. A window or block of 0 stands for that of
 * plsh_head_default. */
plsh_head cli_head_make(int method, const plsh_decay *decay, const cli_knobs *knobs);

#endif
