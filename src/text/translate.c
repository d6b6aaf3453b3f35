/* text: regular expressions, from Oniguruma's dialect to PCRE2's.
 *
 * What differs: character classes nest and intersect ([a[bc]], [a-z&&[^b]]); \h is a hexadecimal
 * digit; \s, \w and \b follow White_Space and Word of Unicode; x{1,3}+ repeats x{1,3} and is not
 * possessive; (?m) lets the point match ends of lines; (?i) holds to the end of its group, over |.
 */
#include "text/pattern.h"

#include <stdio.h>

#include "base/status.h"

enum {
    DEEPEST = 200,      /* groups and classes within each other */
    REPEATS_MOST = 1000 /* that a repeat may ask for at least: they are not counted as steps */
};

typedef struct translation {
    const char *from;
    size_t length, at;
    plsh_text *out;
    bool newer;
    bool extended; /* (?x): blanks and comments do not count */
    int depth;
    int classes; /* within each other; \w is another set outside of all */
    const char *what;
    plsh_error *error;
} translation;

static plsh_status refuse(translation *t, const char *problem) {
    return plsh_fail(t->error, PLSH_STATUS_UNSUPPORTED, "%s: regular expression, byte %zu: %s",
                     t->what, t->at, problem);
}

static int peek(const translation *t, size_t ahead) {
    return t->at + ahead < t->length ? (unsigned char)t->from[t->at + ahead] : -1;
}

static bool accept(translation *t, const char *text) {
    const size_t length = strlen(text);
    if (t->length - t->at < length || memcmp(t->from + t->at, text, length) != 0) return false;
    t->at += length;
    return true;
}

static void emit(translation *t, const char *text) { plsh_text_append(t->out, text, strlen(text)); }

static void emit_character(plsh_text *out, uint32_t c) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        plsh_text_print(out, "%c", (int)c);
    else
        plsh_text_print(out, "\\x{%X}", c);
}

static uint32_t take_character(translation *t) {
    size_t size;
    const uint32_t c = plsh_utf8_next(t->from + t->at, &size);
    t->at += size;
    return c;
}

static int hex_value(int c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static uint32_t take_hex(translation *t, int most) {
    uint32_t value = 0;
    for (int i = 0; i < most && hex_value(peek(t, 0)) >= 0; i++)
        value = value << 4 | (uint32_t)hex_value(peek(t, 0)), t->at++;
    return value;
}

/* ---- escapes ---- */

typedef enum escape { ESCAPE_CHARACTER, ESCAPE_SET, ESCAPE_OTHER } escape;

/* A character by its number: \xHH, \x{H..}, \uHHHH, \0OO. */
static plsh_status take_number(translation *t, int letter, uint32_t *c) {
    if (letter == 'x' && accept(t, "{")) {
        *c = take_hex(t, 6);
        if (!accept(t, "}")) return refuse(t, "\\x{ has no end");
    } else if (letter == 'x' || letter == 'u') {
        *c = take_hex(t, letter == 'x' ? 2 : 4);
    } else {
        for (*c = 0; peek(t, 0) >= '0' && peek(t, 0) <= '7' && *c < 8;)
            *c = *c << 3 | (uint32_t)(peek(t, 0) - '0'), t->at++;
    }
    if (*c > 0x10FFFF || (*c >= 0xD800 && *c < 0xE000)) return refuse(t, "no such character");
    return PLSH_STATUS_OK;
}

/* Oniguruma's \w has some numbers of Latin-1 outside of classes. */
static const char *word_name(const translation *t) { return t->classes > 0 ? "word" : "\\w"; }

/* \p{Name}, \p{^Name}, \P{Name}: the set as items of a class. */
static plsh_status take_property(translation *t, plsh_text *items, bool *negated) {
    if (!accept(t, "{")) return refuse(t, "\\p without {");
    if (accept(t, "^")) *negated = !*negated;
    const size_t begin = t->at;
    while (peek(t, 0) >= 0 && peek(t, 0) != '}') t->at++;
    const size_t length = t->at - begin;
    if (!accept(t, "}")) return refuse(t, "\\p{ has no end");
    if (!plsh_property_items(items, t->from + begin, length, t->newer))
        return plsh_fail(t->error, PLSH_STATUS_UNSUPPORTED,
                         "%s: regular expression: there is no property \"%.*s\"", t->what,
                         (int)(length < 60 ? length : 60), t->from + begin);
    return PLSH_STATUS_OK;
}

/* After the backslash: a character, a set (its items appended), or something else, which is left
 * where it is. */
static plsh_status take_escape(translation *t, escape *kind, uint32_t *c, plsh_text *items,
                               bool *negated) {
    if (t->at >= t->length) return refuse(t, "a backslash at the end");
    const int letter = peek(t, 0);
    static const char *const names[][2] = {
        {"dD", "nd"}, {"wW", "word"}, {"sS", "space"}, {"hH", "xdigit"}};
    *kind = ESCAPE_SET;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (letter != names[i][0][0] && letter != names[i][0][1]) continue;
        t->at++;
        *negated = letter == names[i][0][1];
        const char *name = letter == 'w' || letter == 'W' ? word_name(t) : names[i][1];
        plsh_property_items(items, name, strlen(name), t->newer);
        return PLSH_STATUS_OK;
    }
    if (letter == 'p' || letter == 'P') {
        t->at++;
        *negated = letter == 'P';
        return take_property(t, items, negated);
    }
    *kind = ESCAPE_CHARACTER;
    const char *controls = "tnrfave", *values = "\t\n\r\f\a\v\x1B";
    const char *control = letter > 0 && letter < 0x80 ? strchr(controls, letter) : NULL;
    if (control != NULL && *control != '\0') {
        t->at++;
        *c = (uint32_t)values[control - controls];
        return PLSH_STATUS_OK;
    }
    if (letter == 'x' || letter == 'u' || letter == '0') {
        t->at++;
        return take_number(t, letter, c);
    }
    if (letter < 0x80 && letter > 0 && strchr("bBAzZGRXKNOkgyY123456789cCM", letter) != NULL) {
        *kind = ESCAPE_OTHER;
        return PLSH_STATUS_OK;
    }
    *c = take_character(t);
    return PLSH_STATUS_OK;
}

