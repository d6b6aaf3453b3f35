/* plsh/io.h - files that are written whole or not at all, folders, and .npy arrays. */
#ifndef PLSH_IO_H
#define PLSH_IO_H

#include "plsh/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Files written whole or not at all ----
 *
 * The bytes go to a new file beside `path`, which replaces `path` in one step when everything is
 * on the disk; it has the owner and the permissions of the file that was there before. Until then,
 * and after any failure, `path` is unchanged. There is one exception: if the folder cannot be
 * synced after the rename, plsh_file_commit fails although the new file is in place; a power
 * failure may undo the rename. A path that is not a regular file (a pipe, a terminal, /dev/null,
 * /dev/stdout in a pipeline) is written to directly; a symbolic link is followed, also to a file
 * that does not exist yet. */

typedef struct plsh_file plsh_file;

PLSH_API plsh_status plsh_file_create(plsh_file **out, const char *path, plsh_error *error);

/* The same for a name chosen by the program rather than its user: a symbolic link of that name is
 * replaced by the file and never followed. Anything else that is not a regular file is refused. */
PLSH_API plsh_status plsh_file_create_own(plsh_file **out, const char *path, plsh_error *error);

/* The path with its symbolic links followed; and the temporary file beside it that holds the bytes
 * until the commit, NULL where they are written directly. A program that is ended by a signal may
 * unlink the latter. Both live as long as `file`. */
PLSH_API const char *plsh_file_path(const plsh_file *file);
PLSH_API const char *plsh_file_temporary(const plsh_file *file);

/* Appends. After a failure the only valid call is plsh_file_abandon. */
PLSH_API plsh_status plsh_file_write(plsh_file *file, const void *bytes, size_t size,
                                     plsh_error *error);

/* Renames the temporary file to `path`. Frees `file`, whether it succeeds or not. */
PLSH_API plsh_status plsh_file_commit(plsh_file *file, plsh_error *error);

/* Deletes what was written, and frees `file`. NULL is fine. */
PLSH_API void plsh_file_abandon(plsh_file *file);

/* Creates, writes and commits a file of `size` bytes, by plsh_file_create or
 * plsh_file_create_own. */
PLSH_API plsh_status plsh_file_save(const char *path, const void *bytes, size_t size,
                                    plsh_error *error);
PLSH_API plsh_status plsh_file_save_own(const char *path, const void *bytes, size_t size,
                                        plsh_error *error);

/* ---- Folders ----
 *
 * Nothing here follows a symbolic link below the path that it is given. */

/* Makes a folder and syncs its entry to the disk; an existing folder is fine. *made (may be NULL):
 * was it missing before? */
PLSH_API plsh_status plsh_folder_make(const char *path, bool *made, plsh_error *error);

/* Removes a folder and all it holds. Symbolic links, `path` itself or below, are removed and not
 * followed; other file systems mounted below are left alone. The folder is renamed to
 * PATH.PID-COUNT.old before anything in it is deleted: a process that is killed leaves either the
 * complete folder, or a partial one under the other name. If the rename fails or cannot be synced
 * to the disk, nothing is deleted and the call fails. Files that could not be deleted stay in the
 * folder whose name ends in .old. A missing path is fine. */
PLSH_API plsh_status plsh_folder_remove(const char *path, plsh_error *error);

/* Removes the leftovers of a killed process in `folder` whose names begin with `prefix`: regular
 * files and folders NAME.PID-COUNT.part, and folders NAME.PID-COUNT.old. No running process may use
 * such names. */
PLSH_API void plsh_folder_clean(const char *folder, const char *prefix);

/* ---- .npy ----
 *
 * Format versions 1 to 3, C order, little endian. Nothing in a header is trusted: a file whose
 * shape does not account for every byte after the header, that is in Fortran order, big endian,
 * or of a type that plsh/dtype.h does not list is refused, and the message names what was found. */

enum { PLSH_NPY_RANK = 8 }; /* the most dimensions an array may have */

typedef struct plsh_npy {
    plsh_dtype type; /* never bfloat16: the format does not have it */
    int rank;        /* 0: a single number */
    int64_t shape[PLSH_NPY_RANK];
    size_t count; /* the product of the shape */
    void *data;   /* `count` values, on a 64-byte boundary; owned */
} plsh_npy;

/* Reads a file, and the same for a file in memory (`name` is for messages). On failure `out` is
 * empty; on success it is released by plsh_npy_free. */
PLSH_API plsh_status plsh_npy_read(const char *path, plsh_npy *out, plsh_error *error);
PLSH_API plsh_status plsh_npy_parse(const void *bytes, size_t size, const char *name, plsh_npy *out,
                                    plsh_error *error);
PLSH_API void plsh_npy_free(plsh_npy *array);

/* Converts a float16 or float64 array to float32, rounding to nearest even; float32 stays as it is;
 * the integer types are refused. */
PLSH_API plsh_status plsh_npy_to_float32(plsh_npy *array, plsh_error *error);

/* Appends an array, format version 1, to an open file (data NULL: its header alone; the values are
 * to follow by plsh_file_write); and the same as a whole file, all of it or nothing. */
PLSH_API plsh_status plsh_npy_append(plsh_file *file, plsh_dtype type, int rank,
                                     const int64_t *shape, const void *data, plsh_error *error);
PLSH_API plsh_status plsh_npy_write(const char *path, plsh_dtype type, int rank,
                                    const int64_t *shape, const void *data, plsh_error *error);

#ifdef __cplusplus
}
#endif

#endif
