/* cli: scores of texts by a classifier, for classify and rerank, and files of them. */
#include "cli/lm/scores.h"

#include "base/clock.h"
#include "cli/lm/model.h"
#include "cli/message.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cli_scores_ends(const char *path, const char *ending) {
    const size_t length = strlen(path), size = strlen(ending);
    return length >= size && strcmp(path + length - size, ending) == 0;
}

int64_t cli_scores_largest(const float *scores, int64_t labels) {
    int64_t best = 0;
    for (int64_t l = 1; l < labels; l++)
        if (scores[l] > scores[best]) best = l;
    return best;
}

static int compare_scores(const void *x, const void *y) {
    const cli_ranked *a = x, *b = y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

cli_ranked *cli_scores_sort(const float *scores, int64_t count) {
    cli_ranked *sorted = malloc((size_t)count * sizeof *sorted);
    for (int64_t i = 0; sorted != NULL && i < count; i++) sorted[i] = (cli_ranked){i, scores[i]};
    if (sorted != NULL) qsort(sorted, (size_t)count, sizeof *sorted, compare_scores);
    return sorted;
}

void cli_scores_probabilities(const plsh_model *model, float *scores, int64_t labels) {
    const plsh_problem problem = plsh_model_problem(model);
    if (problem == PLSH_PROBLEM_REGRESSION && labels > 1) return;
    if (problem != PLSH_PROBLEM_SINGLE_LABEL || labels == 1) {
        for (int64_t l = 0; l < labels; l++)
            scores[l] = (float)(1.0 / (1.0 + exp(-(double)scores[l])));
        return;
    }
    const double most = (double)scores[cli_scores_largest(scores, labels)];
    double sum = 0;
    for (int64_t l = 0; l < labels; l++) sum += exp((double)scores[l] - most);
    for (int64_t l = 0; l < labels; l++) scores[l] = (float)(exp((double)scores[l] - most) / sum);
}

/* Labels are text from a model's files, so they are printed like any untrusted text. */
int cli_scores_print(const cli_output *output, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    if (output->path == NULL && !isatty(STDOUT_FILENO)) {
        vprintf(format, args);
        va_end(args);
        return CLI_DONE;
    }
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length >= 0 ? malloc((size_t)length + 1) : NULL;
    if (text != NULL) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    int code = CLI_DONE;
    if (text == NULL)
        code = cli_fail("out of memory");
    else if (output->path != NULL)
        code = cli_output_print(output, "%s", text);
    else
        cli_write_text(stdout, text, (size_t)length, true); /* its errors are seen at the end */
    free(text);
    return code;
}

int cli_scores_json(const cli_output *output, bool one_line,
                    void (*put)(const void *context, cli_json *json, int64_t i),
                    const void *context, int64_t i) {
    cli_json *json;
    plsh_error error;
    const char *text;
    size_t length;
    if (cli_json_create(&json, &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
    if (one_line) cli_json_one_line(json);
    put(context, json, i);
    const int code = cli_json_finish(json, &text, &length, &error) == PLSH_STATUS_OK
                         ? cli_output_print(output, "%s", text)
                         : cli_fail_error(&error);
    cli_json_free(json);
    return code;
}

int cli_scores_lines(const cli_output *output, int64_t count,
                     void (*put)(const void *context, cli_json *json, int64_t i),
                     const void *context) {
    int code = CLI_DONE;
    for (int64_t i = 0; code == CLI_DONE && i < count; i++)
        code = cli_scores_json(output, true, put, context, i);
    return code;
}

/* ---- Scoring --------------------------------------------------------------------------------- */

int cli_scoring_open(cli_scoring *s, const cli_lm *lm, const char *out) {
    s->output.path = out;
    if (out != NULL && !cli_scores_ends(out, ".npy") && !cli_scores_ends(out, ".jsonl") &&
        !cli_scores_ends(out, ".tsv"))
        return cli_usage("--out %s: the name has to end in .npy, .jsonl or .tsv", out);
    return cli_model_open(lm, &s->model);
}

int cli_scoring_read(cli_scoring *s, const cli_lm *lm, const cli_texts_options *options,
                     int (*add)(const void *given, cli_scoring *s, int64_t text),
                     const void *given) {
    plsh_error error;
    if (plsh_sentence_open(&s->sentence, s->model.model, PLSH_POOLING_CLS, &error) !=
        PLSH_STATUS_OK)
        return cli_fail_error(&error);
    int code = cli_model_tokenizer(lm, &s->model);
    if (code == CLI_DONE) code = cli_texts_read(options, &s->texts);
    for (int64_t i = 0; code == CLI_DONE && i < s->texts.count; i++) code = add(given, s, i);
    if (code == CLI_DONE) code = cli_outputs_open(&s->output, 1);
    if (code != CLI_DONE) return code;
    s->scores = malloc((size_t)(s->texts.count * s->model.facts.labels) * sizeof *s->scores);
    return s->scores != NULL ? CLI_DONE : cli_fail("out of memory");
}

static int score_text(void *context, int64_t text, const float *hidden, int64_t tokens) {
    const cli_scoring *s = context;
    plsh_error error;
    (void)tokens;
    return plsh_model_classify(s->model.model, hidden, s->scores + text * s->model.facts.labels,
                               &error) == PLSH_STATUS_OK
               ? CLI_DONE
               : cli_fail_error(&error);
}

int cli_scoring_run(cli_scoring *s, int64_t batch, bool probabilities) {
    const double start = plsh_clock_seconds();
    const int64_t labels = s->model.facts.labels;
    cli_model_announce(&s->model);
    const int code = cli_lists_encode(&s->model, &s->lists, batch, score_text, s);
    for (int64_t i = 0; code == CLI_DONE && probabilities && i < s->texts.count; i++)
        cli_scores_probabilities(s->model.model, s->scores + i * labels, labels);
    s->seconds = plsh_clock_seconds() - start;
    return code;
}

void cli_scoring_free(cli_scoring *s) {
    cli_outputs_abandon(&s->output, 1);
    free(s->scores);
    cli_lists_free(&s->lists);
    cli_texts_free(&s->texts);
    plsh_sentence_close(s->sentence);
    cli_model_close(&s->model);
}

void cli_scoring_put_text(const cli_scoring *s, cli_json *json, int64_t i) {
    const cli_text *text = &s->texts.items[i];
    if (text->name != NULL)
        cli_json_text(json, "name", text->name);
    else
        cli_json_bytes(json, "text", text->bytes, text->length);
}
