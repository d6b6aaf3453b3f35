/* cli: the files a command writes: opened before its work, put in their places together after it.
 */
#ifndef PLSH_CLI_OUTPUT_H
#define PLSH_CLI_OUTPUT_H

#include "plsh/io.h"

enum { CLI_OUTPUTS_MOST = 9 }; /* of one command */

typedef struct cli_output {
    const char *path; /* NULL: not asked for; every call ignores it */
    plsh_file *file;
} cli_output;

/* Opens them, so that a folder that cannot be written to is refused before hours of work; refuses a
 * file named twice. A signal that ends the program from here on removes the temporary files. A
 * command calls it once, and cli_outputs_abandon at its end. Over ranks only the first one writes.
 */
int cli_outputs_open(cli_output *outputs, size_t count);

/* Removes the temporary files, also those in use by other threads, as such a signal does: for a
 * program that exits without one. */
void cli_outputs_remove(void);

/* Append an array, or text. */
int cli_output_array(const cli_output *output, plsh_dtype type, int rank, const int64_t *shape,
                     const void *data);
int cli_output_print(const cli_output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Renames all of them to their paths; cli_outputs_abandon deletes those that were not. */
int cli_outputs_commit(cli_output *outputs, size_t count);
void cli_outputs_abandon(cli_output *outputs, size_t count);

#endif
