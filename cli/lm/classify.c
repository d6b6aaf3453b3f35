/* cli: plsh classify: labels of texts from a sequence classifier. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/lm/describe.h"
#include "cli/lm/lists.h"
#include "cli/lm/scores.h"
#include "cli/lm/texts.h"
#include "cli/message.h"
#include "plsh/sentence.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct classify_options {
    const char *out;
    bool probabilities, truncate;
    int64_t batch;
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
    {.name = "truncate",
     .kind = CLI_FLAG,
     CLI_MEMBER(classify_options, truncate),
     .help = "cut texts that are longer than the model takes; without it, such a text is an error"},
    {.name = "batch",
     .kind = CLI_INTEGER,
     CLI_MEMBER(classify_options, batch),
     .value = "N",
     .help = "about this many tokens per batch",
     .fallback = "4096",
     .range = CLI_AT_LEAST(1)},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(classify_options, out),
     .value = "FILE",
     .help = "the scores: .npy (float32 [texts, labels]), .jsonl (an object a line) or .tsv; "
             "without it they are printed, as in .tsv, or in the document with --json"},
};

static const cli_group groups[] = {CLI_GROUP("Texts", cli_texts_table, settings, texts),
                                   CLI_GROUP("Options", classify_table, settings, classify),
                                   CLI_LM_GROUPS(settings)};

typedef struct work {
    cli_model model;
    plsh_sentence *sentence; /* for its tokens */
    cli_texts texts;
    cli_lists lists;
    float *scores; /* [texts][labels] */
    cli_output output;
    double seconds;
} work;

static int add_tokens(const settings *given, work *w, int64_t i) {
    const int64_t most = plsh_sentence_describe(w->sentence).longest;
    plsh_token_ids ids = {0};
    plsh_error error;
    char place[CLI_PLACE_SIZE];
    int code = CLI_DONE;
    cli_texts_place(&w->texts, i, place);
    if (plsh_sentence_ids(w->sentence, w->model.tokenizer, w->texts.items[i].bytes,
                          w->texts.items[i].length, given->classify.truncate, &ids,
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

static int prepare_classify(const settings *given, work *w) {
    plsh_error error;
    int code = cli_scores_check(given->classify.out);
    if (code == CLI_DONE) code = cli_model_open(&given->lm, &w->model);
    if (code == CLI_DONE && w->model.facts.labels == 0)
        code = cli_fail("%s: %s without a classifier (the tensors pooler.dense and classifier)",
                        given->lm.model.model, w->model.facts.family);
    if (code == CLI_DONE && plsh_sentence_open(&w->sentence, w->model.model, PLSH_POOLING_CLS,
                                               &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    if (code == CLI_DONE) code = cli_model_tokenizer(&given->lm, &w->model);
    if (code == CLI_DONE) code = cli_texts_read(&given->texts, &w->texts);
    for (int64_t i = 0; code == CLI_DONE && i < w->texts.count; i++) code = add_tokens(given, w, i);
    w->output.path = given->classify.out;
    if (code == CLI_DONE) code = cli_outputs_open(&w->output, 1);
    if (code != CLI_DONE) return code;
    w->scores = malloc((size_t)(w->texts.count * w->model.facts.labels) * sizeof *w->scores);
    return w->scores != NULL ? CLI_DONE : cli_fail("out of memory");
}

static int classify_text(void *context, int64_t text, const float *hidden, int64_t tokens) {
    work *w = context;
    plsh_error error;
    (void)tokens;
    return plsh_model_classify(w->model.model, hidden, w->scores + text * w->model.facts.labels,
                               &error) == PLSH_STATUS_OK
               ? CLI_DONE
               : cli_fail_error(&error);
}

static int compute(const settings *given, work *w) {
    const double start = plsh_clock_seconds();
    const int64_t labels = w->model.facts.labels;
    cli_model_announce(&w->model);
    int code = cli_lists_encode(&w->model, &w->lists, given->classify.batch, classify_text, w);
    for (int64_t i = 0; code == CLI_DONE && given->classify.probabilities && i < w->texts.count;
         i++)
        cli_scores_probabilities(w->model.model, w->scores + i * labels, labels);
    w->seconds = plsh_clock_seconds() - start;
    return code;
}

/* One object: text or name, the label of the largest score, the scores by label. */
static void put_row(const work *w, cli_json *json, int64_t i) {
    const cli_text *text = &w->texts.items[i];
    const int64_t labels = w->model.facts.labels;
    const float *scores = w->scores + i * labels;
    cli_json_begin_object(json, NULL);
    if (text->name != NULL)
        cli_json_text(json, "name", text->name);
    else
        cli_json_bytes(json, "text", text->bytes, text->length);
    cli_json_text(json, "label",
                  plsh_model_label(w->model.model, cli_scores_largest(scores, labels)));
    cli_json_begin_object(json, "scores");
    for (int64_t l = 0; l < labels; l++)
        cli_json_number(json, plsh_model_label(w->model.model, l), (double)scores[l]);
    cli_json_end(json);
    cli_json_end(json);
}

/* The name or the line, the label of the largest score, the scores; a line a text. */
static int write_tsv(const work *w) {
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

static void put_line(const void *context, cli_json *json, int64_t i) { put_row(context, json, i); }

static int save(const settings *given, work *w) {
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
        code = cli_scores_lines(&w->output, w->texts.count, put_line, w);
    if (code == CLI_DONE) code = cli_outputs_commit(&w->output, 1);
    if (code != CLI_DONE || !given->lm.common.json) return code;
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_text(json, "model", given->lm.model.model);
    cli_json_text(json, "attention", w->model.said);
    cli_json_text(json, "compute", w->model.compute);
    cli_json_begin_array(json, "rows");
    for (int64_t i = 0; i < w->texts.count; i++) put_row(w, json, i);
    cli_json_end(json);
    cli_json_integer(json, "tokens", cli_lists_tokens(&w->lists));
    cli_json_number(json, "seconds", w->seconds);
    cli_json_integer(json, "peak_bytes", cli_peak_bytes());
    return cli_document_end(json);
}

static int run_classify(const void *given) {
    work w = {0};
    int code = prepare_classify(given, &w);
    if (code == CLI_DONE) code = compute(given, &w);
    if (code == CLI_DONE) code = save(given, &w);
    cli_outputs_abandon(&w.output, 1);
    free(w.scores);
    cli_lists_free(&w.lists);
    cli_texts_free(&w.texts);
    plsh_sentence_close(w.sentence);
    cli_model_close(&w.model);
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
