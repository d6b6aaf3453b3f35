/* text: normalizers. */
#include "text/normalize.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

static void free_step(plsh_normalizer *step) {
    plsh_text_free(&step->content);
    plsh_pattern_free(step->pattern);
}

plsh_status plsh_normalizers_add(plsh_normalizers *n, plsh_normalizer step, plsh_error *error) {
    if (n->count == PLSH_NORMALIZERS_MOST) {
        free_step(&step);
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "more than %d normalizers",
                         PLSH_NORMALIZERS_MOST);
    }
    if (n->count == n->capacity) {
        plsh_normalizer *grown;
        const size_t capacity = n->count < 4 ? 8 : 2 * n->count;
        plsh_status status =
            plsh_allocate((void **)&grown, capacity, sizeof *grown, "normalizers", error);
        if (status != PLSH_STATUS_OK) {
            free_step(&step);
            return status;
        }
        if (n->count > 0) memcpy(grown, n->steps, n->count * sizeof *grown);
        plsh_release(n->steps);
        n->steps = grown;
        n->capacity = capacity;
    }
    n->steps[n->count++] = step;
    return plsh_text_status(&step.content, error);
}

void plsh_normalizers_free(plsh_normalizers *n) {
    for (size_t i = 0; i < n->count; i++) free_step(&n->steps[i]);
    plsh_release(n->steps);
    *n = (plsh_normalizers){0};
}

void plsh_normalize_work_free(plsh_normalize_work *work) {
    plsh_text_free(&work->even);
    plsh_text_free(&work->odd);
    plsh_search_free(&work->search);
}

/* ---- bytes as letters ---- */

/* Visible characters of Latin-1 stand for themselves, the other bytes for U+0100 and up, in order.
 */
static bool is_visible(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/* The bytes that are not visible, in order: 00 to 20, 7F to A0, AD. */
static uint32_t letter_of_byte(int byte) {
    if (is_visible(byte)) return (uint32_t)byte;
    return 0x100u + (uint32_t)(byte <= 0x20 ? byte : byte <= 0xA0 ? byte - 0x7F + 0x21 : 0x43);
}

int plsh_byte_of_letter(uint32_t c) {
    if (c < 0x100) return is_visible((int)c) ? (int)c : -1;
    if (c <= 0x120) return (int)c - 0x100;
    if (c <= 0x142) return (int)c - 0x121 + 0x7F;
    return c == 0x143 ? 0xAD : -1;
}

void plsh_byte_letters_append(plsh_text *out, const char *bytes, size_t length) {
    if (length > SIZE_MAX / 4 || !plsh_text_reserve(out, 2 * length)) {
        if (out->failure.status == PLSH_STATUS_OK)
            plsh_fail(&out->failure, PLSH_STATUS_OVERFLOW, "a text of %zu bytes", length);
        return;
    }
    char *at = out->bytes + out->length;
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        if (byte >= '!' && byte <= '~')
            *at++ = (char)byte;
        else
            at += plsh_utf8_put(at, letter_of_byte(byte));
    }
    out->length = (size_t)(at - out->bytes);
}

/* ---- single characters ---- */

