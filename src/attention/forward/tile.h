/* attention: one tile of queries, and the steps every method takes with it.
 *
 *     plsh_tile_pack      the queries packed for the kernels
 *     plsh_tile_reset     sums of no keys
 *     plsh_tile_load      the next step's keys as float32, and their bias
 *     plsh_tile_score     scores of one group and some of those keys
 *     plsh_tile_weigh     the scores become weights, which the softmax sums up
 *     plsh_tile_finish    output rows and lse written
 *
 * Passes (pass.c, backward/backward.h) put these together; the walks (walk.c, sampled/sampled.h)
 * decide which keys a pass visits. All buffers lie in the part of the workspace that belongs to the
 * thread's slot. */
#ifndef PLSH_ATTENTION_TILE_H
#define PLSH_ATTENTION_TILE_H

#include "attention/forward/drop.h"
#include "attention/forward/source.h"
#include "attention/forward/stretch.h"
#include "attention/forward/summary.h"
#include "attention/plan/plan.h"
#include "base/arena.h"

typedef struct plsh_tile plsh_tile;

/* The functions that a walk calls: those of the forward pass, or of the backward pass. */
typedef struct plsh_tile_pass {
    void (*begin)(plsh_tile *tile);
    /* Group g against the keys first .. first + count - 1, all of them in the current step. */
    void (*visit)(plsh_tile *tile, int g, int64_t first, int count);
    /* The same under weights, those of the keys from `first` on. */
    void (*visit_weighted)(plsh_tile *tile, int g, int64_t first, int count,
                           plsh_pair_weights weights);
    /* Called at the end of a step: later steps have only keys before `left` and from `right` on.
     * May be NULL. */
    void (*step)(plsh_tile *tile, int64_t left, int64_t right);
    void (*finish)(plsh_tile *tile);
} plsh_tile_pass;

/* Quantities of the queries for bounds of keys that are not scored. */
typedef struct plsh_tile_exact {
    float *q_norm;           /* [groups][group], |q| in the units of packed */
    float *q_mean;           /* [groups][group], q.mean of the keys, rounded up */
    float *left_out;         /* [groups][group], share of the weight that was left out, at most */
    float *left_out_by_norm; /* [groups], the same of norms, counted for certificates only */
    float *shift; /* [group], log2 of a row's sum so far, less q.mean, plus the bias relative to the
                     group's nearest row: see fill_shift in bounds.c */
    float *piece; /* [PLSH_TILE_KEYS / PLSH_BOUND_KEYS][group], what pieces may weigh */
} plsh_tile_exact;

/* Which tile it is, see plsh_tile_select. Positions count from the first key of the call in the
 * tile's sequence. */
typedef struct plsh_tile_place {
    const plsh_head_plan *head;
    int64_t sequence, keys; /* keys: of the sequence */
    int64_t row;            /* of the tile's first query, in the rows of q of its sequence */
    int64_t position;       /* of that query */
    int64_t origin;         /* the position of the first key of the call in the whole sequence */
    int rows, groups;
    bool bounded;         /* `exact`, in a sequence long enough to leave out keys */
    plsh_summary summary; /* of its kv head; made for `exact` and certificates only */
    plsh_drop drop;       /* its dropout mask */
    int dim;              /* of positions that are points, if the head uses them; otherwise 0 */
    const float *x, *y;   /* points of its queries, and of the keys of the sequence, by place */
    /* The rows of its queries and of the keys of the sequence, by place; NULL: they are the same.
     * See plan/points.h. What this header calls the key `first` is a place. */
    const int32_t *query_order, *key_order;
    const float *box;         /* of every piece of the sequence, [2 dim] each */
    const int32_t *least_row; /* of every piece */
} plsh_tile_place;

/* The user's arrays: k and v from the first row of the sequence on, all others from the first row
 * of the tile on, or of the sequence where the tile has a query_order. */
typedef struct plsh_tile_arrays {
    const char *q;
    plsh_row_source k, v;
    char *o;                  /* rows of the plan's o_dtype; NULL in backward */
    float *lse, *certificate; /* NULL where not asked for, and in backward */
} plsh_tile_arrays;

/* Sums over the keys visited so far. */
typedef struct plsh_tile_sums {
    float *o;                 /* [groups][group][columns] */
    float *m, *l;             /* [groups][group] */
    float *l_low;             /* [groups][group], the rounding error of l */
    int32_t *rises;           /* [groups][group], how often m rose; counted for certificates only */
    int32_t most_rises;       /* the most of a row since the queries were packed */
    plsh_stretches stretches; /* of o */
} plsh_tile_sums;