/* Everything outside classes that is neither a character nor a set. */
static plsh_status translate_other(translation *t) {
    const int letter = peek(t, 0);
    t->at++;
    if (letter == 'b' || letter == 'B') { /* where a word begins or ends; or does not */
        plsh_text word = {0};
        plsh_property_items(&word, "\\w", 2, t->newer);
        const char *w = word.bytes != NULL ? word.bytes : "";
        plsh_text_print(t->out,
                        letter == 'b' ? "(?:(?<=[%s])(?![%s])|(?<![%s])(?=[%s]))"
                                      : "(?:(?<=[%s])(?=[%s])|(?<![%s])(?![%s]))",
                        w, w, w, w);
        const plsh_status status = plsh_text_status(&word, t->error);
        plsh_text_free(&word);
        return status;
    }
    if (letter == 'R')
        return emit(t, "(?>\\r\\n|[\\n-\\r\\x85\\x{2028}\\x{2029}])"), PLSH_STATUS_OK;
    if (letter == 'N') return emit(t, "(?-s:.)"), PLSH_STATUS_OK;
    if (letter == 'O') return emit(t, "(?s:.)"), PLSH_STATUS_OK;
    if (strchr("AzZGXK", letter) != NULL)
        return plsh_text_print(t->out, "\\%c", letter), PLSH_STATUS_OK;
    if (letter >= '1' && letter <= '9') {
        if (peek(t, 0) >= '0' && peek(t, 0) <= '9') return refuse(t, "references above \\9");
        return plsh_text_print(t->out, "\\g{%c}", letter), PLSH_STATUS_OK;
    }
    if (letter == 'k' && accept(t, "<")) {
        const size_t begin = t->at;
        while (peek(t, 0) >= 0 && peek(t, 0) != '>') t->at++;
        plsh_text_print(t->out, "\\k<%.*s>", (int)(t->at - begin), t->from + begin);
        return accept(t, ">") ? PLSH_STATUS_OK : refuse(t, "\\k< has no end");
    }
    return refuse(t, "this escape is not supported");
}

/* ---- classes ---- */

/* A set of characters: items of a PCRE2 class, or (`complex`) an expression for one character. */
typedef struct set {
    plsh_text items, complex;
} set;

