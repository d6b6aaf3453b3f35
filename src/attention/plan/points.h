/* attention: the positions of a plan that are points, and an order in which near ones are close
 * together. */
#ifndef PLSH_ATTENTION_POINTS_H
#define PLSH_ATTENTION_POINTS_H

#include "plsh/head.h"

/* Copies of the positions of a descriptor. dim = 0: positions are row numbers.
 *
 * `exact` and `window` take queries and keys in an order along a Hilbert curve, so that tiles and
 * pieces are compact. A place is a row's number in that order; both count from the first row of
 * the sequence. Where the rows are in a good order already, row and place are the same and the
 * arrays of the order are NULL. */
typedef struct plsh_plan_points {
    int dim;
    int64_t sets, queries, keys;
    bool query_given;                 /* the queries are not simply the last keys */
    float *query, *key;               /* [sets][rows][dim] */
    int32_t *query_order, *key_order; /* [sets][rows]: the row of a place */
    float *query_placed, *key_placed; /* [sets][rows][dim]: points by place */
    int64_t pieces;                   /* of all sequences */
    float *box;                       /* [sets][pieces][2 dim]: least and most coordinates */
    int32_t *least_row;               /* [sets][pieces]: the first row of a piece */
} plsh_plan_points;

/* The sequences of a plan, and the pieces that their keys are cut into. */
typedef struct plsh_points_cut {
    int64_t sequences;
    const int64_t *query_offset, *key_offset, *first_piece; /* sequences + 1 */
    int piece_keys;
} plsh_points_cut;

/* Copies the positions of a checked descriptor; cut: without pieces. */
plsh_status plsh_points_make(plsh_plan_points *points, const plsh_attention *a,
                             const plsh_points_cut *cut, plsh_error *error);

/* Makes the order, and the boxes of all pieces. */
plsh_status plsh_points_arrange(plsh_plan_points *points, const plsh_points_cut *cut,
                                plsh_error *error);
void plsh_points_release(plsh_plan_points *points);

/* The set of head h. */
static inline int64_t plsh_points_set(const plsh_plan_points *points, int64_t h) {
    return points->sets == 1 ? 0 : h;
}

/* Its first points, in the order of the rows. */
static inline const float *plsh_points_of_queries(const plsh_plan_points *points, int64_t h) {
    return points->query + plsh_points_set(points, h) * points->queries * points->dim;
}
static inline const float *plsh_points_of_keys(const plsh_plan_points *points, int64_t h) {
    return points->key + plsh_points_set(points, h) * points->keys * points->dim;
}

#endif
