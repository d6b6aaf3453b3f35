/* base: .npy arrays (numpy.lib.format, versions 1 to 3). */
#include "base/file.h"
#include "base/memory.h"
#include "base/reader.h"
#include "base/status.h"
#include "plsh/io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are read as they lie");

/* Headers are short (a type name and a few numbers); a longer one is refused unread. */
enum { HEADER_MOST = 65536, PREFIX_LEAST = 10, PREFIX_MOST = 12 };
static const char magic[] = "\x93NUMPY";

/* The names of types in the format; it does not have bfloat16. */
static const char *const codes[] = {
    [PLSH_DTYPE_FLOAT16] = "f2", [PLSH_DTYPE_FLOAT32] = "f4", [PLSH_DTYPE_FLOAT64] = "f8",
    [PLSH_DTYPE_INT8] = "i1",    [PLSH_DTYPE_INT16] = "i2",   [PLSH_DTYPE_INT32] = "i4",
    [PLSH_DTYPE_INT64] = "i8",   [PLSH_DTYPE_UINT8] = "u1",   [PLSH_DTYPE_UINT16] = "u2",
    [PLSH_DTYPE_UINT32] = "u4",  [PLSH_DTYPE_UINT64] = "u8",  [PLSH_DTYPE_BOOL] = "b1",
};
enum { CODE_COUNT = sizeof codes / sizeof codes[0] };

/* ---- The header: a Python dict of exactly descr, fortran_order and shape ---- */

static plsh_status bad(plsh_reader *in, const char *what) {
    return plsh_reader_fail(in, PLSH_STATUS_FORMAT, "not a .npy file: %s", what);
}

static bool take(plsh_reader *in, const char *wanted) {
    plsh_reader_skip_blanks(in);
    return plsh_reader_accept(in, wanted);
}

/* A quoted string without escapes; false where there is none. */
static bool take_string(plsh_reader *in, char *out, size_t size) {
    const char *quote = take(in, "'") ? "'" : "\"";
    if (quote[0] == '"' && !take(in, quote)) return false;
    size_t length = 0;
    for (int c; (c = plsh_reader_peek(in)) >= 0 && c != quote[0]; in->at++) {
        if (c == '\\' || length + 1 >= size) return false;
        out[length++] = (char)c;
    }
    out[length] = '\0';
    return plsh_reader_accept(in, quote);
}

static plsh_status parse_type(plsh_reader *in, plsh_npy *out) {
    char code[32];
    if (!take_string(in, code, sizeof code))
        return bad(in, "descr is not a plain type name (records are not supported)");
    bool little = code[0] == '<' || ((code[0] == '|' || code[0] == '=') && code[1] != '\0');
    if (code[0] == '>')
        return plsh_reader_fail(in, PLSH_STATUS_UNSUPPORTED,
                                "type '%s' is big endian; save it as little endian ('<%s')", code,
                                code + 1);
    for (int i = 0; little && i < CODE_COUNT; i++) {
        if (codes[i] == NULL || strcmp(code + 1, codes[i]) != 0) continue;
        out->type = (plsh_dtype)i;
        return PLSH_STATUS_OK;
    }
    return plsh_reader_fail(in, PLSH_STATUS_UNSUPPORTED,
                            "type '%s' is not supported; float32, float16, float64, integers and "
                            "bool are",
                            code);
}

static plsh_status parse_dimension(plsh_reader *in, plsh_npy *out) {
    if (out->rank == PLSH_NPY_RANK)
        return plsh_reader_fail(in, PLSH_STATUS_UNSUPPORTED, "more than %d dimensions",
                                PLSH_NPY_RANK);
    int64_t value = 0;
    size_t first = in->at;
    for (int c; (c = plsh_reader_peek(in)) >= '0' && c <= '9'; in->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, c - '0', &value))
            return plsh_reader_fail(in, PLSH_STATUS_OVERFLOW, "a dimension overflows 64 bits");
    if (in->at == first) return bad(in, "the shape has an entry that is not a length");
    out->shape[out->rank++] = value;
    return PLSH_STATUS_OK;
}

