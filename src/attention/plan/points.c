/* attention: the positions of a plan that are points. */
#include "attention/plan/points.h"

#include <string.h>

#include "base/memory.h"

static plsh_status allocate(float **out, int64_t rows, const plsh_plan_points *points,
                            plsh_error *error) {
    return plsh_allocate((void **)out, (size_t)(points->sets * rows),
                         sizeof(float) * (size_t)points->dim, "positions", error);
}

/* The queries are the last keys of their sequences. */
static void take_last_keys(plsh_plan_points *points, int64_t sequences, const int64_t *query_offset,
                           const int64_t *key_offset) {
    for (int64_t set = 0; set < points->sets; set++) {
        for (int64_t x = 0; x < sequences; x++) {
            const int64_t count = query_offset[x + 1] - query_offset[x];
            const int64_t to = set * points->queries + query_offset[x];
            const int64_t from = set * points->keys + key_offset[x + 1] - count;
            memcpy(points->query + to * points->dim, points->key + from * points->dim,
                   sizeof(float) * (size_t)(count * points->dim));
        }
    }
}

plsh_status plsh_points_make(plsh_plan_points *points, const plsh_attention *a, int64_t sequences,
                             const int64_t *query_offset, const int64_t *key_offset,
                             plsh_error *error) {
    const plsh_positions *p = &a->positions;
    if (p->dim == 0) return PLSH_STATUS_OK;
    *points =
        (plsh_plan_points){.dim = p->dim, .sets = p->sets, .queries = a->queries, .keys = a->keys};
    const size_t bytes = sizeof(float) * (size_t)(p->sets * p->dim);
    plsh_status status = allocate(&points->key, a->keys, points, error);
    if (!status) status = allocate(&points->query, a->queries, points, error);
    if (status) return status;
    if (a->keys > 0) memcpy(points->key, p->key, bytes * (size_t)a->keys);
    if (!p->query)
        take_last_keys(points, sequences, query_offset, key_offset);
    else if (a->queries > 0)
        memcpy(points->query, p->query, bytes * (size_t)a->queries);
    return PLSH_STATUS_OK;
}

void plsh_points_release(plsh_plan_points *points) {
    plsh_release(points->query);
    plsh_release(points->key);
}
