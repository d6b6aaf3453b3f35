/* base: overflow-checked, aligned memory. */
#include "base/memory.h"

#include "base/status.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Both serve the tests: "any allocation may fail" and "nothing leaks". */
static atomic_long fail_after = -1;
static atomic_long live;

static bool must_fail(void) {
    if (atomic_load_explicit(&fail_after, memory_order_relaxed) < 0) return false;
    return atomic_fetch_sub(&fail_after, 1) == 0;
}

plsh_status plsh_allocate(void **out, size_t count, size_t size, const char *what,
                          plsh_error *error) {
    *out = NULL;
    size_t bytes, padded;
    if (!plsh_multiply(count, size, &bytes) || !plsh_add(bytes, PLSH_ALIGNMENT, &padded))
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "%s: %zu x %zu bytes overflow", what, count,
                         size);
    padded &= ~(size_t)(PLSH_ALIGNMENT - 1);
    void *memory = must_fail() ? NULL : aligned_alloc(PLSH_ALIGNMENT, padded);
    if (memory == NULL)
        return plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory for %zu bytes", what, bytes);
    memset(memory, 0, padded);
    atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    *out = memory;
    return PLSH_STATUS_OK;
}

void plsh_release(void *pointer) {
    if (pointer == NULL) return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(pointer);
}

void plsh_memory_fail_after(long count) { atomic_store(&fail_after, count); }

long plsh_memory_live(void) { return atomic_load(&live); }
