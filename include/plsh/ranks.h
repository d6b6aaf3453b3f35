/* plsh/ranks.h - a model over many processes: the functions that libplsh_lm calls to communicate.
 *
 * libplsh_lm does not depend on MPI. It calls the functions of the table below. libplsh_mpi
 * provides such a table (plsh_mpi_ranks_create, plsh/mpi.h); a program may provide its own.
 *
 * The processes, called ranks, are a mesh of data x sequence. The windows of a batch are divided
 * among the groups, in order. The rows of a group's windows are divided among the ranks of the
 * group, in order. Only attention then needs rows of other ranks. Every rank has all weights. */
#ifndef PLSH_RANKS_H
#define PLSH_RANKS_H

#include "plsh/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plsh_traffic {
    int64_t bytes_sent; /* rows of attention, parts of sums, rows to the first rank */
    double waited;      /* seconds that the rank spent waiting for others */
} plsh_traffic;

/* All ranks (of a group, for its attention) call the same functions in the same order, and a
 * failure of one is the failure of all: each returns it, with the same message. */
typedef struct plsh_ranks {
    void *context;
    int64_t group, groups; /* the group of this rank, and how many there are */
    int64_t rank, ranks;   /* the same within the group */

    /* Attention over rows that are distributed over the group: `whole` describes all of them, this
     * rank has rows.begin .. rows.end - 1 of q, k, v and o. lse is [heads, own rows]; certificate
     * and extent are NULL; dropout counts heads and rows from the first of `whole`. `backward`:
     * gradients will be asked for; d_decay is the group's sum. */
    plsh_status (*plan)(void *context, const plsh_attention *whole, plsh_range rows, bool backward,
                        void **plan, plsh_error *error);
    void (*plan_destroy)(void *plan); /* NULL is fine */
    plsh_status (*forward)(void *plan, const plsh_forward *arrays, plsh_error *error);
    plsh_status (*backward)(void *plan, const plsh_backward *arrays, plsh_error *error);

    /* numbers = the sum over all ranks of all groups, the same bits on every rank and in every run.
     * `numbers` of sum_begin must not be touched until sum_end returns. */
    plsh_status (*sum_begin)(void *context, float *numbers, size_t count, plsh_error *error);
    plsh_status (*sum_end)(void *context, plsh_error *error);
    plsh_status (*sum)(void *context, double *numbers, size_t count, plsh_error *error);

    /* The status of the first rank that failed, with its message and number: among all ranks, or
     * those of the group. */
    plsh_status (*agree)(void *context, bool group, plsh_status status, plsh_error *error);

    /* Sends bytes from rank `from` of the first group to the first rank of that group. */
    plsh_status (*send)(void *context, const void *bytes, size_t size, plsh_error *error);
    plsh_status (*receive)(void *context, int64_t from, void *bytes, size_t size,
                           plsh_error *error);

    /* Bytes sent and seconds waited by this rank so far. For programs that report it: libplsh_lm
     * does not call it. May be NULL. */
    plsh_traffic (*traffic)(void *context);
} plsh_ranks;

/* In the calls below, NULL stands for a single process: it is the first rank and has all rows. */

/* Is this the first rank of all? It writes the files. */
PLSH_API bool plsh_ranks_first(const plsh_ranks *ranks);

PLSH_API plsh_status plsh_ranks_agree(const plsh_ranks *ranks, plsh_status status,
                                      plsh_error *error);
PLSH_API plsh_status plsh_ranks_agree_group(const plsh_ranks *ranks, plsh_status status,
                                            plsh_error *error);

/* Checks that the `count` items of `size` bytes, called `what` in messages ("tokens"), equal those
 * of the first rank, by their number and a checksum. All ranks call it, and all fail if one
 * differs: "rank 1: other tokens than rank 0 has: 200 instead of 300". */
PLSH_API plsh_status plsh_ranks_same(const plsh_ranks *ranks, const char *what, const void *items,
                                     int64_t count, size_t size, plsh_error *error);

/* Which of `windows` windows this rank's group has; and which of `rows` rows of a group are this
 * rank's: part i of p begins at floor(count i / p). */
PLSH_API plsh_range plsh_ranks_windows(const plsh_ranks *ranks, int64_t windows);
PLSH_API plsh_range plsh_ranks_rows(const plsh_ranks *ranks, int64_t rows);

#ifdef __cplusplus
}
#endif

#endif
