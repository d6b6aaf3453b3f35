/* text: properties of characters by their names in regular expressions. */
#include "text/pattern.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/unicode.h"

#define SPACES                                                                                     \
    "\\x09-\\x0D\\x20\\x85\\xA0\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"   \
    "\\x{3000}"

/* Classes as Oniguruma defines them on Unicode. `newer`: the categories whose newer characters
 * belong to it. */
static const struct named_class {
    const char *name, *items, *newer;
} classes[] = {
    {"space", SPACES, ""},
    {"whitespace", SPACES, ""},
    {"blank", "\\x09\\x20\\xA0\\x{1680}\\x{2000}-\\x{200A}\\x{202F}\\x{205F}\\x{3000}", ""},
    {"word", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}", "L M Nd Pc"},
    {"\\w", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xB2\\xB3\\xB9\\xBC-\\xBE", "L M Nd Pc"},
    {"alpha", "\\p{Alphabetic}", "L"},
    {"alphabetic", "\\p{Alphabetic}", "L"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}", "L Nd"},
    {"digit", "\\p{Nd}", "Nd"},
    {"xdigit", "0-9a-fA-F", ""},
    {"upper", "\\p{Uppercase}", "Lu"},
    {"uppercase", "\\p{Uppercase}", "Lu"},
    {"lower", "\\p{Lowercase}", "Ll"},
    {"lowercase", "\\p{Lowercase}", "Ll"},
    {"punct", "\\p{P}", "P"},
    {"[:punct:]", "\\p{P}\\p{S}", "P S"},
    {"graph", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}", "L M N P S"},
    {"print", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}\\p{Zs}", "L M N P S"},
    {"cntrl", "\\p{Cc}", ""},
    {"ascii", "\\x00-\\x7F", ""},
    {"any", "\\x00-\\x{10FFFF}", ""},
};

static const char *const categories[][2] = {
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"unassigned", "Cn"},
    {"privateuse", "Co"},
    {"surrogate", "Cs"},
    {"letter", "L"},
    {"lowercaseletter", "Ll"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"titlecaseletter", "Lt"},
    {"uppercaseletter", "Lu"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"nonspacingmark", "Mn"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"closepunctuation", "Pe"},
    {"finalpunctuation", "Pf"},
    {"initialpunctuation", "Pi"},
    {"otherpunctuation", "Po"},
    {"openpunctuation", "Ps"},
    {"symbol", "S"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"mathsymbol", "Sm"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"spaceseparator", "Zs"},
};

static bool knows(const char *items) {
    int code;
    PCRE2_SIZE offset;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)items, PCRE2_ZERO_TERMINATED,
                                         PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
    pcre2_code_free(compiled);
    return compiled != NULL;
}

static void append_category(plsh_text *out, const char *category, bool newer) {
    plsh_text_print(out, "\\p{%s}", category);
    if (newer) plsh_unicode_newer(out, category, strlen(category));
}

/* The name of a category in two letters, if `plain` is one. */
static const char *category_of(const char *plain) {
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        if (strcmp(plain, categories[i][0]) == 0) return categories[i][1];
        if (strcasecmp(plain, categories[i][1]) == 0) return categories[i][1];
    }
    return NULL;
}

bool plsh_property_items(plsh_text *out, const char *name, size_t length, bool newer) {
    char plain[48], items[64];
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        if (name[i] == ' ' || name[i] == '_' || name[i] == '-') continue;
        const char c = name[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("[:]\\", c);
        if (used + 1 >= sizeof plain || !(letter || (c >= '0' && c <= '9'))) return false;
        plain[used++] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    plain[used] = '\0';
    const char *category = category_of(plain);
    if (category != NULL) return append_category(out, category, newer), true;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strcmp(plain, classes[i].name) != 0) continue;
        plsh_text_append(out, classes[i].items, strlen(classes[i].items));
        for (const char *at = classes[i].newer; newer && *at != '\0';) {
            const size_t size = strcspn(at, " ");
            plsh_unicode_newer(out, at, size);
            at += size + (at[size] == ' ');
        }
        return true;
    }
    /* A script by its own characters (not by its extensions), or a binary property. */
    if (strpbrk(plain, "[:]\\") != NULL) return false;
    snprintf(items, sizeof items, "\\p{sc:%s}", plain);
    if (!knows(items)) snprintf(items, sizeof items, "\\p{%s}", plain);
    if (used == 0 || !knows(items)) return false;
    plsh_text_append(out, items, strlen(items));
    return true;
}
