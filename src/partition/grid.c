/* partition: products of partitions over several axes, as labels. */
#include "plsh/grid.h"

#include "base/memory.h"
#include "base/status.h"
#include "partition/draw.h"

#include <string.h>

plsh_grid plsh_grid_make(const plsh_partition *set, int dims) {
    plsh_grid grid = {.dims = dims};
    for (int a = 0; a < dims && a < PLSH_GRID_AXES; a++) {
        grid.axis[a] = *set;
        grid.axis[a].axis = (uint32_t)a;
    }
    return grid;
}

static plsh_status check(const plsh_grid *grid, int64_t sample, int64_t n, plsh_error *error) {
    if (grid->dims < 1 || grid->dims > PLSH_GRID_AXES)
        return plsh_fail(error, PLSH_STATUS_INVALID, "the grid has %d axes; 1 to %d", grid->dims,
                         PLSH_GRID_AXES);
    if (n < 0 || n > INT32_MAX / 2)
        return plsh_fail(error, PLSH_STATUS_INVALID, "n is %lld; labels serve 0 to 2^30 - 1",
                         (long long)n);
    for (int a = 0; a < grid->dims; a++) {
        const plsh_partition *set = &grid->axis[a];
        plsh_status status = plsh_partition_check(set, error);
        if (status) return status;
        if (set->design != PLSH_DESIGN_IID && set->design != PLSH_DESIGN_STRATIFIED)
            return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                             "axis %d: design %s is for one axis; the draws of a product have "
                             "to be independent, as those of iid and stratified are",
                             a, plsh_design_names()[set->design]);
        if (set->scheme == PLSH_SCHEME_LABELS || set->axis != (uint32_t)a)
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "axis %d of the grid was not made by plsh_grid_make", a);
        if (sample < 0 || sample >= set->samples)
            return plsh_fail(error, PLSH_STATUS_INVALID, "sample is %lld; axis %d has %lld",
                             (long long)sample, a, (long long)set->samples);
    }
    return PLSH_STATUS_OK;
}

/* The corner of a token's block: its begin on every axis. Equal corners mean equal blocks. */
typedef struct corner {
    int64_t x[PLSH_GRID_AXES];
} corner;

static corner corner_of(const plsh_grid *grid, const plsh_draw *draws, int64_t sample,
                        const int64_t *position) {
    corner at = {{0}};
    for (int a = 0; a < grid->dims; a++) {
        plsh_range block;
        if (plsh_partition_is_grid(&grid->axis[a]))
            block = plsh_draw_block(&draws[a], position[a]);
        else
            plsh_partition_block(&grid->axis[a], sample, position[a], &block);
        at.x[a] = block.begin;
    }
    return at;
}

static uint64_t corner_hash(const corner *at) {
    uint64_t hash = 0;
    for (int a = 0; a < PLSH_GRID_AXES; a++) {
        hash = (hash ^ (uint64_t)at->x[a]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

/* An open hash table from corners to labels; slots hold label + 1. At most half full. */
typedef struct corner_table {
    corner *corners; /* by label */
    int32_t *slots;
    uint64_t mask;
    int32_t count;
} corner_table;

static int32_t table_label(corner_table *table, const corner *at) {
    uint64_t slot = corner_hash(at) & table->mask;
    for (; table->slots[slot] != 0; slot = (slot + 1) & table->mask) {
        int32_t label = table->slots[slot] - 1;
        if (memcmp(&table->corners[label], at, sizeof *at) == 0) return label;
    }
    table->corners[table->count] = *at;
    table->slots[slot] = ++table->count;
    return table->count - 1;
}

plsh_status plsh_grid_labels(const plsh_grid *grid, int64_t sample, const int64_t *positions,
                             int64_t n, int32_t *labels, plsh_error *error) {
    plsh_status status = check(grid, sample, n, error);
    if (status) return status;
    corner_table table = {.mask = 1};
    while (table.mask + 1 < 2 * (uint64_t)n) table.mask = 2 * table.mask + 1;
    void *corners, *slots = NULL;
    status = plsh_allocate(&corners, (size_t)n, sizeof(corner), "corners of blocks", error);
    if (!status) status = plsh_allocate(&slots, table.mask + 1, 4, "table of blocks", error);
    if (!status) {
        table.corners = corners;
        table.slots = slots;
        plsh_draw draws[PLSH_GRID_AXES];
        for (int a = 0; a < grid->dims; a++)
            if (plsh_partition_is_grid(&grid->axis[a]))
                draws[a] = plsh_draw_get(&grid->axis[a], sample);
        for (int64_t i = 0; i < n; i++) {
            corner at = corner_of(grid, draws, sample, positions + i * grid->dims);
            labels[i] = table_label(&table, &at);
        }
    }
    plsh_release(corners);
    plsh_release(slots);
    return status;
}
