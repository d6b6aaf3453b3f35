/* cli: plsh embed: sentence embeddings from an encoder. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/lm/lists.h"
#include "cli/lm/model.h"
#include "cli/lm/scores.h"
#include "cli/lm/texts.h"
#include "cli/message.h"
#include "cli/output.h"
#include "plsh/sentence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct embed_options {
    const char *ids, *out;
    int pooling;
    bool plain, normalise, per_base;
    const char *prompt;
} embed_options;

typedef struct settings {
    cli_texts_options texts;
    embed_options embed;
    cli_lm lm;
} settings;

static const cli_option embed_table[] = {
    {.name = "ids",
     .kind = CLI_FILE,
     CLI_MEMBER(embed_options, ids),
     .value = "FILE",
     .help = "the tokens of one text instead, special ones included: int32 .npy [n] or [1, n]"},
    {.name = "pooling",
     .kind = CLI_CHOICE,
     CLI_MEMBER(embed_options, pooling),
     .value = "NAME",
     .help = "mean of all tokens, the first one (cls), the largest of each column (max), .., or "
             "none: every token's own row; without it as the model's files ask, else mean (an "
             "encoder's)",
     .choices = plsh_pooling_names},
    {.name = "no-normalize",
     .kind = CLI_FLAG,
     CLI_MEMBER(embed_options, plain),
     .help = "do not divide rows by their Euclidean norm"},
    {.name = "normalize",
     .kind = CLI_FLAG,
     CLI_MEMBER(embed_options, normalise),
     .help = "divide rows by their Euclidean norm, even if modules.json has no Normalize"},
    {.name = "per-base",
     .kind = CLI_FLAG,
     CLI_MEMBER(embed_options, per_base),
     .help = "with --fasta: a row for every letter of a sequence, that of its token"},
    {.name = "prompt-name",
     .kind = CLI_TEXT,
     CLI_MEMBER(embed_options, prompt),
     .value = "NAME",
     .help = "the prompt of config_sentence_transformers.json to put before every text; without it "
             "its default_prompt_name; none: no prompt"},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(embed_options, out),
     .value = "FILE",
     .help =
         "the embeddings: .npy (float32 [texts, columns]), .json (rows), .jsonl (an object a line) "
         "or .tsv (a row a line, after its name with --fasta); without it they are printed, as in "
         ".tsv, or in the document with --json"},
};

static const cli_group groups[] = {CLI_GROUP("Texts", cli_texts_table, settings, texts),
                                   CLI_GROUP("Options", embed_table, settings, embed),
                                   CLI_ENCODER_GROUPS(settings)};

typedef struct work {
    cli_model model;
    plsh_sentence *sentence;
    plsh_sentence_facts facts;
    cli_texts texts; /* empty with --ids */
    cli_lists lists;
    int64_t *spans; /* --per-base: the letters of every token */
    int64_t *first; /* [texts + 1]: the first row of every text */
    float *rows;    /* [texts, tokens or bases][columns] */
    int64_t row_count;
    cli_output output;
    double seconds;
} work;

/* Appends the tokens of a text. */
static int add_text(const settings *given, work *w, int64_t i) {
    plsh_token_ids ids = {0};
    plsh_error error;
    char place[CLI_PLACE_SIZE];
    int code = CLI_DONE;
    if (plsh_sentence_ids(w->sentence, w->model.tokenizer, w->texts.items[i].bytes,
                          w->texts.items[i].length, given->texts.truncate, &ids,
                          &error) != PLSH_STATUS_OK) {
        cli_texts_place(&w->texts, i, place);
        code = cli_fail("%s: %s", place, error.message);
    }
    if (code == CLI_DONE) code = cli_lists_add(&w->lists, w->texts.path, ids.ids, NULL, ids.count);
    plsh_token_ids_free(&ids);
    return code;
}

static int read_texts(const settings *given, work *w) {
    int code = cli_model_tokenizer(&given->lm, &w->model);
    if (code == CLI_DONE) code = cli_texts_read(&given->texts, &w->texts);
    for (int64_t i = 0; code == CLI_DONE && i < w->texts.count; i++) code = add_text(given, w, i);
    return code;
}

static int read_given_ids(const settings *given, work *w) {
    cli_ids ids = {0};
    int code = cli_ids_read(&given->lm, &w->model, given->embed.ids, NULL, false, &ids);
    if (code == CLI_DONE)
        code = cli_lists_add(&w->lists, given->embed.ids, ids.values, NULL, (size_t)ids.count);
    free(ids.values);
    return code;
}

