/* web: files in memory have no permissions to change. */
#ifndef PLSH_WEB_SYS_STAT_H
#define PLSH_WEB_SYS_STAT_H

#include_next <sys/stat.h>

static inline int fchmod(int descriptor, mode_t mode) {
    (void)descriptor, (void)mode;
    return 0;
}

#endif
