/* train: one layer of a transformer, backward. */
#include "train/layer_backward.h"

#include <string.h>

#include "base/thread.h"
#include "model/activation.h"
#include "model/rows.h"

plsh_backward_buffers plsh_backward_buffers_take(plsh_arena *arena, const plsh_model *model,
                                                 int64_t rows, bool dropout) {
    const plsh_model_config *c = &model->config;
    const plsh_layer *layer = &model->layer[0];
    const size_t n = (size_t)rows, hidden = (size_t)c->hidden;
    const size_t width = (size_t)model->qkv.width;
    const size_t widest_norm = hidden > width ? hidden : width;
    size_t up = 0;
    for (int i = 0; i < layer->up_count; i++) up += (size_t)layer->up[i].base.out;
    plsh_backward_buffers g = {
        .dx = plsh_arena_floats(arena, n * hidden),
        .dn = plsh_arena_floats(arena, n * hidden),
        .d_qk = plsh_arena_floats(arena, n * width),
        .d_o = plsh_arena_floats(arena, n * (size_t)(c->heads * c->head_dim)),
        .du = plsh_arena_floats(arena, n * up),
        .da = plsh_arena_floats(arena, n * (size_t)c->intermediate),
        .rank = plsh_arena_floats(arena, n * (size_t)model->rank_max),
        .d_rank = plsh_arena_floats(arena, n * (size_t)model->rank_max),
        .partial = plsh_arena_floats(arena, (n / PLSH_NORM_CHUNK + 1) * 2 * widest_norm)};
    g.d_qkv = c->qk_norm ? plsh_arena_floats(arena, n * width) : g.d_qk;
    g.dn_mlp = c->parallel ? plsh_arena_floats(arena, n * hidden) : NULL;
    g.dz = dropout ? plsh_arena_floats(arena, n * hidden) : NULL;
    return g;
}

/* The backward pass of one layer. */
typedef struct layer_backward {
    const plsh_layer_pass *pass;
    int64_t l;
    const plsh_layer *layer;
    const plsh_layer_buffers *b;
    const plsh_backward_buffers *g;
    const plsh_layer_gradient *to;
} layer_backward;

/* dropout(x) with the mask of the forward pass. */
static void drop(const layer_backward *at, plsh_dropout_place place, int64_t columns,
                 plsh_const_matrix x, float *to) {
    plsh_dropout_apply((plsh_dropout_mask){&at->pass->dropout, at->l, place}, at->pass->rows,
                       columns, x, to, at->pass->model->threads);
}

/* y += scale B t, t = A x', x' = x with dropout:
 *     dB += scale dy^T t,   dt = scale dy B,   dA += dt^T x',   dx += dropout(dt A) */
static void adapter_backward(const layer_backward *at, plsh_dropout_place place,
                             const plsh_model_linear *linear, const plsh_linear_gradient *to,
                             plsh_const_matrix x, plsh_const_matrix dy, plsh_matrix dx) {
    const plsh_linear_engine *engine = at->pass->engine;
    const plsh_backward_buffers *g = at->g;
    const int64_t rank = linear->rank, in = linear->base.in, rows = at->pass->rows;
    const bool dropout = at->pass->dropout.adapter > 0.0;
    const plsh_const_matrix t = {g->rank, rank}, dt = {g->d_rank, rank};
    const plsh_const_matrix dropped = {at->b->drop, in}, from = dropout ? dropped : x;
    if (dropout) drop(at, place, in, x, at->b->drop);
    plsh_linear_forward(engine, &linear->a, rows, from, (plsh_matrix){g->rank, rank}, false);
    for (int64_t i = 0; i < rows * rank; i++) g->rank[i] *= linear->scale;
    plsh_linear_backward(engine, &linear->b, rows, dy, t, to->b, (plsh_matrix){g->d_rank, rank},
                         false);
    for (int64_t i = 0; i < rows * rank; i++) g->d_rank[i] *= linear->scale;
    if (!dropout) {
        plsh_linear_backward(engine, &linear->a, rows, dt, x, to->a, dx, true);
        return;
    }
    plsh_linear_backward(engine, &linear->a, rows, dt, dropped, to->a, (plsh_matrix){NULL, 0},
                         false);
    plsh_linear_backward(engine, &linear->a, rows, dt, dropped, NULL,
                         (plsh_matrix){at->b->drop, in}, false);
    drop(at, place, in, dropped, at->b->drop);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < in; i++) dx.data[r * dx.stride + i] += dropped.data[r * in + i];
    }
}

/* Linear layers of one input x, whose outputs lie side by side in the rows of y. */
typedef struct fan_out {
    const plsh_model_linear *linear;
    const plsh_linear_gradient *to;
    int count;
    plsh_dropout_place place; /* of their adapters' dropout */
} fan_out;

