/* base: overflow-checked, aligned memory. */
#include "base/memory.h"

#include "base/status.h"

#ifdef PLSH_TESTING
#include <stdatomic.h>
#endif
#include <stdlib.h>
#include <string.h>

#ifdef PLSH_TESTING
/* For two tests: any allocation may fail, and all memory is released. */
static atomic_long fail_after = -1;
static atomic_long live;
static atomic_size_t largest;

static bool must_fail(void) {
    if (atomic_load_explicit(&fail_after, memory_order_relaxed) < 0) return false;
    return atomic_fetch_sub(&fail_after, 1) == 0;
}

static void count_live(long change) {
    atomic_fetch_add_explicit(&live, change, memory_order_relaxed);
}

void plsh_memory_fail_after(long count) { atomic_store(&fail_after, count); }

static void note_size(size_t bytes) {
    size_t before = atomic_load_explicit(&largest, memory_order_relaxed);
    while (bytes > before && !atomic_compare_exchange_weak(&largest, &before, bytes)) {}
}

long plsh_memory_live(void) { return atomic_load(&live); }

size_t plsh_memory_largest(void) { return atomic_exchange(&largest, 0); }
#else
static bool must_fail(void) { return false; }
static void count_live(long change) { (void)change; }
static void note_size(size_t bytes) { (void)bytes; }
#endif

plsh_status plsh_allocate(void **out, size_t count, size_t size, const char *what,
                          plsh_error *error) {
    *out = NULL;
    size_t bytes, padded;
    if (!plsh_multiply(count, size, &bytes) || !plsh_add(bytes, PLSH_ALIGNMENT, &padded))
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "%s: %zu x %zu bytes overflow", what, count,
                         size);
    note_size(bytes);
    padded &= ~(size_t)(PLSH_ALIGNMENT - 1);
    void *memory = must_fail() ? NULL : aligned_alloc(PLSH_ALIGNMENT, padded);
    if (memory == NULL)
        return plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory for %zu bytes", what, bytes);
    memset(memory, 0, padded);
    count_live(1);
    *out = memory;
    return PLSH_STATUS_OK;
}

void plsh_release(void *pointer) {
    if (pointer == NULL) return;
    count_live(-1);
    free(pointer);
}
