/* attention: what `exact` may leave out.
 *
 * A piece of keys weighs, for query i, at most 2^u times the sum of k over its distances, where u
 * bounds the score: |q_i| |k|max, or the maximum over the piece's box. What is left out is
 * charged against eps times the row's sum so far, which only grows: half of eps to pieces that
 * their box excludes, a quarter to those that their norm alone excludes, a quarter to the rest
 * beyond the point where the walk stops. NaN satisfies no comparison, so it leaves out nothing. */
#include <math.h>
#include <string.h>

#include "attention/tile.h"
#include "base/memory.h"

enum { PIECES = PLSH_TILE_KEYS / PLSH_BOUND_KEYS };
typedef enum side { LEFT, RIGHT } side;

/* The larger, and NaN once there is one. */
static float larger(float a, float b) { return a >= b || a != a ? a : b; }

plsh_bounds plsh_bounds_at(const plsh_plan *plan, char *memory) {
    size_t pieces = (size_t)plan->first_piece[plan->sequences];
    float *at = (float *)(void *)memory;
    return (plsh_bounds){.norm = at,
                         .norm_before = at + pieces,
                         .norm_after = at + pieces * 2,
                         .v_top = at + pieces * 3,
                         .box = plan->boxes ? at + pieces * 4 : NULL};
}

void plsh_bounds_piece(const plsh_plan *plan, const plsh_bounds *bounds, const char *k,
                       int64_t sequence, int64_t piece, float *wide) {
    const plsh_attention *shape = &plan->shape;
    int d = (int)shape->head_dim;
    int64_t place = piece - plan->first_piece[sequence];
    int64_t first = plan->key_offset[sequence] + place * plan->bound_keys;
    int64_t left = plan->key_offset[sequence + 1] - first;
    int rows = left < plan->bound_keys ? (int)left : plan->bound_keys;
    const char *from = k + first * shape->k.row_stride * (ptrdiff_t)plsh_dtype_size(shape->dtype);
    const float *keys = (const float *)(const void *)from;
    ptrdiff_t stride = shape->k.row_stride;
    if (shape->dtype != PLSH_DTYPE_FLOAT32) {
        plan->kernel.widen(plan->kernel.group, wide, d, from, shape->dtype, stride, rows, d);
        keys = wide;
        stride = d;
    }
    float unused[2 * PLSH_DIM_MAX];
    float *box = bounds->box ? bounds->box + piece * 2 * d : unused;
    float square = plan->kernel.box(plan->kernel.group, box, keys, stride, rows, d);
    /* A sum of d squares is off by at most d 2^-24 of itself, and so is q's. */
    bounds->norm[piece] = sqrtf(square) * (1.0f + (float)d * 0x1p-22f);
}

void plsh_bounds_values(const plsh_plan *plan, const plsh_bounds *bounds, const char *v,
                        int64_t sequence, int64_t piece, float *wide) {
    const plsh_attention *shape = &plan->shape;
    int dv = (int)shape->value_dim;
    int64_t first =
        plan->key_offset[sequence] + (piece - plan->first_piece[sequence]) * plan->bound_keys;
    int64_t end = first + plan->bound_keys, last = plan->key_offset[sequence + 1];
    ptrdiff_t size = (ptrdiff_t)plsh_dtype_size(shape->dtype);
    float most = 0.0f;
    for (int64_t j = first; j < end && j < last; j++) {
        const char *from = v + j * shape->v.row_stride * size;
        const float *row = (const float *)(const void *)from;
        if (shape->dtype != PLSH_DTYPE_FLOAT32) {
            plan->kernel.widen(plan->kernel.group, wide, dv, from, shape->dtype, dv, 1, dv);
            row = wide;
        }
        for (int c = 0; c < dv; c++) most = larger(most, fabsf(row[c]));
    }
    bounds->v_top[piece] = most;
}

