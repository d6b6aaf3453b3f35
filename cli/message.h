/* cli: messages of a command: one line on stderr when it fails, its result on stdout. */
#ifndef PLSH_CLI_MESSAGE_H
#define PLSH_CLI_MESSAGE_H

#include "cli/command.h"
#include "cli/record/record.h"
#include "plsh/status.h"

#include <stdio.h>

/* The command that messages are about ("plsh <name>: ..."). */
void cli_message_begin(const char *name, bool quiet);

/* The file that is read: messages begin with its name until it is NULL. */
void cli_message_about(const char *file);

/* A rank that is not the first (cli/ranks.h): it prints no notes and no progress. Its error message
 * is held back, with its number, until it is released. The first message is kept. */
void cli_message_hold(int rank);
void cli_message_release(void);

/* Prints a message at once, from any rank and any thread, before the program exits. */
void cli_message_last(const char *message);

/* Prints "plsh <command>: <message>". */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print a message and have the value CLI_FAILED or CLI_USAGE, for `return`. They are macros so that
 * static analysis knows the value. */
#define cli_fail(...) (cli_say(__VA_ARGS__), CLI_FAILED)
#define cli_usage(...) (cli_say(__VA_ARGS__), CLI_USAGE)
int cli_fail_error(const plsh_error *error);

/* A remark on stderr, unless --quiet. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The result as JSON: a document whose outermost object is open, NULL after a message; the end
 * closes the object, prints the document and frees it: CLI_DONE, or CLI_FAILED after a message. */
cli_json *cli_document_begin(void);
int cli_document_end(cli_json *json);

/* Prints the table; CLI_DONE, or CLI_FAILED after a message. */
int cli_print_table(cli_table *table);

/* Writes `length` bytes, as they are if `out` is a file or a pipe. On a terminal, control
 * characters (C0, DEL, C1 and those that reverse the order of text) are written as \u001b, so that
 * text from a model cannot move the cursor, set the title, answer for the user or look like other
 * text. Newlines and tabs stay; without `lines`, newlines do not. Returns whether all was written.
 */
bool cli_write_text(FILE *out, const char *bytes, size_t length, bool lines);

/* Ends stdout: a full disk there is a failure. Returns `code`, or CLI_FAILED. */
int cli_finish(int code);

/* Progress on stderr, only on a terminal and not with --quiet: how much is done, how fast, what
 * is left. `total` and `done` count `unit`s; a detail ("loss 3.2") is shown after them. */
void cli_progress_begin(double total, const char *unit);
void cli_progress(double done);
void cli_progress_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_progress_end(void);

#endif
