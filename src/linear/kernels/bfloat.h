/* linear: the kernels of products in bfloat16, one table per instruction set.
 *
 * Numbers come in pairs, two in a word of 32 bits. The products of (w0, w1) and (x0, x1) are added
 * to s by
 *
 *     pair(s, w, x) = fl(w0 x0 + fl(w1 x1 + s)),
 *
 * where fl rounds to float32, to nearest even, and numbers below 2^-126 become 0 before and after
 * each of the two steps. That is vdpbf16ps as AMD's Zen 4 computes it, to the bit; the other tables
 * do the same with fused multiply-adds. Each kernel defines the order of its pairs, so all tables
 * give the same bits. The exception is the product of many rows by AMX tiles, which adds in another
 * order. */
#ifndef PLSH_LINEAR_BFLOAT_KERNELS_H
#define PLSH_LINEAR_BFLOAT_KERNELS_H

#include "linear/kernels/kernels.h"

/* Some rows of W against some vectors: y[r][o] = W_o . x_r (+ start). Lane l of 16 takes pair l of
 * each group of 32 values. Group g is added to sum g % 4, the remainder after the last group to sum
 * 0. The four are added as (0 + 1) + (2 + 3), then lanes l and l + 8, l + 4, l + 2, l + 1. */
typedef struct plsh_bfloat_dot {
    const void *weight; /* bfloat16, from any address */
    size_t row_bytes;
    int64_t outs, in;
    const uint16_t *x; /* rows 1 .. PLSH_LINEAR_FEW_ROWS; padded with 0 to a multiple of 32 */
    ptrdiff_t x_stride;
    int rows;
    const float *start; /* initial value of y: start[r * start_stride + o]; NULL: 0 */
    ptrdiff_t start_stride;
    float *y;
    ptrdiff_t y_stride;
} plsh_bfloat_dot;

/* y[m][n] = start[m][n] + the pairs of row m of a against the panel, in order, n < columns <=
 * width. */
typedef struct plsh_bfloat_product {
    const uint16_t *a; /* pair k of row m begins at a[2 * (m * a_row + k * a_step)] */
    ptrdiff_t a_row, a_step;
    const uint16_t *panel; /* [pairs][width][2], padded with zeros after the columns */
    int64_t rows, pairs;
    int columns;
    const float *start; /* may be y itself */
    ptrdiff_t start_stride;
    float *y;
    ptrdiff_t y_stride;
} plsh_bfloat_product;

typedef struct plsh_bfloat_kernels {
    const char *name;
    bool native;                           /* the processor multiplies pairs; otherwise slower than
                                              float32 */
    const plsh_linear_kernels *plain;      /* its width, `widen` and `transpose` make the panels */
    const struct plsh_tile_kernels *tiles; /* for many rows (amx.h); NULL: none */
    /* Round to nearest even; numbers below 2^-126 become 0. The first sets to[i] = from[i], the
     * second to[2 i] = a[i] and to[2 i + 1] = b[i]. NULL: no instructions for it. */
    void (*narrow)(const float *from, uint16_t *to, int64_t count);
    void (*narrow_pairs)(const float *a, const float *b, uint16_t *to, int count);
    void (*dot)(const plsh_bfloat_dot *);
    void (*multiply)(const plsh_bfloat_product *);
} plsh_bfloat_kernels;

extern const plsh_bfloat_kernels plsh_bfloat_amx, plsh_bfloat_avx512, plsh_bfloat_avx2,
    plsh_bfloat_reference;

#endif
