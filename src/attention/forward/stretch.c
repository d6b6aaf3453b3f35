/* attention: sums over very many keys. */
#include "attention/forward/stretch.h"

#include <math.h>
#include <string.h>

#include "base/clones.h"

void plsh_stretches_layout(plsh_stretches *all, const plsh_plan *plan, int columns,
                           plsh_arena *arena) {
    all->group = plan->kernel->group;
    all->columns = columns;
    all->past = plsh_arena_floats(arena, PLSH_TILE_QUERIES * (size_t)columns);
    all->past_low = plsh_arena_floats(arena, PLSH_TILE_QUERIES * (size_t)columns);
    all->m = plsh_arena_floats(arena, PLSH_TILE_QUERIES);
}

void plsh_stretches_begin(plsh_stretches *all) {
    memset(all->steps, 0, sizeof all->steps);
    memset(all->closed, 0, sizeof all->closed);
}

/* past + low = by (past + low) + sum, and sum = 0 (Kahan). */
PLSH_CLONES static void add_row(float *restrict past, float *restrict low, float *restrict sum,
                                float by, int columns) {
    for (int c = 0; c < columns; c++) {
        float before = by * past[c], term = by * low[c] + sum[c];
        past[c] = before + term;
        low[c] = term - (past[c] - before);
        sum[c] = 0.0f;
    }
}

/* Adds the rows of group g to its past sum. */
static void close_stretch(plsh_stretches *all, int g, float *sum, const float *m) {
    const ptrdiff_t lane = (ptrdiff_t)g * all->group, columns = all->columns;
    const size_t size = sizeof(float) * (size_t)(all->group * columns);
    if (!all->closed[g]) {
        memcpy(all->past + lane * columns, sum, size);
        memset(all->past_low + lane * columns, 0, size);
        memset(sum, 0, size);
    } else {
        for (ptrdiff_t r = 0; r < all->group; r++) {
            ptrdiff_t at = (lane + r) * columns;
            add_row(all->past + at, all->past_low + at, sum + r * columns,
                    m ? exp2f(all->m[lane + r] - m[r]) : 1.0f, all->columns);
        }
    }
    if (m) memcpy(all->m + lane, m, sizeof(float) * (size_t)all->group);
    all->closed[g] = true;
    all->steps[g] = 0;
}

void plsh_stretches_step(plsh_stretches *all, int g, float *sum, const float *m) {
    if (++all->steps[g] == PLSH_STRETCH_STEPS) close_stretch(all, g, sum, m);
}

void plsh_stretches_end(plsh_stretches *all, int g, float *sum, const float *m) {
    if (!all->closed[g]) return;
    close_stretch(all, g, sum, m);
    memcpy(sum, all->past + (ptrdiff_t)g * all->group * all->columns,
           sizeof(float) * (size_t)(all->group * all->columns));
    all->closed[g] = false;
}
