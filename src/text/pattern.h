/* text: the regular expressions of tokenizer files, and texts to be found.
 *
 * The files mean Oniguruma's dialect (as in Ruby). It is translated to PCRE2's, which differs in
 * nested character classes, \h, \s, \w, intervals followed by +, options, .. */
#ifndef PLSH_TEXT_PATTERN_H
#define PLSH_TEXT_PATTERN_H

#include "text/utf8.h"

typedef struct plsh_pattern plsh_pattern;

/* A regular expression, or a text to be found as it is. `what` names it in messages. */
plsh_status plsh_pattern_create(plsh_pattern **out, const char *expression, size_t length,
                                bool literal, const char *what, plsh_error *error);
void plsh_pattern_free(plsh_pattern *pattern);

/* Scratch memory of one thread; initialise it with zeros. */
typedef struct plsh_search {
    void *match, *context, *stack; /* of PCRE2 */
} plsh_search;

void plsh_search_free(plsh_search *search);

/* A walk over the matches in one subject, valid UTF-8 that outlives it. Empty matches right after a
 * match are skipped. */
typedef struct plsh_matches {
    const plsh_pattern *pattern;
    plsh_search *search;
    const char *bytes;
    size_t length;
    size_t at;       /* where the next search begins */
    size_t last_end; /* SIZE_MAX: none yet */
    bool newer;      /* the subject holds characters newer than PCRE2 may be */
    uint64_t steps_left;
} plsh_matches;

plsh_matches plsh_matches_begin(const plsh_pattern *pattern, plsh_search *search, const char *bytes,
                                size_t length);

/* *found is false at the end. Time and memory are bounded: a walk that takes more steps than a
 * linear search could is PLSH_STATUS_UNSUPPORTED, with a message that names the expression. */
plsh_status plsh_matches_next(plsh_matches *matches, size_t *begin, size_t *end, bool *found,
                              plsh_error *error);

/* Appends the expression in PCRE2's dialect; `newer` writes characters above Unicode 14 out. */
plsh_status plsh_pattern_translate(plsh_text *out, const char *expression, size_t length,
                                   bool newer, const char *what, plsh_error *error);

/* Appends the items of a PCRE2 class for \p{name}: a general category ("L", "Letter"), a class
 * ("alpha", "space", "word", ..; "[:punct:]" differs from "punct", and "\w" from "word"), a script
 * or another property that PCRE2 knows. Blanks, _, - and the case are ignored. `newer`: as
 * plsh_pattern_translate. False: there is none. */
bool plsh_property_items(plsh_text *out, const char *name, size_t length, bool newer);

#endif
