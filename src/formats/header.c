/* formats: the headers of files that are written. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "formats/json.h"
#include "formats/writer.h"
#include "linear/types.h"

static size_t aligned(size_t size) {
    return (size + PLSH_GGUF_ALIGNMENT - 1) / PLSH_GGUF_ALIGNMENT * PLSH_GGUF_ALIGNMENT;
}

static void put_u32(plsh_text *text, uint32_t value) {
    plsh_text_append(text, (const char *)&value, sizeof value);
}

static void put_u64(plsh_text *text, uint64_t value) {
    plsh_text_append(text, (const char *)&value, sizeof value);
}

plsh_status plsh_gguf_header(const plsh_weights_writer *writer, plsh_text *out, plsh_error *error) {
    plsh_text_append(out, "GGUF", 4);
    put_u32(out, 3);
    put_u64(out, writer->count);
    put_u64(out, writer->metadata_count);
    if (writer->metadata.length > 0)
        plsh_text_append(out, writer->metadata.bytes, writer->metadata.length);
    uint64_t offset = 0;
    for (size_t i = 0; i < writer->count; i++) {
        const plsh_tensor *tensor = &writer->tensors[i];
        put_u64(out, strlen(tensor->name));
        plsh_text_append(out, tensor->name, strlen(tensor->name));
        put_u32(out, (uint32_t)tensor->rank);
        for (int d = tensor->rank - 1; d >= 0; d--) put_u64(out, (uint64_t)tensor->shape[d]);
        put_u32(out, (uint32_t)plsh_weight_kinds[tensor->type].gguf);
        put_u64(out, offset);
        offset += aligned(tensor->size);
    }
    static const char zeros[PLSH_GGUF_ALIGNMENT];
    plsh_text_append(out, zeros, aligned(out->length) - out->length);
    return plsh_text_status(out, error);
}

static json_t *entry_of(const plsh_tensor *tensor, size_t offset) {
    json_t *shape = json_array();
    for (int d = 0; d < tensor->rank; d++)
        json_array_append_new(shape, json_integer(tensor->shape[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", plsh_weight_kinds[tensor->type].safetensors,
                     "shape", shape, "data_offsets", (json_int_t)offset,
                     (json_int_t)(offset + tensor->size));
}

plsh_status plsh_safetensors_header(const plsh_weights_writer *writer, plsh_text *out,
                                    plsh_error *error) {
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    size_t offset = 0;
    bool complete = root != NULL;
    for (size_t i = 0; i < writer->count && complete; i++) {
        const plsh_tensor *tensor = &writer->tensors[i];
        complete = json_object_set_new(root, tensor->name, entry_of(tensor, offset)) == 0;
        offset += tensor->size;
    }
    char *dump = complete ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!dump)
        return plsh_fail(error, PLSH_STATUS_NO_MEMORY,
                         "no header of %zu tensors: no memory, or a name is not UTF-8",
                         writer->count);
    size_t length = strlen(dump), padded = (length + 7) / 8 * 8;
    put_u64(out, padded);
    plsh_text_append(out, dump, length);
    plsh_text_append(out, "       ", padded - length);
    free(dump);
    return plsh_text_status(out, error);
}
