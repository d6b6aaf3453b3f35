/* attention: the kernels of the bounds, over the vector vocabulary; part of template.h. */
#ifndef PLSH_KERNELS_BOXES_H
#define PLSH_KERNELS_BOXES_H

#include "base/numbers.h"

INLINE vector v_min(vector a, vector b) {
    const vector zero = v_set(0.0f);
    return zero - v_max(zero - a, zero - b);
}

/* The sum over the lanes. */
INLINE float total_of(vector x) {
    float lane[LANES], total = 0.0f;
    v_store(lane, x);
    for (int i = 0; i < LANES; i++) total += lane[i];
    return total;
}

/* Row r of K - mean from column x on, LANES of them or what is left. Each difference is rounded
 * once, so its error is relative to itself. */
INLINE vector centred(plsh_key_rows k, const float *mean, int r, int x) {
    const int count = k.dim - x < LANES ? k.dim - x : LANES;
    return load_elements(k.row, PLSH_DTYPE_FLOAT32, r * k.stride + x, count) -
           load_elements(mean, PLSH_DTYPE_FLOAT32, x, count);
}

static void box(float *to, float square[2], plsh_key_rows k, const float *mean) {
    const int rows = k.count, d = k.dim;
    for (int x = 0; x < d; x += LANES) {
        int count = d - x < LANES ? d - x : LANES;
        vector low = v_set(INFINITY), high = v_set(-INFINITY);
        for (int r = 0; r < rows; r++) {
            vector y = centred(k, mean, r, x);
            high = v_max(high, y);
            low = v_min(low, y);
        }
        /* centre = (low + high) / 2 is off by half an ulp: the half width makes up for it. */
        vector half = v_set(0.5f), centre = half * low + half * high;
        vector width = v_max(high - centre, centre - low) * v_set(1.0f + 4.0f * FLT_EPSILON);
        v_store_first(to + x, count, centre);
        v_store_first(to + d + x, count, width);
    }
    square[0] = square[1] = 0.0f;
    for (int r = 0; r < rows; r++) {
        vector size = v_set(0.0f), distance = v_set(0.0f);
        for (int x = 0; x < d; x += LANES) {
            int count = d - x < LANES ? d - x : LANES;
            vector y = centred(k, mean, r, x);
            vector off = y - load_elements(to, PLSH_DTYPE_FLOAT32, x, count);
            size = v_fma(y, y, size);
            distance = v_fma(off, off, distance);
        }
        square[0] = plsh_larger(square[0], total_of(size));
        square[1] = plsh_larger(square[1], total_of(distance));
    }
    if (square[0] != square[0]) square[1] = square[0];
}

/* max over the box of q.k = q.centre + |q|.width; R boxes at a time. */
INLINE void bound_block(const int R, float *e, plsh_piece_boxes boxes,
                        plsh_bounded_queries queries) {
    const int d = boxes.d;
    vector middle[BOUND_BLOCK][GROUP_VECTORS], width[BOUND_BLOCK][GROUP_VECTORS];
    UNROLL for (int t = 0; t < R; t++) {
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) middle[t][g] = width[t][g] = v_set(0.0f);
    }
    for (int x = 0; x < d; x++) {
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
            vector q = v_load(queries.packed + (ptrdiff_t)x * GROUP + g * LANES);
            vector size = v_max(q, v_set(0.0f) - q);
            UNROLL for (int t = 0; t < R; t++) {
                const float *at = boxes.box + (ptrdiff_t)t * 2 * d + x;
                middle[t][g] = v_fma(q, v_set(at[0]), middle[t][g]);
                width[t][g] = v_fma(size, v_set(at[d]), width[t][g]);
            }
        }
    }
    /* Each sum of d terms is off by at most d 2^-24 |q| (|centre| + |width|) <= 3 |q| |k|, the
     * keys themselves by 2^-24 of theirs. */
    const vector slack = v_set((float)(d + 1) * 3.0f * FLT_EPSILON);
    UNROLL for (int t = 0; t < R; t++) {
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
            vector q = v_load(queries.norm + g * LANES), norms = q * v_set(boxes.norm[t]);
            vector reach = v_min(width[t][g], q * v_set(boxes.radius[t]));
            vector u = v_min(norms, v_fma(slack, norms, middle[t][g] + reach));
            u = u + v_set(boxes.bias[t]) - v_load(queries.shift + g * LANES);
            v_store(e + (ptrdiff_t)t * GROUP + g * LANES, v_exp2(v_min(v_set(100.0f), u)));
        }
    }
}

/* The boxes from number t on. */
INLINE plsh_piece_boxes boxes_from(plsh_piece_boxes boxes, int t) {
    return (plsh_piece_boxes){boxes.box + (ptrdiff_t)t * 2 * boxes.d,
                              boxes.norm + t,
                              boxes.radius + t,
                              boxes.bias + t,
                              boxes.count - t,
                              boxes.d};
}

static void bounds(float *e, plsh_piece_boxes boxes, plsh_bounded_queries queries) {
    int t = 0;
    for (; t + BOUND_BLOCK <= boxes.count; t += BOUND_BLOCK) {
        bound_block(BOUND_BLOCK, e + (ptrdiff_t)t * GROUP, boxes_from(boxes, t), queries);
    }
    for (; t < boxes.count; t++) {
        bound_block(1, e + (ptrdiff_t)t * GROUP, boxes_from(boxes, t), queries);
    }
}

#endif
