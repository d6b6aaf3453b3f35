/* cli: plsh rerank: documents sorted by how well they answer a query. */
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
#include <string.h>

typedef struct rerank_options {
    const char *query, *out;
    bool probabilities, truncate;
    int64_t batch, top;
} rerank_options;

typedef struct settings {
    rerank_options rerank;
    cli_texts_options texts;
    cli_lm lm;
} settings;

static const cli_option rerank_table[] = {
    {.name = "query",
     .kind = CLI_TEXT,
     CLI_MEMBER(rerank_options, query),
     .value = "TEXT",
     .help = "what the documents are to answer",
     .required = true},
    {.name = "top",
     .kind = CLI_INTEGER,
     CLI_MEMBER(rerank_options, top),
     .value = "N",
     .help = "only the best so many documents; 0: all",
     .fallback = "0",
     .range = CLI_AT_LEAST(0)},
    {.name = "probabilities",
     .kind = CLI_FLAG,
     CLI_MEMBER(rerank_options, probabilities),
     .help = "1/(1 + exp(-x)) of the scores, between 0 and 1"},
    {.name = "truncate",
     .kind = CLI_FLAG,
     CLI_MEMBER(rerank_options, truncate),
     .help = "cut documents that are longer than the model takes; without it, such a document is "
             "an error"},
    {.name = "batch",
     .kind = CLI_INTEGER,
     CLI_MEMBER(rerank_options, batch),
     .value = "N",
     .help = "about this many tokens per batch",
     .fallback = "4096",
     .range = CLI_AT_LEAST(1)},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(rerank_options, out),
     .value = "FILE",
     .help = "best first: .jsonl (an object a line) or .tsv; or .npy, the scores in the order of "
             "the documents (float32 [documents]); without it they are printed, as in .tsv, or in "
             "the document with --json"},
};

static const cli_group groups[] = {CLI_GROUP("Options", rerank_table, settings, rerank),
                                   CLI_GROUP("Documents", cli_texts_table, settings, texts),
                                   CLI_LM_GROUPS(settings)};

typedef struct ranked {
    int64_t index;
    float score;
} ranked;

typedef struct work {
    cli_model model;
    plsh_sentence *sentence; /* for the longest text */
    cli_texts texts;
    cli_lists lists;
    float *scores;  /* [documents] */
    ranked *sorted; /* best first */
    int64_t shown;
    cli_output output;
    double seconds;
} work;

static int add_pair(const settings *given, work *w, int64_t i) {
    const int64_t most = plsh_sentence_describe(w->sentence).longest;
    const plsh_string query = {given->rerank.query, strlen(given->rerank.query)};
    const plsh_string document = {w->texts.items[i].bytes, w->texts.items[i].length};
    plsh_token_ids ids = {0}, types = {0};
    plsh_error error;
    char place[CLI_PLACE_SIZE];
    int code = CLI_DONE;
    cli_texts_place(&w->texts, i, place);
    if (plsh_tokenizer_encode_pair(w->model.tokenizer, query, document,
                                   given->rerank.truncate ? (size_t)most : 0, &ids, &types,
                                   &error) != PLSH_STATUS_OK)
        code = cli_fail("%s: %s", place, error.message);
    else if (most > 0 && (int64_t)ids.count > most)
        code = cli_fail("%s: %zu tokens with the query; this model takes %lld: --truncate leaves "
                        "the others out",
                        place, ids.count, (long long)most);
    if (code == CLI_DONE)
        code = cli_lists_add(&w->lists, w->texts.path, ids.ids, types.ids, ids.count);
    plsh_token_ids_free(&ids);
    plsh_token_ids_free(&types);
    return code;
}

