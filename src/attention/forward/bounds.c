/* attention: the keys that `exact` may leave out.
 *
 * head/bound.h has the inequality and the shares of eps. Scores are measured from q.mean, the mean
 * being that of a few keys of the sequence. Charges are compared with eps times the row's sum so
 * far, which only grows. */
#include <math.h>
#include <string.h>

#include "attention/forward/bounds.h"
#include "attention/forward/plane.h"
#include "base/numbers.h"
#include "head/bound.h"

enum { PIECES = PLSH_BOUNDS_RUNS };
typedef enum side { LEFT, RIGHT } side;

void plsh_bounds_begin(plsh_tile *tile) {
    int group = tile->kernel->group, d = (int)tile->plan->shape.head_dim;
    const float *mean = tile->at.summary.mean + tile->at.sequence * d;
    float square = 0.0f, largest[PLSH_GROUP_MAX];
    for (int x = 0; x < d; x++) square += mean[x] * mean[x];
    /* q.mean is off by at most d 2^-24 |q| |mean|. */
    const float slack = (float)d * 0x1p-22f * sqrtf(square);
    memset(tile->exact.left_out, 0, sizeof(float) * (size_t)(tile->at.groups * group));
    memset(tile->exact.left_out_by_norm, 0, sizeof(float) * (size_t)tile->at.groups);
    memset(tile->exact.q_norm, 0, sizeof(float) * (size_t)(tile->at.groups * group));
    for (int g = 0; g < tile->at.groups; g++) {
        const float *q = tile->packed + (ptrdiff_t)g * group * d;
        float *norm = tile->exact.q_norm + (ptrdiff_t)g * group;
        float *along = tile->exact.q_mean + (ptrdiff_t)g * group;
        tile->kernel->scores(along, largest, (plsh_packed_rows){q, 0},
                             (plsh_key_rows){mean, d, 1, d}, (plsh_score_bias){0});
        for (int x = 0; x < d; x++) {
            for (int r = 0; r < group; r++) norm[r] += q[x * group + r] * q[x * group + r];
        }
        for (int r = 0; r < group; r++) {
            norm[r] = sqrtf(norm[r]);
            along[r] += slack * norm[r];
        }
    }
}

/* log2 of a row's sum so far, rounded down: for l = 2^e (1 + f), log2 l >= e + f, which is the
 * representation of l read as an integer. */
static float log_sum(float m, float l) {
    int32_t bits;
    memcpy(&bits, &l, sizeof(bits));
    return m + (float)(bits - 0x3f800000) * 0x1p-23f;
}

/* The rows of a group, for bounds of the keys on one side of it. */
typedef struct row_state {
    int rows;
    float least_shift, most_norm; /* over the rows; NaN where a row has one */
} row_state;

/* shift[r]: log2 of the row's sum, minus q.mean, plus the ALiBi bias of row r relative to the
 * group's row that is nearest to that side. */
static row_state fill_shift(plsh_tile *tile, int g, side where) {
    int64_t begin = plsh_tile_group_begin(tile, g), end = plsh_tile_group_end(tile, g);
    ptrdiff_t lane = (ptrdiff_t)g * tile->kernel->group;
    row_state state = {(int)(end - begin), INFINITY, 0.0f};
    float slope = tile->at.dim > 0 ? 0.0f : (float)tile->at.head->sums.slope * (1.0f - 0x1p-20f);
    float first = where == LEFT ? 0.0f : slope * (float)(state.rows - 1);
    float step = where == LEFT ? slope : -slope;
    for (int r = 0; r < state.rows; r++) {
        float sum =
            log_sum(tile->sums.m[lane + r], tile->sums.l[lane + r]) - tile->exact.q_mean[lane + r];
        tile->exact.shift[r] = sum + first + step * (float)r;
    }
    for (int r = 0; r < state.rows; r++) {
        state.least_shift = -plsh_larger(-state.least_shift, -tile->exact.shift[r]);
        state.most_norm = plsh_larger(state.most_norm, tile->exact.q_norm[lane + r]);
    }
    return state;
}

/* The largest of |q| norm - shift over the rows, or NaN. */
static float worst_row(const plsh_tile *tile, int g, int rows, float norm) {
    const float *q_norm = tile->exact.q_norm + (ptrdiff_t)g * tile->kernel->group;
    float worst = -INFINITY;
    for (int r = 0; r < rows; r++)
        worst = plsh_larger(worst, q_norm[r] * norm - tile->exact.shift[r]);
    return worst;
}

/* log2 of a share of eps, for one side. */
static float log_share(const plsh_tile *tile, plsh_bound_share share) {
    return plsh_bound_log2_of(tile->at.head->log_eps, share,
                              tile->plan->shape.causal || tile->at.dim > 0 ? 1 : 2);
}