void plsh_bounds_maxima(const plsh_plan *plan, const plsh_bounds *bounds) {
    for (int64_t x = 0; x < plan->sequences; x++) {
        int64_t begin = plan->first_piece[x], end = plan->first_piece[x + 1];
        float most = 0.0f;
        for (int64_t t = begin; t < end; t++) {
            bounds->norm_before[t] = most = larger(most, bounds->norm[t]);
        }
        most = 0.0f;
        for (int64_t t = end - 1; t >= begin; t--) {
            bounds->norm_after[t] = most = larger(most, bounds->norm[t]);
        }
        for (int64_t t = end - 1; t > begin; t--) {
            bounds->v_top[t - 1] = larger(bounds->v_top[t - 1], bounds->v_top[t]);
        }
    }
}

void plsh_bounds_begin(plsh_tile *tile) {
    int group = tile->kernel->group, d = (int)tile->plan->shape.head_dim;
    memset(tile->left_out, 0, sizeof(float) * (size_t)(tile->groups * group));
    memset(tile->q_norm, 0, sizeof(float) * (size_t)(tile->groups * group));
    for (int g = 0; g < tile->groups; g++) {
        const float *q = tile->packed + (ptrdiff_t)g * group * d;
        float *norm = tile->q_norm + (ptrdiff_t)g * group;
        for (int x = 0; x < d; x++) {
            for (int r = 0; r < group; r++) norm[r] += q[x * group + r] * q[x * group + r];
        }
        for (int r = 0; r < group; r++) norm[r] = sqrtf(norm[r]);
    }
}

/* log2 of a row's sum so far, rounded down: for l = 2^e (1 + f), log2 l >= e + f, which is the
 * representation of l read as an integer. */
static float log_sum(float m, float l) {
    int32_t bits;
    memcpy(&bits, &l, sizeof(bits));
    return m + (float)(bits - 0x3f800000) * 0x1p-23f;
}

/* shift[r]: log2 of the row's sum, plus what ALiBi takes off row r against the row of the group
 * that is nearest to that side. Returns the number of rows. */
static int fill_shift(plsh_tile *tile, int g, side where) {
    int64_t begin = plsh_tile_group_begin(tile, g), end = plsh_tile_group_end(tile, g);
    int rows = (int)(end - begin), group = tile->kernel->group;
    const float *m = tile->m + (ptrdiff_t)g * group, *l = tile->l + (ptrdiff_t)g * group;
    float slope = (float)tile->head->slope * (1.0f - 0x1p-20f);
    float first = where == LEFT ? 0.0f : slope * (float)(rows - 1);
    float step = where == LEFT ? slope : -slope;
    for (int r = 0; r < rows; r++) tile->shift[r] = log_sum(m[r], l[r]) + first + step * (float)r;
    return rows;
}

float plsh_bounds_log_rest(const plsh_head_plan *head, int64_t t) {
    if (head->log_k) return head->log_tail[t];
    double step = -expm1(-head->slope * 0.6931471805599453);
    return (float)(-head->slope * (double)t - log2(step)) + 1e-3f;
}

/* log2 of the sum of k over `count` distances, the least of them at least t: for every row. */
static float log_piece(const plsh_head_plan *head, int64_t t, int count) {
    float rest = plsh_bounds_log_rest(head, t), each = log2f((float)count) + 1e-3f;
    if (!head->log_k) each -= (float)(head->slope * (double)t);
    if (head->log_k && head->decreasing) each += head->log_k[t];
    return rest < each ? rest : each;
}

/* The largest of |q| norm - shift over the rows, or NaN. */
static float worst_row(const plsh_tile *tile, int g, int rows, float norm) {
    const float *q_norm = tile->q_norm + (ptrdiff_t)g * tile->kernel->group;
    float worst = -INFINITY;
    for (int r = 0; r < rows; r++) worst = larger(worst, q_norm[r] * norm - tile->shift[r]);
    return worst;
}

/* A quarter of eps, for both sides together where there are two. */
static float log_quarter(const plsh_tile *tile) {
    return (float)log2(tile->head->head.eps) - (tile->plan->shape.causal ? 2.0f : 3.0f);
}

static bool can_stop(plsh_tile *tile, int g, side where, int64_t distance, float norm) {
    int rows = fill_shift(tile, g, where);
    return worst_row(tile, g, rows, norm) + plsh_bounds_log_rest(tile->head, distance) <=
           log_quarter(tile);
}

