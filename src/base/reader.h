/* base: reading untrusted bytes.
 *
 * A reader walks over bytes in memory (a mapped file, a header) and never leaves them, whatever
 * lengths they announce. The first failure is kept with the offset at which it happened; from then
 * on every read gives 0, NULL or false and moves nothing. So a parser can read several values, and
 * check plsh_reader_status before it uses them. Numbers are little endian. */
#ifndef PLSH_BASE_READER_H
#define PLSH_BASE_READER_H

#include "plsh/status.h"

typedef struct plsh_reader {
    const unsigned char *bytes;
    size_t size, at;    /* at <= size */
    const char *name;   /* of the file, for messages; not copied */
    plsh_error failure; /* status OK while all went well */
} plsh_reader;

plsh_reader plsh_reader_make(const void *bytes, size_t size, const char *name);

static inline bool plsh_reader_is_ok(const plsh_reader *reader) {
    return reader->failure.status == PLSH_STATUS_OK;
}

static inline size_t plsh_reader_left(const plsh_reader *reader) {
    return reader->size - reader->at;
}

/* The failure kept, if any, copied into `error`; otherwise PLSH_STATUS_OK. */
plsh_status plsh_reader_status(const plsh_reader *reader, plsh_error *error);

/* Keeps a failure, "<name>: byte <offset>: <message>", unless there is one already. Returns the
 * status of the one that is kept. */
plsh_status plsh_reader_fail(plsh_reader *reader, plsh_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- What comes next. `what` names it in the message: "the header". ---- */

/* So many bytes, in place; NULL where fewer are left. */
const void *plsh_reader_take(plsh_reader *reader, size_t size, const char *what);

/* An unsigned number of 1, 2, 4 or 8 bytes. */
uint64_t plsh_reader_number(plsh_reader *reader, int width, const char *what);

static inline uint32_t plsh_reader_u32(plsh_reader *reader, const char *what) {
    return (uint32_t)plsh_reader_number(reader, 4, what);
}

static inline uint64_t plsh_reader_u64(plsh_reader *reader, const char *what) {
    return plsh_reader_number(reader, 8, what);
}

/* A number that says how many things follow, each of `least` bytes or more (least > 0): refused
 * where the bytes left cannot hold them, so that memory may be allocated by it. */
size_t plsh_reader_count(plsh_reader *reader, int width, size_t least, const char *what);

/* A number of bytes, and so many bytes, in place and without a zero at the end. */
const char *plsh_reader_string(plsh_reader *reader, int width, size_t *length, const char *what);

/* Moves to an offset; to the next multiple of `alignment` > 0. */
bool plsh_reader_seek(plsh_reader *reader, uint64_t offset, const char *what);
bool plsh_reader_align(plsh_reader *reader, uint64_t alignment, const char *what);

/* ---- Text. A mismatch is not a failure: the caller may try something else. ---- */

/* The next byte, -1 at the end or after a failure. */
static inline int plsh_reader_peek(const plsh_reader *reader) {
    return plsh_reader_is_ok(reader) && reader->at < reader->size ? reader->bytes[reader->at] : -1;
}

/* Steps over this text if it comes next. */
bool plsh_reader_accept(plsh_reader *reader, const char *text);

/* Steps over blanks, tabs and ends of lines. */
void plsh_reader_skip_blanks(plsh_reader *reader);

#endif
