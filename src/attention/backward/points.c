/* attention: gradients by positions that are points. */
#include "attention/backward/points.h"

#include <math.h>
#include <string.h>

#include "attention/forward/plane.h"

size_t plsh_backward_points_size(const plsh_plan *plan) {
    const plsh_plan_points *p = &plan->points;
    return (size_t)(plan->shape.heads * (p->keys + p->queries) * p->dim);
}

/* The sums of head h: keys, then queries. */
static ptrdiff_t sums_at(const plsh_plan *plan, int64_t h) {
    const plsh_plan_points *p = &plan->points;
    return h * (p->keys + p->queries) * p->dim;
}

void plsh_backward_points_select(plsh_backward_tile *b, double *sums, int64_t h) {
    const plsh_plan *plan = b->tile.plan;
    const int64_t x = b->tile.at.sequence, dim = plan->points.dim;
    b->points.key = b->points.query = NULL;
    if (!sums || b->tile.at.dim == 0) return;
    double *head = sums + sums_at(plan, h);
    b->points.key = head + plan->key_offset[x] * dim;
    b->points.query = head + (plan->points.keys + plan->query_offset[x]) * dim;
    memset(b->points.d_x, 0, sizeof(double) * (size_t)(PLSH_TILE_QUERIES * dim));
    memset(b->points.d_y, 0, sizeof(double) * (size_t)(PLSH_TILE_KEYS * dim));
}

/* The unit vector from the key to the query; false where there is none. */
static bool find_direction(const plsh_tile *tile, const float *x, int stride, const float *y,
                           double t, double *to) {
    for (int i = 0; i < tile->at.dim; i++) {
        const double way = (double)x[i * stride] - (double)y[i];
        if (isnan(way)) return false;
        to[i] = t > 0 ? way / t : 1;
    }
    return t > 0 || (tile->at.dim == 1 && tile->plan->shape.causal);
}

void plsh_backward_points_add(plsh_backward_tile *b, int g, int64_t first, int count,
                              const float *ds) {
    plsh_tile *tile = &b->tile;
    const plsh_decay *decay = &tile->at.head->head.partition.decay;
    const int group = tile->kernel->group, rows = plsh_tile_group_rows(tile, g), dim = tile->at.dim;
    const plsh_points points = plsh_plane_points(tile, g, first);
    const bool linear = plsh_decay_is_linear(decay);
    tile->kernel->distances(tile->scratch.t, points, count);
    for (int j = 0; j < count; j++) {
        double *d_y = b->points.d_y + (first - tile->step.first + j) * dim, to[3];
        for (int r = 0; r < rows; r++) {
            const double t = (double)tile->scratch.t[j * group + r];
            const double x = (double)ds[j * group + r];
            double *d_x = b->points.d_x + (ptrdiff_t)(g * group + r) * dim;
            if (x == 0 || !find_direction(tile, points.x + r, group, points.y + j * dim, t, to))
                continue;
            const double by = x * (linear ? -1 / decay->a : plsh_decay_log_slope_at(decay, t));
            for (int i = 0; i < dim; i++) {
                d_x[i] += by * to[i];
                d_y[i] -= by * to[i];
            }
        }
    }
}

void plsh_backward_points_end_step(plsh_backward_tile *b) {
    const plsh_tile *tile = &b->tile;
    const int dim = tile->at.dim;
    for (int j = 0; j < tile->step.count; j++) {
        double *to = b->points.key + plsh_tile_key_row(tile, tile->step.first + j) * dim;
        for (int i = 0; i < dim; i++) to[i] += b->points.d_y[j * dim + i];
    }
    memset(b->points.d_y, 0, sizeof(double) * (size_t)(PLSH_TILE_KEYS * dim));
}

void plsh_backward_points_finish(plsh_backward_tile *b) {
    const plsh_tile *tile = &b->tile;
    const int dim = tile->at.dim;
    for (int r = 0; r < tile->at.rows; r++)
        memcpy(b->points.query + plsh_tile_row(tile, r) * dim, b->points.d_x + (ptrdiff_t)r * dim,
               sizeof(double) * (size_t)dim);
}

/* to = `count` sums of each set, from number `first` on, added up over its heads and divided by the
 * scale. */
static void add_heads(const plsh_plan *plan, const double *sums, int64_t set, int64_t first,
                      int64_t count, float *to) {
    const int64_t begin = plan->points.sets == 1 ? 0 : set;
    const int64_t end = plan->points.sets == 1 ? plan->shape.heads : set + 1;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t h = begin; h < end; h++) sum += sums[sums_at(plan, h) + first + i];
        to[i] = (float)(sum / plan->shape.scale);
    }
}

/* The queries are the last keys: their sums go to these. */
static void join_queries(const plsh_plan *plan, double *head) {
    const plsh_plan_points *p = &plan->points;
    for (int64_t x = 0; x < plan->sequences; x++) {
        const int64_t count = plan->query_offset[x + 1] - plan->query_offset[x];
        double *to = head + (plan->key_offset[x + 1] - count) * p->dim;
        const double *from = head + (p->keys + plan->query_offset[x]) * p->dim;
        for (int64_t i = 0; i < count * p->dim; i++) to[i] += from[i];
    }
}

void plsh_backward_points_write(const plsh_plan *plan, double *sums, const plsh_backward *arrays) {
    const plsh_plan_points *p = &plan->points;
    const int64_t keys = p->keys * p->dim, queries = p->queries * p->dim;
    for (int64_t h = 0; !p->query_given && h < plan->shape.heads; h++)
        join_queries(plan, sums + sums_at(plan, h));
    for (int64_t set = 0; set < p->sets; set++) {
        if (arrays->d_key_positions)
            add_heads(plan, sums, set, 0, keys, arrays->d_key_positions + set * keys);
        if (arrays->d_query_positions)
            add_heads(plan, sums, set, keys, queries, arrays->d_query_positions + set * queries);
    }
}
