/* base: arrays carved out of one piece of memory.
 *
 * Write the layout once, as a function that takes its arrays from an arena, and call it twice: with
 * an arena without memory it measures (`used` is the size of the workspace), with memory it returns
 * pointers. Every array begins on a PLSH_ALIGNMENT boundary if the memory does. */
#ifndef PLSH_BASE_ARENA_H
#define PLSH_BASE_ARENA_H

#include "base/memory.h"

typedef struct plsh_arena {
    char *memory;  /* NULL: only measures, and hands out NULL */
    size_t used;   /* bytes, a multiple of PLSH_ALIGNMENT */
    bool overflow; /* the sizes do not fit into a size_t; `used` means nothing then */
} plsh_arena;

/* Room for count things of `size` bytes, not zeroed. */
static inline void *plsh_arena_take(plsh_arena *arena, size_t count, size_t size) {
    size_t bytes, begin = arena->used;
    if (!plsh_multiply(count, size, &bytes) || !plsh_add(bytes, PLSH_ALIGNMENT - 1, &bytes) ||
        !plsh_add(begin, bytes & ~(size_t)(PLSH_ALIGNMENT - 1), &arena->used))
        arena->overflow = true;
    return arena->memory == NULL || arena->overflow ? NULL : arena->memory + begin;
}

static inline float *plsh_arena_floats(plsh_arena *arena, size_t count) {
    return plsh_arena_take(arena, count, sizeof(float));
}

#endif
