/* cli: plsh tokenize: text to ids and back. */
#include "cli/commands.h"
#include "cli/lm/model.h"
#include "cli/message.h"
#include "cli/options.h"
#include "cli/output.h"

#include "plsh/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tokenize_options {
    const char *tokenizer;
    const char *out;
    bool special;
    bool decode;
    bool skip_special;
    bool tokens;
} tokenize_options;

typedef struct settings {
    tokenize_options tokenize;
    cli_common common;
} settings;

static const cli_option tokenize_table[] = {
    {.name = "tokenizer",
     .kind = CLI_FILE,
     CLI_MEMBER(tokenize_options, tokenizer),
     .value = "PATH",
     .resolve = cli_hub_resolve,
     .help = "a tokenizer.json, the folder of one, or a .gguf",
     .required = true},
    {.name = "special",
     .kind = CLI_FLAG,
     CLI_MEMBER(tokenize_options, special),
     .help = "add the tokens that the file puts around a text ([CLS], <s>)"},
    {.name = "decode",
     .kind = CLI_FLAG,
     CLI_MEMBER(tokenize_options, decode),
     .help = "decode: ids on stdin, separated by blanks or commas, to text"},
    {.name = "skip-special",
     .kind = CLI_FLAG,
     CLI_MEMBER(tokenize_options, skip_special),
     .help = "with --decode: leave special tokens out"},
    {.name = "tokens",
     .kind = CLI_FLAG,
     CLI_MEMBER(tokenize_options, tokens),
     .help = "print every token beside its id (JSON: also \"tokens\")"},
    {.name = "out",
     .kind = CLI_FILE,
     CLI_MEMBER(tokenize_options, out),
     .value = "FILE",
     .help = "write the ids: int32 .npy [n]"},
};

static const cli_group groups[] = {
    CLI_GROUP("Options", tokenize_table, settings, tokenize),
    CLI_GROUP("Common options", cli_common_options, settings, common),
};

/* All of stdin, followed by a zero byte. */
static int read_input(char **bytes, size_t *length) {
    size_t capacity = 1 << 16;
    *length = 0;
    *bytes = malloc(capacity);
    while (*bytes != NULL) {
        *length += fread(*bytes + *length, 1, capacity - *length - 1, stdin);
        if (*length + 1 < capacity) break;
        char *grown = capacity > SIZE_MAX / 2 ? NULL : realloc(*bytes, 2 * capacity);
        if (grown == NULL) free(*bytes);
        *bytes = grown;
        capacity *= 2;
    }
    if (*bytes == NULL) return cli_fail("out of memory for the text on stdin");
    if (ferror(stdin)) return cli_fail("stdin: %s", strerror(errno));
    (*bytes)[*length] = '\0';
    return CLI_DONE;
}

/* ---- text to ids ---- */

static void json_token(cli_json *json, const plsh_tokenizer *tokenizer, int32_t id) {
    size_t length;
    const char *token = plsh_tokenizer_token(tokenizer, id, &length);
    if (token != NULL)
        cli_json_bytes(json, NULL, token, length);
    else
        cli_json_text(json, NULL, NULL);
}

static int print_ids_json(const plsh_tokenizer *tokenizer, const plsh_token_ids *ids, bool tokens) {
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_begin_array(json, "ids");
    for (size_t i = 0; i < ids->count; i++) cli_json_integer(json, NULL, ids->ids[i]);
    cli_json_end(json);
    if (tokens) {
        cli_json_begin_array(json, "tokens");
        for (size_t i = 0; i < ids->count; i++) json_token(json, tokenizer, ids->ids[i]);
        cli_json_end(json);
    }
    return cli_document_end(json);
}

static void print_ids(const plsh_tokenizer *tokenizer, const plsh_token_ids *ids, bool tokens) {
    for (size_t i = 0; i < ids->count; i++) {
        size_t length;
        const char *token = plsh_tokenizer_token(tokenizer, ids->ids[i], &length);
        if (tokens) {
            printf("%d\t", (int)ids->ids[i]);
            if (token != NULL) cli_write_text(stdout, token, length, false);
            printf("\n");
        } else {
            printf("%s%d", i > 0 ? " " : "", (int)ids->ids[i]);
        }
    }
    if (!tokens) printf("\n");
}

