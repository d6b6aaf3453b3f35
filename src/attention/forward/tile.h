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

#include "attention/forward/drop.h"
#include "attention/forward/source.h"
#include "attention/forward/stretch.h"
#include "attention/forward/summary.h"
#include "attention/plan/plan.h"
#include "base/arena.h"

typedef struct plsh_tile plsh_tile;

/* What is done where a walk leads: the forward pass, or the backward pass. */
typedef struct plsh_tile_pass {
    void (*begin)(plsh_tile *tile);
    /* Group g against the keys first .. first + count - 1, all of them in the step at hand. */
    void (*visit)(plsh_tile *tile, int g, int64_t first, int count);
    /* The same under weights, those of the keys from `first` on. */
    void (*visit_weighted)(plsh_tile *tile, int g, int64_t first, int count,
                           plsh_pair_weights weights);
    /* A step is over; only keys before `left` and from `right` on may still come. May be NULL. */
    void (*step)(plsh_tile *tile, int64_t left, int64_t right);
    void (*finish)(plsh_tile *tile);
} plsh_tile_pass;

/* What is known of the queries where keys are bounded rather than scored. */
typedef struct plsh_tile_exact {
    float *q_norm;           /* [groups][group], |q| in the units of packed */
    float *q_mean;           /* [groups][group], q.mean of the keys, rounded up */
    float *left_out;         /* [groups][group], share of the weight that was left out, at most */
    float *left_out_by_norm; /* [groups], the same of norms, counted for certificates only */
    float *shift;            /* [group], what a group's decisions compare with */
    float *piece;            /* [PLSH_TILE_KEYS / PLSH_BOUND_KEYS][group], what pieces may weigh */
} plsh_tile_exact;

struct plsh_tile {
    const plsh_tile_pass *pass;
    const plsh_plan *plan;
    const plsh_kernels *kernel; /* the plan's */
    const plsh_pages *pages;    /* of K and V; NULL: they are in the user's arrays */

    /* Which tile it is, see plsh_tile_select. */
    const plsh_head_plan *head;
    int64_t head_index, sequence;
    int64_t queries, keys;       /* of the sequence */
    int64_t row;                 /* of the tile's first query within its sequence */
    int64_t position;            /* of that query, counted from the first key at hand */
    int64_t origin;              /* the position of that key in its sequence */
    int rows, groups;            /* in this tile */
    const plsh_summary *summary; /* of its kv head, or NULL */
    plsh_drop drop;              /* which of its pairs fall out */

    /* The user's arrays at the sequence's (q, o, lse: the tile's) first row. */
    const char *q;
    plsh_row_source k, v;
    char *o_out;                      /* rows of the plan's o_dtype; NULL in backward */
    float *lse_out, *certificate_out; /* NULL where not asked for; both in backward */

    /* The queries, and what was summed up for them so far. */
    float *packed; /* [groups][d][group] */
    float *o;      /* [groups][group][columns] */
    float *m, *l;  /* [groups][group] */
    float *l_low;  /* [groups][group], what l lacks after rounding */
    plsh_stretches o_stretches;

    /* The step at hand: keys first .. first + count - 1 of the sequence. */
    int64_t first;
    int count;
    const int32_t *gathered;      /* or these keys, which need not be contiguous; otherwise NULL */
    plsh_key_rows k_step, v_step; /* their rows as float32, see plsh_tile_keys */
    float *bias;        /* [groups * group + PLSH_TILE_KEYS], of every difference of positions */
    float *s;           /* [PLSH_TILE_KEYS][group] */
    float *top, *alpha; /* [group] */
    float *k_wide, *v_wide; /* [PLSH_TILE_KEYS][d or dv], for halves and pages */

    plsh_tile_exact exact;                /* what `exact` and certificates know of the queries */
    struct plsh_sampled_buffers *sampled; /* of plsh, masks and mean, see sampled/sampled.h */
    struct plsh_certificate_sums *gap;    /* of certificates, see certificate/certificate.h */

    plsh_prefetch prefetch; /* see plsh_tile_prefetch */
    bool guarded;           /* keys of weight 0 may be large, or not finite */
    float headroom;         /* 0, or PLSH_HEADROOM in a second run that mends the output */
    int64_t pairs;          /* scored, over all tiles of the thread */
};

