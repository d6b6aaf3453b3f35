/* cli: plsh embed: sentence embeddings from an encoder. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/lm/describe.h"
#include "cli/message.h"
#include "cli/output.h"
#include "plsh/sentence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct embed_options {
    const char *text, *ids, *out;
    int pooling;
    bool plain, normalise, truncate;
    const char *prompt;
    int64_t batch;
} embed_options;

typedef struct settings {
    embed_options embed;
    cli_lm lm;
} settings;

static const cli_option embed_table[] = {
    {.name = "text",
     .kind = CLI_FILE,
     CLI_MEMBER(embed_options, text),
     .value = "FILE",
     .help = "texts, one per line; - is stdin, the default"},
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
             "none: every token's own row; without it as the model's files ask, else mean",
     .choices = plsh_pooling_names},
    {.name = "no-normalize",
     .kind = CLI_FLAG,
     CLI_MEMBER(embed_options, plain),
     .help = "do not divide rows by their Euclidean norm"},
    {.name = "normalize",
     .kind = CLI_FLAG,
     CLI_MEMBER(embed_options, normalise),
     .help = "divide rows by their Euclidean norm, even if modules.json has no Normalize"},
    {.name = "truncate",
     .kind = CLI_FLAG,
     CLI_MEMBER(embed_options, truncate),
     .help = "cut texts that are longer than the model takes; without it, such a text is an error"},
    {.name = "prompt-name",
     .kind = CLI_TEXT,
     CLI_MEMBER(embed_options, prompt),
     .value = "NAME",
     .help = "the prompt of config_sentence_transformers.json to put before every text; without it "
             "its default_prompt_name; none: no prompt"},
    {.name = "batch",
     .kind = CLI_INTEGER,
     CLI_MEMBER(embed_options, batch),
     .value = "N",
     .help = "about this many tokens per batch",
     .fallback = "4096",
     .range = CLI_AT_LEAST(1)},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(embed_options, out),
     .value = "FILE",
     .help =
         "the embeddings: .npy (float32 [texts, columns]), .json (rows) or .tsv (a row a line); "
         "without it they are printed, as in .tsv, or in the document with --json"},
};

static const cli_group groups[] = {CLI_GROUP("Options", embed_table, settings, embed),
                                   CLI_LM_GROUPS(settings)};

typedef struct work {
    cli_model model;
    plsh_sentence *sentence;
    plsh_sentence_facts facts;
    cli_ids ids;      /* of all texts */
    int64_t *offsets; /* texts + 1 */
    int64_t texts, capacity;
    float *hidden; /* of a batch */
    float *rows;   /* [texts or tokens][hidden] */
    int64_t row_count;
    cli_output output;
    double seconds;
} work;

static int end_text(work *w) {
    if (w->texts + 1 >= w->capacity) {
        w->capacity = 2 * w->capacity + 64;
        int64_t *grown = realloc(w->offsets, (size_t)w->capacity * sizeof *grown);
        if (grown == NULL) return cli_fail("out of memory for %lld texts", (long long)w->texts);
        w->offsets = grown;
    }
    w->offsets[0] = 0;
    w->offsets[++w->texts] = w->ids.count;
    return CLI_DONE;
}

/* Appends the tokens of one line. */
static int add_line(const settings *given, work *w, const char *path, const char *line,
                    size_t length) {
    plsh_token_ids ids = {0};
    plsh_error error;
    int code = CLI_DONE;
    if (plsh_sentence_ids(w->sentence, w->model.tokenizer, line, length, given->embed.truncate,
                          &ids, &error) != PLSH_STATUS_OK)
        code = cli_fail("%s: line %lld: %s", path, (long long)w->texts + 1, error.message);
    size_t have = (size_t)w->ids.count;
    int32_t *grown = realloc(w->ids.values, (have + ids.count + 1) * sizeof *grown);
    if (code == CLI_DONE && grown == NULL) code = cli_fail("%s: out of memory", path);
    if (grown != NULL) w->ids.values = grown;
    if (code == CLI_DONE && ids.count > 0) memcpy(grown + have, ids.ids, ids.count * sizeof *grown);
    if (code == CLI_DONE) w->ids.count += (int64_t)ids.count;
    plsh_token_ids_free(&ids);
    return code == CLI_DONE ? end_text(w) : code;
}

