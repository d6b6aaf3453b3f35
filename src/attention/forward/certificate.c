/* attention: a proven bound on the error of every output row. */
#include "attention/forward/certificate.h"

#include <math.h>
#include <stdlib.h>

#include "attention/sampled/sampled.h"
#include "base/memory.h"

/* The walk beyond M's support ends where the rest is below 2^-10 of the sum or 2^-24 of the row. */
static const float LOG_SMALL = -10, LOG_NOTHING = -24;

/* For the rounding of scores, weights and sums. */
static const double SLACK = 1 + 0x1p-10;

static float *take(char *memory, size_t *used, size_t count) {
    void *at = memory ? memory + *used : NULL;
    *used += (count * sizeof(float) + PLSH_ALIGNMENT - 1) / PLSH_ALIGNMENT * PLSH_ALIGNMENT;
    return at;
}

size_t plsh_certificate_layout(const plsh_plan *plan, plsh_tile *tile, char *memory, size_t used) {
    const size_t group = (size_t)plan->kernel.group;
    tile->gap_m = take(memory, &used, PLSH_TILE_QUERIES);
    tile->gap_l = take(memory, &used, PLSH_TILE_QUERIES);
    tile->gap_rest = take(memory, &used, PLSH_TILE_QUERIES);
    tile->gap = take(memory, &used, PLSH_TILE_KEYS * group);
    return used;
}

static int group_rows(const plsh_tile *tile, int g) {
    return (int)(plsh_tile_group_end(tile, g) - plsh_tile_group_begin(tile, g));
}

/* log2 of a row's D. */
static float log_sum(const plsh_tile *tile, ptrdiff_t r) { return tile->m[r] + log2f(tile->l[r]); }

/* ---- where M is not 0 ----------------------------------------------------------------------- */

/* M of (query r of group g, key j of the step). */
typedef struct support {
    const float *w; /* counted: w[row[j] * group + r] */
    const int32_t *row;
    const plsh_partition *labels; /* or asked for pair by pair */
    int64_t window;               /* or L within a window */
} support;

static float weight_of(const plsh_tile *tile, const support *m, int64_t position, int64_t key,
                       int r, float decay) {
    if (m->w) return m->w[m->row[key - tile->first] * tile->kernel->group + r];
    if (m->labels)
        return (float)plsh_partition_count(m->labels, position, key) / (float)m->labels->samples;
    return llabs(position - key) < m->window ? decay : 0;
}

/* Adds A |L - M| of group g and the keys first .. first + count - 1 of the step, whose bias is that
 * of the decay alone. */
static void add_gap(plsh_tile *tile, int g, int64_t first, int count, const support *m) {
    const plsh_kernels *kernel = tile->kernel;
    const int group = kernel->group, d = (int)tile->plan->shape.head_dim;
    const ptrdiff_t at = first - tile->first, lane = (ptrdiff_t)g * group;
    const float *bias = tile->bias + tile->count - 1 - at + lane;
    const int64_t position = plsh_tile_group_begin(tile, g), keys = tile->keys;
    int32_t row[PLSH_TILE_KEYS];
    for (int j = 0; j < count; j++) {
        row[j] = j;
        for (int r = 0; r < group; r++) {
            float decay = exp2f(bias[r - j]); /* 0 where causality masks, and M is 0 there */
            bool real = r < group_rows(tile, g) && first + j < keys && decay > 0;
            float w = real ? weight_of(tile, m, position + r, first + j, r, decay) : 0;
            tile->gap[j * group + r] = real ? fabsf(decay - w) : 0;
        }
    }
    kernel->scores(group, tile->s, tile->top, tile->packed + lane * d,
                   tile->k_rows + at * tile->k_stride, tile->k_stride, count, d, NULL, false);
    kernel->mask(group, tile->s, tile->top, tile->gap, row, count);
    kernel->softmax_weighted(group, tile->s, tile->top, tile->gap, row, tile->gap_m + lane,
                             tile->gap_l + lane, tile->alpha, count);
}

/* ---- beyond --------------------------------------------------------------------------------- */

