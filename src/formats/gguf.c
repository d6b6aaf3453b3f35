/* formats: GGUF, versions 2 and 3. A header (metadata, then name, type, shape and offset of each
 * tensor), then the tensors, each on a multiple of the alignment. */
#include <string.h>

#include "base/memory.h"
#include "formats/file.h"
#include "linear/types.h"

enum { GGUF_RANK = 4, GGUF_ALIGNMENT = 32 };

/* Steps over `count` values of a type. */
static void skip_values(plsh_reader *reader, uint32_t type, size_t count) {
    int width = plsh_metadata_width(type);
    if (width > 0) {
        const unsigned char *bytes = plsh_reader_take(reader, count * (size_t)width, "an array");
        for (size_t i = 0; type == PLSH_METADATA_BOOL && bytes && i < count; i++) {
            if (bytes[i] > 1)
                plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "a bool is %d; 0 or 1", bytes[i]);
        }
        return;
    }
    size_t length;
    for (size_t i = 0; i < count && plsh_reader_is_ok(reader); i++)
        plsh_reader_string(reader, 8, &length, "a string");
}

static void read_value(plsh_reader *reader, plsh_metadata *metadata) {
    uint32_t type = plsh_reader_u32(reader, "a type of metadata");
    metadata->count = 1;
    if (type == PLSH_METADATA_ARRAY) {
        metadata->is_array = true;
        type = plsh_reader_u32(reader, "a type of elements");
        if (type == PLSH_METADATA_ARRAY)
            plsh_reader_fail(reader, PLSH_STATUS_UNSUPPORTED, "an array of arrays");
    }
    if (type > PLSH_METADATA_F64)
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "%u is not a type of metadata", type);
    if (!plsh_reader_is_ok(reader)) return;
    metadata->type = (plsh_metadata_type)type;
    int width = plsh_metadata_width(type);
    if (metadata->is_array)
        metadata->count = plsh_reader_count(reader, 8, width > 0 ? (size_t)width : 8, "an array");
    size_t begin = reader->at;
    skip_values(reader, type, metadata->count);
    metadata->bytes = reader->bytes + begin;
    metadata->size = reader->at - begin;
}

/* A name in the file. It has no zero at its end until copy_names copies it. */
static const char *read_name(plsh_reader *reader, size_t *length, size_t *total, const char *what) {
    const char *name = plsh_reader_string(reader, 8, length, what);
    if (name && (*length == 0 || memchr(name, 0, *length) != NULL))
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "%s is empty or has a zero in it", what);
    *total += *length + 1;
    return name;
}

static void read_tensor(plsh_reader *reader, plsh_tensor *tensor, uint64_t *offset) {
    uint32_t rank = plsh_reader_u32(reader, "a number of dimensions");
    if (rank > GGUF_RANK)
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "a tensor of %u dimensions; at most 4", rank);
    for (uint32_t i = 0; i < rank && plsh_reader_is_ok(reader); i++) {
        uint64_t extent = plsh_reader_u64(reader, "a dimension");
        if (extent == 0 || extent > INT64_MAX)
            plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "a dimension of %llu",
                             (unsigned long long)extent);
        tensor->shape[rank - 1 - i] = (int64_t)extent; /* the fastest comes first in the file */
    }
    tensor->rank = (int)rank;
    uint32_t type = plsh_reader_u32(reader, "a type of tensor");
    if (plsh_reader_is_ok(reader) && !plsh_weight_type_of_gguf(type, &tensor->type))
        plsh_reader_fail(reader, PLSH_STATUS_UNSUPPORTED,
                         "a tensor of type %s (%u), not supported; f32, f16, bf16, q8_0, q4_0, "
                         "q4_1, q5_0, q5_1, q2_K, q3_K, q4_K, q5_K, q6_K, iq4_nl and iq4_xs are",
                         plsh_weight_ggml_name(type), type);
    *offset = plsh_reader_u64(reader, "an offset");
    if (plsh_reader_is_ok(reader) &&
        !plsh_weight_type_size(tensor->type, tensor->rank, tensor->shape, &tensor->size))
        plsh_reader_fail(
            reader, PLSH_STATUS_FORMAT,
            "a shape that overflows, or rows that are not a whole number of blocks of %s",
            plsh_weight_type_name(tensor->type));
}

/* State shared by the scans of the header. */
typedef struct gguf_header {
    plsh_reader *reader;
    plsh_weights_part *part;
    size_t *lengths;    /* of the keys, then of the tensors' names */
    uint64_t *offsets;  /* of the tensors in the data */
    size_t names_total; /* bytes, with their zeros */
} gguf_header;

static plsh_status allocate_header(gguf_header *header, plsh_error *error) {
    plsh_weights_part *part = header->part;
    void *lengths = NULL, *offsets = NULL, *tensors = NULL, *metadata = NULL;
    plsh_status status =
        plsh_allocate(&metadata, part->metadata_count, sizeof(plsh_metadata), "metadata", error);
    part->metadata = metadata;
    if (status == PLSH_STATUS_OK)
        status = plsh_allocate(&tensors, part->tensor_count, sizeof(plsh_tensor), "tensors", error);
    part->tensors = tensors;
    if (status == PLSH_STATUS_OK)
        status = plsh_allocate(&lengths, part->metadata_count + part->tensor_count, sizeof(size_t),
                               "names", error);
    header->lengths = lengths;
    if (status == PLSH_STATUS_OK)
        status = plsh_allocate(&offsets, part->tensor_count, sizeof(uint64_t), "offsets", error);
    header->offsets = offsets;
    return status;
}