/* "()", "(3,)", "(3, 4)": a comma after each but the last, and after a single one too. */
static plsh_status parse_shape(plsh_reader *in, plsh_npy *out) {
    if (!take(in, "(")) return bad(in, "the shape is not a tuple");
    bool comma = true;
    while (!take(in, ")")) {
        if (!comma) return bad(in, "a comma is missing in the shape");
        plsh_status status = parse_dimension(in, out);
        if (status != PLSH_STATUS_OK) return status;
        comma = take(in, ",");
    }
    if (out->rank == 1 && !comma) return bad(in, "the shape is not a tuple");
    return PLSH_STATUS_OK;
}

static plsh_status parse_order(plsh_reader *in) {
    if (take(in, "False")) return PLSH_STATUS_OK;
    if (take(in, "True"))
        return plsh_reader_fail(in, PLSH_STATUS_UNSUPPORTED,
                                "the array is in Fortran order; save numpy.ascontiguousarray of "
                                "it");
    return bad(in, "fortran_order is neither True nor False");
}

static plsh_status parse_dict(plsh_reader *in, plsh_npy *out) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    bool seen[3] = {false};
    if (!take(in, "{")) return bad(in, "its header is not a dict");
    bool comma = true;
    while (!take(in, "}")) {
        char key[32];
        int k = 0;
        if (!comma || !take_string(in, key, sizeof key) || !take(in, ":"))
            return bad(in, "its header is not a dict of descr, fortran_order and shape");
        while (k < 3 && strcmp(key, keys[k]) != 0) k++;
        if (k == 3 || seen[k]) return bad(in, "its header has a key twice or one too many");
        seen[k] = true;
        plsh_status status = k == 0   ? parse_type(in, out)
                             : k == 1 ? parse_order(in)
                                      : parse_shape(in, out);
        if (status != PLSH_STATUS_OK) return status;
        comma = take(in, ",");
    }
    if (!seen[0] || !seen[1] || !seen[2])
        return bad(in, "its header lacks descr, fortran_order or shape");
    plsh_reader_skip_blanks(in);
    return plsh_reader_left(in) == 0 ? PLSH_STATUS_OK
                                     : bad(in, "something follows the dict in its header");
}

/* The product of the shape, and its bytes; false where they overflow. A length of 0 anywhere makes
 * both 0, but the product of the others must not overflow either: later code multiplies them. */
static bool count_values(plsh_npy *out, size_t *bytes) {
    size_t product = 1;
    bool empty = false;
    for (int d = 0; d < out->rank; d++) {
        size_t length = (size_t)out->shape[d];
        if (length == 0)
            empty = true;
        else if (!plsh_multiply(product, length, &product))
            return false;
    }
    if (!plsh_multiply(product, plsh_dtype_size(out->type), bytes)) return false;
    out->count = empty ? 0 : product;
    if (empty) *bytes = 0;
    return true;
}

/* Magic, version and the header's length: steps over them. */
static plsh_status parse_prefix(plsh_reader *in, size_t *length) {
    if (plsh_reader_left(in) < PREFIX_LEAST || !plsh_reader_accept(in, magic))
        return bad(in, "it does not begin with \\x93NUMPY");
    int version = (int)plsh_reader_number(in, 1, "its version");
    if (version < 1 || version > 3)
        return plsh_reader_fail(in, PLSH_STATUS_UNSUPPORTED,
                                ".npy format version %d; 1 to 3 are read", version);
    plsh_reader_number(in, 1, "its version");
    *length = (size_t)plsh_reader_number(in, version == 1 ? 2 : 4, "its header's length");
    if (*length > HEADER_MOST) return bad(in, "its header is longer than 65536 bytes");
    return plsh_reader_status(in, NULL);
}

/* The whole header, which is all of `in` from here on, and what it means for the `rest` bytes that
 * follow it. */
