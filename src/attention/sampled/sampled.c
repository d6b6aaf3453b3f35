/* attention: the sampled methods.
 *
 * plsh scores every pair of the union of the blocks once, weighted by its count / s. masks is the
 * paper's algorithm: unbiased attention inside the blocks of one mask after the other. With
 * o_m and l_m the sums under mask m relative to a common maximum,
 *
 *     plsh, masks   o = sum_m o_m / sum_m l_m,     mean   o = (1/s) sum_m o_m / l_m,
 *
 * and all three have lse = log((1/s) sum_m l_m). The outputs of mean and plsh differ by at most R /
 * 2 times the standard deviation of s l_m / sum l_m, where R is the range of a column of V. Blocks
 * that are not contiguous are gathered, mask by mask, for plsh too. */
#include "attention/sampled/sampled.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- the tile's part ------------------------------------------------------------------------ */

/* What the heads of a plan need, taken together. */
typedef struct needs {
    bool any, passes, gather;
    size_t counts;
} needs;

static needs needs_of(const plsh_plan *plan) {
    needs all = {0};
    for (int64_t h = 0; h < plan->shape.heads; h++) {
        const plsh_head_plan *head = &plan->head[h];
        if (!plsh_method_is_sampled(head->head.method)) continue;
        all.any = true;
        all.gather |= head->gathering != NULL;
        all.passes |= head->gathering || head->head.method != PLSH_METHOD_PLSH;
        if (head->counts_bytes > all.counts) all.counts = head->counts_bytes;
    }
    return all;
}

void plsh_sampled_layout(plsh_sampled_buffers *buffers, const plsh_plan *plan, plsh_arena *arena) {
    const needs all = needs_of(plan);
    const size_t d = (size_t)plan->shape.head_dim, dv = (size_t)plan->shape.value_dim;
    const size_t rows = all.any ? PLSH_TILE_QUERIES : 0, passes = all.passes ? rows : 0;
    const size_t keys = all.gather ? PLSH_TILE_KEYS : 0;
    const size_t columns = (size_t)plsh_kernels_columns((int)dv);
    buffers->counts = plsh_arena_take(arena, all.counts, 1);
    buffers->w = plsh_arena_floats(arena, rows * PLSH_TILE_KEYS);
    buffers->w_row = plsh_arena_take(arena, rows * PLSH_TILE_KEYS, sizeof(int32_t));
    buffers->o_sum = plsh_arena_take(arena, passes * columns, sizeof(double));
    buffers->m_sum = plsh_arena_take(arena, passes, sizeof(double));
    buffers->l_sum = plsh_arena_take(arena, passes, sizeof(double));
    buffers->l_deviation = plsh_arena_take(arena, passes, sizeof(double));
    buffers->key_gathered = plsh_arena_take(arena, keys, sizeof(int32_t));
    buffers->k_gathered = plsh_arena_floats(arena, keys * d);
    buffers->v_gathered = plsh_arena_floats(arena, keys * dv);
}

/* ---- contiguous blocks ---------------------------------------------------------------------- */

plsh_counts *plsh_sampled_count(plsh_tile *tile, int64_t first_draw, int64_t draws) {
    const plsh_counts_tile where = {tile->at.position,   tile->at.keys,
                                    tile->at.origin,     tile->at.rows,
                                    tile->kernel->group, tile->plan->shape.causal,
                                    first_draw,          draws};
    return plsh_counts_begin(tile->sampled->counts, tile->at.head->counting, &where);
}