bool plsh_bounds_stop_left(plsh_tile *tile, int g, int64_t end) {
    if (end <= 0) return true;
    int64_t piece = tile->plan->first_piece[tile->sequence] + (end - 1) / tile->plan->bound_keys;
    int64_t distance = plsh_tile_group_begin(tile, g) - (end - 1);
    return can_stop(tile, g, LEFT, distance, tile->bounds->norm_before[piece]);
}

bool plsh_bounds_stop_right(plsh_tile *tile, int g, int64_t begin) {
    if (begin >= tile->keys) return true;
    int64_t piece = tile->plan->first_piece[tile->sequence] + begin / tile->plan->bound_keys;
    int64_t distance = begin - (plsh_tile_group_end(tile, g) - 1);
    return can_stop(tile, g, RIGHT, distance, tile->bounds->norm_after[piece]);
}

/* Charges what the boxes of some pieces may weigh; keep[i]: the charge does not fit. */
static void charge(plsh_tile *tile, int g, int rows, int pieces, bool *keep) {
    int group = tile->kernel->group;
    float *left_out = tile->left_out + (ptrdiff_t)g * group;
    const float budget = 0.5f * (float)tile->head->head.eps;
    for (int i = 0; i < pieces; i++) {
        const float *e = tile->bound + (ptrdiff_t)i * group;
        if (!keep[i]) continue;
        bool fits = true;
        for (int r = 0; r < rows; r++) fits &= left_out[r] + e[r] <= budget;
        keep[i] = !fits;
        for (int r = 0; fits && r < rows; r++) left_out[r] += e[r];
    }
}

/* Decides about pieces of the sequence, all on one side of group g. */
static void decide(plsh_tile *tile, int g, side where, int64_t piece, int pieces, bool *keep) {
    if (pieces == 0) return;
    const plsh_plan *plan = tile->plan;
    int64_t base = plan->first_piece[tile->sequence], d = plan->shape.head_dim;
    int64_t all = plan->first_piece[tile->sequence + 1] - base;
    const float quick = log_quarter(tile) - log2f((float)all);
    int rows = fill_shift(tile, g, where), group = tile->kernel->group;
    float bias[PIECES];
    bool any = false;
    for (int i = 0; i < pieces; i++) {
        int64_t begin = (piece + i) * plan->bound_keys, end = begin + plan->bound_keys;
        end = end < tile->keys ? end : tile->keys;
        int64_t t = where == LEFT ? plsh_tile_group_begin(tile, g) - (end - 1)
                                  : begin - (plsh_tile_group_end(tile, g) - 1);
        bias[i] = log_piece(tile->head, t, (int)(end - begin));
        keep[i] =
            !(worst_row(tile, g, rows, tile->bounds->norm[base + piece + i]) + bias[i] <= quick);
        any |= keep[i];
    }
    if (!any) return;
    tile->kernel->bounds(group, tile->bound, tile->packed + (ptrdiff_t)g * group * d,
                         tile->bounds->box + (base + piece) * 2 * d,
                         tile->bounds->norm + base + piece, bias,
                         tile->q_norm + (ptrdiff_t)g * group, tile->shift, pieces, (int)d);
    charge(tile, g, rows, pieces, keep);
}

void plsh_bounds_visit(plsh_tile *tile, int g, int64_t first, int64_t end) {
    int64_t size = tile->plan->bound_keys, begin = plsh_tile_group_begin(tile, g);
    int64_t piece = first / size, pieces = (end - 1) / size - piece + 1, left = 0, right = pieces;
    while (left < pieces && (piece + left + 1) * size <= begin) left++;
    while (right > left && (piece + right - 1) * size >= plsh_tile_group_end(tile, g)) right--;
    bool keep[PIECES];
    for (int64_t i = left; i < right; i++) keep[i] = true; /* the diagonal */
    decide(tile, g, LEFT, piece, (int)left, keep);
    decide(tile, g, RIGHT, piece + right, (int)(pieces - right), keep + right);
    for (int64_t i = 0, run; i < pieces; i += run) {
        run = 1;
        if (!keep[i]) continue;
        while (i + run < pieces && keep[i + run]) run++;
        int64_t from = (piece + i) * size, to = (piece + i + run) * size;
        from = from < first ? first : from;
        to = to > end ? end : to;
        tile->pass->visit(tile, g, from, (int)(to - from));
    }
}
