/* attention: the bias of positions that are points. */
#include "attention/forward/plane.h"

#include <math.h>

static const double LOG2_E = 1.4426950408889634;

/* Rows beyond the tile's last are at the origin. */
void plsh_plane_pack(plsh_tile *tile) {
    const int group = tile->kernel->group, dim = tile->at.dim;
    for (int r = 0; r < tile->at.groups * group; r++) {
        float *to = tile->points + (ptrdiff_t)(r / group) * dim * group + r % group;
        for (int i = 0; i < dim; i++)
            to[i * group] = r < tile->at.rows ? tile->at.x[(ptrdiff_t)r * dim + i] : 0.0f;
    }
}

plsh_points plsh_plane_points(const plsh_tile *tile, int g, int64_t first) {
    const int dim = tile->at.dim;
    return (plsh_points){.x = tile->points + (ptrdiff_t)g * dim * tile->kernel->group,
                         .y = tile->at.y + first * dim,
                         .dim = dim};
}

double plsh_plane_distance(const plsh_tile *tile, int64_t row, int64_t key) {
    const float *x = tile->at.x + row * tile->at.dim, *y = tile->at.y + key * tile->at.dim;
    double square = 0;
    for (int i = 0; i < tile->at.dim; i++) {
        const double apart = (double)x[i] - (double)y[i];
        square += apart * apart;
    }
    return isnan(square) ? 0 : sqrt(square);
}

/* The larger, and NaN once there is one. */
static float larger(float a, float b) { return a >= b || a != a ? a : b; }

void plsh_plane_bias(plsh_tile *tile, int g, int64_t first, int count, float *s) {
    const int group = tile->kernel->group;
    const plsh_decay *decay = &tile->at.head->head.partition.decay;
    const plsh_points points = plsh_plane_points(tile, g, first);
    float *top = tile->scratch.top, *t = tile->scratch.t;
    if (plsh_decay_is_linear(decay)) {
        tile->kernel->recede(s, top, points, count, (float)(LOG2_E / decay->a));
        return;
    }
    tile->kernel->distances(t, points, count);
    for (int r = 0; r < group; r++) top[r] = -INFINITY;
    for (int j = 0; j < count; j++) {
        for (int r = 0; r < group; r++) {
            const ptrdiff_t at = (ptrdiff_t)j * group + r;
            if (s[at] != -INFINITY)
                s[at] += (float)(plsh_decay_log_at(decay, (double)t[at]) * LOG2_E);
            top[r] = larger(top[r], s[at]);
        }
    }
}
