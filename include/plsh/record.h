/* plsh/record.h - results as JSON for programs and as a table for people.
 *
 * Both are written into memory first, so that a caller that fails half way has printed nothing.
 * Writing calls cannot fail one by one: the first failure (memory) is kept and reported by the
 * call that hands out the text. An object belongs to one thread at a time. */
#ifndef PLSH_RECORD_H
#define PLSH_RECORD_H

#include "plsh/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- JSON ---- */

typedef struct plsh_json plsh_json;

/* An empty document; released by plsh_json_free (NULL is fine). */
PLSH_API plsh_status plsh_json_create(plsh_json **out, plsh_error *error);
PLSH_API void plsh_json_free(plsh_json *json);

/* Each adds one value. `key` is its name inside an object, and NULL inside an array and for the
 * whole document. Numbers are written so that reading them gives the same double; NaN and
 * infinities, which JSON lacks, become null. Text is escaped; bytes that are not UTF-8 become
 * U+FFFD; NULL becomes null. */
PLSH_API void plsh_json_begin_object(plsh_json *json, const char *key);
PLSH_API void plsh_json_begin_array(plsh_json *json, const char *key);
PLSH_API void plsh_json_end(plsh_json *json);
PLSH_API void plsh_json_number(plsh_json *json, const char *key, double value);
PLSH_API void plsh_json_integer(plsh_json *json, const char *key, int64_t value);
PLSH_API void plsh_json_unsigned(plsh_json *json, const char *key, uint64_t value);
PLSH_API void plsh_json_boolean(plsh_json *json, const char *key, bool value);
PLSH_API void plsh_json_text(plsh_json *json, const char *key, const char *value);

/* The same for text of `length` bytes, zero bytes too. */
PLSH_API void plsh_json_bytes(plsh_json *json, const char *key, const char *bytes, size_t length);

/* The document so far, zero-terminated, with a final newline once every begin has its end
 * (an error otherwise). It belongs to `json` and lives until the next call on it. */
PLSH_API plsh_status plsh_json_finish(plsh_json *json, const char **text, size_t *length,
                                      plsh_error *error);

/* ---- Tables ---- */

typedef enum plsh_cell_kind {
    PLSH_CELL_NUMBER,
    PLSH_CELL_INTEGER,
    PLSH_CELL_BOOLEAN,
    PLSH_CELL_TEXT
} plsh_cell_kind;

/* One declaration serves both forms: `name` is the JSON key and, unless `heading` is given, what
 * stands above the column. `digits`: significant digits of a number in the table (0: 6). */
typedef struct plsh_column {
    const char *name;
    plsh_cell_kind kind;
    const char *heading;
    int digits;
} plsh_column;

/* The member that the column's kind names. A NaN or a NULL text is "no value": "-" in the table,
 * null in JSON. */
typedef union plsh_cell {
    double number;
    int64_t integer;
    bool boolean;
    const char *text;
} plsh_cell;

typedef struct plsh_table plsh_table;

/* `columns` has to outlive the table. Released by plsh_table_free (NULL is fine). */
PLSH_API plsh_status plsh_table_create(plsh_table **out, const plsh_column *columns, size_t count,
                                       plsh_error *error);
PLSH_API void plsh_table_free(plsh_table *table);

/* Adds a row: as many cells as columns, text copied. */
PLSH_API void plsh_table_add(plsh_table *table, const plsh_cell *cells);

/* The table for people: headings, aligned columns, a newline after each line. It belongs to
 * `table` and lives until the next call on it. */
PLSH_API plsh_status plsh_table_text(plsh_table *table, const char **text, size_t *length,
                                     plsh_error *error);

/* The rows as an array of objects named `key`. */
PLSH_API plsh_status plsh_table_json(const plsh_table *table, plsh_json *json, const char *key,
                                     plsh_error *error);

#ifdef __cplusplus
}
#endif

#endif