/* The modules after the encoder: as given by options, or by the model's files. */
static int open_sentence(const settings *given, work *w) {
    const embed_options *options = &given->embed;
    const plsh_pooling pooling = options->per_base       ? PLSH_POOLING_NONE
                                 : options->pooling >= 0 ? (plsh_pooling)options->pooling
                                                         : PLSH_POOLING_COUNT;
    plsh_error error;
    const char *prompt = options->prompt;
    if (prompt != NULL && strcmp(prompt, "none") == 0) prompt = "";
    if (plsh_sentence_open(&w->sentence, w->model.model, pooling, &error) != PLSH_STATUS_OK ||
        (prompt != NULL && plsh_sentence_prompt(w->sentence, prompt, &error) != PLSH_STATUS_OK))
        return cli_fail_error(&error);
    w->facts = plsh_sentence_describe(w->sentence);
    if (w->facts.prompt[0] != '\0' && options->ids == NULL)
        cli_note("before every text: \"%s\"", w->facts.prompt);
    return CLI_DONE;
}

static int check_length(const settings *given, const work *w, int64_t text) {
    const int64_t tokens = w->lists.offsets[text + 1] - w->lists.offsets[text];
    const int64_t most = w->facts.longest;
    char place[CLI_PLACE_SIZE];
    if (most == 0 || tokens <= most) return cli_model_fits(&given->lm, &w->model, tokens);
    if (given->embed.ids != NULL)
        return cli_fail("%s: %lld tokens; this model takes %lld", given->embed.ids,
                        (long long)tokens, (long long)most);
    cli_texts_place(&w->texts, text, place);
    return cli_fail("%s has %lld tokens; this model takes %lld: --truncate leaves the others out",
                    place, (long long)tokens, (long long)most);
}

static int check_usage(const settings *given) {
    const embed_options *options = &given->embed;
    const bool texts = given->texts.text != NULL || given->texts.fasta != NULL ||
                       given->texts.column != NULL || given->texts.format >= 0;
    if (options->ids != NULL && texts) return cli_usage("--ids and --text: give one of them");
    if (options->per_base && given->texts.fasta == NULL)
        return cli_usage("--per-base goes with --fasta");
    if (options->per_base && given->texts.truncate)
        return cli_usage("--per-base: every letter has a row; --truncate would leave some out");
    if (options->per_base && options->pooling >= 0 && options->pooling != PLSH_POOLING_NONE)
        return cli_usage("--per-base: rows of tokens are not pooled; leave --pooling out");
    if (options->plain && options->normalise)
        return cli_usage("--normalize and --no-normalize: give one of them");
    if (options->ids != NULL && (given->texts.truncate || options->prompt != NULL))
        return cli_usage("--ids: --truncate and --prompt-name are for texts");
    if (options->out != NULL && !cli_scores_ends(options->out, ".json") &&
        !cli_scores_ends(options->out, ".npy") && !cli_scores_ends(options->out, ".jsonl") &&
        !cli_scores_ends(options->out, ".tsv"))
        return cli_usage("--out %s: the name has to end in .npy, .json, .jsonl or .tsv",
                         options->out);
    return CLI_DONE;
}

/* Numbers the rows: one per text, per token, or per base. */
static int number_rows(const settings *given, work *w) {
    const int64_t *at = w->lists.offsets, texts = w->lists.texts;
    const bool pooled = w->facts.pooling != PLSH_POOLING_NONE, bases = given->embed.per_base;
    w->first = malloc((size_t)(texts + 1) * sizeof *w->first);
    if (bases) w->spans = malloc((size_t)(at[texts] + 1) * sizeof *w->spans);
    if (w->first == NULL || (bases && w->spans == NULL)) return cli_fail("out of memory");
    int code = CLI_DONE;
    w->first[0] = 0;
    for (int64_t i = 0; code == CLI_DONE && i < texts; i++) {
        if (bases)
            code = cli_texts_align(&w->texts, i, w->model.tokenizer, w->lists.ids + at[i],
                                   (size_t)(at[i + 1] - at[i]), w->spans + at[i]);
        w->first[i + 1] = w->first[i] + (pooled  ? 1
                                         : bases ? (int64_t)w->texts.items[i].length
                                                 : at[i + 1] - at[i]);
    }
    w->row_count = w->first[code == CLI_DONE ? texts : 0];
    return code;
}

