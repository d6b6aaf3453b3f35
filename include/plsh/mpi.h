/* plsh/mpi.h - attention over rows that are distributed over the ranks of an MPI communicator.
 *
 * One long text (or several packed ones) of n rows; rank r holds the rows splits[r] .. splits[r+1]
 * - 1 of q, k, v and o, and no others. Because a bias decays, a rank needs only those rows of other
 * ranks that are next to its own: a halo.
 *
 * Rows of k and v that a rank fetches from others, by method:
 *
 * - window, fixed, plsh, masks, mean: plsh_attention_reach, known without communication
 *
 * - exact: ranks exchange the norms of their keys, tile by tile. Each fetches rows until those
 *   beyond may weigh at most eps / 4 of a row, and leaves out at most 3/4 of eps of the rows that
 *   it holds: eps in all, as in one process. Of the 16 tiles of largest norm of each kv head, those
 *   that lie farther off but may matter (such as that of a text's first key, if all queries attend
 *   to it) are fetched one by one, without the rows between, and merged
 *
 * - dense, none: everything, one rank's rows at a time: in turn t, those of rank r - t (modulo
 *   ranks), merged by their log-sum-exps. A rank never holds the rows of more than two other ranks
 *
 * - auto: as the method that is chosen for the whole text
 *
 * Halos are fetched head by head, so that a head with a steep decay costs little; they may be
 * longer than a neighbour's rows. Ranks may have no rows. Causal rows fetch from before, others
 * from both sides.
 *
 * Simplest use, 8 heads of ALiBi on evenly distributed rows, [heads, own rows, dim]:
 *
 *     plsh_attention whole = {.heads = 8, .queries = n, .keys = n, .head_dim = 64,
 *                             .causal = true, .head = head, .head_count = 8};
 *     plsh_mpi_plan *plan;
 *     plsh_mpi_stats stats;
 *     if (plsh_mpi_plan_create(&whole, NULL, MPI_COMM_WORLD, &plan, &error)) ...
 *     const plsh_range rows = plsh_mpi_plan_rows(plan, -1);
 *     plsh_forward arrays = {.q = q, .k = k, .v = v, .o = o};   // rows.end - rows.begin rows each
 *     if (plsh_mpi_plan_forward(plan, &arrays, &stats, &error)) ...
 *     plsh_mpi_plan_destroy(plan);
 *
 * Calls are collective: every rank of the communicator makes the same ones in the same order, with
 * the same descriptor. They need MPI_THREAD_FUNNELED and are made by the thread that may call MPI;
 * the work in between is done by all threads. A plan belongs to one thread.
 *
 * Errors are collective too: if a rank's arguments are bad or its memory is short, the call fails
 * on all ranks, and the message begins with "rank 3: ". No rank blocks on a rank that failed. (If a
 * rank is killed, mpirun ends the others. To notice a rank that is stopped or unreachable, use
 * plsh_mpi_watch_start.)
 *
 * Order, and bits. A row's result comes from one call of plsh_plan_forward that has all of its keys
 * (dense and none: one per rank, merged in the order of turns; exact: one more for each tile that
 * is fetched singly, in the order of norms). Rows that see only the rank's own keys run first,
 * while halos are in transit; then the rows at the edges. This split depends on the descriptor and
 * the data, never on timing: every run gives the same bits for any number of threads. The result of
 * one process differs by rounding only. */
#ifndef PLSH_MPI_H
#define PLSH_MPI_H

#include <mpi.h>

#include "plsh/attention.h"
#include "plsh/ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Counts of one call on this rank. */
typedef struct plsh_mpi_stats {
    plsh_stats attention; /* of the own rows: for the whole, add up pairs over the ranks */
    int64_t bytes_sent;   /* of rows, gradients and summaries; a broadcast counts once per receiver;
                             the few bytes of plsh_mpi_agree are not counted */
    double waited;        /* seconds that this rank spent waiting for others */
} plsh_mpi_stats;

/* The first row of a rank (0 <= rank <= ranks) where rows are distributed evenly: floor(rows rank /
 * ranks). */
PLSH_API int64_t plsh_mpi_split(int64_t rows, int ranks, int rank);

/* ---- Plans ---------------------------------------------------------------- */

typedef struct plsh_mpi_plan plsh_mpi_plan;

/* Collective. `whole` describes the whole text. Only its layouts and `threads` are the rank's own
 * and may differ from rank to rank: the layouts are those of the rank's arrays (zeros: [heads, own
 * rows, dim] without gaps). There is a query for every key (offsets of packed sequences, which may
 * cross ranks, are equal); or, for a single sequence, for the last keys: then a rank holds the
 * queries of its rows, if any. `places` has to be NULL.
 *
 * splits: ranks + 1 row numbers from 0 to keys, ascending (equal ones allowed); NULL:
 * plsh_mpi_split. The communicator is duplicated. Pointers are copied as by plsh_plan_create. */
