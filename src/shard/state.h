/* shard: the state of a shard between the steps of a call, and functions that its files share. */
#ifndef PLSH_SHARD_STATE_H
#define PLSH_SHARD_STATE_H

#include "base/numbers.h"
#include "plsh/shard.h"
#include "shard/range.h"

enum { PLSH_SHARD_SPAN_ROWS = 64 };

/* Some own queries of one sequence, in rows of the whole. */
typedef struct plsh_shard_span {
    plsh_range rows, sequence;
    bool looks_left, looks_right; /* beyond the own rows, for the current unit */
    int64_t outliers; /* a bit for each outlier of the unit that the span may not leave out */
} plsh_shard_span;

/* Over the queries i of a span: norm is the largest |scale q_i|; own_weight_gap is the largest
 * scale q_i.c - log D_i (c, D_i: plsh/shard.h). */
typedef struct plsh_shard_most {
    double norm, own_weight_gap;
} plsh_shard_most;

typedef struct plsh_shard_state {
    plsh_range *ranges_of_units; /* the arrays of the units */
    int64_t *fetches_of_units;
    int64_t *offsets; /* of the sequences */
    plsh_head *head;
    plsh_shard_exchange exchange;
    plsh_shard_arrays arrays; /* of the call; layouts filled in */
    int64_t tile_rows;
    int64_t *first_tile;   /* of each part, parts + 1 */
    int64_t *tile_begin;   /* the rows of all tiles, and one more */
    float *before, *after; /* of the current kv head: running maxima from the sequence's ends */
    plsh_shard_span *span;
    int64_t spans;
    plsh_shard_most *most; /* [heads][spans] */
} plsh_shard_state;

static inline plsh_range plsh_shard_own_rows(const plsh_shard *shard) {
    return shard->rows[shard->part];
}

static inline plsh_range plsh_shard_own_queries(const plsh_shard *shard) {
    return shard->queries[shard->part];
}

/* |x - c|^2 of the `dim` numbers x from `at` on; c: NULL is 0. */
double plsh_shard_square(plsh_dtype dtype, const void *from, ptrdiff_t at, const float *c,
                         int64_t dim);

/* Frees what plsh_shard_prepare has made. */
void plsh_shard_state_clear(plsh_shard_state *f);

/* Sets need and fetches (of this part), near and the outliers of a unit. */
void plsh_shard_find_unit(plsh_shard *shard, plsh_shard_unit *unit);

/* Fills before and after for a kv head of the unit. */
void plsh_shard_fill_maxima(const plsh_shard *shard, const plsh_shard_unit *unit, int64_t kv);

/* Are the results of span b merged from several calls? */
bool plsh_shard_is_merged(const plsh_shard *shard, const plsh_shard_unit *unit, int64_t b);

/* A bound on the weight of the keys that span b does not have, relative to each of its rows; after
 * plsh_shard_find_unit, and plsh_shard_fill_maxima of head h's kv head. NaN: no bound. */
double plsh_shard_rest(const plsh_shard *shard, const plsh_shard_unit *unit, int64_t h, int64_t b);

#endif
