/* base: a function compiled for several vector widths, the best taken at load time. Only for
 * code whose result does not depend on the width: no contraction, no reordered sums. */
#ifndef PLSH_BASE_CLONES_H
#define PLSH_BASE_CLONES_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define PLSH_NO_CLONES
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define PLSH_NO_CLONES
#endif

#if defined(__gnu_linux__)
#include <features.h> /* __GLIBC__: musl's loader does not run the functions that choose among the clones */
#endif
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(PLSH_NO_CLONES)
#define PLSH_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PLSH_CLONES
#endif

#endif
