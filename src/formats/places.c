/* formats: checks that the tensors of a file lie inside it and do not overlap. */
#include <stdlib.h>

#include "base/memory.h"
#include "formats/file.h"

static int compare_places(const void *x, const void *y) {
    const plsh_tensor *a = *(const plsh_tensor *const *)x, *b = *(const plsh_tensor *const *)y;
    if (a->data != b->data) return (const char *)a->data < (const char *)b->data ? -1 : 1;
    return (a->size > b->size) - (a->size < b->size);
}

static plsh_status check_sorted(const plsh_tensor **sorted, size_t count, plsh_reader *reader,
                                size_t begin, bool full) {
    size_t end = begin;
    const char *before = "the header";
    for (size_t i = 0; i < count; i++) {
        const plsh_tensor *tensor = sorted[i];
        reader->at = (size_t)((const unsigned char *)tensor->data - reader->bytes);
        if (reader->at < end)
            return plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "tensor '%.40s' overlaps '%.40s'",
                                    tensor->name, before);
        if (full && reader->at > end)
            return plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                                    "%zu bytes before tensor '%.40s' belong to none",
                                    reader->at - end, tensor->name);
        end = reader->at + tensor->size;
        if (tensor->size > 0) before = tensor->name;
    }
    reader->at = end;
    if (full && end != reader->size)
        return plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                                "%zu bytes after the last tensor belong to none",
                                reader->size - end);
    return PLSH_STATUS_OK;
}

plsh_status plsh_weights_check_places(const plsh_weights_part *part, plsh_reader *reader,
                                      size_t begin, bool full, plsh_error *error) {
    void *memory;
    plsh_status status = plsh_allocate(&memory, part->tensor_count, sizeof(plsh_tensor *),
                                       "the order of tensors", error);
    if (status != PLSH_STATUS_OK) return status;
    const plsh_tensor **sorted = memory;
    for (size_t i = 0; i < part->tensor_count; i++) sorted[i] = &part->tensors[i];
    qsort(sorted, part->tensor_count, sizeof *sorted, compare_places);
    check_sorted(sorted, part->tensor_count, reader, begin, full);
    plsh_release(memory);
    return plsh_reader_status(reader, error);
}
