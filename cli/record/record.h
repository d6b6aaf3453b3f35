/* cli: results as JSON for programs and as a table for people.
 *
 * Both are written into memory first, so that a caller that fails half way has printed nothing.
 * Single writing calls do not report failures: the first failure (memory) is kept and reported by
 * the call that returns the text. An object belongs to one thread at a time. */
#ifndef PLSH_CLI_RECORD_RECORD_H
#define PLSH_CLI_RECORD_RECORD_H

#include "plsh/status.h"

/* ---- JSON ---- */

typedef struct cli_json cli_json;

/* An empty document; released by cli_json_free (NULL is fine). */
plsh_status cli_json_create(cli_json **out, plsh_error *error);
void cli_json_free(cli_json *json);

/* All of it on one line, for files of JSON lines. Before the first value. */
void cli_json_one_line(cli_json *json);

/* Each adds one value. `key` is its name inside an object, and NULL inside an array and for the
 * whole document. Numbers are written so that reading them gives the same double; NaN and
 * infinities, which JSON lacks, become null. Text is escaped; bytes that are not UTF-8 become
 * U+FFFD; NULL becomes null. */
void cli_json_begin_object(cli_json *json, const char *key);
void cli_json_begin_array(cli_json *json, const char *key);
void cli_json_end(cli_json *json);
void cli_json_number(cli_json *json, const char *key, double value);
void cli_json_rounded(cli_json *json, const char *key, double value, int digits); /* significant */
void cli_json_integer(cli_json *json, const char *key, int64_t value);
void cli_json_unsigned(cli_json *json, const char *key, uint64_t value);
void cli_json_boolean(cli_json *json, const char *key, bool value);
void cli_json_text(cli_json *json, const char *key, const char *value);

/* The same for text of `length` bytes, zero bytes too. */
void cli_json_bytes(cli_json *json, const char *key, const char *bytes, size_t length);

/* The document has failed: the call that hands out the text reports it. */
void cli_json_fail(cli_json *json, const plsh_error *error);

/* The document so far, zero-terminated, with a final newline once every begin has its end
 * (an error otherwise). It belongs to `json` and lives until the next call on it. */
plsh_status cli_json_finish(cli_json *json, const char **text, size_t *length, plsh_error *error);

/* ---- Tables ---- */

typedef enum cli_cell_kind {
    CLI_CELL_NUMBER,
    CLI_CELL_INTEGER,
    CLI_CELL_BOOLEAN,
    CLI_CELL_TEXT
} cli_cell_kind;

/* One declaration serves both forms: `name` is the JSON key and, unless `heading` is given, what
 * stands above the column. `digits`: significant digits of a number in the table (0: 6). */
typedef struct cli_column {
    const char *name;
    cli_cell_kind kind;
    const char *heading;
    int digits;
} cli_column;

/* The member that the column's kind names. A NaN or a NULL text is "no value": "-" in the table,
 * null in JSON. */
typedef union cli_cell {
    double number;
    int64_t integer;
    bool boolean;
    const char *text;
} cli_cell;

typedef struct cli_table cli_table;

/* `columns` has to outlive the table. Released by cli_table_free (NULL is fine). */
plsh_status cli_table_create(cli_table **out, const cli_column *columns, size_t count,
                             plsh_error *error);
void cli_table_free(cli_table *table);

/* Adds a row: as many cells as columns, text copied. */
void cli_table_add(cli_table *table, const cli_cell *cells);

/* The table for people: headings, aligned columns, a newline after each line. It belongs to
 * `table` and lives until the next call on it. */
plsh_status cli_table_text(cli_table *table, const char **text, size_t *length, plsh_error *error);

/* Adds the rows as an array of objects named `key`. A failure of the table is the document's. */
void cli_table_json(const cli_table *table, cli_json *json, const char *key);

#endif
