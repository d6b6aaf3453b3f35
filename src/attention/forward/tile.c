/* attention: one tile of queries. */
#include "attention/forward/tile.h"

#include <math.h>
#include <string.h>

#include "attention/forward/bounds.h"
#include "attention/forward/headroom.h"
#include "base/dtype.h"

void plsh_tile_layout(plsh_tile *tile, const plsh_plan *plan, plsh_arena *arena) {
    size_t d = (size_t)plan->shape.head_dim, dv = (size_t)plan->shape.value_dim;
    size_t group = (size_t)plan->kernel->group, rows = PLSH_TILE_QUERIES;
    bool wide = plan->paged || plan->shape.dtype != PLSH_DTYPE_FLOAT32;
    tile->plan = plan;
    tile->kernel = plan->kernel;
    tile->packed = plsh_arena_floats(arena, rows * d);
    tile->o = plsh_arena_floats(arena, rows * (size_t)plsh_kernels_columns((int)dv));
    tile->m = plsh_arena_floats(arena, rows);
    tile->l = plsh_arena_floats(arena, rows);
    tile->l_low = plsh_arena_floats(arena, rows);
    plsh_stretches_layout(&tile->o_stretches, plan, plsh_kernels_columns((int)dv), arena);
    tile->exact.q_norm = plsh_arena_floats(arena, rows);
    tile->exact.q_mean = plsh_arena_floats(arena, rows);
    tile->exact.left_out = plsh_arena_floats(arena, rows);
    tile->exact.left_out_by_norm = plsh_arena_floats(arena, rows / group + 1);
    tile->s = plsh_arena_floats(arena, PLSH_TILE_KEYS * group);
    tile->top = plsh_arena_floats(arena, group);
    tile->alpha = plsh_arena_floats(arena, group);
    tile->exact.shift = plsh_arena_floats(arena, group);
    tile->bias = plsh_arena_floats(arena, rows + PLSH_TILE_KEYS);
    tile->exact.piece = plsh_arena_floats(arena, PLSH_TILE_KEYS / PLSH_BOUND_KEYS * group);
    tile->k_wide = plsh_arena_floats(arena, wide ? PLSH_TILE_KEYS * d : 0);
    tile->v_wide = plsh_arena_floats(arena, wide ? PLSH_TILE_KEYS * dv : 0);
    tile->pairs = 0;
    tile->prefetch = (plsh_prefetch){0};
}

void plsh_tile_pack(plsh_tile *tile) {
    const plsh_attention *shape = &tile->plan->shape;
    const plsh_kernels *kernel = tile->kernel;
    int group = kernel->group, d = (int)shape->head_dim;
    tile->groups = (tile->rows + group - 1) / group;
    const float factor = (float)(shape->scale * 1.4426950408889634); /* log2 e */
    for (int g = 0; g < tile->groups; g++) {
        int left = tile->rows - g * group;
        const char *from = tile->q + (ptrdiff_t)g * group * shape->q.row_stride *
                                         (ptrdiff_t)plsh_dtype_size(shape->dtype);
        kernel->pack(tile->packed + (ptrdiff_t)g * group * d,
                     (plsh_stored_rows){from, shape->dtype, shape->q.row_stride},
                     left < group ? left : group, d, factor);
    }
}

void plsh_tile_reset(plsh_tile *tile) {
    int rows = tile->groups * tile->kernel->group;
    int columns = plsh_kernels_columns((int)tile->plan->shape.value_dim);
    for (int r = 0; r < rows; r++) {
        tile->m[r] = PLSH_SOFTMAX_START;
        tile->l[r] = tile->l_low[r] = 0.0f;
    }
    plsh_stretches_begin(&tile->o_stretches);
    memset(tile->o, 0, sizeof(float) * (size_t)rows * (size_t)columns);
}

void plsh_tile_begin(plsh_tile *tile) {
    plsh_tile_pack(tile);
    plsh_tile_reset(tile);
}

