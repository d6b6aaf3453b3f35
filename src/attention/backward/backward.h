/* attention: one tile of queries on its way back.
 *
 *     S = Q K^T, P = 2^(S - lse), dP = dO V^T, dS = P (dP - delta), delta_i = dO_i.O_i
 *     dQ += dS K,  dK += dS^T Q,  dV += P^T dO
 *
 * and with dropout dS = P (Z dP - delta), dV += (Z P)^T dO: delta, of the O that was made with Z,
 * is the sum of P Z dP then.
 *
 * Five products, each pair of (query, key) scored once, in the order of the forward walk. dO is
 * packed times the scale, so dS is scale dS and dQ, dK need no more. A step's S and dS are kept
 * for all groups of the tile, and added to dK and dV at its end, when it is the tile's turn. */
#ifndef PLSH_ATTENTION_BACKWARD_H
#define PLSH_ATTENTION_BACKWARD_H

#include "attention/backward/turns.h"
#include "attention/forward/tile.h"
#include "attention/sampled/sampled.h"

typedef struct plsh_backward_tile {
    plsh_tile tile; /* first: walks know no more than that */
    plsh_sampled_buffers sampled;
    plsh_turns *turns;
    plsh_turn turn;

    /* The user's arrays at the tile's first row, and for d_k, d_v at the sequence's. */
    const float *o, *lse, *d_o;
    float *d_q, *d_k, *d_v;
    bool learns;       /* d_decay is asked for */
    bool some_keys;    /* of those that o and lse are sums of: see plsh_backward */
    double d_decay[2]; /* of the tile */

    /* Buffers. */
    float *packed_o;  /* [dv][group] */
    float *packed_do; /* [groups][dv][group], times the scale */
    float *sum_q;     /* [groups][group][columns of d] */
    plsh_stretches q_stretches;
    float *p, *ds;       /* [groups][PLSH_TILE_KEYS][group] */
    float *log2_lse;     /* [groups][group], +inf for rows that are not there */
    float *lse_low;      /* [groups][group], what it lacks after rounding */
    float *delta;        /* [groups][group], times the scale */
    float *residue;      /* [groups][group], the sum of dS */
    float *one;          /* [group] */
    float *rest;         /* [group], what P lacks after a softmax */
    float *k_row;        /* [d] */
    float *centre;       /* [d], of some keys */
    float *q_wide;       /* [rows][d], for halves */
    float *slope[2];     /* of the step: d log k by a, by b, as the bias */
    bool sloped;         /* they are filled in */
    plsh_const_matrix q; /* the tile's queries as float32 */

    float *gathered; /* [PLSH_TILE_KEYS][d or dv], sums for keys that are not contiguous */

    bool scattered;                   /* the steps are of gathered keys */
    bool returns;                     /* the walk will come again: all keys are still before it */
    uint32_t visited[PLSH_TILE_KEYS]; /* of the step: which groups, bit by bit */
} plsh_backward_tile;

/* Takes the buffers. */
void plsh_backward_layout(plsh_backward_tile *tile, const plsh_plan *plan, plsh_arena *arena);

extern const plsh_tile_pass plsh_backward_pass;

/* lse of row r, in units of log2, is that; and delta of group g for output rows at o. */
void plsh_backward_set_lse(plsh_backward_tile *b, int r, double log2_lse);
void plsh_backward_set_delta(plsh_backward_tile *b, int g, const float *o, ptrdiff_t stride);

/* A tile of plsh, masks or mean, from begin to finish. */
void plsh_backward_sample(plsh_backward_tile *b);

#endif
