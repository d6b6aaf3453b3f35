/* base: text that grows. The first failure is kept, so that writers need not check every call. */
#ifndef PLSH_BASE_TEXT_H
#define PLSH_BASE_TEXT_H

#include "plsh/status.h"

typedef struct plsh_text {
    char *bytes; /* zero-terminated once anything was appended */
    size_t length;
    size_t capacity;
    size_t limit;       /* 0: none; a text that would be longer is PLSH_STATUS_UNSUPPORTED */
    plsh_error failure; /* status OK while all went well */
} plsh_text;

/* Reserves room for `more` bytes, so that appending them does not move the text. False after a
 * failure.
 */
bool plsh_text_reserve(plsh_text *text, size_t more);
void plsh_text_append(plsh_text *text, const char *bytes, size_t length);
void plsh_text_print(plsh_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void plsh_text_clear(plsh_text *text);
void plsh_text_free(plsh_text *text);

/* The failure kept, if any, copied into `error`; otherwise PLSH_STATUS_OK. */
plsh_status plsh_text_status(const plsh_text *text, plsh_error *error);

enum { PLSH_NUMBER_SIZE = 40 };

/* A finite double in the fewest digits that read back as the same double, with a point whatever
 * the locale. */
void plsh_number_print(char out[PLSH_NUMBER_SIZE], double value);

#endif
