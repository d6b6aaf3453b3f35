/* formats: values of a GGUF file's metadata, by key and type. They lie unaligned in the file; their
 * places were checked when it was opened. */
#include <string.h>

#include "base/reader.h"
#include "base/status.h"
#include "formats/file.h"

static const char *const type_names[] = {
    "uint8", "int8",   "uint16", "int16",  "uint32", "int32",   "float32",
    "bool",  "string", "array",  "uint64", "int64",  "float64",
};

int plsh_metadata_width(uint32_t type) {
    static const int widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof widths / sizeof *widths ? widths[type] : 0;
}

static plsh_status fail_type(const plsh_weights *weights, const plsh_metadata *metadata,
                             const char *right, plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_FORMAT, "%.100s: key '%.60s' is %s%s; it must be %s",
                     weights->path, metadata->key, metadata->is_array ? "an array of " : "",
                     type_names[metadata->type], right);
}

static uint64_t bits_at(const plsh_metadata *metadata, size_t index) {
    int width = plsh_metadata_width(metadata->type);
    plsh_reader reader = plsh_reader_make(metadata->bytes, metadata->size, "");
    plsh_reader_seek(&reader, index * (size_t)width, "");
    return plsh_reader_number(&reader, width, "");
}

static bool is_whole(const plsh_metadata *metadata) {
    return metadata->type <= PLSH_METADATA_I32 || metadata->type == PLSH_METADATA_U64 ||
           metadata->type == PLSH_METADATA_I64;
}

/* False where a uint64 does not fit into an int64. */
static bool whole_at(const plsh_metadata *metadata, size_t index, int64_t *out) {
    uint64_t bits = bits_at(metadata, index);
    switch (metadata->type) {
    case PLSH_METADATA_I8: *out = (int64_t)(int8_t)bits; return true;
    case PLSH_METADATA_I16: *out = (int16_t)bits; return true;
    case PLSH_METADATA_I32: *out = (int32_t)bits; return true;
    default: *out = (int64_t)bits; return metadata->type != PLSH_METADATA_U64 || *out >= 0;
    }
}

static double real_at(const plsh_metadata *metadata, size_t index) {
    uint64_t bits = bits_at(metadata, index);
    if (metadata->type == PLSH_METADATA_F32) {
        float value;
        memcpy(&value, &(uint32_t){(uint32_t)bits}, sizeof value);
        return (double)value;
    }
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool is_real(const plsh_metadata *metadata) {
    return metadata->type == PLSH_METADATA_F32 || metadata->type == PLSH_METADATA_F64;
}

int64_t plsh_metadata_part_integer(const plsh_weights_part *part, const char *key,
                                   int64_t fallback) {
    for (size_t i = 0; i < part->metadata_count; i++) {
        const plsh_metadata *metadata = &part->metadata[i];
        int64_t value;
        if (strcmp(metadata->key, key) != 0) continue;
        const bool number = !metadata->is_array && is_whole(metadata);
        return number && whole_at(metadata, 0, &value) ? value : fallback;
    }
    return fallback;
}

plsh_status plsh_metadata_integer(const plsh_weights *weights, const char *key, int64_t least,
                                  int64_t most, int64_t *out, plsh_error *error) {
    const plsh_metadata *metadata = plsh_metadata_find(weights, key);
    int64_t value;
    if (!metadata) return PLSH_STATUS_OK;
    if (metadata->is_array || !is_whole(metadata))
        return fail_type(weights, metadata, "a whole number", error);
    if (!whole_at(metadata, 0, &value) || value < least || value > most)
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%.100s: key '%.60s' is %llu; %lld to %lld",
                         weights->path, key, (unsigned long long)bits_at(metadata, 0),
                         (long long)least, (long long)most);
    *out = value;
    return PLSH_STATUS_OK;
}

plsh_status plsh_metadata_number(const plsh_weights *weights, const char *key, double *out,
                                 plsh_error *error) {
    const plsh_metadata *metadata = plsh_metadata_find(weights, key);
    int64_t whole;
    if (!metadata) return PLSH_STATUS_OK;
    if (metadata->is_array || !(is_real(metadata) || is_whole(metadata)))
        return fail_type(weights, metadata, "a number", error);
    if (is_real(metadata))
        *out = real_at(metadata, 0);
    else
        *out = whole_at(metadata, 0, &whole) ? (double)whole : (double)bits_at(metadata, 0);
    return PLSH_STATUS_OK;
}

