/* base: raising an error. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

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
