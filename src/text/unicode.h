/* text: Unicode properties of characters, as in the Hugging Face tokenizers library. */
#ifndef PLSH_TEXT_UNICODE_H
#define PLSH_TEXT_UNICODE_H

#include "text/utf8.h"

typedef enum plsh_class {
    PLSH_CLASS_WHITESPACE,  /* White_Space */
    PLSH_CLASS_NUMERIC,     /* Nd, Nl, No */
    PLSH_CLASS_PUNCTUATION, /* P, and the punctuation of ASCII */
    PLSH_CLASS_CONTROL,     /* what BERT drops: Cc except \t \n \r, Cf, Co, U+FFFD */
    PLSH_CLASS_NONSPACING,  /* Mn */
    PLSH_CLASS_COMBINING,   /* M */
    PLSH_CLASS_WORD         /* \w */
} plsh_class;

bool plsh_unicode_is(plsh_class which, uint32_t c);

/* Appends the character in lower case; one of them becomes two. */
void plsh_unicode_lower(plsh_text *out, uint32_t c);

typedef enum plsh_form { PLSH_FORM_NFC, PLSH_FORM_NFD, PLSH_FORM_NFKC, PLSH_FORM_NFKD } plsh_form;

/* Appends the text (valid UTF-8) in a normalisation form. */
plsh_status plsh_unicode_normalize(plsh_text *out, const char *bytes, size_t length, plsh_form form,
                                   plsh_error *error);

/* Characters of a general category, "L" or "Lu", that are newer than Unicode 14: appended as ranges
 * of a PCRE2 class. */
void plsh_unicode_newer(plsh_text *out, const char *category, size_t length);

/* Does the text (valid UTF-8) hold any of them? */
bool plsh_unicode_has_newer(const char *bytes, size_t length);

#endif
