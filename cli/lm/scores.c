/* cli: what classify and rerank share: scores, and files of them. */
#include "cli/lm/scores.h"

#include "cli/command.h"
#include "cli/message.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cli_scores_ends(const char *path, const char *ending) {
    const size_t length = strlen(path), size = strlen(ending);
    return length >= size && strcmp(path + length - size, ending) == 0;
}

int cli_scores_check(const char *path) {
    if (path == NULL || cli_scores_ends(path, ".npy") || cli_scores_ends(path, ".jsonl") ||
        cli_scores_ends(path, ".tsv"))
        return CLI_DONE;
    return cli_usage("--out %s: the name has to end in .npy, .jsonl or .tsv", path);
}

int64_t cli_scores_largest(const float *scores, int64_t labels) {
    int64_t best = 0;
    for (int64_t l = 1; l < labels; l++)
        if (scores[l] > scores[best]) best = l;
    return best;
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

int cli_scores_print(const cli_output *output, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (output->path == NULL) {
        vprintf(format, args);
        va_end(args);
        return CLI_DONE;
    }
    va_list again;
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length >= 0 ? malloc((size_t)length + 1) : NULL;
    if (text != NULL) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    const int code =
        text != NULL ? cli_output_print(output, "%s", text) : cli_fail("out of memory");
    free(text);
    return code;
}

int cli_scores_lines(const cli_output *output, int64_t count,
                     void (*put)(const void *context, cli_json *json, int64_t i),
                     const void *context) {
    int code = CLI_DONE;
    for (int64_t i = 0; code == CLI_DONE && i < count; i++) {
        cli_json *json;
        plsh_error error;
        const char *text;
        size_t length;
        if (cli_json_create(&json, &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
        cli_json_one_line(json);
        put(context, json, i);
        code = cli_json_finish(json, &text, &length, &error) == PLSH_STATUS_OK
                   ? cli_output_print(output, "%s", text)
                   : cli_fail_error(&error);
        cli_json_free(json);
    }
    return code;
}