/* The current step: keys first .. first + count - 1 of the sequence. */
typedef struct plsh_tile_step {
    int64_t first;
    int count;               /* at most PLSH_TILE_KEYS */
    const int32_t *gathered; /* or these keys, which need not be contiguous; otherwise NULL */
    plsh_key_rows k, v;      /* their rows as float32, see plsh_tile_keys */
    plsh_pair_rows k_pairs;  /* K as stored, if the plan has pairs; row = NULL: not contiguous */
    float *bias; /* [groups * group + PLSH_TILE_KEYS], one entry per difference of row numbers; with
                  * points causality only, see plane.h */
} plsh_tile_step;

/* Buffers that hold nothing from one visit to the next (k_wide, v_wide: from one step). */
typedef struct plsh_tile_scratch {
    float *s;               /* [PLSH_TILE_KEYS][group], scores, then weights */
    float *top, *alpha;     /* [group] */
    float *t;               /* [PLSH_TILE_KEYS][group], distances of points */
    float *k_wide, *v_wide; /* [PLSH_TILE_KEYS][d or dv], for halves, pages and gathered keys */
    uint16_t *k_pairs;      /* [PLSH_TILE_KEYS][d], K of pages */
    char *q_rows;           /* [PLSH_TILE_QUERIES][d], queries that are not contiguous */
} plsh_tile_scratch;

/* The walk of a tile over points: the steps that may matter, from near to far. */
typedef struct plsh_tile_plane {
    uint64_t *steps; /* [steps of the longest sequence]: distance, as its representation, and number
                      */
    float *rest;     /* [steps + 1]: log2 of the sum of k over the keys of this step and the rest */
    float *norm;     /* [steps + 1]: the largest |k - mean| among them */
    int64_t count, at; /* of steps, and the one at hand */
} plsh_tile_plane;

struct plsh_tile {
    const plsh_tile_pass *pass;
    const plsh_plan *plan;
    const plsh_kernels *kernel; /* the plan's */
    const plsh_pages *pages;    /* of K and V; NULL: they are in the user's arrays */
    plsh_tile_place at;
    plsh_tile_arrays arrays;
    float *packed;       /* [groups][d][group], the queries times scale * log2(e) */
    float *packed_pairs; /* [groups][d / 2][group], the queries, if the plan has pairs */
    float *points;       /* [groups][dim][group], where they are, if these are points */
    plsh_tile_sums sums;
    plsh_tile_step step;
    plsh_tile_scratch scratch;
    plsh_tile_exact exact; /* quantities of the queries, for `exact` and certificates */
    plsh_tile_plane plane; /* of `exact` and `window` over points */
    struct plsh_sampled_buffers *sampled;      /* of plsh, masks and mean, see sampled/sampled.h */
    struct plsh_certificate_sums *certificate; /* of certificates, see certificate/certificate.h */
    plsh_prefetch prefetch;                    /* see plsh_tile_prefetch */
    bool guarded;   /* keys of weight 0 are masked: they may be very large, or not finite */
    float headroom; /* 0, or PLSH_HEADROOM in a second run that replaces overflowed outputs */
    int64_t pairs;  /* scored, over all tiles of the thread */
};

/* Takes the buffers, all but those of the sampled methods and of certificates. */
void plsh_tile_layout(plsh_tile *tile, const plsh_plan *plan, plsh_arena *arena);

/* The rows of the tile's queries, gathered where they are not contiguous. */
plsh_stored_rows plsh_tile_queries(const plsh_tile *tile);

void plsh_tile_pack(plsh_tile *tile);
void plsh_tile_reset(plsh_tile *tile);

/* Completes the sums o: adds the stretches that are finished. */
void plsh_tile_join(plsh_tile *tile);

/* Keys first .. first + count - 1 of the sequence become the current step, count at most
 * PLSH_TILE_KEYS. with_bias fills in the bias of the head's decay, window and causality. */
void plsh_tile_load(plsh_tile *tile, int64_t first, int count, bool with_bias);

/* Tiles run in descending order. Lets `accumulate` prefetch q and o of the preceding tile, and as
 * many rows of K and V before `key`, the first key of this tile. */
void plsh_tile_prefetch(plsh_tile *tile, int64_t key);

/* One group against some keys of the current step. */
typedef struct plsh_tile_run {
    int g;
    int64_t first; /* key */
    int count;
    plsh_key_rows v;
    bool masked; /* causality or the window mask some of the pairs */
    int rows;    /* of the group */
} plsh_tile_run;

/* s = the scores of group g and the keys first .. first + count - 1, their maxima in scratch.top.
 * plsh_tile_score adds the bias of the head's decay, window and causality, plsh_tile_score_plain
 * none; the latter computes all rows of the group, for weights that are set for all. */
