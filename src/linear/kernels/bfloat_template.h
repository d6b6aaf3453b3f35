/* linear: the kernels of products in bfloat16. The including file has defined
 *     LANES, vector, v_set, v_load, v_store   floats
 *     vpair, p_load(p), p_set(p)              LANES pairs: those at p; the one at p in each lane
 *     v_pair(sum, w, x)                       see bfloat.h
 *     v_total(x)                              the sum of the lanes: l and l + LANES / 2, ..
 *     pairs_begin(), pairs_end(state)         before and after functions that are PAIRS_ONLY
 *     PAIRS_ONLY                              a function with no arithmetic but v_pair
 *     BLOCK_ROWS, BLOCK_VECTORS               register block of multiply
 * and makes its table with BFLOAT_TABLE(name, plain). */
#ifndef PLSH_LINEAR_BFLOAT_TEMPLATE_H
#define PLSH_LINEAR_BFLOAT_TEMPLATE_H

#include <string.h>

enum {
    WIDTH = BLOCK_VECTORS * LANES,
    GROUP = PLSH_LINEAR_GROUP,
    CHAINS = 4,
    PARTS = GROUP / 2 / LANES /* vectors of a group of 16 pairs */
};

/* ---- Few rows ------------------------------------------------------------------------------- */

typedef struct dot_sums {
    vector lanes[PLSH_LINEAR_FEW_ROWS][CHAINS][PARTS];
} dot_sums;

INLINE void dot_group(const int R, dot_sums *sums, const int chain, const uint8_t *row,
                      const uint16_t *x, ptrdiff_t stride) {
    UNROLL for (int part = 0; part < PARTS; part++) {
        const vpair w = p_load(row + part * LANES * 4);
        UNROLL for (int r = 0; r < R; r++) {
            vector *sum = &sums->lanes[r][chain][part];
            *sum = v_pair(*sum, w, p_load(x + r * stride + part * LANES * 2));
        }
    }
}

/* Row o of W against rows r .. r + R - 1 of x. */
INLINE void dot_lanes(const int R, const plsh_bfloat_dot *dot, int64_t o, int r, dot_sums *to) {
    enum { BYTES = GROUP * 2, AHEAD = 1024 };
    const uint8_t *row = (const uint8_t *)dot->weight + (size_t)o * dot->row_bytes;
    const uint16_t *x = dot->x + r * dot->x_stride;
    const int64_t groups = dot->in / GROUP, rest = dot->in % GROUP;
    dot_sums sums;
    UNROLL for (int i = 0; i < R; i++) {
        UNROLL for (int c = 0; c < CHAINS; c++) {
            UNROLL for (int part = 0; part < PARTS; part++) sums.lanes[i][c][part] = v_set(0.0f);
        }
    }
    int64_t g = 0;
    for (; g + CHAINS <= groups; g += CHAINS) {
        UNROLL for (int c = 0; c < CHAINS; c++) {
            const int64_t at = g + c;
            __builtin_prefetch(row + at * BYTES + AHEAD);
            dot_group(R, &sums, c, row + at * BYTES, x + at * GROUP, dot->x_stride);
        }
    }
    UNROLL for (int c = 0; c < CHAINS - 1; c++) {
        if (g + c < groups)
            dot_group(R, &sums, c, row + (g + c) * BYTES, x + (g + c) * GROUP, dot->x_stride);
    }
    if (rest > 0) {
        uint8_t last[BYTES] = {0};
        memcpy(last, row + groups * BYTES, (size_t)rest * 2);
        dot_group(R, &sums, 0, last, x + groups * GROUP, dot->x_stride);
    }
    *to = sums;
}

PAIRS_ONLY void dot_lanes_4(const plsh_bfloat_dot *dot, int64_t o, int r, dot_sums *to) {
    dot_lanes(4, dot, o, r, to);
}

PAIRS_ONLY void dot_lanes_2(const plsh_bfloat_dot *dot, int64_t o, int r, dot_sums *to) {
    dot_lanes(2, dot, o, r, to);
}

PAIRS_ONLY void dot_lanes_1(const plsh_bfloat_dot *dot, int64_t o, int r, dot_sums *to) {
    dot_lanes(1, dot, o, r, to);
}