PLSH_API plsh_status plsh_mpi_plan_create(const plsh_attention *whole, const int64_t *splits,
                                          MPI_Comm communicator, plsh_mpi_plan **plan,
                                          plsh_error *error);

/* Collective, too. NULL is fine. */
PLSH_API void plsh_mpi_plan_destroy(plsh_mpi_plan *plan);

/* The rows of k and v of a rank (-1: this one), and those of q and o, which are the same ones where
 * queries are all keys. */
PLSH_API plsh_range plsh_mpi_plan_rows(const plsh_mpi_plan *plan, int rank);
PLSH_API plsh_range plsh_mpi_plan_queries(const plsh_mpi_plan *plan, int rank);

/* Collective. The arrays of plsh_plan_forward for the rank's own rows: q [heads, own queries], k
 * and v [kv heads, own rows], o as q, lse and certificate [heads, own queries]. All ranks ask for
 * the same outputs, and for the same dropout, whose numbers are those of the whole text's first
 * head and rows. `extent` has to be NULL. A rank without rows may leave its arrays NULL.
 *
 * A certificate is against the whole text. For it, ranks fetch all rows whose keys may weigh more
 * than 2^-26 of a row (exact: eps / 4), whatever the method; the rows beyond are bounded by the
 * largest norm of a key and the range of all values. The error_bound of the stats is that of the
 * own rows. */
PLSH_API plsh_status plsh_mpi_plan_forward(plsh_mpi_plan *plan, const plsh_forward *arrays,
                                           plsh_mpi_stats *stats, plsh_error *error);

/* Collective. The arrays of plsh_plan_backward for the own rows; `extent` is NULL, `some_keys`
 * false. d_k and d_v are the gradients of the own rows by all ranks' queries: those of halo rows
 * are sent back to the rank that owns the rows and added in a fixed order. d_decay is the sum over
 * all ranks, the same on each. Halos are fetched again: nothing is kept from the forward pass. */
PLSH_API plsh_status plsh_mpi_plan_backward(plsh_mpi_plan *plan, const plsh_backward *arrays,
                                            plsh_mpi_stats *stats, plsh_error *error);

/* ---- Agreement -------------------------------------------------------------- */

/* Collective: one rank's failure becomes all ranks' failure. `mine` is the status of this rank
 * (with its message in `error` if it is not PLSH_STATUS_OK). Returns PLSH_STATUS_OK if every rank
 * passed PLSH_STATUS_OK; otherwise every rank gets the status of the lowest rank that failed, and
 * its message after "rank 3: ". The library calls it before ranks wait for one another; programs
 * may use it, for example after one rank has read a file. */
PLSH_API plsh_status plsh_mpi_agree(MPI_Comm communicator, plsh_status mine, plsh_error *error);

/* ---- Ranks that are lost ----------------------------------------------------- */

/* MPI does not notice a rank that is stopped (SIGSTOP) or unreachable: ranks that wait for it block
 * forever. A watch is a thread on every rank that sends a byte to its neighbours a few times in
 * `seconds`, independently of the other threads: a rank that computes for an hour counts as alive.
 * If a rank has not been heard of for `seconds`, the ranks that notice call `lost` from the watch's
 * thread; the first of them with a line that names the rank, the others with NULL:
 *
 *     rank 2 of 3: no sign of life for 60 s; stopped, or the link to it is cut
 *
 * (If `lost` is NULL the line goes to stderr.) Then they end the program with MPI_Abort, code 1. A
 * rank in an infinite loop is not noticed.
 *
 * Collective, both. Needs MPI_THREAD_MULTIPLE, otherwise PLSH_STATUS_UNSUPPORTED; 0 < seconds <=
 * 1e9. The communicator is duplicated. Stop it before MPI_Finalize: the call waits until all ranks
 * have called it. NULL is fine there. If starting fails because no thread can be created, the
 * program has to end. */
typedef struct plsh_mpi_watch plsh_mpi_watch;
typedef void (*plsh_mpi_lost)(void *context, const char *message);
PLSH_API plsh_status plsh_mpi_watch_start(MPI_Comm communicator, double seconds, plsh_mpi_lost lost,
                                          void *context, plsh_mpi_watch **watch, plsh_error *error);
PLSH_API void plsh_mpi_watch_stop(plsh_mpi_watch *watch);

/* ---- Models ----------------------------------------------------------------- */

/* Collective: the ranks of a communicator as the table that libplsh_lm takes (plsh/ranks.h), to run
 * and train models. `groups` divides the number of ranks: the first of them are the first group,
 * and so on. Gradients are added in the order of ranks, so that runs with the same number of ranks
 * give the same bits. The communicator is duplicated; attention's messages name the rank within its
 * group. Destroying is collective, too; NULL is fine. */
PLSH_API plsh_status plsh_mpi_ranks_create(MPI_Comm communicator, int groups,
                                           const plsh_ranks **ranks, plsh_error *error);
PLSH_API void plsh_mpi_ranks_destroy(const plsh_ranks *ranks);

#ifdef __cplusplus
}
#endif

#endif
