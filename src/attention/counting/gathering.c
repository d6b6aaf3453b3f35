/* attention: partitions whose blocks are not contiguous. */
#include "attention/counting/gathering.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/status.h"

static int compare(const void *x, const void *y) {
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

/* One draw: label and place in one number, so that equal labels keep their order. */
static void sort_draw(plsh_gathering *gathering, int64_t draw, uint64_t *number) {
    const int32_t *labels = gathering->labels + draw * gathering->label_count;
    int32_t *order = gathering->order + draw * gathering->n;
    int32_t *begin = gathering->begin + draw * gathering->n;
    for (int64_t i = 0; i < gathering->n; i++)
        number[i] = (uint64_t)((int64_t)labels[i] - INT32_MIN) << 32 | (uint64_t)i;
    qsort(number, (size_t)gathering->n, sizeof *number, compare);
    int32_t first = 0;
    for (int32_t x = 0; x < gathering->n; x++) {
        if (number[x] >> 32 != number[first] >> 32) first = x;
        order[x] = (int32_t)(number[x] & UINT32_MAX);
        begin[order[x]] = first;
    }
}

static plsh_status fill(plsh_gathering *gathering, plsh_error *error) {
    size_t n = (size_t)gathering->n, count;
    if (gathering->n > INT32_MAX || !plsh_multiply(n, (size_t)gathering->draws, &count))
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld positions; labels that are not contiguous serve 2^31 - 1",
                         (long long)gathering->n);
    void *order, *begin = NULL, *number = NULL;
    plsh_status status = plsh_allocate(&order, count, sizeof(int32_t), "label order", error);
    gathering->order = order;
    if (!status) status = plsh_allocate(&begin, count, sizeof(int32_t), "label order", error);
    gathering->begin = begin;
    if (!status) status = plsh_allocate(&number, n, sizeof(uint64_t), "label order", error);
    for (int64_t m = 0; !status && m < gathering->draws; m++) sort_draw(gathering, m, number);
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
    *gathering = (plsh_gathering){
        .labels = set->labels, .label_count = set->label_count, .n = n, .draws = set->samples};
    status = fill(gathering, error);
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
    plsh_release(gathering);
}
