/* theory: L* times a vector. */
#include "theory/operator.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

/* The distance at which k(t) - constant is below 2^-60. Smaller terms do not change a sum that
 * contains k(0) = 1. */
static int64_t reach_of(const plsh_decay *decay, double constant, int64_t n) {
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t t = low + (high - low) / 2;
        if (plsh_decay_value(decay, t) - constant > 0x1p-60)
            low = t + 1;
        else
            high = t;
    }
    return low;
}

/* A table need not decrease: all of it counts. */
static int64_t table_reach(const plsh_decay *decay, int64_t n) {
    return decay->table_size < (uint64_t)n ? (int64_t)decay->table_size : n;
}

plsh_status plsh_toeplitz_create(const plsh_decay *decay, int64_t n, int threads,
                                 plsh_toeplitz *toeplitz, plsh_error *error) {
    *toeplitz = (plsh_toeplitz){.n = n, .threads = threads};
    toeplitz->constant = plsh_decay_infinity(decay);
    if (decay->kind == PLSH_DECAY_ALIBI) {
        toeplitz->recursive = true;
        toeplitz->ratio = exp(-1 / decay->a);
        return PLSH_STATUS_OK;
    }
    int64_t reach = decay->kind == PLSH_DECAY_TABLE ? table_reach(decay, n)
                                                    : reach_of(decay, toeplitz->constant, n);
    toeplitz->reach = reach;
    plsh_status status = plsh_allocate((void **)&toeplitz->table, (size_t)reach + 1,
                                       sizeof *toeplitz->table, "a decay table", error);
    if (!status)
        status = plsh_allocate((void **)&toeplitz->padded, (size_t)(n + 2 * reach),
                               sizeof *toeplitz->padded, "a padded vector", error);
    if (status) {
        plsh_toeplitz_destroy(toeplitz);
        return status;
    }
    for (int64_t t = 0; t < reach; t++)
        toeplitz->table[t] = plsh_decay_value(decay, t) - toeplitz->constant;
    return PLSH_STATUS_OK;
}

void plsh_toeplitz_destroy(plsh_toeplitz *toeplitz) {
    plsh_release(toeplitz->table);
    plsh_release(toeplitz->padded);
    toeplitz->table = toeplitz->padded = NULL;
}

/* left_i = x_i + q left_{i-1}, right_i = q (x_{i+1} + right_{i+1}), y = left + right. The two
 * recursions are interleaved, because each step has to wait for the one before it. */
static void recurse(double q, int64_t n, const double *x, double *y) {
    double left = 0, right = 0;
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t i = 0, j = n - 1; i < n; i++, j--) {
        left = x[i] + q * left;
        y[i] += left;
        y[j] += right;
        right = q * (x[j] + right);
    }
}

enum { ROWS = 256 }; /* of a chunk of a convolution */

typedef struct convolution {
    const plsh_toeplitz *toeplitz;
    double *y;
} convolution;

/* y_i += table_t (x_{i-t} + x_{i+t}) for the rows of a chunk. */
static void convolve_rows(void *context, int64_t chunk, int slot) {
    const convolution *c = context;
    const plsh_toeplitz *toeplitz = c->toeplitz;
    const int64_t n = toeplitz->n, reach = toeplitz->reach, begin = chunk * ROWS;
    const int64_t rows = n - begin < ROWS ? n - begin : ROWS;
    const double *centre = toeplitz->padded + reach + begin;
    double *out = c->y + begin;
    (void)slot;
    for (int64_t t = 0; t < reach; t++) {
        const double *left = centre - t, *right = centre + t;
        double weight = t == 0 ? toeplitz->table[0] / 2 : toeplitz->table[t];
        for (int64_t i = 0; i < rows; i++) out[i] += weight * (left[i] + right[i]);
    }
}

static void convolve(const plsh_toeplitz *toeplitz, const double *x, double *y) {
    const int64_t n = toeplitz->n;
    convolution c = {toeplitz, y};
    memcpy(toeplitz->padded + toeplitz->reach, x, (size_t)n * sizeof *x);
    memset(y, 0, (size_t)n * sizeof *y);
    plsh_thread_run(toeplitz->threads, (n + ROWS - 1) / ROWS, convolve_rows, &c);
}

void plsh_toeplitz_apply(const plsh_toeplitz *toeplitz, const double *x, double *y) {
    const int64_t n = toeplitz->n;
    const double constant = toeplitz->constant;
    if (toeplitz->recursive)
        recurse(toeplitz->ratio, n, x, y);
    else
        convolve(toeplitz, x, y);
    if (constant == 0) return;
    double sum = 0, scale = toeplitz->recursive ? 1 - constant : 1;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    for (int64_t i = 0; i < n; i++) y[i] = scale * y[i] + constant * sum;
}

plsh_status plsh_decay_multiply(const plsh_decay *decay, int64_t n, const double *x, double *y,
                                int threads, plsh_error *error) {
    plsh_status status = plsh_decay_check(decay, error);
    if (status) return status;
    if (n < 0 || n > INT32_MAX)
        return plsh_fail(error, PLSH_STATUS_INVALID, "n is %lld; 0 to 2^31 - 1", (long long)n);
    plsh_toeplitz toeplitz;
    status = plsh_toeplitz_create(decay, n, threads, &toeplitz, error);
    if (status) return status;
    plsh_toeplitz_apply(&toeplitz, x, y);
    plsh_toeplitz_destroy(&toeplitz);
    return PLSH_STATUS_OK;
}
