/* text: characters in UTF-8. */
#include "text/utf8.h"

/* Of the character that begins at b, `left` bytes at most: its length, or minus the length of the
 * maximal part that could begin one. */
static int check_character(const unsigned char *b, size_t left) {
    static const struct {
        unsigned char first, last, second_least, second_most;
        int size;
    } forms[] = {
        {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
        {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
        {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (b[0] < forms[i].first || b[0] > forms[i].last) continue;
        if (left < 2 || b[1] < forms[i].second_least || b[1] > forms[i].second_most) return -1;
        for (int k = 2; k < forms[i].size; k++)
            if ((size_t)k >= left || (b[k] & 0xC0) != 0x80) return -k;
        return forms[i].size;
    }
    return -1;
}

size_t plsh_utf8_valid(const char *bytes, size_t length, size_t *invalid) {
    const unsigned char *b = (const unsigned char *)bytes;
    size_t i = 0;
    *invalid = 0;
    while (i < length) {
        uint64_t eight;
        if (i + 8 <= length && (memcpy(&eight, b + i, 8), (eight & 0x8080808080808080u) == 0)) {
            i += 8;
        } else if (b[i] < 0x80) {
            i++;
        } else {
            const int size = check_character(b + i, length - i);
            if (size < 0) return *invalid = (size_t)-size, i;
            i += (size_t)size;
        }
    }
    return i;
}

void plsh_utf8_append_lossy(plsh_text *text, const char *bytes, size_t length) {
    while (length > 0) {
        size_t invalid;
        const size_t valid = plsh_utf8_valid(bytes, length, &invalid);
        plsh_text_append(text, bytes, valid);
        if (invalid > 0) plsh_text_append(text, "\xEF\xBF\xBD", 3);
        bytes += valid + invalid;
        length -= valid + invalid;
    }
}
