/* attention: the sampled methods.
 *
 * plsh scores every pair of the union of the blocks once, weighted by its count / s. masks is the
 * paper's algorithm: unbiased attention inside the blocks of one mask after the other. With
 * o_m and l_m the sums under mask m relative to a common maximum,
 *
 *     plsh, masks   o = sum_m o_m / sum_m l_m,     mean   o = (1/s) sum_m o_m / l_m,
 *
 * and all three have lse = log((1/s) sum_m l_m). Those of mean and plsh are apart by at most R / 2
 * times the standard deviation of s l_m / sum l_m, R the range of a column of V. Blocks that are
 * not contiguous are gathered, mask by mask, for plsh too. */
#include "attention/sampled/sampled.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* ---- the plan's part ------------------------------------------------------------------------ */

static plsh_status prepare_labels(const plsh_plan *plan, plsh_head_plan *head, bool *contiguous,
                                  plsh_error *error) {
    const plsh_partition *set = &head->head.partition;
    if (set->label_count < plan->longest)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld labels per draw, but a sequence has %lld keys",
                         (long long)set->label_count, (long long)plan->longest);
    *contiguous = plsh_counting_contiguous(set, plan->longest);
    if (*contiguous) return PLSH_STATUS_OK;
    return plsh_gathering_create(set, plan->longest, &head->gathering, error);
}

plsh_status plsh_sampled_prepare(const plsh_plan *plan, plsh_head_plan *head, plsh_error *error) {
    const plsh_partition *set = &head->head.partition;
    plsh_status status = PLSH_STATUS_OK;
    if (plan->longest > PLSH_COUNTING_REACH)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "a sequence of %lld keys; the sampled methods take 2^30",
                         (long long)plan->longest);
    bool fused = head->head.method == PLSH_METHOD_PLSH, contiguous = true;
    if (set->scheme == PLSH_SCHEME_LABELS) status = prepare_labels(plan, head, &contiguous, error);
    if (status || !contiguous) return status;
    status = plsh_counting_create(set, fused, &head->counting, error);
    if (status) return status;
    head->counts_bytes = plsh_counts_size(head->counting, (int)plsh_head_tile_rows(plan, head),
                                          plan->kernel.group, plan->shape.causal);
    return PLSH_STATUS_OK;
}

void plsh_sampled_release(plsh_head_plan *head) {
    plsh_counting_destroy(head->counting);
    plsh_gathering_destroy(head->gathering);
}

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

static void *take(char *memory, size_t *used, size_t bytes) {
    void *at = memory ? memory + *used : NULL;
    *used += (bytes + PLSH_ALIGNMENT - 1) / PLSH_ALIGNMENT * PLSH_ALIGNMENT;
    return at;
}

size_t plsh_sampled_layout(const plsh_plan *plan, plsh_tile *tile, char *memory, size_t used) {
    const needs all = needs_of(plan);
    const size_t d = (size_t)plan->shape.head_dim, dv = (size_t)plan->shape.value_dim;
    const size_t rows = all.any ? PLSH_TILE_QUERIES : 0, passes = all.passes ? rows : 0;
    const size_t keys = all.gather ? PLSH_TILE_KEYS : 0, size = sizeof(float);
    tile->counts = take(memory, &used, all.counts);
    tile->w = take(memory, &used, rows * PLSH_TILE_KEYS * size);
    tile->w_row = take(memory, &used, rows * PLSH_TILE_KEYS * sizeof(int32_t));
    tile->o_sum =
        take(memory, &used, passes * (size_t)plsh_kernels_columns((int)dv) * sizeof(double));
    tile->m_sum = take(memory, &used, passes * sizeof(double));
    tile->l_sum = take(memory, &used, passes * sizeof(double));
    tile->spread = take(memory, &used, passes * sizeof(double));
    tile->key_gathered = take(memory, &used, keys * sizeof(int32_t));
    tile->k_gathered = take(memory, &used, keys * d * size);
    tile->v_gathered = take(memory, &used, keys * dv * size);
    return used;
}

void plsh_tile_visit_weighted(plsh_tile *tile, int g, int64_t first, int count, const float *w,
                              const int32_t *row) {
    const plsh_attention *shape = &tile->plan->shape;
    const plsh_kernels *kernel = tile->kernel;
    const int group = kernel->group, d = (int)shape->head_dim, dv = (int)shape->value_dim;
    const int rows = (int)(plsh_tile_group_end(tile, g) - plsh_tile_group_begin(tile, g));
    const ptrdiff_t at = first - tile->first, lane = (ptrdiff_t)g * group;
    const float *k = tile->k_rows + at * tile->k_stride, *v = tile->v_rows + at * tile->v_stride;
    float *o = tile->o + lane * plsh_kernels_columns(dv), *m = tile->m + lane;
    kernel->scores(group, tile->s, tile->top, tile->packed + lane * d, k, tile->k_stride, count, d,
                   NULL, false);
    if (tile->guarded) kernel->mask(group, tile->s, tile->top, w, row, count);
    kernel->softmax_weighted(group, tile->s, tile->top, w, row, m, tile->l + lane,
                             tile->l_low + lane, tile->alpha, count);
    (tile->guarded ? kernel->accumulate_masked : kernel->accumulate)(
        group, o, tile->alpha, tile->s, v, tile->v_stride, count, dv, rows, true, &tile->ahead);
    plsh_stretches_step(&tile->o_stretches, g, o, m);
    tile->pairs += (int64_t)rows * count;
}

