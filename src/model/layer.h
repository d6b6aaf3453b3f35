/* model: one layer of a transformer, over rows of tokens: forward. train/layer_backward.h is its
 * backward pass.
 *
 *     pre-norm:   mid = x + out(attend(qkv(norm x)));   y = mid + down(act(up(norm mid)))
 *     post-norm:  mid = norm(x + out(attend(qkv x)));   y = norm(mid + down(act(up mid)))
 *     post-norm, twice (JinaBERT code):  mid = norm_2(x + norm(x + out(attend(qkv x))))
 *     parallel (Falcon):  n = norm x;  y = x + out(attend(qkv n)) + down(act(up n))
 *
 * In inference x, mid and y are one array that is added to; training keeps them in separate
 * arrays. */
#ifndef PLSH_MODEL_LAYER_H
#define PLSH_MODEL_LAYER_H

#include "base/arena.h"
#include "model/dropout.h"
#include "model/model.h"

/* What a pass over `rows` rows works in. */
typedef struct plsh_layer_buffers {
    float *x, *mid, *y; /* [rows][hidden]; may be one array */
    float *n;           /* [rows][hidden], normalised, or a sum before it is */
    float *qkv;         /* [rows][qkv width], as projected */
    float *qk;          /* the same, q and k normalised and rotated; may be qkv */
    float *o;           /* [rows][heads * head_dim]; may be n where a layer reads that once */
    float *lse;         /* [heads][rows], or NULL */
    float *u;           /* [mlp_rows][outputs of up] */
    float *a;           /* [mlp_rows][intermediate] */
    float *rope;        /* [rows][head_dim]: cosines and sines; NULL without RoPE */
    float *rank;        /* [rows][largest rank of the adapter] */
    float *wide, *drop; /* [rows][hidden] and [rows][widest input of a linear layer]: dropout's */
    int64_t mlp_rows;   /* the MLP goes over so many rows at once */
} plsh_layer_buffers;

/* Takes buffers for `rows` rows to run a model in; x is given, or taken too where it is NULL. */
plsh_layer_buffers plsh_layer_buffers_take(plsh_arena *arena, const plsh_model *model, float *x,
                                           int64_t rows, int64_t mlp_rows);

/* o = attention of q, k, v; by a cache, or over whole sequences. */
typedef struct plsh_layer_attend {
    plsh_status (*run)(void *context, const plsh_model_qkv *qkv, float *o, plsh_error *error);
    void *context;
    bool rotate; /* RoPE applies */
    const plsh_model_tap *tap;
} plsh_layer_attend;

/* What a pass needs besides its buffers. */
typedef struct plsh_layer_pass {
    const plsh_model *model;
    const plsh_linear_engine *engine;
    int64_t rows;
    int64_t position; /* of the first row, for taps alone */
    plsh_layer_attend attend;
    plsh_dropout dropout; /* of a training step; zero: none */
    plsh_pause pause;     /* run between parts of the layer; run NULL: none */
} plsh_layer_pass;

/* y = layer(x), or y += layer(x), with its adapter unless `rank` is NULL. */
void plsh_model_linear_forward(const plsh_linear_engine *engine, const plsh_model_linear *linear,
                               int64_t rows, plsh_const_matrix x, plsh_matrix y, bool add,
                               float *rank);

/* Layer l: buffers->x to buffers->y. */
plsh_status plsh_layer_forward(const plsh_layer_pass *pass, int64_t l,
                               const plsh_layer_buffers *buffers, plsh_error *error);

/* Computes mid, qkv and u again from x, and from o, which was kept: what the backward pass reads.
 * Pre-norm layers only. */
void plsh_layer_forward_again(const plsh_layer_pass *pass, int64_t l,
                              const plsh_layer_buffers *buffers);

/* qk = qkv with q and k normalised and, where asked for, rotated: the input of attention. */
void plsh_layer_prepare_qk(const plsh_layer_pass *pass, int64_t l,
                           const plsh_layer_buffers *buffers, bool rotate);

/* Rotates q and k of the pass's rows by the angles of `rope`, or by the opposite ones (`back`). */
void plsh_layer_rotate(const plsh_layer_pass *pass, const float *rope, float *qk, bool back);

/* x[r] = the embedding of ids[r], with position (position[r], or r where it is NULL), type and
 * norm. Ids have been checked; scratch holds one row. */
void plsh_layer_embed(const plsh_model *model, const int32_t *ids, const int32_t *types,
                      const int64_t *position, int64_t rows, float *x, float *scratch);

/* The embedding of one token, with the scale that the model gives it. */
void plsh_layer_token(const plsh_model *model, int32_t id, float *row);

/* The logits [rows][vocabulary] of rows after the last norm, scaled. */
void plsh_layer_logits(const plsh_linear_engine *engine, const plsh_model *model, int64_t rows,
                       const float *x, float *logits, float *rank);

/* Multiplies logits by the scale of the configuration, and by that of each row of a normalised
 * head. */
void plsh_layer_scale_logits(const plsh_model *model, int64_t rows, float *logits);

/* Are all ids in the vocabulary? */
plsh_status plsh_layer_check_ids(const plsh_model *model, const int32_t *ids, int64_t count,
                                 plsh_error *error);

#endif
