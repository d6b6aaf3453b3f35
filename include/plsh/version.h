/* plsh/version.h - which plsh this is.
 *
 * The numbers here are the only place where the version is written: the build, the package files
 * and the command line read them. */
#ifndef PLSH_VERSION_H
#define PLSH_VERSION_H

#include "plsh/status.h"

#define PLSH_VERSION_MAJOR 0
#define PLSH_VERSION_MINOR 2
#define PLSH_VERSION_PATCH 0

#define PLSH_VERSION_TEXT_(x) #x
#define PLSH_VERSION_JOIN_(a, b, c)                                                                \
    PLSH_VERSION_TEXT_(a) "." PLSH_VERSION_TEXT_(b) "." PLSH_VERSION_TEXT_(c)

/* "0.2.0": the version of the header a program was compiled with. */
#define PLSH_VERSION PLSH_VERSION_JOIN_(PLSH_VERSION_MAJOR, PLSH_VERSION_MINOR, PLSH_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library in use; a static string. */
PLSH_API const char *plsh_version(void);

#ifdef __cplusplus
}
#endif

#endif
