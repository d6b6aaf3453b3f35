/* attention: the positions of a plan that are points. */
#ifndef PLSH_ATTENTION_POINTS_H
#define PLSH_ATTENTION_POINTS_H

#include "plsh/head.h"

/* Copies of the positions of a descriptor. dim = 0: positions are row numbers. */
typedef struct plsh_plan_points {
    int dim;
    int64_t sets, queries, keys;
    float *query, *key; /* [sets][rows][dim] */
} plsh_plan_points;

/* Copies the positions of a checked descriptor with these offsets. */
plsh_status plsh_points_make(plsh_plan_points *points, const plsh_attention *a, int64_t sequences,
                             const int64_t *query_offset, const int64_t *key_offset,
                             plsh_error *error);
void plsh_points_release(plsh_plan_points *points);

/* The first point of head h's set. */
static inline const float *plsh_points_of_queries(const plsh_plan_points *points, int64_t h) {
    return points->query + (points->sets == 1 ? 0 : h * points->queries * points->dim);
}
static inline const float *plsh_points_of_keys(const plsh_plan_points *points, int64_t h) {
    return points->key + (points->sets == 1 ? 0 : h * points->keys * points->dim);
}

#endif
