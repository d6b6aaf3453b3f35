/* attention: summaries of keys and values. */
#include "attention/forward/summary.h"

#include <math.h>
#include <string.h>

#include "base/numbers.h"
#include "base/thread.h"

plsh_summary plsh_summary_at(const plsh_plan *plan, char *memory) {
    size_t pieces = (size_t)plan->first_piece[plan->sequences];
    const size_t placed = plsh_plan_placed_bytes(plan);
    float *rows = placed ? (float *)(void *)memory : NULL;
    float *at = (float *)(void *)(memory + placed);
    return (plsh_summary){
        .k_placed = rows,
        .v_placed = rows ? rows + plan->shape.keys * plan->shape.head_dim : NULL,
        .norm = at,
        .norm_before = at + pieces,
        .norm_after = at + pieces * 2,
        .v_half_range = at + pieces * 3,
        .v_most = at + pieces * 4,
        .radius = at + pieces * 5,
        .mean = at + pieces * 6,
        .box = plan->boxes ? at + pieces * 6 + plan->sequences * plan->shape.head_dim : NULL};
}

/* The mean of a few keys of a sequence. wide: a buffer of bound_keys * head_dim floats. */
static void summarise_mean(const plsh_plan *plan, const plsh_summary *summary,
                           const plsh_row_source *k, int64_t sequence, float *wide) {
    enum { SAMPLES = 64 };
    int64_t begin = plan->key_offset[sequence], keys = plan->key_offset[sequence + 1] - begin;
    int64_t d = plan->shape.head_dim, count = keys < SAMPLES ? keys : SAMPLES;
    float *mean = summary->mean + sequence * d;
    bool finite = true;
    memset(mean, 0, (size_t)d * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        int64_t row = begin + (2 * i + 1) * keys / (2 * count);
        const float *key = plsh_row_source_take(k, plan->kernel, row, 1, wide).row;
        for (int64_t x = 0; x < d; x++) mean[x] += key[x] / (float)count;
    }
    for (int64_t x = 0; x < d; x++) finite &= isfinite(mean[x]);
    if (!finite) memset(mean, 0, (size_t)d * sizeof(float));
}

/* Box, norm and radius of one piece. */
static void summarise_piece(const plsh_plan *plan, const plsh_summary *summary,
                            const plsh_row_source *k, int64_t sequence, int64_t piece,
                            float *wide) {
    int64_t d = plan->shape.head_dim, place = piece - plan->first_piece[sequence];
    int64_t first = plan->key_offset[sequence] + place * plan->bound_keys;
    int64_t left = plan->key_offset[sequence + 1] - first;
    int rows = left < plan->bound_keys ? (int)left : plan->bound_keys;
    const plsh_key_rows keys = summary->k_placed
                                   ? (plsh_key_rows){summary->k_placed + first * d, d, rows, (int)d}
                                   : plsh_row_source_take(k, plan->kernel, first, rows, wide);
    float unused[2 * PLSH_DIM_MAX], square[2];
    float *box = summary->box ? summary->box + piece * 2 * d : unused;
    plan->kernel->box(box, square, keys, summary->mean + sequence * d);
    /* A sum of d squares is off by at most d 2^-24 of itself, and so is q's. */
    const float slack = 1.0f + (float)d * 0x1p-22f;
    summary->norm[piece] = sqrtf(square[0]) * slack;
    summary->radius[piece] = sqrtf(square[1]) * slack;
}

/* Extends the range of every column by the row of V, and returns half of the widest: the whole
 * range may exceed the largest float. */
static float widen_ranges(const float *row, int columns, float *low, float *high) {
    float widest = 0.0f;
    for (int c = 0; c < columns; c++) {
        low[c] = row[c] >= low[c] ? low[c] : row[c];
        high[c] = row[c] <= high[c] ? high[c] : row[c];
        widest = plsh_larger(widest, 0.5f * high[c] - 0.5f * low[c]);
    }
    return widest;
}

/* The largest |v| of a row, and NaN where it holds one. */
static float largest_of(const float *row, int columns) {
    float most = 0.0f;
    for (int c = 0; c < columns; c++) most = plsh_larger(most, fabsf(row[c]));
    return most;
}

/* The range and the size of the values, for certificates. wide: value_dim floats. */
static void summarise_values(const plsh_plan *plan, const plsh_summary *summary,
                             const plsh_row_source *v, int64_t sequence, float *wide) {
    const int64_t begin = plan->key_offset[sequence], end = plan->key_offset[sequence + 1];
    const int dim = v->dim;
    float low[PLSH_DIM_MAX], high[PLSH_DIM_MAX], widest = 0.0f, most = 0.0f;
    for (int c = 0; c < dim; c++) {
        low[c] = INFINITY;
        high[c] = -INFINITY;
    }
    for (int64_t j = begin; j < end; j++) {
        const float *row = plsh_row_source_take(v, plan->kernel, j, 1, wide).row;
        const int64_t piece = plan->first_piece[sequence] + (j - begin) / plan->bound_keys;
        widest = plsh_larger(widest, widen_ranges(row, dim, low, high));
        most = plsh_larger(most, largest_of(row, dim));
        summary->v_half_range[piece] = widest * (1.0f + 0x1p-22f);
        summary->v_most[piece] = most;
    }
}

/* Only kv heads without an `exact` head have dropped pages; they need no summaries. */
static bool is_whole(const plsh_row_source *k) { return k->base || k->first_page == 0; }

typedef struct summaries {
    const plsh_plan *plan;
    const plsh_forward *arrays;
    const plsh_pages *pages;
    char *memory;
    plsh_summary_buffers (*buffers_of)(void *context, int slot);
    void *context;
} summaries;

