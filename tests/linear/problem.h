/* tests: random linear layers of every type. */
#ifndef PLSH_TESTS_LINEAR_PROBLEM_H
#define PLSH_TESTS_LINEAR_PROBLEM_H

#include "linear/linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "linear/kernels/kernels.h"
#include "linear/types.h"
#include "support/support.h"

static uint64_t state = 1;
static inline double uniform(void) { /* in [-1, 1) */
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(state >> 11 << 11) * 0x1p-63;
}

static inline void *make(size_t count, size_t size) {
    void *memory;
    assert_int_equal(plsh_allocate(&memory, count, size, "a test", NULL), PLSH_STATUS_OK);
    return memory;
}

static inline float *randoms(size_t count) {
    float *x = make(count, sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = (float)uniform();
    return x;
}

typedef struct problem {
    plsh_tensor tensor;
    float *w;          /* [out][in], what the tensor holds */
    plsh_linear layer; /* with bias */
    float *bias;
} problem;

/* Random bits, but halves that are finite: exponents below 31. */
static inline void *random_blocks(plsh_weight_type type, size_t size) {
    const plsh_weight_kind *kind = &plsh_weight_kinds[type];
    uint8_t *bytes = make(size, 1);
    if (type == PLSH_WEIGHT_F32) {
        for (size_t i = 0; i < size / 4; i++) ((float *)(void *)bytes)[i] = (float)uniform();
        return bytes;
    }
    for (size_t i = 0; i < size; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(state >> 40);
    }
    for (size_t b = 0; b < size; b += (size_t)kind->bytes) {
        uint8_t *block = bytes + b;
        if (type == PLSH_WEIGHT_F16 || type == PLSH_WEIGHT_BF16) {
            block[1] = (uint8_t)((block[1] & 0x83) | (type == PLSH_WEIGHT_F16 ? 0x38 : 0x3c));
        } else if (type == PLSH_WEIGHT_Q6_K || type == PLSH_WEIGHT_Q3_K) { /* d is last */
            uint8_t *d = block + kind->bytes - 1;
            *d = (uint8_t)((*d & 0x83) | 0x20);
        } else if (type == PLSH_WEIGHT_Q2_K) {
            block[81] = (uint8_t)((block[81] & 0x83) | 0x20);
            block[83] = (uint8_t)((block[83] & 0x83) | 0x28);
        } else {
            block[1] = (uint8_t)((block[1] & 0x83) | 0x20);
            block[3] = (uint8_t)((block[3] & 0x83) | 0x28);
        }
    }
    return bytes;
}

static inline problem make_problem(plsh_weight_type type, int64_t out, int64_t in) {
    problem p = {.tensor = {.name = "w", .type = type, .rank = 2, .shape = {out, in}}};
    plsh_error error;
    assert_true(plsh_weight_type_size(type, 2, p.tensor.shape, &p.tensor.size));
    p.tensor.data = random_blocks(type, p.tensor.size);
    p.w = make((size_t)(out * in), sizeof(float));
    plsh_tensor_to_float(&p.tensor, 0, out, p.w);
    p.bias = randoms((size_t)out);
    assert_ok(plsh_linear_make(&p.layer, &p.tensor, p.bias, out, in, &error));
    return p;
}

static inline void free_problem(problem *p) {
    plsh_release((void *)(uintptr_t)p->tensor.data);
    plsh_release(p->w);
    plsh_release(p->bias);
}

static inline plsh_linear_engine make_engine(const char *isa, int threads) {
    plsh_linear_engine engine = {.threads = threads};
    plsh_error error;
    assert_ok(plsh_linear_kernels_choose(&engine.kernels, isa, &error));
    engine.workspace = make(plsh_linear_workspace(threads), 1);
    return engine;
}

#endif
