/* plsh/shard.h - which rows of other processes does a part of a text need?
 *
 * For programs that distribute the rows of one long text (or of several packed ones) over processes
 * and move rows themselves. plsh/mpi.h and plsh.torch.context_parallel are built on it. The
 * functions here do not communicate.
 *
 * Part p of a text holds the rows splits[p] .. splits[p+1] - 1 of q, k and v. Heads that are
 * treated alike are a unit. Rows of k and v that a unit needs besides the part's own:
 *
 * - dense, none: everything that causality leaves (`rotates`: take one part's rows at a time, and
 *   merge the results by their log-sum-exps)
 * - window, fixed, plsh, masks, mean: `reach`, known from the description alone
 * - exact: `need`, found from the data, as follows (`fades`)
 *
 * Keys k_j of the rows [begin, e) that a part does not have weigh, for its query i, at most
 *
 *     exp(scale q_i.c + |scale q_i| M(e)) (k(t) + k(t+1) + ...),      M(e) = max |k_j - c|,
 *
 * where t is the distance of row e - 1, and c is one point for all parts, near the mean of the
 * keys. M is known from the norms of all parts' tiles of keys. It is compared with a lower bound on
 * the row's total weight,
 *
 *     D_i >= sum of exp(scale q_i.k_j) k(|i-j|) over its nearest own keys j.
 *
 * With one key of large norm far away (such as the first of a text, to which every query attends),
 * this bound would make a part fetch all rows up to it. So M leaves out the few tiles of largest
 * norm of a kv head, the outliers. Each of them has a bound of its own. For tile T of n rows, the
 * nearest of which is at distance t, it is
 *
 *     exp(scale q_i.c + |scale q_i| M_T) (k(t) + ... + k(t+n-1)),     M_T = max of T's |k_j - c|.
 *
 * Rows are fetched tile by tile, in one range, until the rows that are not fetched, on both sides,
 * weigh at most (15/16) (eps/4) of every row's total. An outlier beyond that range is fetched too
 * if it may weigh more than its share of the remaining (1/16) (eps/4). The attention calls on the
 * held rows get the rest of eps (plsh_shard_eps). A NaN fails every comparison, so everything is
 * fetched.
 *
 * A call, on every part (collectives in brackets are the caller's):
 *
 *     plsh_shard_create(&options, &shard, &error)          // once
 *     plsh_shard_prepare(shard, &error)                    // once, if a unit fades
 *     plsh_shard_exchange *x = shard->exchange;
 *     plsh_shard_begin(shard, &arrays)                     // centre, if this part is x->root
 *     [broadcast x->centre from x->root]
 *     plsh_shard_measure(shard)                            // x->own_norms
 *     [gather x->own_norms of all parts into x->norms]
 *     plsh_shard_find(shard, false)                        // x->own_needs
 *     [gather x->own_needs of all parts into x->needs]
 *     plsh_shard_learn(shard)                              // unit[i].need and fetches of all parts
 *
 * A shard belongs to one thread at a time. */
#ifndef PLSH_SHARD_H
#define PLSH_SHARD_H

#include "plsh/head.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLSH_SHARD_OUTLIERS = 16 };

/* A tile of keys that is fetched by itself: one of largest norm of its kv head. The same on all
 * parts, except for `queries`. */
typedef struct plsh_shard_outlier {
    plsh_range rows;
    int64_t tile;
    int part; /* that has it */
    float norm;
    plsh_range queries; /* the own ones that see it */
} plsh_shard_outlier;

/* Heads that are treated alike: neighbours of one kv head, or all heads of several kv heads. */
typedef struct plsh_shard_unit {
    bool rotates; /* dense and none: needs all that causality leaves */
    bool fades;   /* exact: needs are found from the data */
    bool asks;    /* this call finds its needs from the data: it fades, or has a certificate */
    int64_t head, heads, kv_head, kv_heads;
    plsh_range *reach;     /* [parts], rows of k that the part's queries see by the descriptor */
    plsh_range *need;      /* [parts], rows of k that they are to have in this call */
    int64_t *fetches;      /* [parts], a bit mask: the outliers that the part must fetch */
    plsh_range reach_near; /* the own queries that need no foreign rows, by the descriptor */
    plsh_range near;       /* the same in this call */
    plsh_shard_outlier outlier[PLSH_SHARD_OUTLIERS]; /* where it fades */
    int outliers;
} plsh_shard_unit;

/* What a part sends to the others for a unit with `asks`: its need and fetches. */
typedef struct plsh_shard_need {
    plsh_range rows;
    int64_t outliers;
} plsh_shard_need;

