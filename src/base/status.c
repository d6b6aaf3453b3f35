/* base: errors, and the words for the values of an enum. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *plsh_status_name(plsh_status status) {
    switch (status) {
    case PLSH_STATUS_OK: return "ok";
    case PLSH_STATUS_INVALID: return "invalid argument";
    case PLSH_STATUS_NOT_FINITE: return "not finite";
    case PLSH_STATUS_OVERFLOW: return "size overflow";
    case PLSH_STATUS_NO_MEMORY: return "out of memory";
    case PLSH_STATUS_IO: return "input/output error";
    case PLSH_STATUS_FORMAT: return "bad file format";
    case PLSH_STATUS_UNSUPPORTED: return "unsupported";
    case PLSH_STATUS_NO_CONVERGENCE: return "no convergence";
    case PLSH_STATUS_CANCELLED: return "cancelled";
    }
    return "unknown status";
}

plsh_status(plsh_fail)(plsh_error *error, plsh_status status, const char *format, ...) {
    if (error != NULL) {
        error->status = status;
        va_list args;
        va_start(args, format);
        vsnprintf(error->message, sizeof error->message, format, args);
        va_end(args);
    }
    return status;
}

plsh_status plsh_name_find(const char *what, const char *const *names, const char *name, int *place,
                           plsh_error *error) {
    char list[160] = "";
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], name) == 0) {
            *place = i;
            return PLSH_STATUS_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    return plsh_fail(error, PLSH_STATUS_INVALID, "%s '%.40s' is unknown; one of %s", what, name,
                     list);
}