static void set_free(set *s) {
    plsh_text_free(&s->items);
    plsh_text_free(&s->complex);
}

static void set_add_complex(set *s, const plsh_text *expression) {
    if (s->complex.length > 0) plsh_text_append(&s->complex, "|", 1);
    plsh_text_append(&s->complex, expression->bytes, expression->length);
}

static const char *text_of(const plsh_text *text) {
    return text->length > 0 && text->bytes != NULL ? text->bytes : "";
}

/* The expression that matches one character of the set, or outside of it. */
static void set_write(const set *s, bool negated, plsh_text *out) {
    if (s->complex.length == 0) {
        if (s->items.length == 0)
            plsh_text_print(out, negated ? "(?s:.)" : "(?!)");
        else
            plsh_text_print(out, negated ? "[^%s]" : "[%s]", text_of(&s->items));
        return;
    }
    plsh_text_print(out, negated ? "(?:(?!" : "(?:");
    if (s->items.length > 0) plsh_text_print(out, "[%s]|", text_of(&s->items));
    plsh_text_print(out, negated ? "%s)(?s:.))" : "%s)", text_of(&s->complex));
}

static plsh_status translate_class(translation *t, plsh_text *out, bool *simple, plsh_text *items);

/* [:name:] and [:^name:], where one comes next. */
static plsh_status take_posix(translation *t, set *s, bool *taken) {
    const char *end =
        t->at + 2 < t->length ? memmem(t->from + t->at + 2, t->length - t->at - 2, ":]", 2) : NULL;
    *taken = peek(t, 0) == '[' && peek(t, 1) == ':' && end != NULL && end - t->from - t->at < 20;
    if (!*taken) return PLSH_STATUS_OK;
    t->at += 2;
    const bool negated = accept(t, "^");
    const size_t length = (size_t)(end - t->from) - t->at;
    plsh_text items = {0}, whole = {0};
    const bool punct = length == 5 && memcmp(t->from + t->at, "punct", 5) == 0;
    const bool known = plsh_property_items(&items, punct ? "[:punct:]" : t->from + t->at,
                                           punct ? 9 : length, t->newer);
    if (known && negated) {
        plsh_text_print(&whole, "[^%s]", text_of(&items));
        set_add_complex(s, &whole);
    } else if (known) {
        plsh_text_append(&s->items, items.bytes, items.length);
    }
    plsh_status status = plsh_text_status(&items, t->error);
    if (status == PLSH_STATUS_OK) status = plsh_text_status(&whole, t->error);
    plsh_text_free(&items);
    plsh_text_free(&whole);
    if (status != PLSH_STATUS_OK) return status;
    if (!known) return refuse(t, "an unknown [:class:]");
    t->at += length + 2;
    return PLSH_STATUS_OK;
}

/* One member: a character (then *single), or a set that is added. */
static plsh_status take_member(translation *t, set *s, bool *single, uint32_t *c) {
    bool taken = false;
    *single = false;
    plsh_status status = take_posix(t, s, &taken);
    if (status != PLSH_STATUS_OK || taken) return status;
    plsh_text items = {0}, whole = {0};
    if (accept(t, "[")) {
        bool simple;
        status = translate_class(t, &whole, &simple, &items);
        if (simple)
            plsh_text_append(&s->items, text_of(&items), items.length);
        else
            set_add_complex(s, &whole);
    } else if (accept(t, "\\")) {
        escape kind;
        bool negated = false;
        status = take_escape(t, &kind, c, &items, &negated);
        *single = status == PLSH_STATUS_OK && kind == ESCAPE_CHARACTER;
        if (status == PLSH_STATUS_OK && kind == ESCAPE_OTHER) {
            *single = accept(t, "b");
            *c = '\b';
            if (!*single) status = refuse(t, "this escape is not supported in a class");
        } else if (status == PLSH_STATUS_OK && kind == ESCAPE_SET && negated) {
            plsh_text_print(&whole, "[^%s]", text_of(&items));
            set_add_complex(s, &whole);
        } else if (status == PLSH_STATUS_OK && kind == ESCAPE_SET) {
            plsh_text_append(&s->items, text_of(&items), items.length);
        }
    } else {
        *single = true;
        *c = take_character(t);
    }
    if (status == PLSH_STATUS_OK) status = plsh_text_status(&items, t->error);
    if (status == PLSH_STATUS_OK) status = plsh_text_status(&whole, t->error);
    plsh_text_free(&items);
    plsh_text_free(&whole);
    return status;
}

