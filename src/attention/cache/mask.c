/* attention/cache: which keys a head sees, and under what weights. */
#include "attention/cache/mask.h"

#include "attention/cache/page.h"
#include "base/arena.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static const double LOG2_E = 1.4426950408889634;

/* ---- Masks ----------------------------------------------------------------------------------- */

/* The distance from which on the decay is 0; INT64_MAX where it never is for good. */
static int64_t end_of(const plsh_decay *decay) {
    if (plsh_decay_infinity(decay) > 0) return INT64_MAX;
    if (decay->kind == PLSH_DECAY_TRIANGLE) return (int64_t)ceil(decay->a);
    if (decay->kind != PLSH_DECAY_TABLE) return INT64_MAX;
    size_t end = decay->table_size;
    while (decay->table[end - 1] == 0) end--; /* k(0) = 1 */
    return (int64_t)end;
}

/* A decay that ends above zero leaves `exact` nothing to stop at; one that ends at zero, nothing to
 * find out. ALiBi underflows at 745 sigma, long after `exact` has stopped. */
static void resolve_auto(plsh_cache_mask *mask) {
    if (mask->head.method != PLSH_METHOD_AUTO) return;
    const plsh_decay *decay = &mask->head.partition.decay;
    if (end_of(decay) < INT64_MAX) {
        mask->head.method = PLSH_METHOD_WINDOW;
        mask->head.window = end_of(decay);
        mask->reason = "window: the decay is 0 beyond it, so older keys are forgotten";
    } else if (plsh_decay_infinity(decay) == 0) {
        mask->head.method = PLSH_METHOD_EXACT;
        mask->reason = "exact: it meets any eps and reads only what its bounds cannot rule out";
    } else {
        mask->head.method = PLSH_METHOD_DENSE;
        mask->reason = "dense: the decay does not fade to zero, so every key matters";
    }
}

static plsh_cache_mask_kind kind_of(const plsh_cache_mask *mask) {
    const plsh_decay *decay = &mask->head.partition.decay;
    if (mask->head.method == PLSH_METHOD_NONE || mask->head.method == PLSH_METHOD_FIXED)
        return PLSH_MASK_FLAT;
    if (plsh_cache_mask_is_sampled(mask))
        return mask->head.partition.scheme == PLSH_SCHEME_LABELS ? PLSH_MASK_LABELS
                                                                 : PLSH_MASK_COUNTS;
    return decay->kind == PLSH_DECAY_ALIBI && decay->limit == 0 ? PLSH_MASK_SLOPE : PLSH_MASK_TABLE;
}

plsh_status plsh_cache_mask_make(plsh_cache_mask *mask, const plsh_head *head, plsh_error *error) {
    *mask = (plsh_cache_mask){.head = *head, .reason = ""};
    resolve_auto(mask);
    mask->kind = kind_of(mask);
    mask->slope = LOG2_E / head->partition.decay.a;
    if (!plsh_cache_mask_is_sampled(mask)) return PLSH_STATUS_OK;
    int64_t samples = head->partition.samples;
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, (size_t)samples + 1, sizeof(float), "weights of counts", error);
    mask->count_log2 = memory;
    if (status) return status;
    for (int64_t c = 0; c <= samples; c++)
        mask->count_log2[c] = (float)log2((double)c / (double)samples); /* -inf for 0 */
    return PLSH_STATUS_OK;
}

void plsh_cache_mask_clear(plsh_cache_mask *mask) { plsh_release(mask->count_log2); }

/* ---- States ---------------------------------------------------------------------------------- */

plsh_status plsh_cache_mask_state_make(plsh_cache_mask_state *state, const plsh_cache_mask *mask,
                                       plsh_error *error) {
    *state = (plsh_cache_mask_state){0};
    if (mask->kind != PLSH_MASK_COUNTS) return PLSH_STATUS_OK;
    plsh_status status = plsh_cache_blocks_make(&state->query, &mask->head.partition, error);
    if (!status) status = plsh_cache_blocks_make(&state->oldest, &mask->head.partition, error);
    if (status) plsh_cache_mask_state_clear(state);
    return status;
}

/* A tail sum at every page: exactly what comes, for any decay, to the end of the table. */
static void fill_tail(plsh_cache_decay *table, const plsh_decay *decay) {
    double sum = 0;
    for (int64_t t = table->size - 1; t >= 0; t--) {
        sum += plsh_decay_value(decay, t);
        if (t % PLSH_PAGE_KEYS == 0) table->tail_sum[t / PLSH_PAGE_KEYS] = sum * (1 + 1e-9);
    }
}