static int prepare_rerank(const settings *given, work *w) {
    plsh_error error;
    int code = cli_scores_check(given->rerank.out);
    if (code == CLI_DONE) code = cli_model_open(&given->lm, &w->model);
    if (code == CLI_DONE && w->model.facts.labels != 1)
        code = cli_fail("%s: a reranker is a classifier of one label; this model has %lld%s",
                        given->lm.model.model, (long long)w->model.facts.labels,
                        w->model.facts.labels > 1 ? ": see plsh classify" : "");
    if (code == CLI_DONE && plsh_sentence_open(&w->sentence, w->model.model, PLSH_POOLING_CLS,
                                               &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    if (code == CLI_DONE) code = cli_model_tokenizer(&given->lm, &w->model);
    if (code == CLI_DONE) code = cli_texts_read(&given->texts, &w->texts);
    for (int64_t i = 0; code == CLI_DONE && i < w->texts.count; i++) code = add_pair(given, w, i);
    w->output.path = given->rerank.out;
    if (code == CLI_DONE) code = cli_outputs_open(&w->output, 1);
    if (code != CLI_DONE) return code;
    w->scores = malloc((size_t)w->texts.count * sizeof *w->scores);
    w->sorted = malloc((size_t)w->texts.count * sizeof *w->sorted);
    return w->scores != NULL && w->sorted != NULL ? CLI_DONE : cli_fail("out of memory");
}

static int score_pair(void *context, int64_t text, const float *hidden, int64_t tokens) {
    work *w = context;
    plsh_error error;
    (void)tokens;
    return plsh_model_classify(w->model.model, hidden, w->scores + text, &error) == PLSH_STATUS_OK
               ? CLI_DONE
               : cli_fail_error(&error);
}

/* Best first; equal scores in the order of the documents. */
static int compare_scores(const void *x, const void *y) {
    const ranked *a = x, *b = y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

static int compute(const settings *given, work *w) {
    const double start = plsh_clock_seconds();
    cli_model_announce(&w->model);
    int code = cli_lists_encode(&w->model, &w->lists, given->rerank.batch, score_pair, w);
    for (int64_t i = 0; code == CLI_DONE && i < w->texts.count; i++) {
        if (given->rerank.probabilities) cli_scores_probabilities(w->model.model, w->scores + i, 1);
        w->sorted[i] = (ranked){i, w->scores[i]};
    }
    if (code == CLI_DONE)
        qsort(w->sorted, (size_t)w->texts.count, sizeof *w->sorted, compare_scores);
    const int64_t top = given->rerank.top;
    w->shown = top > 0 && top < w->texts.count ? top : w->texts.count;
    w->seconds = plsh_clock_seconds() - start;
    return code;
}

static void put_row(const void *context, cli_json *json, int64_t i) {
    const work *w = context;
    const cli_text *text = &w->texts.items[w->sorted[i].index];
    cli_json_begin_object(json, NULL);
    cli_json_integer(json, "index", w->sorted[i].index);
    cli_json_number(json, "score", (double)w->sorted[i].score);
    if (text->name != NULL)
        cli_json_text(json, "name", text->name);
    else
        cli_json_bytes(json, "text", text->bytes, text->length);
    cli_json_end(json);
}

static int write_tsv(const work *w) {
    int code = cli_scores_print(&w->output, "index\tscore\n");
    for (int64_t i = 0; code == CLI_DONE && i < w->shown; i++)
        code = cli_scores_print(&w->output, "%lld\t%.9g\n", (long long)w->sorted[i].index,
                                (double)w->sorted[i].score);
    return code;
}

static int save(const settings *given, work *w) {
    const char *path = w->output.path;
    int code = CLI_DONE;
    if (path == NULL)
        code = given->lm.common.json ? CLI_DONE : write_tsv(w);
    else if (cli_scores_ends(path, ".npy"))
        code = cli_output_array(&w->output, PLSH_DTYPE_FLOAT32, 1, &w->texts.count, w->scores);
    else if (cli_scores_ends(path, ".tsv"))
        code = write_tsv(w);
    else
        code = cli_scores_lines(&w->output, w->shown, put_row, w);
    if (code == CLI_DONE) code = cli_outputs_commit(&w->output, 1);
    if (code != CLI_DONE || !given->lm.common.json) return code;
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_text(json, "model", given->lm.model.model);
    cli_json_text(json, "attention", w->model.said);
    cli_json_text(json, "compute", w->model.compute);
    cli_json_text(json, "query", given->rerank.query);
    cli_json_begin_array(json, "rows");
    for (int64_t i = 0; i < w->shown; i++) put_row(w, json, i);
    cli_json_end(json);
    cli_json_integer(json, "tokens", cli_lists_tokens(&w->lists));
    cli_json_number(json, "seconds", w->seconds);
    cli_json_integer(json, "peak_bytes", cli_peak_bytes());
    return cli_document_end(json);
}

static int run_rerank(const void *given) {
    work w = {0};
    int code = prepare_rerank(given, &w);
    if (code == CLI_DONE) code = compute(given, &w);
    if (code == CLI_DONE) code = save(given, &w);
    cli_outputs_abandon(&w.output, 1);
    free(w.scores);
    free(w.sorted);
    cli_lists_free(&w.lists);
    cli_texts_free(&w.texts);
    plsh_sentence_close(w.sentence);
    cli_model_close(&w.model);
    return code;
}

const cli_command cli_command_rerank = {
    .name = "rerank",
    .summary = "documents sorted by how well they answer a query",
    .text = "Reads documents, one per line, and scores each together with --query by a reranker "
            "(a cross-encoder, a classifier of one label): W tanh(pooler x_0) + b of the pair as "
            "the tokenizer's template joins them. Prints index (from 0) and score, best first. "
            "JinaBERT takes documents of any length.",
    .example = "plsh rerank --model reranker --query 'who sleeps?' --text text.txt",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_rerank,
};
