/* attention: one tile of queries. */
#include "attention/forward/tile.h"

#include <math.h>
#include <string.h>

#include "attention/forward/headroom.h"
#include "attention/forward/plane.h"
#include "base/dtype.h"
#include "base/numbers.h"

void plsh_tile_layout(plsh_tile *tile, const plsh_plan *plan, plsh_arena *arena) {
    size_t d = (size_t)plan->shape.head_dim, dv = (size_t)plan->shape.value_dim;
    size_t group = (size_t)plan->kernel->group, rows = PLSH_TILE_QUERIES;
    bool placed = plan->points.key_order != NULL;
    bool wide = plan->paged || plan->shape.dtype != PLSH_DTYPE_FLOAT32 || placed;
    size_t steps = plan->points.box ? (size_t)plan->longest / PLSH_TILE_KEYS + 2 : 0;
    tile->plan = plan;
    tile->kernel = plan->kernel;
    tile->packed = plsh_arena_floats(arena, rows * d);
    tile->packed_pairs = plsh_arena_floats(arena, plan->pairs ? rows * d / 2 : 0);
    tile->points = plsh_arena_floats(arena, rows * (size_t)plan->points.dim);
    tile->scratch.t = plsh_arena_floats(arena, plan->points.dim ? PLSH_TILE_KEYS * group : 0);
    tile->sums.o = plsh_arena_floats(arena, rows * (size_t)plsh_kernels_columns((int)dv));
    tile->sums.m = plsh_arena_floats(arena, rows);
    tile->sums.l = plsh_arena_floats(arena, rows);
    tile->sums.l_low = plsh_arena_floats(arena, rows);
    tile->sums.rises = plsh_arena_take(arena, rows, sizeof(int32_t));
    plsh_stretches_layout(&tile->sums.stretches, plan, plsh_kernels_columns((int)dv), arena);
    tile->exact.q_norm = plsh_arena_floats(arena, rows);
    tile->exact.q_mean = plsh_arena_floats(arena, rows);
    tile->exact.left_out = plsh_arena_floats(arena, rows);
    tile->exact.left_out_by_norm = plsh_arena_floats(arena, rows / group + 1);
    tile->scratch.s = plsh_arena_floats(arena, PLSH_TILE_KEYS * group);
    tile->scratch.top = plsh_arena_floats(arena, group);
    tile->scratch.alpha = plsh_arena_floats(arena, group);
    tile->exact.shift = plsh_arena_floats(arena, group);
    tile->step.bias = plsh_arena_floats(arena, rows + PLSH_TILE_KEYS);
    tile->exact.piece = plsh_arena_floats(arena, PLSH_TILE_KEYS / PLSH_BOUND_KEYS * group);
    tile->scratch.k_wide = plsh_arena_floats(arena, wide ? PLSH_TILE_KEYS * d : 0);
    tile->scratch.v_wide = plsh_arena_floats(arena, wide ? PLSH_TILE_KEYS * dv : 0);
    tile->scratch.k_pairs = plsh_arena_take(
        arena, plan->pairs && plan->paged ? PLSH_TILE_KEYS * d : 0, sizeof(uint16_t));
    tile->scratch.q_rows =
        plsh_arena_take(arena, placed ? rows * d : 0, plsh_dtype_size(plan->shape.dtype));
    tile->plane.steps = plsh_arena_take(arena, steps, sizeof(uint64_t));
    tile->plane.rest = plsh_arena_floats(arena, steps);
    tile->plane.norm = plsh_arena_floats(arena, steps);
    tile->pairs = 0;
    tile->prefetch = (plsh_prefetch){0};
}

plsh_stored_rows plsh_tile_queries(const plsh_tile *tile) {
    const plsh_attention *shape = &tile->plan->shape;
    const ptrdiff_t size = (ptrdiff_t)plsh_dtype_size(shape->dtype), d = shape->head_dim;
    if (!tile->at.query_order)
        return (plsh_stored_rows){tile->arrays.q, shape->dtype, shape->q.row_stride};
    for (int r = 0; r < tile->at.rows; r++)
        memcpy(tile->scratch.q_rows + r * d * size,
               tile->arrays.q + tile->at.query_order[r] * shape->q.row_stride * size,
               (size_t)(d * size));
    return (plsh_stored_rows){tile->scratch.q_rows, shape->dtype, d};
}

