/* plsh/status.h - status codes and error messages.
 *
 * Every function that can fail returns a plsh_status and takes a plsh_error as its last argument.
 * The error may be NULL; if it is not, a failing call writes one line into it that names the
 * problem, its place, and the valid values. A call that succeeds does not change it. The library
 * prints nothing and does not exit. It keeps no state between calls except its pool of threads and
 * their default number: see thread.h. */
#ifndef PLSH_STATUS_H
#define PLSH_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PLSH_API __attribute__((visibility("default")))
#else
#define PLSH_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plsh_status {
    PLSH_STATUS_OK = 0,
    PLSH_STATUS_INVALID,     /* an argument is out of its range, or two disagree */
    PLSH_STATUS_NOT_FINITE,  /* NaN or Inf in an input that was checked for it */
    PLSH_STATUS_OVERFLOW,    /* a size does not fit in memory's address range */
    PLSH_STATUS_NO_MEMORY,   /* an allocation failed; nothing was changed */
    PLSH_STATUS_IO,          /* the system refused to open, read, write or rename */
    PLSH_STATUS_FORMAT,      /* a file is not what it claims to be */
    PLSH_STATUS_UNSUPPORTED, /* this machine, build or method cannot do it */
    PLSH_STATUS_NO_CONVERGENCE,
    PLSH_STATUS_CANCELLED /* the caller ended it */
} plsh_status;

typedef struct plsh_error {
    plsh_status status;
    char message[248];
} plsh_error;

/* A few words for a status; a static string, never NULL. */
PLSH_API const char *plsh_status_name(plsh_status status);

#ifdef __cplusplus
}
#endif

#endif
