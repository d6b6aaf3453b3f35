/* formats: files of weights, written row by row under a temporary name. */
#include "formats/writer.h"

#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "formats/file.h"
#include "formats/path.h"
#include "linear/types.h"

plsh_status plsh_weights_writer_create(plsh_weights_writer **out, const char *path,
                                       plsh_weights_form form, plsh_error *error) {
    void *memory;
    *out = NULL;
    if (form == PLSH_WEIGHTS_TORCH)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%.150s: files of torch are read, not written", path);
    plsh_status status =
        plsh_allocate(&memory, 1, sizeof(plsh_weights_writer), "a writer of weights", error);
    *out = memory;
    if (status != PLSH_STATUS_OK) return status;
    (*out)->form = form;
    status = plsh_file_create(&(*out)->file, path, error);
    if (status != PLSH_STATUS_OK) {
        plsh_weights_writer_abandon(*out);
        *out = NULL;
    }
    return status;
}

/* ---- Metadata ------------------------------------------------------------------------------- */

static void put_string(plsh_text *text, const char *bytes, size_t length) {
    uint64_t size = length;
    plsh_text_append(text, (const char *)&size, sizeof size);
    if (length > 0) plsh_text_append(text, bytes, length);
}

static plsh_status begin_key(plsh_weights_writer *writer, const char *key, bool is_array,
                             uint32_t type, size_t count, plsh_error *error) {
    if (writer->form != PLSH_WEIGHTS_GGUF || writer->begun || key[0] == '\0')
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "key '%.60s': metadata is for GGUF files, before their first row", key);
    plsh_text *text = &writer->metadata;
    uint32_t array = PLSH_METADATA_ARRAY;
    uint64_t elements = count;
    put_string(text, key, strlen(key));
    if (is_array) plsh_text_append(text, (const char *)&array, sizeof array);
    plsh_text_append(text, (const char *)&type, sizeof type);
    if (is_array) plsh_text_append(text, (const char *)&elements, sizeof elements);
    writer->metadata_count++;
    return PLSH_STATUS_OK;
}

plsh_status plsh_weights_writer_string(plsh_weights_writer *writer, const char *key,
                                       const char *bytes, size_t length, plsh_error *error) {
    plsh_status status = begin_key(writer, key, false, PLSH_METADATA_STRING, 1, error);
    if (status != PLSH_STATUS_OK) return status;
    put_string(&writer->metadata, bytes, length);
    return plsh_text_status(&writer->metadata, error);
}

plsh_status plsh_weights_writer_strings(plsh_weights_writer *writer, const char *key,
                                        const plsh_string *strings, size_t count,
                                        plsh_error *error) {
    plsh_status status = begin_key(writer, key, true, PLSH_METADATA_STRING, count, error);
    if (status != PLSH_STATUS_OK) return status;
    for (size_t i = 0; i < count; i++)
        put_string(&writer->metadata, strings[i].bytes, strings[i].length);
    return plsh_text_status(&writer->metadata, error);
}

static plsh_status put_values(plsh_weights_writer *writer, const char *key, bool is_array,
                              plsh_metadata_type type, const void *values, size_t count,
                              plsh_error *error) {
    size_t width = (size_t)plsh_metadata_width(type);
    if (width == 0)
        return plsh_fail(error, PLSH_STATUS_INVALID, "key '%.60s': its type is not a number", key);
    plsh_status status = begin_key(writer, key, is_array, type, count, error);
    if (status != PLSH_STATUS_OK) return status;
    if (count > 0) plsh_text_append(&writer->metadata, values, count * width);
    return plsh_text_status(&writer->metadata, error);
}

plsh_status plsh_weights_writer_value(plsh_weights_writer *writer, const char *key,
                                      plsh_metadata_type type, const void *value,
                                      plsh_error *error) {
    return put_values(writer, key, false, type, value, 1, error);
}

plsh_status plsh_weights_writer_values(plsh_weights_writer *writer, const char *key,
                                       plsh_metadata_type type, const void *values, size_t count,
                                       plsh_error *error) {
    return put_values(writer, key, true, type, values, count, error);
}

plsh_status plsh_weights_writer_copy(plsh_weights_writer *writer, const plsh_metadata *metadata,
                                     plsh_error *error) {
    plsh_status status = begin_key(writer, metadata->key, metadata->is_array, metadata->type,
                                   metadata->count, error);
    if (status != PLSH_STATUS_OK) return status;
    if (metadata->size > 0) plsh_text_append(&writer->metadata, metadata->bytes, metadata->size);
    return plsh_text_status(&writer->metadata, error);
}

/* ---- Tensors -------------------------------------------------------------------------------- */

