/* mpi: a plan over ranks: the rows that each rank holds and needs, and its attention calls.
 *
 *     agree      one rank's failure is all ranks' failure
 *     plan       a shard (plsh/shard.h) tells who needs which rows; plans for the calls
 *     fades      what `exact` needs: ranks exchange what the shard asks for
 *     transfer   rows of k and v to those who need them, gradients back
 *     halo       units that fetch a halo: near and far calls
 *     rotation   units that see everything, one rank's rows at a time
 *     merge      parts of attention, each on some of the keys, become one
 *     run        the two passes */
#ifndef PLSH_MPI_PLAN_H
#define PLSH_MPI_PLAN_H

#include "plsh/mpi.h"
#include "plsh/shard.h"
#include "shard/range.h"

/* Some queries of this rank with keys that are not all its own: rows [kv heads][keys][dim]. */
typedef struct plsh_mpi_far {
    plsh_range queries, keys;
    char *k, *v;
    bool outlier; /* these queries have another call, too: results are merged */
    float *d_k, *d_v;
} plsh_mpi_far;

/* A unit of the shard, and its calls. */
typedef struct plsh_mpi_unit {
    plsh_shard_unit *shard;
    bool first; /* of the units of its kv head, in the order that they run: halos, then rotations */
    plsh_mpi_far
        far[2 + PLSH_SHARD_OUTLIERS]; /* before and after `near`, or all queries; outliers */
    int far_count;
    plsh_plan *own, *other, *dense; /* for calls on the own rows, on such as `far`, on outliers */
    plsh_range planned, dense_planned; /* the keys that `other` and `dense` are for */
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
    plsh_shard *shard;    /* who holds which rows, and who needs which */
    plsh_attention whole; /* its descriptor, but with the layouts of the own rows */
    plsh_plan *resolved;  /* of the whole: which method `auto` is, and why; else of no rows */
    plsh_mpi_unit *unit;
    int64_t units;
    plsh_mpi_types types;
    int64_t *query_offsets, *key_offsets; /* of the current extent */
    plsh_place *places;
    MPI_Request *requests;
    int request_count, request_room;
    char *workspace; /* of the calls; grows */
    size_t workspace_size;
    float *scratch; /* rows of lse and the like of a call; grows */
    size_t scratch_size;
    char *parts, *sums; /* of calls that are merged: see merge.h; they grow */
    size_t parts_size, sums_size;
    plsh_mpi_stats *stats; /* of the current call */
    plsh_traffic *traffic; /* of all calls, if it is counted */
};

static inline plsh_range plsh_mpi_own_rows(const plsh_mpi_plan *plan) {
    return plan->shard->rows[plan->rank];
}

static inline plsh_range plsh_mpi_own_queries(const plsh_mpi_plan *plan) {
    return plan->shard->queries[plan->rank];
}

/* May the attention of the unit's heads be merged from several parts? */
static inline bool plsh_mpi_unit_merges(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit) {
    return plan->ranks > 1 && (unit->shard->rotates || unit->shard->fades);
}

/* Makes a buffer at least that large; its contents are discarded. */
plsh_status plsh_mpi_grow(void *buffer, size_t *size, size_t bytes, const char *what,
                          plsh_error *error);

/* The calls of a unit whose need and near are set: `far`, its buffer (with gradients for the
 * backward pass) and a plan for it. */
plsh_status plsh_mpi_unit_prepare(plsh_mpi_plan *plan, plsh_mpi_unit *unit, bool backward,
                                  plsh_error *error);

/* The extent of a call for these rows, in the plan's arrays. */
plsh_extent plsh_mpi_extent(plsh_mpi_plan *plan, plsh_range queries, plsh_range keys);

#endif
