/* cli: JSON, written into memory. */
#include "cli/record/record.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { JSON_DEPTH = 32 };

struct cli_json {
    plsh_text text;
    bool one_line;
    int depth;
    bool filled[JSON_DEPTH + 1]; /* whether the open object or array of a depth has a value yet */
    char closer[JSON_DEPTH];
};

plsh_status cli_json_create(cli_json **out, plsh_error *error) {
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, sizeof(cli_json), "json", error);
    *out = memory;
    return status;
}

void cli_json_one_line(cli_json *json) { json->one_line = true; }

void cli_json_free(cli_json *json) {
    if (json == NULL) return;
    plsh_text_free(&json->text);
    plsh_release(json);
}

static void put(cli_json *json, const char *text) {
    plsh_text_append(&json->text, text, strlen(text));
}

/* Bytes of the UTF-8 sequence at `s`, of which `left` > 0 are there; 0 where there is no valid one.
 */
static size_t utf8_length(const unsigned char *s, size_t left) {
    if (s[0] < 0x80) return 1;
    size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || length > left) return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (s[0] == 0xe0 && s[1] < 0xa0) return 0; /* overlong */
    if (s[0] == 0xed && s[1] > 0x9f) return 0; /* surrogates */
    if (s[0] == 0xf0 && s[1] < 0x90) return 0; /* overlong */
    if (s[0] == 0xf4 && s[1] > 0x8f) return 0; /* past U+10FFFF */
    return length;
}

static void put_bytes(cli_json *json, const char *value, size_t size) {
    put(json, "\"");
    for (size_t i = 0; i < size;) {
        const unsigned char *s = (const unsigned char *)value + i;
        size_t length = utf8_length(s, size - i);
        if (length == 0)
            put(json, "\\ufffd");
        else if (*s == '"' || *s == '\\')
            plsh_text_print(&json->text, "\\%c", *s);
        else if (*s == '\n')
            put(json, "\\n");
        else if (*s < 0x20 || *s == 0x7f)
            plsh_text_print(&json->text, "\\u%04x", *s);
        else
            plsh_text_append(&json->text, (const char *)s, length);
        i += length > 0 ? length : 1;
    }
    put(json, "\"");
}

static void put_string(cli_json *json, const char *value) { put_bytes(json, value, strlen(value)); }

/* Values directly inside the outermost two levels stand on lines of their own, so that people can
 * read the document too. */
static bool has_own_line(const cli_json *json) {
    return !json->one_line && json->depth > 0 && json->depth <= 2;
}

/* The comma before a value, and its key. */
static void begin_value(cli_json *json, const char *key) {
    if (json->filled[json->depth]) put(json, json->one_line ? ", " : ",");
    json->filled[json->depth] = true;
    if (has_own_line(json)) plsh_text_print(&json->text, "\n%*s", 2 * json->depth, "");
    if (key != NULL) {
        put_string(json, key);
        put(json, ": ");
    }
}

static void begin(cli_json *json, const char *key, const char *opener, char closer) {
    begin_value(json, key);
    put(json, opener);
    if (json->depth == JSON_DEPTH) {
        plsh_fail(&json->text.failure, PLSH_STATUS_OVERFLOW, "json: more than %d levels",
                  JSON_DEPTH);
        return;
    }
    json->closer[json->depth++] = closer;
    json->filled[json->depth] = false;
}

void cli_json_begin_object(cli_json *json, const char *key) { begin(json, key, "{", '}'); }

void cli_json_begin_array(cli_json *json, const char *key) { begin(json, key, "[", ']'); }

void cli_json_end(cli_json *json) {
    if (json->depth == 0) {
        plsh_fail(&json->text.failure, PLSH_STATUS_INVALID, "json: an end without a begin");
        return;
    }
    if (json->filled[json->depth] && has_own_line(json))
        plsh_text_print(&json->text, "\n%*s", 2 * (json->depth - 1), "");
    plsh_text_append(&json->text, &json->closer[--json->depth], 1);
}

void cli_json_number(cli_json *json, const char *key, double value) {
    char text[PLSH_NUMBER_SIZE] = "null";
    if (isfinite(value)) plsh_number_print(text, value);
    begin_value(json, key);
    put(json, text);
}

void cli_json_rounded(cli_json *json, const char *key, double value, int digits) {
    begin_value(json, key);
    if (isfinite(value))
        plsh_text_print(&json->text, "%.*g", digits, value);
    else
        put(json, "null");
}

void cli_json_integer(cli_json *json, const char *key, int64_t value) {
    begin_value(json, key);
    plsh_text_print(&json->text, "%lld", (long long)value);
}

void cli_json_unsigned(cli_json *json, const char *key, uint64_t value) {
    begin_value(json, key);
    plsh_text_print(&json->text, "%llu", (unsigned long long)value);
}

void cli_json_boolean(cli_json *json, const char *key, bool value) {
    begin_value(json, key);
    put(json, value ? "true" : "false");
}

void cli_json_text(cli_json *json, const char *key, const char *value) {
    begin_value(json, key);
    if (value == NULL)
        put(json, "null");
    else
        put_string(json, value);
}

void cli_json_bytes(cli_json *json, const char *key, const char *bytes, size_t length) {
    begin_value(json, key);
    put_bytes(json, bytes, length);
}

void cli_json_fail(cli_json *json, const plsh_error *error) {
    if (json->text.failure.status == PLSH_STATUS_OK) json->text.failure = *error;
}

plsh_status cli_json_finish(cli_json *json, const char **text, size_t *length, plsh_error *error) {
    if (json->depth != 0)
        return plsh_fail(error, PLSH_STATUS_INVALID, "json: %d begins have no end", json->depth);
    if (json->text.length == 0 || json->text.bytes[json->text.length - 1] != '\n') put(json, "\n");
    plsh_status status = plsh_text_status(&json->text, error);
    *text = status == PLSH_STATUS_OK ? json->text.bytes : NULL;
    *length = status == PLSH_STATUS_OK ? json->text.length : 0;
    return status;
}