static bool needs_tail(const plsh_cache_mask *mask) {
    plsh_decay_kind kind = mask->head.partition.decay.kind;
    return mask->head.method == PLSH_METHOD_EXACT &&
           (kind == PLSH_DECAY_KERPLE_POWER || kind == PLSH_DECAY_TABLE);
}

static void decay_release(plsh_cache_decay *table) {
    if (table == NULL) return;
    if (atomic_fetch_sub_explicit(&table->references, 1, memory_order_acq_rel) == 1)
        plsh_release(table);
}

static plsh_cache_decay *decay_place(const plsh_cache_mask *mask, int64_t size, plsh_arena *arena) {
    plsh_cache_decay *table = plsh_arena_take(arena, 1, sizeof *table);
    float *log2_decay = plsh_arena_floats(arena, (size_t)size);
    size_t tails = needs_tail(mask) ? (size_t)(size / PLSH_PAGE_KEYS) : 0;
    double *tail_sum = plsh_arena_take(arena, tails, sizeof *tail_sum);
    if (table == NULL) return NULL;
    table->size = size;
    table->log2 = log2_decay;
    table->tail_sum = tails > 0 ? tail_sum : NULL;
    atomic_init(&table->references, 1);
    return table;
}

/* A longer table in the place of the one there is. */
static plsh_status grow_decay(plsh_cache_mask_state *state, const plsh_cache_mask *mask,
                              int64_t size, plsh_error *error) {
    plsh_arena arena = {0};
    decay_place(mask, size, &arena);
    if (arena.overflow)
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "the table of a decay overflows");
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, arena.used, "a decay", error);
    if (status) return status;
    arena = (plsh_arena){.memory = memory};
    plsh_cache_decay *table = decay_place(mask, size, &arena);
    const plsh_decay *decay = &mask->head.partition.decay;
    int64_t old = state->decay ? state->decay->size : 0;
    if (old) memcpy(table->log2, state->decay->log2, (size_t)old * sizeof(float));
    for (int64_t t = old; t < size; t++)
        table->log2[t] = (float)(plsh_decay_log(decay, t) * LOG2_E);
    if (table->tail_sum) fill_tail(table, decay);
    decay_release(state->decay);
    state->decay = table;
    return PLSH_STATUS_OK;
}

plsh_status plsh_cache_mask_state_reserve(plsh_cache_mask_state *state, const plsh_cache_mask *mask,
                                          int64_t length, plsh_error *error) {
    if (mask->kind != PLSH_MASK_TABLE) return PLSH_STATUS_OK;
    int64_t needed = length;
    if (mask->head.method == PLSH_METHOD_WINDOW && mask->head.window < needed)
        needed = mask->head.window;
    int64_t size = state->decay ? state->decay->size : 0;
    if (needed <= size) return PLSH_STATUS_OK;
    if (size == 0) size = 4 * PLSH_PAGE_KEYS;
    while (size < needed) size *= 2;
    return grow_decay(state, mask, size, error);
}

plsh_status plsh_cache_mask_state_fork(plsh_cache_mask_state *fork,
                                       const plsh_cache_mask_state *state,
                                       const plsh_cache_mask *mask, plsh_error *error) {
    plsh_status status = plsh_cache_mask_state_make(fork, mask, error);
    if (status) return status;
    fork->decay = state->decay;
    if (fork->decay) atomic_fetch_add_explicit(&fork->decay->references, 1, memory_order_relaxed);
    if (mask->kind != PLSH_MASK_COUNTS) return PLSH_STATUS_OK;
    plsh_cache_blocks_copy(&fork->query, &state->query, &mask->head.partition);
    plsh_cache_blocks_copy(&fork->oldest, &state->oldest, &mask->head.partition);
    return PLSH_STATUS_OK;
}

void plsh_cache_mask_state_clear(plsh_cache_mask_state *state) {
    plsh_cache_blocks_clear(&state->query);
    plsh_cache_blocks_clear(&state->oldest);
    decay_release(state->decay);
    *state = (plsh_cache_mask_state){0};
}

size_t plsh_cache_mask_state_bytes(const plsh_cache_mask_state *state,
                                   const plsh_cache_mask *mask) {
    size_t bytes = 0;
    if (state->decay) bytes += (size_t)state->decay->size * sizeof(float);
    if (state->decay && state->decay->tail_sum)
        bytes += (size_t)(state->decay->size / PLSH_PAGE_KEYS) * sizeof(double);
    return bytes + plsh_cache_blocks_bytes(&state->query, &mask->head.partition) +
           plsh_cache_blocks_bytes(&state->oldest, &mask->head.partition);
}

