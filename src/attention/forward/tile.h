/* attention: one tile of queries, and the steps every method takes with it.
 *
 *     plsh_tile_begin     queries packed, nothing seen yet (pack, then reset)
 *     plsh_tile_load      the next step's keys at hand (widened if they are halves), their bias
 *     plsh_tile_visit     one group against a run of those keys
 *     plsh_tile_finish    output rows and lse written
 *
 * All buffers are the thread's part of the workspace. */
#ifndef PLSH_ATTENTION_TILE_H
#define PLSH_ATTENTION_TILE_H

#include "attention/forward/source.h"
#include "attention/forward/stretch.h"
#include "attention/plan/plan.h"

typedef struct plsh_tile plsh_tile;

/* K and V in pages: [kv_heads] each. */
typedef struct plsh_pages {
    const plsh_row_source *k, *v;
} plsh_pages;

/* What is done where a walk leads: the forward pass, or the backward pass. */
typedef struct plsh_pass {
    void (*begin)(plsh_tile *tile);
    /* Group g against the keys first .. first + count - 1, all of them in the step at hand. */
    void (*visit)(plsh_tile *tile, int g, int64_t first, int count);
    /* The same under weights: those of key j are w[row[j] * group + r]. */
    void (*visit_weighted)(plsh_tile *tile, int g, int64_t first, int count, const float *w,
                           const int32_t *row);
    /* A step is over; only keys before `left` and from `right` on may still come. May be NULL. */
    void (*step)(plsh_tile *tile, int64_t left, int64_t right);
    void (*finish)(plsh_tile *tile);
} plsh_pass;

/* How far the weights M of a run are from the decay L, for certificates: sums 2^m l over keys, as
 * those of the softmax. */
typedef struct plsh_gap_sums {
    float *over_m, *over_l, *over_low;    /* [groups][group], of A (M - L) where M > L */
    float *under_m, *under_l, *under_low; /* of A (L - M) where M < L */
    float *rest;                          /* log2 of what of it was not scored, at most */
    float *s;                             /* [PLSH_TILE_KEYS][group], scores */
} plsh_gap_sums;

struct plsh_tile {
    const plsh_pass *pass;
    const plsh_plan *plan;
    const plsh_kernels *kernel; /* the plan's */
    const plsh_pages *pages;    /* of K and V; NULL: they are in the user's arrays */
    const plsh_head_plan *head;
    int64_t head_index, sequence;
    int64_t queries, keys;     /* of the sequence */
    int64_t row;               /* of the tile's first query within its sequence */
    int64_t position;          /* of that query: row + keys - queries */
    int rows, groups;          /* in this tile */
    const plsh_bounds *bounds; /* of its kv head, or NULL */

    /* The user's arrays at the sequence's (q, o, lse: the tile's) first row. */
    const char *q;
    plsh_row_source k, v;
    float *o_out, *lse_out, *certificate_out; /* NULL where not asked for; all in backward */

    /* Buffers. */
    float *packed; /* [groups][d][group] */
    float *o;      /* [groups][group][columns] */
    float *m, *l;  /* [groups][group] */
    float *l_low;  /* [groups][group], what l lacks after rounding */
    plsh_stretches o_stretches;
    float *q_norm;   /* [groups][group], `exact`: |q| in the units of packed */
    float *q_mean;   /* [groups][group], `exact`: q.mean of the keys, rounded up */
    float *left_out; /* [groups][group], `exact`: share of the weight boxes left out, at most */
    float *left_out_by_norm;        /* [groups], the same of norms, counted for certificates only */
    float *s;                       /* [PLSH_TILE_KEYS][group] */
    float *top, *alpha, *shift;     /* [group] */
    float *bias;                    /* of the step, [groups * group + PLSH_TILE_KEYS] */
    float *bound;                   /* [PLSH_TILE_KEYS / PLSH_BOUND_KEYS][group] */
    void *counts;                   /* plsh, masks, mean: events of the tile */
    float *w;                       /* [groups][PLSH_TILE_KEYS][group], their weights, rows of */
    int32_t *w_row;                 /* [groups][PLSH_TILE_KEYS] */
    double *o_sum, *m_sum, *l_sum;  /* like o, m, l: sums over the passes of masks and mean */
    int32_t *key_gathered;          /* [PLSH_TILE_KEYS], which they are */
    float *k_gathered, *v_gathered; /* [PLSH_TILE_KEYS][d or dv] */
    double *spread;    /* the same of l squared, then the standard deviation of l over their mean */
    plsh_gap_sums gap; /* certificates */
    float *k_wide, *v_wide; /* [PLSH_TILE_KEYS][d or dv], for halves and pages */

    /* The step at hand: keys first .. first + count - 1 of the sequence. */
    int64_t first;
    int count;
    const float *k_rows, *v_rows;
    ptrdiff_t k_stride, v_stride;

    plsh_ahead ahead; /* what the tile before this one will want, see plsh_tile_look_ahead */
    bool guarded;     /* keys of weight 0 may be large, or not finite */
    int64_t pairs;    /* scored, over all tiles of the thread */
};

/* plsh_tile_begin, plsh_tile_visit, and so on. */
extern const plsh_pass plsh_pass_forward;

