/* base: folders are made, replaced and removed by descriptors, which never follow links. */
#include "base/folder.h"

#include "base/file.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    OPEN_FOLDER = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
    DEEPEST = 32, /* folders within each other; ours have two */
    LONGEST_NAME = PATH_MAX + 64
};

static plsh_status fail(const char *path, const char *verb, plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_IO, "%s: cannot %s: %s", path, verb, strerror(errno));
}

static plsh_status too_long(const char *path, plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_INVALID, "%.200s..: the name of the folder is too long",
                     path);
}

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

/* ---- Syncing --------------------------------------------------------------------------------- */

/* Is the error that the file system or the permissions do not allow a sync? */
static bool cannot_sync(int number) {
    return number == EINVAL || number == ENOTSUP || number == EROFS || number == EACCES ||
           number == EPERM;
}

plsh_status plsh_folder_sync_entry(const char *path, plsh_error *error) {
    char folder[LONGEST_NAME];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    if (length >= sizeof folder) return too_long(path, error);
    snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        strcpy(folder, ".");
    else
        slash[slash == folder] = '\0';
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool done = descriptor >= 0 && fsync(descriptor) == 0;
    plsh_status status =
        done || cannot_sync(errno) ? PLSH_STATUS_OK : fail(path, "sync the folder it is in", error);
    if (descriptor >= 0) close(descriptor);
    return status;
}

/* ---- Making ---------------------------------------------------------------------------------- */

plsh_status plsh_folder_make(const char *path, bool *made, plsh_error *error) {
    struct stat about;
    const bool is_new = mkdir(path, 0777) == 0;
    if (made != NULL) *made = is_new;
    if (is_new) return plsh_folder_sync_entry(path, error);
    if (errno == EEXIST && stat(path, &about) == 0 && S_ISDIR(about.st_mode)) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_IO, "cannot make the folder %s: %s", path, strerror(errno));
}

plsh_status plsh_folder_make_beside(char *out, size_t size, const char *path, plsh_error *error) {
    for (int attempt = 0; attempt < 100; attempt++) {
        if (!plsh_file_name_beside(out, size, path, PLSH_FILE_PART)) return too_long(path, error);
        if (mkdir(out, 0777) == 0) return PLSH_STATUS_OK;
        if (errno != EEXIST) break;
    }
    return fail(out, "make this folder", error);
}

/* ---- Removing -------------------------------------------------------------------------------- */

static bool remove_below(int parent, const char *name, dev_t device, int depth);