/* Charges 2^log to every row of group g, for keys left out by their norms. Only certificates need
 * it. */
static void charge_group(plsh_tile *tile, int g, float log) {
    if (tile->arrays.certificate) tile->exact.left_out_by_norm[g] += exp2f(log);
}

/* rest: log2 of the sum of k over all that is left, norm: the largest of its keys. */
static bool can_stop(plsh_tile *tile, int g, side where, float rest, float norm) {
    row_state state = fill_shift(tile, g, where);
    float limit = log_share(tile, PLSH_BOUND_REST) - rest;
    float worst = state.most_norm * norm - state.least_shift;
    if (!(worst <= limit)) worst = worst_row(tile, g, state.rows, norm);
    if (!(worst <= limit)) return false;
    charge_group(tile, g, worst + rest);
    return true;
}

bool plsh_bounds_stop_left(plsh_tile *tile, int g, int64_t end) {
    if (end <= 0) return true;
    int64_t piece = tile->plan->first_piece[tile->at.sequence] + (end - 1) / tile->plan->bound_keys;
    int64_t distance = plsh_tile_group_begin(tile, g) - (end - 1);
    return can_stop(tile, g, LEFT, plsh_decay_sums_rest(&tile->at.head->sums, distance),
                    tile->at.summary.norm_before[piece]);
}

bool plsh_bounds_stop_right(plsh_tile *tile, int g, int64_t begin) {
    if (begin >= tile->at.keys) return true;
    int64_t piece = tile->plan->first_piece[tile->at.sequence] + begin / tile->plan->bound_keys;
    int64_t distance = begin - (plsh_tile_group_end(tile, g) - 1);
    return can_stop(tile, g, RIGHT, plsh_decay_sums_rest(&tile->at.head->sums, distance),
                    tile->at.summary.norm_after[piece]);
}

/* Charges the bound of piece i of those last bounded; false if it exceeds the budget. */
static bool charge(plsh_tile *tile, int g, int rows, int i) {
    int group = tile->kernel->group;
    float *left_out = tile->exact.left_out + (ptrdiff_t)g * group;
    const float *e = tile->exact.piece + (ptrdiff_t)i * group;
    const float budget = (float)plsh_bound_of(tile->at.head->head.eps, PLSH_BOUND_PIECES, 1);
    bool fits = true;
    for (int r = 0; r < rows; r++) fits &= left_out[r] + e[r] <= budget;
    for (int r = 0; fits && r < rows; r++) left_out[r] += e[r];
    return fits;
}

/* (weight of these keys and of all beyond them) / (weight of these keys), at most, for equal
 * scores; infinite if these are the nearest keys. */
static float beyond_keys(const plsh_tile *tile, int g, int64_t first, int count) {
    const int64_t begin = plsh_tile_group_begin(tile, g), end = plsh_tile_group_end(tile, g);
    const int64_t before = begin - (first + count - 1), behind = first - (end - 1);
    const int64_t t = before > behind ? before : behind;
    if (t < 1) return INFINITY; /* the diagonal */
    return exp2f(plsh_decay_sums_rest(&tile->at.head->sums, t) -
                 plsh_decay_sums_some(&tile->at.head->sums, t, count));
}

/* The same over points, from the sums of k over the steps from this one on and from the next one
 * on; the group has `count` of the step's PLSH_TILE_KEYS keys. */
static float beyond_points(const plsh_tile *tile, int count) {
    const plsh_tile_plane *plane = &tile->plane;
    const float ratio = exp2f(plane->rest[plane->at + 1] - plane->rest[plane->at]);
    if (plane->at == 0 || !(ratio < 1.0f)) return INFINITY;
    return (float)PLSH_TILE_KEYS / (float)count / (1.0f - ratio);
}

/* Group g has added the keys first .. first + count - 1 to its sums, which were l and l_low before.
 * Does their weight fit into the budget? If so, it is charged. Keys farther out are usually
 * lighter, so the test is whether it fits if all keys from there on weighed as much. */
static bool can_leave_out(plsh_tile *tile, int g, int64_t first, int count, const float *l,
                          const float *l_low) {
    const int rows = plsh_tile_group_rows(tile, g);
    const ptrdiff_t lane = (ptrdiff_t)g * tile->kernel->group;
    const float *now = tile->sums.l + lane, *now_low = tile->sums.l_low + lane;
    float *left_out = tile->exact.left_out + lane, e[PLSH_GROUP_MAX];
    const float beyond =
        tile->at.dim > 0 ? beyond_points(tile, count) : beyond_keys(tile, g, first, count);
    if (beyond == INFINITY) return false;
    const float budget = (float)plsh_bound_of(tile->at.head->head.eps, PLSH_BOUND_PIECES, 1);
    for (int r = 0; r < rows; r++) {
        e[r] = ((now[r] - l[r]) + (now_low[r] - l_low[r])) * (1.0f + 0x1p-20f) / l[r];
        if (!(tile->scratch.alpha[r] == 1.0f && left_out[r] + e[r] * beyond <= budget))
            return false;
    }
    for (int r = 0; r < rows; r++) left_out[r] += e[r];
    return true;
}

