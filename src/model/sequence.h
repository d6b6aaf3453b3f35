/* model: attention of a layer over whole sequences at once, forward and backward: encoders and
 * training. */
#ifndef PLSH_MODEL_SEQUENCE_H
#define PLSH_MODEL_SEQUENCE_H

#include "model/model.h"
#include "plsh/ranks.h"

typedef struct plsh_sequence_attention {
    plsh_plan *plan;
    void *workspace;
    const plsh_ranks *ranks; /* NULL: the plan above; otherwise theirs */
    void *shared;
} plsh_sequence_attention;

/* Rows of all sequences, one after the other; those of a group of ranks, which share them. */
typedef struct plsh_sequences {
    int64_t rows;
    int64_t count;          /* 0: one sequence, no offsets */
    const int64_t *offsets; /* [count + 1] */
    const plsh_ranks *ranks;
    plsh_range own; /* this rank's rows; without ranks not looked at */
} plsh_sequences;

/* For layer l with this choice (NULL: its own); backward: gradients will be asked for. The plan
 * copies what it needs. */
plsh_status plsh_sequence_attention_make(plsh_sequence_attention *out, const plsh_model *model,
                                         const plsh_layer_attention *choice, int64_t l,
                                         const plsh_sequences *sequences, bool backward,
                                         plsh_error *error);
void plsh_sequence_attention_clear(plsh_sequence_attention *attention);

/* Arrays are those of this rank's rows; lse [heads][rows] or NULL. q, k and v are laid out as the
 * model's qkv, and so are their gradients. Dropout counts rows from the first of all sequences. */
plsh_status plsh_sequence_attention_forward(const plsh_sequence_attention *attention,
                                            const plsh_forward *arrays, plsh_error *error);
plsh_status plsh_sequence_attention_backward(const plsh_sequence_attention *attention,
                                             const plsh_backward *arrays, plsh_error *error);

#endif
