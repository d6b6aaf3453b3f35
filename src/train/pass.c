/* train: one pass over a batch: forward, loss, backward. */
#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/status.h"
#include "base/thread.h"
#include "model/attention.h"
#include "model/rows.h"
#include "train/loss.h"
#include "train/trainer.h"

/* The rows of a batch that this rank has. */
typedef struct share {
    int64_t context;
    plsh_range windows; /* of its group */
    int64_t group_rows; /* their rows, */
    plsh_range rows;    /* and which of these are its own */
} share;

static share share_of(const plsh_trainer *t, int64_t context, int64_t windows) {
    share s = {.context = context, .windows = plsh_ranks_windows(t->options.ranks, windows)};
    s.group_rows = (s.windows.end - s.windows.begin) * context;
    s.rows = plsh_ranks_rows(t->options.ranks, s.group_rows);
    return s;
}

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

/* Rows and windows of the group; the share of each rank follows from them. */
static bool has_shape(const plsh_trainer *t, const plsh_sequences *s) {
    return t->planned_rows == s->rows && t->planned_windows == s->count;
}

/* Does any head of the layer sample (or may, if its method is auto)? */
static bool is_sampled(const plsh_trainer *t, int64_t l) {
    const int64_t heads = t->model->config.heads;
    for (int64_t h = 0; t->attention && !t->attention[l].original && h < heads; h++) {
        plsh_method method = t->heads[l * heads + h].method;
        if (plsh_method_is_sampled(method) || method == PLSH_METHOD_AUTO) return true;
    }
    return false;
}

/* Plans for these shapes, and for the draws and slopes of this step. */
static plsh_status make_plans(plsh_trainer *t, const plsh_sequences *s, plsh_error *error) {
    const bool next = t->planned_step != t->steps, same = has_shape(t, s),
               moved = next && !t->options.keep_draws, bent = next && t->options.learn_slopes;
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t l = 0; !status && l < t->model->config.layers; l++) {
        const plsh_layer_attention *choice = t->attention ? &t->attention[l] : NULL;
        if (same && !bent && !(moved && is_sampled(t, l))) continue;
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
    plsh_attention_dropout dropout;
} attend_context;

static plsh_status attend(void *context, const plsh_model_qkv *qkv, float *o, plsh_error *error) {
    const attend_context *c = context;
    plsh_forward arrays = {
        .q = qkv->q, .k = qkv->k, .v = qkv->v, .o = o, .lse = c->lse, .dropout = c->dropout};
    return plsh_sequence_attention_forward(c->attention, &arrays, error);
}

static bool rotates(const plsh_trainer *t, int64_t l) {
    return plsh_model_attention_rotates(t->model, t->attention ? &t->attention[l] : NULL);
}

static plsh_layer_pass make_pass(const plsh_trainer *t, const share *own) {
    const plsh_model_config *c = &t->model->config;
    const bool as_configured = t->options.dropout < 0.0;
    return (plsh_layer_pass){
        .model = t->model,
        .engine = &t->engine,
        .rows = own->rows.end - own->rows.begin,
        .attend = {.run = attend},
        .dropout = {.hidden = as_configured ? c->dropout : t->options.dropout,
                    .weights = as_configured ? c->attention_dropout : 0.0,
                    .adapter = t->options.lora_rank > 0 ? t->options.lora_dropout : 0.0,
                    .seed = t->options.seed,
                    .step = (uint64_t)t->steps * 65536 + (uint64_t)t->micro_batches,
                    .first = own->windows.begin * own->context + own->rows.begin,
                    .group_first = own->windows.begin * own->context}};
}

static plsh_status forward_layer(const plsh_trainer *t, plsh_layer_pass *pass, int64_t l,
                                 plsh_error *error) {
    const plsh_layer_buffers *b = &t->buffers.layer[l];
    attend_context context = {&t->layer[l], b->lse,
                              plsh_dropout_of_weights(&pass->dropout, l, t->model->config.heads)};
    pass->attend.context = &context;
    pass->attend.rotate = rotates(t, l);
    plsh_status status = plsh_layer_forward(pass, l, b, error);
    pass->attend.context = NULL;
    return status;
}

/* Every row's angles are those of its position in its window. */
static void fill_angles(const plsh_trainer *t, const share *own) {
    const plsh_model *model = t->model;
    float *rope = t->buffers.layer[0].rope;
    if (!rope) return;
    for (int64_t r = own->rows.begin, end; r < own->rows.end; r = end) {
        end = (r / own->context + 1) * own->context; /* of its window */
        if (end > own->rows.end) end = own->rows.end;
        plsh_rope_fill(&model->rope, r % own->context, end - r, own->context,
                       rope + (r - own->rows.begin) * model->config.head_dim);
    }
}

