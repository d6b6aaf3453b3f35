/* base: the version of the library. */
#include "plsh/version.h"

const char *plsh_version(void) { return PLSH_VERSION; }
