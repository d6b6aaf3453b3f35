/* cli: scores of texts by a classifier, for classify and rerank, and files of them. */
#ifndef PLSH_CLI_LM_SCORES_H
#define PLSH_CLI_LM_SCORES_H

#include "cli/lm/lists.h"
#include "cli/lm/texts.h"
#include "cli/output.h"
#include "cli/record/record.h"
#include "plsh/sentence.h"

/* A classifier, and its scores of texts. */
typedef struct cli_scoring {
    cli_model model;
    plsh_sentence *sentence; /* knows the longest text that the model takes */
    cli_texts texts;
    cli_lists lists;
    float *scores; /* [texts][labels] */
    cli_output output;
    double seconds;
} cli_scoring;

/* Refuses an --out that does not end in .npy, .jsonl or .tsv (NULL is fine), and opens the model.
 */
int cli_scoring_open(cli_scoring *s, const cli_lm *lm, const char *out);

/* Reads the texts, appends the tokens of each to s->lists by `add`, and opens the output. */
int cli_scoring_read(cli_scoring *s, const cli_lm *lm, const cli_texts_options *options,
                     int (*add)(const void *given, cli_scoring *s, int64_t text),
                     const void *given);

/* Computes the scores: logits, or probabilities. */
int cli_scoring_run(cli_scoring *s, int64_t batch, bool probabilities);
void cli_scoring_free(cli_scoring *s);

/* The name of text i, or the text itself, into an open object. */
void cli_scoring_put_text(const cli_scoring *s, cli_json *json, int64_t i);

/* Does a path have this ending? */
bool cli_scores_ends(const char *path, const char *ending);

/* Turns logits into probabilities, as the model's problem_type says. Those of a regression stay. */
void cli_scores_probabilities(const plsh_model *model, float *scores, int64_t labels);

/* The label of the largest score. */
int64_t cli_scores_largest(const float *scores, int64_t labels);

typedef struct cli_ranked {
    int64_t index;
    float score;
} cli_ranked;

/* The scores in descending order, for the caller to free; equal ones in the order of their index.
 * NULL: out of memory. */
cli_ranked *cli_scores_sort(const float *scores, int64_t count);

/* Prints to the file, or to stdout if no file was asked for. */
int cli_scores_print(const cli_output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes one JSON document, which `put` makes; with cli_scores_lines one of each i on a line. */
int cli_scores_json(const cli_output *output, bool one_line,
                    void (*put)(const void *context, cli_json *json, int64_t i),
                    const void *context, int64_t i);
int cli_scores_lines(const cli_output *output, int64_t count,
                     void (*put)(const void *context, cli_json *json, int64_t i),
                     const void *context);

#endif
