/* base: files opened for reading, which have to be regular ones. */
#include "base/regular.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static plsh_status check(int descriptor, const char *path, size_t *size, plsh_error *error) {
    struct stat about;
    if (fstat(descriptor, &about) != 0)
        return plsh_fail(error, PLSH_STATUS_IO, "%.150s: cannot look at it: %s", path,
                         strerror(errno));
    if (!S_ISREG(about.st_mode))
        return plsh_fail(error, PLSH_STATUS_IO, "%.150s: not a regular file", path);
    if ((uintmax_t)about.st_size > SIZE_MAX)
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "%.150s: larger than the address space",
                         path);
    *size = (size_t)about.st_size;
    return PLSH_STATUS_OK;
}

plsh_status plsh_regular_open(const char *path, int *descriptor, size_t *size, plsh_error *error) {
    *size = 0;
    /* O_NONBLOCK: opening a FIFO does not wait for a writer. It changes nothing for files. */
    *descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*descriptor < 0)
        return plsh_fail(error, PLSH_STATUS_IO, "%.150s: cannot open: %s", path, strerror(errno));
    plsh_status status = check(*descriptor, path, size, error);
    if (status == PLSH_STATUS_OK) return status;
    close(*descriptor);
    *descriptor = -1;
    return status;
}