/* Bounds are loose if queries and keys have no common direction: many distant keys are scored
 * although their weight is negligible. Leaving them out after the scores still saves the product
 * with V, and four products of the backward pass. */
bool plsh_bounds_weigh(plsh_tile *tile, int g, int64_t first, int count, float *s) {
    const size_t size = sizeof(float) * (size_t)tile->kernel->group;
    const plsh_softmax_state state = plsh_tile_softmax(tile, g, true);
    float l[PLSH_GROUP_MAX], l_low[PLSH_GROUP_MAX];
    memcpy(l, state.l, size);
    memcpy(l_low, state.l_low, size);
    plsh_tile_weigh(tile, g, count, s);
    if (!can_leave_out(tile, g, first, count, l, l_low)) return true;
    memcpy(state.l, l, size);
    memcpy(state.l_low, l_low, size);
    return false;
}

/* The decision on a piece before its box is read: leave it out, read the box, or score it. */
typedef enum decision { LEAVE_OUT, READ_BOX, KEEP } decision;

/* u is hardly ever below 0, because keys are measured from their mean. If even u = 0 would not
 * exclude the piece, its box is not read. */
static decision decide_by_norm(plsh_tile *tile, int g, row_state state, float bias, float norm) {
    int64_t x = tile->at.sequence;
    float pieces = (float)(tile->plan->first_piece[x + 1] - tile->plan->first_piece[x]);
    float most = state.most_norm * norm - state.least_shift + bias;
    if (most <= log_share(tile, PLSH_BOUND_NORMS) - log2f(pieces)) {
        charge_group(tile, g, most);
        return LEAVE_OUT;
    }
    return bias - state.least_shift >
                   plsh_bound_log2_of(tile->at.head->log_eps, PLSH_BOUND_PIECES, 1)
               ? KEEP
               : READ_BOX;
}

/* Decides about pieces of the sequence, all on one side of group g. */
static void decide(plsh_tile *tile, int g, side where, int64_t piece, int pieces, bool *keep) {
    if (pieces == 0) return;
    const plsh_plan *plan = tile->plan;
    const plsh_summary *summary = &tile->at.summary;
    int64_t base = plan->first_piece[tile->at.sequence] + piece, d = plan->shape.head_dim;
    row_state state = fill_shift(tile, g, where);
    int group = tile->kernel->group, first = pieces, last = -1;
    float bias[PIECES];
    bool look[PIECES];
    for (int i = 0; i < pieces; i++) {
        int64_t begin = (piece + i) * plan->bound_keys, end = begin + plan->bound_keys;
        end = end < tile->at.keys ? end : tile->at.keys;
        int64_t t = where == LEFT ? plsh_tile_group_begin(tile, g) - (end - 1)
                                  : begin - (plsh_tile_group_end(tile, g) - 1);
        bias[i] = plsh_decay_sums_some(&tile->at.head->sums, t, (int)(end - begin));
        decision found = decide_by_norm(tile, g, state, bias[i], summary->norm[base + i]);
        keep[i] = found == KEEP;
        look[i] = found == READ_BOX;
        first = look[i] && i < first ? i : first;
        last = look[i] ? i : last;
    }
    if (last < 0) return;
    const plsh_piece_boxes boxes = {.box = summary->box + (base + first) * 2 * d,
                                    .norm = summary->norm + base + first,
                                    .radius = summary->radius + base + first,
                                    .bias = bias + first,
                                    .count = last - first + 1,
                                    .d = (int)d};
    const plsh_bounded_queries queries = {.packed = tile->packed + (ptrdiff_t)g * group * d,
                                          .norm = tile->exact.q_norm + (ptrdiff_t)g * group,
                                          .shift = tile->exact.shift};
    tile->kernel->bounds(tile->exact.piece, boxes, queries);
    for (int i = first; i <= last; i++) {
        if (look[i]) keep[i] = !charge(tile, g, state.rows, i - first);
    }
}

