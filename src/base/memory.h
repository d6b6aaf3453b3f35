/* base: overflow-checked, aligned memory. */
#ifndef PLSH_BASE_MEMORY_H
#define PLSH_BASE_MEMORY_H

#include "plsh/status.h"

/* One cache line, and the widest vector of any ISA here. */
enum { PLSH_ALIGNMENT = 64 };

/* count * size bytes on a PLSH_ALIGNMENT boundary, zeroed; *out is NULL on
 * failure. `what` names the thing in the message ("partition draws").
 * count = 0 gives a valid pointer. Released by plsh_release. */
plsh_status plsh_allocate(void **out, size_t count, size_t size, const char *what,
                          plsh_error *error);

/* NULL is fine. */
void plsh_release(void *pointer);

/* *out = a * b, or *out = a + b; false where it does not fit. */
static inline bool plsh_multiply(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool plsh_add(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

#ifdef PLSH_TESTING
/* The allocation after the next `count` ones fails, once; a negative count
 * switches that off. plsh_memory_live: allocations not yet released.
 * plsh_memory_largest: bytes of the largest one asked for since it was last
 * called. */
void plsh_memory_fail_after(long count);
long plsh_memory_live(void);
size_t plsh_memory_largest(void);
#endif

#endif
