/* base: reading untrusted bytes. */
#include "base/reader.h"

#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

plsh_reader plsh_reader_make(const void *bytes, size_t size, const char *name) {
    return (plsh_reader){.bytes = bytes, .size = size, .name = name};
}

plsh_status plsh_reader_status(const plsh_reader *reader, plsh_error *error) {
    if (!plsh_reader_is_ok(reader) && error != NULL) *error = reader->failure;
    return reader->failure.status;
}

plsh_status plsh_reader_fail(plsh_reader *reader, plsh_status status, const char *format, ...) {
    if (!plsh_reader_is_ok(reader)) return reader->failure.status;
    char message[sizeof reader->failure.message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return plsh_fail(&reader->failure, status, "%.100s: byte %zu: %.140s", reader->name, reader->at,
                     message);
}

static bool is_short(plsh_reader *reader, uint64_t size, const char *what) {
    if (!plsh_reader_is_ok(reader)) return true;
    if (size <= plsh_reader_left(reader)) return false;
    plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                     "the file ends too early: %s needs %llu bytes, %zu are left", what,
                     (unsigned long long)size, plsh_reader_left(reader));
    return true;
}

const void *plsh_reader_take(plsh_reader *reader, size_t size, const char *what) {
    if (is_short(reader, size, what)) return NULL;
    const unsigned char *bytes = reader->bytes + reader->at;
    reader->at += size;
    return bytes;
}

uint64_t plsh_reader_number(plsh_reader *reader, int width, const char *what) {
    const unsigned char *bytes = plsh_reader_take(reader, (size_t)width, what);
    uint64_t value = 0;
    for (int i = 0; bytes != NULL && i < width; i++) value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

/* Messages give the offset of the number, not of its end. */
size_t plsh_reader_count(plsh_reader *reader, int width, size_t least, const char *what) {
    size_t begin = reader->at;
    uint64_t count = plsh_reader_number(reader, width, what);
    size_t left = plsh_reader_left(reader);
    if (!plsh_reader_is_ok(reader) || count <= left / least) return (size_t)count;
    reader->at = begin;
    plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                     "%s: %llu of at least %zu bytes each, but only %zu bytes follow", what,
                     (unsigned long long)count, least, left);
    return 0;
}

const char *plsh_reader_string(plsh_reader *reader, int width, size_t *length, const char *what) {
    *length = plsh_reader_count(reader, width, 1, what);
    return plsh_reader_take(reader, *length, what);
}

bool plsh_reader_seek(plsh_reader *reader, uint64_t offset, const char *what) {
    if (!plsh_reader_is_ok(reader)) return false;
    if (offset > reader->size) {
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "%s is at byte %llu of %zu", what,
                         (unsigned long long)offset, reader->size);
        return false;
    }
    reader->at = (size_t)offset;
    return true;
}

bool plsh_reader_align(plsh_reader *reader, uint64_t alignment, const char *what) {
    uint64_t beyond = reader->at % alignment;
    if (beyond == 0) return plsh_reader_is_ok(reader);
    if (is_short(reader, alignment - beyond, what)) return false;
    reader->at += (size_t)(alignment - beyond);
    return true;
}

bool plsh_reader_accept(plsh_reader *reader, const char *text) {
    size_t length = strlen(text);
    if (!plsh_reader_is_ok(reader) || length > plsh_reader_left(reader)) return false;
    if (memcmp(reader->bytes + reader->at, text, length) != 0) return false;
    reader->at += length;
    return true;
}

void plsh_reader_skip_blanks(plsh_reader *reader) {
    for (int c; (c = plsh_reader_peek(reader)) == ' ' || c == '\t' || c == '\n' || c == '\r';)
        reader->at++;
}
