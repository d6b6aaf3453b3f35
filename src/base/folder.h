/* base: folders that are written under a temporary name and renamed. */
#ifndef PLSH_BASE_FOLDER_H
#define PLSH_BASE_FOLDER_H

#include "plsh/io.h"

/* After a rename or mkdir of `path` its entry in its folder has to reach the disk too. A file
 * system that cannot sync a folder (EINVAL, ENOTSUP) and a folder that may not be read are no
 * failure; EIO, ENOSPC and others are. */
plsh_status plsh_folder_sync_entry(const char *path, plsh_error *error);

/* Makes an empty folder NAME.PID-COUNT.part beside `path`, which plsh_folder_put can rename to
 * `path`. */
plsh_status plsh_folder_make_beside(char *out, size_t size, const char *path, plsh_error *error);

/* Renames the folder `made` to `path`. What is there is removed afterwards (see
 * plsh_folder_remove). Where the system can exchange two names, `path` is the old or the new one at
 * every moment; elsewhere it is missing between two renames. After a failure the old one is there.
 */
plsh_status plsh_folder_put(const char *made, const char *path, plsh_error *error);

/* Moves the files of the folder `made`, and those of its folders, into the folder `path`, and
 * removes `made`. Files and links of the same name are replaced. */
plsh_status plsh_folder_move_files(const char *made, const char *path, plsh_error *error);

#endif
