/* cli: what classify and rerank share: scores, and files of them. */
#ifndef PLSH_CLI_LM_SCORES_H
#define PLSH_CLI_LM_SCORES_H

#include "cli/output.h"
#include "cli/record/record.h"
#include "plsh/model.h"

/* The endings that --out may have: .npy, .jsonl, .tsv; NULL is fine. */
int cli_scores_check(const char *path);
bool cli_scores_ends(const char *path, const char *ending);

/* Logits become probabilities, as the model's problem_type says; those of a regression stay. */
void cli_scores_probabilities(const plsh_model *model, float *scores, int64_t labels);
int64_t cli_scores_largest(const float *scores, int64_t labels);

/* To the file, or to stdout where none was asked for. */
int cli_scores_print(const cli_output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* JSON lines: `put` adds one value, the one of line i. */
int cli_scores_lines(const cli_output *output, int64_t count,
                     void (*put)(const void *context, cli_json *json, int64_t i),
                     const void *context);

#endif
