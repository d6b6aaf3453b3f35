/* attention: the bias of positions that are points, and distances to points and boxes. */
#include "attention/forward/plane.h"

#include "base/numbers.h"

#include <math.h>

/* Distances to boxes are computed as those to points: the same roundings, but in another order. */
static const float DISTANCE_SLACK = 1.0f - 0x1p-20f;

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

/* ---- Masks ---------------------------------------------------------------------------------- */

bool plsh_plane_masks(const plsh_tile *tile) {
    return tile->at.head->head.method == PLSH_METHOD_WINDOW ||
           (tile->plan->shape.causal && tile->at.key_order);
}

/* Keys that query r may see by its row. */
static bool is_seen(const plsh_tile *tile, int r, int64_t key) {
    return !tile->plan->shape.causal ||
           plsh_tile_key_row(tile, key) <= plsh_plane_position(tile, r);
}

int64_t plsh_plane_mask(plsh_tile *tile, int g, int64_t first, int count, float *s) {
    const int group = tile->kernel->group, rows = plsh_tile_group_rows(tile, g);
    const bool window = tile->at.head->head.method == PLSH_METHOD_WINDOW;
    const double radius = tile->at.head->head.radius;
    int64_t pairs = 0;
    if (window) tile->kernel->distances(tile->scratch.t, plsh_plane_points(tile, g, first), count);
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < count; j++) {
            const ptrdiff_t at = (ptrdiff_t)j * group + r;
            const bool far = window && (double)tile->scratch.t[at] >= radius;
            if (!far && is_seen(tile, g * group + r, first + j))
                pairs++;
            else
                s[at] = -INFINITY;
        }
    }
    return pairs;
}

void plsh_plane_mask_near(plsh_tile *tile, int g, int64_t first, int count, float *s) {
    const int group = tile->kernel->group, rows = plsh_tile_group_rows(tile, g);
    const double radius = tile->at.head->head.radius;
    tile->kernel->distances(tile->scratch.t, plsh_plane_points(tile, g, first), count);
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < count; j++) {
            const ptrdiff_t at = (ptrdiff_t)j * group + r;
            if ((double)tile->scratch.t[at] < radius || !is_seen(tile, g * group + r, first + j))
                s[at] = -INFINITY;
        }
    }
}

/* ---- Bias ----------------------------------------------------------------------------------- */

void plsh_plane_bias(plsh_tile *tile, int g, int64_t first, int count, float *s) {
    const int group = tile->kernel->group;
    const plsh_decay *decay = &tile->at.head->head.partition.decay;
    const plsh_points points = plsh_plane_points(tile, g, first);
    float *top = tile->scratch.top, *t = tile->scratch.t;
    if (plsh_decay_is_linear(decay)) {
        tile->kernel->recede(s, top, points, count, (float)(PLSH_LOG2_E / decay->a));
        return;
    }
    tile->kernel->distances(t, points, count);
    for (int r = 0; r < group; r++) top[r] = -INFINITY;
    for (int j = 0; j < count; j++) {
        for (int r = 0; r < group; r++) {
            const ptrdiff_t at = (ptrdiff_t)j * group + r;
            if (s[at] != -INFINITY)
                s[at] += (float)(plsh_decay_log_at(decay, (double)t[at]) * PLSH_LOG2_E);
            top[r] = plsh_larger(top[r], s[at]);
        }
    }
}

/* ---- Far points ----------------------------------------------------------------------------- */

float plsh_plane_log_most(const plsh_head_plan *head, float t) {
    const plsh_decay *decay = &head->head.partition.decay;
    if (plsh_decay_is_linear(decay)) return -(float)(head->sums.slope * (double)t) * DISTANCE_SLACK;
    if (!head->sums.decreasing) return 0.0f; /* k is at most 1 */
    const double log = plsh_decay_log_at(decay, (double)t) * PLSH_LOG2_E;
    return (float)(log + 1e-6 + 1e-6 * fabs(log));
}

float plsh_plane_to_piece(const plsh_tile *tile, int g, int64_t piece, float *t) {
    const int group = tile->kernel->group, rows = plsh_tile_group_rows(tile, g), dim = tile->at.dim;
    const float *x = tile->points + (ptrdiff_t)g * dim * group;
    const float *low = tile->at.box + piece * 2 * dim, *high = low + dim;
    float least = INFINITY;
    for (int r = 0; r < rows; r++) t[r] = 0.0f;
    for (int i = 0; i < dim; i++) {
        for (int r = 0; r < rows; r++) {
            const float before = low[i] - x[i * group + r], behind = x[i * group + r] - high[i];
            const float gap = before > behind ? before : behind; /* NaN: no position, 0 */
            t[r] += gap > 0.0f ? gap * gap : 0.0f;
        }
    }
    for (int r = 0; r < rows; r++) {
        /* No position in one coordinate is none at all. */
        for (int i = 0; i < dim; i++)
            if (isnan(x[i * group + r])) t[r] = 0.0f;
        t[r] = sqrtf(t[r]) * DISTANCE_SLACK;
        least = t[r] < least ? t[r] : least;
    }
    return least;
}