/* Of q.k, which makes it a score. */
static float factor_of(const plsh_tile *tile) {
    return (float)(tile->plan->shape.scale * PLSH_LOG2_E);
}

void plsh_tile_pack(plsh_tile *tile) {
    const plsh_attention *shape = &tile->plan->shape;
    const plsh_kernels *kernel = tile->kernel;
    int group = kernel->group, d = (int)shape->head_dim;
    tile->at.groups = (tile->at.rows + group - 1) / group;
    const plsh_stored_rows rows = plsh_tile_queries(tile);
    const ptrdiff_t bytes = rows.stride * (ptrdiff_t)plsh_dtype_size(rows.dtype);
    for (int g = 0; g < tile->at.groups; g++) {
        const int left = tile->at.rows - g * group, have = left < group ? left : group;
        const ptrdiff_t lane = (ptrdiff_t)g * group;
        const plsh_stored_rows from = {(const char *)rows.data + lane * bytes, rows.dtype,
                                       rows.stride};
        kernel->pack(tile->packed + lane * d, from, have, d, factor_of(tile));
        if (tile->plan->pairs)
            tile->plan->pairs->pack(tile->packed_pairs + lane * (d / 2), from, have, d);
    }
    if (tile->at.dim > 0) plsh_plane_pack(tile);
    tile->sums.most_rises = 0;
}

void plsh_tile_reset(plsh_tile *tile) {
    int rows = tile->at.groups * tile->kernel->group;
    int columns = plsh_kernels_columns((int)tile->plan->shape.value_dim);
    for (int r = 0; r < rows; r++) {
        tile->sums.m[r] = PLSH_SOFTMAX_START;
        tile->sums.l[r] = tile->sums.l_low[r] = 0.0f;
        tile->sums.rises[r] = 0;
    }
    plsh_stretches_begin(&tile->sums.stretches);
    memset(tile->sums.o, 0, sizeof(float) * (size_t)rows * (size_t)columns);
}

void plsh_tile_prefetch(plsh_tile *tile, int64_t key) {
    const plsh_attention *shape = &tile->plan->shape;
    const ptrdiff_t size = (ptrdiff_t)plsh_dtype_size(shape->dtype), back = tile->at.rows;
    const ptrdiff_t d = shape->head_dim * size, dv = shape->value_dim * size;
    const ptrdiff_t o_size = (ptrdiff_t)plsh_dtype_size(shape->o_dtype);
    const ptrdiff_t q = shape->q.row_stride * size, o = shape->o.row_stride * o_size;
    const ptrdiff_t k = shape->k.row_stride * size, v = shape->v.row_stride * size;
    const int64_t from = key < back ? 0 : key - back;
    tile->prefetch.next = tile->prefetch.end = 0;
    if (tile->at.row < back || !tile->arrays.o || tile->pages)
        return; /* backward has its own order */
    tile->prefetch = (plsh_prefetch){{{tile->arrays.q - back * q, q, d},
                                      {tile->arrays.o - back * o, o, shape->value_dim * o_size},
                                      {plsh_row_source_at(&tile->arrays.k, from), k, d},
                                      {plsh_row_source_at(&tile->arrays.v, from), v, dv}},
                                     .end = PLSH_PREFETCH_ARRAYS * tile->at.rows};
}

/* bias[i] for t = t0 + i = query - key, before causality and window. */
static void fill_decay(const plsh_head_plan *head, float *bias, int64_t t0, int count) {
    if (head->sums.log_k) {
        for (int i = 0; i < count; i++) {
            int64_t t = t0 + i;
            bias[i] = head->sums.log_k[t < 0 ? -t : t];
        }
        return;
    }
    double base = (double)t0;
    for (int i = 0; i < count; i++) bias[i] = (float)(-head->sums.slope * fabs(base + (double)i));
}

static void fill_range(float *bias, int64_t from, int64_t to, int count) {
    from = from < 0 ? 0 : from;
    to = to > count ? count : to;
    for (int64_t i = from; i < to; i++) bias[i] = -INFINITY;
}

