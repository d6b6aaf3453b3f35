/* model: rotary positions, forward and backward.
 *
 *     x'_a = x_a cos - x_b sin,   x'_b = x_b cos + x_a sin,   angle = position * frequency[i]
 *
 * for the pairs (a, b) = (i, i + d/2), or (2i, 2i+1) where rows are permuted (llama GGUFs).
 * The backward pass is the rotation by the opposite angle. */
#ifndef PLSH_MODEL_ROPE_H
#define PLSH_MODEL_ROPE_H

#include "model/config.h"

typedef struct plsh_rope {
    int64_t head_dim;
    bool adjacent;     /* pairs (2i, 2i+1) */
    double *frequency; /* [head_dim / 2], owned */
    plsh_rope_config config;
} plsh_rope;

/* factors: [head_dim / 2] by which frequencies are divided (a GGUF's rope_freqs), or NULL. */
plsh_status plsh_rope_make(plsh_rope *rope, const plsh_rope_config *config, int64_t head_dim,
                           bool adjacent, const float *factors, plsh_error *error);
void plsh_rope_clear(plsh_rope *rope);

/* table[r] = the cosines, then the sines, of position first + r: [rows][head_dim]. `length`: of the
 * text, on which the frequencies of dynamic scaling depend. */
void plsh_rope_fill(const plsh_rope *rope, int64_t first, int64_t rows, int64_t length,
                    float *table);

/* Head h of row r begins at x + r * row_stride + h * head_stride. */
typedef struct plsh_rope_heads {
    float *x;
    int64_t rows, row_stride, heads, head_stride;
} plsh_rope_heads;

/* Rotates every head of every row by the angles of the table, or by the opposite angles. */
void plsh_rope_rotate(const plsh_rope *rope, const float *table, plsh_rope_heads heads, bool back,
                      int threads);

#endif
