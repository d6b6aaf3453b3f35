/* base: names of temporary files and folders. */
#ifndef PLSH_BASE_FILE_H
#define PLSH_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* NAME.PID-COUNT.part: not yet in its place. NAME.PID-COUNT.old: about to be removed. */
#define PLSH_FILE_PART "part"
#define PLSH_FILE_OLD "old"

/* A new name beside `path`, unique among processes and among the threads of this one; false where
 * it does not fit. */
bool plsh_file_name_beside(char *out, size_t size, const char *path, const char *ending);

#endif
