/* cli/report: a table in a file: a line of names, then rows, cells separated by tabs; lines that
 * begin with # are comments, and "# recorded 2026-11-16" is the date. */
#ifndef PLSH_CLI_REPORT_SHEET_H
#define PLSH_CLI_REPORT_SHEET_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cli_sheet {
    char *path;
    char *text;   /* all of the file; NULL: there is none */
    char **cells; /* [rows + 1][columns], the names first; they point into the text */
    size_t rows, columns;
    char recorded[11]; /* the date in the file, or that of its last change */
    char problem[256]; /* the first column or number that was asked for and is missing; empty: none
                        */
} cli_sheet;

/* Reads folder/name. A missing file is not an error: text is NULL and there are no rows. CLI_FAILED
 * after a message: it cannot be read, or a row has too many or too few cells. */
int cli_sheet_read(const char *folder, const char *name, cli_sheet *out);
void cli_sheet_free(cli_sheet *sheet);

/* A cell by the name of its column: "" or NAN, and a problem, where there is no such column, or no
 * number in the cell ("-", "nan" and nothing at all are NAN without a problem). */
const char *cli_sheet_text(cli_sheet *sheet, size_t row, const char *column);
double cli_sheet_number(cli_sheet *sheet, size_t row, const char *column);

/* CLI_FAILED after a message where there was a problem. */
int cli_sheet_check(const cli_sheet *sheet);

#endif
