/* train: one layer of a transformer, backward. */
#include "train/layer_backward.h"

#include <string.h>

#include "model/activation.h"

plsh_backward_buffers plsh_backward_buffers_take(plsh_arena *arena, const plsh_model *model,
                                                 int64_t rows, bool dropout) {
    const plsh_model_config *c = &model->config;
    const plsh_layer *layer = &model->layer[0];
    const size_t n = (size_t)rows, hidden = (size_t)c->hidden;
    const size_t widest_norm = (size_t)(c->hidden > c->head_dim ? c->hidden : c->head_dim);
    const size_t width = (size_t)model->qkv.width;
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
    g.d_qkv = c->family->qk_norm ? plsh_arena_floats(arena, n * width) : g.d_qk;
    g.dn_mlp = c->parallel ? plsh_arena_floats(arena, n * hidden) : NULL;
    g.dz = dropout ? plsh_arena_floats(arena, n * hidden) : NULL;
    return g;
}

/* y += scale B t, t = A x', x' = x with dropout:
 *     dB += scale dy^T t,   dt = scale dy B,   dA += dt^T x',   dx += dropout(dt A) */
static void adapter_backward(const plsh_layer_pass *pass, int64_t l, plsh_dropout_place place,
                             const plsh_model_linear *linear, const plsh_linear_gradient *to,
                             plsh_const_matrix x, plsh_const_matrix dy, plsh_matrix dx,
                             const plsh_layer_buffers *b, const plsh_backward_buffers *g) {
    const plsh_linear_engine *engine = pass->engine;
    const int64_t rank = linear->rank, in = linear->base.in, rows = pass->rows;
    const double p = pass->dropout.adapter;
    const plsh_const_matrix t = {g->rank, rank}, dt = {g->d_rank, rank};
    plsh_const_matrix from = x;
    if (p > 0.0) {
        plsh_dropout_apply(&pass->dropout, p, l, place, x.data, x.stride, b->drop, rows, in,
                           pass->model->threads);
        from = (plsh_const_matrix){b->drop, in};
    }
    plsh_linear_forward(engine, &linear->a, rows, from, (plsh_matrix){g->rank, rank}, false);
    for (int64_t i = 0; i < rows * rank; i++) g->rank[i] *= linear->scale;
    plsh_linear_backward_weight(engine, rows, linear->base.out, rank, dy, t, to->b);
    plsh_linear_backward_input(engine, &linear->b, rows, dy, (plsh_matrix){g->d_rank, rank}, false);
    for (int64_t i = 0; i < rows * rank; i++) g->d_rank[i] *= linear->scale;
    plsh_linear_backward_weight(engine, rows, rank, in, dt, from, to->a);
    if (p == 0.0) {
        plsh_linear_backward_input(engine, &linear->a, rows, dt, dx, true);
        return;
    }
    plsh_linear_backward_input(engine, &linear->a, rows, dt, (plsh_matrix){b->drop, in}, false);
    plsh_dropout_apply(&pass->dropout, p, l, place, b->drop, in, b->drop, rows, in,
                       pass->model->threads);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < in; i++) dx.data[r * dx.stride + i] += b->drop[r * in + i];
    }
}

void plsh_model_linear_backward(const plsh_layer_pass *pass, int64_t l, plsh_dropout_place place,
                                const plsh_model_linear *linear, const plsh_linear_gradient *to,
                                plsh_const_matrix x, plsh_const_matrix dy, plsh_matrix dx, bool add,
                                const plsh_layer_buffers *b, const plsh_backward_buffers *g) {
    const plsh_linear *base = &linear->base;
    if (to->weight) {
        plsh_linear_backward_weight(pass->engine, pass->rows, base->out, base->in, dy, x,
                                    to->weight);
    }
    if (to->bias) plsh_linear_backward_bias(pass->rows, base->out, dy, to->bias);
    plsh_linear_backward_input(pass->engine, base, pass->rows, dy, dx, add);
    if (linear->rank > 0 && to->a) adapter_backward(pass, l, place, linear, to, x, dy, dx, b, g);
}

