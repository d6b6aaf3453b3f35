/* cli: plsh embed: sentence embeddings from an encoder. */
#include "cli/commands.h"
#include "cli/lm/describe.h"
#include "cli/message.h"
#include "cli/output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct embed_options {
    const char *text, *ids, *out;
    int pooling;
    bool plain;
    int64_t batch;
} embed_options;

typedef struct settings {
    embed_options embed;
    cli_lm lm;
} settings;

static const char *const pooling_names[] = {"mean", "cls", "none", NULL}; /* as plsh_pooling */
static const char *const *poolings(void) { return pooling_names; }

static const cli_option embed_table[] = {
    {.name = "text",
     .kind = CLI_FILE,
     CLI_MEMBER(embed_options, text),
     .value = "FILE",
     .help = "texts, a line each; - is stdin, which is the default"},
    {.name = "ids",
     .kind = CLI_FILE,
     CLI_MEMBER(embed_options, ids),
     .value = "FILE",
     .help = "the tokens of one text instead, special ones included: int32 .npy [n] or [1, n]"},
    {.name = "pooling",
     .kind = CLI_CHOICE,
     CLI_MEMBER(embed_options, pooling),
     .value = "NAME",
     .help = "mean of all tokens, the first one (cls), or none: every token's own row; without it "
             "as the model's files ask, else mean",
     .choices = poolings},
    {.name = "no-normalize",
     .kind = CLI_FLAG,
     CLI_MEMBER(embed_options, plain),
     .help = "leave the rows as long as they are"},
    {.name = "batch",
     .kind = CLI_INTEGER,
     CLI_MEMBER(embed_options, batch),
     .value = "N",
     .help = "tokens that are computed together, about",
     .fallback = "4096",
     .range = CLI_AT_LEAST(1)},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(embed_options, out),
     .value = "FILE",
     .help = "the embeddings, float32 .npy [texts, hidden]"},
};

static const cli_group groups[] = {CLI_GROUP("Options", embed_table, settings, embed),
                                   CLI_LM_GROUPS(settings)};

typedef struct work {
    cli_model model;
    plsh_pooling pooling;
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
static int add_line(work *w, const char *path, const char *line, size_t length) {
    plsh_token_ids ids = {0};
    plsh_error error;
    int code = CLI_DONE;
    if (plsh_tokenizer_encode(w->model.tokenizer, line, length, true, &ids, &error) !=
        PLSH_STATUS_OK)
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
        code = add_line(w, path, bytes + at, line);
        at = stop + 1;
    }
    free(bytes);
    return code;
}

static int read_given_ids(const settings *given, work *w) {
    int code = cli_ids_read(&given->lm, &w->model, given->embed.ids, NULL, false, &w->ids);
    return code == CLI_DONE ? end_text(w) : code;
}

/* As asked for, or as the model's files have it. */
static int choose_pooling(const settings *given, work *w) {
    plsh_error error;
    w->pooling = (plsh_pooling)given->embed.pooling;
    if (given->embed.pooling >= 0) return CLI_DONE;
    if (plsh_model_pooling(w->model.model, &w->pooling, &error) == PLSH_STATUS_OK) return CLI_DONE;
    return cli_fail("%s; --pooling chooses another", error.message);
}

/* Learned positions end. */
static int check_length(const settings *given, const work *w, int64_t text) {
    const plsh_model_facts *facts = &w->model.facts;
    const int64_t tokens = w->offsets[text + 1] - w->offsets[text];
    const char *path = given->embed.text != NULL ? given->embed.text : "stdin";
    if (facts->rope || facts->alibi || tokens <= facts->context)
        return cli_model_fits(&given->lm, &w->model, tokens);
    if (given->embed.ids != NULL)
        return cli_fail("%s: %lld tokens; this model has %lld positions", given->embed.ids,
                        (long long)tokens, (long long)facts->context);
    return cli_fail("%s: line %lld has %lld tokens; this model has %lld positions", path,
                    (long long)text + 1, (long long)tokens, (long long)facts->context);
}

static int prepare(const settings *given, work *w) {
    const embed_options *options = &given->embed;
    if (options->ids != NULL && options->text != NULL)
        return cli_usage("--ids and --text: give one of them");
    int code = cli_model_open(&given->lm, &w->model);
    if (code == CLI_DONE && w->model.facts.causal)
        code = cli_fail("%s: %s is not an encoder", given->lm.model.model, w->model.facts.family);
    if (code == CLI_DONE) code = choose_pooling(given, w);
    if (code == CLI_DONE)
        code = options->ids != NULL ? read_given_ids(given, w) : read_lines(given, w);
    if (code == CLI_DONE && w->ids.count == 0) code = cli_fail("there is no text");
    for (int64_t i = 0; code == CLI_DONE && i < w->texts; i++) code = check_length(given, w, i);
    w->output.path = options->out;
    if (code == CLI_DONE) code = cli_outputs_open(&w->output, 1);
    if (code != CLI_DONE) return code;
    w->row_count = w->pooling == PLSH_POOLING_NONE ? w->ids.count : w->texts;
    w->rows = malloc((size_t)w->row_count * (size_t)w->model.facts.hidden * sizeof(float));
    return w->rows == NULL ? cli_fail("out of memory for %lld rows", (long long)w->row_count)
                           : CLI_DONE;
}