/* What parts exchange. The shard owns the memory. */
typedef struct plsh_shard_exchange {
    int root;                           /* the part that has the centre */
    int64_t centre_count;               /* kv_heads * head_dim */
    float *centre;                      /* near the mean of the keys */
    int *norm_counts, *norm_places;     /* [parts], of their norms, and where they begin */
    float *own_norms, *norms;           /* [kv_heads][tiles of the part]; of all parts in order */
    int64_t range_count;                /* 2 kv_heads * value_dim */
    float *own_ranges, *ranges;         /* certificates: the range of each column of v */
    int64_t need_count;                 /* units that ask */
    plsh_shard_need *own_needs, *needs; /* of these; of all parts in order */
} plsh_shard_exchange;

typedef struct plsh_shard_options {
    /* The whole text; its layouts are ignored. There is a query for every key (offsets of packed
     * sequences are equal); or, for a single sequence, for the last keys. `places` is NULL, no head
     * is `auto` (plsh_plan_head resolves it). */
    const plsh_attention *whole;
    const int64_t *splits; /* parts + 1 rows from 0 to keys, ascending; NULL: plsh_shard_split */
    int parts, part;
    /* Units have one kv head each, and fetch the range `need` only: an outlier that matters extends
     * it. For callers that attend to one range of rows. */
    bool one_range;
} plsh_shard_options;

/* Read only. */
typedef struct plsh_shard {
    int parts, part;
    bool one_range;
    plsh_attention whole; /* zeros replaced, one head per head; pointers to copies */
    plsh_range *rows;     /* [parts], of k and v */
    plsh_range *queries;  /* [parts], those of q in numbers of keys' rows */
    plsh_shard_unit *unit;
    int64_t units;
    plsh_shard_exchange *exchange; /* after plsh_shard_prepare */
    struct plsh_shard_state *state;
} plsh_shard;

/* The first row of a part (0 <= part <= parts) where rows are distributed evenly: floor(rows part /
 * parts). */
PLSH_API int64_t plsh_shard_split(int64_t rows, int parts, int part);

/* Copies everything except decay tables and labels: these must outlive the shard. */
PLSH_API plsh_status plsh_shard_create(const plsh_shard_options *options, plsh_shard **shard,
                                       plsh_error *error);
PLSH_API void plsh_shard_destroy(plsh_shard *shard); /* NULL is fine */

/* Which rows of k do the unit's heads see from these queries, by the descriptor? */
PLSH_API plsh_status plsh_shard_reach(const plsh_shard *shard, const plsh_shard_unit *unit,
                                      plsh_range queries, plsh_range *keys, plsh_error *error);

/* Resets need and near of all units to the values that follow from the descriptor alone. Call it
 * before every call but the first. */
PLSH_API void plsh_shard_reset(plsh_shard *shard);

/* The eps of calls on the rows that a part holds; 0 stands for 2^-24. */
PLSH_API double plsh_shard_eps(double eps, int parts);

/* ---- Needs that depend on the data -------------------------------------------- */

/* The part's own rows; layouts of zeros are [heads, own rows, dim] without gaps. v is for
 * certificates only. */
typedef struct plsh_shard_arrays {
    const void *q, *k, *v;
    plsh_layout q_layout, k_layout, v_layout;
} plsh_shard_arrays;

/* Allocates the memory that the calls below need. Call it once. */
PLSH_API plsh_status plsh_shard_prepare(plsh_shard *shard, plsh_error *error);

/* Keeps the arrays until the last of the functions below is over; fills in the centre, on the root
 * alone. */
PLSH_API void plsh_shard_begin(plsh_shard *shard, const plsh_shard_arrays *arrays);

/* Fills in own_norms, and own_ranges if v is there. */
PLSH_API void plsh_shard_measure(plsh_shard *shard);

/* For each unit that fades (with `certificate`: each that does not rotate) sets asks, near, the
 * outliers, and this part's need and fetches. Then fills in own_needs. */
PLSH_API void plsh_shard_find(plsh_shard *shard, bool certificate);

/* Takes need and fetches of all parts from `needs`. */
PLSH_API void plsh_shard_learn(plsh_shard *shard);

/* Adds to the calls' certificate [heads, own queries] the bound for the rows that were not
 * fetched, and what rounding may do where results of several calls are merged. */
PLSH_API void plsh_shard_certify(const plsh_shard *shard, float *certificate);

#ifdef __cplusplus
}
#endif

#endif
