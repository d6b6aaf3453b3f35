/* attention: the kernels of the backward pass over the vector vocabulary; part of template.h. */
#ifndef PLSH_KERNELS_BACKWARD_H
#define PLSH_KERNELS_BACKWARD_H

/* ---- P and dS ------------------------------------------------------------------------------- */

INLINE void gradient_rows(const plsh_weigh weigh, const bool with_dp, float *s, float *dp,
                          const float *w, const int32_t *row, const float *lse, const float *low,
                          const float *delta, float *sum, int keys) {
    /* Taken off P, it changes none above 2^-76 and makes the least ones 0: below the normal range,
     * where dS = P (..) would fall, arithmetic is slow. */
    const vector zero = v_set(0.0f), least = v_set(0x1p-100f);
    for (int g = 0; g < GROUP_VECTORS; g++) {
        const vector top = v_load(lse + g * LANES), rest = v_load(low + g * LANES);
        const vector middle = with_dp ? v_load(delta + g * LANES) : zero;
        vector total = zero;
        for (int j = 0; j < keys; j++) {
            ptrdiff_t at = (ptrdiff_t)j * GROUP + g * LANES;
            vector p = v_load(s + at);
            if (weigh == PLSH_WEIGH_READY) {
                p = p * top;
            } else {
                p = v_exp2((p - top) - rest);
            }
            if (weigh == PLSH_WEIGH_MASKED) {
                vector weight = v_load(w + (ptrdiff_t)row[j] * GROUP + g * LANES);
                p = v_if_equal(weight, zero, zero, weight * p);
            }
            p = v_max(zero, p - least);
            v_store(s + at, p);
            if (!with_dp) continue;
            vector ds = v_if_equal(p, zero, zero, p * (v_load(dp + at) - middle));
            v_store(dp + at, ds);
            total = total + ds;
        }
        if (with_dp) v_store(sum + g * LANES, v_load(sum + g * LANES) + total);
    }
}

static void gradient(int group, float *s, float *dp, const float *w, const int32_t *row,
                     plsh_weigh weigh, const float *lse, const float *low, const float *delta,
                     float *sum, int keys) {
    (void)group;
#define GRADIENT(kind)                                                                             \
    if (weigh == (kind)) {                                                                         \
        if (dp) {                                                                                  \
            gradient_rows(kind, true, s, dp, w, row, lse, low, delta, sum, keys);                  \
        } else {                                                                                   \
            gradient_rows(kind, false, s, dp, w, row, lse, low, delta, sum, keys);                 \
        }                                                                                          \
    }
    GRADIENT(PLSH_WEIGH_PLAIN)
    GRADIENT(PLSH_WEIGH_MASKED)
    GRADIENT(PLSH_WEIGH_READY)
#undef GRADIENT
}

/* In the order of the scores, so that a row that sees one key alone, o = v, has dP = delta. */
static void dots(int group, float *to, const float *a, const float *b, int d) {
    (void)group;
    UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
        vector sum = v_set(0.0f);
        for (int x = 0; x < d; x++) {
            ptrdiff_t at = (ptrdiff_t)x * GROUP + g * LANES;
            sum = v_fma(v_load(a + at), v_load(b + at), sum);
        }
        v_store(to + g * LANES, sum);
    }
}

/* ---- out += A B ----------------------------------------------------------------------------- */