/* ---- contiguous blocks ---------------------------------------------------------------------- */

plsh_counts *plsh_tile_count(plsh_tile *tile, int64_t first_draw, int64_t draws) {
    const plsh_counts_tile place = {
        tile->position,           tile->keys, tile->rows, tile->kernel->group,
        tile->plan->shape.causal, first_draw, draws};
    return plsh_counts_begin(tile->counts, tile->head->counting, &place);
}

void plsh_tile_visit_draws(plsh_tile *tile, int64_t first_draw, int64_t draws, float factor) {
    const int stride = PLSH_TILE_KEYS * tile->kernel->group;
    plsh_counts *counts = plsh_tile_count(tile, first_draw, draws);
    const plsh_block keys = plsh_counts_range(counts, -1);
    if (first_draw == 0) plsh_tile_look_ahead(tile, keys.begin);
    for (int64_t first = keys.begin, end; first < keys.end; first = end) {
        end = first + PLSH_TILE_KEYS < keys.end ? first + PLSH_TILE_KEYS : keys.end;
        plsh_tile_load(tile, first, (int)(end - first), false);
        plsh_counts_fill(counts, first, (int)(end - first), factor, tile->w, stride, tile->w_row,
                         PLSH_TILE_KEYS);
        for (int g = 0; g < tile->groups; g++) {
            plsh_block seen = plsh_counts_range(counts, g);
            int64_t from = seen.begin > first ? seen.begin : first;
            int64_t to = seen.end < end ? seen.end : end;
            if (from >= to) continue;
            tile->pass->visit_weighted(tile, g, from, (int)(to - from), tile->w + g * stride,
                                       tile->w_row + g * PLSH_TILE_KEYS + (from - first));
        }
        if (tile->pass->step) tile->pass->step(tile, 0, end < keys.end ? end : INT64_MAX);
    }
}

/* ---- blocks that are not contiguous --------------------------------------------------------- */

/* One group of queries under one draw, with the keys gathered so far. */
typedef struct gatherer {
    plsh_tile *tile;
    const plsh_gathering *gathering;
    const int32_t *labels, *order, *begin; /* of the draw */
    int g, rows, count;
    int64_t first; /* position of the group's first query */
} gatherer;

static void visit_gathered(gatherer *at) {
    plsh_tile *tile = at->tile;
    tile->count = at->count;
    at->count = 0;
    if (tile->count == 0) return;
    tile->pass->visit_weighted(tile, at->g, 0, tile->count, tile->w, tile->w_row);
    if (tile->pass->step) tile->pass->step(tile, INT64_MAX, 0);
}

static void gather_key(gatherer *at, int32_t key) {
    plsh_tile *tile = at->tile;
    const plsh_attention *shape = &tile->plan->shape;
    const int group = tile->kernel->group;
    const ptrdiff_t j = at->count++;
    plsh_row_source_copy(&tile->k, tile->kernel, key, 1, tile->k_gathered + j * tile->k.dim);
    plsh_row_source_copy(&tile->v, tile->kernel, key, 1, tile->v_gathered + j * tile->v.dim);
    float *w = tile->w + j * group;
    for (int r = 0; r < group; r++) {
        bool sees = r < at->rows && at->labels[at->first + r] == at->labels[key];
        w[r] = sees && !(shape->causal && key > at->first + r) ? 1.0f : 0.0f;
    }
    tile->w_row[j] = (int32_t)j;
    tile->key_gathered[j] = key;
    if (at->count == PLSH_TILE_KEYS) visit_gathered(at);
}

/* The keys of the block of query r, unless an earlier query of the group has the same block. */
static void gather_block(gatherer *at, int r) {
    const int32_t label = at->labels[at->first + r];
    for (int x = 0; x < r; x++)
        if (at->labels[at->first + x] == label) return;
    int64_t end = at->tile->plan->shape.causal ? at->first + at->rows : at->tile->keys;
    for (int64_t x = at->begin[at->first + r]; x < at->gathering->n; x++) {
        int32_t key = at->order[x];
        if (key >= end || at->labels[key] != label) break;
        gather_key(at, key);
    }
}

void plsh_tile_visit_gathered(plsh_tile *tile, int64_t draw) {
    const plsh_gathering *gathering = tile->head->gathering;
    tile->first = 0;
    tile->k_rows = tile->k_gathered;
    tile->v_rows = tile->v_gathered;
    tile->k_stride = tile->plan->shape.head_dim;
    tile->v_stride = tile->plan->shape.value_dim;
    for (int g = 0; g < tile->groups; g++) {
        int64_t first = plsh_tile_group_begin(tile, g);
        gatherer at = {tile,
                       gathering,
                       gathering->labels + draw * gathering->label_count,
                       gathering->order + draw * gathering->n,
                       gathering->begin + draw * gathering->n,
                       g,
                       (int)(plsh_tile_group_end(tile, g) - first),
                       0,
                       first};
        for (int r = 0; r < at.rows; r++) gather_block(&at, r);
        visit_gathered(&at);
    }
}