/* One row of a text of `tokens` rows of hidden states. */
static void pool(plsh_pooling pooling, const float *hidden, int64_t tokens, int64_t width,
                 float *row) {
    for (int64_t c = 0; c < width; c++) {
        double sum = 0;
        if (pooling == PLSH_POOLING_CLS) sum = tokens > 0 ? (double)hidden[c] : 0;
        for (int64_t t = 0; pooling == PLSH_POOLING_MEAN && t < tokens; t++)
            sum += (double)hidden[t * width + c];
        row[c] = (float)(pooling == PLSH_POOLING_MEAN && tokens > 0 ? sum / (double)tokens : sum);
    }
}

static void normalise(float *row, int64_t width) {
    double square = 0;
    for (int64_t c = 0; c < width; c++) square += (double)row[c] * (double)row[c];
    for (int64_t c = 0; square > 0 && c < width; c++)
        row[c] = (float)((double)row[c] / sqrt(square));
}

/* The texts first .. last - 1, computed together. */
static int embed_batch(work *w, int64_t first, int64_t last) {
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
    if (code == CLI_DONE && w->pooling == PLSH_POOLING_NONE)
        memcpy(w->rows + begin * width, hidden, (size_t)(count * width) * sizeof(float));
    for (int64_t i = 0; code == CLI_DONE && w->pooling != PLSH_POOLING_NONE && i < last - first;
         i++)
        pool(w->pooling, hidden + offsets[i] * width, offsets[i + 1] - offsets[i], width,
             w->rows + (first + i) * width);
    free(offsets);
    free(hidden);
    return code;
}

static int compute(const settings *given, work *w) {
    double start = cli_seconds();
    int code = CLI_DONE;
    cli_model_announce(&w->model);
    cli_progress_begin((double)w->ids.count, "tokens");
    for (int64_t first = 0; code == CLI_DONE && first < w->texts;) {
        int64_t last = first + 1;
        while (last < w->texts && w->offsets[last + 1] - w->offsets[first] <= given->embed.batch)
            last++;
        code = embed_batch(w, first, last);
        first = last;
        cli_progress((double)w->offsets[first]);
    }
    cli_progress_end();
    for (int64_t i = 0; code == CLI_DONE && !given->embed.plain && i < w->row_count; i++)
        normalise(w->rows + i * w->model.facts.hidden, w->model.facts.hidden);
    w->seconds = cli_seconds() - start;
    return code;
}

static int save(const settings *given, work *w) {
    const int64_t shape[] = {w->row_count, w->model.facts.hidden};
    int code = cli_output_array(&w->output, PLSH_DTYPE_FLOAT32, 2, shape, w->rows);
    if (code == CLI_DONE) code = cli_outputs_commit(&w->output, 1);
    if (code != CLI_DONE) return code;
    if (!given->lm.common.json) {
        printf("%lld row%s of %lld from %lld token%s in %.4g s\n", (long long)w->row_count,
               w->row_count == 1 ? "" : "s", (long long)w->model.facts.hidden,
               (long long)w->ids.count, w->ids.count == 1 ? "" : "s", w->seconds);
        return CLI_DONE;
    }
    cli_json *json;
    plsh_error error;
    if (cli_json_create(&json, &error) != PLSH_STATUS_OK) return cli_fail_error(&error);
    cli_json_begin_object(json, NULL);
    cli_json_text(json, "model", given->lm.model.model);
    cli_json_text(json, "attention", w->model.said);
    cli_json_text(json, "pooling", pooling_names[w->pooling]);
    cli_json_integer(json, "rows", w->row_count);
    cli_json_integer(json, "tokens", w->ids.count);
    cli_json_number(json, "seconds", w->seconds);
    cli_json_integer(json, "peak_bytes", cli_peak_bytes());
    cli_json_end(json);
    code = cli_print_json(json);
    cli_json_free(json);
    return code;
}

static int run(const void *given) {
    const settings *options = given;
    work w = {0};
    int code = prepare(options, &w);
    if (code == CLI_DONE) code = compute(options, &w);
    if (code == CLI_DONE) code = save(options, &w);
    cli_outputs_abandon(&w.output, 1);
    free(w.ids.values);
    free(w.offsets);
    free(w.hidden);
    free(w.rows);
    cli_model_close(&w.model);
    return code;
}

const cli_command cli_command_embed = {
    .name = "embed",
    .summary = "embeddings of texts from an encoder",
    .text = "Reads texts, a line each, and gives every one a row of numbers: the mean of the "
            "encoder's last hidden states, or the pooling that its files ask for, divided by its "
            "length. JinaBERT takes texts of any "
            "length in near-linear time.",
    .example = "plsh embed --model encoder --text text.txt --out rows.npy",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run,
};
