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

/* Rows of an array: of x, `parts` pieces of `width` numbers each, one after the other (the heads of
 * q, say, under one norm), and `stride` numbers from one row to the next. */
typedef struct plsh_norm_rows {
    int64_t rows, parts;
    int64_t stride;
} plsh_norm_rows;

/* y = norm(x), both laid out as `shape` says for its own stride. y may be x. */
void plsh_norm_forward(const plsh_norm *norm, plsh_norm_rows shape, const float *x, float *y,
                       int64_t y_stride, int threads);

/* dx += the gradient of x given dy (dx may not be dy); dw += and db += those of weight and bias,
 * where they are not NULL: sums over rows in chunks of PLSH_NORM_CHUNK, then over chunks, so that
 * the bits do not depend on the threads. partial: [chunks][2][width] for them. */
enum { PLSH_NORM_CHUNK = 64 };
void plsh_norm_backward(const plsh_norm *norm, plsh_norm_rows shape, const float *x,
                        const float *dy, int64_t dy_stride, float *dx, int64_t dx_stride, float *dw,
                        float *db, float *partial, int threads);

#endif