void plsh_sampled_visit_draws(plsh_tile *tile, int64_t first_draw, int64_t draws, float factor) {
    plsh_counts *counts = plsh_sampled_count(tile, first_draw, draws);
    const plsh_range keys = plsh_counts_range(counts, -1);
    if (first_draw == 0) plsh_tile_prefetch(tile, keys.begin);
    const plsh_counts_weights weights = {tile->sampled->w, PLSH_TILE_KEYS * tile->kernel->group,
                                         tile->sampled->w_row, PLSH_TILE_KEYS};
    for (int64_t first = keys.begin, end; first < keys.end; first = end) {
        end = first + PLSH_TILE_KEYS < keys.end ? first + PLSH_TILE_KEYS : keys.end;
        plsh_tile_load(tile, first, (int)(end - first), false);
        plsh_counts_fill(counts, first, (int)(end - first), factor, weights);
        for (int g = 0; g < tile->at.groups; g++) {
            plsh_range seen = plsh_counts_range(counts, g);
            int64_t from = seen.begin > first ? seen.begin : first;
            int64_t to = seen.end < end ? seen.end : end;
            if (from >= to) continue;
            const plsh_pair_weights of_group = {weights.w + g * weights.w_stride,
                                                weights.row + g * weights.row_stride +
                                                    (from - first)};
            tile->pass->visit_weighted(tile, g, from, (int)(to - from), of_group);
        }
        if (tile->pass->step) tile->pass->step(tile, 0, end < keys.end ? end : INT64_MAX);
    }
}

/* ---- blocks that are not contiguous --------------------------------------------------------- */

plsh_sampled_entries plsh_sampled_entries_of(const plsh_tile *tile, int64_t position) {
    const plsh_plan *plan = tile->plan;
    if (!tile->at.head->gathering->by_row)
        return (plsh_sampled_entries){position, 0}; /* parts of a sequence are refused */
    const int64_t row = tile->at.row + position - tile->at.position;
    return (plsh_sampled_entries){plan->query_offset[tile->at.sequence] + row,
                                  plan->key_offset[tile->at.sequence]};
}

/* One group of queries under one draw, with the keys gathered so far. */
typedef struct gatherer {
    plsh_tile *tile;
    const plsh_gathering *gathering;
    const int32_t *key_label, *order;   /* of the draw, from the sequence's first key on */
    const int32_t *query_label, *begin; /* of the draw, from the group's first query on */
    int64_t ordered;                    /* entries of order */
    int g, rows, count;
    int64_t first; /* position of the group's first query */
} gatherer;

static void visit_gathered(gatherer *at) {
    plsh_tile *tile = at->tile;
    tile->step.count = at->count;
    at->count = 0;
    if (tile->step.count == 0) return;
    const plsh_pair_weights weights = {tile->sampled->w, tile->sampled->w_row};
    tile->pass->visit_weighted(tile, at->g, 0, tile->step.count, weights);
    if (tile->pass->step) tile->pass->step(tile, INT64_MAX, 0);
}

static void gather_key(gatherer *at, int32_t key) {
    plsh_tile *tile = at->tile;
    const plsh_attention *shape = &tile->plan->shape;
    const int group = tile->kernel->group;
    const ptrdiff_t j = at->count++;
    plsh_row_source_copy(&tile->arrays.k, tile->kernel, key, 1,
                         tile->sampled->k_gathered + j * tile->arrays.k.dim);
    plsh_row_source_copy(&tile->arrays.v, tile->kernel, key, 1,
                         tile->sampled->v_gathered + j * tile->arrays.v.dim);
    float *w = tile->sampled->w + j * group;
    for (int r = 0; r < group; r++) {
        bool sees = r < at->rows &&
                    plsh_gathering_shares(at->gathering, at->query_label[r], at->key_label[key]);
        w[r] = sees && !(shape->causal && key > at->first + r) ? 1.0f : 0.0f;
    }
    tile->sampled->w_row[j] = (int32_t)j;
    tile->sampled->key_gathered[j] = key;
    if (at->count == PLSH_TILE_KEYS) visit_gathered(at);
}

/* One past the last key that the group may see. */
static int64_t gather_end(const gatherer *at) {
    return at->tile->plan->shape.causal ? at->first + at->rows : at->tile->at.keys;
}

/* The keys of this label, from entry `x` of the order on. */
static void gather_label(gatherer *at, int64_t x, int32_t label) {
    const int64_t end = gather_end(at);
    for (; x < at->ordered; x++) {
        int32_t key = at->order[x];
        if (key >= end || at->key_label[key] != label) break;
        gather_key(at, key);
    }
}

