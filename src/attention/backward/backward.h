/* attention: the backward pass of one tile of queries.
 *
 *     S = Q K^T, P = 2^(S - lse), dP = dO V^T, dS = P (dP - delta), delta_i = dO_i.O_i
 *     dQ += dS K,  dK += dS^T Q,  dV += P^T dO
 *
 * and with dropout dS = P (Z dP - delta), dV += (Z P)^T dO. O was computed with Z, so delta is the
 * sum of P Z dP.
 *
 * These are five products. Each pair (query, key) is scored once, in the order of the forward walk.
 * dO is multiplied by the scale when it is packed, so that the kernels compute scale dS, and dQ and
 * dK need no further factor. P and dS of a step are kept for all groups of the tile. At the end of
 * the step, when it is the tile's turn (turns.h), they are multiplied into dK and dV. The sums then
 * have the same order for any number of threads. */
#ifndef PLSH_ATTENTION_BACKWARD_H
#define PLSH_ATTENTION_BACKWARD_H

#include "attention/backward/turns.h"
#include "attention/forward/tile.h"
#include "attention/sampled/sampled.h"

/* The user's arrays: d_k and d_v from the first row of the sequence on, all others from the first
 * row of the tile on, or of the sequence where the tile has a query_order. */
typedef struct plsh_backward_arrays {
    const float *o, *lse, *d_o;
    float *d_q, *d_k, *d_v; /* NULL where not asked for */
    bool learns;            /* d_decay is asked for */
    bool some_keys; /* o and lse are sums over more keys than the call has: see plsh_backward */
} plsh_backward_arrays;

/* The tile's rows: packed arrays, lse and delta. */
typedef struct plsh_backward_rows {
    plsh_const_matrix q; /* the queries as float32 */
    plsh_const_matrix o, d_o;
    float *packed_do; /* [groups][dv][group], times the scale */
    float *log2_lse;  /* [groups][group], +inf for rows that do not exist */
    float *lse_low;   /* [groups][group], the rounding error of log2_lse */
    float *delta;     /* [groups][group], times the scale */
} plsh_backward_rows;

/* Sums over the keys visited so far. */
typedef struct plsh_backward_sums {
    float *q;                 /* [groups][group][columns of d], dQ */
    plsh_stretches stretches; /* of q */
    float *residue;           /* [groups][group], the sum of dS, 0 apart from rounding */
    double d_decay[2];        /* by a, by b */
} plsh_backward_sums;

/* The current step. */
typedef struct plsh_backward_step {
    float *p, *ds;                    /* [groups][PLSH_TILE_KEYS][group] */
    uint32_t visited[PLSH_TILE_KEYS]; /* a bit for each group that visited the key */
    float *slope[2];                  /* d log k by a, by b, indexed as the bias */
    bool sloped;                      /* slope is filled in */
} plsh_backward_step;

/* Buffers that hold nothing from one visit to the next (q_wide: from one tile). */
typedef struct plsh_backward_scratch {
    float *packed_o;         /* [dv][group] */
    float *one;              /* [group], 1 everywhere */
    float *rest;             /* [group], 2^(m - lse) */
    float *k_row;            /* [d] */
    float *centre;           /* [d], the mean of some keys */
    float *q_wide;           /* [rows][d], for halves */
    float *gathered;         /* [PLSH_TILE_KEYS][d or dv], sums for keys that are not contiguous */
    float *o_rows, *do_rows; /* [rows][dv], of queries that are not contiguous */
} plsh_backward_scratch;

/* Gradients by points, see points.h. */
typedef struct plsh_backward_points {
    double *key, *query; /* sums of the head, from the first row of the sequence on; NULL: none */
    double *d_x;         /* [PLSH_TILE_QUERIES][dim], of the tile's queries */
    double *d_y;         /* [PLSH_TILE_KEYS][dim], of the step's keys */
} plsh_backward_points;

typedef struct plsh_backward_tile {
    plsh_tile tile; /* first member: walks get a pointer to it */
    plsh_sampled_buffers sampled;
    plsh_turns *turns;
    plsh_turn turn;
    plsh_backward_arrays arrays;
    plsh_backward_rows rows;
    plsh_backward_sums sums;
    plsh_backward_step step;
    plsh_backward_scratch scratch;
    plsh_backward_points points;
    bool scattered; /* the steps are of gathered keys */
    bool revisits;  /* the tile may visit any key until its end (`mean`: a walk per draw; keys by
                       place), so it announces nothing before (turns.h) */
} plsh_backward_tile;

/* Takes the buffers. */
void plsh_backward_layout(plsh_backward_tile *b, const plsh_plan *plan, plsh_arena *arena);

extern const plsh_tile_pass plsh_backward_pass;

/* Set the lse of row r, in units of log2, and delta of group g from the output rows at o. */
void plsh_backward_set_lse(plsh_backward_tile *b, int r, double log2_lse);
void plsh_backward_set_delta(plsh_backward_tile *b, int g, const float *o, ptrdiff_t stride);

/* The whole backward pass of a tile of plsh, masks or mean. */
void plsh_backward_sample(plsh_backward_tile *b);

#endif
