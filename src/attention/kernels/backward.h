/* attention: the kernels of the backward pass over the vector vocabulary; part of template.h. */
#ifndef PLSH_KERNELS_BACKWARD_H
#define PLSH_KERNELS_BACKWARD_H

/* ---- P and dS ------------------------------------------------------------------------------- */

INLINE void gradient_pairs(const plsh_weigh how, const bool with_dp, float *s, float *dp, int keys,
                           plsh_pair_weights weights, plsh_gradient_rows rows) {
    /* `least` is subtracted from P, and negative results become 0. Otherwise dS = P (..) would be
     * denormal for tiny P, and arithmetic with denormal numbers is slow. P above 2^-76 does not
     * change. */
    const vector zero = v_set(0.0f), least = v_set(0x1p-100f);
    const int used = used_vectors(rows.rows);
    for (int g = 0; g < used; g++) {
        const vector top = v_load(rows.lse + g * LANES), rest = v_load(rows.low + g * LANES);
        const vector middle = with_dp ? v_load(rows.delta + g * LANES) : zero;
        vector total = zero;
        for (int j = 0; j < keys; j++) {
            ptrdiff_t at = (ptrdiff_t)j * GROUP + g * LANES;
            vector p = v_load(s + at);
            if (how == PLSH_WEIGH_READY) {
                p = p * top;
            } else {
                p = v_exp2((p - top) - rest);
            }
            if (how == PLSH_WEIGH_MASKED) {
                vector weight = weight_at(weights, j, g);
                p = v_if_equal(weight, zero, zero, weight * p);
            }
            p = v_max(zero, p - least);
            v_store(s + at, p);
            if (!with_dp) continue;
            vector ds = v_if_equal(p, zero, zero, p * (v_load(dp + at) - middle));
            v_store(dp + at, ds);
            total = total + ds;
        }
        if (with_dp) v_store(rows.sum + g * LANES, v_load(rows.sum + g * LANES) + total);
    }
}

static void gradient(float *s, float *dp, int keys, plsh_weigh how, plsh_pair_weights weights,
                     plsh_gradient_rows rows) {
#define GRADIENT(kind)                                                                             \
    if (how == (kind)) {                                                                           \
        if (dp) {                                                                                  \
            gradient_pairs(kind, true, s, dp, keys, weights, rows);                                \
        } else {                                                                                   \
            gradient_pairs(kind, false, s, dp, keys, weights, rows);                               \
        }                                                                                          \
    }
    GRADIENT(PLSH_WEIGH_PLAIN)
    GRADIENT(PLSH_WEIGH_MASKED)
    GRADIENT(PLSH_WEIGH_READY)
#undef GRADIENT
}

/* Summed in the order of the scores: a row that sees only one key has o = v, and then dP = delta to
 * the bit. */
static void dots(float *to, const float *a, const float *b, int d) {
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

/* Some keys (rows of out and of A), all queries (columns of A, rows of B), some columns of out and
 * of B, `d` of them from the block's first on. */
typedef struct spread_block {
    plsh_matrix out;
    plsh_const_matrix a, b; /* a: a row per group, as in the table */
    int queries, d;
} spread_block;

/* R keys by C vectors of columns. partial: the last vector has only the lanes that d leaves. */
INLINE void spread_columns(const int R, const int C, const bool partial, spread_block m) {
    const int tail = m.d - (C - 1) * LANES;
    vector sum[ROW_BLOCK][COLUMN_BLOCK];
    UNROLL for (int j = 0; j < R; j++) {
        UNROLL for (int c = 0; c < C; c++) sum[j][c] = v_set(0.0f);
    }
    for (; m.queries > 0; m.queries -= GROUP, m.a.data += m.a.stride) {
        int count = m.queries < GROUP ? m.queries : GROUP;
        for (int q = 0; q < count; q++, m.b.data += m.b.stride) {
            vector row[COLUMN_BLOCK];
            UNROLL for (int c = 0; c < C; c++) {
                const float *at = m.b.data + c * LANES;
                row[c] = partial && c == C - 1 ? v_load_first(at, tail) : v_load(at);
            }
            UNROLL for (int j = 0; j < R; j++) {
                vector weight = v_set(m.a.data[j * GROUP + q]);
                UNROLL for (int c = 0; c < C; c++) sum[j][c] = v_fma(weight, row[c], sum[j][c]);
            }
        }
    }
    UNROLL for (int j = 0; j < R; j++) {
        UNROLL for (int c = 0; c < C; c++) {
            float *to = m.out.data + j * m.out.stride + c * LANES;
            if (partial && c == C - 1) {
                v_store_first(to, tail, v_load_first(to, tail) + sum[j][c]);
            } else {
                v_store(to, v_load(to) + sum[j][c]);
            }
        }
    }
}

/* All keys for one strip of columns: the strip of B stays in the first-level cache. */
INLINE void spread_strip(const int C, const bool partial, spread_block m, int keys) {
    int j = 0;
#define SPREAD_ROWS(R)                                                                             \
    for (; j + (R) <= keys; j += (R)) {                                                            \
        spread_block block = m;                                                                    \
        block.out.data += j * m.out.stride;                                                        \
        block.a.data += (ptrdiff_t)j * GROUP;                                                      \
        spread_columns(R, C, partial, block);                                                      \
    }
    SPREAD_ROWS(ROW_BLOCK)
    SPREAD_ROWS(2)
    SPREAD_ROWS(1)
#undef SPREAD_ROWS
}

/* Strips as in accumulate. */
static void key_gradient(plsh_matrix out, plsh_const_matrix a, plsh_const_matrix b, int keys,
                         int queries, int d) {
    const int vectors = (d + LANES - 1) / LANES;
    const int strips = (vectors + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    spread_block m = {out, a, b, queries, d};
    for (int i = 0; i < strips; i++) {
        const int width = vectors / strips + (i < vectors % strips);
        switch (width) {
#define STRIP(C)                                                                                   \
    case C:                                                                                        \
        if (C <= COLUMN_BLOCK && m.d >= C * LANES) {                                               \
            spread_strip(C <= COLUMN_BLOCK ? C : 1, false, m, keys);                               \
        } else if (C <= COLUMN_BLOCK) {                                                            \
            spread_strip(C <= COLUMN_BLOCK ? C : 1, true, m, keys);                                \
        }                                                                                          \
        break;
            STRIP(1)
            STRIP(2)
            STRIP(3)
            STRIP(4)
#undef STRIP
        default: break;
        }
        m.out.data += width * LANES;
        m.b.data += width * LANES;
        m.d -= width * LANES;
    }
}

/* ---- dS against a function of the distance -------------------------------------------------- */

static double correlate(const float *ds, const float *table, int keys) {
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
