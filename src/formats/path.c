/* formats: paths of files in a model's folder. */
#include "formats/path.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

plsh_status plsh_path_copy(char **out, const char *bytes, size_t length, plsh_error *error) {
    void *memory;
    plsh_status status = plsh_allocate(&memory, length + 1, 1, "a path", error);
    *out = memory;
    if (status == PLSH_STATUS_OK) memcpy(memory, bytes, length);
    return status;
}

plsh_status plsh_path_join(char **out, const char *folder, const char *name, plsh_error *error) {
    size_t size = strlen(folder) + strlen(name) + 2;
    void *memory;
    plsh_status status = plsh_allocate(&memory, size, 1, "a path", error);
    *out = memory;
    if (status == PLSH_STATUS_OK) snprintf(*out, size, "%s/%s", folder, name);
    return status;
}

plsh_status plsh_path_folder(char **out, const char *path, plsh_error *error) {
    const char *slash = strrchr(path, '/');
    if (!slash) return plsh_path_copy(out, ".", 1, error);
    return plsh_path_copy(out, path, slash == path ? 1 : (size_t)(slash - path), error);
}

bool plsh_path_is_folder(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

bool plsh_path_exists(const char *path) { return access(path, F_OK) == 0; }

bool plsh_path_ends(const char *path, const char *ending) {
    size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && strcmp(path + length - tail, ending) == 0;
}
