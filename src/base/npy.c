/* base: .npy arrays (numpy.lib.format, versions 1 to 3). */
#include "base/memory.h"
#include "base/status.h"
#include "plsh/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are read as they lie");

/* Headers are short (a type name and a few numbers); a longer one is refused unread. */
enum { HEADER_MOST = 65536, PREFIX_MOST = 12 };
static const char magic[6] = "\x93NUMPY";

/* What the format calls a type; it has no word for bfloat16. */
static const char *const codes[] = {
    [PLSH_DTYPE_FLOAT16] = "f2", [PLSH_DTYPE_FLOAT32] = "f4", [PLSH_DTYPE_FLOAT64] = "f8",
    [PLSH_DTYPE_INT8] = "i1",    [PLSH_DTYPE_INT16] = "i2",   [PLSH_DTYPE_INT32] = "i4",
    [PLSH_DTYPE_INT64] = "i8",   [PLSH_DTYPE_UINT8] = "u1",   [PLSH_DTYPE_UINT16] = "u2",
    [PLSH_DTYPE_UINT32] = "u4",  [PLSH_DTYPE_UINT64] = "u8",  [PLSH_DTYPE_BOOL] = "b1",
};
enum { CODE_COUNT = sizeof codes / sizeof codes[0] };

/* ---- The header: a Python dict of exactly descr, fortran_order and shape ---- */

typedef struct reader {
    const char *at, *end;
    const char *name; /* of the file, for messages */
    plsh_error *error;
} reader;

static plsh_status bad(const reader *in, const char *what) {
    return plsh_fail(in->error, PLSH_STATUS_FORMAT, "%s: not a .npy file: %s", in->name, what);
}

static void skip_blanks(reader *in) {
    while (in->at < in->end && (*in->at == ' ' || *in->at == '\n' || *in->at == '\t')) in->at++;
}

static bool take(reader *in, char wanted) {
    skip_blanks(in);
    if (in->at == in->end || *in->at != wanted) return false;
    in->at++;
    return true;
}

/* A quoted string without escapes; false where there is none. */
static bool take_string(reader *in, char *out, size_t size) {
    skip_blanks(in);
    if (in->at == in->end || (*in->at != '\'' && *in->at != '"')) return false;
    char quote = *in->at++;
    size_t length = 0;
    while (in->at < in->end && *in->at != quote) {
        if (*in->at == '\\' || length + 1 >= size) return false;
        out[length++] = *in->at++;
    }
    out[length] = '\0';
    return take(in, quote);
}

static bool take_word(reader *in, const char *word) {
    size_t length = strlen(word);
    skip_blanks(in);
    if ((size_t)(in->end - in->at) < length || memcmp(in->at, word, length) != 0) return false;
    in->at += length;
    return true;
}

static plsh_status parse_type(reader *in, plsh_npy *out) {
    char code[32];
    if (!take_string(in, code, sizeof code))
        return bad(in, "descr is no plain type name (records are not supported)");
    bool little = code[0] == '<' || ((code[0] == '|' || code[0] == '=') && code[1] != '\0');
    if (code[0] == '>')
        return plsh_fail(in->error, PLSH_STATUS_UNSUPPORTED,
                         "%s: type '%s' is big endian; save it as little endian ('<%s')", in->name,
                         code, code + 1);
    for (int i = 0; little && i < CODE_COUNT; i++) {
        if (codes[i] == NULL || strcmp(code + 1, codes[i]) != 0) continue;
        out->type = (plsh_dtype)i;
        return PLSH_STATUS_OK;
    }
    return plsh_fail(in->error, PLSH_STATUS_UNSUPPORTED,
                     "%s: type '%s' is not supported; float32, float16, float64, integers and bool "
                     "are",
                     in->name, code);
}

static plsh_status parse_dimension(reader *in, plsh_npy *out) {
    if (out->rank == PLSH_NPY_RANK)
        return plsh_fail(in->error, PLSH_STATUS_UNSUPPORTED, "%s: more than %d dimensions",
                         in->name, PLSH_NPY_RANK);
    int64_t value = 0;
    const char *first = in->at;
    for (; in->at < in->end && *in->at >= '0' && *in->at <= '9'; in->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *in->at - '0', &value))
            return plsh_fail(in->error, PLSH_STATUS_OVERFLOW, "%s: a dimension overflows 64 bits",
                             in->name);
    if (in->at == first) return bad(in, "the shape holds something that is no length");
    out->shape[out->rank++] = value;
    return PLSH_STATUS_OK;
}

