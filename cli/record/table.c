/* cli: tables; one declaration of the columns for people and for JSON. */
#include "cli/record/record.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Cells keep their values. Texts are copied, one after the other, into `words`; a text cell holds
 * its offset there (-1: no value). */
struct cli_table {
    const cli_column *columns;
    size_t columns_count;
    cli_cell *cells;
    size_t rows;
    size_t capacity;
    plsh_text words;
    plsh_text text;
};

plsh_status cli_table_create(cli_table **out, const cli_column *columns, size_t count,
                             plsh_error *error) {
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, sizeof(cli_table), "table", error);
    *out = memory;
    if (status != PLSH_STATUS_OK) return status;
    (*out)->columns = columns;
    (*out)->columns_count = count;
    return PLSH_STATUS_OK;
}

void cli_table_free(cli_table *table) {
    if (table == NULL) return;
    plsh_text_free(&table->words);
    plsh_text_free(&table->text);
    plsh_release(table->cells);
    plsh_release(table);
}

static bool grow(cli_table *table) {
    if (table->rows < table->capacity) return true;
    size_t capacity = table->capacity < 8 ? 16 : 2 * table->capacity;
    size_t count;
    void *cells;
    if (!plsh_multiply(capacity, table->columns_count, &count)) {
        plsh_fail(&table->words.failure, PLSH_STATUS_OVERFLOW, "table: too many rows");
        return false;
    }
    if (plsh_allocate(&cells, count, sizeof(cli_cell), "table rows", &table->words.failure) !=
        PLSH_STATUS_OK)
        return false;
    if (table->rows > 0)
        memcpy(cells, table->cells, table->rows * table->columns_count * sizeof(cli_cell));
    plsh_release(table->cells);
    table->cells = cells;
    table->capacity = capacity;
    return true;
}

void cli_table_add(cli_table *table, const cli_cell *cells) {
    if (table->words.failure.status != PLSH_STATUS_OK || !grow(table)) return;
    cli_cell *row = table->cells + table->rows * table->columns_count;
    for (size_t c = 0; c < table->columns_count; c++) {
        row[c] = cells[c];
        if (table->columns[c].kind != CLI_CELL_TEXT) continue;
        row[c].integer = cells[c].text == NULL ? -1 : (int64_t)table->words.length;
        if (cells[c].text != NULL)
            plsh_text_append(&table->words, cells[c].text, strlen(cells[c].text) + 1);
    }
    table->rows++;
}

/* The text of a cell; `buffer` serves what is not text already. */
static const char *cell_text(const cli_table *table, size_t row, size_t c, char *buffer,
                             size_t size) {
    const cli_cell *cell = &table->cells[row * table->columns_count + c];
    const cli_column *column = &table->columns[c];
    switch (column->kind) {
    case CLI_CELL_TEXT: return cell->integer < 0 ? "-" : table->words.bytes + cell->integer;
    case CLI_CELL_INTEGER: snprintf(buffer, size, "%lld", (long long)cell->integer); break;
    case CLI_CELL_BOOLEAN: return cell->boolean ? "yes" : "no";
    case CLI_CELL_NUMBER:
        if (isnan(cell->number)) return "-";
        snprintf(buffer, size, "%.*g", column->digits > 0 ? column->digits : 6, cell->number);
        break;
    }
    return buffer;
}

static const char *heading(const cli_column *column) {
    return column->heading != NULL ? column->heading : column->name;
}

/* Characters on a screen: UTF-8 continuation bytes take no room. */
static int width(const char *text) {
    int count = 0;
    for (; *text != '\0'; text++) count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

static int column_width(const cli_table *table, size_t c) {
    char buffer[64];
    int widest = width(heading(&table->columns[c]));
    for (size_t row = 0; row < table->rows; row++) {
        int w = width(cell_text(table, row, c, buffer, sizeof buffer));
        if (w > widest) widest = w;
    }
    return widest;
}

/* Text to the left, numbers to the right; no blanks at the end of a line. */
static void put_cell(cli_table *table, size_t c, const char *text, int widest) {
    bool last = c + 1 == table->columns_count;
    int room = widest - width(text);
    if (c > 0 && (!last || text[0] != '\0')) plsh_text_append(&table->text, "  ", 2);
    if (table->columns[c].kind == CLI_CELL_TEXT)
        plsh_text_print(&table->text, "%s%*s", text, last ? 0 : room, "");
    else
        plsh_text_print(&table->text, "%*s%s", room, "", text);
    if (last) plsh_text_append(&table->text, "\n", 1);
}

plsh_status cli_table_text(cli_table *table, const char **text, size_t *length, plsh_error *error) {
    *text = NULL;
    *length = 0;
    plsh_status status = plsh_text_status(&table->words, error);
    if (status != PLSH_STATUS_OK) return status;
    void *memory;
    status = plsh_allocate(&memory, table->columns_count, sizeof(int), "table columns", error);
    if (status != PLSH_STATUS_OK) return status;
    int *widths = memory;
    char buffer[64];
    plsh_text_clear(&table->text);
    for (size_t c = 0; c < table->columns_count; c++) widths[c] = column_width(table, c);
    for (size_t c = 0; c < table->columns_count; c++)
        put_cell(table, c, heading(&table->columns[c]), widths[c]);
    for (size_t row = 0; row < table->rows; row++)
        for (size_t c = 0; c < table->columns_count; c++)
            put_cell(table, c, cell_text(table, row, c, buffer, sizeof buffer), widths[c]);
    plsh_release(widths);
    status = plsh_text_status(&table->text, error);
    if (status != PLSH_STATUS_OK) return status;
    *text = table->text.bytes;
    *length = table->text.length;
    return PLSH_STATUS_OK;
}

static void json_cell(const cli_table *table, size_t row, size_t c, cli_json *json) {
    const cli_cell *cell = &table->cells[row * table->columns_count + c];
    const char *name = table->columns[c].name;
    switch (table->columns[c].kind) {
    case CLI_CELL_NUMBER: cli_json_number(json, name, cell->number); break;
    case CLI_CELL_INTEGER: cli_json_integer(json, name, cell->integer); break;
    case CLI_CELL_BOOLEAN: cli_json_boolean(json, name, cell->boolean); break;
    case CLI_CELL_TEXT:
        cli_json_text(json, name, cell->integer < 0 ? NULL : table->words.bytes + cell->integer);
        break;
    }
}

void cli_table_json(const cli_table *table, cli_json *json, const char *key) {
    plsh_error error;
    if (plsh_text_status(&table->words, &error) != PLSH_STATUS_OK) {
        cli_json_fail(json, &error);
        return;
    }
    cli_json_begin_array(json, key);
    for (size_t row = 0; row < table->rows; row++) {
        cli_json_begin_object(json, NULL);
        for (size_t c = 0; c < table->columns_count; c++) json_cell(table, row, c, json);
        cli_json_end(json);
    }
    cli_json_end(json);
}
