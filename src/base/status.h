/* base: raising an error. */
#ifndef PLSH_BASE_STATUS_H
#define PLSH_BASE_STATUS_H

#include "plsh/status.h"

/* Writes the message (printf style, cut to fit) and returns status, so that
 * a caller can say: return plsh_fail(error, PLSH_STATUS_INVALID, "n is %d", n); */
plsh_status plsh_fail(plsh_error *error, plsh_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