void plsh_tile_score_plain(plsh_tile *tile, int g, int64_t first, int count, float *s);
plsh_tile_run plsh_tile_score(plsh_tile *tile, int g, int64_t first, int count, float *s);

/* s = their weights, in place of the scores; adds them to m and l of group g, and leaves the factor
 * of its older sums in scratch.alpha. */
void plsh_tile_weigh(plsh_tile *tile, int g, int count, float *s);

/* a[j * group + r] *= Z of dropout, for group g and these keys. */
void plsh_tile_drop(const plsh_tile *tile, int g, int64_t first, int count, float *a);

/* With headroom (headroom.h), weights become smaller by as much as the maximum that they are
 * relative to is raised here. plsh_tile_weigh does so. */
void plsh_tile_raise_top(plsh_tile *tile);

/* Writes output rows and lse; with headroom, replaces overflowed outputs. */
void plsh_tile_finish(plsh_tile *tile);

/* Does the finished tile have to run again, with headroom? */
bool plsh_tile_overflowed(const plsh_tile *tile);

/* The finished rows as float32: in the user's array, or, if that is narrower, in the memory of the
 * sums. */
plsh_matrix plsh_tile_output_of(const plsh_tile *tile);

/* K rows, and V rows, of the keys first .. first + count - 1 of the current step. Steps that only
 * multiply pairs never need K as float32, so that it is made when it is first asked for. */
plsh_key_rows plsh_tile_keys(plsh_tile *tile, int64_t first, int count);
static inline plsh_key_rows plsh_tile_values(const plsh_tile *tile, int64_t first, int count) {
    const plsh_key_rows v = tile->step.v;
    return (plsh_key_rows){v.row + (first - tile->step.first) * v.stride, v.stride, count, v.dim};
}

/* Position of the first query of group g, and one past its last. */
static inline int64_t plsh_tile_group_begin(const plsh_tile *tile, int g) {
    return tile->at.position + (int64_t)g * tile->kernel->group;
}
static inline int64_t plsh_tile_group_end(const plsh_tile *tile, int g) {
    int64_t end = plsh_tile_group_begin(tile, g + 1), last = tile->at.position + tile->at.rows;
    return end < last ? end : last;
}

/* The row of query r in its sequence, and that in the arrays of the tile. */
static inline int64_t plsh_tile_row(const plsh_tile *tile, int r) {
    return tile->at.query_order ? tile->at.query_order[r] : tile->at.row + r;
}
static inline int64_t plsh_tile_array_row(const plsh_tile *tile, int r) {
    return tile->at.query_order ? tile->at.query_order[r] : r;
}

/* The row of the sequence with which the arrays of the tile begin. */
static inline int64_t plsh_tile_first_row(const plsh_tile *tile) {
    return tile->at.query_order ? 0 : tile->at.row;
}

/* The row of a key. */
static inline int64_t plsh_tile_key_row(const plsh_tile *tile, int64_t key) {
    return tile->at.key_order ? tile->at.key_order[key] : key;
}

/* Queries of group g. */
static inline int plsh_tile_group_rows(const plsh_tile *tile, int g) {
    return (int)(plsh_tile_group_end(tile, g) - plsh_tile_group_begin(tile, g));
}

/* Rows of group g that kernels have to compute. Biases of points are added to all rows of a group.
 */
static inline int plsh_tile_used_rows(const plsh_tile *tile, int g) {
    return tile->at.dim > 0 ? tile->kernel->group : plsh_tile_group_rows(tile, g);
}

/* The running softmax of group g, likewise. */
static inline plsh_softmax_state plsh_tile_softmax(const plsh_tile *tile, int g, bool used) {
    const ptrdiff_t lane = (ptrdiff_t)g * tile->kernel->group;
    const plsh_tile_sums *sums = &tile->sums;
    return (plsh_softmax_state){sums->m + lane, sums->l + lane, sums->l_low + lane,
                                tile->scratch.alpha, used ? plsh_tile_used_rows(tile, g) : 0};
}

/* Computes a whole tile of dense, exact, window, fixed or none. */
void plsh_walk_tile(plsh_tile *tile);

/* m, l and o of every group, over the keys that a walk visits. For `exact`, keys whose weight is
 * negligible once scored are left out of the sums (bounds.h). */
extern const plsh_tile_pass plsh_forward_pass;

/* Makes it tile number `index` of sequence x of head h, with q, k, v and the summary of its kv head
 * (those of all kv heads are at summaries). */
void plsh_tile_select(plsh_tile *tile, const plsh_forward *arrays, char *summaries, int64_t h,
                      int64_t x, int64_t index);

#endif
