/* train: one pass over a batch: forward, loss, backward. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "model/attention.h"
#include "train/loss.h"
#include "train/trainer.h"

/* ---- Attention of this step ------------------------------------------------------------------ */

/* Sampled masks of (seed, step, layer, head): the same in the forward and the backward pass. */
static void draw_heads(plsh_trainer *t, int64_t l) {
    const plsh_model *model = t->model;
    const int64_t heads = model->config.heads;
    const uint64_t step = t->options.keep_draws ? 0 : (uint64_t)t->steps;
    for (int64_t h = 0; h < heads; h++) {
        plsh_partition *partition = &t->heads[l * heads + h].partition;
        partition->seed = t->options.seed + step * UINT64_C(0x9e3779b97f4a7c15);
        partition->head = (uint32_t)(l * heads + h);
    }
}

static bool has_shape(const plsh_trainer *t, const plsh_sequences *s) {
    return t->planned_rows == s->rows && t->planned_windows == s->count;
}

/* Does any head of the layer draw, or may? */
static bool is_sampled(const plsh_trainer *t, int64_t l) {
    const int64_t heads = t->model->config.heads;
    for (int64_t h = 0; t->attention && !t->attention[l].original && h < heads; h++) {
        plsh_method method = t->heads[l * heads + h].method;
        if (method == PLSH_METHOD_PLSH || method == PLSH_METHOD_MASKS ||
            method == PLSH_METHOD_MEAN || method == PLSH_METHOD_AUTO) {
            return true;
        }
    }
    return false;
}

/* Plans for these shapes, and for the draws of this step. */
static plsh_status make_plans(plsh_trainer *t, const plsh_sequences *s, plsh_error *error) {
    const bool moved = !t->options.keep_draws && t->planned_step != t->steps,
               same = has_shape(t, s);
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t l = 0; !status && l < t->model->config.layers; l++) {
        const plsh_layer_attention *choice = t->attention ? &t->attention[l] : NULL;
        if (same && !(moved && is_sampled(t, l))) continue;
        if (choice && !choice->original) draw_heads(t, l);
        plsh_sequence_attention_clear(&t->layer[l]);
        status = plsh_sequence_attention_make(&t->layer[l], t->model, choice, l, s, true, error);
    }
    t->planned_rows = status ? 0 : s->rows;
    t->planned_windows = s->count;
    t->planned_step = t->steps;
    return status;
}

/* ---- Forward --------------------------------------------------------------------------------- */

typedef struct attend_context {
    const plsh_sequence_attention *attention;
    float *lse;
} attend_context;

static plsh_status attend(void *context, const plsh_model_qkv *qkv, float *o, plsh_error *error) {
    const attend_context *c = context;
    return plsh_sequence_attention_forward(c->attention, qkv, o, c->lse, error);
}

static bool rotates(const plsh_trainer *t, int64_t l) {
    return plsh_model_attention_rotates(t->model, t->attention ? &t->attention[l] : NULL);
}

static plsh_layer_pass make_pass(const plsh_trainer *t, int64_t rows) {
    double dropout = t->options.dropout < 0.0 ? t->model->config.dropout : t->options.dropout;
    return (plsh_layer_pass){
        .model = t->model,
        .engine = &t->engine,
        .rows = rows,
        .attend = {.run = attend},
        .dropout = {.hidden = dropout,
                    .adapter = t->options.lora_rank > 0 ? t->options.lora_dropout : 0.0,
                    .seed = t->options.seed,
                    .step = (uint64_t)t->steps * 65536 + (uint64_t)t->passes}};
}

static plsh_status forward_layer(const plsh_trainer *t, plsh_layer_pass *pass, int64_t l,
                                 plsh_error *error) {
    const plsh_layer_buffers *b = &t->buffers.layer[l];
    attend_context context = {&t->layer[l], b->lse};
    pass->attend.context = &context;
    pass->attend.rotate = rotates(t, l);
    plsh_status status = plsh_layer_forward(pass, l, b, error);
    pass->attend.context = NULL;
    return status;
}

/* Every row's angles are those of its position in its window. */
static void fill_angles(const plsh_trainer *t, int64_t context, int64_t windows) {
    const plsh_model *model = t->model;
    float *rope = t->buffers.layer[0].rope;
    if (!rope) return;
    const int64_t width = model->config.head_dim;
    plsh_rope_fill(&model->rope, 0, context, rope);
    for (int64_t w = 1; w < windows; w++) {
        memcpy(rope + w * context * width, rope, sizeof(float) * (size_t)(context * width));
    }
}

static plsh_status forward(plsh_trainer *t, plsh_layer_pass *pass, const int32_t *ids,
                           plsh_error *error) {
    const plsh_model *model = t->model;
    const plsh_trainer_buffers *b = &t->buffers;
    plsh_layer_embed(model, ids, NULL, pass->rows, b->layer[0].x, b->scratch);
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t l = 0; !status && l < model->config.layers; l++) {
        status = forward_layer(t, pass, l, error);
    }
    if (status) return status;
    plsh_norm_rows shape = {.rows = pass->rows, .parts = 1, .stride = model->config.hidden};
    plsh_norm_forward(&model->final_norm, shape, b->layer[model->config.layers - 1].y, b->h,
                      model->config.hidden, model->threads);
    return PLSH_STATUS_OK;
}