/* Certificates of any method need the bounds of all keys. */
static bool needs_summary(const summaries *all, int64_t sequence) {
    return all->arrays->certificate || !plsh_plan_is_short(all->plan, sequence);
}

static bool needs_any_summary(const summaries *all) {
    bool needs = all->arrays->certificate != NULL;
    for (int64_t x = 0; !needs && all->plan->boxes && x < all->plan->sequences; x++)
        needs = needs_summary(all, x);
    return needs;
}

/* The running maxima of the norms. */
static void summarise_maxima(const summaries *all, const plsh_summary *summary) {
    const plsh_plan *plan = all->plan;
    for (int64_t x = 0; x < plan->sequences; x++) {
        if (!needs_summary(all, x)) continue;
        int64_t begin = plan->first_piece[x], end = plan->first_piece[x + 1];
        float most = 0.0f;
        for (int64_t t = begin; t < end; t++) {
            summary->norm_before[t] = most = plsh_larger(most, summary->norm[t]);
        }
        most = 0.0f;
        for (int64_t t = end - 1; t >= begin; t--) {
            summary->norm_after[t] = most = plsh_larger(most, summary->norm[t]);
        }
    }
}

static plsh_summary summary_of(const summaries *all, int64_t number) {
    return plsh_summary_at(all->plan, all->memory + (size_t)number * all->plan->summary_bytes);
}

/* The kv head of summary `number`, and the order of its keys. */
static int64_t kv_of(const plsh_plan *plan, int64_t number) {
    return number / (plan->summaries / plan->shape.kv_heads);
}

static const int32_t *order_of(const plsh_plan *plan, int64_t number) {
    const plsh_plan_points *p = &plan->points;
    return p->key_order ? p->key_order + (p->sets == 1 ? 0 : number) * p->keys : NULL;
}

/* Mean of the keys, and ranges of the values, of one kv head and sequence. */
static void summarise_sequence(void *context, int64_t i, int slot) {
    const summaries *all = context;
    const plsh_plan *plan = all->plan;
    const int64_t number = i / plan->sequences, sequence = i % plan->sequences;
    const int64_t kv = kv_of(plan, number);
    const plsh_summary_buffers wide = all->buffers_of(all->context, slot);
    const plsh_summary summary = summary_of(all, number);
    const plsh_row_source k = plsh_row_source_keys(plan, all->arrays, all->pages, kv),
                          v = plsh_row_source_values(plan, all->arrays, all->pages, kv);
    if (needs_summary(all, sequence) && is_whole(&k))
        summarise_mean(plan, &summary, &k, sequence, wide.k);
    if (all->arrays->certificate) summarise_values(plan, &summary, &v, sequence, wide.v);
}

/* Copies of some rows of K and V, by their place. */
static void place_rows(void *context, int64_t first, int64_t end, int slot) {
    const summaries *all = context;
    const plsh_plan *plan = all->plan;
    (void)slot;
    for (int64_t i = first; i < end; i++) {
        const int64_t number = i / plan->shape.keys, place = i % plan->shape.keys;
        const plsh_summary summary = summary_of(all, number);
        const int64_t x = plsh_plan_find(plan->key_offset, plan->sequences, place);
        const int64_t row = plan->key_offset[x] + order_of(plan, number)[place];
        const plsh_row_source k = plsh_row_source_keys(plan, all->arrays, all->pages,
                                                       kv_of(plan, number)),
                              v = plsh_row_source_values(plan, all->arrays, all->pages,
                                                         kv_of(plan, number));
        plsh_row_source_copy(&k, plan->kernel, row, 1, summary.k_placed + place * k.dim);
        plsh_row_source_copy(&v, plan->kernel, row, 1, summary.v_placed + place * v.dim);
    }
}

static void summarise_pieces(void *context, int64_t first, int64_t end, int slot) {
    const summaries *all = context;
    const plsh_plan *plan = all->plan;
    const int64_t pieces = plan->first_piece[plan->sequences];
    const plsh_summary_buffers wide = all->buffers_of(all->context, slot);
    for (int64_t i = first; i < end; i++) {
        const int64_t number = i / pieces, piece = i % pieces, kv = kv_of(plan, number);
        const plsh_summary summary = summary_of(all, number);
        const int64_t sequence = plsh_plan_find(plan->first_piece, plan->sequences, piece);
        const plsh_row_source k = plsh_row_source_keys(plan, all->arrays, all->pages, kv);
        if (summary.norm && needs_summary(all, sequence) && is_whole(&k))
            summarise_piece(plan, &summary, &k, sequence, piece, wide.k);
    }
}

void plsh_summary_make(const plsh_plan *plan, const plsh_forward *arrays, const plsh_pages *pages,
                       char *memory, plsh_summary_buffers (*buffers_of)(void *context, int slot),
                       void *context) {
    enum { LEAST = 4, LEAST_ROWS = 256 }; /* pieces of a chunk: their keys are read once */
    summaries all = {plan, arrays, pages, memory, buffers_of, context};
    const int64_t pieces = plan->first_piece[plan->sequences], count = plan->summaries;
    if (plan->points.key_order)
        plsh_thread_rows(plan->threads, count * plan->shape.keys, LEAST_ROWS, place_rows, &all);
    if (!needs_any_summary(&all)) return;
    plsh_thread_run(plan->threads, count * plan->sequences, summarise_sequence, &all);
    plsh_thread_rows(plan->threads, count * pieces, LEAST, summarise_pieces, &all);
    for (int64_t number = 0; number < count; number++) {
        const plsh_summary summary = summary_of(&all, number);
        summarise_maxima(&all, &summary);
    }
}