void plsh_tile_prefetch(plsh_tile *tile, int64_t key) {
    const plsh_attention *shape = &tile->plan->shape;
    const ptrdiff_t size = (ptrdiff_t)plsh_dtype_size(shape->dtype), back = tile->rows;
    const ptrdiff_t d = shape->head_dim * size, dv = shape->value_dim * size;
    const ptrdiff_t o_size = (ptrdiff_t)plsh_dtype_size(shape->o_dtype);
    const ptrdiff_t q = shape->q.row_stride * size, o = shape->o.row_stride * o_size;
    const ptrdiff_t k = shape->k.row_stride * size, v = shape->v.row_stride * size;
    const int64_t from = key < back ? 0 : key - back;
    tile->prefetch.next = tile->prefetch.end = 0;
    if (tile->row < back || !tile->o_out || tile->pages) return; /* backward has its own order */
    tile->prefetch = (plsh_prefetch){{{tile->q - back * q, q, d},
                                      {tile->o_out - back * o, o, shape->value_dim * o_size},
                                      {plsh_row_source_at(&tile->k, from), k, d},
                                      {plsh_row_source_at(&tile->v, from), v, dv}},
                                     .end = PLSH_PREFETCH_ARRAYS * tile->rows};
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
    const plsh_head_plan *head = tile->head;
    int count = tile->groups * tile->kernel->group + tile->count - 1;
    int64_t t0 = tile->position - (tile->first + tile->count - 1);
    /* Rows beyond the tile's last lie beyond the tables, too. */
    int64_t known = tile->position + tile->rows - tile->first - t0;
    int used = known < count ? (int)known : count;
    if (!plsh_head_has_decay(&head->head)) used = 0;
    fill_decay(head, tile->bias, t0, used);
    for (int i = used; i < count; i++) tile->bias[i] = 0.0f;
    if (tile->plan->shape.causal) fill_range(tile->bias, 0, -t0, count);
    if (head->head.method == PLSH_METHOD_WINDOW) {
        fill_range(tile->bias, head->head.window - t0, count, count);
        fill_range(tile->bias, 0, 1 - head->head.window - t0, count);
    }
}

void plsh_tile_load(plsh_tile *tile, int64_t first, int count, bool with_bias) {
    tile->first = first;
    tile->count = count;
    tile->gathered = NULL;
    tile->k_step = plsh_row_source_take(&tile->k, tile->kernel, first, count, tile->k_wide);
    tile->v_step = plsh_row_source_take(&tile->v, tile->kernel, first, count, tile->v_wide);
    if (with_bias) fill_bias(tile);
}

/* Pairs of group g and some keys that neither causality nor window masks. */
static int64_t count_pairs(const plsh_tile *tile, int g, int64_t first, int count) {
    int64_t pairs = 0, last = first + count - 1;
    bool window = tile->head->head.method == PLSH_METHOD_WINDOW;
    for (int64_t p = plsh_tile_group_begin(tile, g); p < plsh_tile_group_end(tile, g); p++) {
        int64_t low = first, high = last;
        if (tile->plan->shape.causal && high > p) high = p;
        if (window && low <= p - tile->head->head.window) low = p - tile->head->head.window + 1;
        if (window && high >= p + tile->head->head.window) high = p + tile->head->head.window - 1;
        if (high >= low) pairs += high - low + 1;
    }
    return pairs;
}

/* Does the bias mask any of these pairs? */
static bool is_masked(const plsh_tile *tile, int g, int64_t first, int count) {
    int64_t least = plsh_tile_group_begin(tile, g) - (first + count - 1);
    int64_t most = plsh_tile_group_end(tile, g) - 1 - first;
    if (tile->plan->shape.causal && least < 0) return true;
    int64_t window = tile->head->head.window;
    if (tile->head->head.method == PLSH_METHOD_WINDOW) return most >= window || -least >= window;
    return false;
}

plsh_tile_run plsh_tile_score(plsh_tile *tile, int g, int64_t first, int count, float *s) {
    const plsh_kernels *kernel = tile->kernel;
    const ptrdiff_t lane = (ptrdiff_t)g * kernel->group;
    plsh_tile_run run = {.g = g,
                         .first = first,
                         .k = plsh_tile_keys(tile, first, count),
                         .v = plsh_tile_values(tile, first, count),
                         .masked = is_masked(tile, g, first, count),
                         .rows = plsh_tile_group_rows(tile, g)};
    plsh_score_bias bias = {.masks = run.masked};
    if (run.masked || plsh_head_has_decay(&tile->head->head)) {
        /* at[r - j] is the entry of (position + g group + r) - (first + j). */
        bias.at = tile->bias + tile->count - 1 - (first - tile->first) + lane;
    }
    kernel->scores(s, tile->top, tile->packed + lane * run.k.dim, run.k, bias);
    tile->pairs += run.masked ? count_pairs(tile, g, first, count) : (int64_t)run.rows * count;
    return run;
}