static int encode(const settings *given, const plsh_tokenizer *tokenizer, const char *text,
                  size_t length) {
    const tokenize_options *options = &given->tokenize;
    plsh_token_ids ids = {0};
    plsh_error error;
    cli_output output = {.path = options->out};
    int code = cli_outputs_open(&output, 1);
    if (code == CLI_DONE && plsh_tokenizer_encode(tokenizer, text, length, options->special, &ids,
                                                  &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    if (code == CLI_DONE && options->out != NULL) {
        const int64_t shape[1] = {(int64_t)ids.count};
        static const int32_t nothing;
        code = cli_output_array(&output, PLSH_DTYPE_INT32, 1, shape,
                                ids.count > 0 ? ids.ids : &nothing);
        if (code == CLI_DONE) code = cli_outputs_commit(&output, 1);
        if (code == CLI_DONE) cli_note("%s: %zu ids", options->out, ids.count);
    }
    cli_outputs_abandon(&output, 1);
    if (code == CLI_DONE && given->common.json)
        code = print_ids_json(tokenizer, &ids, options->tokens);
    else if (code == CLI_DONE && (options->out == NULL || options->tokens))
        print_ids(tokenizer, &ids, options->tokens);
    plsh_token_ids_free(&ids);
    return code;
}

/* ---- ids to text ---- */

/* Numbers apart by blanks, commas or brackets: a JSON list is fine. */
static int parse_ids(const char *text, size_t length, int32_t **ids, size_t *count) {
    *count = 0;
    *ids = malloc((length / 2 + 1) * sizeof **ids);
    if (*ids == NULL) return cli_fail("out of memory for the ids on stdin");
    for (size_t at = 0; at < length;) {
        if (strchr(" \t\r\n,[]", text[at]) != NULL && text[at] != '\0') {
            at++;
            continue;
        }
        char *end;
        errno = 0;
        const long long id = strtoll(text + at, &end, 10);
        const size_t size = (size_t)(end - (text + at));
        if (size == 0 || errno != 0 || id < 0 || id > INT32_MAX)
            return cli_fail("stdin, byte %zu: no id; --decode reads numbers from 0 to %d", at,
                            INT32_MAX);
        (*ids)[(*count)++] = (int32_t)id;
        at += size;
    }
    return CLI_DONE;
}

static int print_text(const settings *given, const plsh_token_text *text) {
    if (!given->common.json) {
        if (text->length > 0) cli_write_text(stdout, text->bytes, text->length, true);
        return CLI_DONE;
    }
    cli_json *json = cli_document_begin();
    if (json == NULL) return CLI_FAILED;
    cli_json_bytes(json, "text", text->bytes != NULL ? text->bytes : "", text->length);
    return cli_document_end(json);
}

static int decode(const settings *given, const plsh_tokenizer *tokenizer, const char *input,
                  size_t length) {
    int32_t *ids = NULL;
    size_t count;
    plsh_token_text text = {0};
    plsh_error error;
    int code = parse_ids(input, length, &ids, &count);
    if (code == CLI_DONE &&
        plsh_tokenizer_decode(tokenizer, ids, count, given->tokenize.skip_special, &text, &error) !=
            PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    if (code == CLI_DONE) code = print_text(given, &text);
    plsh_token_text_free(&text);
    free(ids);
    return code;
}

static int run_tokenize(const void *given) {
    const settings *options = given;
    plsh_tokenizer *tokenizer;
    plsh_error error;
    char *input = NULL;
    size_t length;
    if (options->tokenize.decode && options->tokenize.out != NULL)
        return cli_usage("--out is for ids; with --decode the text goes to stdout");
    if (plsh_tokenizer_open(&tokenizer, options->tokenize.tokenizer, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    int code = read_input(&input, &length);
    if (code == CLI_DONE)
        code = options->tokenize.decode ? decode(options, tokenizer, input, length)
                                        : encode(options, tokenizer, input, length);
    free(input);
    plsh_tokenizer_free(tokenizer);
    return code;
}

const cli_command cli_command_tokenize = {
    .name = "tokenize",
    .summary = "text to token ids, and ids to text",
    .text = "Reads a text on stdin, byte for byte (a newline at its end is part of it), and prints "
            "its ids as the Hugging Face tokenizers library gives them; with --decode the other "
            "way round. Invalid UTF-8 becomes U+FFFD.",
    .example = "plsh tokenize --tokenizer model < text.txt",
    .groups = groups,
    .group_count = CLI_COUNT(groups),
    .settings_size = sizeof(settings),
    .run = run_tokenize,
};