/* Removes what an open folder holds, and closes it. */
static bool empty_folder(int folder, dev_t device, int depth) {
    DIR *list = fdopendir(folder);
    bool done = list != NULL;
    if (list == NULL) close(folder);
    for (const struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        struct stat about;
        if (is_dots(entry->d_name)) continue;
        if (fstatat(folder, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0)
            done = false;
        else if (S_ISDIR(about.st_mode))
            done = remove_below(folder, entry->d_name, device, depth + 1) && done;
        else
            done = unlinkat(folder, entry->d_name, 0) == 0 && done;
    }
    if (list != NULL) closedir(list);
    return done;
}

static bool remove_below(int parent, const char *name, dev_t device, int depth) {
    struct stat about;
    int folder = depth < DEEPEST ? openat(parent, name, OPEN_FOLDER) : -1;
    if (folder < 0) return false;
    if (fstat(folder, &about) != 0 || about.st_dev != device) {
        close(folder);
        return false;
    }
    return empty_folder(folder, device, depth) && unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

/* Removes a folder that has a temporary name of this library; plsh_folder_clean tries again what
 * cannot be deleted now. */
static void remove_renamed(const char *path) {
    struct stat about;
    if (lstat(path, &about) != 0) return;
    if (S_ISDIR(about.st_mode))
        remove_below(AT_FDCWD, path, about.st_dev, 0);
    else
        unlink(path);
}

plsh_status plsh_folder_remove(const char *path, plsh_error *error) {
    char old[LONGEST_NAME];
    struct stat about;
    if (lstat(path, &about) != 0)
        return errno == ENOENT ? PLSH_STATUS_OK : fail(path, "remove it", error);
    if (!S_ISDIR(about.st_mode) && !S_ISLNK(about.st_mode)) {
        errno = ENOTDIR;
        return fail(path, "remove it", error);
    }
    if (S_ISLNK(about.st_mode))
        return unlink(path) == 0 ? PLSH_STATUS_OK : fail(path, "remove it", error);
    if (!plsh_file_name_beside(old, sizeof old, path, PLSH_FILE_OLD)) return too_long(path, error);
    if (rename(path, old) != 0) return fail(path, "remove it", error);
    plsh_status status = plsh_folder_sync_entry(path, error);
    if (status == PLSH_STATUS_OK) remove_renamed(old);
    return status;
}

/* Is `name` NAME.PID-COUNT.ending, as plsh_file_name_beside writes it? Not "runs.2026-01-05.old",
 * which has a date. */
static bool is_beside(const char *name, const char *ending) {
    static const char digits[] = "0123456789";
    const char *end = strrchr(name, '.'), *at = end;
    if (end == NULL || strcmp(end + 1, ending) != 0) return false;
    while (at > name && at[-1] != '.') at--;
    const size_t process = strspn(at, digits);
    if (at < name + 2 || process == 0 || at[process] != '-') return false;
    const size_t count = strspn(at + process + 1, digits);
    return count > 0 && at + process + 1 + count == end;
}

void plsh_folder_clean(const char *folder, const char *prefix) {
    DIR *list = opendir(folder);
    for (const struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        const char *name = entry->d_name;
        struct stat about;
        const bool part = is_beside(name, PLSH_FILE_PART), old = is_beside(name, PLSH_FILE_OLD);
        if (strncmp(name, prefix, strlen(prefix)) != 0 || (!part && !old) ||
            fstatat(dirfd(list), name, &about, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISDIR(about.st_mode))
            remove_below(dirfd(list), name, about.st_dev, 0);
        else if (S_ISREG(about.st_mode) && part)
            unlinkat(dirfd(list), name, 0);
    }
    if (list != NULL) closedir(list);
}

/* ---- Putting in place ------------------------------------------------------------------------ */

/* Exchanges both names atomically; false if the system or the file system does not support it. */
static bool exchange(const char *a, const char *b) {
#ifndef RENAME_EXCHANGE
    (void)a, (void)b;
    return false;
#elif defined(__GLIBC__) && __GLIBC__ == 2 && __GLIBC_MINOR__ < 28 /* it has no function for it */
    return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0;
#else
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0;
#endif
}

/* By two renames; the second undoes the first where it fails. */
static bool put_aside(const char *made, const char *path, const char *old) {
    if (rename(path, old) != 0) return false;
    if (rename(made, path) == 0) return true;
    const int number = errno;
    rename(old, path);
    errno = number;
    return false;
}

plsh_status plsh_folder_put(const char *made, const char *path, plsh_error *error) {
    char old[LONGEST_NAME];
    struct stat about;
    bool done;
    const bool there = lstat(path, &about) == 0, swapped = there && exchange(made, path);
    if (swapped) {
        done = snprintf(old, sizeof old, "%s", made) < (int)sizeof old;
    } else if (there) {
        if (!plsh_file_name_beside(old, sizeof old, path, PLSH_FILE_OLD))
            return too_long(path, error);
        done = put_aside(made, path, old);
    } else {
        done = rename(made, path) == 0;
    }
    if (!done) return fail(path, "put it in its place", error);
    plsh_status status = plsh_folder_sync_entry(path, error);
    if (status == PLSH_STATUS_OK && there) remove_renamed(old);
    if (status == PLSH_STATUS_OK) return status;
    /* The rename may not have reached the disk: restores the old folder, and the name of `made`. */
    if (swapped)
        exchange(made, path);
    else if (rename(path, made) == 0 && there)
        rename(old, path);
    return status;
}

/* ---- Moving files ---------------------------------------------------------------------------- */

static bool move_below(int from, int to, int depth);

/* The folder `name` of `to`, made where it is missing. */
static bool move_folder(int from, int to, const char *name, int depth) {
    if (mkdirat(to, name, 0777) != 0 && errno != EEXIST) return false;
    int source = openat(from, name, OPEN_FOLDER), target = openat(to, name, OPEN_FOLDER);
    bool done = source >= 0 && target >= 0 && move_below(source, target, depth + 1);
    const int number = errno;
    if (source >= 0) close(source);
    if (target >= 0) close(target);
    errno = number;
    return done && unlinkat(from, name, AT_REMOVEDIR) == 0;
}

static bool move_below(int from, int to, int depth) {
    int copy = depth < DEEPEST ? dup(from) : -1;
    DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
    bool done = list != NULL;
    if (list == NULL && copy >= 0) close(copy);
    for (const struct dirent *entry; done && (entry = readdir(list)) != NULL;) {
        struct stat about;
        const char *name = entry->d_name;
        if (is_dots(name)) continue;
        done = fstatat(from, name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
               (S_ISDIR(about.st_mode) ? move_folder(from, to, name, depth)
                                       : renameat(from, name, to, name) == 0);
    }
    const int number = errno;
    if (list != NULL) closedir(list);
    errno = number;
    return done && (fsync(to) == 0 || cannot_sync(errno));
}

plsh_status plsh_folder_move_files(const char *made, const char *path, plsh_error *error) {
    int from = open(made, OPEN_FOLDER);
    int to = from >= 0 ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    const bool done = from >= 0 && to >= 0 && move_below(from, to, 0) && rmdir(made) == 0;
    plsh_status status = done ? PLSH_STATUS_OK : fail(path, "put the files in it", error);
    if (from >= 0) close(from);
    if (to >= 0) close(to);
    return status;
}