static bool is_chinese(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

enum { DROPPED = -1 };

/* The result of the normalizer Nmt for a character. */
static int64_t nmt(uint32_t c) {
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
        c == 0x9F)
        return DROPPED;
    if (c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
        (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
        c == 0xFFFD)
        return ' ';
    return c;
}

/* The character instead of c, for the steps that map one to one. */
static int64_t map_character(const plsh_normalizer *step, uint32_t c) {
    switch (step->kind) {
    case PLSH_NORMALIZER_DROP: return plsh_unicode_is(step->drop, c) ? DROPPED : (int64_t)c;
    case PLSH_NORMALIZER_CLEAN:
        if (plsh_unicode_is(PLSH_CLASS_CONTROL, c)) return DROPPED;
        return plsh_unicode_is(PLSH_CLASS_WHITESPACE, c) ? ' ' : (int64_t)c;
    case PLSH_NORMALIZER_NMT: return nmt(c);
    default: return c;
    }
}

static void map_characters(const plsh_normalizer *step, const char *bytes, size_t length,
                           plsh_text *out, bool *moved) {
    for (size_t i = 0, size; i < length; i += size) {
        const uint32_t c = plsh_utf8_next(bytes + i, &size);
        if (step->kind == PLSH_NORMALIZER_LOWERCASE) {
            if (c < 0x80)
                plsh_utf8_append(out, c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
            else
                plsh_unicode_lower(out, c);
            continue;
        }
        if (step->kind == PLSH_NORMALIZER_CHINESE) {
            const bool chinese = is_chinese(c);
            if (chinese) plsh_text_append(out, " ", 1);
            plsh_utf8_append(out, c);
            if (chinese) plsh_text_append(out, " ", 1);
            continue;
        }
        const int64_t mapped = map_character(step, c);
        if (mapped == DROPPED)
            *moved = *moved || i == 0;
        else
            plsh_utf8_append(out, (uint32_t)mapped);
    }
}

/* ---- steps ---- */

static void strip(const plsh_normalizer *step, const char **bytes, size_t *length, bool *moved) {
    size_t begin = 0, end = *length, size;
    while (step->left && begin < end &&
           plsh_unicode_is(PLSH_CLASS_WHITESPACE, plsh_utf8_next(*bytes + begin, &size)))
        begin += size;
    while (step->right && end > begin &&
           plsh_unicode_is(PLSH_CLASS_WHITESPACE,
                           plsh_utf8_next(*bytes + plsh_utf8_before(*bytes, end), &size)))
        end = plsh_utf8_before(*bytes, end);
    *moved = *moved || begin > 0;
    *bytes += begin;
    *length = end - begin;
}

static plsh_status replace(const plsh_normalizer *step, plsh_search *search, const char *bytes,
                           size_t length, plsh_text *out, bool *moved, plsh_error *error) {
    plsh_matches matches = plsh_matches_begin(step->pattern, search, bytes, length);
    size_t done = 0, begin, end;
    for (bool found = true; length > 0;) {
        const plsh_status status = plsh_matches_next(&matches, &begin, &end, &found, error);
        if (status != PLSH_STATUS_OK) return status;
        if (!found) break;
        *moved = *moved || (begin == 0 && end > 0 && step->content.length == 0);
        plsh_text_append(out, bytes + done, begin - done);
        plsh_text_append(out, step->content.bytes, step->content.length);
        done = end;
    }
    plsh_text_append(out, bytes + done, length - done);
    return PLSH_STATUS_OK;
}

static plsh_status apply(const plsh_normalizer *step, plsh_search *search, const char *bytes,
                         size_t length, plsh_text *out, bool *moved, plsh_error *error) {
    switch (step->kind) {
    case PLSH_NORMALIZER_FORM: return plsh_unicode_normalize(out, bytes, length, step->form, error);
    case PLSH_NORMALIZER_PREPEND:
        if (length > 0) plsh_text_append(out, step->content.bytes, step->content.length);
        plsh_text_append(out, bytes, length);
        return PLSH_STATUS_OK;
    case PLSH_NORMALIZER_REPLACE: return replace(step, search, bytes, length, out, moved, error);
    case PLSH_NORMALIZER_BYTE_LEVEL:
        plsh_byte_letters_append(out, bytes, length);
        return PLSH_STATUS_OK;
    default: map_characters(step, bytes, length, out, moved); return PLSH_STATUS_OK;
    }
}

plsh_status plsh_normalize(const plsh_normalizers *n, plsh_normalize_work *work, const char **bytes,
                           size_t *length, bool *moved, plsh_error *error) {
    const size_t given = *length;
    bool even = true;
    *moved = false;
    work->even.limit = work->odd.limit = plsh_text_most(given);
    for (size_t i = 0; i < n->count; i++) {
        if (n->steps[i].kind == PLSH_NORMALIZER_STRIP) {
            strip(&n->steps[i], bytes, length, moved);
            continue;
        }
        plsh_text *out = even ? &work->even : &work->odd; /* never the one that is read */
        even = !even;
        plsh_text_clear(out);
        plsh_text_reserve(out, *length);
        plsh_status status = apply(&n->steps[i], &work->search, *bytes, *length, out, moved, error);
        if (out->failure.status == PLSH_STATUS_UNSUPPORTED)
            return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                             "the normalizers make more than %zu bytes of a text of %zu",
                             out->limit, given);
        if (status == PLSH_STATUS_OK) status = plsh_text_status(out, error);
        if (status != PLSH_STATUS_OK) return status;
        *bytes = out->bytes != NULL ? out->bytes : "";
        *length = out->length;
    }
    return PLSH_STATUS_OK;
}