/* ---- Backward -------------------------------------------------------------------------------- */

/* The gradient of the embedding, row after row: ids may repeat. */
static void embedding_backward(const plsh_trainer *t, const plsh_layer_pass *pass,
                               const int32_t *ids) {
    const plsh_model *model = t->model;
    const plsh_parameters *p = &t->parameters;
    const plsh_backward_buffers *g = &t->buffers.backward;
    const int64_t hidden = model->config.hidden;
    float *dx = g->dx;
    if (model->tokens_norm.weight) {
        plsh_norm_rows shape = {.rows = pass->rows, .parts = 1, .stride = hidden};
        for (int64_t r = 0; r < pass->rows; r++) {
            plsh_tensor_to_float(model->tokens, ids[r], 1, t->buffers.scratch + r * hidden);
        }
        memset(g->dn, 0, sizeof(float) * (size_t)(pass->rows * hidden));
        plsh_norm_backward(&model->tokens_norm, shape, t->buffers.scratch, g->dx, hidden, g->dn,
                           hidden, p->tokens_norm.weight, p->tokens_norm.bias, g->partial,
                           model->threads);
        dx = g->dn;
    }
    for (int64_t r = 0; p->tokens && r < pass->rows; r++) {
        float *to = p->tokens + (int64_t)ids[r] * hidden;
        for (int64_t c = 0; c < hidden; c++) to[c] += dx[r * hidden + c];
    }
}

static void final_norm_backward(const plsh_trainer *t, const plsh_layer_pass *pass) {
    const plsh_model *model = t->model;
    const plsh_backward_buffers *g = &t->buffers.backward;
    const int64_t hidden = model->config.hidden;
    plsh_norm_rows shape = {.rows = pass->rows, .parts = 1, .stride = hidden};
    memset(g->dx, 0, sizeof(float) * (size_t)(pass->rows * hidden));
    plsh_norm_backward(&model->final_norm, shape, t->buffers.layer[model->config.layers - 1].y,
                       g->dn, hidden, g->dx, hidden, t->parameters.final_norm.weight,
                       t->parameters.final_norm.bias, g->partial, model->threads);
}

static plsh_status backward(plsh_trainer *t, plsh_layer_pass *pass, const int32_t *ids,
                            plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    final_norm_backward(t, pass);
    for (int64_t l = t->model->config.layers - 1; !status && l >= 0; l--) {
        if (t->options.recompute) status = forward_layer(t, pass, l, error);
        pass->attend.rotate = rotates(t, l);
        if (!status) {
            status = plsh_layer_backward(pass, l, &t->buffers.layer[l], &t->buffers.backward,
                                         &t->layer[l], &t->parameters.layer[l], error);
        }
    }
    if (!status && t->options.lora_rank == 0) embedding_backward(t, pass, ids);
    return status;
}

/* ---- Both ------------------------------------------------------------------------------------ */

/* Row r foresees the token after it, but for the last of a window. */
static void fill_targets(const plsh_trainer *t, const int32_t *ids, int64_t context,
                         int64_t windows) {
    for (int64_t w = 0; w < windows; w++) {
        t->buffers.offsets[w] = w * context;
        for (int64_t i = 0; i < context; i++) {
            int64_t r = w * context + i;
            t->buffers.target[r] = i + 1 < context ? ids[r + 1] : -1;
        }
    }
    t->buffers.offsets[windows] = windows * context;
}

plsh_status plsh_trainer_pass(plsh_trainer *t, const int32_t *ids, int64_t context, int64_t windows,
                              double *loss, plsh_error *error) {
    const plsh_trainer_buffers *b = &t->buffers;
    const plsh_parameters *p = &t->parameters;
    const double scored = (double)(windows * (context - 1));
    plsh_layer_pass pass = make_pass(t, windows * context);
    fill_targets(t, ids, context, windows);
    plsh_sequences sequences = {.rows = pass.rows, .count = windows, .offsets = b->offsets};
    if (!has_shape(t, &sequences)) fill_angles(t, context, windows);
    plsh_status status = make_plans(t, &sequences, error);
    if (status) return status;
    status = forward(t, &pass, ids, error);
    if (status) return status;
    double sum = plsh_loss_run(&t->engine, &t->model->head.base, b->h, b->target, pass.rows, scored,
                               b->backward.dn, p->head.weight, b->logits);
    *loss = sum / scored;
    if (!isfinite(*loss)) {
        return plsh_fail(error, PLSH_STATUS_NOT_FINITE, "the loss is %g", *loss);
    }
    return backward(t, &pass, ids, error);
}
