/* plsh/io.h - files: .npy arrays, and files that are written whole or not at all. */
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
 * and after any failure, `path` is what it was. A path that is no regular file (a pipe, a terminal,
 * /dev/null, /dev/stdout in a pipeline) is written to directly; a symbolic link is followed, also
 * to a file that does not exist yet. */

typedef struct plsh_file plsh_file;

PLSH_API plsh_status plsh_file_create(plsh_file **out, const char *path, plsh_error *error);

/* The path with its symbolic links followed; and the file beside it that holds the bytes until they
 * are in their place, NULL where they are written directly. A program that is ended by a signal may
 * unlink the latter. Both live as long as `file`. */
PLSH_API const char *plsh_file_path(const plsh_file *file);
PLSH_API const char *plsh_file_temporary(const plsh_file *file);

/* Appends. After a failure only plsh_file_abandon is left to do. */
PLSH_API plsh_status plsh_file_write(plsh_file *file, const void *bytes, size_t size,
                                     plsh_error *error);

/* Puts the file in its place. Ends and frees `file`, whether it succeeds or not. */
PLSH_API plsh_status plsh_file_commit(plsh_file *file, plsh_error *error);

/* Drops what was written, and frees. NULL is fine. */
PLSH_API void plsh_file_abandon(plsh_file *file);

/* All of the above for `size` bytes at once. */
PLSH_API plsh_status plsh_file_save(const char *path, const void *bytes, size_t size,
                                    plsh_error *error);

/* ---- .npy ----
 *
 * Format versions 1 to 3, C order, little endian. Nothing in a header is trusted: a file whose
 * shape does not account for every byte after the header, that is in Fortran order, big endian,
 * or of a type that plsh/dtype.h does not list is refused, and the message names what was found. */

enum { PLSH_NPY_RANK = 8 }; /* the most dimensions an array may have */

typedef struct plsh_npy {
    plsh_dtype type; /* not bfloat16, which the format has no word for */
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

/* Turns a float16 or float64 array into float32, rounding to nearest even; float32 stays as it
 * is; the integer types are refused. */
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
