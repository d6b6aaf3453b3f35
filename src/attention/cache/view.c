/* attention: what the heads of a decoding cache see: reach, weights, tails. */
#include "attention/cache/cache.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static const double LOG2_E = 1.4426950408889634;

/* ---- Views ----------------------------------------------------------------------------------- */

static plsh_status check_head(const plsh_head *head, plsh_error *error) {
    switch (head->method) {
    case PLSH_METHOD_DENSE: return plsh_decay_check(&head->partition.decay, error);
    case PLSH_METHOD_AUTO:
    case PLSH_METHOD_EXACT:
        if (!(head->eps >= 0 && head->eps < 1))
            return plsh_fail(error, PLSH_STATUS_INVALID, "eps is %g; it lies in [0, 1)", head->eps);
        return plsh_decay_check(&head->partition.decay, error);
    case PLSH_METHOD_PLSH:
    case PLSH_METHOD_MASKS:
    case PLSH_METHOD_MEAN: return plsh_partition_check(&head->partition, error);
    case PLSH_METHOD_WINDOW:
        if (head->window < 1)
            return plsh_fail(error, PLSH_STATUS_INVALID, "window is %lld; at least 1",
                             (long long)head->window);
        return plsh_decay_check(&head->partition.decay, error);
    case PLSH_METHOD_FIXED:
        if (head->block < 1)
            return plsh_fail(error, PLSH_STATUS_INVALID, "block is %lld; at least 1",
                             (long long)head->block);
        return PLSH_STATUS_OK;
    case PLSH_METHOD_NONE: return PLSH_STATUS_OK;
    }
    return plsh_fail(error, PLSH_STATUS_INVALID, "method %d is unknown", (int)head->method);
}

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
static void resolve_auto(plsh_view *view) {
    if (view->head.method != PLSH_METHOD_AUTO) return;
    const plsh_decay *decay = &view->head.partition.decay;
    if (end_of(decay) < INT64_MAX) {
        view->head.method = PLSH_METHOD_WINDOW;
        view->head.window = end_of(decay);
        view->reason = "window: the decay is 0 beyond it, so older keys are forgotten";
    } else if (plsh_decay_infinity(decay) == 0) {
        view->head.method = PLSH_METHOD_EXACT;
        view->reason = "exact: it meets any eps and reads only what its bounds cannot rule out";
    } else {
        view->head.method = PLSH_METHOD_DENSE;
        view->reason = "dense: the decay does not fade to zero, so every key matters";
    }
}

static plsh_view_kind kind_of(const plsh_view *view) {
    const plsh_decay *decay = &view->head.partition.decay;
    if (view->head.method == PLSH_METHOD_NONE || view->head.method == PLSH_METHOD_FIXED)
        return PLSH_VIEW_FLAT;
    if (plsh_view_is_sampled(view))
        return view->head.partition.scheme == PLSH_SCHEME_LABELS ? PLSH_VIEW_LABELS
                                                                 : PLSH_VIEW_COUNTS;
    return decay->kind == PLSH_DECAY_ALIBI && decay->limit == 0 ? PLSH_VIEW_SLOPE : PLSH_VIEW_TABLE;
}

plsh_status plsh_view_make(plsh_view *view, const plsh_head *head, plsh_error *error) {
    *view = (plsh_view){.head = *head, .reason = ""};
    plsh_status status = check_head(head, error);
    if (status) return status;
    if (view->head.eps == 0) view->head.eps = 0x1p-24;
    resolve_auto(view);
    view->kind = kind_of(view);
    view->slope = LOG2_E / head->partition.decay.a;
    if (!plsh_view_is_sampled(view)) return PLSH_STATUS_OK;
    int64_t samples = head->partition.samples;
    void *memory;
    status = plsh_allocate(&memory, (size_t)samples + 1, sizeof(float), "weights of counts", error);
    view->count_log2 = memory;
    if (status) return status;
    for (int64_t c = 0; c <= samples; c++)
        view->count_log2[c] = (float)log2((double)c / (double)samples); /* -inf for 0 */
    return PLSH_STATUS_OK;
}

void plsh_view_clear(plsh_view *view) { plsh_release(view->count_log2); }

/* ---- Cursors --------------------------------------------------------------------------------- */

/* Shell's sort by begin; the gaps are Ciura's. */
static void sort_spans(plsh_span *span, int64_t count) {
    static const int64_t gaps[] = {4193, 1750, 701, 301, 132, 57, 23, 10, 4, 1};
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++) {
        for (int64_t i = gaps[g]; i < count; i++) {
            plsh_span moved = span[i];
            int64_t at = i;
            for (; at >= gaps[g] && span[at - gaps[g]].begin > moved.begin; at -= gaps[g])
                span[at] = span[at - gaps[g]];
            span[at] = moved;
        }
    }
}

static void ask(const plsh_view *view, int64_t position, plsh_span *span) {
    plsh_block block;
    plsh_partition_block(&view->head.partition, span->sample, position, &block);
    span->begin = block.begin > 0 ? block.begin : 0;
    span->end = block.end;
}