/* The bias of the step: one entry per difference of positions. */
static void fill_bias(plsh_tile *tile) {
    const plsh_head_plan *head = tile->at.head;
    int count = tile->at.groups * tile->kernel->group + tile->step.count - 1;
    int64_t t0 = tile->at.position - (tile->step.first + tile->step.count - 1);
    /* Rows beyond the tile's last lie beyond the tables, too. */
    int64_t known = tile->at.position + tile->at.rows - tile->step.first - t0;
    int used = known < count ? (int)known : count;
    if (!plsh_head_has_decay(&head->head) || tile->at.dim > 0) used = 0;
    fill_decay(head, tile->step.bias, t0, used);
    for (int i = used; i < count; i++) tile->step.bias[i] = 0.0f;
    if (tile->plan->shape.causal) fill_range(tile->step.bias, 0, -t0, count);
    if (head->head.method == PLSH_METHOD_WINDOW && tile->at.dim == 0) {
        fill_range(tile->step.bias, head->head.window - t0, count, count);
        fill_range(tile->step.bias, 0, 1 - head->head.window - t0, count);
    }
}

/* The rows of places first .. first + count - 1 of the sequence, from copies by place. */
static plsh_key_rows placed_rows(const plsh_tile *tile, const float *copies, int dim, int64_t first,
                                 int count) {
    const int64_t at = tile->plan->key_offset[tile->at.sequence] + first;
    return (plsh_key_rows){copies + at * dim, dim, count, dim};
}

void plsh_tile_load(plsh_tile *tile, int64_t first, int count, bool with_bias) {
    const plsh_row_source *k = &tile->arrays.k, *v = &tile->arrays.v;
    const bool placed = tile->at.key_order != NULL, pairs = tile->plan->pairs && !placed;
    tile->step.first = first;
    tile->step.count = count;
    tile->step.gathered = placed ? tile->at.key_order + first : NULL;
    tile->step.k = placed ? placed_rows(tile, tile->at.summary.k_placed, k->dim, first, count)
                          : (plsh_key_rows){.row = NULL};
    tile->step.k_pairs = pairs ? plsh_row_source_take_pairs(k, first, count, tile->scratch.k_pairs)
                               : (plsh_pair_rows){.row = NULL};
    tile->step.v = placed
                       ? placed_rows(tile, tile->at.summary.v_placed, v->dim, first, count)
                       : plsh_row_source_take(v, tile->kernel, first, count, tile->scratch.v_wide);
    if (with_bias && !placed) fill_bias(tile);
}

plsh_key_rows plsh_tile_keys(plsh_tile *tile, int64_t first, int count) {
    plsh_tile_step *step = &tile->step;
    if (!step->k.row)
        step->k = plsh_row_source_take(&tile->arrays.k, tile->kernel, step->first, step->count,
                                       tile->scratch.k_wide);
    return (plsh_key_rows){step->k.row + (first - step->first) * step->k.stride, step->k.stride,
                           count, step->k.dim};
}

/* Pairs of group g and some keys that neither causality nor window masks. */
static int64_t count_pairs(const plsh_tile *tile, int g, int64_t first, int count) {
    int64_t pairs = 0, last = first + count - 1;
    bool window = tile->at.head->head.method == PLSH_METHOD_WINDOW && tile->at.dim == 0;
    for (int64_t p = plsh_tile_group_begin(tile, g); p < plsh_tile_group_end(tile, g); p++) {
        int64_t low = first, high = last;
        if (tile->plan->shape.causal && high > p) high = p;
        if (window && low <= p - tile->at.head->head.window)
            low = p - tile->at.head->head.window + 1;
        if (window && high >= p + tile->at.head->head.window)
            high = p + tile->at.head->head.window - 1;
        if (high >= low) pairs += high - low + 1;
    }
    return pairs;
}

