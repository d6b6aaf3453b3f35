/* mpi: sends rows of k and v to the ranks that need them, and their gradients back.
 *
 * The messages of a pair of ranks have a fixed order on both sides: by unit, within a unit the
 * range and then the outliers in their order, then by kv head, k before v. */
#ifndef PLSH_MPI_TRANSFER_H
#define PLSH_MPI_TRANSFER_H

#include "mpi/plan.h"

void plsh_mpi_types_clear(plsh_mpi_types *types);
plsh_status plsh_mpi_types_make(plsh_mpi_plan *plan, plsh_error *error);
void plsh_mpi_types_free(plsh_mpi_types *types);

/* Rows [kv heads][rows][dim] of k and v, or of their gradients. */
typedef struct plsh_mpi_rows {
    char *k, *v;
    MPI_Datatype k_type, v_type;
    int64_t k_head, v_head; /* bytes from one kv head to the next */
    int64_t k_row, v_row;   /* bytes from one row to the next */
    int64_t first;          /* the number of row 0 */
    bool gradients;
} plsh_mpi_rows;

/* The user's rows of a unit, of the rank's own; rows that hold `keys` without gaps, and the same of
 * gradients. */
plsh_mpi_rows plsh_mpi_rows_own(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit, const void *k,
                                const void *v);
plsh_mpi_rows plsh_mpi_rows_held(const plsh_mpi_plan *plan, plsh_range keys, void *k, void *v);
plsh_mpi_rows plsh_mpi_rows_gradients(const plsh_mpi_plan *plan, plsh_range keys, float *d_k,
                                      float *d_v);

/* The user's gradients, of the rank's own rows; either may be NULL. */
plsh_mpi_rows plsh_mpi_rows_own_gradients(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                                          float *d_k, float *d_v);

/* Room for `count` requests: at most two for each kv head of a transfer. */
plsh_status plsh_mpi_requests_reserve(plsh_mpi_plan *plan, int64_t count, plsh_error *error);

/* Begins to send rows to a rank, or to receive them from it; k or v may be NULL: not these. */
plsh_status plsh_mpi_send(plsh_mpi_plan *plan, const plsh_mpi_unit *unit, const plsh_mpi_rows *rows,
                          plsh_range range, int to, plsh_error *error);
plsh_status plsh_mpi_receive(plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                             const plsh_mpi_rows *rows, plsh_range range, int from,
                             plsh_error *error);

/* Waits for the requests first .. end - 1, and adds the time to the stats. */
plsh_status plsh_mpi_wait(plsh_mpi_plan *plan, int first, int end, plsh_error *error);

/* Lets MPI make progress on its messages between two attention calls. */
void plsh_mpi_poke(plsh_mpi_plan *plan);

/* Adds the time since `begin` (MPI_Wtime) to the time waited, and bytes to those sent. */
void plsh_mpi_book_wait(plsh_mpi_plan *plan, double begin);
void plsh_mpi_book_bytes(plsh_mpi_plan *plan, int64_t bytes);

/* to = from, rows `range`; and of float rows, to += from. */
void plsh_mpi_rows_copy(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                        const plsh_mpi_rows *to, const plsh_mpi_rows *from, plsh_range range);
void plsh_mpi_rows_add(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                       const plsh_mpi_rows *to, const plsh_mpi_rows *from, plsh_range range);
void plsh_mpi_rows_clear(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit,
                         const plsh_mpi_rows *rows, plsh_range range);

#endif
