/* text: the parts of a tokenizer.json. */
#ifndef PLSH_TEXT_LOAD_H
#define PLSH_TEXT_LOAD_H

#include <jansson.h>

#include "text/tokenizer.h"

/* A file being read: its name for messages, and the tokenizer being built. */
typedef struct plsh_load {
    plsh_tokenizer *tokenizer;
    const char *name;
    plsh_error *error;
    int depth; /* sequences within each other */
} plsh_load;

/* "<file>: <part>: <message>". */
plsh_status plsh_load_fail(const plsh_load *load, const char *part, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One row per "type" of a part; a NULL name ends a table. */
typedef struct plsh_load_row {
    const char *type;
    plsh_status (*read)(plsh_load *load, const json_t *object, int kind);
    int kind;
} plsh_load_row;

/* Reads an object by its "type". Refuses an unknown type; the message names it. `part` names the
 * table in messages: "normalizer". */
plsh_status plsh_load_part(plsh_load *load, const char *part, const plsh_load_row *rows,
                           const json_t *object);

/* The sequences: every element of a list is read by `read`. */
plsh_status plsh_load_list(plsh_load *load, const char *part,
                           plsh_status (*read)(plsh_load *load, const json_t *object),
                           const json_t *object, const char *key);

/* Fields with defaults; an error names the part and the field. */
plsh_status plsh_load_bool(const plsh_load *load, const char *part, const json_t *object,
                           const char *key, bool *out);
plsh_status plsh_load_size(const plsh_load *load, const char *part, const json_t *object,
                           const char *key, size_t *out);
/* The string of a field, appended; it has to be there, of one character (`single`) or of any. */
plsh_status plsh_load_text(const plsh_load *load, const char *part, const json_t *object,
                           const char *key, bool single, plsh_text *out);
/* {"String": ..} or {"Regex": ..}. */
plsh_status plsh_load_pattern(const plsh_load *load, const char *part, const json_t *object,
                              plsh_pattern **out);

/* The parts. NULL or null: there is none. */
plsh_status plsh_load_normalizer(plsh_load *load, const json_t *object);
plsh_status plsh_load_pre_tokenizer(plsh_load *load, const json_t *object);
plsh_status plsh_load_post_processor(plsh_load *load, const json_t *object);
plsh_status plsh_load_decoder(plsh_load *load, const json_t *object);
plsh_status plsh_load_model(plsh_load *load, const json_t *object);

#endif
