/* model: normalisation of rows, forward and backward.
 *
 *     RMS:    y = w x / sqrt(mean(x^2) + eps)
 *     layer:  y = w (x - mean) / sqrt(variance + eps) + b */
#ifndef PLSH_MODEL_NORM_H
#define PLSH_MODEL_NORM_H

#include <stdint.h>

#include "model/family.h"

typedef struct plsh_norm {
    plsh_norm_kind kind;
    int64_t width;
    double eps;
    const float *weight; /* [width] */
    const float *bias;   /* [width] or NULL */
} plsh_norm;

/* Where the gradients of weight and bias are added; NULL: they are not wanted. */
typedef struct plsh_norm_gradient {
    float *weight, *bias;
} plsh_norm_gradient;

/* Rows of x, and of the arrays that go with it (y, dy, dx): `parts` pieces of `width` numbers each,
 * one after the other (the heads of q, say, under one norm), and `stride` numbers from one row to
 * the next. */
typedef struct plsh_norm_rows {
    int64_t rows, parts;
    int64_t stride;
} plsh_norm_rows;

/* The view of rows that are one part each, without gaps. */
static inline plsh_norm_rows plsh_norm_whole(const plsh_norm *norm, int64_t rows) {
    return (plsh_norm_rows){.rows = rows, .parts = 1, .stride = norm->width};
}

/* y = norm(x). y may be x. */
void plsh_norm_forward(const plsh_norm *norm, plsh_norm_rows shape, const float *x, float *y,
                       int threads);

/* dx += the gradient of x given dy (dx may not be dy). The gradients of weight and bias are sums
 * over rows in chunks of PLSH_NORM_CHUNK, then over chunks, so that the bits do not depend on the
 * threads. partial: [chunks][2][width] for them. */
enum { PLSH_NORM_CHUNK = 64 };
void plsh_norm_backward(const plsh_norm *norm, plsh_norm_rows shape, const float *x,
                        const float *dy, float *dx, const plsh_norm_gradient *to, float *partial,
                        int threads);

#endif
