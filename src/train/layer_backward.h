/* train: one layer of a transformer, backward. Pre-norm layers only: the causal families. */
#ifndef PLSH_TRAIN_LAYER_BACKWARD_H
#define PLSH_TRAIN_LAYER_BACKWARD_H

#include "model/layer.h"
#include "model/sequence.h"

/* Where gradients are added; NULL: they are not computed. They have the shapes of the weights. */
typedef struct plsh_linear_gradient {
    float *weight, *bias;
    float *a, *b; /* of the adapter */
} plsh_linear_gradient;

typedef struct plsh_layer_gradient {
    plsh_norm_gradient attention_norm, mlp_norm, q_norm, k_norm;
    plsh_linear_gradient qkv[3], attention_out, up[2], down;
    double *decay; /* [heads][2], see plsh_backward; or NULL */
} plsh_layer_gradient;

typedef struct plsh_backward_buffers {
    float *dx;            /* [rows][hidden]: in: the gradient of y; out: the gradient of x */
    float *dn;            /* [rows][hidden] */
    float *dn_mlp;        /* [rows][hidden], parallel layers only */
    float *d_qk;          /* [rows][qkv width] */
    float *d_qkv;         /* the same; with norms of q and k only, otherwise d_qk */
    float *d_o;           /* [rows][heads * head_dim] */
    float *du, *da;       /* [rows][outputs of up], [rows][intermediate] */
    float *dz;            /* [rows][hidden], with hidden dropout only */
    float *rank, *d_rank; /* [rows][rank] */
    float *partial;       /* of norms: [chunks of rows][2][hidden, or head_dim where it is more] */
} plsh_backward_buffers;

plsh_backward_buffers plsh_backward_buffers_take(plsh_arena *arena, const plsh_model *model,
                                                 int64_t rows, bool dropout);

/* dx through layer l. `b` holds x, mid, qkv, o, lse and u as the forward pass left them; its other
 * arrays are recomputed here. */
plsh_status plsh_layer_backward(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b,
                                const plsh_backward_buffers *g,
                                const plsh_sequence_attention *attention,
                                const plsh_layer_gradient *to, plsh_error *error);

#endif