/* Layers of one input, outputs side by side: dx = sum of dy_i W_i. */
static void side_by_side_backward(const plsh_layer_pass *pass, int64_t l, plsh_dropout_place place,
                                  const plsh_model_linear *linear, const plsh_linear_gradient *to,
                                  int count, const float *x, const float *dy, int64_t width,
                                  float *dx, const plsh_layer_buffers *b,
                                  const plsh_backward_buffers *g) {
    const int64_t hidden = pass->model->config.hidden;
    for (int i = 0; i < count; i++) {
        plsh_model_linear_backward(pass, l, place, &linear[i], &to[i],
                                   (plsh_const_matrix){x, hidden}, (plsh_const_matrix){dy, width},
                                   (plsh_matrix){dx, hidden}, i > 0, b, g);
        dy += linear[i].base.out;
    }
}

static void normalise(const plsh_layer_pass *pass, const plsh_norm *norm, const float *x,
                      float *y) {
    plsh_norm_rows shape = {.rows = pass->rows, .parts = 1, .stride = norm->width};
    plsh_norm_forward(norm, shape, x, y, norm->width, pass->model->threads);
}

/* dx += the gradient of x where n = norm(x). */
static void add_norm_backward(const plsh_layer_pass *pass, const plsh_norm *norm,
                              const plsh_norm_gradient *to, const float *x, const float *dn,
                              const plsh_backward_buffers *g) {
    plsh_norm_rows shape = {.rows = pass->rows, .parts = 1, .stride = norm->width};
    plsh_norm_backward(norm, shape, x, dn, norm->width, g->dx, norm->width, to->weight, to->bias,
                       g->partial, pass->model->threads);
}

/* Apply the forward dropout mask to the gradient. */
static const float *drop_gradient(const plsh_layer_pass *pass, int64_t l, plsh_dropout_place place,
                                  const plsh_backward_buffers *g) {
    const int64_t hidden = pass->model->config.hidden;
    if (pass->dropout.hidden == 0.0) return g->dx;
    plsh_dropout_apply(&pass->dropout, pass->dropout.hidden, l, place, g->dx, hidden, g->dz,
                       pass->rows, hidden, pass->model->threads);
    return g->dz;
}

/* dn = the gradient of the MLP's input n. */
static void mlp_backward(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b,
                         const plsh_backward_buffers *g, const plsh_layer_gradient *to, float *dn) {
    const plsh_model_config *c = &pass->model->config;
    const plsh_layer *layer = &pass->model->layer[l];
    const bool gated = c->family->mlp != PLSH_MLP_PLAIN;
    const int64_t width = gated ? 2 * c->intermediate : c->intermediate, rows = pass->rows;
    const float *dz = drop_gradient(pass, l, PLSH_DROPOUT_MLP_OUT, g);
    plsh_activation_forward(c->activation, gated, b->u, b->a, rows, c->intermediate,
                            pass->model->threads);
    plsh_model_linear_backward(pass, l, PLSH_DROPOUT_DOWN, &layer->down, &to->down,
                               (plsh_const_matrix){b->a, c->intermediate},
                               (plsh_const_matrix){dz, c->hidden},
                               (plsh_matrix){g->da, c->intermediate}, false, b, g);
    plsh_activation_backward(c->activation, gated, b->u, g->da, g->du, rows, c->intermediate,
                             pass->model->threads);
    side_by_side_backward(pass, l, PLSH_DROPOUT_UP, layer->up, to->up, layer->up_count, b->n, g->du,
                          width, dn, b, g);
}

/* Through the norms of q and k, where there are any: d_qkv from d_qk. */
static void qk_norm_backward(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b,
                             const plsh_backward_buffers *g, const plsh_layer_gradient *to) {
    const plsh_model_config *c = &pass->model->config;
    const plsh_layer *layer = &pass->model->layer[l];
    const plsh_qkv_layout *at = &pass->model->qkv;
    if (!layer->q_norm.weight) return;
    plsh_norm_rows q = {.rows = pass->rows, .parts = c->heads, .stride = at->width};
    plsh_norm_rows k = {.rows = pass->rows, .parts = c->kv_heads, .stride = at->width};
    memset(g->d_qkv, 0, sizeof(float) * (size_t)(pass->rows * at->width));
    plsh_norm_backward(&layer->q_norm, q, b->qkv + at->q, g->d_qk + at->q, at->width,
                       g->d_qkv + at->q, at->width, to->q_norm.weight, NULL, g->partial,
                       pass->model->threads);
    plsh_norm_backward(&layer->k_norm, k, b->qkv + at->k, g->d_qk + at->k, at->width,
                       g->d_qkv + at->k, at->width, to->k_norm.weight, NULL, g->partial,
                       pass->model->threads);
    for (int64_t r = 0; r < pass->rows; r++) {
        memcpy(g->d_qkv + r * at->width + at->v, g->d_qk + r * at->width + at->v,
               sizeof(float) * (size_t)(c->kv_heads * c->head_dim));
    }
}

