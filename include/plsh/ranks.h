/* plsh/ranks.h - a model over many processes: what libplsh_lm asks of them.
 *
 * libplsh_lm knows no MPI. It calls the functions of the table below, which libplsh_mpi fills in
 * (plsh_mpi_ranks_create, plsh/mpi.h), or anybody else.
 *
 * The processes, called ranks, are a mesh of data x sequence. The windows of a batch are dealt out
 * to the groups, in order; the rows of a group's windows, one after the other, to the ranks of the
 * group, in order: all but attention is then a rank's own business. Every rank has all weights. */
#ifndef PLSH_RANKS_H
#define PLSH_RANKS_H

#include "plsh/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plsh_traffic {
    int64_t bytes_sent; /* rows of attention, parts of sums, rows to the first rank */
    double waited;      /* seconds in which it did nothing but wait for others */
} plsh_traffic;

/* All ranks (of a group, for its attention) call the same functions in the same order, and a
 * failure of one is the failure of all: each returns it, with the same message. */
typedef struct plsh_ranks {
    void *context;
    int64_t group, groups; /* which this is, of how many */
    int64_t rank, ranks;   /* the same within the group */

    /* Attention of rows that are spread over the group: `whole` describes all of them, this rank
     * has rows.begin .. rows.end - 1 of q, k, v and o. lse is [heads, own rows]; certificates,
     * extents are not asked for; dropout counts heads and rows from the first of `whole`.
     * `backward`: gradients will be; d_decay is the group's sum. */
    plsh_status (*plan)(void *context, const plsh_attention *whole, plsh_block rows, bool backward,
                        void **plan, plsh_error *error);
    void (*plan_destroy)(void *plan); /* NULL is fine */
    plsh_status (*forward)(void *plan, const plsh_forward *arrays, plsh_error *error);
    plsh_status (*backward)(void *plan, const plsh_backward *arrays, plsh_error *error);

    /* numbers = the sum over all ranks of all groups, the same bits on every rank and in every run.
     * What was begun is there, and may be touched, when sum_end returns. */
    plsh_status (*sum_begin)(void *context, float *numbers, size_t count, plsh_error *error);
    plsh_status (*sum_end)(void *context, plsh_error *error);
    plsh_status (*sum)(void *context, double *numbers, size_t count, plsh_error *error);

    /* The status of the first rank that failed, with its message and its number: out of all, or
     * out of the group. */
    plsh_status (*agree)(void *context, bool group, plsh_status status, plsh_error *error);

    /* Bytes of rank `from` of the first group to that group's first. */
    plsh_status (*send)(void *context, const void *bytes, size_t size, plsh_error *error);
    plsh_status (*receive)(void *context, int64_t from, void *bytes, size_t size,
                           plsh_error *error);

    /* What this rank has sent and waited since the ranks were made. For programs, which may report
     * it: libplsh_lm does not ask. NULL: nobody counts. */
    plsh_traffic (*traffic)(void *context);
} plsh_ranks;

/* NULL stands for a process alone: it is the first, agrees with itself, and has everything. */

PLSH_API bool plsh_ranks_first(const plsh_ranks *ranks); /* of all: it writes what is written */
PLSH_API plsh_status plsh_ranks_agree(const plsh_ranks *ranks, plsh_status status,
                                      plsh_error *error);
PLSH_API plsh_status plsh_ranks_agree_group(const plsh_ranks *ranks, plsh_status status,
                                            plsh_error *error);

/* Are the `count` items of `size` bytes, called `what` in messages ("tokens"), those of the first
 * rank? Compared by their number and a checksum. All ranks call it, and all fail where one differs:
 * "rank 1: other tokens than rank 0 has: 200 instead of 300". */
PLSH_API plsh_status plsh_ranks_same(const plsh_ranks *ranks, const char *what, const void *items,
                                     int64_t count, size_t size, plsh_error *error);

/* Which of `windows` windows this rank's group has; and which of `rows` rows of a group are this
 * rank's: part i of p begins at floor(count i / p). */
PLSH_API plsh_block plsh_ranks_windows(const plsh_ranks *ranks, int64_t windows);
PLSH_API plsh_block plsh_ranks_rows(const plsh_ranks *ranks, int64_t rows);

#ifdef __cplusplus
}
#endif

#endif
