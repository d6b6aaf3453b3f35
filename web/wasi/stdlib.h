/* web: files in memory have no links: a path that exists is its own real path. */
#ifndef PLSH_WEB_STDLIB_H
#define PLSH_WEB_STDLIB_H

#include_next <stdlib.h>

#include <limits.h>
#include <string.h>

int access(const char *path, int mode); /* of unistd.h, whose other names callers may use */

static inline char *realpath(const char *path, char *out) {
    if (access(path, 0) != 0 || strlen(path) >= PATH_MAX) return NULL;
    return strcpy(out, path);
}

#endif