static void rotate_back(const plsh_layer_pass *pass, const float *rope, float *d_qk) {
    const plsh_model *model = pass->model;
    const plsh_qkv_layout *at = &model->qkv;
    plsh_rope_turn(&model->rope, rope, d_qk + at->q, pass->rows, at->width, model->config.heads,
                   at->head_stride, true, model->threads);
    plsh_rope_turn(&model->rope, rope, d_qk + at->k, pass->rows, at->width, model->config.kv_heads,
                   at->head_stride, true, model->threads);
}

/* dn = the gradient of attention's input n. */
static plsh_status attention_backward(const plsh_layer_pass *pass, int64_t l,
                                      const plsh_layer_buffers *b, const plsh_backward_buffers *g,
                                      const plsh_sequence_attention *attention,
                                      const plsh_layer_gradient *to, float *dn, plsh_error *error) {
    const plsh_model *model = pass->model;
    const plsh_model_config *c = &model->config;
    const plsh_layer *layer = &model->layer[l];
    const int64_t width = c->heads * c->head_dim;
    const float *dz = drop_gradient(pass, l, PLSH_DROPOUT_ATTENTION_OUT, g);
    plsh_model_linear_backward(pass, l, PLSH_DROPOUT_O, &layer->attention_out, &to->attention_out,
                               (plsh_const_matrix){b->o, width}, (plsh_const_matrix){dz, c->hidden},
                               (plsh_matrix){g->d_o, width}, false, b, g);
    plsh_layer_prepare_qk(pass, l, b, pass->attend.rotate);
    plsh_model_qkv qkv = plsh_layer_qkv(model, l, 0, pass->rows, b->qk);
    plsh_status status = plsh_sequence_attention_backward(
        attention, &model->qkv, &qkv, b->o, b->lse, g->d_o, g->d_qk, to->decay,
        plsh_dropout_of_weights(&pass->dropout, l, c->heads), error);
    if (status) return status;
    if (pass->attend.rotate) rotate_back(pass, b->rope, g->d_qk);
    qk_norm_backward(pass, l, b, g, to);
    side_by_side_backward(pass, l, PLSH_DROPOUT_QKV, layer->qkv, to->qkv, layer->qkv_count, b->n,
                          g->d_qkv, model->qkv.width, dn, b, g);
    return PLSH_STATUS_OK;
}

plsh_status plsh_layer_backward(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b,
                                const plsh_backward_buffers *g,
                                const plsh_sequence_attention *attention,
                                const plsh_layer_gradient *to, plsh_error *error) {
    const plsh_layer *layer = &pass->model->layer[l];
    const bool parallel = pass->model->config.parallel;
    const int64_t numbers = pass->rows * pass->model->config.hidden;
    if (parallel) {
        normalise(pass, &layer->attention_norm, b->x, b->n);
        mlp_backward(pass, l, b, g, to, g->dn_mlp);
    } else {
        normalise(pass, &layer->mlp_norm, b->mid, b->n);
        mlp_backward(pass, l, b, g, to, g->dn);
        add_norm_backward(pass, &layer->mlp_norm, &to->mlp_norm, b->mid, g->dn, g);
        normalise(pass, &layer->attention_norm, b->x, b->n);
    }
    plsh_status status = attention_backward(pass, l, b, g, attention, to, g->dn, error);
    if (status) return status;
    for (int64_t i = 0; parallel && i < numbers; i++) g->dn[i] += g->dn_mlp[i];
    add_norm_backward(pass, &layer->attention_norm, &to->attention_norm, b->x, g->dn, g);
    return PLSH_STATUS_OK;
}
