/* attention: the kernels of the bounds, over the vector vocabulary; part of template.h. */
#ifndef PLSH_KERNELS_BOXES_H
#define PLSH_KERNELS_BOXES_H

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

/* The larger, and NaN once there is one. */
INLINE float larger(float a, float b) { return a >= b || a != a ? a : b; }

/* count elements of row r of K - mean; each is rounded once, so relative to itself. */
INLINE vector centred(const float *k, ptrdiff_t stride, const float *mean, int r, int x,
                      int count) {
    return load_elements(k, PLSH_DTYPE_FLOAT32, r * stride + x, count) -
           load_elements(mean, PLSH_DTYPE_FLOAT32, x, count);
}

static void box(int group, float *to, float square[2], const float *k, ptrdiff_t stride,
                const float *mean, int rows, int d) {
    (void)group;
    for (int x = 0; x < d; x += LANES) {
        int count = d - x < LANES ? d - x : LANES;
        vector low = v_set(INFINITY), high = v_set(-INFINITY);
        for (int r = 0; r < rows; r++) {
            vector y = centred(k, stride, mean, r, x, count);
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
            vector y = centred(k, stride, mean, r, x, count);
            vector off = y - load_elements(to, PLSH_DTYPE_FLOAT32, x, count);
            size = v_fma(y, y, size);
            distance = v_fma(off, off, distance);
        }
        square[0] = larger(square[0], total_of(size));
        square[1] = larger(square[1], total_of(distance));
    }
    if (square[0] != square[0]) square[1] = square[0];
}

/* max over the box of q.k = q.centre + |q|.width; R boxes at a time. */
INLINE void bound_block(const int R, float *e, const float *packed, const float *boxes,
                        const float *k_norm, const float *radius, const float *bias,
                        const float *q_norm, const float *shift, int d) {
    vector middle[BOUND_BLOCK][GROUP_VECTORS], width[BOUND_BLOCK][GROUP_VECTORS];
    UNROLL for (int t = 0; t < R; t++) {
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) middle[t][g] = width[t][g] = v_set(0.0f);
    }
    for (int x = 0; x < d; x++) {
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
            vector q = v_load(packed + (ptrdiff_t)x * GROUP + g * LANES);
            vector size = v_max(q, v_set(0.0f) - q);
            UNROLL for (int t = 0; t < R; t++) {
                const float *at = boxes + (ptrdiff_t)t * 2 * d + x;
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
            vector q = v_load(q_norm + g * LANES), norms = q * v_set(k_norm[t]);
            vector reach = v_min(width[t][g], q * v_set(radius[t]));
            vector u = v_min(norms, v_fma(slack, norms, middle[t][g] + reach));
            u = u + v_set(bias[t]) - v_load(shift + g * LANES);
            v_store(e + (ptrdiff_t)t * GROUP + g * LANES, v_exp2(v_min(v_set(100.0f), u)));
        }
    }
}

static void bounds(int group, float *e, const float *packed, const float *boxes,
                   const float *k_norm, const float *radius, const float *bias, const float *q_norm,
                   const float *shift, int tiles, int d) {
    (void)group;
    int t = 0;
    for (; t + BOUND_BLOCK <= tiles; t += BOUND_BLOCK) {
        bound_block(BOUND_BLOCK, e + (ptrdiff_t)t * GROUP, packed, boxes + (ptrdiff_t)t * 2 * d,
                    k_norm + t, radius + t, bias + t, q_norm, shift, d);
    }
    for (; t < tiles; t++) {
        bound_block(1, e + (ptrdiff_t)t * GROUP, packed, boxes + (ptrdiff_t)t * 2 * d, k_norm + t,
                    radius + t, bias + t, q_norm, shift, d);
    }
}

#endif
