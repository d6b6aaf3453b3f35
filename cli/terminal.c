/* cli: text of files and models on a terminal. */
#include "cli/terminal.h"

#include <unistd.h>

/* Bytes of the control character that begins here; 0: none does. C1, U+0080 to U+009F, has two. */
static size_t control_length(const unsigned char *bytes, size_t length) {
    if (bytes[0] < 0x20 || bytes[0] == 0x7f) return 1;
    return length > 1 && bytes[0] == 0xc2 && bytes[1] >= 0x80 && bytes[1] <= 0x9f ? 2 : 0;
}

/* To a terminal. */
static bool write_visible(FILE *out, const char *text, size_t length, bool lines) {
    const unsigned char *bytes = (const unsigned char *)text;
    size_t from = 0; /* bytes before this are written */
    for (size_t at = 0; at < length;) {
        const size_t size = control_length(bytes + at, length - at);
        if (size == 0 || bytes[at] == '\t' || (bytes[at] == '\n' && lines)) {
            at++;
            continue;
        }
        if (fwrite(bytes + from, 1, at - from, out) != at - from) return false;
        if (fprintf(out, "\\u%04x", bytes[at + size - 1]) < 0) return false;
        at += size;
        from = at;
    }
    return fwrite(bytes + from, 1, length - from, out) == length - from;
}

bool cli_write_text(FILE *out, const char *bytes, size_t length, bool lines) {
    if (isatty(fileno(out))) return write_visible(out, bytes, length, lines);
    return fwrite(bytes, 1, length, out) == length;
}