/* ---- a pass per mask ------------------------------------------------------------------------ */

/* Adds a row of the pass: sum = sum 2^(m_sum - m') + x 2^(m - m'), m' the larger of the two. Sums
 * are doubles: there may be thousands of masks. */
static void merge_row(plsh_tile *tile, int r, int columns) {
    const double m = fmax(tile->m_sum[r], tile->m[r]);
    const double before = exp2(tile->m_sum[r] - m), now = exp2(tile->m[r] - m), l = tile->l[r];
    double *sum = tile->o_sum + (ptrdiff_t)r * columns;
    const float *o = tile->o + (ptrdiff_t)r * columns;
    const bool mean = tile->head->head.method == PLSH_METHOD_MEAN;
    const double keep = mean ? 1 : before, add = !mean ? now : l == 0 ? 0 : 1 / l;
    for (int c = 0; c < columns; c++) sum[c] = sum[c] * keep + (double)o[c] * add;
    tile->l_sum[r] = tile->l_sum[r] * before + l * now;
    tile->spread[r] = tile->spread[r] * before * before + l * now * l * now;
    tile->m_sum[r] = m;
}

/* The sums as plsh_tile_finish wants them: o / l is the output, m + log2 l the lse. */
static void close_row(plsh_tile *tile, int r, int columns) {
    const double s = (double)tile->head->head.partition.samples, l = tile->l_sum[r];
    const double by = tile->head->head.method == PLSH_METHOD_MEAN ? s : l;
    const double *sum = tile->o_sum + (ptrdiff_t)r * columns;
    float *o = tile->o + (ptrdiff_t)r * columns;
    for (int c = 0; c < columns; c++) o[c] = l == 0 ? 0.0f : (float)(sum[c] / by);
    tile->spread[r] = sqrt(fmax(0, s * tile->spread[r] / (l * l) - 1));
    tile->m[r] = (float)(tile->m_sum[r] + log2(l / s));
    tile->l[r] = 1.0f;
    tile->l_low[r] = 0.0f;
}

/* Unless guarded, a row's m is the largest score of its group's keys, those of weight 0 included:
 * what lies far below it is lost. Sums from 2^-40 on lack less than 2^-80 of themselves. */
static bool sums_hold(const plsh_tile *tile) {
    bool hold = true;
    for (int r = 0; r < tile->rows; r++) hold &= tile->l[r] >= 0x1p-40f;
    return hold || tile->guarded;
}

/* The run functions are true where their sums hold. */
static bool run_passes(plsh_tile *tile) {
    bool hold = true;
    const int columns = plsh_kernels_columns((int)tile->plan->shape.value_dim);
    memset(tile->o_sum, 0, sizeof(double) * (size_t)tile->rows * (size_t)columns);
    for (int r = 0; r < tile->rows; r++) {
        tile->m_sum[r] = (double)PLSH_SOFTMAX_START;
        tile->l_sum[r] = tile->spread[r] = 0;
    }
    for (int64_t m = 0; m < tile->head->head.partition.samples; m++) {
        plsh_tile_reset(tile);
        if (tile->head->gathering)
            plsh_tile_visit_gathered(tile, m);
        else
            plsh_tile_visit_draws(tile, m, 1, 1.0f);
        hold &= sums_hold(tile);
        plsh_tile_join(tile);
        for (int r = 0; r < tile->rows; r++) merge_row(tile, r, columns);
    }
    for (int r = 0; r < tile->rows; r++) close_row(tile, r, columns);
    plsh_tile_finish(tile);
    return hold;
}

static bool run(plsh_tile *tile) {
    const plsh_head_plan *head = tile->head;
    if (head->gathering || head->head.method != PLSH_METHOD_PLSH) {
        return run_passes(tile);
    }
    plsh_tile_reset(tile);
    plsh_tile_visit_draws(tile, 0, head->counting->draws,
                          1.0f / (float)head->head.partition.samples);
    plsh_tile_finish(tile);
    return sums_hold(tile);
}

/* A key of weight 0 must not pass on a NaN, nor hide other keys: rather than to look at every one,
 * look at the sums and the output, and do it again with care. */
void plsh_tile_sample(plsh_tile *tile) {
    const plsh_attention *shape = &tile->plan->shape;
    const int64_t pairs = tile->pairs;
    plsh_tile_pack(tile);
    tile->guarded = false;
    if (run(tile) &&
        tile->kernel->all_finite(tile->kernel->group, tile->o_out, PLSH_DTYPE_FLOAT32,
                                 shape->o.row_stride, tile->rows, (int)shape->value_dim)) {
        return;
    }
    tile->pairs = pairs;
    tile->guarded = true;
    run(tile);
}