/* R keys by C vectors of columns. partial: of the last vector only `tail` lanes exist. */
INLINE void spread_block(const int R, const int C, const bool partial, float *out,
                         ptrdiff_t out_stride, const float *a, ptrdiff_t a_stride, const float *b,
                         ptrdiff_t b_stride, int queries, int tail) {
    vector sum[ROW_BLOCK][COLUMN_BLOCK];
    UNROLL for (int j = 0; j < R; j++) {
        UNROLL for (int c = 0; c < C; c++) sum[j][c] = v_set(0.0f);
    }
    for (; queries > 0; queries -= GROUP, a += a_stride) {
        int count = queries < GROUP ? queries : GROUP;
        for (int q = 0; q < count; q++, b += b_stride) {
            vector row[COLUMN_BLOCK];
            UNROLL for (int c = 0; c < C; c++) {
                row[c] = partial && c == C - 1 ? v_load_first(b + c * LANES, tail)
                                               : v_load(b + c * LANES);
            }
            UNROLL for (int j = 0; j < R; j++) {
                vector weight = v_set(a[j * GROUP + q]);
                UNROLL for (int c = 0; c < C; c++) sum[j][c] = v_fma(weight, row[c], sum[j][c]);
            }
        }
    }
    UNROLL for (int j = 0; j < R; j++) {
        UNROLL for (int c = 0; c < C; c++) {
            float *to = out + j * out_stride + c * LANES;
            if (partial && c == C - 1) {
                v_store_first(to, tail, v_load_first(to, tail) + sum[j][c]);
            } else {
                v_store(to, v_load(to) + sum[j][c]);
            }
        }
    }
}

/* All keys of a strip of columns: the strip of B stays in the first cache. */
INLINE void spread_strip(const int C, const bool partial, float *out, ptrdiff_t out_stride,
                         const float *a, ptrdiff_t a_stride, const float *b, ptrdiff_t b_stride,
                         int keys, int queries, int tail) {
    int j = 0;
#define SPREAD_ROWS(R)                                                                             \
    for (; j + (R) <= keys; j += (R)) {                                                            \
        spread_block(R, C, partial, out + j * out_stride, out_stride, a + (ptrdiff_t)j * GROUP,    \
                     a_stride, b, b_stride, queries, tail);                                        \
    }
    SPREAD_ROWS(ROW_BLOCK)
    SPREAD_ROWS(2)
    SPREAD_ROWS(1)
#undef SPREAD_ROWS
}

/* Strips as in accumulate. */
static void spread(int group, float *out, ptrdiff_t out_stride, const float *a, ptrdiff_t a_stride,
                   const float *b, ptrdiff_t b_stride, int keys, int queries, int d) {
    (void)group;
    const int vectors = (d + LANES - 1) / LANES;
    const int strips = (vectors + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    for (int i = 0, c = 0; i < strips; i++) {
        int width = vectors / strips + (i < vectors % strips);
        int tail = d - (c + width - 1) * LANES;
        float *to = out + c * LANES;
        const float *from = b + c * LANES;
        switch (width) {
#define STRIP(C)                                                                                   \
    case C:                                                                                        \
        if (C <= COLUMN_BLOCK && tail >= LANES) {                                                  \
            spread_strip(C <= COLUMN_BLOCK ? C : 1, false, to, out_stride, a, a_stride, from,      \
                         b_stride, keys, queries, LANES);                                          \
        } else if (C <= COLUMN_BLOCK) {                                                            \
            spread_strip(C <= COLUMN_BLOCK ? C : 1, true, to, out_stride, a, a_stride, from,       \
                         b_stride, keys, queries, tail);                                           \
        }                                                                                          \
        break;
            STRIP(1)
            STRIP(2)
            STRIP(3)
            STRIP(4)
#undef STRIP
        default: break;
        }
        c += width;
    }
}

/* ---- dS against a function of the distance -------------------------------------------------- */

static double correlate(int group, const float *ds, const float *table, int keys) {
    (void)group;
    vector sum[GROUP_VECTORS];
    UNROLL for (int g = 0; g < GROUP_VECTORS; g++) sum[g] = v_set(0.0f);
    for (int j = 0; j < keys; j++) {
        UNROLL for (int g = 0; g < GROUP_VECTORS; g++) {
            sum[g] = v_fma(v_load(ds + (ptrdiff_t)j * GROUP + g * LANES),
                           v_load(table + g * LANES - j), sum[g]);
        }
    }
    double total = 0.0;
    for (int g = 0; g < GROUP_VECTORS; g++) {
        float lane[LANES];
        v_store(lane, sum[g]);
        for (int i = 0; i < LANES; i++) total += (double)lane[i];
    }
    return total;
}

#endif
