/* formats: safetensors: the length of a header, the header in JSON, the tensors without gaps.
 *
 * A header may have 100 MB, of which a tree of JSON would make 4 GB. So the header is walked member
 * by member, and only one member at a time becomes a tree. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "formats/file.h"
#include "formats/json.h"
#include "linear/types.h"

/* HEADER_MOST is the format's own limit. An entry takes about 150 bytes; the shortest one,
 * {"dtype":"F32","shape":[],"data_offsets":[0,0]}, more than ENTRY_LEAST: so a header cannot
 * announce more tensors than a small multiple of its size in memory. */
enum { HEADER_MOST = 100 << 20, ENTRY_MOST = 4096, ENTRY_LEAST = 40 };

/* ---- Members of the header: "name": value ---- */

typedef struct slice {
    const char *bytes;
    size_t length;
} slice;

/* Steps over a string, with its quotes. */
static slice take_string(plsh_reader *in) {
    const size_t begin = in->at;
    if (!plsh_reader_accept(in, "\"")) {
        plsh_reader_fail(in, PLSH_STATUS_FORMAT, "the header: a name in quotes is needed here");
        return (slice){0};
    }
    while (in->at < in->size && in->bytes[in->at] != '"')
        in->at += in->bytes[in->at] == '\\' && in->at + 1 < in->size ? 2 : 1;
    if (in->at >= in->size) {
        in->at = begin;
        plsh_reader_fail(in, PLSH_STATUS_FORMAT, "the header: a string without an end");
        return (slice){0};
    }
    in->at++;
    return (slice){(const char *)in->bytes + begin, in->at - begin};
}

/* Skips an object by counting braces; jansson parses its contents. */
static slice take_object(plsh_reader *in, slice name) {
    const size_t begin = in->at;
    size_t depth = 0;
    if (plsh_reader_peek(in) != '{') {
        plsh_reader_fail(in, PLSH_STATUS_FORMAT, "%.*s: it must be an object with a \"dtype\"",
                         (int)(name.length < 60 ? name.length : 60), name.bytes);
        return (slice){0};
    }
    do {
        const int c = plsh_reader_peek(in);
        if (c < 0) {
            in->at = begin;
            plsh_reader_fail(in, PLSH_STATUS_FORMAT, "the header: an object without an end");
        } else if (c == '"') {
            take_string(in);
        } else {
            depth += c == '{' ? 1 : c == '}' ? (size_t)-1 : 0;
            in->at++;
        }
    } while (depth > 0 && plsh_reader_is_ok(in));
    return (slice){(const char *)in->bytes + begin, in->at - begin};
}

static bool is_metadata(slice name) {
    static const char key[] = "\"__metadata__\"";
    return name.length == sizeof key - 1 && memcmp(name.bytes, key, name.length) == 0;
}

/* The next member; false at the end of the header, or after a failure. `in` is the header alone,
 * `first` before its first member. */
static bool next_member(plsh_reader *in, bool *first, slice *name, slice *value) {
    plsh_reader_skip_blanks(in);
    if (plsh_reader_accept(in, "}")) {
        plsh_reader_skip_blanks(in);
        if (in->at < in->size)
            plsh_reader_fail(in, PLSH_STATUS_FORMAT, "the header: something follows its last }");
        return false;
    }
    if (!*first && !plsh_reader_accept(in, ","))
        plsh_reader_fail(in, PLSH_STATUS_FORMAT, "the header: , or } is needed here");
    *first = false;
    plsh_reader_skip_blanks(in);
    *name = take_string(in);
    plsh_reader_skip_blanks(in);
    if (!plsh_reader_accept(in, ":"))
        plsh_reader_fail(in, PLSH_STATUS_FORMAT, "the header: : is needed here");
    plsh_reader_skip_blanks(in);
    const size_t begin = in->at;
    if (plsh_reader_is_ok(in)) *value = take_object(in, *name);
    if (!plsh_reader_is_ok(in)) return false;
    if (!is_metadata(*name) && (value->length < ENTRY_LEAST || value->length > ENTRY_MOST)) {
        in->at = begin;
        plsh_reader_fail(in, PLSH_STATUS_FORMAT,
                         "%.*s: an entry of %zu bytes; \"dtype\", \"shape\" and \"data_offsets\" "
                         "take %d to %d",
                         (int)(name->length < 60 ? name->length : 60), name->bytes, value->length,
                         (int)ENTRY_LEAST, (int)ENTRY_MOST);
    }
    return plsh_reader_is_ok(in);
}

/* ---- Entries ---- */

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

