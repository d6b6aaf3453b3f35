/* plsh/cells.h - positional LSH for points in R^1, R^2 or R^3: cells of Poisson hyperplanes.
 *
 * One draw cuts space by random hyperplanes u.x = p; two points share a cell if no hyperplane
 * separates them. The normals u are uniform on the sphere and the offsets p a Poisson process of
 * such a rate that
 *
 *     Pr[x and y share a cell] = k(|x - y|)    exactly, with the Euclidean distance,
 *
 * for ALiBi and for the decays that are mixtures of it: KERPLE-log, KERPLE-power with an exponent
 * of at most 1, and these with a limit. For mixtures a draw first draws its rate. Three points
 * share a cell with probability k(half the perimeter of their triangle). Proofs:
 * docs/mathematics.md, "Cells".
 *
 *     plsh_partition set = plsh_partition_default(8.0, 20);
 *     set.scheme = PLSH_SCHEME_HYPERPLANES;
 *     plsh_cells_label(&set, 0, 20, (plsh_point_set){2, n, points}, labels, 0, &error);
 *
 * The hyperplanes of a draw are a function of (design, decay, samples, seed, head, sample) alone:
 * the cell of a point does not depend on the other points. They are counted from the origin
 * outward, so a draw takes time and memory in proportion to the largest |x| / sigma. */
#ifndef PLSH_CELLS_H
#define PLSH_CELLS_H

#include "plsh/partition.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The label of a point without a position: it shares a cell with every point. */
enum { PLSH_CELL_EVERY = -1 };

/* n points: x[n][dim]. A point with a NaN coordinate has no position. */
typedef struct plsh_point_set {
    int dim;   /* 1 to 3 */
    int64_t n; /* below 2^31 */
    const float *x;
} plsh_point_set;

/* The hyperplane normal.x = offset, offset > 0, normal a unit vector of dim coordinates. */
typedef struct plsh_hyperplane {
    double normal[3], offset;
} plsh_hyperplane;

/* Checks that the set can be drawn: its scheme is hyperplanes, and its decay a mixture of
 * exponentials. */
PLSH_API plsh_status plsh_cells_check(const plsh_partition *set, plsh_error *error);

/* Labels of the points in the draws first .. first + count - 1, labels[count][n]: equal if the
 * points share a cell, numbered 0, 1, .. in the order of first appearance, PLSH_CELL_EVERY for a
 * point without a position. (Points of different cells get one label with probability 2^-64 per
 * pair and draw.) threads = 0: all; the result does not depend on it.
 *
 * A draw of which more than 2^24 hyperplanes reach the farthest point is refused, unless distinct
 * points are at least 100 / rate apart: then each is a cell of its own (that misses a shared cell
 * with probability e^-100). About O(n log n + m sqrt(n)) for m hyperplanes in the plane. */
PLSH_API plsh_status plsh_cells_label(const plsh_partition *set, int64_t first, int64_t count,
                                      plsh_point_set points, int32_t *labels, int threads,
                                      plsh_error *error);

/* The hyperplanes of a draw with an offset below `radius`, for pictures: those that meet the ball
 * of that radius around the origin. Returns how many there are, INT64_MAX for more than 2^24, and
 * writes the first `capacity` of them. */
PLSH_API int64_t plsh_cells_hyperplanes(const plsh_partition *set, int64_t sample, int dim,
                                        double radius, plsh_hyperplane *planes, int64_t capacity);

#ifdef __cplusplus
}
#endif

#endif