/* The keys of the block of query r, unless an earlier query of the group has the same block. */
static void gather_block(gatherer *at, int r) {
    for (int x = 0; x < r; x++)
        if (at->query_label[x] == at->query_label[r]) return;
    gather_label(at, at->begin[r], at->query_label[r]);
}

/* The keys of the blocks of all queries. Points without a position, which come first in the order,
 * are in every block. */
static void gather_group(gatherer *at) {
    bool all = false;
    for (int r = 0; at->gathering->by_row && r < at->rows; r++)
        all |= at->query_label[r] == PLSH_CELL_EVERY;
    for (int64_t key = 0; all && key < gather_end(at); key++) gather_key(at, (int32_t)key);
    if (at->gathering->by_row && !all) gather_label(at, 0, PLSH_CELL_EVERY);
    for (int r = 0; r < at->rows && !all; r++) gather_block(at, r);
    visit_gathered(at);
}

void plsh_sampled_visit_gathered(plsh_tile *tile, int64_t draw) {
    const plsh_gathering *gathering = tile->at.head->gathering;
    tile->step.first = 0;
    tile->step.gathered = tile->sampled->key_gathered;
    tile->step.k =
        (plsh_key_rows){tile->sampled->k_gathered, tile->arrays.k.dim, 0, tile->arrays.k.dim};
    tile->step.k_pairs = (plsh_pair_rows){.row = NULL};
    tile->step.v =
        (plsh_key_rows){tile->sampled->v_gathered, tile->arrays.v.dim, 0, tile->arrays.v.dim};
    for (int g = 0; g < tile->at.groups; g++) {
        const int64_t first = plsh_tile_group_begin(tile, g);
        const plsh_sampled_entries entry = plsh_sampled_entries_of(tile, first);
        const int64_t labels = draw * gathering->label_stride, keys = draw * gathering->keys;
        gatherer at = {.tile = tile,
                       .gathering = gathering,
                       .key_label = gathering->key_label + labels + entry.key,
                       .order = gathering->order + keys + entry.key,
                       .query_label = gathering->query_label + labels + entry.query,
                       .begin = gathering->begin + draw * gathering->queries + entry.query,
                       .ordered = gathering->by_row ? tile->at.keys : gathering->keys,
                       .g = g,
                       .rows = (int)(plsh_tile_group_end(tile, g) - first),
                       .first = first};
        gather_group(&at);
    }
}

/* ---- a pass per mask ------------------------------------------------------------------------ */

/* Adds a row of the pass: sum = sum 2^(m_sum - m') + x 2^(m - m'), m' the larger of the two. Sums
 * are doubles: there may be thousands of masks. */
static void merge_row(plsh_tile *tile, int r, int columns) {
    const double m = fmax(tile->sampled->m_sum[r], tile->sums.m[r]);
    const double before = exp2(tile->sampled->m_sum[r] - m), now = exp2(tile->sums.m[r] - m),
                 l = tile->sums.l[r];
    double *sum = tile->sampled->o_sum + (ptrdiff_t)r * columns;
    const float *o = tile->sums.o + (ptrdiff_t)r * columns;
    const bool mean = tile->at.head->head.method == PLSH_METHOD_MEAN;
    const double keep = mean ? 1 : before, add = !mean ? now : l == 0 ? 0 : 1 / l;
    for (int c = 0; c < columns; c++) sum[c] = sum[c] * keep + (double)o[c] * add;
    tile->sampled->l_sum[r] = tile->sampled->l_sum[r] * before + l * now;
    tile->sampled->l_deviation[r] =
        tile->sampled->l_deviation[r] * before * before + l * now * l * now;
    tile->sampled->m_sum[r] = m;
}

/* Clamps a mean of finite values, which rounding must not make infinite (headroom.h). */
static float mean_of(const plsh_tile *tile, double x) {
    if (tile->headroom == 0.0f || !isfinite(x) || tile->at.drop.below > 0) return (float)x;
    return (float)fmax(-(double)FLT_MAX, fmin((double)FLT_MAX, x));
}

