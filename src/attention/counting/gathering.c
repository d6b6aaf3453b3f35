/* attention: partitions whose blocks are not contiguous. */
#include "attention/counting/gathering.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"

static int compare(const void *x, const void *y) {
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

/* Label and place in one number, so that equal labels keep their order. */
static uint64_t number_of(int32_t label, int64_t place) {
    return (uint64_t)((int64_t)label - INT32_MIN) << 32 | (uint64_t)place;
}

/* The first of n sorted numbers that is not below `number`. */
static int64_t lower_bound(const uint64_t *sorted, int64_t n, uint64_t number) {
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sorted[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A sequence of one draw: n keys with these labels, and its queries. */
typedef struct sorting {
    const int32_t *key_label, *query_label;
    int64_t n, queries;
    int32_t *order, *begin;
    uint64_t *number; /* [n], scratch */
} sorting;

static void sort_sequence(const sorting *at) {
    for (int64_t i = 0; i < at->n; i++) at->number[i] = number_of(at->key_label[i], i);
    qsort(at->number, (size_t)at->n, sizeof *at->number, compare);
    for (int64_t x = 0; x < at->n; x++) at->order[x] = (int32_t)(at->number[x] & UINT32_MAX);
    for (int64_t i = 0; i < at->queries; i++)
        at->begin[i] = (int32_t)lower_bound(at->number, at->n, number_of(at->query_label[i], 0));
}

/* All draws of a gathering, by the threads. */
typedef struct sort_job {
    const plsh_gathering *gathering;
    int64_t sequences;
    const int64_t *query_offset, *key_offset;
    uint64_t *numbers; /* [threads][keys] */
} sort_job;

static void sort_draw(void *context, int64_t draw, int slot) {
    const sort_job *job = context;
    const plsh_gathering *gathering = job->gathering;
    for (int64_t x = 0; x < job->sequences; x++) {
        const int64_t key = job->key_offset[x], query = job->query_offset[x];
        const sorting at = {
            .key_label = gathering->key_label + draw * gathering->label_stride + key,
            .query_label = gathering->query_label + draw * gathering->label_stride + query,
            .n = job->key_offset[x + 1] - key,
            .queries = job->query_offset[x + 1] - query,
            .order = gathering->order + draw * gathering->keys + key,
            .begin = gathering->begin + draw * gathering->queries + query,
            .number = job->numbers + slot * gathering->keys};
        sort_sequence(&at);
    }
}

/* Fills in order and begin. */
static plsh_status sort_all(plsh_gathering *gathering, sort_job *job, int threads,
                            plsh_error *error) {
    size_t keys, queries, numbers;
    if (gathering->keys > INT32_MAX ||
        !plsh_multiply((size_t)gathering->keys, (size_t)gathering->draws, &keys) ||
        !plsh_multiply((size_t)gathering->queries, (size_t)gathering->draws, &queries) ||
        !plsh_multiply((size_t)gathering->keys, (size_t)threads, &numbers))
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld positions; labels that are not contiguous serve 2^31 - 1",
                         (long long)gathering->keys);
    void *order, *begin = NULL, *number = NULL;
    plsh_status status = plsh_allocate(&order, keys, sizeof(int32_t), "label order", error);
    gathering->order = order;
    if (!status) status = plsh_allocate(&begin, queries, sizeof(int32_t), "label order", error);
    gathering->begin = begin;
    if (!status) status = plsh_allocate(&number, numbers, sizeof(uint64_t), "label order", error);
    if (!status) {
        job->gathering = gathering;
        job->numbers = number;
        plsh_thread_run(threads, gathering->draws, sort_draw, job);
    }
    plsh_release(number);
    return status;
}

plsh_status plsh_gathering_create(const plsh_partition *set, int64_t n, plsh_gathering **out,
                                  plsh_error *error) {
    *out = NULL;
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, sizeof **out, "label order", error);
    if (status) return status;
    plsh_gathering *gathering = memory;
    *gathering = (plsh_gathering){.key_label = set->labels,
                                  .query_label = set->labels,
                                  .draws = set->samples,
                                  .label_stride = set->label_count,
                                  .keys = n,
                                  .queries = n};
    const int64_t offset[2] = {0, n};
    sort_job job = {.sequences = 1, .query_offset = offset, .key_offset = offset};
    status = sort_all(gathering, &job, 1, error);
    if (status) {
        plsh_gathering_destroy(gathering);
        return status;
    }
    *out = gathering;
    return PLSH_STATUS_OK;
}

/* Are the queries the keys? (With as many of both, every sequence has as many of both.) */
static bool same_rows(const plsh_gathering_rows *rows, int64_t queries, int64_t keys) {
    const size_t bytes = sizeof(float) * (size_t)(keys * rows->dim);
    return queries == keys && (keys == 0 || memcmp(rows->query, rows->key, bytes) == 0);
}

/* Labels the keys, and after them the queries where these are others. */
static plsh_status label_cells(const plsh_partition *set, const plsh_gathering_rows *rows,
                               plsh_gathering *gathering, plsh_error *error) {
    const bool same = same_rows(rows, gathering->queries, gathering->keys);
    const int64_t n = gathering->keys + (same ? 0 : gathering->queries);
    size_t count;
    if (!plsh_multiply((size_t)n, (size_t)set->samples, &count))
        return plsh_fail(error, PLSH_STATUS_INVALID, "%lld labels of %lld draws are too many",
                         (long long)n, (long long)set->samples);
    float *points = NULL;
    plsh_status status =
        plsh_allocate((void **)&gathering->made, count, sizeof(int32_t), "labels of cells", error);
    if (!status && !same)
        status = plsh_allocate((void **)&points, (size_t)(n * rows->dim), sizeof *points,
                               "points of queries and keys", error);
    if (!status && !same) {
        const size_t bytes = sizeof *points * (size_t)rows->dim;
        memcpy(points, rows->key, bytes * (size_t)gathering->keys);
        memcpy(points + gathering->keys * rows->dim, rows->query,
               bytes * (size_t)gathering->queries);
    }
    if (!status)
        status = plsh_cells_label(set, 0, set->samples,
                                  (plsh_point_set){rows->dim, n, same ? rows->key : points},
                                  gathering->made, rows->threads, error);
    plsh_release(points);
    gathering->label_stride = n;
    gathering->key_label = gathering->made;
    gathering->query_label = gathering->made + (same ? 0 : gathering->keys);
    return status;
}

plsh_status plsh_gathering_create_cells(const plsh_partition *set, const plsh_gathering_rows *rows,
                                        plsh_gathering **out, plsh_error *error) {
    *out = NULL;
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, sizeof **out, "label order", error);
    if (status) return status;
    plsh_gathering *gathering = memory;
    *gathering = (plsh_gathering){.draws = set->samples,
                                  .keys = rows->key_offset[rows->sequences],
                                  .queries = rows->query_offset[rows->sequences],
                                  .by_row = true};
    sort_job job = {.sequences = rows->sequences,
                    .query_offset = rows->query_offset,
                    .key_offset = rows->key_offset};
    status = label_cells(set, rows, gathering, error);
    if (!status) status = sort_all(gathering, &job, plsh_thread_count(rows->threads), error);
    if (status) {
        plsh_gathering_destroy(gathering);
        return status;
    }
    *out = gathering;
    return PLSH_STATUS_OK;
}

void plsh_gathering_destroy(plsh_gathering *gathering) {
    if (!gathering) return;
    plsh_release(gathering->order);
    plsh_release(gathering->begin);
    plsh_release(gathering->made);
    plsh_release(gathering);
}

int64_t plsh_gathering_count(const plsh_gathering *gathering, int64_t query, int64_t key) {
    int64_t count = 0;
    for (int64_t m = 0; m < gathering->draws; m++)
        count += plsh_gathering_shares(gathering,
                                       gathering->query_label[m * gathering->label_stride + query],
                                       gathering->key_label[m * gathering->label_stride + key]);
    return count;
}