/* Weights become smaller by as much as the maximum that they are relative to is raised. */
static void raise_top(plsh_tile *tile) {
    if (tile->headroom == 0.0f) return;
    for (int r = 0; r < tile->kernel->group; r++) tile->top[r] += tile->headroom;
}

bool plsh_tile_weigh(plsh_tile *tile, int g, int64_t first, int count, float *s) {
    const size_t size = sizeof(float) * (size_t)tile->kernel->group;
    const bool exact = tile->head->head.method == PLSH_METHOD_EXACT;
    const plsh_softmax_state state = plsh_tile_softmax(tile, g);
    float old[PLSH_GROUP_MAX], old_low[PLSH_GROUP_MAX];
    if (exact) {
        memcpy(old, state.l, size);
        memcpy(old_low, state.l_low, size);
    }
    raise_top(tile);
    tile->kernel->softmax(s, count, tile->top, state);
    if (!exact || !plsh_bounds_spare(tile, g, first, count, old, old_low)) return true;
    memcpy(state.l, old, size);
    memcpy(state.l_low, old_low, size);
    return false;
}

void plsh_tile_drop(const plsh_tile *tile, int g, int64_t first, int count, float *a) {
    const int rows = plsh_tile_group_rows(tile, g);
    const int32_t *keys = tile->gathered ? tile->gathered + (first - tile->first) : NULL;
    plsh_drop_multiply(&tile->drop, tile->kernel, a, (int64_t)g * tile->kernel->group, rows, keys,
                       first, count);
}

/* Are the values finite of those keys, among the given ones, that are masked for some query? */
static bool masked_finite(const plsh_tile *tile, int g, int64_t first, int count) {
    int64_t begin = first, end = first + count;
    if (tile->head->head.method != PLSH_METHOD_WINDOW) { /* causality alone masks */
        begin =
            plsh_tile_group_begin(tile, g) + 1 > begin ? plsh_tile_group_begin(tile, g) + 1 : begin;
    }
    const plsh_key_rows v = plsh_tile_values(tile, begin, (int)(end - begin));
    return tile->kernel->all_finite((plsh_stored_rows){v.row, PLSH_DTYPE_FLOAT32, v.stride},
                                    v.count, v.dim);
}

void plsh_tile_visit(plsh_tile *tile, int g, int64_t first, int count) {
    const plsh_kernels *kernel = tile->kernel;
    const ptrdiff_t lane = (ptrdiff_t)g * kernel->group;
    plsh_tile_run run = plsh_tile_score(tile, g, first, count, tile->s);
    if (!plsh_tile_weigh(tile, g, first, count, tile->s)) return;
    if (tile->drop.below > 0) plsh_tile_drop(tile, g, first, count, tile->s);
    bool plain = !run.masked || masked_finite(tile, g, first, count);
    float *o = tile->o + lane * plsh_kernels_columns(run.v.dim);
    (plain ? kernel->accumulate : kernel->accumulate_masked)(
        (plsh_accumulator){o, tile->alpha, run.rows}, tile->s, run.v, run.masked, &tile->prefetch);
    plsh_stretches_step(&tile->o_stretches, g, o, tile->m + lane);
}

void plsh_tile_join(plsh_tile *tile) {
    const ptrdiff_t group = tile->kernel->group;
    const ptrdiff_t columns = plsh_kernels_columns((int)tile->plan->shape.value_dim);
    for (int g = 0; g < tile->groups; g++) {
        plsh_stretches_end(&tile->o_stretches, g, tile->o + g * group * columns,
                           tile->m + g * group);
    }
}