/* Members up to ] or &&. */
static plsh_status take_union(translation *t, set *s) {
    plsh_status status = PLSH_STATUS_OK;
    while (status == PLSH_STATUS_OK && t->at < t->length && peek(t, 0) != ']' &&
           !(peek(t, 0) == '&' && peek(t, 1) == '&')) {
        bool single, single_end = false;
        uint32_t first = 0, last = 0;
        status = take_member(t, s, &single, &first);
        if (status != PLSH_STATUS_OK || !single) continue;
        if (peek(t, 0) == '-' && peek(t, 1) != ']' && peek(t, 1) != '[' && peek(t, 1) >= 0 &&
            !(peek(t, 1) == '&' && peek(t, 2) == '&')) {
            const size_t dash = t->at++;
            const size_t items = s->items.length, complex = s->complex.length;
            status = take_member(t, s, &single_end, &last);
            if (status == PLSH_STATUS_OK && single_end && last < first)
                return refuse(t, "a range that runs backwards");
            if (!single_end) { /* [a-\d]: the dash is a character */
                s->items.length = items;
                s->complex.length = complex;
                t->at = dash;
            }
        }
        emit_character(&s->items, first);
        if (single_end) {
            plsh_text_append(&s->items, "-", 1);
            emit_character(&s->items, last);
        }
    }
    return status;
}

/* After the bracket. *simple: it is the union `items`, not negated. */
static plsh_status translate_class(translation *t, plsh_text *out, bool *simple, plsh_text *items) {
    *simple = false;
    if (t->depth >= DEEPEST) return refuse(t, "nested too deeply");
    t->depth++;
    t->classes++;
    const bool negated = accept(t, "^");
    set whole = {0};
    if (peek(t, 0) == ']' && memchr(t->from + t->at + 1, ']', t->length - t->at - 1) != NULL) {
        t->at++;
        emit_character(&whole.items, ']');
    }
    plsh_status status = take_union(t, &whole);
    while (status == PLSH_STATUS_OK && accept(t, "&&")) {
        set other = {0};
        plsh_text both = {0};
        status = take_union(t, &other);
        plsh_text_print(&both, "(?:(?=");
        set_write(&whole, false, &both);
        plsh_text_append(&both, ")", 1);
        set_write(&other, false, &both);
        plsh_text_append(&both, ")", 1);
        set_free(&whole);
        whole = (set){0};
        set_add_complex(&whole, &both);
        if (status == PLSH_STATUS_OK) status = plsh_text_status(&both, t->error);
        if (status == PLSH_STATUS_OK) status = plsh_text_status(&other.items, t->error);
        if (status == PLSH_STATUS_OK) status = plsh_text_status(&other.complex, t->error);
        plsh_text_free(&both);
        set_free(&other);
    }
    if (status == PLSH_STATUS_OK && !accept(t, "]")) status = refuse(t, "a class without its ]");
    *simple = !negated && whole.complex.length == 0 && whole.items.length > 0;
    if (*simple) plsh_text_append(items, whole.items.bytes, whole.items.length);
    set_write(&whole, negated, out);
    if (status == PLSH_STATUS_OK) status = plsh_text_status(&whole.items, t->error);
    if (status == PLSH_STATUS_OK) status = plsh_text_status(&whole.complex, t->error);
    set_free(&whole);
    t->depth--;
    t->classes--;
    return status;
}

/* ---- groups ---- */

static plsh_status translate_alternatives(translation *t);

/* The letters of (?imx-imx: and (?imx-imx); *extended: whether x is on. */
static plsh_status take_options(translation *t, bool *extended) {
    bool on = true;
    for (;; t->at++) {
        const int letter = peek(t, 0);
        if (letter == '-' && on)
            emit(t, "-"), on = false;
        else if (letter == 'i')
            emit(t, "i");
        else if (letter == 'm')
            emit(t, "s");
        else if (letter == 'x')
            *extended = on;
        else if (letter == ':' || letter == ')')
            return PLSH_STATUS_OK;
        else
            return refuse(t, "an unknown option of a group; i, m and x are known");
    }
}

