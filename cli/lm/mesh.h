/* cli: what the commands that run models do over the ranks of plsh-mpi. In plsh there is one. */
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

/* model->ranks, for a mesh "2x4" or NULL. Sessions, and what only they have, are refused. */
int cli_mesh_open(const cli_lm *options, const char *mesh, cli_model *model);

/* Have all ranks what the first has? A stale copy of a file on one host would give wrong figures,
 * or ranks that wait for ever. All call these at the same place; they fail on all, with the number
 * of the rank and what differs.
 *     settings: the command's options but for those that vary by rank (CLI_BY_RANK)
 *     weights:  the model's, all of them */
int cli_mesh_same_settings(const cli_model *model, const cli_command *command,
                           const void *settings);
int cli_mesh_same_weights(const cli_model *model);
int cli_mesh_same_tokens(const cli_model *model, const char *what, const int32_t *ids,
                         int64_t count);

/* All three. */
int cli_mesh_same(const cli_model *model, const cli_command *command, const void *settings,
                  const cli_ids *ids);

/* All ranks have come here with `code`: the sum of their scores, or the code of one that failed. */
int cli_mesh_scores(const cli_model *model, int code, cli_scores *scores);

/* What a run cost so far: the most of a rank. All ranks call it. */
typedef struct cli_mesh_cost {
    bool over_ranks; /* false: there is nobody to send to, or to wait for */
    int64_t bytes_sent, peak_bytes;
    double waited;
} cli_mesh_cost;

cli_mesh_cost cli_mesh_costs(const cli_model *model);

/* peak_bytes, and over ranks bytes_sent and waited. In words, to stdout: the latter two after
 * `before`, nothing for one process. */
void cli_mesh_costs_json(const cli_mesh_cost *cost, cli_json *json);
void cli_mesh_costs_print(const cli_mesh_cost *cost, const char *before);

/* Rows that are spread over the ranks of one group, into an array [rows][columns] that the first
 * one writes; `own` are this rank's, NULL on all where it was not asked for. */
int cli_mesh_rows(const cli_model *model, const cli_output *output, int64_t rows, int64_t columns,
                  float *own);

#endif
