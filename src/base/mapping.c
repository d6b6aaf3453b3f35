/* base: files mapped into memory, to be read only. */
#include "base/mapping.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const unsigned char empty_file[1];

static plsh_status fail(const char *path, const char *verb, plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_IO, "%.150s: cannot %s: %s", path, verb, strerror(errno));
}

static plsh_status map(plsh_mapping *mapping, int descriptor, const char *path, plsh_error *error) {
    struct stat about;
    if (fstat(descriptor, &about) != 0) return fail(path, "look at it", error);
    if (!S_ISREG(about.st_mode))
        return plsh_fail(error, PLSH_STATUS_IO, "%.150s: not a regular file", path);
    if ((uintmax_t)about.st_size > SIZE_MAX)
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "%.150s: larger than the address space",
                         path);
    if (about.st_size == 0) {
        *mapping = (plsh_mapping){.bytes = empty_file};
        return PLSH_STATUS_OK;
    }
    size_t size = (size_t)about.st_size;
    void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (bytes == MAP_FAILED) return fail(path, "map it", error);
    *mapping = (plsh_mapping){.bytes = bytes, .size = size};
    return PLSH_STATUS_OK;
}

plsh_status plsh_mapping_open(plsh_mapping *mapping, const char *path, plsh_error *error) {
    *mapping = (plsh_mapping){0};
    if (path == NULL || path[0] == '\0')
        return plsh_fail(error, PLSH_STATUS_INVALID, "file: its path is empty");
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return fail(path, "open", error);
    plsh_status status = map(mapping, descriptor, path, error);
    close(descriptor); /* the mapping stays */
    return status;
}

void plsh_mapping_close(plsh_mapping *mapping) {
    if (mapping->size > 0) munmap((void *)(uintptr_t)mapping->bytes, mapping->size);
    *mapping = (plsh_mapping){0};
}
