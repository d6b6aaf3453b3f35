/* base: names of temporary files and folders; regular files opened for reading. */
#ifndef PLSH_BASE_FILE_H
#define PLSH_BASE_FILE_H

#include "plsh/status.h"

/* NAME.PID-COUNT.part: not yet in its place. NAME.PID-COUNT.old: about to be removed. */
#define PLSH_FILE_PART "part"
#define PLSH_FILE_OLD "old"

/* A new name beside `path`, unique among processes and among the threads of this one; false where
 * it does not fit. */
bool plsh_file_name_beside(char *out, size_t size, const char *path, const char *ending);

/* A descriptor for reading and the size of the file. A pipe, a socket, a device or a folder is
 * refused, and never waited for: a model may name them where a file is expected. On failure
 * *descriptor is -1. */
plsh_status plsh_regular_open(const char *path, int *descriptor, size_t *size, plsh_error *error);

#endif
