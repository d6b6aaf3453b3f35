/* cli: plsh classify: labels of texts from a sequence classifier. */
#include "cli/commands.h"
#include "cli/lm/scores.h"
#include "cli/message.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct classify_options {
    const char *out;
    bool probabilities;
} classify_options;

typedef struct settings {
    cli_texts_options texts;
    classify_options classify;
    cli_lm lm;
} settings;

static const cli_option classify_table[] = {
    {.name = "probabilities",
     .kind = CLI_FLAG,
     CLI_MEMBER(classify_options, probabilities),
     .help = "instead of logits: softmax over the labels, or 1/(1 + exp(-x)) of each where the "
             "model's problem_type says that several may hold, or it has one label"},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(classify_options, out),
     .value = "FILE",
     .help = "the scores: .npy (float32 [texts, labels]), .jsonl (an object a line) or .tsv; "
             "without it they are printed, as in .tsv, or in the document with --json"},
};

static const cli_group groups[] = {CLI_GROUP("Texts", cli_texts_table, settings, texts),
                                   CLI_GROUP("Options", classify_table, settings, classify),
                                   CLI_ENCODER_GROUPS(settings)};

static int add_tokens(const void *context, cli_scoring *w, int64_t i) {
    const settings *given = context;
    const int64_t most = plsh_sentence_describe(w->sentence).longest;
    plsh_token_ids ids = {0};
    plsh_error error;
    char place[CLI_PLACE_SIZE];
    int code = CLI_DONE;
    cli_texts_place(&w->texts, i, place);
    if (plsh_sentence_ids(w->sentence, w->model.tokenizer, w->texts.items[i].bytes,
                          w->texts.items[i].length, given->texts.truncate, &ids,
                          &error) != PLSH_STATUS_OK)
        code = cli_fail("%s: %s", place, error.message);
    else if (most > 0 && (int64_t)ids.count > most)
        code = cli_fail("%s has %zu tokens; this model takes %lld: --truncate leaves the others "
                        "out",
                        place, ids.count, (long long)most);
    else if (ids.count == 0)
        code = cli_fail("%s has no tokens to classify", place);
    if (code == CLI_DONE) code = cli_lists_add(&w->lists, w->texts.path, ids.ids, NULL, ids.count);
    plsh_token_ids_free(&ids);
    return code;
}

static int open_classifier(const settings *given, cli_scoring *w) {
    int code = cli_scoring_open(w, &given->lm, given->classify.out);
    if (code == CLI_DONE && w->model.facts.labels == 0)
        code = cli_fail("%s: %s without a classifier (the tensors pooler.dense and classifier)",
                        given->lm.model.model, w->model.facts.family);
    return code;
}

/* One object: text or name, the label of the largest score, the scores by label. */
static void put_row(const void *context, cli_json *json, int64_t i) {
    const cli_scoring *w = context;
    const int64_t labels = w->model.facts.labels;
    const float *scores = w->scores + i * labels;
    cli_json_begin_object(json, NULL);
    cli_scoring_put_text(w, json, i);
    cli_json_text(json, "label",
                  plsh_model_label(w->model.model, cli_scores_largest(scores, labels)));
    cli_json_begin_object(json, "scores");
    for (int64_t l = 0; l < labels; l++)
        cli_json_number(json, plsh_model_label(w->model.model, l), (double)scores[l]);
    cli_json_end(json);
    cli_json_end(json);
}

/* The name or the line, the label of the largest score, the scores; a line a text. */
static int write_tsv(const cli_scoring *w) {
    const int64_t labels = w->model.facts.labels;
    int code = cli_scores_print(&w->output, "%s\tlabel", w->texts.items[0].name ? "name" : "line");
    for (int64_t l = 0; code == CLI_DONE && l < labels; l++)
        code = cli_scores_print(&w->output, "\t%s", plsh_model_label(w->model.model, l));
    for (int64_t i = 0; code == CLI_DONE && i < w->texts.count; i++) {
        const cli_text *text = &w->texts.items[i];
        const float *scores = w->scores + i * labels;
        const char *label = plsh_model_label(w->model.model, cli_scores_largest(scores, labels));
        code = text->name != NULL
                   ? cli_scores_print(&w->output, "\n%s\t%s", text->name, label)
                   : cli_scores_print(&w->output, "\n%lld\t%s", (long long)text->line, label);
        for (int64_t l = 0; code == CLI_DONE && l < labels; l++)
            code = cli_scores_print(&w->output, "\t%.9g", (double)scores[l]);
    }
    return code == CLI_DONE ? cli_scores_print(&w->output, "\n") : code;
}

static int save(const settings *given, cli_scoring *w) {
    const int64_t shape[] = {w->texts.count, w->model.facts.labels};
    const char *path = w->output.path;
    int code = CLI_DONE;
    if (path == NULL)
        code = given->lm.common.json ? CLI_DONE : write_tsv(w);
    else if (cli_scores_ends(path, ".npy"))
        code = cli_output_array(&w->output, PLSH_DTYPE_FLOAT32, 2, shape, w->scores);
    else if (cli_scores_ends(path, ".tsv"))
        code = write_tsv(w);
    else
        code = cli_scores_lines(&w->output, w->texts.count, put_row, w);
    if (code == CLI_DONE) code = cli_outputs_commit(&w->output, 1);
    if (code != CLI_DONE || !given->lm.common.json) return code;
    cli_json *json = cli_model_document(&given->lm, &w->model);
    if (json == NULL) return CLI_FAILED;
    cli_json_begin_array(json, "rows");
    for (int64_t i = 0; i < w->texts.count; i++) put_row(w, json, i);
    cli_json_end(json);
    return cli_model_document_end(json, cli_lists_tokens(&w->lists), w->seconds);
}

static int run_classify(const void *context) {
    const settings *given = context;
    cli_scoring w = {0};
    int code = open_classifier(given, &w);
    if (code == CLI_DONE) code = cli_scoring_read(&w, &given->lm, &given->texts, add_tokens, given);
    if (code == CLI_DONE)
        code = cli_scoring_run(&w, given->texts.batch, given->classify.probabilities);
    if (code == CLI_DONE) code = save(given, &w);
    cli_scoring_free(&w);
    return code;
}

const cli_command cli_command_classify = {
    .name = "classify",
    .summary = "labels of texts from a sequence classifier",
    .text = "Reads texts and prints for each the label with the largest score, and the scores of "
            "all labels: W tanh(pooler x_0) + b, logits unless --probabilities. Names of labels "
            "are those of the model's config.json. Models with ALiBi (MosaicBERT, DNABERT-2, "
            "JinaBERT) take texts of any length.",
    .example = "plsh classify --model classifier --text text.txt --probabilities",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_classify,
};
