/* attention: the kernels of real positions, over the vector vocabulary; part of template.h. */
#ifndef PLSH_KERNELS_POINTS_H
#define PLSH_KERNELS_POINTS_H

/* |x_r - y| of LANES queries from vector g on. Differences are taken before they are squared, so
 * large coordinates keep small distances. NaN is no position: distance 0. */
INLINE vector distance_to(const int dim, const float *x, const float *y, int g) {
    vector d = v_load(x + g * LANES) - v_set(y[0]), t;
    if (dim == 1) {
        t = v_max(d, v_set(0.0f) - d);
    } else {
        vector sum = d * d;
        UNROLL for (int i = 1; i < dim; i++) {
            d = v_load(x + i * GROUP + g * LANES) - v_set(y[i]);
            sum = v_fma(d, d, sum);
        }
        t = v_sqrt(sum);
    }
    return v_if_equal(t, t, t, v_set(0.0f));
}

INLINE void distances_of(const int dim, float *t, plsh_points points, int keys) {
    for (int j = 0; j < keys; j++) {
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
            v_store(t + (ptrdiff_t)j * GROUP + g * LANES,
                    distance_to(dim, points.x, points.y + (ptrdiff_t)j * dim, g));
        }
    }
}

static void distances(float *t, plsh_points points, int keys) {
    if (points.dim == 1) distances_of(1, t, points, keys);
    if (points.dim == 2) distances_of(2, t, points, keys);
    if (points.dim == 3) distances_of(3, t, points, keys);
}

INLINE void recede_by(const int dim, float *s, float *top, plsh_points points, int keys,
                      float slope) {
    const vector by = v_set(-slope);
    vector best[GROUP_VECTORS];
    UNROLL for (int g = 0; g < GROUP_VECTORS; g++) best[g] = v_set(-INFINITY);
    for (int j = 0; j < keys; j++) {
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
            float *at = s + (ptrdiff_t)j * GROUP + g * LANES;
            vector t = distance_to(dim, points.x, points.y + (ptrdiff_t)j * dim, g);
            vector y = v_fma(by, t, v_load(at));
            v_store(at, y);
            best[g] = v_max(best[g], y);
        }
    }
    UNROLL for (int g = 0; g < GROUP_VECTORS; g++) v_store(top + g * LANES, best[g]);
}

static void recede(float *s, float *top, plsh_points points, int keys, float slope) {
    if (points.dim == 1) recede_by(1, s, top, points, keys, slope);
    if (points.dim == 2) recede_by(2, s, top, points, keys, slope);
    if (points.dim == 3) recede_by(3, s, top, points, keys, slope);
}

#endif