/* Room for the entries and their names, which are no longer than they are in JSON. */
static plsh_status allocate_entries(plsh_weights_part *part, plsh_reader in, plsh_error *error) {
    size_t total = 0;
    slice name, value;
    for (bool first = true; next_member(&in, &first, &name, &value);) {
        if (is_metadata(name)) continue;
        total += name.length; /* this includes two quotes: enough for the zero byte */
        part->tensor_count++;
    }
    plsh_status status = plsh_reader_status(&in, error);
    if (status != PLSH_STATUS_OK) return status;
    void *tensors = NULL, *names = NULL;
    status = plsh_allocate(&tensors, part->tensor_count, sizeof(plsh_tensor), "tensors", error);
    part->tensors = tensors;
    if (status == PLSH_STATUS_OK) status = plsh_allocate(&names, total, 1, "names", error);
    part->names = names;
    return status;
}

/* One value of JSON; errors are placed in the file by `in`. */
static json_t *parse_slice(plsh_reader *in, slice text) {
    json_error_t problem;
    json_t *value =
        json_loadb(text.bytes, text.length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);
    if (value) return value;
    in->at = (size_t)((const unsigned char *)text.bytes - in->bytes);
    if (json_error_code(&problem) == json_error_out_of_memory)
        plsh_reader_fail(in, PLSH_STATUS_NO_MEMORY, "the header: no memory for its JSON");
    else
        plsh_reader_fail(in, PLSH_STATUS_FORMAT, "the header: not JSON: %s", problem.text);
    return NULL;
}

/* `*name` is where the name of this tensor goes, and then that of the next one. */
static void read_member(plsh_reader *in, const plsh_reader *file, slice key, slice value,
                        plsh_tensor *tensor, char **name) {
    json_t *text = parse_slice(in, key), *entry = text ? parse_slice(in, value) : NULL;
    if (entry) {
        tensor->name = strcpy(*name, json_string_value(text));
        *name += strlen(*name) + 1;
        plsh_reader place = *file; /* offsets count in the file, messages are placed at the entry */
        place.at = (size_t)((const unsigned char *)value.bytes - file->bytes);
        read_entry(&place, entry, file->at, tensor);
        in->failure = place.failure;
    }
    json_decref(text);
    json_decref(entry);
}

/* `reader` is at the end of the header, where the data begins; `in` is the header. */
static plsh_status read_entries(plsh_weights_part *part, plsh_reader *reader, plsh_reader in,
                                plsh_error *error) {
    plsh_status status = allocate_entries(part, in, error);
    if (status != PLSH_STATUS_OK) return status;
    char *name = part->names;
    plsh_tensor *tensor = part->tensors;
    slice key, value;
    const size_t data = reader->at;
    for (bool first = true; next_member(&in, &first, &key, &value);) {
        if (!is_metadata(key)) read_member(&in, reader, key, value, tensor++, &name);
    }
    status = plsh_reader_status(&in, error);
    if (status != PLSH_STATUS_OK) return status;
    return plsh_weights_check_places(part, reader, data, true, error);
}

static int compare_data(const void *x, const void *y) {
    const plsh_tensor *a = x, *b = y;
    if (a->data != b->data) return (const char *)a->data < (const char *)b->data ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Recognises files of other kinds, for a message that says what they are; read as a safetensors
 * header, their first bytes would give a misleading one. */
static void check_kind(plsh_reader *reader) {
    static const char pointer[] = "version https://git-lfs";
    if (reader->size >= sizeof pointer - 1 &&
        memcmp(reader->bytes, pointer, sizeof pointer - 1) == 0)
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                         "a pointer of Git LFS, not the file itself: fetch it with git lfs pull");
    else if (reader->size > 8 && reader->bytes[8] != '{')
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                         "neither GGUF nor a file of torch.save nor safetensors, whose header "
                         "would begin with { at byte 8");
}

plsh_status plsh_safetensors_parse(plsh_weights_part *part, plsh_reader *reader,
                                   plsh_error *error) {
    check_kind(reader);
    size_t length = plsh_reader_count(reader, 8, 1, "the length of the header");
    if (plsh_reader_is_ok(reader) && length > HEADER_MOST)
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "a header of %zu bytes; at most %d", length,
                         HEADER_MOST);
    const char *text = plsh_reader_take(reader, length, "the header");
    if (text && length == 0) plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "a header of 0 bytes");
    plsh_status status = plsh_reader_status(reader, error);
    if (status != PLSH_STATUS_OK) return status;
    plsh_reader in = plsh_reader_make(reader->bytes, reader->at, reader->name);
    in.at = reader->at - length + 1; /* after the brace */
    status = read_entries(part, reader, in, error);
    /* JSON objects are unordered: take the order of the data. */
    if (status == PLSH_STATUS_OK)
        qsort(part->tensors, part->tensor_count, sizeof *part->tensors, compare_data);
    return status;
}
