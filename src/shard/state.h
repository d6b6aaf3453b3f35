/* mpi: which rows of others a rank's queries need, from the norms of all keys: the bounds of
 * fades.h. */
#ifndef PLSH_MPI_NEEDS_H
#define PLSH_MPI_NEEDS_H

#include "mpi/call.h"

enum { PLSH_MPI_BLOCK_ROWS = 64 };

/* Some own queries of one sequence, in rows of the whole. */
typedef struct plsh_mpi_block {
    plsh_block rows, sequence;
    bool looks_left, looks_right; /* beyond the own rows, for the unit at hand */
    int64_t outliers;             /* of the unit, that it may not leave out: a bit for each */
} plsh_mpi_block;

/* Of a block's queries: the largest |scale q|, and the largest scale q.c - log D. */
typedef struct plsh_mpi_most {
    double norm, gap;
} plsh_mpi_most;

/* What a rank tells the others of a unit: its need and fetches. */
typedef struct plsh_mpi_need {
    plsh_block rows;
    int64_t outliers;
} plsh_mpi_need;

struct plsh_mpi_fades {
    int64_t tile_rows;
    int64_t *first_tile;   /* of each rank, ranks + 1 */
    int64_t *tile_begin;   /* the rows of all tiles, and one more */
    int *counts, *places;  /* of the ranks' norms */
    float *centre;         /* [kv heads][head_dim] */
    float *own_norms;      /* [kv heads][own tiles] */
    float *norms;          /* the same of all ranks, one after the other */
    float *before, *after; /* of the kv head at hand: running maxima from the sequence's ends */
    plsh_mpi_block *block;
    int64_t blocks;
    plsh_mpi_most *most;              /* [heads][blocks] */
    float *own_ranges, *ranges;       /* [kv heads][value_dim][2], and of all ranks */
    plsh_mpi_need *own_needs, *needs; /* of units that ask; of all ranks */
};

/* |x - c|^2 of the `dim` numbers x from `at` on; c: NULL is 0. */
double plsh_mpi_square(plsh_dtype dtype, const void *from, ptrdiff_t at, const float *c,
                       int64_t dim);

/* Sets need and fetches (of this rank), near and the outliers of a unit. */
void plsh_mpi_needs_find(plsh_mpi_call *call, plsh_mpi_unit *unit);

/* Fills before and after for a kv head of the unit. */
void plsh_mpi_needs_maxima(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit, int64_t kv);

/* Has block b parts that were merged? */
bool plsh_mpi_needs_merged(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit, int64_t b);

/* What the keys that block b has not seen may have weighed, relative to each of its rows; after
 * needs_find and needs_maxima of head h's kv head. NaN: anything. */
double plsh_mpi_needs_rest(const plsh_mpi_plan *plan, const plsh_mpi_unit *unit, int64_t h,
                           int64_t b);

#endif
