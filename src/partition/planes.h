/* partition: the hyperplanes of a draw.
 *
 * In units of 1 / rate, the offsets p > 0 of a draw are a Poisson process of rate 2 / E|u.e|, with
 * normals uniform on the sphere (docs/mathematics.md, "Cells"). It is cut into shells of equal
 * width, each with a Poisson number of hyperplanes of mean 2, so that a draw is a function of the
 * set and can be extended outward. */
#ifndef PLSH_PARTITION_PLANES_H
#define PLSH_PARTITION_PLANES_H

#include "plsh/cells.h"

enum { PLSH_PLANES_MOST = 1 << 24 };

/* Hyperplanes u.x = offset; weight is a random word of its own. Arrays of `capacity`. */
typedef struct plsh_planes {
    int dim;
    int64_t count, capacity;
    double *normal[3], *offset;
    uint64_t *weight;
} plsh_planes;

/* About how many hyperplanes of a draw of this rate meet the ball of this radius. */
double plsh_planes_expected(int dim, double rate, double radius);

/* Replaces `planes` by those of the sample, of this rate, whose offset is below `radius`; grows the
 * arrays. *planes begins as {0}. plsh_planes_expected is at most PLSH_PLANES_MOST. */
plsh_status plsh_planes_draw(const plsh_partition *set, int64_t sample, int dim, double rate,
                             double radius, plsh_planes *planes, plsh_error *error);
void plsh_planes_release(plsh_planes *planes);

#endif