static plsh_status forward(plsh_trainer *t, plsh_layer_pass *pass, const int32_t *ids,
                           plsh_error *error) {
    const plsh_model *model = t->model;
    const plsh_trainer_buffers *b = &t->buffers;
    plsh_layer_embed(model, ids, NULL, NULL, pass->rows, b->layer[0].x, b->scratch);
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t l = 0; !status && l < model->config.layers; l++) {
        status = forward_layer(t, pass, l, error);
    }
    if (status) return status;
    plsh_norm_forward(&model->final_norm, plsh_norm_whole(&model->final_norm, pass->rows),
                      b->layer[model->config.layers - 1].y, b->h, model->threads);
    return PLSH_STATUS_OK;
}

/* ---- Backward -------------------------------------------------------------------------------- */

/* Gradients of rows that are added to those of their tokens. */
typedef struct scatter_job {
    float *tokens;
    const float *dx;
    const int32_t *ids;
    int64_t rows, hidden;
    float scale;
} scatter_job;

PLSH_CLONES static void add_scaled(float *restrict to, const float *restrict from, float scale,
                                   int64_t count) {
    for (int64_t c = 0; c < count; c++) to[c] += scale * from[c];
}

/* Columns first to end - 1 of all rows, row after row: ids may repeat. */
static void scatter(void *context, int64_t first, int64_t end, int slot) {
    const scatter_job *job = context;
    (void)slot;
    for (int64_t r = 0; r < job->rows; r++)
        add_scaled(job->tokens + (int64_t)job->ids[r] * job->hidden + first,
                   job->dx + r * job->hidden + first, job->scale, end - first);
}

/* The gradient of the embedding. */
static void embedding_backward(const plsh_trainer *t, const plsh_layer_pass *pass,
                               const int32_t *ids) {
    const plsh_model *model = t->model;
    const plsh_parameters *p = &t->parameters;
    const plsh_backward_buffers *g = &t->buffers.backward;
    const int64_t hidden = model->config.hidden;
    float *dx = g->dx;
    if (model->tokens_norm.weight) {
        for (int64_t r = 0; r < pass->rows; r++) {
            plsh_layer_token(model, ids[r], t->buffers.scratch + r * hidden);
        }
        plsh_rows_clear(model->threads, g->dn, pass->rows * hidden);
        plsh_norm_backward(&model->tokens_norm, plsh_norm_whole(&model->tokens_norm, pass->rows),
                           t->buffers.scratch, g->dx, g->dn, &p->tokens_norm, g->partial,
                           model->threads);
        dx = g->dn;
    }
    const float scale = (float)(model->config.embedding_scale * model->config.embedding_share);
    enum { LEAST = 64 }; /* columns of a chunk */
    scatter_job job = {p->tokens, dx, ids, pass->rows, hidden, scale};
    if (p->tokens) plsh_thread_rows(model->threads, hidden, LEAST, scatter, &job);
}

/* Logits are s (w / |w|) h for each row w of a normalised head. With g the gradient of s w h / |w|
 * where |w| is constant, that of w is g - (g.w / |w|^2) w: its part along w has no effect. Applied
 * to the sum of several passes, it takes nothing from those before. */
static void head_backward(const plsh_trainer *t) {
    const plsh_model *model = t->model;
    const int64_t hidden = model->config.hidden;
    float *gradient = t->parameters.head.weight;
    for (int64_t v = 0; model->head_scales && gradient && v < model->config.vocabulary; v++) {
        const float *w = (const float *)model->head.base.weight + v * hidden;
        float *g = gradient + v * hidden;
        double along = 0.0, square = 0.0;
        for (int64_t c = 0; c < hidden; c++) {
            along += (double)g[c] * (double)w[c];
            square += (double)w[c] * (double)w[c];
        }
        if (!(square > PLSH_HEAD_SHORTEST * PLSH_HEAD_SHORTEST)) continue;
        for (int64_t c = 0; c < hidden; c++) g[c] -= (float)(along / square * (double)w[c]);
    }
}

static void final_norm_backward(const plsh_trainer *t, const plsh_layer_pass *pass) {
    const plsh_model *model = t->model;
    const plsh_backward_buffers *g = &t->buffers.backward;
    plsh_rows_clear(model->threads, g->dx, pass->rows * model->config.hidden);
    plsh_norm_backward(&model->final_norm, plsh_norm_whole(&model->final_norm, pass->rows),
                       t->buffers.layer[model->config.layers - 1].y, g->dn, g->dx,
                       &t->parameters.final_norm, g->partial, model->threads);
}

/* d loss / d ln(slope) = -sigma d loss / d sigma. Each rank of a group has the sum over the group,
 * so only its first rank adds it. */
static void slopes_backward(const plsh_trainer *t, int64_t l) {
    const plsh_ranks *ranks = t->options.ranks;
    const int64_t heads = t->model->config.heads;
    if (!t->parameters.decay || t->attention[l].original || (ranks && ranks->rank > 0)) return;
    for (int64_t h = 0; h < heads; h++) {
        const double sigma = 1.0 / t->model->slopes[l * heads + h];
        t->parameters.gradient[l * heads + h] -= (float)(sigma * t->parameters.decay[2 * h]);
    }
}

/* An error in attention is known to one group only: all groups agree here before they wait for one
 * another. */
