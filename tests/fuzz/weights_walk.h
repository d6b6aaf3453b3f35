/* fuzz: what the targets of weights share: the input on a boundary, and a walk over all of it. */
#ifndef PLSH_TESTS_FUZZ_WEIGHTS_WALK_H
#define PLSH_TESTS_FUZZ_WEIGHTS_WALK_H

#include "plsh/weights.h"

#include <stdlib.h>
#include <string.h>

static inline void fail_if(bool wrong) {
    if (wrong) abort();
}

/* Every byte of the tensors lies in the input; rows of a few values become float. */
static inline uint64_t walk_tensors(const plsh_weights *weights, const uint8_t *bytes,
                                    size_t size) {
    uint64_t sum = plsh_weights_count(weights);
    fail_if(plsh_weights_bytes(weights) > size);
    for (size_t i = 0; i < plsh_weights_count(weights); i++) {
        const plsh_tensor *tensor = plsh_weights_at(weights, i);
        const uint8_t *data = tensor->data;
        fail_if(plsh_weights_find(weights, tensor->name) != tensor);
        if (tensor->size == 0) continue;
        fail_if(data < bytes || tensor->size > size || data + tensor->size > bytes + size);
        sum += data[0] + data[tensor->size - 1];
        const int64_t columns = plsh_tensor_columns(tensor), rows = plsh_tensor_rows(tensor);
        if (tensor->type >= (plsh_weight_type)PLSH_WEIGHT_COMPUTED || columns > 4096) continue;
        float row[4096];
        plsh_tensor_to_float(tensor, rows - 1, 1, row);
        uint32_t bits;
        memcpy(&bits, &row[columns - 1], sizeof bits);
        sum += bits;
    }
    return sum;
}

/* Parses a copy of the input twice: `walk` has to return the same both times. */
static inline void parse_twice(const uint8_t *data, size_t size,
                               uint64_t (*walk)(const plsh_weights *, const uint8_t *, size_t)) {
    uint8_t *copy = aligned_alloc(8, (size + 8) / 8 * 8);
    if (!copy) return;
    if (size > 0) memcpy(copy, data, size);
    plsh_weights *weights[2];
    plsh_status status[2];
    for (int i = 0; i < 2; i++)
        status[i] = plsh_weights_parse(&weights[i], copy, size, "input", NULL);
    fail_if(status[0] != status[1]);
    fail_if((status[0] == PLSH_STATUS_OK) != (weights[0] != NULL));
    if (weights[0]) fail_if(walk(weights[0], copy, size) != walk(weights[1], copy, size));
    plsh_weights_close(weights[0]);
    plsh_weights_close(weights[1]);
    free(copy);
}

#endif