/* plsh_tile_begin, plsh_tile_visit, and so on. */
extern const plsh_tile_pass plsh_tile_pass_forward;

/* Takes the buffers, all but those of the sampled methods and of certificates. */
void plsh_tile_layout(plsh_tile *tile, const plsh_plan *plan, plsh_arena *arena);

void plsh_tile_begin(plsh_tile *tile);
void plsh_tile_pack(plsh_tile *tile);
void plsh_tile_reset(plsh_tile *tile);

/* The sums o are whole: the stretches that are over have been added. */
void plsh_tile_join(plsh_tile *tile);

/* Keys first .. first + count - 1 of the sequence become the step at hand, count at most
 * PLSH_TILE_KEYS. with_bias fills in the bias of the head's decay, window and causality. */
void plsh_tile_load(plsh_tile *tile, int64_t first, int count, bool with_bias);

/* Tiles run in descending order. Lets `accumulate` prefetch q and o of the preceding tile, and as
 * many rows of K and V before `key`, the first key of this tile. */
void plsh_tile_prefetch(plsh_tile *tile, int64_t key);

/* One group against some keys of the step at hand. */
typedef struct plsh_tile_run {
    int g;
    int64_t first; /* key */
    plsh_key_rows k, v;
    bool masked; /* causality or the window mask some of the pairs */
    int rows;    /* of the group */
} plsh_tile_run;

/* s = the scores of group g and the keys first .. first + count - 1, their maxima in tile->top. */
plsh_tile_run plsh_tile_score(plsh_tile *tile, int g, int64_t first, int count, float *s);

/* s = their weights, which are added to the sums of group g. False where `exact` leaves these keys
 * out: then nothing is added. */
bool plsh_tile_weigh(plsh_tile *tile, int g, int64_t first, int count, float *s);

/* a[j * group + r] *= Z of dropout, for group g and these keys. */
void plsh_tile_drop(const plsh_tile *tile, int g, int64_t first, int count, float *a);

/* Group g against the keys first .. first + count - 1, all of them in the step at hand. */
void plsh_tile_visit(plsh_tile *tile, int g, int64_t first, int count);

/* The same under weights, those of the keys from `first` on. */
void plsh_tile_visit_weighted(plsh_tile *tile, int g, int64_t first, int count,
                              plsh_pair_weights weights);

/* Output rows and lse written; with headroom, output rows mended. */
void plsh_tile_finish(plsh_tile *tile);

/* Does the finished tile have to run again, with headroom? */
bool plsh_tile_overflowed(const plsh_tile *tile);

/* Where finished rows are as float32: in the user's array, or, where that is narrower, in the place
 * of the sums. */
plsh_matrix plsh_tile_output_of(const plsh_tile *tile);

/* K rows, and V rows, of the keys first .. first + count - 1 of the step at hand. */
static inline plsh_key_rows plsh_tile_keys(const plsh_tile *tile, int64_t first, int count) {
    const plsh_key_rows step = tile->k_step;
    return (plsh_key_rows){step.row + (first - tile->first) * step.stride, step.stride, count,
                           step.dim};
}
static inline plsh_key_rows plsh_tile_values(const plsh_tile *tile, int64_t first, int count) {
    const plsh_key_rows step = tile->v_step;
    return (plsh_key_rows){step.row + (first - tile->first) * step.stride, step.stride, count,
                           step.dim};
}

/* The running softmax of group g. */
static inline plsh_softmax_state plsh_tile_softmax(const plsh_tile *tile, int g) {
    const ptrdiff_t lane = (ptrdiff_t)g * tile->kernel->group;
    return (plsh_softmax_state){tile->m + lane, tile->l + lane, tile->l_low + lane, tile->alpha};
}

/* Position of the first query of group g, and one past its last. */
static inline int64_t plsh_tile_group_begin(const plsh_tile *tile, int g) {
    return tile->position + (int64_t)g * tile->kernel->group;
}
static inline int64_t plsh_tile_group_end(const plsh_tile *tile, int g) {
    int64_t end = plsh_tile_group_begin(tile, g + 1), last = tile->position + tile->rows;
    return end < last ? end : last;
}

/* Queries of group g. */
static inline int plsh_tile_group_rows(const plsh_tile *tile, int g) {
    return (int)(plsh_tile_group_end(tile, g) - plsh_tile_group_begin(tile, g));
}

#endif