/* log2 of the most that all keys on one side of a row can weigh; t: distance of the nearest. */
static float log_rest(const plsh_tile *tile, int64_t t, float norm, ptrdiff_t r) {
    return tile->q_mean[r] + tile->q_norm[r] * norm + plsh_bounds_log_rest(tile->head, t);
}

/* Nothing of group g beyond this point: keys up to `end` - 1 (left), or from `end` on (right). */
static bool is_small(plsh_tile *tile, int g, int64_t end, bool left) {
    const ptrdiff_t lane = (ptrdiff_t)g * tile->kernel->group;
    const int64_t position = plsh_tile_group_begin(tile, g), edge = left ? end - 1 : end;
    const int64_t piece = tile->plan->first_piece[tile->sequence] + edge / tile->plan->bound_keys;
    const float norm = (left ? tile->bounds->norm_before : tile->bounds->norm_after)[piece];
    bool small = true;
    for (int r = 0; r < group_rows(tile, g) && small; r++) {
        float rest = log_rest(tile, llabs(position + r - edge), norm, lane + r);
        float sum = tile->gap_m[lane + r] + log2f(tile->gap_l[lane + r]) + LOG_SMALL;
        float nothing = log_sum(tile, lane + r) + LOG_NOTHING;
        small = rest <= sum || rest <= nothing;
    }
    for (int r = 0; r < group_rows(tile, g) && small; r++) {
        float rest = log_rest(tile, llabs(position + r - edge), norm, lane + r);
        tile->gap_rest[lane + r] += exp2f(rest - log_sum(tile, lane + r));
    }
    return small;
}

/* Adds A L for the keys of one side of group g, outward from `edge`. */
static void add_beyond(plsh_tile *tile, int g, int64_t edge, bool left) {
    const plsh_kernels *kernel = tile->kernel;
    const int group = kernel->group, d = (int)tile->plan->shape.head_dim;
    const ptrdiff_t lane = (ptrdiff_t)g * group;
    while (left ? edge > 0 : edge < tile->keys) {
        if (is_small(tile, g, edge, left)) return;
        int64_t first = left ? edge - PLSH_TILE_KEYS : edge;
        int64_t end = left ? edge : edge + PLSH_TILE_KEYS;
        first = first < 0 ? 0 : first;
        end = end > tile->keys ? tile->keys : end;
        plsh_tile_load(tile, first, (int)(end - first), true);
        kernel->scores(group, tile->s, tile->top, tile->packed + lane * d, tile->k_rows,
                       tile->k_stride, tile->count, d, tile->bias + tile->count - 1 + lane, true);
        kernel->softmax(group, tile->s, tile->top, tile->gap_m + lane, tile->gap_l + lane,
                        tile->alpha, tile->count);
        edge = left ? first : end;
    }
}

/* ---- the methods ---------------------------------------------------------------------------- */

/* All keys of [begin, end) for group g, where M needs no counting. */
static void add_range(plsh_tile *tile, int g, plsh_block keys, const support *m) {
    for (int64_t first = keys.begin; first < keys.end; first += PLSH_TILE_KEYS) {
        int64_t left = keys.end - first;
        plsh_tile_load(tile, first, left < PLSH_TILE_KEYS ? (int)left : PLSH_TILE_KEYS, true);
        add_gap(tile, g, first, tile->count, m);
    }
    add_beyond(tile, g, keys.begin, true);
    if (!tile->plan->shape.causal) add_beyond(tile, g, keys.end, false);
}