static plsh_status parse_header(plsh_reader *in, size_t rest, plsh_npy *out, size_t *bytes) {
    plsh_status status = parse_dict(in, out);
    if (status != PLSH_STATUS_OK) return status;
    if (!count_values(out, bytes))
        return plsh_reader_fail(in, PLSH_STATUS_OVERFLOW, "the shape overflows");
    if (*bytes != rest)
        return plsh_reader_fail(in, PLSH_STATUS_FORMAT,
                                "its shape needs %zu bytes of data, the file has %zu", *bytes,
                                rest);
    return PLSH_STATUS_OK;
}

/* `in` is all of the file; on success it holds the data alone. */
static plsh_status parse_array(plsh_reader *in, plsh_npy *out, size_t *bytes) {
    size_t length = 0, size = in->size;
    plsh_status status = parse_prefix(in, &length);
    if (status != PLSH_STATUS_OK) return status;
    if (length > plsh_reader_left(in)) return bad(in, "it ends inside its header");
    in->size = in->at + length;
    status = parse_header(in, size - in->size, out, bytes);
    in->size = size;
    return status;
}

plsh_status plsh_npy_parse(const void *bytes, size_t size, const char *name, plsh_npy *out,
                           plsh_error *error) {
    *out = (plsh_npy){0};
    plsh_npy array = {0};
    plsh_reader in = plsh_reader_make(bytes, size, name);
    size_t data = 0;
    plsh_status status = parse_array(&in, &array, &data);
    if (status != PLSH_STATUS_OK) return plsh_reader_status(&in, error);
    status = plsh_allocate(&array.data, data, 1, name, error);
    if (status != PLSH_STATUS_OK) return status;
    if (data > 0) memcpy(array.data, plsh_reader_take(&in, data, "its data"), data);
    *out = array;
    return PLSH_STATUS_OK;
}

/* ---- Files ---- */

static plsh_status read_fully(int descriptor, void *out, size_t size, const char *path,
                              plsh_error *error) {
    char *next = out;
    while (size > 0) {
        ssize_t got = read(descriptor, next, size < (1 << 30) ? size : 1 << 30);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return plsh_fail(error, PLSH_STATUS_IO, "%s: cannot read: %s", path, strerror(errno));
        if (got == 0)
            return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: not a .npy file: it ends too early",
                             path);
        next += got;
        size -= (size_t)got;
    }
    return PLSH_STATUS_OK;
}

/* The data is read directly into its array: no second copy of a large file, and no mapping, which
 * would end the process if the file is truncated. */
static plsh_status read_array(int descriptor, size_t size, const char *path, plsh_npy *out,
                              plsh_error *error) {
    enum { HEAD_MOST = PREFIX_MOST + HEADER_MOST };
    size_t head = size < HEAD_MOST ? size : HEAD_MOST, data = 0;
    void *bytes;
    plsh_status status = plsh_allocate(&bytes, head, 1, path, error);
    if (status != PLSH_STATUS_OK) return status;
    status = read_fully(descriptor, bytes, head, path, error);
    plsh_reader in = plsh_reader_make(bytes, size, path); /* its header ends within the head */
    if (status == PLSH_STATUS_OK && parse_array(&in, out, &data) != PLSH_STATUS_OK)
        status = plsh_reader_status(&in, error);
    if (status == PLSH_STATUS_OK) status = plsh_allocate(&out->data, data, 1, path, error);
    if (status == PLSH_STATUS_OK) {
        size_t here = head - in.at; /* of the data */
        if (here > 0) memcpy(out->data, (const char *)bytes + in.at, here);
        status = read_fully(descriptor, (char *)out->data + here, data - here, path, error);
    }
    plsh_release(bytes);
    return status;
}

plsh_status plsh_npy_read(const char *path, plsh_npy *out, plsh_error *error) {
    *out = (plsh_npy){0};
    plsh_npy array = {0};
    int descriptor;
    size_t size;
    plsh_status status = plsh_regular_open(path, &descriptor, &size, error);
    if (status != PLSH_STATUS_OK) return status;
    status = read_array(descriptor, size, path, &array, error);
    close(descriptor);
    if (status != PLSH_STATUS_OK)
        plsh_npy_free(&array);
    else
        *out = array;
    return status;
}

