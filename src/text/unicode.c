/* text: Unicode properties of characters, as in the Hugging Face tokenizers library. */
#include "text/unicode.h"

#include <stdlib.h>

#include <utf8proc.h>

#include "base/memory.h"
#include "text/unicode_tables.h"

static bool in_ranges(const plsh_code_points *ranges, size_t count, uint32_t c) {
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (c > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && c >= ranges[low].first;
}

static bool is_whitespace(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

#define IN(table) in_ranges(table, sizeof(table) / sizeof *(table), c)

bool plsh_unicode_is(plsh_class which, uint32_t c) {
    switch (which) {
    case PLSH_CLASS_WHITESPACE: return is_whitespace(c);
    case PLSH_CLASS_NUMERIC: return c < 0x80 ? c >= '0' && c <= '9' : IN(numeric_ranges);
    case PLSH_CLASS_PUNCTUATION: return IN(punctuation_ranges);
    case PLSH_CLASS_CONTROL: return c >= ' ' && c < 0x7F ? false : IN(control_ranges);
    case PLSH_CLASS_NONSPACING: return c >= 0x300 && IN(nonspacing_ranges);
    case PLSH_CLASS_COMBINING: return c >= 0x300 && IN(combining_ranges);
    case PLSH_CLASS_WORD: return IN(word_ranges);
    }
    return false;
}

void plsh_unicode_lower(plsh_text *out, uint32_t c) {
    if (c == 0x130) { /* the only character whose lower case is longer: i and a dot above */
        plsh_text_append(out, "i\xCC\x87", 3);
        return;
    }
    plsh_utf8_append(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

/* ---- normalisation forms ---- */

/* A decomposed character and the order of its class; stable in the place where it stood. */
typedef struct mark {
    utf8proc_int32_t c;
    int order;
    size_t place;
} mark;

static int compare_marks(const void *x, const void *y) {
    const mark *a = x, *b = y;
    if (a->order != b->order) return a->order < b->order ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static int combining_class(utf8proc_int32_t c) {
    return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class;
}

/* Canonical order: within each run of marks of nonzero class, sorted by class. n log n for long
 * runs. */
static plsh_status order_marks(utf8proc_int32_t *c, size_t count, plsh_error *error) {
    for (size_t begin = 0; begin < count; begin++) {
        if (combining_class(c[begin]) == 0) continue;
        size_t end = begin + 1;
        bool sorted = true;
        for (; end < count && combining_class(c[end]) != 0; end++)
            sorted = sorted && combining_class(c[end - 1]) <= combining_class(c[end]);
        if (!sorted) {
            mark *run;
            plsh_status status =
                plsh_allocate((void **)&run, end - begin, sizeof *run, "combining marks", error);
            if (status != PLSH_STATUS_OK) return status;
            for (size_t i = begin; i < end; i++)
                run[i - begin] = (mark){c[i], combining_class(c[i]), i};
            qsort(run, end - begin, sizeof *run, compare_marks);
            for (size_t i = begin; i < end; i++) c[i] = run[i - begin].c;
            plsh_release(run);
        }
        begin = end - 1;
    }
    return PLSH_STATUS_OK;
}

/* Characters that have a decomposition now and had none when the library's tables were made. */
static bool is_newly_decomposed(uint32_t c) {
    static const plsh_code_points newly[] = {
        {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},   {0x10781, 0x10785},
        {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x11938, 0x11938}, {0x1E030, 0x1E06D},
        {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
    };
    return c >= 0x32FF && in_ranges(newly, sizeof newly / sizeof *newly, c);
}

/* The decomposition of a character; how many it has, `room` or less of which were written. */
static size_t decompose(uint32_t c, utf8proc_int32_t *out, size_t room, int option) {
    const utf8proc_ssize_t count =
        is_newly_decomposed(c) ? 0
                               : utf8proc_decompose_char((utf8proc_int32_t)c, out,
                                                         (utf8proc_ssize_t)room, option, NULL);
    if (count > 0) return (size_t)count;
    if (room > 0) out[0] = (utf8proc_int32_t)c;
    return 1;
}

enum { LONGEST_DECOMPOSITION = 18 }; /* U+FDFA, by compatibility */

static plsh_status normalize_span(plsh_text *out, const char *bytes, size_t length, plsh_form form,
                                  plsh_error *error) {
    const bool compatible = form == PLSH_FORM_NFKC || form == PLSH_FORM_NFKD;
    const bool composed = form == PLSH_FORM_NFC || form == PLSH_FORM_NFKC;
    int option = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    /* Counts first: most characters have no decomposition. */
    utf8proc_int32_t one[LONGEST_DECOMPOSITION], *c;
    size_t count = 0, size;
    for (size_t i = 0; i < length; i += size) {
        count += decompose(plsh_utf8_next(bytes + i, &size), one, LONGEST_DECOMPOSITION, option);
    }
    plsh_status status = plsh_allocate((void **)&c, count + 1, sizeof *c, "characters", error);
    if (status != PLSH_STATUS_OK) return status;
    size_t used = 0;
    for (size_t i = 0; i < length; i += size) {
        used += decompose(plsh_utf8_next(bytes + i, &size), c + used, count - used, option);
    }
    status = order_marks(c, used, error);
    if (composed && status == PLSH_STATUS_OK)
        used = (size_t)utf8proc_normalize_utf32(c, (utf8proc_ssize_t)used,
                                                UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (size_t i = 0; i < used && status == PLSH_STATUS_OK; i++)
        plsh_utf8_append(out, (uint32_t)c[i]);
    plsh_release(c);
    return status;
}

plsh_status plsh_unicode_normalize(plsh_text *out, const char *bytes, size_t length, plsh_form form,
                                   plsh_error *error) {
    /* ASCII text is normalised in every form, except that a mark may combine with its last
     * character. */
    size_t at = 0;
    plsh_status status = PLSH_STATUS_OK;
    while (at < length && status == PLSH_STATUS_OK) {
        size_t end = at;
        while (end < length && (unsigned char)bytes[end] < 0x80) end++;
        if (end < length && end > at) end--;
        plsh_text_append(out, bytes + at, end - at);
        at = end;
        /* The rest, up to an ASCII character that another one follows. */
        while (end < length && ((unsigned char)bytes[end] >= 0x80 || end == at ||
                                (end + 1 < length && (unsigned char)bytes[end + 1] >= 0x80)))
            end++;
        if (end > at) status = normalize_span(out, bytes + at, end - at, form, error);
        at = end;
    }
    return status == PLSH_STATUS_OK ? plsh_text_status(out, error) : status;
}

void plsh_unicode_newer(plsh_text *out, const char *category, size_t length) {
    for (size_t i = 0; i < sizeof newer_ranges / sizeof *newer_ranges; i++) {
        const struct plsh_newer_range *range = &newer_ranges[i];
        if (strncmp(range->category, category, length < 2 ? length : 2) != 0) continue;
        plsh_text_print(out, "\\x{%X}-\\x{%X}", range->first, range->last);
    }
}

bool plsh_unicode_has_newer(const char *bytes, size_t length) {
    const size_t count = sizeof newer_ranges / sizeof *newer_ranges;
    size_t size;
    for (size_t i = 0; i < length; i += size) {
        const unsigned char first = (unsigned char)bytes[i];
        if (first < 0xE0) { /* the first of them is U+0897 */
            size = 1;
            continue;
        }
        const uint32_t c = plsh_utf8_next(bytes + i, &size);
        size_t low = 0, high = count;
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (c > newer_ranges[middle].last)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < count && c >= newer_ranges[low].first) return true;
    }
    return false;
}