/* Forwards, the blocks that ended are followed by ones that begin later than all that are still
 * open, so these keep their order at the front. */
static void advance(plsh_cursor *cursor, const plsh_view *view, int64_t position) {
    int64_t samples = view->head.partition.samples, open = 0, ended = 0;
    plsh_span *span = cursor->span, *scratch = span + samples;
    for (int64_t i = 0; i < samples; i++) {
        if (span[i].end > position)
            span[open++] = span[i];
        else
            scratch[ended++] = span[i];
    }
    for (int64_t i = 0; i < ended; i++) {
        ask(view, position, &scratch[i]);
        span[open + i] = scratch[i];
    }
    sort_spans(span + open, ended);
}

void plsh_cursor_move(plsh_cursor *cursor, const plsh_view *view, int64_t position) {
    if (position == cursor->position) return;
    bool back = position < cursor->position;
    cursor->position = position;
    if (!back && position < cursor->next_end) return;
    int64_t samples = view->head.partition.samples;
    if (back) {
        for (int64_t i = 0; i < samples; i++) ask(view, position, &cursor->span[i]);
        sort_spans(cursor->span, samples);
    } else {
        advance(cursor, view, position);
    }
    cursor->next_end = INT64_MAX;
    for (int64_t i = 0; i < samples; i++)
        if (cursor->span[i].end < cursor->next_end) cursor->next_end = cursor->span[i].end;
}

/* All spans ended before position 0: the first move asks for every one. The second half of the
 * memory is scratch of `advance`. */
static plsh_status cursor_make(plsh_cursor *cursor, const plsh_view *view, plsh_error *error) {
    *cursor = (plsh_cursor){.position = -1};
    if (view->kind != PLSH_VIEW_COUNTS) return PLSH_STATUS_OK;
    int64_t samples = view->head.partition.samples;
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, 2 * (size_t)samples, sizeof(plsh_span), "blocks of draws", error);
    if (status) return status;
    cursor->span = memory;
    for (int64_t i = 0; i < samples; i++) cursor->span[i].sample = i;
    return PLSH_STATUS_OK;
}

static void cursor_copy(plsh_cursor *to, const plsh_cursor *from, const plsh_view *view) {
    if (from->span == NULL || to->span == NULL) return;
    memcpy(to->span, from->span, (size_t)view->head.partition.samples * sizeof(plsh_span));
    to->position = from->position;
    to->next_end = from->next_end;
}

/* ---- Tracks ---------------------------------------------------------------------------------- */

plsh_status plsh_track_make(plsh_track *track, const plsh_view *view, plsh_error *error) {
    *track = (plsh_track){0};
    plsh_status status = cursor_make(&track->query, view, error);
    if (!status) status = cursor_make(&track->tail, view, error);
    if (status) plsh_track_clear(track);
    return status;
}

/* A tail sum at every page: exactly what comes, for any decay, to the end of the table. */
static void fill_tail(plsh_track *track, const plsh_decay *decay) {
    double sum = 0;
    for (int64_t t = track->decay_size - 1; t >= 0; t--) {
        sum += plsh_decay_value(decay, t);
        if (t % PLSH_PAGE == 0) track->tail_sum[t / PLSH_PAGE] = sum * (1 + 1e-9);
    }
}

static bool needs_tail(const plsh_view *view) {
    plsh_decay_kind kind = view->head.partition.decay.kind;
    return view->head.method == PLSH_METHOD_EXACT &&
           (kind == PLSH_DECAY_KERPLE_POWER || kind == PLSH_DECAY_TABLE);
}

static plsh_status grow_tables(plsh_track *track, const plsh_view *view, int64_t size,
                               plsh_error *error) {
    void *table, *tail = NULL;
    plsh_status status = plsh_allocate(&table, (size_t)size, sizeof(float), "a decay", error);
    if (status) return status;
    if (needs_tail(view)) {
        status = plsh_allocate(&tail, (size_t)(size / PLSH_PAGE), sizeof(double), "tails", error);
        if (status) {
            plsh_release(table);
            return status;
        }
    }
    float *log2_decay = table;
    int64_t old = track->decay_size;
    if (old) memcpy(log2_decay, track->log2_decay, (size_t)old * sizeof(float));
    for (int64_t t = old; t < size; t++)
        log2_decay[t] = (float)(plsh_decay_log(&view->head.partition.decay, t) * LOG2_E);
    plsh_release(track->log2_decay);
    plsh_release(track->tail_sum);
    track->log2_decay = log2_decay;
    track->tail_sum = tail;
    track->decay_size = size;
    if (tail) fill_tail(track, &view->head.partition.decay);
    return PLSH_STATUS_OK;
}

plsh_status plsh_track_reserve(plsh_track *track, const plsh_view *view, int64_t length,
                               plsh_error *error) {
    if (view->kind != PLSH_VIEW_TABLE) return PLSH_STATUS_OK;
    int64_t needed = length;
    if (view->head.method == PLSH_METHOD_WINDOW && view->head.window < needed)
        needed = view->head.window;
    if (needed <= track->decay_size) return PLSH_STATUS_OK;
    int64_t size = track->decay_size ? track->decay_size : 4 * PLSH_PAGE;
    while (size < needed) size *= 2;
    return grow_tables(track, view, size, error);
}

