/* cli: texts from files: lines, JSON lines, CSV, FASTA. */
#include "cli/lm/texts.h"

#include "cli/lm/model.h"
#include "cli/message.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES, JSON_LINES, CSV, TSV, FASTA };

static const char *const *format_choices(void) {
    static const char *const names[] = {"lines", "jsonl", "csv", "tsv", NULL};
    return names;
}

const cli_option cli_texts_table[CLI_TEXTS_COUNT] = {
    {.name = "text",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_texts_options, text),
     .value = "FILE",
     .help = "texts, one per line; - is stdin, the default"},
    {.name = "format",
     .kind = CLI_CHOICE,
     CLI_MEMBER(cli_texts_options, format),
     .value = "NAME",
     .help = "format of --text: lines, jsonl (a JSON object or string per line), csv or tsv (with "
             "a line "
             "of column names); without it by the ending of the file's name, else lines",
     .choices = format_choices},
    {.name = "column",
     .kind = CLI_TEXT,
     CLI_MEMBER(cli_texts_options, column),
     .value = "NAME",
     .help = "the column of a csv or tsv that has the texts, or the field of jsonl; without it "
             "\"text\""},
    {.name = "fasta",
     .kind = CLI_FILE,
     CLI_MEMBER(cli_texts_options, fasta),
     .value = "FILE",
     .help = "sequences of a FASTA file instead, with their names; - is stdin"},
    {.name = "truncate",
     .kind = CLI_FLAG,
     CLI_MEMBER(cli_texts_options, truncate),
     .help = "cut texts that are longer than the model takes; without it, such a text is an error"},
    {.name = "batch",
     .kind = CLI_INTEGER,
     CLI_MEMBER(cli_texts_options, batch),
     .value = "N",
     .help = "about this many tokens per batch",
     .fallback = "4096",
     .range = CLI_AT_LEAST(1)},
};

/* ---- A list of texts ---- */

void cli_texts_free(cli_texts *texts) {
    for (int64_t i = 0; i < texts->count; i++) {
        free(texts->items[i].bytes);
        free(texts->items[i].name);
    }
    free(texts->items);
    *texts = (cli_texts){0};
}

void cli_texts_place(const cli_texts *texts, int64_t text, char out[CLI_PLACE_SIZE]) {
    const cli_text *t = &texts->items[text];
    if (t->name != NULL)
        snprintf(out, CLI_PLACE_SIZE, "%.150s: sequence %.60s", texts->path, t->name);
    else
        snprintf(out, CLI_PLACE_SIZE, "%.150s: line %lld", texts->path, (long long)t->line);
}

static char *copy_bytes(const char *bytes, size_t length) {
    char *copy = malloc(length + 1);
    if (copy == NULL) return NULL;
    if (length > 0) memcpy(copy, bytes, length);
    copy[length] = '\0';
    return copy;
}

