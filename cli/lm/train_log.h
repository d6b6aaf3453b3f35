/* cli: the log of plsh train: JSON lines, and a picture of them. */
#ifndef PLSH_CLI_LM_TRAIN_LOG_H
#define PLSH_CLI_LM_TRAIN_LOG_H

#include "cli/lm/mesh.h"

#include <stdio.h>

typedef struct cli_train_log {
    const char *path;
    FILE *file; /* NULL on ranks that are not the first: nothing is logged */
    bool echo;  /* lines go to stdout too */
} cli_train_log;

/* Opens it: empty (length < 0), or truncated to `length` bytes, its size at the checkpoint of
 * `step`. A file that is not a log, or that of another run, is refused. */
int cli_train_log_open(cli_train_log *log, const char *path, int64_t length, int64_t step,
                       bool echo);
void cli_train_log_close(cli_train_log *log);

/* May the log be written under its default name in the folder? A symbolic link there is refused,
 * and a pipe, device or folder. */
int cli_train_log_check_own(const char *path);

/* All lines so far reach the disk; *length is their bytes. */
int cli_train_log_sync(cli_train_log *log, int64_t *length);

/* A step that was done, at `speed` tokens per second, or skipped. */
int cli_train_log_step(cli_train_log *log, const plsh_train_step *step, double speed);
int cli_train_log_scores(cli_train_log *log, int64_t step, const cli_scores *scores);
int cli_train_log_costs(cli_train_log *log, int64_t step, const cli_mesh_cost *cost);

/* Checks before the work that the plot can be written where --plot asks for it. */
int cli_train_log_plot_check(const char *svg);

/* The loss by step as SVG, by gnuplot; without gnuplot nothing. `own`: the name is the program's,
 * and a link there is replaced. A failure is a note only: the run continues without a plot. */
void cli_train_log_plot(cli_train_log *log, const char *svg, bool own);

#endif
