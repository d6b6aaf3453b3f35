/* linear: products in int8: activations quantised, panels of W as bytes. */
#ifndef PLSH_LINEAR_INT8_H
#define PLSH_LINEAR_INT8_H

#include "base/arena.h"
#include "linear/kernels/int8.h"
#include "linear/linear.h"

/* Room for `rows` rows of `in` values, a multiple of 32. */
plsh_int8_rows plsh_int8_rows_take(plsh_arena *arena, int64_t rows, int64_t in);

/* How many rows of `in` values fit into so many bytes. */
int64_t plsh_int8_rows_fit(size_t bytes, int64_t in);

/* The rows from row r on. */
plsh_int8_rows plsh_int8_rows_from(const plsh_int8_rows *rows, int64_t r);

/* x as int8: for each group of 32 values s = max |x| / 127 and p = x / s, rounded to the nearest
 * (ties to even), so that |x - s p| <= s / 2 apart from rounding. A group without a value of at
 * least 2^-100 is 0; one that is not finite has an s that is not finite. */
void plsh_int8_quantise(const plsh_int8_rows *to, int64_t rows, plsh_const_matrix x, int threads);

/* Outputs n .. n + columns of W, inputs k .. k + depth, as panels of the kernels' width. Panel
 * number c / width has its bytes at c * PLSH_INT8_DEPTH, its scales and offsets at that / 16. */
enum { PLSH_INT8_DEPTH = 256 };

typedef struct plsh_int8_panels {
    uint8_t *bytes;
    float *scale, *offset;
    /* of one row of W after the other: [width][PLSH_INT8_DEPTH] bytes, and their scales and offsets
     */
    uint8_t *row_bytes;
    float *row_scale, *row_offset;
} plsh_int8_panels;

/* Room for `columns` columns. */
plsh_int8_panels plsh_int8_panels_take(plsh_arena *arena, int columns);

void plsh_int8_pack(const plsh_int8_kernels *kernels, const plsh_linear *layer,
                    const plsh_int8_panels *to, int64_t k, int depth, int64_t n, int columns);

/* product->rows rows against a panel: by tiles where the kernels have them and 16 rows together. */
void plsh_int8_multiply(const plsh_int8_kernels *kernels, plsh_weight_type type,
                        const plsh_int8_product *product);

#endif
