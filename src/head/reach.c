/* head: which keys queries can see, from the description of their head alone. */
#include "head/reach.h"

#include "base/numbers.h"
#include "base/status.h"
#include "head/check.h"
#include "partition/blocks.h"
#include "partition/shifted.h"

/* Blocks are intervals: no block of a query begins before that of the first query, or ends after
 * that of the last. */
static plsh_range reach_sampled(const plsh_partition *set, plsh_range queries, int64_t length) {
    plsh_range reach = queries, block;
    if (set->scheme == PLSH_SCHEME_LABELS && !plsh_partition_contiguous(set, length))
        return (plsh_range){0, length};
    if (plsh_partition_is_shifted(set)) {
        const plsh_range first = {queries.begin, queries.begin + 1};
        const plsh_range last = {queries.end - 1, queries.end};
        return (plsh_range){plsh_shifted_hull(set, first).begin, plsh_shifted_hull(set, last).end};
    }
    for (int64_t m = 0; m < set->samples; m++) {
        plsh_partition_block(set, m, queries.begin, &block);
        reach.begin = plsh_least(reach.begin, block.begin);
        plsh_partition_block(set, m, queries.end - 1, &block);
        reach.end = plsh_most(reach.end, block.end);
    }
    return reach;
}

plsh_range plsh_reach_keys(const plsh_head *head, bool causal, int64_t length, plsh_range queries) {
    if (!plsh_method_is_sampled(head->method))
        return plsh_reach_visible(head, causal, length, queries);
    const plsh_range all = reach_sampled(&head->partition, queries, length);
    return (plsh_range){plsh_most(all.begin, 0),
                        causal ? queries.end : plsh_least(all.end, length)};
}

static plsh_status check_range(const char *what, plsh_range range, int64_t length,
                               plsh_error *error) {
    if (0 <= range.begin && range.begin <= range.end && range.end <= length) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID, "%s %lld to %lld; 0 <= begin <= end <= %lld", what,
                     (long long)range.begin, (long long)range.end, (long long)length);
}

static plsh_status check_labels(const plsh_head *head, int64_t h, int64_t length,
                                plsh_error *error) {
    if (!plsh_method_is_sampled(head->method) || head->partition.scheme != PLSH_SCHEME_LABELS ||
        head->partition.label_count >= length)
        return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "head %lld: %lld labels per draw, but a sequence has %lld keys", (long long)h,
                     (long long)head->partition.label_count, (long long)length);
}

plsh_status plsh_head_reach(const plsh_head *head, bool causal, int64_t length, plsh_range queries,
                            plsh_range *keys, plsh_error *error) {
    plsh_shape shape = {.heads = 1, .head_dim = 1, .head = head, .head_count = 1};
    plsh_status status = plsh_check_shape(&shape, error);
    if (!status && (length < 0 || length > PLSH_POSITIONS))
        status = plsh_fail(error, PLSH_STATUS_INVALID, "a sequence of %lld keys; 0 to 2^61",
                           (long long)length);
    if (!status) status = check_range("queries", queries, length, error);
    if (!status) status = check_labels(head, 0, length, error);
    if (status) return status;
    *keys = (plsh_range){queries.begin, queries.begin};
    const plsh_head checked = plsh_check_head(&shape, 0);
    if (queries.begin < queries.end) *keys = plsh_reach_keys(&checked, causal, length, queries);
    return status;
}

/* ---- Rows of packed sequences ---------------------------------------------------------------- */

/* Extends *keys by the keys that the rows see in one head. */
static plsh_status add_head(const plsh_attention *a, int64_t h, plsh_range rows, plsh_range *keys,
                            plsh_error *error) {
    const plsh_shape shape = plsh_attention_shape(a);
    const plsh_head head = plsh_check_head(&shape, h);
    const int64_t whole[2] = {0, a->keys};
    const int64_t *offset = a->sequences ? a->key_offsets : whole;
    for (int64_t x = 0; x < (a->sequences ? a->sequences : 1); x++) {
        const int64_t first = offset[x], length = offset[x + 1] - first;
        const plsh_range queries = {plsh_most(rows.begin, first) - first,
                                    plsh_least(rows.end, offset[x + 1]) - first};
        if (queries.begin >= queries.end) continue;
        plsh_status status = check_labels(&head, h, length, error);
        if (status) return status;
        const plsh_range seen = plsh_reach_keys(&head, a->causal, length, queries);
        keys->begin = plsh_least(keys->begin, first + seen.begin);
        keys->end = plsh_most(keys->end, first + seen.end);
    }
    return PLSH_STATUS_OK;
}

static plsh_status check_same_rows(const plsh_attention *a, plsh_error *error) {
    bool same = a->queries == a->keys && !a->places;
    for (int64_t x = 0; same && x < a->sequences; x++)
        same = a->query_offsets[x] == a->key_offsets[x];
    if (same) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "the reach of rows: queries and keys are not the same rows");
}

plsh_status plsh_attention_reach(const plsh_attention *attention, int64_t head, plsh_range rows,
                                 plsh_range *keys, plsh_error *error) {
    plsh_attention a;
    plsh_status status = plsh_attention_check(attention, &a, error);
    if (!status) status = plsh_check_no_positions(&a, error);
    if (!status) status = check_same_rows(&a, error);
    if (!status) status = check_range("rows", rows, a.keys, error);
    if (!status && (head < -1 || head >= a.heads))
        status = plsh_fail(error, PLSH_STATUS_INVALID, "head %lld; -1 (all) to %lld",
                           (long long)head, (long long)a.heads - 1);
    if (status) return status;
    plsh_range seen = rows;
    const int64_t first = head < 0 ? 0 : head, end = head < 0 ? a.heads : head + 1;
    for (int64_t h = first; !status && h < end; h++) status = add_head(&a, h, rows, &seen, error);
    if (!status) *keys = seen;
    return status;
}

/* ---- The rows of a part ---------------------------------------------------------------------- */

static int64_t clamp(int64_t row, plsh_range range) {
    return plsh_most(range.begin, plsh_least(row, range.end));
}

void plsh_extent_part(int64_t sequences, const int64_t *offsets, plsh_range queries,
                      plsh_range keys, int64_t *query_offsets, int64_t *key_offsets,
                      plsh_place *places, plsh_extent *extent) {
    const int64_t begin = plsh_least(queries.begin, keys.begin),
                  end = plsh_most(queries.end, keys.end);
    const int64_t whole[2] = {0, end};
    if (sequences == 0) offsets = whole, sequences = 1;
    int64_t count = 0;
    query_offsets[0] = key_offsets[0] = 0;
    for (int64_t x = 0; x < sequences; x++) {
        const int64_t first = offsets[x], last = offsets[x + 1];
        if (last <= begin || first >= end || first == last) continue;
        const plsh_range q = {clamp(first, queries), clamp(last, queries)};
        const plsh_range k = {clamp(first, keys), clamp(last, keys)};
        plsh_place place = {q.begin - first, k.begin - first};
        if (q.begin == q.end) place.query = k.begin == k.end ? 0 : place.key;
        if (k.begin == k.end) place.key = place.query;
        places[count++] = place;
        query_offsets[count] = q.end - queries.begin;
        key_offsets[count] = k.end - keys.begin;
    }
    *extent = (plsh_extent){.queries = queries.end - queries.begin,
                            .keys = keys.end - keys.begin,
                            .sequences = count,
                            .query_offsets = query_offsets,
                            .key_offsets = key_offsets,
                            .places = places};
}