void plsh_npy_free(plsh_npy *array) {
    plsh_release(array->data);
    *array = (plsh_npy){0};
}

plsh_status plsh_npy_to_float32(plsh_npy *array, plsh_error *error) {
    if (array->type == PLSH_DTYPE_FLOAT32) return PLSH_STATUS_OK;
    if (array->type != PLSH_DTYPE_FLOAT16 && array->type != PLSH_DTYPE_FLOAT64)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "an array of %s; float32, float16 or float64 "
                         "is needed",
                         plsh_dtype_name(array->type));
    void *memory;
    plsh_status status = plsh_allocate(&memory, array->count, 4, "array", error);
    if (status != PLSH_STATUS_OK) return status;
    status = plsh_dtype_to_float(array->type, array->data, memory, array->count, error);
    plsh_release(array->data);
    array->data = memory;
    array->type = PLSH_DTYPE_FLOAT32;
    return status;
}

/* Magic, version 1, and the dict padded so that the data begins at a multiple of 64. The longest
 * header (8 dimensions of 19 digits) is far below the 65535 bytes of version 1. */
static size_t format_header(char out[512], plsh_dtype type, int rank, const int64_t *shape) {
    size_t used = 10;
    used += (size_t)snprintf(out + used, 512 - used,
                             "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                             plsh_dtype_size(type) == 1 ? '|' : '<', codes[type]);
    for (int d = 0; d < rank; d++)
        used += (size_t)snprintf(out + used, 512 - used, "%s%lld%s", d > 0 ? ", " : "",
                                 (long long)shape[d], rank == 1 ? "," : "");
    used += (size_t)snprintf(out + used, 512 - used, "), }");
    while ((used + 1) % 64 != 0) out[used++] = ' ';
    out[used++] = '\n';
    memcpy(out, magic, sizeof magic - 1);
    out[6] = 1;
    out[7] = 0;
    out[8] = (char)((used - 10) & 0xff);
    out[9] = (char)((used - 10) >> 8);
    return used;
}

plsh_status plsh_npy_append(plsh_file *file, plsh_dtype type, int rank, const int64_t *shape,
                            const void *data, plsh_error *error) {
    const char *path = plsh_file_path(file);
    if (rank < 0 || rank > PLSH_NPY_RANK || (unsigned)type >= CODE_COUNT || codes[type] == NULL)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%s: %d dimensions of %s; 0 to %d of a type that the format knows can be "
                         "written",
                         path, rank, plsh_dtype_name(type), PLSH_NPY_RANK);
    plsh_npy about = {.type = type, .rank = rank};
    for (int d = 0; d < rank; d++) {
        if (shape[d] < 0)
            return plsh_fail(error, PLSH_STATUS_INVALID, "%s: dimension %d is %lld", path, d,
                             (long long)shape[d]);
        about.shape[d] = shape[d];
    }
    size_t bytes = 0;
    if (!count_values(&about, &bytes))
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "%s: the shape overflows", path);
    char header[512];
    size_t length = format_header(header, type, rank, shape);
    plsh_status status = plsh_file_write(file, header, length, error);
    if (status != PLSH_STATUS_OK || data == NULL) return status;
    return plsh_file_write(file, data, bytes, error);
}

plsh_status plsh_npy_write(const char *path, plsh_dtype type, int rank, const int64_t *shape,
                           const void *data, plsh_error *error) {
    plsh_file *file = NULL;
    plsh_status status = plsh_file_create(&file, path, error);
    if (file == NULL) return status;
    status = plsh_npy_append(file, type, rank, shape, data, error);
    if (status == PLSH_STATUS_OK) return plsh_file_commit(file, error);
    plsh_file_abandon(file);
    return status;
}