/* ---- Reach and weights ----------------------------------------------------------------------- */

int64_t plsh_cache_mask_reach(const plsh_cache_mask *mask, plsh_cache_blocks *blocks,
                              int64_t position) {
    if (mask->head.method == PLSH_METHOD_WINDOW)
        return position < mask->head.window ? 0 : position - mask->head.window + 1;
    if (mask->head.method == PLSH_METHOD_FIXED) return position - position % mask->head.block;
    if (mask->kind != PLSH_MASK_COUNTS) return 0;
    if (blocks == NULL) return plsh_cache_blocks_first_begin(&mask->head.partition, position);
    plsh_cache_blocks_move(blocks, &mask->head.partition, position);
    return blocks->block[0].begin;
}

/* How many of the ascending begins are <= key. */
static int64_t begun(const int64_t *begins, int64_t samples, int64_t key) {
    int64_t low = 0, high = samples;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (begins[middle] <= key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void weights_of_counts(const plsh_cache_mask_row *row, int64_t from, int count, float *s) {
    int64_t samples = row->mask->head.partition.samples;
    int64_t c = begun(row->begins, samples, from);
    for (int j = 0; j < count; j++) {
        while (c < samples && row->begins[c] <= from + j) c++;
        s[j] = row->mask->count_log2[c];
    }
}

static void weights_of_labels(const plsh_cache_mask_row *row, int64_t from, int count, float *s) {
    const plsh_partition *set = &row->mask->head.partition;
    int64_t first = row->sample >= 0 ? row->sample : 0;
    int64_t last = row->sample >= 0 ? row->sample : set->samples - 1;
    int64_t same[PLSH_PAGE_KEYS] = {0};
    for (int64_t m = first; m <= last; m++) {
        const int32_t *labels = set->labels + m * set->label_count;
        for (int j = 0; j < count; j++) same[j] += labels[from + j] == labels[row->position];
    }
    for (int j = 0; j < count; j++) {
        int64_t c = row->sample >= 0 && same[j] ? set->samples : same[j];
        s[j] = row->mask->count_log2[c];
    }
}

void plsh_cache_mask_row_weights(const plsh_cache_mask_row *row, int64_t from, int count,
                                 float *s) {
    int64_t t = row->position - from; /* of the first key */
    switch (row->mask->kind) {
    case PLSH_MASK_FLAT: memset(s, 0, (size_t)count * sizeof *s); return;
    case PLSH_MASK_SLOPE: { /* in double: a steep slope times a long way has no digits to lose */
        const double first = (double)t, slope = row->mask->slope;
        for (int j = 0; j < count; j++) s[j] = (float)(-slope * (first - (double)j));
        return;
    }
    case PLSH_MASK_TABLE:
        for (int j = 0; j < count; j++) s[j] = row->state->decay->log2[t - j];
        return;
    case PLSH_MASK_COUNTS:
        if (row->sample >= 0) /* mean: the range is the block */
            memset(s, 0, (size_t)count * sizeof *s);
        else
            weights_of_counts(row, from, count, s);
        return;
    case PLSH_MASK_LABELS: weights_of_labels(row, from, count, s); return;
    }
}

/* sum of k(t) for t0 <= t < t0 + count, or more; 0 where it underflows. */
static double tail_of(const plsh_cache_mask_row *row, int64_t t0, int64_t count) {
    const plsh_cache_decay *table = row->state->decay;
    if (table == NULL || table->tail_sum == NULL)
        return plsh_decay_tail(&row->mask->head.partition.decay, t0, count);
    int64_t first = t0 / PLSH_PAGE_KEYS, after = (t0 + count + PLSH_PAGE_KEYS - 1) / PLSH_PAGE_KEYS;
    double all = table->tail_sum[first];
    if (after >= table->size / PLSH_PAGE_KEYS) return all;
    return all - table->tail_sum[after] * (1 - 3e-9);
}

/* A decay that underflows is not 0: one far key with a huge score may outweigh it. All kinds but
 * tables decrease, and tables hold what they mean. */
double plsh_cache_mask_row_log2_tail(const plsh_cache_mask_row *row, int64_t t0, int64_t count) {
    const plsh_decay *decay = &row->mask->head.partition.decay;
    double tail = tail_of(row, t0, count);
    if (tail > 1e-290 || decay->kind == PLSH_DECAY_TABLE) return log2(tail);
    return plsh_decay_log(decay, t0) * LOG2_E + log2((double)count) + 1e-9;
}