plsh_status plsh_track_fork(plsh_track *fork, const plsh_track *track, const plsh_view *view,
                            plsh_error *error) {
    plsh_status status = plsh_track_make(fork, view, error);
    if (!status && track->decay_size) status = grow_tables(fork, view, track->decay_size, error);
    if (status) {
        plsh_track_clear(fork);
        return status;
    }
    cursor_copy(&fork->query, &track->query, view);
    cursor_copy(&fork->tail, &track->tail, view);
    return PLSH_STATUS_OK;
}

void plsh_track_clear(plsh_track *track) {
    plsh_release(track->query.span);
    plsh_release(track->tail.span);
    plsh_release(track->log2_decay);
    plsh_release(track->tail_sum);
    *track = (plsh_track){0};
}

size_t plsh_track_bytes(const plsh_track *track, const plsh_view *view) {
    size_t bytes = (size_t)track->decay_size * sizeof(float);
    if (track->tail_sum) bytes += (size_t)(track->decay_size / PLSH_PAGE) * sizeof(double);
    if (track->query.span) bytes += 4 * (size_t)view->head.partition.samples * sizeof(plsh_span);
    return bytes;
}

/* ---- Reach and weights ----------------------------------------------------------------------- */

static int64_t first_begin(const plsh_view *view, int64_t position) {
    int64_t first = position;
    for (int64_t m = 0; m < view->head.partition.samples && first > 0; m++) {
        plsh_span span = {.sample = m};
        ask(view, position, &span);
        if (span.begin < first) first = span.begin;
    }
    return first;
}

int64_t plsh_view_reach(const plsh_view *view, plsh_cursor *cursor, int64_t position) {
    if (view->head.method == PLSH_METHOD_WINDOW)
        return position < view->head.window ? 0 : position - view->head.window + 1;
    if (view->head.method == PLSH_METHOD_FIXED) return position - position % view->head.block;
    if (view->kind != PLSH_VIEW_COUNTS) return 0;
    if (cursor == NULL) return first_begin(view, position);
    plsh_cursor_move(cursor, view, position);
    return cursor->span[0].begin;
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

static void weights_of_counts(const plsh_sight *sight, int64_t from, int count, float *s) {
    int64_t samples = sight->view->head.partition.samples;
    int64_t c = begun(sight->begins, samples, from);
    for (int j = 0; j < count; j++) {
        while (c < samples && sight->begins[c] <= from + j) c++;
        s[j] = sight->view->count_log2[c];
    }
}

static void weights_of_labels(const plsh_sight *sight, int64_t from, int count, float *s) {
    const plsh_partition *set = &sight->view->head.partition;
    int64_t first = sight->sample >= 0 ? sight->sample : 0;
    int64_t last = sight->sample >= 0 ? sight->sample : set->samples - 1;
    int64_t same[PLSH_PAGE] = {0};
    for (int64_t m = first; m <= last; m++) {
        const int32_t *labels = set->labels + m * set->label_count;
        for (int j = 0; j < count; j++) same[j] += labels[from + j] == labels[sight->position];
    }
    for (int j = 0; j < count; j++) {
        int64_t c = sight->sample >= 0 && same[j] ? set->samples : same[j];
        s[j] = sight->view->count_log2[c];
    }
}

void plsh_sight_weights(const plsh_sight *sight, int64_t from, int count, float *s) {
    int64_t t = sight->position - from; /* of the first key */
    switch (sight->view->kind) {
    case PLSH_VIEW_FLAT: memset(s, 0, (size_t)count * sizeof *s); return;
    case PLSH_VIEW_SLOPE: {
        float first = (float)(-(double)t * sight->view->slope), step = (float)sight->view->slope;
        for (int j = 0; j < count; j++) s[j] = first + (float)j * step;
        return;
    }
    case PLSH_VIEW_TABLE:
        for (int j = 0; j < count; j++) s[j] = sight->track->log2_decay[t - j];
        return;
    case PLSH_VIEW_COUNTS:
        if (sight->sample >= 0) /* mean: the range is the block */
            memset(s, 0, (size_t)count * sizeof *s);
        else
            weights_of_counts(sight, from, count, s);
        return;
    case PLSH_VIEW_LABELS: weights_of_labels(sight, from, count, s); return;
    }
}

double plsh_sight_tail(const plsh_sight *sight, int64_t t0, int64_t count) {
    const plsh_track *track = sight->track;
    if (track->tail_sum == NULL)
        return plsh_decay_tail(&sight->view->head.partition.decay, t0, count);
    int64_t first = t0 / PLSH_PAGE, after = (t0 + count + PLSH_PAGE - 1) / PLSH_PAGE;
    double all = track->tail_sum[first];
    if (after >= track->decay_size / PLSH_PAGE) return all;
    return all - track->tail_sum[after] * (1 - 3e-9);
}