/* Every line is a text; the last one needs no newline. */
static int read_lines(const settings *given, work *w) {
    char *bytes;
    size_t length;
    const char *path = given->embed.text != NULL ? given->embed.text : "-";
    int code = cli_model_tokenizer(&given->lm, &w->model);
    if (code == CLI_DONE) code = cli_text_read(path, &bytes, &length);
    if (code != CLI_DONE) return code;
    for (size_t at = 0; code == CLI_DONE && at < length;) {
        const char *end = memchr(bytes + at, '\n', length - at);
        size_t stop = end != NULL ? (size_t)(end - bytes) : length;
        size_t line = stop > at && bytes[stop - 1] == '\r' ? stop - at - 1 : stop - at;
        code = add_line(given, w, path, bytes + at, line);
        at = stop + 1;
    }
    free(bytes);
    return code;
}

static int read_given_ids(const settings *given, work *w) {
    int code = cli_ids_read(&given->lm, &w->model, given->embed.ids, NULL, false, &w->ids);
    return code == CLI_DONE ? end_text(w) : code;
}

/* The modules after the encoder: as given by options, or by the model's files. */
static int open_sentence(const settings *given, work *w) {
    const embed_options *options = &given->embed;
    const plsh_pooling pooling =
        options->pooling >= 0 ? (plsh_pooling)options->pooling : PLSH_POOLING_COUNT;
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
    const int64_t tokens = w->offsets[text + 1] - w->offsets[text], most = w->facts.longest;
    const char *path = given->embed.text != NULL ? given->embed.text : "stdin";
    if (most == 0 || tokens <= most) return cli_model_fits(&given->lm, &w->model, tokens);
    if (given->embed.ids != NULL)
        return cli_fail("%s: %lld tokens; this model takes %lld", given->embed.ids,
                        (long long)tokens, (long long)most);
    return cli_fail("%s: line %lld has %lld tokens; this model takes %lld: --truncate leaves the "
                    "others out",
                    path, (long long)text + 1, (long long)tokens, (long long)most);
}

static bool ends_in(const char *path, const char *ending) {
    const size_t length = strlen(path), size = strlen(ending);
    return length >= size && strcmp(path + length - size, ending) == 0;
}

static int check_usage(const embed_options *options) {
    if (options->ids != NULL && options->text != NULL)
        return cli_usage("--ids and --text: give one of them");
    if (options->plain && options->normalise)
        return cli_usage("--normalize and --no-normalize: give one of them");
    if (options->ids != NULL && (options->truncate || options->prompt != NULL))
        return cli_usage("--ids: --truncate and --prompt-name are for texts");
    if (options->out != NULL && !ends_in(options->out, ".npy") && !ends_in(options->out, ".json") &&
        !ends_in(options->out, ".tsv"))
        return cli_usage("--out %s: the name has to end in .npy, .json or .tsv", options->out);
    return CLI_DONE;
}

static int prepare_embed(const settings *given, work *w) {
    const embed_options *options = &given->embed;
    int code = check_usage(options);
    if (code == CLI_DONE) code = cli_model_open(&given->lm, &w->model);
    if (code == CLI_DONE && w->model.facts.causal)
        code = cli_fail("%s: %s is not an encoder", given->lm.model.model, w->model.facts.family);
    if (code == CLI_DONE) code = open_sentence(given, w);
    if (code == CLI_DONE)
        code = options->ids != NULL ? read_given_ids(given, w) : read_lines(given, w);
    if (code == CLI_DONE && w->ids.count == 0) code = cli_fail("there is no text");
    for (int64_t i = 0; code == CLI_DONE && i < w->texts; i++) code = check_length(given, w, i);
    w->output.path = options->out;
    if (code == CLI_DONE) code = cli_outputs_open(&w->output, 1);
    if (code != CLI_DONE) return code;
    w->row_count = w->facts.pooling == PLSH_POOLING_NONE ? w->ids.count : w->texts;
    w->rows = malloc((size_t)w->row_count * (size_t)w->facts.columns * sizeof(float));
    return w->rows == NULL ? cli_fail("out of memory for %lld rows", (long long)w->row_count)
                           : CLI_DONE;
}

