/* attention: partitions whose blocks are not contiguous, sorted so that a block's keys can be
 * gathered. */
#ifndef PLSH_ATTENTION_GATHERING_H
#define PLSH_ATTENTION_GATHERING_H

#include "plsh/partition.h"

/* Labels of the first n positions, draw after draw. Constant after creation. */
typedef struct plsh_gathering {
    const int32_t *labels; /* the user's, [draws][label_count] */
    int64_t label_count, n, draws;
    int32_t *order; /* [draws][n]: positions by label, then by place */
    int32_t *begin; /* [draws][n]: where in the order the block of a position begins */
} plsh_gathering;

/* n is at most 2^31 - 1 and the set's label_count. */
plsh_status plsh_gathering_create(const plsh_partition *set, int64_t n, plsh_gathering **out,
                                  plsh_error *error);
void plsh_gathering_destroy(plsh_gathering *gathering); /* NULL is fine */

#endif
