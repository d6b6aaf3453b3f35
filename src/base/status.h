/* base: raising an error; the words for the values of an enum. */
#ifndef PLSH_BASE_STATUS_H
#define PLSH_BASE_STATUS_H

#include "plsh/status.h"

/* Writes the message (printf style, cut to fit) and returns status, so that
 * a caller can say: return plsh_fail(error, PLSH_STATUS_INVALID, "n is %d", n); */
plsh_status plsh_fail(plsh_error *error, plsh_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The static analyser does not know that plsh_fail returns `status`. */
#ifdef __clang_analyzer__
static inline plsh_status plsh_fail_as(plsh_status reported, plsh_status status) {
    (void)reported;
    return status;
}
#define plsh_fail(error, status, ...) plsh_fail_as((plsh_fail)(error, status, __VA_ARGS__), status)
#endif

/* The place of `name` in a list that ends with NULL; an error names the list, and its entries. */
plsh_status plsh_name_find(const char *what, const char *const *names, const char *name, int *place,
                           plsh_error *error);

#endif