int plsh_bounds_select(plsh_tile *tile, int g, int64_t first, int64_t end, plsh_range *runs) {
    int64_t size = tile->plan->bound_keys, begin = plsh_tile_group_begin(tile, g);
    int64_t piece = first / size, pieces = (end - 1) / size - piece + 1, left = 0, right = pieces;
    while (left < pieces && (piece + left + 1) * size <= begin) left++;
    while (right > left && (piece + right - 1) * size >= plsh_tile_group_end(tile, g)) right--;
    bool keep[PIECES];
    for (int64_t i = left; i < right; i++) keep[i] = true; /* the diagonal */
    decide(tile, g, LEFT, piece, (int)left, keep);
    decide(tile, g, RIGHT, piece + right, (int)(pieces - right), keep + right);
    int count = 0;
    for (int64_t i = 0, run; i < pieces; i += run) {
        run = 1;
        if (!keep[i]) continue;
        while (i + run < pieces && keep[i + run]) run++;
        int64_t from = (piece + i) * size, to = (piece + i + run) * size;
        runs[count++] = (plsh_range){from < first ? first : from, to > end ? end : to};
    }
    return count;
}

/* ---- Points --------------------------------------------------------------------------------- */

/* Is a piece of `keys` keys negligible for group g? If so, charges it to the budget. The least
 * distance of each row lowers the bound of that row; if log k is not linear, the least distance of
 * all rows lowers the bound of all. sum: what fill_shift found. */
static bool can_leave_out_piece(plsh_tile *tile, int g, int64_t piece, int64_t keys,
                                row_state state, const float *sum) {
    const plsh_plan *plan = tile->plan;
    const plsh_summary *summary = &tile->at.summary;
    const int64_t at = plan->first_piece[tile->at.sequence] + piece, d = plan->shape.head_dim;
    const int group = tile->kernel->group;
    float t[PLSH_GROUP_MAX], none = 0.0f;
    const float least = plsh_plane_to_piece(tile, g, piece, t);
    const bool linear = plsh_decay_is_linear(&tile->at.head->head.partition.decay);
    const float each = log2f((float)keys) + 1e-3f;
    const float all = linear ? 0.0f : plsh_plane_log_most(tile->at.head, least);
    const float slope = linear ? (float)tile->at.head->sums.slope * (1.0f - 0x1p-20f) : 0.0f;
    state.least_shift = INFINITY;
    for (int r = 0; r < state.rows; r++) {
        tile->exact.shift[r] = sum[r] - (each + all - slope * t[r]);
        state.least_shift = -plsh_larger(-state.least_shift, -tile->exact.shift[r]);
    }
    decision found = decide_by_norm(tile, g, state, 0.0f, summary->norm[at]);
    if (found != READ_BOX) return found == LEAVE_OUT;
    const plsh_piece_boxes boxes = {.box = summary->box + at * 2 * d,
                                    .norm = summary->norm + at,
                                    .radius = summary->radius + at,
                                    .bias = &none,
                                    .count = 1,
                                    .d = (int)d};
    const plsh_bounded_queries queries = {.packed = tile->packed + (ptrdiff_t)g * group * d,
                                          .norm = tile->exact.q_norm + (ptrdiff_t)g * group,
                                          .shift = tile->exact.shift};
    tile->kernel->bounds(tile->exact.piece, boxes, queries);
    return charge(tile, g, state.rows, 0);
}

/* Does a query of group g come after the first row of a piece? */
static bool is_piece_seen(const plsh_tile *tile, int g, int64_t piece) {
    const int first = g * tile->kernel->group, end = first + plsh_tile_group_rows(tile, g);
    if (!tile->plan->shape.causal) return true;
    for (int r = first; r < end; r++)
        if (plsh_plane_position(tile, r) >= tile->at.least_row[piece]) return true;
    return false;
}

int plsh_bounds_select_points(plsh_tile *tile, int g, plsh_range keys, plsh_range *runs) {
    const int64_t size = tile->plan->bound_keys;
    const row_state state = fill_shift(tile, g, LEFT);
    float sum[PLSH_GROUP_MAX];
    int count = 0;
    memcpy(sum, tile->exact.shift, sizeof(float) * (size_t)state.rows);
    for (int64_t begin = keys.begin; begin < keys.end; begin += size) {
        const int64_t end = begin + size < keys.end ? begin + size : keys.end;
        if (!is_piece_seen(tile, g, begin / size) ||
            can_leave_out_piece(tile, g, begin / size, end - begin, state, sum))
            continue;
        if (count > 0 && runs[count - 1].end == begin)
            runs[count - 1].end = end;
        else
            runs[count++] = (plsh_range){begin, end};
    }
    return count;
}

bool plsh_bounds_stop_points(plsh_tile *tile, int g) {
    const plsh_tile_plane *plane = &tile->plane;
    if (plane->at + 1 == plane->count) return true;
    return can_stop(tile, g, LEFT, plane->rest[plane->at + 1], plane->norm[plane->at + 1]);
}
