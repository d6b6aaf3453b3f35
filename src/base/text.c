/* base: text that grows. */
#include "base/text.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool plsh_text_reserve(plsh_text *text, size_t more) {
    if (text->failure.status != PLSH_STATUS_OK) return false;
    size_t needed;
    if (!plsh_add(text->length, more, &needed) || !plsh_add(needed, 1, &needed)) {
        plsh_fail(&text->failure, PLSH_STATUS_OVERFLOW, "text: its length overflows");
        return false;
    }
    if (text->limit > 0 && needed - 1 > text->limit) {
        plsh_fail(&text->failure, PLSH_STATUS_UNSUPPORTED, "text: more than %zu bytes",
                  text->limit);
        return false;
    }
    if (needed <= text->capacity) return true;
    size_t capacity = needed < 128 ? 256 : needed + needed / 2;
    void *grown;
    if (plsh_allocate(&grown, capacity, 1, "text", &text->failure) != PLSH_STATUS_OK) return false;
    if (text->length > 0) memcpy(grown, text->bytes, text->length);
    plsh_release(text->bytes);
    text->bytes = grown;
    text->capacity = capacity;
    return true;
}

void plsh_text_append(plsh_text *text, const char *bytes, size_t length) {
    if (!plsh_text_reserve(text, length)) return;
    if (length > 0) memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

void plsh_text_print(plsh_text *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0 || !plsh_text_reserve(text, (size_t)length)) return;
    va_start(args, format);
    vsnprintf(text->bytes + text->length, (size_t)length + 1, format, args);
    va_end(args);
    text->length += (size_t)length;
}

void plsh_text_clear(plsh_text *text) { text->length = 0; }

void plsh_text_free(plsh_text *text) {
    plsh_release(text->bytes);
    *text = (plsh_text){0};
}

plsh_status plsh_text_status(const plsh_text *text, plsh_error *error) {
    if (text->failure.status != PLSH_STATUS_OK && error != NULL) *error = text->failure;
    return text->failure.status;
}

void plsh_number_print(char out[PLSH_NUMBER_SIZE], double value) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, PLSH_NUMBER_SIZE, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
    for (char *c = out; *c != '\0'; c++)
        if (strchr("0123456789+-e", *c) == NULL) *c = '.';
}