/* Does the bias mask any of these pairs? */
static bool is_masked(const plsh_tile *tile, int g, int64_t first, int count) {
    int64_t least = plsh_tile_group_begin(tile, g) - (first + count - 1);
    int64_t most = plsh_tile_group_end(tile, g) - 1 - first;
    if (tile->plan->shape.causal && least < 0) return true;
    int64_t window = tile->at.head->head.window;
    if (tile->at.head->head.method == PLSH_METHOD_WINDOW && tile->at.dim == 0)
        return most >= window || -least >= window;
    return false;
}

/* s = the scores of the first `rows` rows of group g, all if that is 0. */
static void score(plsh_tile *tile, int g, int rows, plsh_range keys, plsh_score_bias bias,
                  float *s) {
    const ptrdiff_t lane = (ptrdiff_t)g * tile->kernel->group, d = tile->plan->shape.head_dim;
    const int count = (int)(keys.end - keys.begin);
    plsh_pair_rows k = tile->step.k_pairs;
    if (!k.row) {
        tile->kernel->scores(s, tile->scratch.top,
                             (plsh_packed_rows){tile->packed + lane * d, rows},
                             plsh_tile_keys(tile, keys.begin, count), bias);
        return;
    }
    k.row += (keys.begin - tile->step.first) * k.stride;
    k.count = count;
    tile->plan->pairs->scores(s, tile->scratch.top,
                              (plsh_packed_rows){tile->packed_pairs + lane * (d / 2), rows}, k,
                              factor_of(tile), bias);
}

void plsh_tile_score_plain(plsh_tile *tile, int g, int64_t first, int count, float *s) {
    score(tile, g, 0, (plsh_range){first, first + count}, (plsh_score_bias){0}, s);
}

plsh_tile_run plsh_tile_score(plsh_tile *tile, int g, int64_t first, int count, float *s) {
    const ptrdiff_t lane = (ptrdiff_t)g * tile->kernel->group;
    plsh_tile_run run = {.g = g,
                         .first = first,
                         .count = count,
                         .v = plsh_tile_values(tile, first, count),
                         .masked = !tile->at.key_order && is_masked(tile, g, first, count),
                         .rows = plsh_tile_group_rows(tile, g)};
    plsh_score_bias bias = {.masks = run.masked};
    if (run.masked || (plsh_head_has_decay(&tile->at.head->head) && tile->at.dim == 0)) {
        /* at[r - j] is the entry of (position + g group + r) - (first + j). */
        bias.at = tile->step.bias + tile->step.count - 1 - (first - tile->step.first) + lane;
    }
    score(tile, g, plsh_tile_used_rows(tile, g), (plsh_range){first, first + count}, bias, s);
    int64_t pairs = run.masked ? count_pairs(tile, g, first, count) : (int64_t)run.rows * count;
    if (tile->at.dim > 0) {
        const int64_t all = (int64_t)run.rows * count;
        if (plsh_plane_masks(tile)) pairs = plsh_plane_mask(tile, g, first, count, s);
        run.masked |= pairs < all;
        plsh_plane_bias(tile, g, first, count, s);
    }
    tile->pairs += pairs;
    return run;
}

void plsh_tile_raise_top(plsh_tile *tile) {
    if (tile->headroom == 0.0f) return;
    for (int r = 0; r < tile->kernel->group; r++) tile->scratch.top[r] += tile->headroom;
}

void plsh_tile_weigh(plsh_tile *tile, int g, int count, float *s) {
    plsh_tile_raise_top(tile);
    tile->kernel->softmax(s, count, tile->scratch.top, plsh_tile_softmax(tile, g, true));
}

void plsh_tile_drop(const plsh_tile *tile, int g, int64_t first, int count, float *a) {
    const int32_t *keys = tile->step.gathered;
    plsh_drop_pairs pairs = {.query = (int64_t)g * tile->kernel->group,
                             .rows = plsh_tile_group_rows(tile, g),
                             .keys = keys ? keys + (first - tile->step.first) : NULL,
                             .first = first,
                             .count = count};
    if (!tile->at.query_order) {
        plsh_drop_multiply(&tile->at.drop, tile->kernel, a, pairs);
        return;
    }
    const int rows = pairs.rows;
    for (int r = 0; r < rows; r++) {
        pairs.query = tile->at.query_order[g * tile->kernel->group + r];
        pairs.rows = 1;
        plsh_drop_multiply(&tile->at.drop, tile->kernel, a + r, pairs);
    }
}