/* dx = sum of dy_i W_i, and the gradients of the layers. */
static void fan_out_backward(const layer_backward *at, fan_out fan, plsh_const_matrix x,
                             plsh_const_matrix dy, plsh_matrix dx) {
    const plsh_linear_engine *engine = at->pass->engine;
    const int64_t rows = at->pass->rows;
    for (int i = 0; i < fan.count; i++) {
        const plsh_model_linear *linear = &fan.linear[i];
        const plsh_linear_gradient *to = &fan.to[i];
        const int64_t out = linear->base.out;
        plsh_linear_backward(engine, &linear->base, rows, dy, x, to->weight, dx, i > 0);
        if (to->bias) plsh_linear_backward_bias(engine, rows, out, dy, to->bias);
        if (linear->rank > 0 && to->a) adapter_backward(at, fan.place, linear, to, x, dy, dx);
        dy.data += out;
    }
}

static void normalise(const layer_backward *at, const plsh_norm *norm, const float *x) {
    plsh_norm_forward(norm, plsh_norm_whole(norm, at->pass->rows), x, at->b->n,
                      at->pass->model->threads);
}

/* dx += the gradient of x where n = norm(x). */
static void add_norm_backward(const layer_backward *at, const plsh_norm *norm,
                              const plsh_norm_gradient *to, const float *x) {
    plsh_norm_backward(norm, plsh_norm_whole(norm, at->pass->rows), x, at->g->dn, at->g->dx, to,
                       at->g->partial, at->pass->model->threads);
}

/* Apply the forward dropout mask to the gradient. */
static plsh_const_matrix drop_gradient(const layer_backward *at, plsh_dropout_place place) {
    const int64_t hidden = at->pass->model->config.hidden;
    const plsh_const_matrix dx = {at->g->dx, hidden};
    if (at->pass->dropout.hidden == 0.0) return dx;
    drop(at, place, hidden, dx, at->g->dz);
    return (plsh_const_matrix){at->g->dz, hidden};
}

/* dn = the gradient of the MLP's input n. */
static void mlp_backward(const layer_backward *at, float *dn) {
    const plsh_model_config *c = &at->pass->model->config;
    const plsh_layer *layer = at->layer;
    const plsh_layer_buffers *b = at->b;
    const plsh_backward_buffers *g = at->g;
    const bool gated = c->mlp != PLSH_MLP_PLAIN;
    const int64_t width = gated ? 2 * c->intermediate : c->intermediate, rows = at->pass->rows;
    const int threads = at->pass->model->threads;
    const plsh_const_matrix dz = drop_gradient(at, PLSH_DROPOUT_MLP_OUT);
    plsh_activation_forward(c->activation, gated, b->u, b->a, rows, c->intermediate, threads);
    fan_out_backward(at, (fan_out){&layer->down, &at->to->down, 1, PLSH_DROPOUT_DOWN},
                     (plsh_const_matrix){b->a, c->intermediate}, dz,
                     (plsh_matrix){g->da, c->intermediate});
    plsh_activation_backward(c->activation, gated, b->u, g->da, g->du, rows, c->intermediate,
                             threads);
    fan_out_backward(at, (fan_out){layer->up, at->to->up, layer->up_count, PLSH_DROPOUT_UP},
                     (plsh_const_matrix){b->n, c->hidden}, (plsh_const_matrix){g->du, width},
                     (plsh_matrix){dn, c->hidden});
}

/* Rotates the rows first .. end - 1 of d_qk back. If q and k have norms, it also starts d_qkv: q
 * and k are 0, because qk_norm_backward adds to them; v is copied from d_qk. */
static void begin_qkv(void *context, int64_t first, int64_t end, int slot) {
    const layer_backward *at = context;
    const plsh_model_config *c = &at->pass->model->config;
    const plsh_qkv_layout *qkv = &at->pass->model->qkv;
    const size_t v_bytes = sizeof(float) * (size_t)(c->kv_heads * c->head_dim);
    plsh_layer_pass some = *at->pass;
    some.rows = end - first;
    (void)slot;
    if (some.attend.rotate)
        plsh_layer_rotate(&some, at->b->rope + first * c->head_dim,
                          at->g->d_qk + first * qkv->width, true);
    if (!at->layer->q_norm.weight) return;
    for (int64_t r = first; r < end; r++) {
        float *row = at->g->d_qkv + r * qkv->width;
        memset(row, 0, sizeof(float) * (size_t)qkv->width);
        memcpy(row + qkv->v, at->g->d_qk + r * qkv->width + qkv->v, v_bytes);
    }
}