static plsh_status copy_names(gguf_header *header, plsh_error *error) {
    plsh_weights_part *part = header->part;
    void *names;
    plsh_status status = plsh_allocate(&names, header->names_total, 1, "names", error);
    if (status != PLSH_STATUS_OK) return status;
    char *next = part->names = names;
    for (size_t i = 0; i < part->metadata_count + part->tensor_count; i++) {
        const char **name = i < part->metadata_count
                                ? &part->metadata[i].key
                                : &part->tensors[i - part->metadata_count].name;
        memcpy(next, *name, header->lengths[i]);
        *name = next;
        next += header->lengths[i] + 1;
    }
    return PLSH_STATUS_OK;
}

static void read_header(gguf_header *header) {
    plsh_reader *reader = header->reader;
    plsh_weights_part *part = header->part;
    size_t *length = header->lengths;
    for (size_t i = 0; i < part->metadata_count && plsh_reader_is_ok(reader); i++) {
        part->metadata[i].key = read_name(reader, length++, &header->names_total, "a key");
        read_value(reader, &part->metadata[i]);
    }
    for (size_t i = 0; i < part->tensor_count && plsh_reader_is_ok(reader); i++) {
        part->tensors[i].name = read_name(reader, length++, &header->names_total, "a name");
        read_tensor(reader, &part->tensors[i], &header->offsets[i]);
    }
}

/* general.alignment: a power of two, 8 or more. */
static uint64_t alignment_of(const plsh_weights_part *part, plsh_reader *reader) {
    static const char key[] = "general.alignment";
    for (size_t i = 0; i < part->metadata_count; i++) {
        const plsh_metadata *metadata = &part->metadata[i];
        if (strcmp(metadata->key, key) != 0) continue;
        uint64_t value = 0;
        if (metadata->type == PLSH_METADATA_U32 && !metadata->is_array) {
            plsh_reader number = plsh_reader_make(metadata->bytes, metadata->size, key);
            value = plsh_reader_u32(&number, key);
        }
        if (value >= 8 && (value & (value - 1)) == 0) return value;
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                         "%s has to be a uint32 that is a power of two, 8 or more", key);
        break;
    }
    return GGUF_ALIGNMENT;
}

static void place_tensors(const gguf_header *header, uint64_t alignment) {
    plsh_reader *reader = header->reader;
    plsh_weights_part *part = header->part;
    if (part->tensor_count > 0) plsh_reader_align(reader, alignment, "the data of the tensors");
    size_t data = reader->at;
    for (size_t i = 0; i < part->tensor_count && plsh_reader_is_ok(reader); i++) {
        plsh_tensor *tensor = &part->tensors[i];
        uint64_t offset = header->offsets[i];
        if (offset % alignment != 0)
            plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                             "tensor '%.60s': its offset %llu is not a multiple of %llu",
                             tensor->name, (unsigned long long)offset,
                             (unsigned long long)alignment);
        else if (offset > reader->size - data || tensor->size > reader->size - data - offset)
            plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                             "tensor '%.60s': %zu bytes at offset %llu, but the data has %zu",
                             tensor->name, tensor->size, (unsigned long long)offset,
                             reader->size - data);
        else
            tensor->data = reader->bytes + data + offset;
    }
}

static plsh_status parse_header(gguf_header *header, plsh_error *error) {
    plsh_reader *reader = header->reader;
    plsh_status status = allocate_header(header, error);
    if (status != PLSH_STATUS_OK) return status;
    read_header(header);
    status = plsh_reader_status(reader, error);
    if (status == PLSH_STATUS_OK) status = copy_names(header, error);
    if (status != PLSH_STATUS_OK) return status;
    uint64_t alignment = alignment_of(header->part, reader);
    place_tensors(header, alignment);
    status = plsh_reader_status(reader, error);
    if (status != PLSH_STATUS_OK) return status;
    return plsh_weights_check_places(header->part, reader, reader->at, false, error);
}

plsh_status plsh_gguf_parse(plsh_weights_part *part, plsh_reader *reader, plsh_error *error) {
    gguf_header header = {.reader = reader, .part = part};
    const char *magic = plsh_reader_take(reader, 4, "the magic number");
    if (magic && memcmp(magic, "GGUF", 4) != 0)
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "it does not begin with GGUF");
    uint32_t version = plsh_reader_u32(reader, "the version");
    if (plsh_reader_is_ok(reader) && version != 2 && version != 3)
        plsh_reader_fail(reader, PLSH_STATUS_UNSUPPORTED,
                         "GGUF of version %u%s; versions 2 and 3 are read", version,
                         version > 0xffff ? " (big endian?)" : "");
    /* Name, dimensions, type, offset; key, type, a value of one byte. */
    part->tensor_count = plsh_reader_count(reader, 8, 8 + 4 + 4 + 8, "tensors");
    part->metadata_count = plsh_reader_count(reader, 8, 8 + 4 + 1, "metadata");
    plsh_status status = plsh_reader_status(reader, error);
    if (status == PLSH_STATUS_OK) status = parse_header(&header, error);
    plsh_release(header.lengths);
    plsh_release(header.offsets);
    return status;
}