void plsh_tile_join(plsh_tile *tile) {
    const ptrdiff_t group = tile->kernel->group;
    const ptrdiff_t columns = plsh_kernels_columns((int)tile->plan->shape.value_dim);
    for (int g = 0; g < tile->at.groups; g++) {
        plsh_stretches_end(&tile->sums.stretches, g, tile->sums.o + g * group * columns,
                           tile->sums.m + g * group);
    }
}

plsh_matrix plsh_tile_output_of(const plsh_tile *tile) {
    const plsh_attention *shape = &tile->plan->shape;
    if (shape->o_dtype == PLSH_DTYPE_FLOAT32 && !tile->at.query_order)
        return (plsh_matrix){(float *)(void *)tile->arrays.o, shape->o.row_stride};
    return (plsh_matrix){tile->sums.o, plsh_kernels_columns((int)shape->value_dim)};
}

static void narrow_output(const plsh_tile *tile, plsh_matrix from) {
    const plsh_attention *shape = &tile->plan->shape;
    const ptrdiff_t bytes = shape->o.row_stride * (ptrdiff_t)plsh_dtype_size(shape->o_dtype);
    for (int r = 0; r < tile->at.rows; r++)
        plsh_kernels_narrow(tile->kernel, shape->o_dtype,
                            tile->arrays.o + plsh_tile_array_row(tile, r) * bytes,
                            from.data + r * from.stride, shape->value_dim);
}

bool plsh_tile_overflowed(const plsh_tile *tile) {
    const int dv = (int)tile->plan->shape.value_dim;
    const plsh_matrix output = plsh_tile_output_of(tile);
    const plsh_stored_rows rows = {output.data, PLSH_DTYPE_FLOAT32, output.stride};
    if (tile->kernel->all_finite(rows, tile->at.rows, dv)) return false;
    for (int r = 0; r < tile->at.rows; r++)
        if (plsh_headroom_is_needed(output.data + r * output.stride, dv, tile->sums.m[r],
                                    tile->sums.l[r]))
            return true;
    return false;
}

static void mend_output(const plsh_tile *tile) {
    const plsh_attention *shape = &tile->plan->shape;
    const ptrdiff_t columns = plsh_kernels_columns((int)shape->value_dim);
    const ptrdiff_t bytes = shape->o.row_stride * (ptrdiff_t)plsh_dtype_size(shape->o_dtype);
    for (int r = 0; r < tile->at.rows; r++) {
        if (tile->sums.l[r] == 0.0f) continue;
        plsh_headroom_mend(shape->o_dtype, tile->arrays.o + plsh_tile_array_row(tile, r) * bytes,
                           tile->sums.o + r * columns, 1.0 / (double)tile->sums.l[r],
                           tile->at.drop.below == 0, shape->value_dim);
    }
}

void plsh_tile_finish(plsh_tile *tile) {
    const plsh_attention *shape = &tile->plan->shape;
    int group = tile->kernel->group, dv = (int)shape->value_dim;
    const plsh_matrix output = plsh_tile_output_of(tile);
    plsh_tile_join(tile);
    if (tile->headroom > 0.0f) {
        mend_output(tile);
        return;
    }
    for (int g = 0; g < tile->at.groups; g++) {
        ptrdiff_t first = (ptrdiff_t)g * group;
        tile->kernel->finish((plsh_matrix){output.data + first * output.stride, output.stride},
                             tile->sums.o + first * plsh_kernels_columns(dv), tile->sums.l + first,
                             plsh_tile_group_rows(tile, g), dv);
    }
    if (shape->o_dtype != PLSH_DTYPE_FLOAT32 || tile->at.query_order) narrow_output(tile, output);
    for (int r = 0; tile->arrays.lse && r < tile->at.rows; r++) {
        tile->arrays.lse[plsh_tile_array_row(tile, r)] =
            (float)((double)tile->sums.m[r] * 0.6931471805599453 +
                    log((double)tile->sums.l[r] + (double)tile->sums.l_low[r]));
    }
}