/* Backward of the rotation and of the norms of q and k, if the layer has them: d_qkv from d_qk. */
static void qk_norm_backward(layer_backward *at) {
    const plsh_model_config *c = &at->pass->model->config;
    const plsh_layer *layer = at->layer;
    const plsh_backward_buffers *g = at->g;
    const plsh_qkv_layout *qkv = &at->pass->model->qkv;
    const int64_t rows = at->pass->rows, width = qkv->width;
    const int threads = at->pass->model->threads;
    if (at->pass->attend.rotate || layer->q_norm.weight)
        plsh_thread_rows(threads, rows, 8, begin_qkv, at);
    if (!layer->q_norm.weight) return;
    const int64_t q_width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim;
    plsh_norm_rows q = {.rows = rows, .parts = q_width / layer->q_norm.width, .stride = width};
    plsh_norm_rows k = {.rows = rows, .parts = kv_width / layer->k_norm.width, .stride = width};
    plsh_norm_backward(&layer->q_norm, q, at->b->qkv + qkv->q, g->d_qk + qkv->q, g->d_qkv + qkv->q,
                       &at->to->q_norm, g->partial, threads);
    plsh_norm_backward(&layer->k_norm, k, at->b->qkv + qkv->k, g->d_qk + qkv->k, g->d_qkv + qkv->k,
                       &at->to->k_norm, g->partial, threads);
}

/* Backward of the clamp of q, k and v: entries that were clamped get the gradient 0. */
static void clamp_backward(const layer_backward *at) {
    const plsh_model *model = at->pass->model;
    const float most = (float)model->config.clip;
    const int64_t count = at->pass->rows * model->qkv.width;
    for (int64_t i = 0; most > 0.0f && i < count; i++) {
        const float x = at->b->qkv[i];
        if (x >= most || x <= -most) at->g->d_qkv[i] = 0.0f;
    }
}

/* d_qk from d_o: through attention itself. */
static plsh_status attend_backward(const layer_backward *at,
                                   const plsh_sequence_attention *attention, plsh_error *error) {
    const plsh_layer_pass *pass = at->pass;
    const plsh_qkv_layout *qkv = &pass->model->qkv;
    const plsh_layer_buffers *b = at->b;
    float *d_qk = at->g->d_qk;
    plsh_backward arrays = {
        .q = b->qk + qkv->q,
        .k = b->qk + qkv->k,
        .v = b->qk + qkv->v,
        .o = b->o,
        .lse = b->lse,
        .d_o = at->g->d_o,
        .d_q = d_qk + qkv->q,
        .d_k = d_qk + qkv->k,
        .d_v = d_qk + qkv->v,
        .d_decay = at->to->decay,
        .dropout = plsh_dropout_of_weights(&pass->dropout, at->l, pass->model->config.heads)};
    plsh_layer_prepare_qk(pass, at->l, b, pass->attend.rotate);
    return plsh_sequence_attention_backward(attention, &arrays, error);
}

/* dn = the gradient of attention's input n. */
static plsh_status attention_backward(layer_backward *at, const plsh_sequence_attention *attention,
                                      plsh_error *error) {
    const plsh_model *model = at->pass->model;
    const plsh_layer *layer = at->layer;
    const int64_t width = model->config.heads * model->config.head_dim,
                  hidden = model->config.hidden;
    const plsh_const_matrix dz = drop_gradient(at, PLSH_DROPOUT_ATTENTION_OUT);
    fan_out_backward(at,
                     (fan_out){&layer->attention_out, &at->to->attention_out, 1, PLSH_DROPOUT_O},
                     (plsh_const_matrix){at->b->o, width}, dz, (plsh_matrix){at->g->d_o, width});
    plsh_status status = attend_backward(at, attention, error);
    if (status) return status;
    qk_norm_backward(at);
    clamp_backward(at);
    fan_out_backward(at, (fan_out){layer->qkv, at->to->qkv, layer->qkv_count, PLSH_DROPOUT_QKV},
                     (plsh_const_matrix){at->b->n, hidden},
                     (plsh_const_matrix){at->g->d_qkv, model->qkv.width},
                     (plsh_matrix){at->g->dn, hidden});
    return PLSH_STATUS_OK;
}

plsh_status plsh_layer_backward(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b,
                                const plsh_backward_buffers *g,
                                const plsh_sequence_attention *attention,
                                const plsh_layer_gradient *to, plsh_error *error) {
    const plsh_layer *layer = &pass->model->layer[l];
    layer_backward at = {.pass = pass, .l = l, .layer = layer, .b = b, .g = g, .to = to};
    const bool parallel = pass->model->config.parallel;
    const int64_t numbers = pass->rows * pass->model->config.hidden;
    if (parallel) {
        normalise(&at, &layer->attention_norm, b->x);
        mlp_backward(&at, g->dn_mlp);
    } else {
        normalise(&at, &layer->mlp_norm, b->mid);
        mlp_backward(&at, g->dn);
        add_norm_backward(&at, &layer->mlp_norm, &to->mlp_norm, b->mid);
        normalise(&at, &layer->attention_norm, b->x);
    }
    plsh_status status = attention_backward(&at, attention, error);
    if (status) return status;
    if (parallel) plsh_rows_add(pass->model->threads, g->dn, g->dn_mlp, numbers);
    add_norm_backward(&at, &layer->attention_norm, &to->attention_norm, b->x);
    return PLSH_STATUS_OK;
}
