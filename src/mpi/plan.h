/* mpi: a plan over ranks: who holds which rows, who needs which, and the calls that come of it.
 *
 *     agree      one rank's failure is all ranks' failure
 *     plan       heads in units, which rows of others they need, plans for the calls
 *     fades      the same for `exact`, from the norms of all ranks' keys (needs: the bounds)
 *     transfer   rows of k and v to those who need them, gradients back
 *     halo       units that fetch a halo: near and far calls
 *     rotation   units that see everything, one rank's rows at a time
 *     merge      parts of attention, each on some of the keys, become one
 *     run        the two passes */
#ifndef PLSH_MPI_PLAN_H
#define PLSH_MPI_PLAN_H

#include "plsh/mpi.h"

typedef struct plsh_mpi_fades plsh_mpi_fades;

/* How many tiles of keys a rank may fetch one by one, and those: the ones of largest norm of a kv
 * head, the same on all ranks but for `queries`. */
enum { PLSH_MPI_OUTLIERS = 16 };

typedef struct plsh_mpi_outlier {
    plsh_block rows;
    int64_t tile;
    int rank; /* that has it */
    float norm;
    plsh_block queries; /* the own ones that fetch it */
} plsh_mpi_outlier;

/* Some queries of this rank with keys that are not all its own: rows [kv heads][keys][dim]. */
typedef struct plsh_mpi_far {
    plsh_block queries, keys;
    char *k, *v;
    bool outlier; /* one more part of queries that have another call */
    float *d_k, *d_v;
} plsh_mpi_far;

/* Heads that are treated alike: neighbours of one kv head, or all heads of several kv heads. */
typedef struct plsh_mpi_unit {
    bool rotates; /* dense and none: needs all that causality leaves */
    bool fades;   /* exact: needs are found from the data */
    bool asks;    /* so they are in this call, for a certificate too */
    bool first; /* of the units of its kv head, in the order that they run: halos, then rotations */
    int64_t head, heads, kv_head, kv_heads;
    plsh_block *reach;     /* [ranks], rows of k that the rank's queries see by the descriptor */
    plsh_block *need;      /* [ranks], rows of k that they are to have in this call */
    int64_t *fetches;      /* [ranks], and a bit for each outlier that they are to have, too */
    plsh_block reach_near; /* of the own queries, those that see none but the own rows */
    plsh_block near;       /* and those of this call */
    plsh_mpi_outlier outlier[PLSH_MPI_OUTLIERS]; /* where it fades */
    int outliers;
    plsh_mpi_far far[2 + PLSH_MPI_OUTLIERS]; /* before and after `near`, or all queries; outliers */
    int far_count;
    plsh_plan *own, *other, *dense; /* for calls on the own rows, on such as `far`, on outliers */
    plsh_block planned, dense_planned; /* the keys that `other` and `dense` are for */
    char *buffer;                      /* of `far` */
    size_t buffer_size;
    float *returned; /* the gradients of own rows that other ranks have made, rank by rank */
    size_t returned_size;
    int rows_begin, rows_end;       /* of the requests: those that bring this unit's rows */
    int returns_begin, returns_end; /* and those that bring its gradients */
} plsh_mpi_unit;

/* Row types of MPI: the user's rows of k and v, and rows without gaps, of halos and gradients. */
typedef struct plsh_mpi_types {
    MPI_Datatype own_k, own_v, k, v, d_k, d_v;
} plsh_mpi_types;

struct plsh_mpi_plan {
    MPI_Comm communicator;
    int rank, ranks;
    plsh_attention whole; /* zeros replaced, but for the layouts, which are those of the own rows */
    int64_t *offsets;     /* sequences + 1, where there are sequences */
    plsh_head *head;      /* [heads], resolved */
    plsh_plan *resolved;  /* of the whole: which method `auto` is, and why; else of no rows */
    plsh_block *rows;     /* [ranks], of k and v */
    plsh_block *queries;  /* [ranks], those of q in numbers of keys' rows */
    plsh_mpi_unit *unit;
    int64_t units;
    plsh_block *blocks; /* the arrays of the units */
    int64_t *fetches;
    plsh_mpi_types types;
    int64_t *query_offsets, *key_offsets; /* of the extent at hand */
    plsh_place *places;
    MPI_Request *requests;
    int request_count, request_room;
    char *workspace; /* of the calls; grows */
    size_t workspace_size;
    float *scratch; /* rows of lse and the like of a call; grows */
    size_t scratch_size;
    char *parts, *sums; /* of calls that are merged: see merge.h; they grow */
    size_t parts_size, sums_size;
    plsh_mpi_fades *fades_state; /* where a unit asks */
    plsh_mpi_report *report;     /* of the call at hand */
    plsh_traffic *traffic;       /* of all calls, where somebody counts it */
};

static inline int64_t plsh_block_size(plsh_block block) {
    return block.end > block.begin ? block.end - block.begin : 0;
}

static inline plsh_block plsh_block_common(plsh_block a, plsh_block b) {
    const int64_t begin = a.begin > b.begin ? a.begin : b.begin;
    const int64_t end = a.end < b.end ? a.end : b.end;
    return (plsh_block){begin, end > begin ? end : begin};
}

/* The least range that holds both; an empty one holds nothing. */
static inline plsh_block plsh_block_hull(plsh_block a, plsh_block b) {
    if (plsh_block_size(a) == 0) return b;
    if (plsh_block_size(b) == 0) return a;
    return (plsh_block){a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

static inline plsh_block plsh_mpi_own_rows(const plsh_mpi_plan *plan) {
    return plan->rows[plan->rank];
}

static inline plsh_block plsh_mpi_own_queries(const plsh_mpi_plan *plan) {
    return plan->queries[plan->rank];
}

/* May its heads' attention be a sum of parts? */
static inline bool plsh_mpi_unit_merges(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit) {
    return plan->ranks > 1 && (unit->rotates || unit->fades);
}

/* Makes a buffer at least that large; what it held is gone. */
plsh_status plsh_mpi_grow(void *buffer, size_t *size, size_t bytes, const char *what,
                          plsh_error *error);

/* Which rows of k do the unit's heads see from these queries, by the descriptor? */
plsh_status plsh_mpi_unit_reach(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                                plsh_block queries, plsh_block *keys, plsh_error *error);

/* Its need and near are those of the descriptor. */
void plsh_mpi_unit_reset(const plsh_mpi_plan *plan, plsh_mpi_unit *unit);

/* The calls of a unit whose need and near are set: `far`, its buffer (with gradients for the
 * backward pass) and a plan for it. */
plsh_status plsh_mpi_unit_prepare(plsh_mpi_plan *plan, plsh_mpi_unit *unit, bool backward,
                                  plsh_error *error);

/* The extent of a call for these rows, in the plan's arrays. */
plsh_extent plsh_mpi_extent(plsh_mpi_plan *plan, plsh_block queries, plsh_block keys);

#endif
