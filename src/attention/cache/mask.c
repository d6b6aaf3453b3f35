/* attention/cache: the keys that a head sees, and their weights. */
#include "attention/cache/mask.h"

#include "attention/cache/page.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "head/auto.h"
#include "head/reach.h"

#include <math.h>
#include <string.h>

/* ---- Masks ----------------------------------------------------------------------------------- */

static plsh_cache_mask_kind kind_of(const plsh_cache_mask *mask) {
    const plsh_decay *decay = &mask->head.partition.decay;
    if (mask->head.method == PLSH_METHOD_NONE || mask->head.method == PLSH_METHOD_FIXED)
        return PLSH_MASK_FLAT;
    if (plsh_method_is_sampled(mask->head.method))
        return mask->head.partition.scheme == PLSH_SCHEME_LABELS ? PLSH_MASK_LABELS
                                                                 : PLSH_MASK_COUNTS;
    return plsh_decay_is_linear(decay) ? PLSH_MASK_SLOPE : PLSH_MASK_TABLE;
}

plsh_status plsh_cache_mask_make(plsh_cache_mask *mask, const plsh_head *head, bool points,
                                 plsh_error *error) {
    *mask = (plsh_cache_mask){.head = *head, .points = points};
    if (points && head->radius == 0.0) mask->head.radius = (double)head->window;
    mask->reason =
        points ? plsh_auto_choose_points(&mask->head) : plsh_auto_choose_any_length(&mask->head);
    mask->kind = kind_of(mask);
    mask->slope = PLSH_LOG2_E / head->partition.decay.a;
    if (!plsh_method_is_sampled(mask->head.method)) return PLSH_STATUS_OK;
    const int64_t samples = head->partition.samples;
    const int64_t most = plsh_cache_blocks_most(&head->partition);
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, (size_t)most + 1, sizeof(float), "weights of counts", error);
    mask->count_log2 = memory;
    if (status) return status;
    for (int64_t c = 0; c <= most; c++)
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

plsh_status plsh_cache_mask_state_reserve(plsh_cache_mask_state *state, const plsh_cache_mask *mask,
                                          int64_t length, plsh_error *error) {
    if (mask->kind != PLSH_MASK_TABLE || mask->points) return PLSH_STATUS_OK;
    int64_t needed = length;
    if (mask->head.method == PLSH_METHOD_WINDOW && mask->head.window < needed)
        needed = mask->head.window;
    int64_t size = state->decay ? state->decay->size : 0;
    if (needed <= size) return PLSH_STATUS_OK;
    if (size == 0) size = 4 * PLSH_PAGE_KEYS;
    while (size < needed) size *= 2;
    return plsh_decay_table_grow(&state->decay, &mask->head.partition.decay, size, PLSH_PAGE_KEYS,
                                 mask->head.method == PLSH_METHOD_EXACT, error);
}

plsh_status plsh_cache_mask_state_fork(plsh_cache_mask_state *fork,
                                       const plsh_cache_mask_state *state,
                                       const plsh_cache_mask *mask, plsh_error *error) {
    plsh_status status = plsh_cache_mask_state_make(fork, mask, error);
    if (status) return status;
    fork->decay = plsh_decay_table_share(state->decay);
    if (mask->kind != PLSH_MASK_COUNTS) return PLSH_STATUS_OK;
    plsh_cache_blocks_copy(&fork->query, &state->query, &mask->head.partition);
    plsh_cache_blocks_copy(&fork->oldest, &state->oldest, &mask->head.partition);
    return PLSH_STATUS_OK;
}

void plsh_cache_mask_state_clear(plsh_cache_mask_state *state) {
    plsh_cache_blocks_clear(&state->query);
    plsh_cache_blocks_clear(&state->oldest);
    plsh_decay_table_release(state->decay);
    *state = (plsh_cache_mask_state){0};
}

size_t plsh_cache_mask_state_bytes(const plsh_cache_mask_state *state,
                                   const plsh_cache_mask *mask) {
    const size_t bytes = plsh_decay_table_bytes(state->decay);
    return bytes + plsh_cache_blocks_bytes(&state->query, &mask->head.partition) +
           plsh_cache_blocks_bytes(&state->oldest, &mask->head.partition);
}

/* ---- Reach and weights ----------------------------------------------------------------------- */

int64_t plsh_cache_mask_reach(const plsh_cache_mask *mask, plsh_cache_blocks *blocks,
                              int64_t position) {
    const plsh_range query = {position, position + 1};
    if (mask->kind == PLSH_MASK_LABELS || mask->points) return 0;
    if (mask->kind != PLSH_MASK_COUNTS || blocks == NULL)
        return plsh_reach_keys(&mask->head, true, position + 1, query).begin;
    plsh_cache_blocks_move(blocks, &mask->head.partition, position);
    return blocks->block[0].begin;
}

/* How many of the ascending begins are <= key. */
static int64_t begun(const int64_t *begins, int64_t most, int64_t key) {
    int64_t low = 0, high = most;
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
    const int64_t most = plsh_cache_blocks_most(&row->mask->head.partition);
    int64_t c = begun(row->begins, most, from);
    for (int j = 0; j < count; j++) {
        while (c < most && row->begins[c] <= from + j) c++;
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
    case PLSH_MASK_SLOPE: { /* in double: the product of a steep slope and a long distance needs all
                               its digits */
        const double first = (double)t, slope = row->mask->slope;
        for (int j = 0; j < count; j++) s[j] = (float)(-slope * (first - (double)j));
        return;
    }
    case PLSH_MASK_TABLE:
        for (int j = 0; j < count; j++) s[j] = row->state->decay->log2[t - j];
        return;
    case PLSH_MASK_COUNTS:
        /* `mean`, one draw: all keys of the range are in the query's block, so log2 of each weight
         * is 0 */
        if (row->sample >= 0)
            memset(s, 0, (size_t)count * sizeof *s);
        else
            weights_of_counts(row, from, count, s);
        return;
    case PLSH_MASK_LABELS: weights_of_labels(row, from, count, s); return;
    }
}
