/* cli: commands that run models, over the ranks of plsh-mpi. plsh has one rank. */
#ifndef PLSH_CLI_LM_MESH_H
#define PLSH_CLI_LM_MESH_H

#include "cli/lm/score.h"
#include "cli/output.h"

/* --mesh, a text, in the table of a command. */
#define CLI_MESH_OPTION(options, member)                                                           \
    {                                                                                              \
        .name = "mesh", .kind = CLI_TEXT, CLI_MEMBER(options, member), .value = "DxS",             \
        .varies = CLI_BY_RUN,                                                                      \
        .help = "plsh-mpi: D groups of ranks, each with windows of its own, and S ranks in each, " \
                "which share their tokens; else 1 x all"                                           \
    }

/* model->ranks, for a mesh "2x4" or NULL. Options that need a session are refused. */
int cli_mesh_open(const cli_lm *options, const char *mesh, cli_model *model);

/* Checks that all ranks have the settings and data of the first. A stale copy of a file on one host
 * would give wrong results, or a deadlock. All ranks call these at the same place; they fail on all
 * ranks, and the message names the rank and the difference.
 *     settings: the command's options except those that may differ by rank (CLI_BY_RANK)
 *     weights:  the model's, all of them */
int cli_mesh_same_settings(const cli_model *model, const cli_command *command,
                           const void *settings);
int cli_mesh_same_weights(const cli_model *model);
int cli_mesh_same_tokens(const cli_model *model, const char *what, const int32_t *ids,
                         int64_t count);

/* All three. */
int cli_mesh_same(const cli_model *model, const cli_command *command, const void *settings,
                  const cli_ids *ids);

/* All ranks call it with their `code`: the sum of their scores, or the code of a rank that
 * failed. */
int cli_mesh_scores(const cli_model *model, int code, cli_scores *scores);

/* The cost of a run so far, each number the largest of any rank. All ranks call it. */
typedef struct cli_mesh_cost {
    bool over_ranks; /* false: one process, without communication */
    int64_t bytes_sent, peak_bytes;
    double waited;
} cli_mesh_cost;

cli_mesh_cost cli_mesh_costs(const cli_model *model);

/* Adds peak_bytes, and over ranks bytes_sent and waited. cli_mesh_costs_print prints bytes sent and
 * seconds waited to stdout, after `before`; for one process it prints nothing. */
void cli_mesh_costs_json(const cli_mesh_cost *cost, cli_json *json);
void cli_mesh_costs_print(const cli_mesh_cost *cost, const char *before);

/* Gathers rows that are distributed over the ranks of one group into an array [rows][columns],
 * which the first rank writes. `own` are this rank's rows; NULL on all ranks if there is no such
 * output. */
int cli_mesh_rows(const cli_model *model, const cli_output *output, int64_t rows, int64_t columns,
                  float *own);

#endif
