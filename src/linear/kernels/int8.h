/* linear: the kernels of products in int8, one table per instruction set.
 *
 * A group of 32 stored values is w_j = scale u_j + offset with whole numbers u_j (types with
 * halves, plsh_weight_has_halves: a scale and an offset for 16 values each). A group of activations
 * is x_j ~ s p_j, p_j in -127..127. Their product is
 *
 *     s scale (sum of u_j p_j) + offset s (sum of p_j),
 *
 * whose sums are exact in int32 and in float32 (below 2^24). All kernels of all instruction sets do
 * the same operations on float32 for an element of y, one after the other and fused: y begins with
 * its start or 0; for each group in order, y becomes fma(sum of u_j p_j, s scale, y), and for types
 * with offsets then fma(s (sum of p_j), offset, y). With halves, a group takes the two steps of its
 * scales and then the two of its offsets. So the bits of a row depend neither on the other rows of
 * a product nor on their number. */
#ifndef PLSH_LINEAR_INT8_KERNELS_H
#define PLSH_LINEAR_INT8_KERNELS_H

#include "linear/kernels/kernels.h"
#include "linear/linear.h"
#include "linear/types.h"

/* Activations in int8, rows without gaps. */
typedef struct plsh_int8_rows {
    int64_t in;
    int8_t *p;      /* [rows][in] */
    float *scale;   /* [rows][in / 32]: s */
    float *sum;     /* [rows][in / 32]: s (sum of p) */
    int32_t *whole; /* [rows][in / 32]: -(sum of p) */
    int32_t *half;  /* [rows][in / 16]: the same of each half of a group */
} plsh_int8_rows;

/* Some rows of W against the first `rows` rows of x: y[r][o] = start[r][o] + W_o . x_r. */
typedef struct plsh_int8_dot {
    const void *weight; /* the first row */
    size_t row_bytes;
    int64_t outs;
    plsh_int8_rows x;
    int rows;           /* 1 .. PLSH_LINEAR_FEW_ROWS */
    const float *start; /* initial value of y: start[r * start_stride + o]; NULL: 0 */
    ptrdiff_t start_stride;
    float *y;
    ptrdiff_t y_stride;
} plsh_int8_dot;

/* y[m][n] = start[m][n] + the groups of k .. k + depth - 1 of row m of x against the panel, n <
 * columns <= width. */
typedef struct plsh_int8_product {
    plsh_int8_rows x;
    int64_t first, rows;  /* of x; row 0 of y and of start is the first */
    int64_t k, depth;     /* multiples of 32 */
    const uint8_t *panel; /* [depth / 4][width][4] */
    const float *scale;   /* [depth / 32][width]; types with halves: [depth / 16][width] */
    const float *offset;  /* the same, for types that have one */
    int columns;
    const float *start; /* may be y itself */
    ptrdiff_t start_stride;
    float *y;
    ptrdiff_t y_stride;
} plsh_int8_product;

/* Columns of a panel: rows of W, from the first of their values that it has. Scales and offsets of
 * columns that are missing are 0. */
typedef struct plsh_int8_packing {
    const void *weight;
    size_t row_bytes;
    int columns, depth; /* as in plsh_int8_product, like the arrays */
    uint8_t *panel;
    float *scale, *offset;
} plsh_int8_packing;

typedef struct plsh_int8_kernels {
    const char *name;
    const plsh_linear_kernels *plain; /* its width and `transpose` make the panels */
    bool eight_signed; /* bytes of 8-bit types are q; otherwise u = q + 128, like those of the other
                          types */
    int few;           /* up to so many rows `dot` is faster than panels; at most PLSH_LINEAR_FEW */
    const struct plsh_tile_kernels *tiles; /* for many rows (amx.h); NULL: none */
    /* bytes[count], scale[count / 32] (types with halves: / 16) and as many offsets of a row, as
     * `multiply` wants them; count is a whole number of blocks. */
    void (*unpack[PLSH_WEIGHT_COMPUTED])(const void *from, uint8_t *bytes, float *scale,
                                         float *offset, int64_t count);
    /* The whole panel at once; NULL: by `unpack` and `plain`'s transpose. */
    void (*pack[PLSH_WEIGHT_COMPUTED])(const plsh_int8_packing *);
    void (*dot[PLSH_WEIGHT_COMPUTED])(const plsh_int8_dot *);
    void (*multiply[PLSH_WEIGHT_COMPUTED])(const plsh_int8_product *);
} plsh_int8_kernels; /* q types only: NULL for plain numbers */

extern const plsh_int8_kernels plsh_int8_amx, plsh_int8_vnni, plsh_int8_avx2, plsh_int8_neon,
    plsh_int8_reference;

/* ---- Properties of the types: compile-time constants where `type` is one ---- */

static inline bool plsh_int8_is_super(const plsh_weight_type type) {
    return type >= PLSH_WEIGHT_Q4_K;
}

static inline bool plsh_int8_has_offset(const plsh_weight_type type) {
    return type == PLSH_WEIGHT_Q4_1 || type == PLSH_WEIGHT_Q5_1 || type == PLSH_WEIGHT_Q4_K ||
           type == PLSH_WEIGHT_Q5_K || type == PLSH_WEIGHT_Q2_K;
}

static inline int plsh_int8_bits(const plsh_weight_type type) {
    if (type == PLSH_WEIGHT_Q8_0 || plsh_weight_is_table(type)) return 8;
    if (type == PLSH_WEIGHT_Q6_K) return 6;
    if (type == PLSH_WEIGHT_Q2_K) return 2;
    if (type == PLSH_WEIGHT_Q3_K) return 3;
    const bool five =
        type == PLSH_WEIGHT_Q5_0 || type == PLSH_WEIGHT_Q5_1 || type == PLSH_WEIGHT_Q5_K;
    return five ? 5 : 4;
}

/* Types without an offset are stored as q + 2^(bits - 1), those of 8 bits as q itself. */
static inline int plsh_int8_less(const plsh_weight_type type) {
    return plsh_int8_has_offset(type) ? 0 : 1 << (plsh_int8_bits(type) - 1);
}

/* s (sum of p) of run `run` of a row: of a group, or of a half of one. */
static inline float plsh_int8_sum(const plsh_weight_type type, const plsh_int8_rows *x, int64_t row,
                                  int64_t run) {
    const int64_t groups = x->in / 32;
    if (!plsh_weight_has_halves(type)) return x->sum[row * groups + run];
    return x->scale[row * groups + run / 2] * (float)-x->half[row * 2 * groups + run];
}

#endif
