/* base: files mapped into memory, to be read only. */
#ifndef PLSH_BASE_MAPPING_H
#define PLSH_BASE_MAPPING_H

#include "plsh/status.h"

/* The bytes of a file. Pages are read when they are touched and shared by all processes that map
 * the file. They are not a copy: if the file is truncated meanwhile, touching a missing page ends
 * this process (SIGBUS). Replacing the file by another one (plsh_file) is safe. */
typedef struct plsh_mapping {
    const unsigned char *bytes; /* on a page boundary; never NULL while open, an empty file's too */
    size_t size;
} plsh_mapping;

/* Regular files only. On failure the mapping is closed, and the message names the file. */
plsh_status plsh_mapping_open(plsh_mapping *mapping, const char *path, plsh_error *error);

/* Closes a mapping; one that is closed or zeroed is fine. */
void plsh_mapping_close(plsh_mapping *mapping);

#endif
