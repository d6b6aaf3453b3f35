/* web: calls on files that wasi-libc lacks. Files in memory have no owner, and one descriptor. */
#ifndef PLSH_WEB_UNISTD_H
#define PLSH_WEB_UNISTD_H

#include_next <unistd.h>

#include <errno.h>

static inline int fchown(int descriptor, unsigned owner, unsigned group) {
    (void)descriptor, (void)owner, (void)group;
    errno = EPERM;
    return -1;
}
static inline int dup(int descriptor) {
    (void)descriptor;
    errno = EMFILE;
    return -1;
}

#endif