/* y[r .. r + R)[o]. */
INLINE void dot_one(const int R, const plsh_bfloat_dot *dot, int64_t o, int r) {
    dot_sums sums;
    const unsigned state = pairs_begin();
    if (R == 4)
        dot_lanes_4(dot, o, r, &sums);
    else if (R == 2)
        dot_lanes_2(dot, o, r, &sums);
    else
        dot_lanes_1(dot, o, r, &sums);
    pairs_end(state);
    UNROLL for (int i = 0; i < R; i++) {
        vector total[PARTS];
        UNROLL for (int part = 0; part < PARTS; part++) total[part] =
            (sums.lanes[i][0][part] + sums.lanes[i][1][part]) +
            (sums.lanes[i][2][part] + sums.lanes[i][3][part]);
        UNROLL for (int half = PARTS / 2; half > 0; half /= 2) {
            UNROLL for (int part = 0; part < half; part++) total[part] =
                total[part] + total[part + half];
        }
        const float start = dot->start ? dot->start[(r + i) * dot->start_stride + o] : 0.0f;
        dot->y[(r + i) * dot->y_stride + o] = start + v_total(total[0]);
    }
}

static void dot_few(const plsh_bfloat_dot *dot) {
    for (int64_t o = 0; o < dot->outs; o++) {
        int r = 0;
        for (; r + 4 <= dot->rows; r += 4) dot_one(4, dot, o, r);
        for (; r + 2 <= dot->rows; r += 2) dot_one(2, dot, o, r);
        if (r < dot->rows) dot_one(1, dot, o, r);
    }
}

/* ---- Many rows ------------------------------------------------------------------------------ */

/* The first R rows against the whole width: y and start have room for it. */
INLINE void multiply_block(const int R, plsh_bfloat_product p) {
    vector sum[BLOCK_ROWS][BLOCK_VECTORS];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) sum[r][c] =
            p.start ? v_load(p.start + r * p.start_stride + c * LANES) : v_set(0.0f);
    }
    for (int64_t k = 0; k < p.pairs; k++) {
        vpair b[BLOCK_VECTORS];
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) b[c] =
            p_load(p.panel + (k * WIDTH + c * LANES) * 2);
        UNROLL for (int r = 0; r < R; r++) {
            const vpair x = p_set(p.a + 2 * (r * p.a_row + k * p.a_step));
            UNROLL for (int c = 0; c < BLOCK_VECTORS; c++) sum[r][c] = v_pair(sum[r][c], b[c], x);
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int c = 0; c < BLOCK_VECTORS; c++)
            v_store(p.y + r * p.y_stride + c * LANES, sum[r][c]);
    }
}

/* Rows m .. m + R - 1 of any number of columns: the last columns, if they do not fill the width,
 * are computed in a buffer. */
INLINE void multiply_rows(const int R, const plsh_bfloat_product *all, int64_t m) {
    plsh_bfloat_product p = *all;
    p.a += 2 * m * p.a_row;
    p.y += m * p.y_stride;
    if (p.start) p.start += m * p.start_stride;
    if (p.columns == WIDTH) {
        multiply_block(R, p);
        return;
    }
    float tile[BLOCK_ROWS][WIDTH] = {{0.0f}};
    const size_t bytes = (size_t)p.columns * sizeof(float);
    plsh_bfloat_product beside = p;
    beside.start = beside.y = tile[0];
    beside.start_stride = beside.y_stride = WIDTH;
    for (int r = 0; p.start && r < R; r++) memcpy(tile[r], p.start + r * p.start_stride, bytes);
    multiply_block(R, beside);
    for (int r = 0; r < R; r++) memcpy(p.y + r * p.y_stride, tile[r], bytes);
}

PAIRS_ONLY void multiply_all(const plsh_bfloat_product *p) {
    int64_t m = 0;
    for (; m + BLOCK_ROWS <= p->rows; m += BLOCK_ROWS) multiply_rows(BLOCK_ROWS, p, m);
    if (BLOCK_ROWS > 6 && m + 6 <= p->rows) {
        multiply_rows(6, p, m);
        m += 6;
    }
    if (BLOCK_ROWS > 3 && m + 3 <= p->rows) {
        multiply_rows(3, p, m);
        m += 3;
    }
    for (; m < p->rows; m++) multiply_rows(1, p, m);
}

static void multiply(const plsh_bfloat_product *product) {
    const unsigned state = pairs_begin();
    multiply_all(product);
    pairs_end(state);
}

#define BFLOAT_TABLE(isa, table)                                                                   \
    { .name = (isa), .plain = (table), .dot = dot_few, .multiply = multiply }

#endif
