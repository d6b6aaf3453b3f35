/* attention: partitions whose blocks are not contiguous, sorted so that a block's keys can be
 * gathered. */
#ifndef PLSH_ATTENTION_GATHERING_H
#define PLSH_ATTENTION_GATHERING_H

#include "plsh/cells.h"
#include "plsh/partition.h"

/* The labels of all draws. They are the user's, by position: then every sequence begins at entry 0,
 * and queries are entries like keys. Or they are those of cells, by row: then a sequence begins at
 * its first row, and queries have entries of their own. Constant after creation. */
typedef struct plsh_gathering {
    const int32_t *key_label, *query_label; /* [draws][label_stride] */
    int32_t *order; /* [draws][keys]: the keys of a sequence by label, then by place; they count
                     * from its first */
    int32_t *begin; /* [draws][queries]: where in that order the block of a query begins */
    int64_t draws, label_stride, keys, queries;
    bool by_row;   /* labels of cells */
    int32_t *made; /* the labels, where they are not the user's */
} plsh_gathering;

/* Of the user's labels of the first n positions; n is at most 2^31 - 1 and the set's label_count.
 */
plsh_status plsh_gathering_create(const plsh_partition *set, int64_t n, plsh_gathering **out,
                                  plsh_error *error);

/* Points of the rows of q and k, all sequences together. */
typedef struct plsh_gathering_rows {
    int dim;
    const float *query, *key; /* [rows][dim] */
    int64_t sequences;
    const int64_t *query_offset, *key_offset; /* [sequences + 1] */
    int threads;
} plsh_gathering_rows;

/* Of the cells of these points; `set` passed plsh_cells_check. */
plsh_status plsh_gathering_create_cells(const plsh_partition *set, const plsh_gathering_rows *rows,
                                        plsh_gathering **out, plsh_error *error);
void plsh_gathering_destroy(plsh_gathering *gathering); /* NULL is fine */

/* Do a query and a key with these labels share a block? */
static inline bool plsh_gathering_shares(const plsh_gathering *gathering, int32_t query,
                                         int32_t key) {
    return query == key ||
           (gathering->by_row && (query == PLSH_CELL_EVERY || key == PLSH_CELL_EVERY));
}

/* In how many draws do these entries share a block? */
int64_t plsh_gathering_count(const plsh_gathering *gathering, int64_t query, int64_t key);

#endif
