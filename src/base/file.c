/* base: files that are written whole or not at all; regular files opened for reading. */
#include "plsh/io.h"

#include "base/file.h"
#include "base/folder.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct plsh_file {
    int descriptor;
    bool beside;         /* the bytes go to `temporary`, not to `path` itself */
    char path[PATH_MAX]; /* symbolic links resolved */
    char temporary[PATH_MAX + 64];
};

static plsh_status fail(const plsh_file *file, const char *verb, plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_IO, "%s: cannot %s: %s", file->path, verb, strerror(errno));
}

bool plsh_file_name_beside(char *out, size_t size, const char *path, const char *ending) {
    static atomic_uint counter;
    int length = snprintf(out, size, "%s.%ld-%u.%s", path, (long)getpid(),
                          atomic_fetch_add(&counter, 1), ending);
    return length > 0 && (size_t)length < size;
}

static plsh_status open_beside(plsh_file *file, mode_t mode, plsh_error *error) {
    for (int attempt = 0; attempt < 100; attempt++) {
        plsh_file_name_beside(file->temporary, sizeof file->temporary, file->path, PLSH_FILE_PART);
        file->descriptor =
            open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (file->descriptor >= 0) return PLSH_STATUS_OK;
        if (errno != EEXIST) break;
    }
    return fail(file, "create a file beside it", error);
}

static plsh_status too_long(const char *path, plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_IO, "%.60s...: the path is longer than %d bytes", path,
                     PATH_MAX);
}

/* Sets file->path to `path`, which does not exist. If it is a symbolic link, follows it to the file
 * that will be made; follows as many links as the kernel would. */
static plsh_status follow_links(plsh_file *file, const char *path, plsh_error *error) {
    enum { MOST_LINKS = 40 };
    char target[PATH_MAX], next[PATH_MAX];
    if (strlen(path) >= PATH_MAX) return too_long(path, error);
    memcpy(file->path, path, strlen(path) + 1);
    for (int links = 0; links < MOST_LINKS; links++) {
        ssize_t length = readlink(file->path, target, sizeof target - 1);
        if (length < 0) return PLSH_STATUS_OK;
        target[length] = '\0';
        const char *slash = strrchr(file->path, '/');
        int folder = slash != NULL && target[0] != '/' ? (int)(slash + 1 - file->path) : 0;
        if (snprintf(next, sizeof next, "%.*s%s", folder, file->path, target) >= (int)sizeof next)
            return too_long(path, error);
        memcpy(file->path, next, strlen(next) + 1);
    }
    return plsh_fail(error, PLSH_STATUS_IO, "%s: cannot write: %s", path, strerror(ELOOP));
}

/* Gives the new file the owner and the permissions of the one it replaces, as far as the process is
 * permitted to. */
static plsh_status keep_permissions(plsh_file *file, const struct stat *old, plsh_error *error) {
    if (fchown(file->descriptor, old->st_uid, old->st_gid) != 0 && errno != EPERM)
        return fail(file, "keep its owner", error);
    if (fchmod(file->descriptor, old->st_mode & 07777) != 0)
        return fail(file, "keep its permissions", error);
    return PLSH_STATUS_OK;
}

/* file->path is a regular file. */
static plsh_status open_replacing(plsh_file *file, const struct stat *old, plsh_error *error) {
    if (access(file->path, W_OK) != 0) return fail(file, "write", error);
    file->beside = true;
    plsh_status status = open_beside(file, 0600, error);
    if (status == PLSH_STATUS_OK) status = keep_permissions(file, old, error);
    if (status != PLSH_STATUS_OK && file->descriptor >= 0) {
        close(file->descriptor);
        unlink(file->temporary);
    }
    return status;
}

/* A path that is not a regular file is opened as named: the pipe that /dev/stdout or /dev/fd/63
 * refers to has no name of its own. */
static plsh_status open_file(plsh_file *file, const char *path, plsh_error *error) {
    struct stat about;
    file->descriptor = -1;
    if (stat(path, &about) != 0 && errno == ENOENT) {
        file->beside = true;
        plsh_status status = follow_links(file, path, error);
        return status == PLSH_STATUS_OK ? open_beside(file, 0666, error) : status;
    }
    if (strlen(path) >= PATH_MAX) return too_long(path, error);
    memcpy(file->path, path, strlen(path) + 1);
    if (stat(path, &about) != 0) return fail(file, "write", error);
    if (S_ISDIR(about.st_mode)) {
        errno = EISDIR;
        return fail(file, "write", error);
    }
    if (S_ISREG(about.st_mode)) {
        if (realpath(path, file->path) == NULL) return fail(file, "look at it", error);
        return open_replacing(file, &about, error);
    }
    file->descriptor = open(path, O_WRONLY | O_CLOEXEC);
    return file->descriptor >= 0 ? PLSH_STATUS_OK : fail(file, "open", error);
}

