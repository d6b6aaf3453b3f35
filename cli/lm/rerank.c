/* cli: plsh rerank: documents sorted by how well they answer a query. */
#include "cli/commands.h"
#include "cli/lm/scores.h"
#include "cli/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rerank_options {
    const char *query, *out;
    bool probabilities;
    int64_t top;
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
     .help = "the query that the documents should answer",
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
                                   CLI_ENCODER_GROUPS(settings)};

typedef struct work {
    cli_scoring scoring;
    cli_ranked *sorted; /* best first */
    int64_t shown;
} work;

static int add_pair(const void *context, cli_scoring *w, int64_t i) {
    const settings *given = context;
    const int64_t most = plsh_sentence_describe(w->sentence).longest;
    const plsh_string query = {given->rerank.query, strlen(given->rerank.query)};
    const plsh_string document = {w->texts.items[i].bytes, w->texts.items[i].length};
    plsh_token_ids ids = {0}, types = {0};
    plsh_error error;
    char place[CLI_PLACE_SIZE];
    int code = CLI_DONE;
    cli_texts_place(&w->texts, i, place);
    if (plsh_tokenizer_encode_pair(w->model.tokenizer, query, document,
                                   given->texts.truncate ? (size_t)most : 0, &ids, &types,
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

static int open_reranker(const settings *given, cli_scoring *s) {
    int code = cli_scoring_open(s, &given->lm, given->rerank.out);
    if (code == CLI_DONE && s->model.facts.labels != 1)
        code = cli_fail("%s: a reranker is a classifier of one label; this model has %lld%s",
                        given->lm.model.model, (long long)s->model.facts.labels,
                        s->model.facts.labels > 1 ? ": see plsh classify" : "");
    return code;
}

static int sort_documents(work *w, int64_t top) {
    const int64_t count = w->scoring.texts.count;
    w->sorted = cli_scores_sort(w->scoring.scores, count);
    if (w->sorted == NULL) return cli_fail("out of memory");
    w->shown = top > 0 && top < count ? top : count;
    return CLI_DONE;
}

static void put_row(const void *context, cli_json *json, int64_t i) {
    const work *w = context;
    cli_json_begin_object(json, NULL);
    cli_json_integer(json, "index", w->sorted[i].index);
    cli_json_number(json, "score", (double)w->sorted[i].score);
    cli_scoring_put_text(&w->scoring, json, w->sorted[i].index);
    cli_json_end(json);
}

static int write_tsv(const work *w) {
    int code = cli_scores_print(&w->scoring.output, "index\tscore\n");
    for (int64_t i = 0; code == CLI_DONE && i < w->shown; i++)
        code = cli_scores_print(&w->scoring.output, "%lld\t%.9g\n", (long long)w->sorted[i].index,
                                (double)w->sorted[i].score);
    return code;
}

static int save(const settings *given, work *w) {
    const char *path = w->scoring.output.path;
    int code = CLI_DONE;
    if (path == NULL)
        code = given->lm.common.json ? CLI_DONE : write_tsv(w);
    else if (cli_scores_ends(path, ".npy"))
        code = cli_output_array(&w->scoring.output, PLSH_DTYPE_FLOAT32, 1, &w->scoring.texts.count,
                                w->scoring.scores);
    else if (cli_scores_ends(path, ".tsv"))
        code = write_tsv(w);
    else
        code = cli_scores_lines(&w->scoring.output, w->shown, put_row, w);
    if (code == CLI_DONE) code = cli_outputs_commit(&w->scoring.output, 1);
    if (code != CLI_DONE || !given->lm.common.json) return code;
    cli_json *json = cli_model_document(&given->lm, &w->scoring.model);
    if (json == NULL) return CLI_FAILED;
    cli_json_text(json, "query", given->rerank.query);
    cli_json_begin_array(json, "rows");
    for (int64_t i = 0; i < w->shown; i++) put_row(w, json, i);
    cli_json_end(json);
    return cli_model_document_end(json, cli_lists_tokens(&w->scoring.lists), w->scoring.seconds);
}

static int run_rerank(const void *context) {
    const settings *given = context;
    work w = {0};
    int code = open_reranker(given, &w.scoring);
    if (code == CLI_DONE)
        code = cli_scoring_read(&w.scoring, &given->lm, &given->texts, add_pair, given);
    if (code == CLI_DONE)
        code = cli_scoring_run(&w.scoring, given->texts.batch, given->rerank.probabilities);
    if (code == CLI_DONE) code = sort_documents(&w, given->rerank.top);
    if (code == CLI_DONE) code = save(given, &w);
    free(w.sorted);
    cli_scoring_free(&w.scoring);
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
