/* cli: text of files and models on a terminal. */
#ifndef PLSH_CLI_TERMINAL_H
#define PLSH_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Writes `length` bytes, as they are where `out` is a file or a pipe. On a terminal, control
 * characters (C0, DEL and C1 of UTF-8) are written as \u001b, so that text from a model cannot move
 * the cursor, set the title or answer for the user. Newlines and tabs stay; without `lines`,
 * newlines do not. Returns whether all was written. */
bool cli_write_text(FILE *out, const char *bytes, size_t length, bool lines);

#endif
