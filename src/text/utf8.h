/* text: characters in UTF-8. */
#ifndef PLSH_TEXT_UTF8_H
#define PLSH_TEXT_UTF8_H

#include "base/text.h"

#include <string.h>

enum { PLSH_UTF8_MOST = 4 }; /* bytes of one character */

/* The character at bytes[0] of valid UTF-8; *size is its length in bytes. */
static inline uint32_t plsh_utf8_next(const char *bytes, size_t *size) {
    const unsigned char *b = (const unsigned char *)bytes;
    if (b[0] < 0x80) return *size = 1, b[0];
    if (b[0] < 0xE0) return *size = 2, (b[0] & 0x1Fu) << 6 | (b[1] & 0x3Fu);
    if (b[0] < 0xF0) return *size = 3, (b[0] & 0x0Fu) << 12 | (b[1] & 0x3Fu) << 6 | (b[2] & 0x3Fu);
    *size = 4;
    return (b[0] & 0x07u) << 18 | (b[1] & 0x3Fu) << 12 | (b[2] & 0x3Fu) << 6 | (b[3] & 0x3Fu);
}

/* Length of the character that begins with this byte. */
static inline size_t plsh_utf8_size(char first) {
    const unsigned char b = (unsigned char)first;
    return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

/* Where the character that ends before `end` begins; end > 0. */
static inline size_t plsh_utf8_before(const char *bytes, size_t end) {
    do end--;
    while (end > 0 && ((unsigned char)bytes[end] & 0xC0) == 0x80);
    return end;
}

/* Writes a character; returns its length. */
static inline size_t plsh_utf8_put(char out[PLSH_UTF8_MOST], uint32_t c) {
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) return out[0] = (char)(0xC0 | c >> 6), out[1] = (char)(0x80 | (c & 0x3F)), 2;
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

static inline void plsh_utf8_append(plsh_text *text, uint32_t c) {
    if (!plsh_text_reserve(text, PLSH_UTF8_MOST)) return;
    text->length += plsh_utf8_put(text->bytes + text->length, c);
}

/* How many bytes from the first are valid UTF-8; and, where they are not all, the length of the
 * invalid part that follows (the maximal subpart of Unicode, 3.9: one to three bytes). */
size_t plsh_utf8_valid(const char *bytes, size_t length, size_t *invalid);

/* Appends the bytes; every maximal invalid part becomes one U+FFFD. */
void plsh_utf8_append_lossy(plsh_text *text, const char *bytes, size_t length);

#endif