/* Takes `bytes`, which may be NULL after a malloc that failed. */
static int add_text(cli_texts *texts, char *bytes, size_t length, int64_t line) {
    if (bytes != NULL && texts->count == texts->capacity) {
        const int64_t capacity = 2 * texts->capacity + 64;
        cli_text *grown = realloc(texts->items, (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            free(bytes);
            bytes = NULL;
        } else {
            texts->items = grown;
            texts->capacity = capacity;
        }
    }
    if (bytes == NULL) return cli_fail("%s: out of memory", texts->path);
    texts->items[texts->count++] = (cli_text){.bytes = bytes, .length = length, .line = line};
    return CLI_DONE;
}

/* A line of a file in memory: its length without its end; *at moves behind it. */
static const char *take_line(const char *bytes, size_t length, size_t *at, size_t *size) {
    const char *line = bytes + *at, *end = memchr(line, '\n', length - *at);
    const size_t all = end != NULL ? (size_t)(end - line) : length - *at;
    *at += all + 1;
    *size = all > 0 && line[all - 1] == '\r' ? all - 1 : all;
    return line;
}

/* ---- Lines, JSON lines ---- */

static int add_json(cli_texts *texts, const char *column, const char *line, size_t size,
                    int64_t number) {
    json_error_t problem;
    json_t *root = json_loadb(line, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &problem);
    const json_t *text = json_is_object(root) ? json_object_get(root, column) : root;
    int code;
    if (root == NULL)
        code =
            cli_fail("%s: line %lld is not JSON: %s", texts->path, (long long)number, problem.text);
    else if (!json_is_string(text))
        code = cli_fail("%s: line %lld has no text \"%s\" (--column)", texts->path,
                        (long long)number, column);
    else
        code = add_text(texts, copy_bytes(json_string_value(text), json_string_length(text)),
                        json_string_length(text), number);
    json_decref(root);
    return code;
}

/* Every line is a text; the last one needs no newline. Empty lines of JSON are passed over. */
static int read_lines(cli_texts *texts, const char *bytes, size_t length, bool json,
                      const char *column) {
    int code = CLI_DONE;
    int64_t number = 0;
    for (size_t at = 0, size; code == CLI_DONE && at < length;) {
        const char *line = take_line(bytes, length, &at, &size);
        number++;
        if (!json)
            code = add_text(texts, copy_bytes(line, size), size, number);
        else if (size > 0)
            code = add_json(texts, column, line, size, number);
    }
    return code;
}

/* ---- CSV (RFC 4180): fields in quotes may hold commas, ends of lines, and quotes twice ---- */

typedef struct table_reader {
    cli_texts *texts;
    const char *bytes;
    size_t length, at;
    char comma;
    int64_t line;
    char *field; /* room for all of the file */
    size_t size; /* of the field at hand */
} table_reader;

/* The next field, in `field`; *last where it ends its line. */
static int take_field(table_reader *r, bool *last) {
    const int64_t begin = r->line;
    bool quoted = r->comma == ',' && r->at < r->length && r->bytes[r->at] == '"';
    r->size = 0;
    r->at += quoted;
    for (; r->at < r->length; r->at++) {
        const char c = r->bytes[r->at];
        if (quoted && c == '"') {
            if (r->at + 1 < r->length && r->bytes[r->at + 1] == '"')
                r->at++;
            else {
                quoted = false;
                continue;
            }
        } else if (!quoted && (c == r->comma || c == '\n')) {
            break;
        }
        r->line += c == '\n';
        r->field[r->size++] = c;
    }
    if (quoted)
        return cli_fail("%s: line %lld: a field begins with a quote that is not closed",
                        r->texts->path, (long long)begin);
    *last = r->at >= r->length || r->bytes[r->at] == '\n';
    r->line += *last;
    r->at++;
    if (*last && r->size > 0 && r->field[r->size - 1] == '\r') r->size--;
    return CLI_DONE;
}

/* Which column has this name, in the first line. */
static int find_column(table_reader *r, const char *column, int64_t *out) {
    bool last = false;
    *out = -1;
    for (int64_t i = 0; !last; i++) {
        int code = take_field(r, &last);
        if (code != CLI_DONE) return code;
        if (r->size == strlen(column) && memcmp(r->field, column, r->size) == 0) *out = i;
    }
    return *out >= 0 ? CLI_DONE
                     : cli_fail("%s: line 1 has no column \"%s\"; --column names the one with the "
                                "texts",
                                r->texts->path, column);
}

static int read_rows(table_reader *r, const char *column) {
    int64_t wanted;
    int code = find_column(r, column, &wanted);
    while (code == CLI_DONE && r->at < r->length) {
        const int64_t line = r->line;
        bool last = false, found = false;
        int64_t i = 0;
        for (; code == CLI_DONE && !last; i++) {
            code = take_field(r, &last);
            if (code != CLI_DONE || i != wanted) continue;
            code = add_text(r->texts, copy_bytes(r->field, r->size), r->size, line);
            found = true;
        }
        if (code == CLI_DONE && !found && (i > 1 || r->size > 0))
            code = cli_fail("%s: line %lld has %lld columns; \"%s\" is number %lld", r->texts->path,
                            (long long)line, (long long)i, column, (long long)wanted + 1);
    }
    return code;
}

static int read_table(cli_texts *texts, const char *bytes, size_t length, char comma,
                      const char *column) {
    table_reader r = {.texts = texts, .bytes = bytes, .length = length, .comma = comma, .line = 1};
    r.field = malloc(length + 1);
    if (r.field == NULL) return cli_fail("%s: out of memory", texts->path);
    int code = read_rows(&r, column);
    free(r.field);
    return code;
}

/* ---- FASTA: a line > name and remarks, then lines of the sequence ---- */

/* Appends a line of a sequence: letters become upper case; blanks go; a * ends a protein. */
static int append_letters(cli_texts *texts, const char *line, size_t size, int64_t number) {
    cli_text *text = &texts->items[texts->count - 1];
    for (size_t i = 0; i < size; i++) {
        const char c = line[i], upper = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
        if (c == ' ' || c == '\t') continue;
        if ((upper < 'A' || upper > 'Z') && c != '*')
            return cli_fail("%s: line %lld: byte %zu is not a letter of a sequence (gaps and "
                            "numbers are not read)",
                            texts->path, (long long)number, i + 1);
        text->bytes[text->length++] = upper;
    }
    return CLI_DONE;
}

static int begin_sequence(cli_texts *texts, const char *line, size_t size, size_t room,
                          int64_t number) {
    size_t end = 1;
    while (end < size && line[end] != ' ' && line[end] != '\t') end++;
    int code = add_text(texts, malloc(room + 1), 0, number);
    if (code != CLI_DONE) return code;
    cli_text *text = &texts->items[texts->count - 1];
    text->bytes[0] = '\0';
    text->name = copy_bytes(line + 1, end - 1);
    return text->name != NULL ? CLI_DONE : cli_fail("%s: out of memory", texts->path);
}

/* The sequence is complete: returns the rest of its memory. */
static int end_sequence(cli_texts *texts) {
    if (texts->count == 0) return CLI_DONE;
    cli_text *text = &texts->items[texts->count - 1];
    if (text->length == 0)
        return cli_fail("%s: line %lld: the sequence %.60s is empty", texts->path,
                        (long long)text->line, text->name);
    text->bytes[text->length] = '\0';
    char *less = realloc(text->bytes, text->length + 1);
    if (less != NULL) text->bytes = less;
    return CLI_DONE;
}

/* Bytes of the file up to the next sequence: room for this one. */
static size_t room_of(const char *bytes, size_t length, size_t at) {
    const char *from = bytes + at, *end = bytes + length, *next = from;
    while (next < end && *next != '>') {
        const char *newline = memchr(next, '\n', (size_t)(end - next));
        next = newline != NULL ? newline + 1 : end;
    }
    return (size_t)(next - from);
}

static int read_fasta(cli_texts *texts, const char *bytes, size_t length) {
    int code = CLI_DONE;
    int64_t number = 0;
    for (size_t at = 0, size; code == CLI_DONE && at < length;) {
        const char *line = take_line(bytes, length, &at, &size);
        number++;
        if (size > 0 && line[0] == '>') {
            code = end_sequence(texts);
            if (code == CLI_DONE)
                code = begin_sequence(texts, line, size,
                                      at < length ? room_of(bytes, length, at) : 0, number);
        } else if (size > 0 && line[0] == ';') {
            continue; /* a comment */
        } else if (texts->count > 0) {
            code = append_letters(texts, line, size, number);
        } else if (size > 0) {
            code = cli_fail("%s: line %lld: a FASTA file begins with a line > and a name",
                            texts->path, (long long)number);
        }
    }
    return code == CLI_DONE ? end_sequence(texts) : code;
}

/* ---- Files ---- */

static bool ends_in(const char *path, const char *ending) {
    const size_t length = strlen(path), size = strlen(ending);
    return length >= size && strcmp(path + length - size, ending) == 0;
}

static int format_of(const cli_texts_options *options, const char *path) {
    if (options->fasta != NULL) return FASTA;
    if (options->format >= 0) return options->format;
    return ends_in(path, ".jsonl") || ends_in(path, ".ndjson") ? JSON_LINES
           : ends_in(path, ".csv")                             ? CSV
           : ends_in(path, ".tsv")                             ? TSV
                                                               : LINES;
}

static int parse_texts(const cli_texts_options *options, int format, cli_texts *out,
                       const char *bytes, size_t length) {
    static const char mark[] = "\xef\xbb\xbf"; /* the byte order mark, which some programs write */
    const char *column = options->column != NULL ? options->column : "text";
    if (length >= 3 && memcmp(bytes, mark, 3) == 0) bytes += 3, length -= 3;
    switch (format) {
    case FASTA: return read_fasta(out, bytes, length);
    case CSV: return read_table(out, bytes, length, ',', column);
    case TSV: return read_table(out, bytes, length, '\t', column);
    default: return read_lines(out, bytes, length, format == JSON_LINES, column);
    }
}

int cli_texts_read(const cli_texts_options *options, cli_texts *out) {
    char *bytes;
    size_t length;
    const char *path = options->fasta != NULL  ? options->fasta
                       : options->text != NULL ? options->text
                                               : "-";
    const int format = format_of(options, path);
    *out = (cli_texts){.path = strcmp(path, "-") == 0 ? "stdin" : path};
    if (options->fasta != NULL &&
        (options->text != NULL || options->format >= 0 || options->column != NULL))
        return cli_usage("--fasta: --text, --format and --column are for other files");
    if (options->column != NULL && format == LINES)
        return cli_usage("--column: lines have no columns; --format jsonl, csv or tsv");
    int code = cli_text_read(path, &bytes, &length);
    if (code != CLI_DONE) return code;
    code = parse_texts(options, format, out, bytes, length);
    free(bytes);
    if (code == CLI_DONE && out->count == 0) code = cli_fail("there is no text");
    if (code != CLI_DONE) cli_texts_free(out);
    return code;
}

/* ---- Characters of tokens ---- */

/* The run of characters from `at` on for which the vocabulary has no token. */
static size_t unknown_run(const plsh_tokenizer *tokenizer, const cli_text *text, size_t at) {
    size_t end = at;
    while (end < text->length && plsh_tokenizer_find(tokenizer, text->bytes + end, 1) < 0) end++;
    return end - at;
}

/* Files name it in tokenizer_config.json, or not at all. */
static bool is_unknown(const plsh_tokenizer *tokenizer, int32_t id, const char *token,
                       size_t length) {
    return id == plsh_tokenizer_roles(tokenizer).unknown ||
           (token != NULL && length == 5 &&
            (memcmp(token, "[UNK]", 5) == 0 || memcmp(token, "<unk>", 5) == 0));
}

static size_t count_same(const int32_t *ids, size_t count, size_t at) {
    size_t same = 0;
    while (at + same < count && ids[at + same] == ids[at]) same++;
    return same;
}

int cli_texts_align(const cli_texts *texts, int64_t text, const plsh_tokenizer *tokenizer,
                    const int32_t *ids, size_t count, int64_t *spans) {
    const cli_text *t = &texts->items[text];
    char place[CLI_PLACE_SIZE];
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length = 0;
        const char *token = plsh_tokenizer_token(tokenizer, ids[i], &length);
        spans[i] = 0;
        if (token != NULL && length <= t->length - at &&
            memcmp(t->bytes + at, token, length) == 0) {
            spans[i] = (int64_t)length;
        } else if (is_unknown(tokenizer, ids[i], token, length)) {
            /* A run of unknown characters: a token for each, or one for all of them. */
            const size_t run = unknown_run(tokenizer, t, at), same = count_same(ids, count, i);
            spans[i] = same >= run ? (run > 0) : (int64_t)run;
        }
        at += (size_t)spans[i];
    }
    if (at == t->length) return CLI_DONE;
    cli_texts_place(texts, text, place);
    return cli_fail("%s: its tokens are not pieces of it one after the other (at character %zu of "
                    "%zu), so there is no row per base",
                    place, at + 1, t->length);
}