/* "()", "(3,)", "(3, 4)": a comma after each but the last, and after a single one too. */
static plsh_status parse_shape(reader *in, plsh_npy *out) {
    if (!take(in, '(')) return bad(in, "the shape is no tuple");
    bool comma = true;
    while (!take(in, ')')) {
        if (!comma) return bad(in, "a comma is missing in the shape");
        plsh_status status = parse_dimension(in, out);
        if (status != PLSH_STATUS_OK) return status;
        comma = take(in, ',');
    }
    if (out->rank == 1 && !comma) return bad(in, "the shape is no tuple");
    return PLSH_STATUS_OK;
}

static plsh_status parse_order(reader *in) {
    if (take_word(in, "False")) return PLSH_STATUS_OK;
    if (take_word(in, "True"))
        return plsh_fail(in->error, PLSH_STATUS_UNSUPPORTED,
                         "%s: the array is in Fortran order; save numpy.ascontiguousarray of it",
                         in->name);
    return bad(in, "fortran_order is neither True nor False");
}

static plsh_status parse_dict(reader *in, plsh_npy *out) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    bool seen[3] = {false};
    if (!take(in, '{')) return bad(in, "its header is no dict");
    bool comma = true;
    while (!take(in, '}')) {
        char key[32];
        int k = 0;
        if (!comma || !take_string(in, key, sizeof key) || !take(in, ':'))
            return bad(in, "its header is no dict of descr, fortran_order and shape");
        while (k < 3 && strcmp(key, keys[k]) != 0) k++;
        if (k == 3 || seen[k]) return bad(in, "its header has a key twice or one too many");
        seen[k] = true;
        plsh_status status = k == 0   ? parse_type(in, out)
                             : k == 1 ? parse_order(in)
                                      : parse_shape(in, out);
        if (status != PLSH_STATUS_OK) return status;
        comma = take(in, ',');
    }
    if (!seen[0] || !seen[1] || !seen[2])
        return bad(in, "its header lacks descr, fortran_order or shape");
    skip_blanks(in);
    return in->at == in->end ? PLSH_STATUS_OK : bad(in, "something follows the dict in its header");
}

/* The product of the shape, and its bytes. A length of 0 anywhere makes both 0, but the others
 * still must not overflow, so that nobody multiplies them later. */
static plsh_status count_values(const reader *in, plsh_npy *out, size_t *bytes) {
    size_t product = 1;
    bool empty = false;
    for (int d = 0; d < out->rank; d++) {
        size_t length = (size_t)out->shape[d];
        if (length == 0)
            empty = true;
        else if (!plsh_multiply(product, length, &product))
            return plsh_fail(in->error, PLSH_STATUS_OVERFLOW, "%s: the shape overflows", in->name);
    }
    if (!plsh_multiply(product, plsh_dtype_size(out->type), bytes))
        return plsh_fail(in->error, PLSH_STATUS_OVERFLOW, "%s: the shape overflows", in->name);
    out->count = empty ? 0 : product;
    if (empty) *bytes = 0;
    return PLSH_STATUS_OK;
}

/* Magic, version and the header's length; `size` bytes of the file are at hand. */
static plsh_status parse_prefix(const unsigned char *bytes, size_t size, const reader *in,
                                size_t *start, size_t *length) {
    if (size < 10 || memcmp(bytes, magic, sizeof magic) != 0)
        return bad(in, "it does not begin with \\x93NUMPY");
    if (bytes[6] < 1 || bytes[6] > 3)
        return plsh_fail(in->error, PLSH_STATUS_UNSUPPORTED,
                         "%s: .npy format version %d; 1 to 3 are read", in->name, bytes[6]);
    *start = bytes[6] == 1 ? 10 : 12;
    if (size < *start) return bad(in, "it ends inside its header");
    *length = bytes[8] | (size_t)bytes[9] << 8;
    if (bytes[6] > 1) *length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (*length > HEADER_MOST) return bad(in, "its header is longer than 65536 bytes");
    return PLSH_STATUS_OK;
}

/* The header's dict, and what it means for the `rest` bytes that follow it. */
static plsh_status parse_header(reader *in, const char *header, size_t length, size_t rest,
                                plsh_npy *out, size_t *bytes) {
    in->at = header;
    in->end = header + length;
    plsh_status status = parse_dict(in, out);
    if (status == PLSH_STATUS_OK) status = count_values(in, out, bytes);
    if (status != PLSH_STATUS_OK) return status;
    if (*bytes != rest)
        return plsh_fail(in->error, PLSH_STATUS_FORMAT,
                         "%s: its shape needs %zu bytes of data, the file has %zu", in->name,
                         *bytes, rest);
    return PLSH_STATUS_OK;
}

