/* attention: gradients by positions that are points.
 *
 *     d x_i = sum_j dS_ij (d log k / dr) (x_i - y_j) / r,     d y_j = the same over i, negated,
 *
 * r = |x_i - y_j|. At r = 0 the direction is undefined and the pair counts for nothing, except on
 * the line if causal: there the query's position is the later one, x_i - y_j = 0+, as with forget
 * gates. Sums are kept per head, in double, and added up over the heads of a set at the end. */
#ifndef PLSH_ATTENTION_BACKWARD_POINTS_H
#define PLSH_ATTENTION_BACKWARD_POINTS_H

#include "attention/backward/backward.h"

/* Doubles of the sums of all heads: [heads][keys + queries][dim], 0 without points. */
size_t plsh_backward_points_size(const plsh_plan *plan);

/* Where the tile's head and sequence have theirs. `sums` NULL: no gradients are asked for. */
void plsh_backward_points_select(plsh_backward_tile *b, double *sums, int64_t h);

/* Adds group g and the keys first .. first + count - 1 of the step; ds = scale dS. */
void plsh_backward_points_add(plsh_backward_tile *b, int g, int64_t first, int count,
                              const float *ds);

/* The sums of the step's keys, when it is the tile's turn; and those of the tile's queries. */
void plsh_backward_points_end_step(plsh_backward_tile *b);
void plsh_backward_points_finish(plsh_backward_tile *b);

/* d_key_positions and d_query_positions of the call. */
void plsh_backward_points_write(const plsh_plan *plan, double *sums, const plsh_backward *arrays);

#endif
