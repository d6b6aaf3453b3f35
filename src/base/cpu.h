/* base: which instruction sets this machine has, and which one is to be used. */
#ifndef PLSH_BASE_CPU_H
#define PLSH_BASE_CPU_H

#include "plsh/status.h"

/* The names of those that this machine can run, the best first, NULL at the end; "reference", plain
 * C, is always the last. */
const char *const *plsh_cpu_isas(void);

/* One of these names: `name`, or what PLSH_ISA says where it is NULL, or else the best. Another one
 * is an error that lists them. */
plsh_status plsh_cpu_choose(const char **isa, const char *name, plsh_error *error);

#endif