static int prepare_embed(const settings *given, work *w) {
    const embed_options *options = &given->embed;
    int code = check_usage(given);
    if (code == CLI_DONE) code = cli_model_open(&given->lm, &w->model);
    if (code == CLI_DONE) code = open_sentence(given, w);
    if (code == CLI_DONE)
        code = options->ids != NULL ? read_given_ids(given, w) : read_texts(given, w);
    if (code == CLI_DONE && cli_lists_tokens(&w->lists) == 0) code = cli_fail("there is no text");
    for (int64_t i = 0; code == CLI_DONE && i < w->lists.texts; i++)
        code = check_length(given, w, i);
    if (code == CLI_DONE) code = number_rows(given, w);
    w->output.path = options->out;
    if (code == CLI_DONE) code = cli_outputs_open(&w->output, 1);
    if (code != CLI_DONE) return code;
    w->rows = malloc((size_t)w->row_count * (size_t)w->facts.columns * sizeof(float));
    return w->rows == NULL ? cli_fail("out of memory for %lld rows", (long long)w->row_count)
                           : CLI_DONE;
}

static plsh_normalisation normalisation(const settings *given) {
    return given->embed.plain       ? PLSH_NORMALISE_NEVER
           : given->embed.normalise ? PLSH_NORMALISE_ALWAYS
                                    : PLSH_NORMALISE_AS_ASKED;
}

typedef struct embedding {
    const settings *given;
    work *w;
} embedding;

/* The rows of one text. */
static int embed_text(void *context, int64_t text, const float *hidden, int64_t tokens) {
    const embedding *e = context;
    work *w = e->w;
    const int64_t width = w->facts.columns;
    float *row = w->rows + w->first[text] * width;
    plsh_error error;
    if (w->facts.pooling != PLSH_POOLING_NONE)
        return plsh_sentence_row(w->sentence, hidden, tokens, normalisation(e->given), row,
                                 &error) == PLSH_STATUS_OK
                   ? CLI_DONE
                   : cli_fail_error(&error);
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t span = w->spans != NULL ? w->spans[w->lists.offsets[text] + t] : 1;
        for (int64_t s = 0; s < span; s++, row += width)
            memcpy(row, hidden + t * width, (size_t)width * sizeof *row);
    }
    return CLI_DONE;
}

static int compute(const settings *given, work *w) {
    double start = plsh_clock_seconds();
    embedding e = {given, w};
    cli_model_announce(&w->model);
    int code = cli_lists_encode(&w->model, &w->lists, given->texts.batch, embed_text, &e);
    const bool per_token = w->facts.pooling == PLSH_POOLING_NONE && !given->embed.plain &&
                           (given->embed.normalise || w->facts.normalises);
    for (int64_t i = 0; code == CLI_DONE && per_token && i < w->row_count; i++)
        plsh_sentence_normalise(w->rows + i * w->facts.columns, w->facts.columns);
    w->seconds = plsh_clock_seconds() - start;
    return code;
}