plsh_status plsh_metadata_bool(const plsh_weights *weights, const char *key, bool *out,
                               plsh_error *error) {
    const plsh_metadata *metadata = plsh_metadata_find(weights, key);
    if (!metadata) return PLSH_STATUS_OK;
    if (metadata->is_array || metadata->type != PLSH_METADATA_BOOL)
        return fail_type(weights, metadata, "a bool", error);
    *out = bits_at(metadata, 0) != 0;
    return PLSH_STATUS_OK;
}

static plsh_string next_string(plsh_reader *reader) {
    plsh_string string;
    string.bytes = plsh_reader_string(reader, 8, &string.length, "a string");
    return string;
}

plsh_status plsh_metadata_string(const plsh_weights *weights, const char *key, plsh_string *out,
                                 plsh_error *error) {
    const plsh_metadata *metadata = plsh_metadata_find(weights, key);
    if (!metadata) return PLSH_STATUS_OK;
    if (metadata->is_array || metadata->type != PLSH_METADATA_STRING)
        return fail_type(weights, metadata, "a string", error);
    plsh_reader reader = plsh_reader_make(metadata->bytes, metadata->size, weights->path);
    *out = next_string(&reader);
    return PLSH_STATUS_OK;
}

/* ---- Arrays ---- */

size_t plsh_metadata_length(const plsh_weights *weights, const char *key) {
    const plsh_metadata *metadata = plsh_metadata_find(weights, key);
    return metadata && metadata->is_array ? metadata->count : 0;
}

static plsh_status find_array(const plsh_weights *weights, const char *key,
                              const plsh_metadata **out, plsh_error *error) {
    *out = plsh_metadata_find(weights, key);
    if (!*out)
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%.100s: key '%.60s' is missing", weights->path,
                         key);
    return (*out)->is_array ? PLSH_STATUS_OK : fail_type(weights, *out, "an array", error);
}

plsh_status plsh_metadata_strings(const plsh_weights *weights, const char *key, plsh_string *out,
                                  plsh_error *error) {
    const plsh_metadata *metadata;
    plsh_status status = find_array(weights, key, &metadata, error);
    if (status != PLSH_STATUS_OK) return status;
    if (metadata->type != PLSH_METADATA_STRING)
        return fail_type(weights, metadata, "an array of strings", error);
    plsh_reader reader = plsh_reader_make(metadata->bytes, metadata->size, weights->path);
    for (size_t i = 0; i < metadata->count; i++) out[i] = next_string(&reader);
    return PLSH_STATUS_OK;
}

plsh_status plsh_metadata_integers(const plsh_weights *weights, const char *key, int64_t *out,
                                   plsh_error *error) {
    const plsh_metadata *metadata;
    plsh_status status = find_array(weights, key, &metadata, error);
    if (status != PLSH_STATUS_OK) return status;
    if (!is_whole(metadata) && metadata->type != PLSH_METADATA_BOOL)
        return fail_type(weights, metadata, "an array of whole numbers", error);
    for (size_t i = 0; i < metadata->count; i++) {
        if (!whole_at(metadata, i, &out[i]))
            return plsh_fail(error, PLSH_STATUS_FORMAT,
                             "%.100s: key '%.60s': element %zu is beyond 2^63 - 1", weights->path,
                             key, i);
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_metadata_numbers(const plsh_weights *weights, const char *key, double *out,
                                  plsh_error *error) {
    const plsh_metadata *metadata;
    plsh_status status = find_array(weights, key, &metadata, error);
    if (status != PLSH_STATUS_OK) return status;
    if (!is_real(metadata) && !is_whole(metadata))
        return fail_type(weights, metadata, "an array of numbers", error);
    for (size_t i = 0; i < metadata->count; i++) {
        int64_t whole;
        if (is_real(metadata))
            out[i] = real_at(metadata, i);
        else
            out[i] = whole_at(metadata, i, &whole) ? (double)whole : (double)bits_at(metadata, i);
    }
    return PLSH_STATUS_OK;
}
