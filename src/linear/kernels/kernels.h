/* linear: the kernels under the linear layers, one table per instruction set. */
#ifndef PLSH_LINEAR_KERNELS_H
#define PLSH_LINEAR_KERNELS_H

#include "base/matrix.h"
#include "plsh/weights.h"

enum {
    PLSH_LINEAR_FEW_ROWS = 4, /* the most rows of `dot` */
    PLSH_LINEAR_GROUP = 32    /* values that share a scale and an offset, in every q type */
};

/* Some rows of W against some vectors: y[r][o] = W_o . x_r (+ bias_o, or + y[r][o]). */
typedef struct plsh_linear_dot {
    const void *weight; /* the first row */
    size_t row_bytes;
    int64_t outs, in;
    const float *x; /* [rows][in], rows 1 .. PLSH_LINEAR_FEW_ROWS */
    ptrdiff_t x_stride;
    int rows;
    const float *sums; /* [rows][in / 32]: of the groups of x; q types only */
    ptrdiff_t sums_stride;
    const float *start; /* initial value of y: start[r * start_stride + o]; NULL: 0 */
    ptrdiff_t start_stride;
    float *y;
    ptrdiff_t y_stride;
} plsh_linear_dot;

/* y[m][n] = start[m][n] + sum_k a[m][k] panel[k][n], m < rows, n < columns <= width. */
typedef struct plsh_linear_product {
    const float *a; /* a[m * a_row + k * a_step]; one of the two is 1 */
    ptrdiff_t a_row, a_step;
    const float *panel; /* [depth][width], padded with zeros after the columns */
    int64_t rows, depth;
    int columns;
    const float *start; /* as above; may be y itself */
    ptrdiff_t start_stride;
    float *y;
    ptrdiff_t y_stride;
} plsh_linear_product;

typedef struct plsh_linear_kernels {
    const char *name;
    int width; /* of a panel: a divisor of PLSH_LINEAR_GROUP */
    /* to[count] = the values; count is a whole number of blocks. */
    void (*widen[PLSH_WEIGHT_COMPUTED])(const void *from, float *to, int64_t count);
    void (*dot[PLSH_WEIGHT_COMPUTED])(const plsh_linear_dot *);
    /* to[count][width] = from[rows][count] transposed, rows <= width; padded with zeros after the
     * rows. */
    void (*transpose)(float *to, const float *from, ptrdiff_t stride, int rows, int count);
    void (*multiply)(const plsh_linear_product *);
} plsh_linear_kernels;

extern const plsh_linear_kernels plsh_linear_avx512, plsh_linear_avx2, plsh_linear_wide,
    plsh_linear_neon, plsh_linear_wasm, plsh_linear_reference;

#endif