/* The text that a row belongs to: the last one whose first row is not after it. */
static int64_t text_of(const work *w, int64_t row) {
    int64_t low = 0, high = w->lists.texts;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (w->first[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A row a line, in numbers that read back as the same float32, after the name of its sequence and,
 * with --per-base, the number of the base from 1: to the file, or to stdout. */
static int write_lines(const work *w) {
    int code = CLI_DONE;
    const int64_t columns = w->facts.columns;
    for (int64_t i = 0; code == CLI_DONE && i < w->row_count; i++) {
        const int64_t text = text_of(w, i);
        const char *name = w->texts.count > 0 ? w->texts.items[text].name : NULL;
        if (name != NULL) code = cli_scores_print(&w->output, "%s\t", name);
        if (code == CLI_DONE && w->spans != NULL)
            code = cli_scores_print(&w->output, "%lld\t", (long long)(i - w->first[text] + 1));
        for (int64_t c = 0; code == CLI_DONE && c < columns; c++)
            code = cli_scores_print(&w->output, "%.9g%c", (double)w->rows[i * columns + c],
                                    c + 1 == columns ? '\n' : '\t');
    }
    return code;
}

static void put_numbers(const work *w, cli_json *json, const char *key, int64_t row) {
    cli_json_begin_array(json, key);
    for (int64_t c = 0; c < w->facts.columns; c++)
        cli_json_number(json, NULL, (double)w->rows[row * w->facts.columns + c]);
    cli_json_end(json);
}

/* {"name": "chr1", "position": 7, "embedding": [..]}: the line of the text where it has no name. */
static void put_object(const void *context, cli_json *json, int64_t row) {
    const work *w = context;
    const int64_t text = text_of(w, row);
    cli_json_begin_object(json, NULL);
    if (w->texts.count > 0) {
        const cli_text *t = &w->texts.items[text];
        if (t->name != NULL)
            cli_json_text(json, "name", t->name);
        else
            cli_json_integer(json, "line", t->line);
    }
    if (w->facts.pooling == PLSH_POOLING_NONE)
        cli_json_integer(json, "position", row - w->first[text] + 1);
    put_numbers(w, json, "embedding", row);
    cli_json_end(json);
}

static void put_rows(const work *w, cli_json *json, const char *key) {
    cli_json_begin_array(json, key);
    for (int64_t i = 0; i < w->row_count; i++) put_numbers(w, json, NULL, i);
    cli_json_end(json);
}

static void put_document(const void *context, cli_json *json, int64_t i) {
    (void)i;
    put_rows(context, json, NULL);
}

static int write_rows(work *w) {
    const int64_t shape[] = {w->row_count, w->facts.columns};
    if (w->output.path == NULL) return CLI_DONE;
    if (cli_scores_ends(w->output.path, ".json"))
        return cli_scores_json(&w->output, false, put_document, w, 0);
    if (cli_scores_ends(w->output.path, ".tsv")) return write_lines(w);
    if (cli_scores_ends(w->output.path, ".jsonl"))
        return cli_scores_lines(&w->output, w->row_count, put_object, w);
    return cli_output_array(&w->output, PLSH_DTYPE_FLOAT32, 2, shape, w->rows);
}

/* The names and lengths of the sequences, and the first row of each. */
static void put_names(const work *w, cli_json *json) {
    cli_json_begin_array(json, "sequences");
    for (int64_t i = 0; i < w->texts.count; i++) {
        cli_json_begin_object(json, NULL);
        cli_json_text(json, "name", w->texts.items[i].name);
        cli_json_integer(json, "length", (int64_t)w->texts.items[i].length);
        cli_json_integer(json, "first_row", w->first[i]);
        cli_json_end(json);
    }
    cli_json_end(json);
}

static int save(const settings *given, work *w) {
    int code = write_rows(w);
    if (code == CLI_DONE) code = cli_outputs_commit(&w->output, 1);
    if (code != CLI_DONE) return code;
    const bool printed = w->output.path == NULL;
    const int64_t tokens = cli_lists_tokens(&w->lists);
    if (!given->lm.common.json) {
        if (printed) return write_lines(w);
        printf("%lld row%s of %lld from %lld token%s in %.4g s\n", (long long)w->row_count,
               w->row_count == 1 ? "" : "s", (long long)w->facts.columns, (long long)tokens,
               tokens == 1 ? "" : "s", w->seconds);
        return CLI_DONE;
    }
    cli_json *json = cli_model_document(&given->lm, &w->model);
    if (json == NULL) return CLI_FAILED;
    cli_json_text(json, "pooling", plsh_pooling_names()[w->facts.pooling]);
    cli_json_text(json, "prompt", w->facts.prompt);
    cli_json_integer(json, "rows", w->row_count);
    cli_json_integer(json, "columns", w->facts.columns);
    if (given->texts.fasta != NULL) put_names(w, json);
    if (printed) put_rows(w, json, "embeddings");
    return cli_model_document_end(json, tokens, w->seconds);
}

static int run_embed(const void *given) {
    const settings *options = given;
    work w = {0};
    int code = prepare_embed(options, &w);
    if (code == CLI_DONE) code = compute(options, &w);
    if (code == CLI_DONE) code = save(options, &w);
    cli_outputs_abandon(&w.output, 1);
    free(w.rows);
    free(w.first);
    free(w.spans);
    cli_lists_free(&w.lists);
    cli_texts_free(&w.texts);
    plsh_sentence_close(w.sentence);
    cli_model_close(&w.model);
    return code;
}

const cli_command cli_command_embed = {
    .name = "embed",
    .summary = "embeddings of texts from an encoder or an embedder made of a decoder",
    .text = "Reads texts (lines, JSON lines, CSV or FASTA) and computes an embedding of each: the "
            "mean of the "
            "encoder's last hidden states divided by its Euclidean norm, or what the model's files "
            "ask for; of a decoder (Qwen3-Embedding) the last token's. Of a folder of "
            "sentence-transformers it applies the pooling, Dense, "
            "LayerNorm and Normalize modules, max_seq_length, prompts and truncate_dim. JinaBERT, "
            "MosaicBERT and DNABERT-2 take texts of any length in near-linear time.",
    .example = "plsh embed --model encoder --text text.txt --out rows.npy",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_embed,
};