static plsh_status agree(const plsh_trainer *t, plsh_status status, plsh_error *error) {
    const plsh_ranks *ranks = t->options.ranks;
    return ranks && ranks->groups > 1 ? plsh_ranks_agree(ranks, status, error) : status;
}

/* Begins to add up the gradients of numbers first .. end - 1 over all ranks; this continues while
 * those of the next layer are computed. They include the gradients of earlier calls: the ranks add
 * up once a step. */
static plsh_status sum_gradients(const plsh_trainer *t, size_t first, size_t end,
                                 plsh_error *error) {
    const plsh_ranks *ranks = t->options.ranks;
    if (!ranks || t->micro_batches + 1 < plsh_trainer_micro_batches(t)) return PLSH_STATUS_OK;
    return ranks->sum_begin(ranks->context, t->parameters.gradient + first, end - first, error);
}

static plsh_status backward(plsh_trainer *t, plsh_layer_pass *pass, const int32_t *ids,
                            plsh_error *error) {
    const size_t *first = t->parameters.layer_first;
    const plsh_ranks *ranks = t->options.ranks;
    plsh_status status = PLSH_STATUS_OK;
    final_norm_backward(t, pass);
    for (int64_t l = t->model->config.layers - 1; !status && l >= 0; l--) {
        if (t->options.recompute && t->options.keep_attention)
            plsh_layer_forward_again(pass, l, &t->buffers.layer[l]);
        else if (t->options.recompute)
            status = forward_layer(t, pass, l, error);
        pass->attend.rotate = rotates(t, l);
        if (!status) {
            status = plsh_layer_backward(pass, l, &t->buffers.layer[l], &t->buffers.backward,
                                         &t->layer[l], &t->parameters.layer[l], error);
        }
        if (!status) slopes_backward(t, l);
        status = agree(t, status, error);
        if (!status) status = sum_gradients(t, first[l], first[l + 1], error);
    }
    if (!status && t->options.lora_rank == 0) embedding_backward(t, pass, ids);
    if (!status && first[0] > 0) status = sum_gradients(t, 0, first[0], error);
    plsh_status ended = ranks ? ranks->sum_end(ranks->context, error) : PLSH_STATUS_OK;
    return status ? status : ended;
}

/* ---- One pass -------------------------------------------------------------------------------- */

/* Row r of the group predicts the next token, except the last row of a window. */
static void fill_targets(const plsh_trainer *t, const share *own, const int32_t *ids) {
    for (int64_t r = own->rows.begin; r < own->rows.end; r++) {
        bool last = r % own->context + 1 == own->context;
        t->buffers.target[r - own->rows.begin] = last ? -1 : ids[r + 1];
    }
}

static plsh_sequences make_sequences(const plsh_trainer *t, const share *own) {
    const int64_t windows = own->windows.end - own->windows.begin;
    for (int64_t w = 0; w <= windows; w++) t->buffers.offsets[w] = w * own->context;
    return (plsh_sequences){.rows = own->group_rows,
                            .count = windows,
                            .offsets = t->buffers.offsets,
                            .ranks = t->options.ranks,
                            .own = own->rows};
}

/* The mean loss of the rows of all ranks. */
static plsh_status mean_loss(const plsh_trainer *t, double sum, double scored, double *loss,
                             plsh_error *error) {
    const plsh_ranks *ranks = t->options.ranks;
    plsh_status status = ranks ? ranks->sum(ranks->context, &sum, 1, error) : PLSH_STATUS_OK;
    if (status) return status;
    *loss = sum / scored;
    if (isfinite(*loss)) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_NOT_FINITE, "the loss is %g",
                     fabs(*loss)); /* prints nan, not -nan */
}

plsh_status plsh_trainer_pass(plsh_trainer *t, const int32_t *ids, int64_t context, int64_t windows,
                              double *loss, plsh_error *error) {
    const plsh_trainer_buffers *b = &t->buffers;
    const plsh_parameters *p = &t->parameters;
    const double scored = (double)(windows * (context - 1));
    share own = share_of(t, context, windows);
    plsh_layer_pass pass = make_pass(t, &own);
    plsh_sequences sequences = make_sequences(t, &own);
    ids += own.windows.begin * context;
    fill_targets(t, &own, ids);
    ids += own.rows.begin;
    if (!has_shape(t, &sequences)) fill_angles(t, &own);
    plsh_status status = make_plans(t, &sequences, error);
    if (!status) status = forward(t, &pass, ids, error);
    status = agree(t, status, error);
    if (status) return status;
    plsh_loss scores = {.h = b->h,
                        .targets = b->target,
                        .rows = pass.rows,
                        .divisor = scored,
                        .dh = b->backward.dn,
                        .dw = p->head.weight,
                        .logits = b->logits};
    plsh_model_head_scales(t->model);
    double sum = plsh_loss_run(&t->engine, t->model, &scores);
    head_backward(t);
    status = mean_loss(t, sum, scored, loss, error);
    return status ? status : backward(t, &pass, ids, error);
}
