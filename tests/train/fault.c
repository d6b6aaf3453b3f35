/* tests: a library that is loaded before all others and makes one call of a program fail, or kills
 * the program there.
 *
 *     PLSH_FAULT=N:HOW     the N-th of the calls below fails with the errno HOW; where HOW is 0 the
 *                          process is killed instead
 *     PLSH_FAULT_LOG=FILE  takes the names of the calls, a line each
 *
 * Counted are the calls by which plsh changes files: open of what may be created, write, fsync,
 * rename, renameat, renameat2, mkdir, mkdirat, unlink, unlinkat, rmdir, truncate, and fflush of
 * what is no standard stream. Programs that this one starts run without it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <dlfcn.h>

static atomic_long calls;
static long wanted = -1;
static int how, names = -1;

__attribute__((constructor)) static void arm_fault(void) {
    const char *fault = getenv("PLSH_FAULT"), *path = getenv("PLSH_FAULT_LOG");
    if (fault != NULL && sscanf(fault, "%ld:%d", &wanted, &how) != 2) abort();
    if (path != NULL)
        names = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    unsetenv("LD_PRELOAD");
}

/* Does this call fail? errno says how. */
static int fails(const char *name) {
    const long number = atomic_fetch_add(&calls, 1) + 1;
    char line[32];
    if (names >= 0)
        syscall(SYS_write, names, line, (size_t)snprintf(line, sizeof line, "%s\n", name));
    if (number != wanted) return 0;
    if (how == 0) raise(SIGKILL);
    errno = how;
    return 1;
}

int open(const char *path, int flags, ...) {
    unsigned mode = 0;
    if (flags & O_CREAT) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, unsigned);
        va_end(more);
        if (fails("open")) return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t write(int file, const void *bytes, size_t size) {
    if (file == STDERR_FILENO || file == STDOUT_FILENO)
        return syscall(SYS_write, file, bytes, size);
    return fails("write") ? -1 : syscall(SYS_write, file, bytes, size);
}

int fsync(int file) { return fails("fsync") ? -1 : (int)syscall(SYS_fsync, file); }

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return fails("renameat2") ? -1 : (int)syscall(SYS_renameat2, from, old, to, new, flags);
}

int renameat(int from, const char *old, int to, const char *new) {
    return fails("renameat") ? -1 : (int)syscall(SYS_renameat2, from, old, to, new, 0);
}

int rename(const char *old, const char *new) {
    return fails("rename") ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 0);
}

int mkdirat(int folder, const char *path, mode_t mode) {
    return fails("mkdirat") ? -1 : (int)syscall(SYS_mkdirat, folder, path, mode);
}

int mkdir(const char *path, mode_t mode) {
    return fails("mkdir") ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int unlinkat(int folder, const char *path, int flags) {
    return fails("unlinkat") ? -1 : (int)syscall(SYS_unlinkat, folder, path, flags);
}

int unlink(const char *path) {
    return fails("unlink") ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int rmdir(const char *path) {
    return fails("rmdir") ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

int truncate(const char *path, off_t length) {
    return fails("truncate") ? -1 : (int)syscall(SYS_truncate, path, length);
}

int fflush(FILE *stream) {
    static int (*next)(FILE *);
    if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, "fflush");
    if (stream == NULL || stream == stdout || stream == stderr) return next(stream);
    return fails("fflush") ? EOF : next(stream);
}