void plsh_tile_visit_weighted(plsh_tile *tile, int g, int64_t first, int count,
                              plsh_pair_weights weights) {
    const plsh_kernels *kernel = tile->kernel;
    const int rows = plsh_tile_group_rows(tile, g);
    const ptrdiff_t lane = (ptrdiff_t)g * kernel->group;
    const plsh_key_rows k = plsh_tile_keys(tile, first, count);
    const plsh_key_rows v = plsh_tile_values(tile, first, count);
    float *o = tile->o + lane * plsh_kernels_columns(v.dim);
    kernel->scores(tile->s, tile->top, tile->packed + lane * k.dim, k, (plsh_score_bias){0});
    if (tile->guarded) kernel->mask(tile->s, count, tile->top, weights);
    raise_top(tile);
    kernel->softmax_weighted(tile->s, count, tile->top, weights, plsh_tile_softmax(tile, g));
    if (tile->drop.below > 0) plsh_tile_drop(tile, g, first, count, tile->s);
    (tile->guarded ? kernel->accumulate_masked : kernel->accumulate)(
        (plsh_accumulator){o, tile->alpha, rows}, tile->s, v, true, &tile->prefetch);
    plsh_stretches_step(&tile->o_stretches, g, o, tile->m + lane);
    tile->pairs += (int64_t)rows * count;
}

plsh_matrix plsh_tile_output_of(const plsh_tile *tile) {
    const plsh_attention *shape = &tile->plan->shape;
    if (shape->o_dtype == PLSH_DTYPE_FLOAT32)
        return (plsh_matrix){(float *)(void *)tile->o_out, shape->o.row_stride};
    return (plsh_matrix){tile->o, plsh_kernels_columns((int)shape->value_dim)};
}

static void narrow_output(const plsh_tile *tile, plsh_matrix from) {
    const plsh_attention *shape = &tile->plan->shape;
    const ptrdiff_t bytes = shape->o.row_stride * (ptrdiff_t)plsh_dtype_size(shape->o_dtype);
    for (int r = 0; r < tile->rows; r++)
        plsh_kernels_narrow(tile->kernel, shape->o_dtype, tile->o_out + r * bytes,
                            from.data + r * from.stride, shape->value_dim);
}

bool plsh_tile_overflowed(const plsh_tile *tile) {
    const int dv = (int)tile->plan->shape.value_dim;
    const plsh_matrix output = plsh_tile_output_of(tile);
    const plsh_stored_rows rows = {output.data, PLSH_DTYPE_FLOAT32, output.stride};
    if (tile->kernel->all_finite(rows, tile->rows, dv)) return false;
    for (int r = 0; r < tile->rows; r++)
        if (plsh_headroom_is_needed(output.data + r * output.stride, dv, tile->m[r], tile->l[r]))
            return true;
    return false;
}

static void mend_output(const plsh_tile *tile) {
    const plsh_attention *shape = &tile->plan->shape;
    const ptrdiff_t columns = plsh_kernels_columns((int)shape->value_dim);
    const ptrdiff_t bytes = shape->o.row_stride * (ptrdiff_t)plsh_dtype_size(shape->o_dtype);
    for (int r = 0; r < tile->rows; r++) {
        if (tile->l[r] == 0.0f) continue;
        plsh_headroom_mend(shape->o_dtype, tile->o_out + r * bytes, tile->o + r * columns,
                           1.0 / (double)tile->l[r], tile->drop.below == 0, shape->value_dim);
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
    for (int g = 0; g < tile->groups; g++) {
        ptrdiff_t first = (ptrdiff_t)g * group;
        tile->kernel->finish((plsh_matrix){output.data + first * output.stride, output.stride},
                             tile->o + first * plsh_kernels_columns(dv), tile->l + first,
                             plsh_tile_group_rows(tile, g), dv);
    }
    if (shape->o_dtype != PLSH_DTYPE_FLOAT32) narrow_output(tile, output);
    for (int r = 0; tile->lse_out && r < tile->rows; r++) {
        tile->lse_out[r] = (float)((double)tile->m[r] * 0.6931471805599453 +
                                   log((double)tile->l[r] + (double)tile->l_low[r]));
    }
}

const plsh_tile_pass plsh_tile_pass_forward = {.begin = plsh_tile_begin,
                                               .visit = plsh_tile_visit,
                                               .visit_weighted = plsh_tile_visit_weighted,
                                               .finish = plsh_tile_finish};
