/* text: properties of characters by their names in regular expressions. */
#ifndef PLSH_TEXT_PROPERTY_H
#define PLSH_TEXT_PROPERTY_H

#include "base/text.h"

/* Appends the items of a PCRE2 class for \p{name}: a general category ("L", "Letter"), a class
 * ("alpha", "space", "word", ..; "[:punct:]" is not "punct", "\w" not
 * "word"), a script or another property
 * that PCRE2 knows. Blanks, _ and - and the case do not count. `newer`: as plsh_pattern_translate.
 * False: there is none. */
bool plsh_property_items(plsh_text *out, const char *name, size_t length, bool newer);

#endif