/* After "(?": options, alone or with the group that they apply to. */
static plsh_status translate_options(translation *t) {
    const bool before = t->extended;
    bool extended = before;
    emit(t, "(?");
    plsh_status status = take_options(t, &extended);
    if (status != PLSH_STATUS_OK) return status;
    const bool alone = accept(t, ")");
    if (!alone) t->at++;
    t->extended = extended;
    emit(t, ":");
    status = translate_alternatives(t);
    emit(t, ")");
    t->extended = before;
    /* Alone, they hold to the end of the group around, whose ) is for the caller. */
    if (status == PLSH_STATUS_OK && !alone && !accept(t, ")"))
        status = refuse(t, "a group without its )");
    return status;
}

/* After the parenthesis. */
static plsh_status translate_group(translation *t) {
    static const char *const openings[] = {"?:", "?=", "?!", "?>", "?<=", "?<!"};
    const char *opening = NULL;
    if (accept(t, "?#")) {
        while (peek(t, 0) >= 0 && peek(t, 0) != ')') t->at++;
        return accept(t, ")") ? PLSH_STATUS_OK : refuse(t, "a comment without its )");
    }
    if (peek(t, 0) == '*') return refuse(t, "(* is not supported");
    for (size_t i = 0; i < sizeof openings / sizeof *openings && opening == NULL; i++)
        if (accept(t, openings[i])) opening = openings[i];
    if (opening == NULL && accept(t, "?<")) {
        emit(t, "(?<");
        while (peek(t, 0) >= 0 && peek(t, 0) != '>' && peek(t, 0) != ')')
            plsh_text_append(t->out, t->from + t->at++, 1);
        emit(t, ">");
        if (!accept(t, ">")) return refuse(t, "the name of a group without its >");
    } else if (opening == NULL && accept(t, "?")) {
        return translate_options(t);
    } else {
        plsh_text_print(t->out, "(%s", opening != NULL ? opening : "");
    }
    plsh_status status = translate_alternatives(t);
    emit(t, ")");
    if (status == PLSH_STATUS_OK && !accept(t, ")")) status = refuse(t, "a group without its )");
    return status;
}

/* ---- atoms and how often ---- */

static plsh_status translate_escape(translation *t) {
    escape kind = ESCAPE_OTHER;
    uint32_t c = 0;
    bool negated = false;
    plsh_text items = {0};
    plsh_status status = take_escape(t, &kind, &c, &items, &negated);
    if (status == PLSH_STATUS_OK && kind == ESCAPE_OTHER) status = translate_other(t);
    if (status == PLSH_STATUS_OK && kind == ESCAPE_CHARACTER) emit_character(t->out, c);
    if (status == PLSH_STATUS_OK && kind == ESCAPE_SET)
        plsh_text_print(t->out, negated ? "[^%s]" : "[%s]", text_of(&items));
    if (status == PLSH_STATUS_OK) status = plsh_text_status(&items, t->error);
    plsh_text_free(&items);
    return status;
}

static plsh_status translate_atom(translation *t) {
    if (accept(t, "\\")) return translate_escape(t);
    if (accept(t, "[")) {
        bool simple;
        plsh_text whole = {0}, items = {0};
        plsh_status status = translate_class(t, &whole, &simple, &items);
        plsh_text_append(t->out, text_of(&whole), whole.length);
        if (status == PLSH_STATUS_OK) status = plsh_text_status(&whole, t->error);
        plsh_text_free(&whole);
        plsh_text_free(&items);
        return status;
    }
    if (accept(t, "(")) {
        const bool extended = t->extended;
        if (t->depth >= DEEPEST) return refuse(t, "nested too deeply");
        t->depth++;
        plsh_status status = translate_group(t);
        t->depth--;
        t->extended = extended;
        return status;
    }
    if (accept(t, ".")) return emit(t, "."), PLSH_STATUS_OK;
    if (accept(t, "^")) return emit(t, "^"), PLSH_STATUS_OK;
    if (accept(t, "$")) return emit(t, "$"), PLSH_STATUS_OK;
    if (peek(t, 0) == '*' || peek(t, 0) == '+' || peek(t, 0) == '?')
        return refuse(t, "nothing to repeat");
    emit_character(t->out, take_character(t));
    return PLSH_STATUS_OK;
}

