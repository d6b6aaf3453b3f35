/* cli/report: a table in a file. */
#include "cli/report/sheet.h"

#include "cli/command.h"
#include "cli/message.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { LARGEST = 1 << 26 }; /* bytes: no table for people is as long */

static int read_text(FILE *file, cli_sheet *out) {
    struct stat about;
    if (fstat(fileno(file), &about) != 0 || !S_ISREG(about.st_mode))
        return cli_fail("%s: not a file with a table", out->path);
    if (about.st_size > LARGEST)
        return cli_fail("%s: %lld bytes; a table has at most %d", out->path,
                        (long long)about.st_size, LARGEST);
    struct tm day;
    if (gmtime_r(&about.st_mtime, &day) != NULL)
        strftime(out->recorded, sizeof out->recorded, "%Y-%m-%d", &day);
    out->text = calloc((size_t)about.st_size + 1, 1);
    if (out->text == NULL) return cli_fail("%s: out of memory", out->path);
    const size_t length = fread(out->text, 1, (size_t)about.st_size, file);
    if (ferror(file)) return cli_fail("%s: cannot read: %s", out->path, strerror(errno));
    if (memchr(out->text, '\0', length) != NULL)
        return cli_fail("%s: a zero byte; this is not a table", out->path);
    return CLI_DONE;
}

static size_t count_of(const char *text, char wanted) {
    size_t count = 0;
    for (; *text != '\0'; text++) count += *text == wanted;
    return count;
}

/* The cells of a line, which is cut up; the first line says how many there are. */
static int split_line(cli_sheet *out, char *line, size_t number) {
    const size_t columns = count_of(line, '\t') + 1;
    char **cells = out->cells;
    if (out->columns == 0) {
        out->columns = columns;
    } else if (columns != out->columns) {
        return cli_fail("%s: line %zu: %zu cells; the first line names %zu", out->path, number,
                        columns, out->columns);
    } else {
        cells += ++out->rows * columns;
    }
    for (size_t c = 0; c < columns; c++) cells[c] = strsep(&line, "\t");
    return CLI_DONE;
}

/* Every cell but the last ends in a tab or a newline. */
static int split_text(cli_sheet *out) {
    const size_t most = count_of(out->text, '\t') + count_of(out->text, '\n') + 1;
    out->cells = calloc(most, sizeof *out->cells);
    if (out->cells == NULL) return cli_fail("%s: out of memory", out->path);
    int code = CLI_DONE;
    char *rest = out->text, *line;
    for (size_t number = 1; (line = strsep(&rest, "\n")) != NULL && code == CLI_DONE; number++) {
        if (strncmp(line, "# recorded ", 11) == 0)
            snprintf(out->recorded, sizeof out->recorded, "%.10s", line + 11);
        if (line[0] != '#' && line[0] != '\0') code = split_line(out, line, number);
    }
    return code;
}

int cli_sheet_read(const char *folder, const char *name, cli_sheet *out) {
    *out = (cli_sheet){0};
    if (folder == NULL) return CLI_DONE;
    if (asprintf(&out->path, "%s/%s", folder, name) < 0) {
        out->path = NULL;
        return cli_fail("%s: out of memory", name);
    }
    FILE *file = fopen(out->path, "r");
    if (file == NULL && (errno == ENOENT || errno == ENOTDIR)) return CLI_DONE;
    if (file == NULL) return cli_fail("%s: cannot open: %s", out->path, strerror(errno));
    int code = read_text(file, out);
    fclose(file);
    return code == CLI_DONE ? split_text(out) : code;
}

void cli_sheet_free(cli_sheet *sheet) {
    free(sheet->path);
    free(sheet->text);
    free(sheet->cells);
    *sheet = (cli_sheet){0};
}

static size_t column_of(const cli_sheet *sheet, const char *name) {
    size_t c = 0;
    while (c < sheet->columns && strcmp(sheet->cells[c], name) != 0) c++;
    return c;
}

const char *cli_sheet_text(cli_sheet *sheet, size_t row, const char *column) {
    const size_t c = column_of(sheet, column);
    if (c < sheet->columns) return sheet->cells[(row + 1) * sheet->columns + c];
    if (sheet->problem[0] == '\0')
        snprintf(sheet->problem, sizeof sheet->problem, "no column is named \"%s\"", column);
    return "";
}

double cli_sheet_number(cli_sheet *sheet, size_t row, const char *column) {
    const char *text = cli_sheet_text(sheet, row, column);
    if (text[0] == '\0' || strcmp(text, "-") == 0) return NAN;
    char *end;
    const double value = strtod(text, &end);
    if (*end == '\0') return value;
    if (sheet->problem[0] == '\0')
        snprintf(sheet->problem, sizeof sheet->problem,
                 "row %zu: \"%.60s\", of the column \"%s\", is not a number", row + 1, text,
                 column);
    return NAN;
}

int cli_sheet_check(const cli_sheet *sheet) {
    return sheet->problem[0] == '\0' ? CLI_DONE : cli_fail("%s: %s", sheet->path, sheet->problem);
}