plsh_status plsh_npy_parse(const void *bytes, size_t size, const char *name, plsh_npy *out,
                           plsh_error *error) {
    *out = (plsh_npy){0};
    plsh_npy array = {0};
    reader in = {.name = name, .error = error};
    size_t start = 0, length = 0, data = 0;
    plsh_status status = parse_prefix(bytes, size, &in, &start, &length);
    if (status != PLSH_STATUS_OK) return status;
    if (length > size - start) return bad(&in, "it ends inside its header");
    size_t rest = size - start - length;
    status = parse_header(&in, (const char *)bytes + start, length, rest, &array, &data);
    if (status == PLSH_STATUS_OK) status = plsh_allocate(&array.data, data, 1, name, error);
    if (status != PLSH_STATUS_OK) return status;
    memcpy(array.data, (const char *)bytes + start + length, data);
    *out = array;
    return PLSH_STATUS_OK;
}

/* ---- Files ---- */

static plsh_status read_fully(int descriptor, void *out, size_t size, const reader *in) {
    char *next = out;
    while (size > 0) {
        ssize_t got = read(descriptor, next, size < (1 << 30) ? size : 1 << 30);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return plsh_fail(in->error, PLSH_STATUS_IO, "%s: cannot read: %s", in->name,
                             strerror(errno));
        if (got == 0) return bad(in, "it ends too early");
        next += got;
        size -= (size_t)got;
    }
    return PLSH_STATUS_OK;
}

/* The data is read straight to its place: no second copy of a large file. */
static plsh_status read_array(int descriptor, size_t size, reader *in, plsh_npy *out) {
    unsigned char prefix[PREFIX_MOST];
    size_t start = 0, length = 0, data = 0;
    size_t first = size < sizeof prefix ? size : sizeof prefix;
    plsh_status status = read_fully(descriptor, prefix, first, in);
    if (status == PLSH_STATUS_OK) status = parse_prefix(prefix, first, in, &start, &length);
    if (status != PLSH_STATUS_OK) return status;
    if (length > size - start) return bad(in, "it ends inside its header");
    void *header;
    status = plsh_allocate(&header, length + 1, 1, in->name, in->error);
    if (status != PLSH_STATUS_OK) return status;
    if (lseek(descriptor, (off_t)start, SEEK_SET) < 0)
        status = plsh_fail(in->error, PLSH_STATUS_IO, "%s: cannot seek", in->name);
    if (status == PLSH_STATUS_OK) status = read_fully(descriptor, header, length, in);
    if (status == PLSH_STATUS_OK)
        status = parse_header(in, header, length, size - start - length, out, &data);
    plsh_release(header);
    if (status == PLSH_STATUS_OK) status = plsh_allocate(&out->data, data, 1, in->name, in->error);
    if (status == PLSH_STATUS_OK) status = read_fully(descriptor, out->data, data, in);
    return status;
}

plsh_status plsh_npy_read(const char *path, plsh_npy *out, plsh_error *error) {
    *out = (plsh_npy){0};
    plsh_npy array = {0};
    reader in = {.name = path, .error = error};
    struct stat about;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return plsh_fail(error, PLSH_STATUS_IO, "%s: cannot open: %s", path, strerror(errno));
    plsh_status status;
    if (fstat(descriptor, &about) != 0)
        status = plsh_fail(error, PLSH_STATUS_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(about.st_mode))
        status = plsh_fail(error, PLSH_STATUS_IO, "%s: not a regular file", path);
    else
        status = read_array(descriptor, (size_t)about.st_size, &in, &array);
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
    memcpy(out, magic, sizeof magic);
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
    reader in = {.name = path, .error = error};
    for (int d = 0; d < rank; d++) {
        if (shape[d] < 0)
            return plsh_fail(error, PLSH_STATUS_INVALID, "%s: dimension %d is %lld", path, d,
                             (long long)shape[d]);
        about.shape[d] = shape[d];
    }
    size_t bytes = 0;
    plsh_status status = count_values(&in, &about, &bytes);
    if (status != PLSH_STATUS_OK) return status;
    char header[512];
    size_t length = format_header(header, type, rank, shape);
    status = plsh_file_write(file, header, length, error);
    return status == PLSH_STATUS_OK ? plsh_file_write(file, data, bytes, error) : status;
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
