/* formats: paths of files in a model's folder. */
#ifndef PLSH_FORMATS_PATH_H
#define PLSH_FORMATS_PATH_H

#include "plsh/status.h"

/* A copy of `length` bytes followed by a zero byte; "folder/name"; the folder a path lies in ("."
 * where it names none). All are released by plsh_release, and NULL on failure. */
plsh_status plsh_path_copy(char **out, const char *bytes, size_t length, plsh_error *error);
plsh_status plsh_path_join(char **out, const char *folder, const char *name, plsh_error *error);
plsh_status plsh_path_folder(char **out, const char *path, plsh_error *error);

bool plsh_path_is_folder(const char *path);
bool plsh_path_exists(const char *path);
bool plsh_path_ends(const char *path, const char *ending);

#endif
