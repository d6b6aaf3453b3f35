/* base: files mapped into memory, to be read only. */
#include "base/mapping.h"

#include "base/file.h"
#include "base/status.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const unsigned char empty_file[1];

plsh_status plsh_mapping_open(plsh_mapping *mapping, const char *path, plsh_error *error) {
    int descriptor;
    size_t size;
    *mapping = (plsh_mapping){0};
    if (path == NULL || path[0] == '\0')
        return plsh_fail(error, PLSH_STATUS_INVALID, "file: its path is empty");
    plsh_status status = plsh_regular_open(path, &descriptor, &size, error);
    if (status != PLSH_STATUS_OK) return status;
    void *bytes = (void *)(uintptr_t)empty_file;
    if (size > 0) bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (bytes == MAP_FAILED)
        status =
            plsh_fail(error, PLSH_STATUS_IO, "%.150s: cannot map it: %s", path, strerror(errno));
    else
        *mapping = (plsh_mapping){.bytes = bytes, .size = size};
    close(descriptor); /* the mapping stays */
    return status;
}

void plsh_mapping_close(plsh_mapping *mapping) {
    if (mapping->size > 0) munmap((void *)(uintptr_t)mapping->bytes, mapping->size);
    *mapping = (plsh_mapping){0};
}