/* The rename replaces a link, so that there is nothing to follow. */
static plsh_status open_own(plsh_file *file, const char *path, plsh_error *error) {
    struct stat about;
    file->descriptor = -1;
    if (strlen(path) >= PATH_MAX) return too_long(path, error);
    memcpy(file->path, path, strlen(path) + 1);
    const bool there = lstat(path, &about) == 0;
    if (!there && errno != ENOENT) return fail(file, "write", error);
    if (there && S_ISREG(about.st_mode)) return open_replacing(file, &about, error);
    if (there && !S_ISLNK(about.st_mode))
        return plsh_fail(error, PLSH_STATUS_IO, "%s: cannot write: not a regular file", path);
    file->beside = true;
    return open_beside(file, 0666, error);
}

typedef plsh_status opener(plsh_file *, const char *, plsh_error *);

static plsh_status create(plsh_file **out, const char *path, opener *open_it, plsh_error *error) {
    *out = NULL;
    if (path == NULL || path[0] == '\0')
        return plsh_fail(error, PLSH_STATUS_INVALID, "file: its path is empty");
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, sizeof(plsh_file), "file", error);
    if (status != PLSH_STATUS_OK) return status;
    status = open_it(memory, path, error);
    if (status != PLSH_STATUS_OK) {
        plsh_release(memory);
        return status;
    }
    *out = memory;
    return PLSH_STATUS_OK;
}

plsh_status plsh_file_create(plsh_file **out, const char *path, plsh_error *error) {
    return create(out, path, open_file, error);
}

plsh_status plsh_file_create_own(plsh_file **out, const char *path, plsh_error *error) {
    return create(out, path, open_own, error);
}

const char *plsh_file_path(const plsh_file *file) { return file->path; }

const char *plsh_file_temporary(const plsh_file *file) {
    return file->beside ? file->temporary : NULL;
}

plsh_status plsh_file_write(plsh_file *file, const void *bytes, size_t size, plsh_error *error) {
    const char *next = bytes;
    while (size > 0) {
        ssize_t written = write(file->descriptor, next, size < (1 << 30) ? size : 1 << 30);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail(file, "write", error);
        next += written;
        size -= (size_t)written;
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_file_commit(plsh_file *file, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    if (file->beside && fsync(file->descriptor) != 0) status = fail(file, "write", error);
    if (close(file->descriptor) != 0 && status == PLSH_STATUS_OK)
        status = fail(file, "write", error);
    file->descriptor = -1;
    if (status == PLSH_STATUS_OK && file->beside) {
        if (rename(file->temporary, file->path) != 0)
            status = fail(file, "replace it", error);
        else
            file->beside = false;
        if (status == PLSH_STATUS_OK) status = plsh_folder_sync_entry(file->path, error);
    }
    plsh_file_abandon(file);
    return status;
}

void plsh_file_abandon(plsh_file *file) {
    if (file == NULL) return;
    if (file->descriptor >= 0) close(file->descriptor);
    if (file->beside) unlink(file->temporary);
    plsh_release(file);
}

static plsh_status save(const char *path, opener *open_it, const void *bytes, size_t size,
                        plsh_error *error) {
    plsh_file *file = NULL;
    plsh_status status = create(&file, path, open_it, error);
    if (file == NULL) return status;
    status = plsh_file_write(file, bytes, size, error);
    if (status == PLSH_STATUS_OK) return plsh_file_commit(file, error);
    plsh_file_abandon(file);
    return status;
}

plsh_status plsh_file_save(const char *path, const void *bytes, size_t size, plsh_error *error) {
    return save(path, open_file, bytes, size, error);
}

plsh_status plsh_file_save_own(const char *path, const void *bytes, size_t size,
                               plsh_error *error) {
    return save(path, open_own, bytes, size, error);
}

/* ---- Reading ------------------------------------------------------------------------------- */

static plsh_status check_regular(int descriptor, const char *path, size_t *size,
                                 plsh_error *error) {
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
    plsh_status status = check_regular(*descriptor, path, size, error);
    if (status == PLSH_STATUS_OK) return status;
    close(*descriptor);
    *descriptor = -1;
    return status;
}
