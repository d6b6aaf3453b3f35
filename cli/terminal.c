/* cli: text of files and models on a terminal. */
#include "cli/message.h"

#include <unistd.h>

/* Bytes of the character that begins here, if it has to be escaped; otherwise 0. C1, U+0080
 * to U+009F, has two. The characters that reverse what follows have three: U+202A to U+202E and
 * U+2066 to U+2069. */
static size_t control_length(const unsigned char *bytes, size_t length, unsigned *code) {
    *code = bytes[0];
    if (bytes[0] < 0x20 || bytes[0] == 0x7f) return 1;
    if (length > 1 && bytes[0] == 0xc2 && bytes[1] >= 0x80 && bytes[1] <= 0x9f) {
        *code = bytes[1];
        return 2;
    }
    if (length < 3 || bytes[0] != 0xe2 || (bytes[1] != 0x80 && bytes[1] != 0x81)) return 0;
    *code = 0x2000u | (bytes[1] & 1u) << 6 | (bytes[2] & 0x3fu);
    const bool turns = (*code >= 0x202a && *code <= 0x202e) || (*code >= 0x2066 && *code <= 0x2069);
    return turns ? 3 : 0;
}

/* To a terminal. */
static bool write_visible(FILE *out, const char *text, size_t length, bool lines) {
    const unsigned char *bytes = (const unsigned char *)text;
    size_t from = 0; /* bytes before this are written */
    for (size_t at = 0; at < length;) {
        unsigned code;
        const size_t size = control_length(bytes + at, length - at, &code);
        if (size == 0 || bytes[at] == '\t' || (bytes[at] == '\n' && lines)) {
            at++;
            continue;
        }
        if (fwrite(bytes + from, 1, at - from, out) != at - from) return false;
        if (fprintf(out, "\\u%04x", code) < 0) return false;
        at += size;
        from = at;
    }
    return fwrite(bytes + from, 1, length - from, out) == length - from;
}

bool cli_write_text(FILE *out, const char *bytes, size_t length, bool lines) {
    if (isatty(fileno(out))) return write_visible(out, bytes, length, lines);
    return fwrite(bytes, 1, length, out) == length;
}
