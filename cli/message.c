/* cli: messages, results and progress of a command. */
#include "cli/message.h"

#include "base/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *command_name;
static const char *about_file; /* NULL: none */
static bool is_quiet;
static int held_rank; /* 0: messages are printed at once */
static char held[1024];

static struct {
    double total, start, last;
    const char *unit;
    bool shown;
    char detail[80];
} progress;

void cli_message_begin(const char *name, bool quiet) {
    command_name = name;
    is_quiet = quiet || held_rank > 0;
}

void cli_message_about(const char *file) { about_file = file; }

void cli_message_hold(int rank) {
    held_rank = rank;
    is_quiet = true;
}

static void print_name(void) {
    cli_progress_end();
    fflush(stdout);
    fputs("plsh", stderr);
    if (command_name != NULL) fprintf(stderr, " %s", command_name);
    fputs(": ", stderr);
}

/* Words may come from a file: see terminal.h. Where there is no memory for long ones, the first
 * that fit are printed. */
static void vprint_words(const char *format, va_list args) {
    char few[512], *words = NULL;
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(few, sizeof few, format, args);
    if (length >= (int)sizeof few && (length = vasprintf(&words, format, again)) < 0) {
        words = NULL;
        length = (int)sizeof few - 1;
    }
    va_end(again);
    if (length >= 0) cli_write_text(stderr, words != NULL ? words : few, (size_t)length, false);
    free(words);
}

__attribute__((format(printf, 1, 2))) static void print_words(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprint_words(format, args);
    va_end(args);
}

void cli_message_release(void) {
    if (held[0] == '\0') return;
    print_name();
    print_words("rank %d: %s", held_rank, held);
    fputc('\n', stderr);
    held[0] = '\0';
}

void cli_message_last(const char *message) {
    fprintf(stderr, "plsh%s%s: %s\n", command_name != NULL ? " " : "",
            command_name != NULL ? command_name : "", message);
}

static void say(const char *format, va_list args) {
    if (held_rank > 0) {
        if (held[0] == '\0') vsnprintf(held, sizeof held, format, args);
        return;
    }
    print_name();
    if (about_file != NULL) print_words("%s: ", about_file);
    vprint_words(format, args);
    fputc('\n', stderr);
}

void cli_say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

int cli_fail_error(const plsh_error *error) { return cli_fail("%s", error->message); }

void cli_note(const char *format, ...) {
    if (is_quiet) return;
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

static int print(const char *text, size_t length) {
    cli_progress_end();
    if (!cli_write_text(stdout, text, length, true)) return cli_fail("stdout: %s", strerror(errno));
    return CLI_DONE;
}

cli_json *cli_document_begin(void) {
    cli_json *json;
    plsh_error error;
    if (cli_json_create(&json, &error) != PLSH_STATUS_OK)
        cli_fail_error(&error);
    else
        cli_json_begin_object(json, NULL);
    return json;
}

int cli_document_end(cli_json *json) {
    const char *text;
    size_t length;
    plsh_error error;
    cli_json_end(json);
    plsh_status status = cli_json_finish(json, &text, &length, &error);
    int code = status == PLSH_STATUS_OK ? print(text, length) : cli_fail_error(&error);
    cli_json_free(json);
    return code;
}

int cli_print_table(cli_table *table) {
    const char *text;
    size_t length;
    plsh_error error;
    if (cli_table_text(table, &text, &length, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    return print(text, length);
}

int cli_finish(int code) {
    cli_progress_end();
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (code == CLI_DONE) code = cli_fail("stdout: %s", strerror(errno));
    }
    return code;
}

void cli_progress_begin(double total, const char *unit) {
    progress.total = total;
    progress.unit = unit;
    progress.start = plsh_clock_seconds();
    progress.last = progress.start;
    progress.shown = false;
    progress.detail[0] = '\0';
}

void cli_progress_detail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(progress.detail, sizeof progress.detail, format, args);
    va_end(args);
}

void cli_progress(double done) {
    if (is_quiet || !isatty(STDERR_FILENO)) return;
    double time = plsh_clock_seconds();
    if (time - progress.last < 0.2) return; /* five a second are enough for the eye */
    progress.last = time;
    double rate = done / (time - progress.start);
    fprintf(stderr, "\r\033[K%s: %3.0f %%", command_name, 100 * done / progress.total);
    if (rate > 0)
        fprintf(stderr, ", %.3g %s/s, %.0f s left", rate, progress.unit,
                (progress.total - done) / rate);
    if (progress.detail[0] != '\0') fprintf(stderr, "; %s", progress.detail);
    fflush(stderr);
    progress.shown = true;
}

void cli_progress_end(void) {
    if (progress.shown) fputs("\r\033[K", stderr);
    progress.shown = false;
}