static plsh_status grow(plsh_weights_writer *writer, plsh_error *error) {
    if (writer->count < writer->capacity) return PLSH_STATUS_OK;
    size_t capacity = 2 * writer->capacity + 64;
    void *tensors;
    plsh_status status =
        plsh_allocate(&tensors, capacity, sizeof(plsh_tensor), "tensors to write", error);
    if (status != PLSH_STATUS_OK) return status;
    if (writer->count > 0) memcpy(tensors, writer->tensors, writer->count * sizeof(plsh_tensor));
    plsh_release(writer->tensors);
    writer->tensors = tensors;
    writer->capacity = capacity;
    return PLSH_STATUS_OK;
}

static plsh_status check_tensor(const plsh_weights_writer *writer, plsh_tensor *tensor,
                                plsh_error *error) {
    const plsh_weight_kind *kind = &plsh_weight_kinds[tensor->type];
    bool gguf = writer->form == PLSH_WEIGHTS_GGUF;
    if (writer->begun || tensor->name[0] == '\0')
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "tensor '%.60s': all are announced before the first row, by a name",
                         tensor->name);
    if (gguf ? kind->gguf < 0 || tensor->rank > 4 : kind->safetensors == NULL)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "tensor '%.60s': %s of rank %d has no place in a %s file", tensor->name,
                         kind->name, tensor->rank, gguf ? "GGUF" : "safetensors");
    if (!plsh_weight_type_size(tensor->type, tensor->rank, tensor->shape, &tensor->size))
        return plsh_fail(
            error, PLSH_STATUS_INVALID,
            "tensor '%.60s': its rows of %lld are not a whole number of blocks of %s (%d values)",
            tensor->name, (long long)plsh_tensor_columns(tensor), kind->name, kind->block);
    for (size_t i = 0; i < writer->count; i++) {
        if (strcmp(writer->tensors[i].name, tensor->name) == 0)
            return plsh_fail(error, PLSH_STATUS_INVALID, "tensor '%.60s' is announced twice",
                             tensor->name);
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_weights_writer_declare(plsh_weights_writer *writer, const plsh_tensor *tensor,
                                        plsh_error *error) {
    plsh_tensor announced = *tensor;
    announced.data = NULL;
    plsh_status status = check_tensor(writer, &announced, error);
    if (status == PLSH_STATUS_OK) status = grow(writer, error);
    if (status != PLSH_STATUS_OK) return status;
    char *name;
    status = plsh_path_copy(&name, tensor->name, strlen(tensor->name), error);
    if (status != PLSH_STATUS_OK) return status;
    announced.name = name;
    writer->tensors[writer->count++] = announced;
    return PLSH_STATUS_OK;
}

static plsh_status begin_data(plsh_weights_writer *writer, plsh_error *error) {
    if (writer->begun) return PLSH_STATUS_OK;
    plsh_text header = {0};
    plsh_status status = writer->form == PLSH_WEIGHTS_GGUF
                             ? plsh_gguf_header(writer, &header, error)
                             : plsh_safetensors_header(writer, &header, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_file_write(writer->file, header.bytes, header.length, error);
    plsh_text_free(&header);
    writer->begun = status == PLSH_STATUS_OK;
    return status;
}

/* Writes zeros up to the next tensor, and moves on to the next one that has bytes. */
static plsh_status end_tensors(plsh_weights_writer *writer, plsh_error *error) {
    static const char zeros[PLSH_GGUF_ALIGNMENT];
    while (writer->turn < writer->count && writer->written == writer->tensors[writer->turn].size) {
        size_t beyond = writer->written % PLSH_GGUF_ALIGNMENT;
        if (writer->form == PLSH_WEIGHTS_GGUF && beyond > 0) {
            plsh_status status =
                plsh_file_write(writer->file, zeros, PLSH_GGUF_ALIGNMENT - beyond, error);
            if (status != PLSH_STATUS_OK) return status;
        }
        writer->turn++;
        writer->written = 0;
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_weights_writer_bytes(plsh_weights_writer *writer, const void *bytes, size_t size,
                                      plsh_error *error) {
    plsh_status status = begin_data(writer, error);
    if (status == PLSH_STATUS_OK) status = end_tensors(writer, error);
    if (status != PLSH_STATUS_OK) return status;
    if (writer->turn == writer->count ||
        size > writer->tensors[writer->turn].size - writer->written)
        return plsh_fail(error, PLSH_STATUS_INVALID, "more bytes than tensor '%.60s' has",
                         writer->turn < writer->count ? writer->tensors[writer->turn].name : "");
    status = plsh_file_write(writer->file, bytes, size, error);
    writer->written += size;
    return status == PLSH_STATUS_OK ? end_tensors(writer, error) : status;
}

static plsh_status reserve(plsh_weights_writer *writer, size_t size, plsh_error *error) {
    if (size <= writer->narrowed_size) return PLSH_STATUS_OK;
    plsh_release(writer->narrowed);
    writer->narrowed_size = 0;
    plsh_status status = plsh_allocate(&writer->narrowed, size, 1, "rows to write", error);
    if (status == PLSH_STATUS_OK) writer->narrowed_size = size;
    return status;
}

/* Rows of floats as a type. */
typedef struct narrowing {
    const plsh_weight_kind *kind;
    const float *from;
    uint8_t *to;
    int64_t columns;
    atomic_bool failed;
} narrowing;

static void narrow_some(void *context, int64_t first, int64_t end, int slot) {
    narrowing *all = context;
    const size_t row_bytes = (size_t)(all->columns / all->kind->block) * (size_t)all->kind->bytes;
    int64_t bad;
    (void)slot;
    if (!all->kind->narrow(all->from + first * all->columns, all->to + (size_t)first * row_bytes,
                           (end - first) * all->columns, &bad))
        all->failed = true;
}

/* Threads share the rows. After a failure *bad is the index of the first value that failed. */
static bool narrow_rows(const plsh_weight_kind *kind, const float *values, void *to, int64_t rows,
                        int64_t columns, int64_t *bad) {
    narrowing all = {kind, values, to, columns, false};
    plsh_thread_rows(0, rows, 1, narrow_some, &all);
    return !all.failed || kind->narrow(values, to, rows * columns, bad);
}

plsh_status plsh_weights_writer_rows(plsh_weights_writer *writer, const float *values, int64_t rows,
                                     plsh_error *error) {
    plsh_status status = begin_data(writer, error);
    if (status == PLSH_STATUS_OK) status = end_tensors(writer, error);
    if (status != PLSH_STATUS_OK) return status;
    if (writer->turn == writer->count)
        return plsh_fail(error, PLSH_STATUS_INVALID, "all tensors are complete");
    const plsh_tensor *tensor = &writer->tensors[writer->turn];
    const plsh_weight_kind *kind = &plsh_weight_kinds[tensor->type];
    if (!kind->narrow)
        return plsh_fail(
            error, PLSH_STATUS_UNSUPPORTED,
            "tensor '%.60s': %s is not written; f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, "
            "q4_k and q6_k are",
            tensor->name, kind->name);
    int64_t count = rows * plsh_tensor_columns(tensor), bad = 0;
    size_t size = (size_t)(count / kind->block) * (size_t)kind->bytes;
    status = reserve(writer, size, error);
    if (status != PLSH_STATUS_OK) return status;
    if (!narrow_rows(kind, values, writer->narrowed, rows, plsh_tensor_columns(tensor), &bad))
        return plsh_fail(error, PLSH_STATUS_NOT_FINITE,
                         "tensor '%.60s': the value %g has no place in %s", tensor->name,
                         (double)values[bad], kind->name);
    return plsh_weights_writer_bytes(writer, writer->narrowed, size, error);
}

/* ---- The end -------------------------------------------------------------------------------- */

plsh_status plsh_weights_writer_commit(plsh_weights_writer *writer, plsh_error *error) {
    plsh_status status = begin_data(writer, error);
    if (status == PLSH_STATUS_OK) status = end_tensors(writer, error);
    if (status == PLSH_STATUS_OK && writer->turn < writer->count)
        status = plsh_fail(error, PLSH_STATUS_INVALID, "tensor '%.60s' misses %zu bytes",
                           writer->tensors[writer->turn].name,
                           writer->tensors[writer->turn].size - writer->written);
    if (status == PLSH_STATUS_OK) {
        status = plsh_file_commit(writer->file, error);
        writer->file = NULL;
    }
    plsh_weights_writer_abandon(writer);
    return status;
}

void plsh_weights_writer_abandon(plsh_weights_writer *writer) {
    if (!writer) return;
    plsh_file_abandon(writer->file);
    plsh_text_free(&writer->metadata);
    for (size_t i = 0; i < writer->count; i++)
        plsh_release((void *)(uintptr_t)writer->tensors[i].name);
    plsh_release(writer->tensors);
    plsh_release(writer->narrowed);
    plsh_release(writer);
}

size_t plsh_weights_writer_size(const plsh_weights_writer *writer) {
    size_t size = 0;
    for (size_t i = 0; i < writer->count; i++) size += writer->tensors[i].size;
    return size;
}

plsh_status plsh_safetensors_save(const char *path, const plsh_tensor *tensors, size_t count,
                                  plsh_error *error) {
    plsh_weights_writer *writer;
    plsh_status status = plsh_weights_writer_create(&writer, path, PLSH_WEIGHTS_SAFETENSORS, error);
    if (status != PLSH_STATUS_OK) return status;
    for (size_t i = 0; i < count && status == PLSH_STATUS_OK; i++)
        status = plsh_weights_writer_declare(writer, &tensors[i], error);
    for (size_t i = 0; i < count && status == PLSH_STATUS_OK; i++) {
        if (writer->tensors[i].size > 0)
            status =
                plsh_weights_writer_bytes(writer, tensors[i].data, writer->tensors[i].size, error);
    }
    if (status == PLSH_STATUS_OK) return plsh_weights_writer_commit(writer, error);
    plsh_weights_writer_abandon(writer);
    return status;
}
