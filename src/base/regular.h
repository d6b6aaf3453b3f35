/* base: files opened for reading, which have to be regular ones. */
#ifndef PLSH_BASE_REGULAR_H
#define PLSH_BASE_REGULAR_H

#include "plsh/status.h"

/* A descriptor for reading and the size of the file. A pipe, a socket, a device or a folder is
 * refused, and never waited for: a model may name them where a file is expected. On failure
 * *descriptor is -1. */
plsh_status plsh_regular_open(const char *path, int *descriptor, size_t *size, plsh_error *error);

#endif