/* The sums as plsh_tile_finish wants them: o / l is the output, m + log2 l the lse. */
static void close_row(plsh_tile *tile, int r, int columns) {
    const double s = (double)tile->at.head->head.partition.samples, l = tile->sampled->l_sum[r];
    const double by = tile->at.head->head.method == PLSH_METHOD_MEAN ? s : l;
    const double *sum = tile->sampled->o_sum + (ptrdiff_t)r * columns;
    float *o = tile->sums.o + (ptrdiff_t)r * columns;
    for (int c = 0; c < columns; c++) o[c] = l == 0 ? 0.0f : mean_of(tile, sum[c] / by);
    tile->sampled->l_deviation[r] = sqrt(fmax(0, s * tile->sampled->l_deviation[r] / (l * l) - 1));
    tile->sums.m[r] = (float)(tile->sampled->m_sum[r] + log2(l / s));
    tile->sums.l[r] = 1.0f;
    tile->sums.l_low[r] = 0.0f;
}

/* Unless guarded, a row's m is the largest score of its group's keys, including keys of weight 0;
 * scores far below m underflow. A sum of 2^-40 or more has lost less than 2^-80 of itself. */
static bool sums_hold(const plsh_tile *tile) {
    bool hold = true;
    for (int r = 0; r < tile->at.rows; r++) hold &= tile->sums.l[r] >= 0x1p-40f;
    return hold || tile->guarded;
}

/* One pass per mask. True where the sums hold. */
static bool visit_masks(plsh_tile *tile) {
    bool hold = true;
    const int columns = plsh_kernels_columns((int)tile->plan->shape.value_dim);
    memset(tile->sampled->o_sum, 0, sizeof(double) * (size_t)tile->at.rows * (size_t)columns);
    for (int r = 0; r < tile->at.rows; r++) {
        tile->sampled->m_sum[r] = (double)PLSH_SOFTMAX_START;
        tile->sampled->l_sum[r] = tile->sampled->l_deviation[r] = 0;
    }
    for (int64_t m = 0; m < tile->at.head->head.partition.samples; m++) {
        plsh_tile_reset(tile);
        if (tile->at.head->gathering)
            plsh_sampled_visit_gathered(tile, m);
        else
            plsh_sampled_visit_draws(tile, m, 1, 1.0f);
        hold &= sums_hold(tile);
        plsh_tile_join(tile);
        for (int r = 0; r < tile->at.rows; r++) merge_row(tile, r, columns);
    }
    for (int r = 0; r < tile->at.rows; r++) close_row(tile, r, columns);
    plsh_tile_finish(tile);
    return hold;
}

static bool visit_samples(plsh_tile *tile) {
    const plsh_head_plan *head = tile->at.head;
    if (head->gathering || head->head.method != PLSH_METHOD_PLSH) {
        return visit_masks(tile);
    }
    plsh_tile_reset(tile);
    plsh_sampled_visit_draws(tile, 0, head->counting->draws,
                             1.0f / (float)head->head.partition.samples);
    plsh_tile_finish(tile);
    return sums_hold(tile);
}

/* A NaN in a key of weight 0 must not reach the output, and its score must not make other weights
 * underflow. Instead of checking every key, the sums and the output are checked, and the tile is
 * run again with guards if they are wrong. */
void plsh_sampled_tile(plsh_tile *tile) {
    const plsh_attention *shape = &tile->plan->shape;
    const int64_t pairs = tile->pairs;
    plsh_tile_pack(tile);
    tile->guarded = tile->headroom > 0.0f;
    if (tile->guarded) {
        visit_samples(tile);
        return;
    }
    const plsh_matrix output = plsh_tile_output_of(tile);
    const plsh_stored_rows rows = {output.data, PLSH_DTYPE_FLOAT32, output.stride};
    if (visit_samples(tile) && tile->kernel->all_finite(rows, tile->at.rows, (int)shape->value_dim))
        return;
    tile->pairs = pairs;
    tile->guarded = true;
    visit_samples(tile);
}
