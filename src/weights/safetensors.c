/* weights: safetensors: the length of a header, the header in JSON, the tensors without gaps. And
 * the index of a model in several files. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "weights/file.h"
#include "weights/json.h"
#include "weights/types.h"

enum { HEADER_MOST = 100 << 20 }; /* as the format says */

/* A whole number of a JSON array that is >= 0; false where it is none. */
static bool number_at(const json_t *array, size_t index, uint64_t *out) {
    const json_t *value = json_array_get(array, index);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static plsh_status fail_entry(plsh_reader *reader, const char *name, const char *problem) {
    return plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "tensor '%.60s': %s", name, problem);
}

static void read_shape(plsh_reader *reader, const json_t *shape, plsh_tensor *tensor) {
    if (!json_is_array(shape) || json_array_size(shape) > PLSH_TENSOR_RANK) {
        fail_entry(reader, tensor->name, "\"shape\" must be a list of at most 8 numbers");
        return;
    }
    tensor->rank = (int)json_array_size(shape);
    for (int i = 0; i < tensor->rank; i++) {
        uint64_t extent = 0;
        if (!number_at(shape, (size_t)i, &extent))
            fail_entry(reader, tensor->name, "\"shape\" must hold whole numbers, 0 or more");
        tensor->shape[i] = (int64_t)extent;
    }
}

static void read_place(plsh_reader *reader, const json_t *offsets, size_t data,
                       plsh_tensor *tensor) {
    uint64_t begin, end;
    size_t size;
    if (json_array_size(offsets) != 2 || !number_at(offsets, 0, &begin) ||
        !number_at(offsets, 1, &end) || begin > end || end > reader->size - data) {
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                         "tensor '%.60s': \"data_offsets\" must be [begin, end], inside the %zu "
                         "bytes of data",
                         tensor->name, reader->size - data);
        return;
    }
    if (!plsh_weight_type_size(tensor->type, tensor->rank, tensor->shape, &size) ||
        size != end - begin) {
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                         "tensor '%.60s': its shape and type do not make the %llu bytes of "
                         "\"data_offsets\"",
                         tensor->name, (unsigned long long)(end - begin));
        return;
    }
    tensor->data = reader->bytes + data + begin;
    tensor->size = size;
}

static void read_entry(plsh_reader *reader, const json_t *entry, size_t data, plsh_tensor *tensor) {
    const json_t *dtype = json_object_get(entry, "dtype");
    if (!json_is_object(entry) || !json_is_string(dtype)) {
        fail_entry(reader, tensor->name, "it must be an object with a \"dtype\"");
        return;
    }
    if (!plsh_weight_type_of_safetensors(json_string_value(dtype), &tensor->type)) {
        plsh_reader_fail(reader, PLSH_STATUS_UNSUPPORTED, "tensor '%.60s': type \"%.20s\"",
                         tensor->name, json_string_value(dtype));
        return;
    }
    read_shape(reader, json_object_get(entry, "shape"), tensor);
    if (plsh_reader_is_ok(reader))
        read_place(reader, json_object_get(entry, "data_offsets"), data, tensor);
}

static bool is_metadata(const char *key) { return strcmp(key, "__metadata__") == 0; }

/* Room for the entries and their names. */
static plsh_status allocate_entries(plsh_weights_part *part, json_t *header, plsh_error *error) {
    size_t total = 0;
    const char *key;
    json_t *entry;
    json_object_foreach(header, key, entry) {
        if (is_metadata(key)) continue;
        total += strlen(key) + 1;
        part->tensor_count++;
    }
    void *tensors = NULL, *names = NULL;
    plsh_status status =
        plsh_allocate(&tensors, part->tensor_count, sizeof(plsh_tensor), "tensors", error);
    part->tensors = tensors;
    if (status == PLSH_STATUS_OK) status = plsh_allocate(&names, total, 1, "names", error);
    part->names = names;
    return status;
}

static plsh_status read_entries(plsh_weights_part *part, plsh_reader *reader, json_t *header,
                                size_t data, plsh_error *error) {
    plsh_status status = allocate_entries(part, header, error);
    if (status != PLSH_STATUS_OK) return status;
    char *name = part->names;
    plsh_tensor *tensor = part->tensors;
    const char *key;
    json_t *entry;
    json_object_foreach(header, key, entry) {
        if (is_metadata(key)) continue;
        tensor->name = strcpy(name, key);
        name += strlen(key) + 1;
        read_entry(reader, entry, data, tensor++);
    }
    status = plsh_reader_status(reader, error);
    if (status != PLSH_STATUS_OK) return status;
    return plsh_weights_check_places(part, reader, data, true, error);
}

static int compare_data(const void *x, const void *y) {
    const plsh_tensor *a = x, *b = y;
    if (a->data != b->data) return (const char *)a->data < (const char *)b->data ? -1 : 1;
    return strcmp(a->name, b->name);
}

plsh_status plsh_safetensors_parse(plsh_weights_part *part, plsh_reader *reader,
                                   plsh_error *error) {
    size_t length = plsh_reader_count(reader, 8, 1, "the length of the header");
    if (plsh_reader_is_ok(reader) && length > HEADER_MOST)
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "a header of %zu bytes; at most %d", length,
                         HEADER_MOST);
    const char *text = plsh_reader_take(reader, length, "the header");
    if (text && (length == 0 || text[0] != '{')) {
        reader->at = 8;
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "the header does not begin with {");
    }
    plsh_status status = plsh_reader_status(reader, error);
    if (status != PLSH_STATUS_OK) return status;
    json_t *header;
    status = plsh_weights_json_parse(text, length, reader->name, &header, error);
    if (status != PLSH_STATUS_OK) return status;
    status = read_entries(part, reader, header, reader->at, error);
    json_decref(header);
    /* JSON objects have no order: that of the data is the file's. */
    if (status == PLSH_STATUS_OK)
        qsort(part->tensors, part->tensor_count, sizeof *part->tensors, compare_data);
    return status;
}