static void normalise(float *row, int64_t width) {
    double square = 0;
    for (int64_t c = 0; c < width; c++) square += (double)row[c] * (double)row[c];
    for (int64_t c = 0; square > 0 && c < width; c++)
        row[c] = (float)((double)row[c] / sqrt(square));
}

static plsh_normalisation normalisation(const settings *given) {
    return given->embed.plain       ? PLSH_NORMALISE_NEVER
           : given->embed.normalise ? PLSH_NORMALISE_ALWAYS
                                    : PLSH_NORMALISE_AS_ASKED;
}

/* The texts first .. last - 1, computed together. */
static int embed_batch(const settings *given, work *w, int64_t first, int64_t last) {
    const int64_t width = w->model.facts.hidden, begin = w->offsets[first];
    const int64_t count = w->offsets[last] - begin;
    int64_t *offsets = malloc((size_t)(last - first + 1) * sizeof *offsets);
    float *hidden = malloc((size_t)(count + 1) * (size_t)width * sizeof *hidden);
    plsh_error error;
    int code = offsets == NULL || hidden == NULL
                   ? cli_fail("out of memory for %lld tokens", (long long)count)
                   : CLI_DONE;
    for (int64_t i = 0; code == CLI_DONE && i <= last - first; i++)
        offsets[i] = w->offsets[first + i] - begin;
    plsh_encoding encoding = {.ids = w->ids.values + begin,
                              .offsets = offsets,
                              .sequences = last - first,
                              .count = count,
                              .attention = w->model.attention,
                              .attention_count = w->model.attention_count,
                              .hidden = hidden};
    if (code == CLI_DONE && count > 0 &&
        plsh_model_encode(w->model.model, &encoding, &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    const bool pooled = w->facts.pooling != PLSH_POOLING_NONE;
    if (code == CLI_DONE && !pooled)
        memcpy(w->rows + begin * width, hidden, (size_t)(count * width) * sizeof(float));
    for (int64_t i = 0; code == CLI_DONE && pooled && i < last - first; i++)
        if (plsh_sentence_row(w->sentence, hidden + offsets[i] * width, offsets[i + 1] - offsets[i],
                              normalisation(given), w->rows + (first + i) * w->facts.columns,
                              &error) != PLSH_STATUS_OK)
            code = cli_fail_error(&error);
    free(offsets);
    free(hidden);
    return code;
}

static int compute(const settings *given, work *w) {
    double start = plsh_clock_seconds();
    int code = CLI_DONE;
    cli_model_announce(&w->model);
    cli_progress_begin((double)w->ids.count, "tokens");
    for (int64_t first = 0; code == CLI_DONE && first < w->texts;) {
        int64_t last = first + 1;
        while (last < w->texts && w->offsets[last + 1] - w->offsets[first] <= given->embed.batch)
            last++;
        code = embed_batch(given, w, first, last);
        first = last;
        cli_progress((double)w->offsets[first]);
    }
    cli_progress_end();
    const bool per_token = w->facts.pooling == PLSH_POOLING_NONE && !given->embed.plain &&
                           (given->embed.normalise || w->facts.normalises);
    for (int64_t i = 0; code == CLI_DONE && per_token && i < w->row_count; i++)
        normalise(w->rows + i * w->facts.columns, w->facts.columns);
    w->seconds = plsh_clock_seconds() - start;
    return code;
}

/* A row a line, in numbers that read back as the same float32: to the file, or to stdout. */
static int write_lines(const work *w) {
    int code = CLI_DONE;
    const int64_t columns = w->facts.columns;
    for (int64_t i = 0; code == CLI_DONE && i < w->row_count * columns; i++) {
        const char end = (i + 1) % columns == 0 ? '\n' : '\t';
        if (w->output.path == NULL)
            printf("%.9g%c", (double)w->rows[i], end);
        else
            code = cli_output_print(&w->output, "%.9g%c", (double)w->rows[i], end);
    }
    return code;
}

static void put_rows(const work *w, cli_json *json, const char *key) {
    cli_json_begin_array(json, key);
    for (int64_t i = 0; i < w->row_count; i++) {
        cli_json_begin_array(json, NULL);
        for (int64_t c = 0; c < w->facts.columns; c++)
            cli_json_number(json, NULL, (double)w->rows[i * w->facts.columns + c]);
        cli_json_end(json);
    }
    cli_json_end(json);
}

static int write_json(const work *w) {
    cli_json *json;
    plsh_error error;
    const char *text;
    size_t length;
    if (cli_json_create(&json, &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
    put_rows(w, json, NULL);
    int code = cli_json_finish(json, &text, &length, &error) == PLSH_STATUS_OK
                   ? cli_output_print(&w->output, "%s", text)
                   : cli_fail_error(&error);
    cli_json_free(json);
    return code;
}

static int write_rows(work *w) {
    const int64_t shape[] = {w->row_count, w->facts.columns};
    if (w->output.path == NULL) return CLI_DONE;
    if (ends_in(w->output.path, ".json")) return write_json(w);
    if (ends_in(w->output.path, ".tsv")) return write_lines(w);
    return cli_output_array(&w->output, PLSH_DTYPE_FLOAT32, 2, shape, w->rows);
}

static int save(const settings *given, work *w) {
    int code = write_rows(w);
    if (code == CLI_DONE) code = cli_outputs_commit(&w->output, 1);
    if (code != CLI_DONE) return code;
    const bool printed = w->output.path == NULL;
    if (!given->lm.common.json) {
        if (printed) return write_lines(w);
        printf("%lld row%s of %lld from %lld token%s in %.4g s\n", (long long)w->row_count,
               w->row_count == 1 ? "" : "s", (long long)w->facts.columns, (long long)w->ids.count,
               w->ids.count == 1 ? "" : "s", w->seconds);
        return CLI_DONE;
    }
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_text(json, "model", given->lm.model.model);
    cli_json_text(json, "attention", w->model.said);
    cli_json_text(json, "compute", w->model.compute);
    cli_json_text(json, "pooling", plsh_pooling_names()[w->facts.pooling]);
    cli_json_text(json, "prompt", w->facts.prompt);
    cli_json_integer(json, "rows", w->row_count);
    cli_json_integer(json, "columns", w->facts.columns);
    if (printed) put_rows(w, json, "embeddings");
    cli_json_integer(json, "tokens", w->ids.count);
    cli_json_number(json, "seconds", w->seconds);
    cli_json_integer(json, "peak_bytes", cli_peak_bytes());
    return cli_document_end(json);
}

static int run_embed(const void *given) {
    const settings *options = given;
    work w = {0};
    int code = prepare_embed(options, &w);
    if (code == CLI_DONE) code = compute(options, &w);
    if (code == CLI_DONE) code = save(options, &w);
    cli_outputs_abandon(&w.output, 1);
    free(w.ids.values);
    free(w.offsets);
    free(w.hidden);
    free(w.rows);
    plsh_sentence_close(w.sentence);
    cli_model_close(&w.model);
    return code;
}

const cli_command cli_command_embed = {
    .name = "embed",
    .summary = "embeddings of texts from an encoder",
    .text = "Reads texts, one per line, and computes an embedding of each: the mean of the "
            "encoder's last hidden states divided by its Euclidean norm, or what the model's files "
            "ask for. Of a folder of sentence-transformers it applies the pooling, Dense, "
            "LayerNorm and Normalize modules, max_seq_length, prompts and truncate_dim. JinaBERT "
            "takes texts of any length in near-linear time.",
    .example = "plsh embed --model encoder --text text.txt --out rows.npy",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_embed,
};