static void add_counted(plsh_tile *tile) {
    const int group = tile->kernel->group, stride = PLSH_TILE_KEYS * group;
    const float factor = 1.0f / (float)tile->head->head.partition.samples;
    plsh_counts *counts = plsh_tile_count(tile, 0, tile->head->counting->draws);
    const plsh_block keys = plsh_counts_range(counts, -1);
    for (int64_t first = keys.begin; first < keys.end; first += PLSH_TILE_KEYS) {
        int64_t end = first + PLSH_TILE_KEYS < keys.end ? first + PLSH_TILE_KEYS : keys.end;
        plsh_tile_load(tile, first, (int)(end - first), true);
        plsh_counts_fill(counts, first, tile->count, factor, tile->w, stride, tile->w_row,
                         PLSH_TILE_KEYS);
        for (int g = 0; g < tile->groups; g++) {
            plsh_block seen = plsh_counts_range(counts, g);
            int64_t from = seen.begin > first ? seen.begin : first;
            int64_t to = seen.end < end ? seen.end : end;
            support m = {.w = tile->w + g * stride, .row = tile->w_row + g * PLSH_TILE_KEYS};
            if (from < to) add_gap(tile, g, from, (int)(to - from), &m);
        }
    }
    for (int g = 0; g < tile->groups; g++) {
        plsh_block seen = plsh_counts_range(counts, g);
        add_beyond(tile, g, seen.begin, true);
        if (!tile->plan->shape.causal) add_beyond(tile, g, seen.end, false);
    }
}

static void add_window(plsh_tile *tile, int g, int64_t window) {
    int64_t begin = plsh_tile_group_begin(tile, g), end = plsh_tile_group_end(tile, g);
    plsh_block keys = {window < begin ? begin - window : 0,
                       window < tile->keys - end ? end + window : tile->keys};
    if (tile->plan->shape.causal) keys.end = end;
    add_range(tile, g, keys, &(support){.window = window});
}

static void add_labels(plsh_tile *tile, int g, const plsh_partition *labels) {
    plsh_block keys = {0, tile->plan->shape.causal ? plsh_tile_group_end(tile, g) : tile->keys};
    add_range(tile, g, keys, &(support){.labels = labels});
}

/* Sums up |L - M| for plsh, masks and window. */
static void measure_gap(plsh_tile *tile) {
    const plsh_head_plan *head = tile->head;
    plsh_head_plan plain = *head; /* the same decay, without a window */
    plain.head.method = PLSH_METHOD_DENSE;
    plsh_bounds_begin(tile);
    for (int r = 0; r < tile->groups * tile->kernel->group; r++) {
        tile->gap_m[r] = PLSH_SOFTMAX_START;
        tile->gap_l[r] = tile->gap_rest[r] = 0;
    }
    tile->head = &plain;
    if (head->counting) add_counted(tile);
    for (int g = 0; g < tile->groups && !head->counting; g++) {
        if (head->gathering)
            add_labels(tile, g, &head->head.partition);
        else
            add_window(tile, g, head->head.window);
    }
    tile->head = head;
}

/* The share of weight that is wrong or missing, at most; NaN: cannot be told. */
static double share_of(const plsh_tile *tile, int r) {
    const plsh_head *head = &tile->head->head;
    switch (head->method) {
    case PLSH_METHOD_DENSE:
    case PLSH_METHOD_NONE: return 0;
    case PLSH_METHOD_EXACT: /* boxes as charged; half of eps for norms and for the rest */
        return (double)tile->left_out[r] + head->eps / 2;
    case PLSH_METHOD_PLSH:
    case PLSH_METHOD_MASKS:
    case PLSH_METHOD_WINDOW: break;
    default: return NAN;
    }
    if (!plsh_head_has_decay(head)) return NAN;
    double sum = (double)tile->gap_m[r] + log2((double)tile->gap_l[r]);
    return SLACK * (exp2(sum - (double)log_sum(tile, r)) + (double)tile->gap_rest[r]);
}

void plsh_tile_certify(plsh_tile *tile) {
    const plsh_method method = tile->head->head.method;
    const bool sampled = method == PLSH_METHOD_PLSH || method == PLSH_METHOD_MASKS;
    if ((sampled && plsh_head_has_decay(&tile->head->head)) || method == PLSH_METHOD_WINDOW)
        measure_gap(tile);
    const double v = (double)tile->bounds->v_top[tile->plan->first_piece[tile->sequence]];
    for (int r = 0; r < tile->rows; r++) {
        double share = share_of(tile, r);
        if (share > 1) share = 1;
        if (isnan(tile->m[r] + tile->l[r])) share = NAN;
        tile->certificate_out[r] = (float)(2 * v * share);
    }
}
