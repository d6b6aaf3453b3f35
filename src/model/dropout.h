/* model: dropout from a counter: the mask is a function of (seed, step, place), so that the
 * backward pass and a resumed run get the same mask. */
#ifndef PLSH_MODEL_DROPOUT_H
#define PLSH_MODEL_DROPOUT_H

#include <stdint.h>

#include "base/matrix.h"
#include "plsh/attention.h"

typedef struct plsh_dropout {
    double hidden;  /* of the outputs of attention and MLP; 0: none */
    double adapter; /* of the input of LoRA's A */
    double weights; /* of attention */
    uint64_t seed, step;
    int64_t first;       /* the number that the first row has among those of all ranks, */
    int64_t group_first; /* and the first of those that its group attends to */
} plsh_dropout;

/* The place in a layer: the first two are hidden dropout, the others dropout of an adapter. */
typedef enum plsh_dropout_place {
    PLSH_DROPOUT_ATTENTION_OUT,
    PLSH_DROPOUT_MLP_OUT,
    PLSH_DROPOUT_QKV,
    PLSH_DROPOUT_O,
    PLSH_DROPOUT_UP,
    PLSH_DROPOUT_DOWN
} plsh_dropout_place;

/* One mask of a step: that of a place in a layer. */
typedef struct plsh_dropout_mask {
    const plsh_dropout *dropout;
    int64_t layer;
    plsh_dropout_place place;
} plsh_dropout_mask;

/* to[r][c] = x[r][c] / (1 - p) with probability 1 - p, otherwise 0, with the p of the mask's place.
 * The rows of `to` have no gaps; to may be x where that has none either. The mask depends on the
 * row's number, first + r. */
void plsh_dropout_apply(plsh_dropout_mask mask, int64_t rows, int64_t columns, plsh_const_matrix x,
                        float *to, int threads);

/* The dropout of the attention weights of a layer with `heads` heads. */
plsh_attention_dropout plsh_dropout_of_weights(const plsh_dropout *dropout, int64_t layer,
                                               int64_t heads);

#endif