/* {n}, {n,}, {n,m}, {,m}: false, and nothing consumed, where there is none. */
static bool take_interval(translation *t, char out[32], bool *exact, uint32_t *count) {
    const size_t begin = t->at;
    uint32_t least = 0, most = 0;
    int least_digits = 0, most_digits = 0;
    if (!accept(t, "{")) return false;
    for (; peek(t, 0) >= '0' && peek(t, 0) <= '9' && least < 100000; t->at++, least_digits++)
        least = least * 10 + (uint32_t)(peek(t, 0) - '0');
    const bool comma = accept(t, ",");
    for (; comma && peek(t, 0) >= '0' && peek(t, 0) <= '9' && most < 100000; t->at++, most_digits++)
        most = most * 10 + (uint32_t)(peek(t, 0) - '0');
    if (!accept(t, "}") || (least_digits == 0 && most_digits == 0)) return t->at = begin, false;
    *exact = !comma;
    *count = least;
    if (!comma)
        snprintf(out, 32, "{%u}", least);
    else if (most_digits == 0)
        snprintf(out, 32, "{%u,}", least);
    else
        snprintf(out, 32, "{%u,%u}", least, most);
    return true;
}

/* Encloses what was written from `begin` on. */
static void wrap(translation *t, size_t begin) {
    if (!plsh_text_reserve(t->out, 4)) return;
    memmove(t->out->bytes + begin + 3, t->out->bytes + begin, t->out->length - begin);
    memcpy(t->out->bytes + begin, "(?:", 3);
    t->out->length += 3;
    emit(t, ")");
}

static plsh_status translate_repeats(translation *t, size_t begin) {
    for (int i = 0;; i++) {
        char interval[32];
        uint32_t count;
        bool exact = false;
        const int sign = peek(t, 0);
        if (sign == '*' || sign == '+' || sign == '?') {
            if (i > 0) wrap(t, begin);
            t->at++;
            plsh_text_print(t->out, "%c", sign);
            if (accept(t, "?"))
                emit(t, "?");
            else if (accept(t, "+"))
                emit(t, "+");
        } else if (take_interval(t, interval, &exact, &count)) {
            if (count > REPEATS_MOST) return refuse(t, "a repeat of more than 1000 times");
            if (i > 0) wrap(t, begin);
            emit(t, interval);
            if (!exact && accept(t, "?")) emit(t, "?");
        } else {
            return PLSH_STATUS_OK;
        }
    }
}

static void skip_blanks(translation *t) {
    while (t->extended && t->at < t->length) {
        const int c = peek(t, 0);
        if (c == '#')
            while (peek(t, 0) >= 0 && peek(t, 0) != '\n') t->at++;
        else if (c == ' ' || (c >= '\t' && c <= '\r'))
            t->at++;
        else
            return;
    }
}

/* Up to the end or to a ) that is the caller's. */
static plsh_status translate_alternatives(translation *t) {
    plsh_status status = PLSH_STATUS_OK;
    if (t->depth >= DEEPEST) return refuse(t, "nested too deeply");
    t->depth++;
    for (skip_blanks(t); status == PLSH_STATUS_OK && t->at < t->length && peek(t, 0) != ')';
         skip_blanks(t)) {
        if (accept(t, "|")) {
            emit(t, "|");
            continue;
        }
        const size_t begin = t->out->length;
        status = translate_atom(t);
        if (status == PLSH_STATUS_OK) status = plsh_text_status(t->out, t->error);
        skip_blanks(t);
        if (status == PLSH_STATUS_OK && t->out->length > begin)
            status = translate_repeats(t, begin);
    }
    t->depth--;
    return status;
}

plsh_status plsh_pattern_translate(plsh_text *out, const char *expression, size_t length,
                                   bool newer, const char *what, plsh_error *error) {
    translation t = {.from = expression,
                     .length = length,
                     .out = out,
                     .newer = newer,
                     .what = what,
                     .error = error};
    plsh_status status = translate_alternatives(&t);
    if (status == PLSH_STATUS_OK && t.at < length) status = refuse(&t, "a ) without its (");
    return status == PLSH_STATUS_OK ? plsh_text_status(out, error) : status;
}
