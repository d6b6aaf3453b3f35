/* base: the words for the values of an enum. */
#ifndef PLSH_BASE_NAME_H
#define PLSH_BASE_NAME_H

#include "plsh/status.h"

/* The place of `name` in a list that ends with NULL; an error names the list, and its entries. */
plsh_status plsh_name_find(const char *what, const char *const *names, const char *name, int *place,
                           plsh_error *error);

#endif