/* The next `count` floats of the workspace, on a cache line; NULL for no memory. */
float *plsh_take_floats(char *memory, size_t *used, size_t count);

/* Makes it tile number `index` of a sequence of a head, with q, k, v and the bounds of its kv head
 * (those of all kv heads are at bounds_memory). */
void plsh_tile_place(plsh_tile *tile, const plsh_forward *arrays, char *bounds_memory,
                     plsh_bounds *bounds, int64_t h, int64_t x, int64_t index);

/* Bytes of the buffers, and the buffers at `memory` (NULL: only the size). */
size_t plsh_tile_layout(const plsh_plan *plan, plsh_tile *tile, char *memory);

void plsh_tile_begin(plsh_tile *tile);
void plsh_tile_pack(plsh_tile *tile);
void plsh_tile_reset(plsh_tile *tile);

/* The sums o are whole: the stretches that are over have been added. */
void plsh_tile_join(plsh_tile *tile);

/* Keys first .. first + count - 1 of the sequence become the step at hand, count at most
 * PLSH_TILE_KEYS. with_bias fills in the bias of the head's decay, window and causality. */
void plsh_tile_load(plsh_tile *tile, int64_t first, int count, bool with_bias);

/* The tile that comes next is the one before: has its queries and output, and the rows before
 * `key`, the first of this one, fetched while this one is busy. */
void plsh_tile_look_ahead(plsh_tile *tile, int64_t key);

/* Some keys of the step at hand, for one group. */
typedef struct plsh_run {
    const float *k, *v;
    bool masked; /* causality or the window mask some of the pairs */
    int rows;    /* of the group */
} plsh_run;

/* s = the scores of group g and the keys first .. first + count - 1, their maxima in tile->top. */
plsh_run plsh_tile_score(plsh_tile *tile, int g, int64_t first, int count, float *s);

/* Group g against the keys first .. first + count - 1, all of them in the step at hand. */
void plsh_tile_visit(plsh_tile *tile, int g, int64_t first, int count);

void plsh_tile_finish(plsh_tile *tile);

/* Position of the first query of group g, and one past its last. */
static inline int64_t plsh_tile_group_begin(const plsh_tile *tile, int g) {
    return tile->position + (int64_t)g * tile->kernel->group;
}
static inline int64_t plsh_tile_group_end(const plsh_tile *tile, int g) {
    int64_t end = plsh_tile_group_begin(tile, g + 1), last = tile->position + tile->rows;
    return end < last ? end : last;
}

/* A tile of dense, exact, window, fixed or none, from begin to finish. */
void plsh_tile_walk(plsh_tile *tile);

/* The forward pass of a plan that is `paged` over K and V in pages; the number of pairs. k and v of
 * `arrays` are not looked at, and there is no certificate. One sequence. Pages that no query can
 * reach need not be there, where no head of their kv head is `exact`. */
int64_t plsh_plan_forward_pages(const plsh_plan *plan, const plsh_forward *arrays,
                                const plsh_pages *pages, void *workspace);

/* ---- Bounds, for `exact` ----------------------------------------------------------------------
 */

/* Where the summaries of a kv head lie in its part of the workspace. */
plsh_bounds plsh_bounds_at(const plsh_plan *plan, char *memory);

/* The mean of a few keys of a sequence, then the summary of one piece, and then the running
 * maxima, of a kv head whose keys are at k. wide: a buffer of bound_keys * head_dim floats. */
void plsh_bounds_mean(const plsh_plan *plan, const plsh_bounds *bounds, const plsh_row_source *k,
                      int64_t sequence, float *wide);
void plsh_bounds_piece(const plsh_plan *plan, const plsh_bounds *bounds, const plsh_row_source *k,
                       int64_t sequence, int64_t piece, float *wide);

/* The range of a sequence's values, which only certificates need. wide: value_dim floats. */
void plsh_bounds_values(const plsh_plan *plan, const plsh_bounds *bounds, const plsh_row_source *v,
                        int64_t sequence, float *wide);
void plsh_bounds_maxima(const plsh_plan *plan, const plsh_bounds *bounds);

/* All of that that the plan's heads (and a certificate, if arrays has one) need, for all kv heads,
 * by the threads of a parallel region; memory: bounds_bytes per kv head. */
void plsh_bounds_summarise(const plsh_plan *plan, const plsh_forward *arrays,
                           const plsh_pages *pages, char *memory, float *wide, float *v_wide);

/* log2 of the sum of k over the distances t, t + 1, ..., at most. */
float plsh_bounds_log_rest(const plsh_head_plan *head, int64_t t);

/* Begins the walk of a tile: norms of its queries. */
void plsh_bounds_begin(plsh_tile *tile);

/* Which pieces of the keys first .. end - 1 may group g not leave out? Has the pass visit
 * the runs of those that it must score. */
void plsh_bounds_visit(plsh_tile *tile, int g, int64_t first, int64_t end);

/* Can group g stop: is all before key `end` (left), or from key `begin` on (right), negligible? */
bool plsh_bounds_stop_left(plsh_tile *tile, int g, int64_t end);
bool plsh_bounds_stop_right(plsh_tile *tile, int g, int64_t begin);

#endif
