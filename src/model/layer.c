/* model: one layer of a transformer, over rows of tokens: forward. */
#include "model/layer.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/thread.h"
#include "model/activation.h"
#include "model/rows.h"

plsh_layer_buffers plsh_layer_buffers_take(plsh_arena *arena, const plsh_model *model, float *x,
                                           int64_t rows, int64_t mlp_rows) {
    const plsh_model_config *c = &model->config;
    const plsh_layer *layer = &model->layer[0];
    const size_t n = (size_t)rows, hidden = (size_t)c->hidden;
    const size_t width = (size_t)(c->heads * c->head_dim);
    size_t up = 0;
    for (int i = 0; i < layer->up_count; i++) up += (size_t)layer->up[i].base.out;
    plsh_layer_buffers b = {
        .x = x ? x : plsh_arena_floats(arena, n * hidden),
        .n = plsh_arena_floats(arena, n * (hidden > width ? hidden : width)),
        .qkv = plsh_arena_floats(arena, n * (size_t)model->qkv.width),
        .u = plsh_arena_floats(arena, (size_t)mlp_rows * up),
        .a = plsh_arena_floats(arena, (size_t)mlp_rows * (size_t)c->intermediate),
        .rank = plsh_arena_floats(arena, n * (size_t)model->rank_max),
        .mlp_rows = mlp_rows};
    if (c->family->position == PLSH_POSITION_ROPE) {
        b.rope = plsh_arena_floats(arena, n * (size_t)c->head_dim);
    }
    /* They can share memory: n is read before o is written, and o before n is rewritten. */
    b.o = c->parallel ? plsh_arena_floats(arena, n * width) : b.n;
    b.mid = b.y = b.x;
    b.qk = b.qkv;
    return b;
}

static void add_bias(const float *bias, plsh_matrix y, int64_t rows, int64_t columns) {
    for (int64_t r = 0; bias && r < rows; r++) {
        float *row = y.data + r * y.stride;
        for (int64_t c = 0; c < columns; c++) row[c] += bias[c];
    }
}

/* y += scale B (A x). */
static void add_adapter(const plsh_linear_engine *engine, const plsh_model_linear *linear,
                        int64_t rows, plsh_const_matrix x, plsh_matrix y, float *rank) {
    plsh_linear_forward(engine, &linear->a, rows, x, (plsh_matrix){rank, linear->rank}, false);
    for (int64_t i = 0; i < rows * linear->rank; i++) rank[i] *= linear->scale;
    plsh_linear_forward(engine, &linear->b, rows, (plsh_const_matrix){rank, linear->rank}, y, true);
}

/* The same, with dropout of x before A. */
static void add_dropped_adapter(const plsh_layer_pass *pass, int64_t l, plsh_dropout_place place,
                                const plsh_model_linear *linear, int64_t rows, plsh_const_matrix x,
                                plsh_matrix y, const plsh_layer_buffers *b) {
    if (linear->rank == 0) return;
    const int64_t in = linear->base.in;
    plsh_dropout_apply((plsh_dropout_mask){&pass->dropout, l, place}, rows, in, x, b->drop,
                       pass->model->threads);
    add_adapter(pass->engine, linear, rows, (plsh_const_matrix){b->drop, in}, y, b->rank);
}

void plsh_model_linear_forward(const plsh_linear_engine *engine, const plsh_model_linear *linear,
                               int64_t rows, plsh_const_matrix x, plsh_matrix y, bool add,
                               float *rank) {
    if (add) add_bias(linear->base.bias, y, rows, linear->base.out);
    plsh_linear_forward(engine, &linear->base, rows, x, y, add);
    if (rank && linear->rank > 0) add_adapter(engine, linear, rows, x, y, rank);
}

/* Linear layers of one input, whose outputs lie side by side: those of qkv, or of up. */
typedef struct fan_out {
    const plsh_model_linear *linear;
    int count;
    plsh_dropout_place place; /* of their adapters' dropout */
} fan_out;

static void forward_fan_out(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b,
                            fan_out fan, int64_t rows, plsh_const_matrix x, plsh_matrix y) {
    plsh_linear base[3] = {0};
    plsh_matrix out[3] = {0};
    int64_t column = 0;
    for (int i = 0; i < fan.count; i++) {
        base[i] = fan.linear[i].base;
        out[i] = (plsh_matrix){y.data + column, y.stride};
        column += base[i].out;
    }
    plsh_linear_forward_many(pass->engine, base, out, fan.count, rows, x);
    for (int i = 0; i < fan.count; i++) {
        if (fan.linear[i].rank == 0) continue;
        if (pass->dropout.adapter > 0.0) {
            add_dropped_adapter(pass, l, fan.place, &fan.linear[i], rows, x, out[i], b);
        } else {
            add_adapter(pass->engine, &fan.linear[i], rows, x, out[i], b->rank);
        }
    }
}

/* q, k and v of the rows of a pass. */
static plsh_model_qkv qkv_of(const plsh_layer_pass *pass, int64_t l, const float *qk) {
    const plsh_qkv_layout *at = &pass->model->qkv;
    plsh_layout layout = {.head_stride = at->head_stride, .row_stride = at->width};
    return (plsh_model_qkv){.layer = l,
                            .position = pass->position,
                            .count = pass->rows,
                            .q = qk + at->q,
                            .k = qk + at->k,
                            .v = qk + at->v,
                            .q_layout = layout,
                            .k_layout = layout,
                            .v_layout = layout};
}

/* `width` numbers of every row: head by head, or all heads together, as wide as the norm is. */
static void normalise_heads(const plsh_norm *norm, float *x, int64_t width, int64_t rows,
                            int64_t stride) {
    plsh_norm_rows shape = {.rows = rows, .parts = width / norm->width, .stride = stride};
    plsh_norm_forward(norm, shape, x, x, 1);
}

static void rotate_rows(const plsh_model *model, const float *rope, float *qk, int64_t rows,
                        bool back) {
    const plsh_qkv_layout *at = &model->qkv;
    plsh_rope_heads q = {qk + at->q, rows, at->width, model->config.heads, at->head_stride};
    plsh_rope_heads k = {qk + at->k, rows, at->width, model->config.kv_heads, at->head_stride};
    plsh_rope_rotate(&model->rope, rope, q, back, 1);
    plsh_rope_rotate(&model->rope, rope, k, back, 1);
}

typedef struct rotate_job {
    const plsh_model *model;
    const float *rope;
    float *qk;
    bool back;
} rotate_job;

static void rotate_some(void *context, int64_t first, int64_t end, int slot) {
    const rotate_job *job = context;
    const plsh_model *model = job->model;
    (void)slot;
    rotate_rows(model, job->rope + first * model->config.head_dim,
                job->qk + first * model->qkv.width, end - first, job->back);
}

void plsh_layer_rotate(const plsh_layer_pass *pass, const float *rope, float *qk, bool back) {
    rotate_job job = {pass->model, rope, qk, back};
    plsh_thread_rows(pass->model->threads, pass->rows, 8, rotate_some, &job);
}

typedef struct prepare_job {
    const plsh_model *model;
    const plsh_layer *layer;
    const plsh_layer_buffers *b;
    bool rotate;
} prepare_job;

/* A few rows at a time go through all parts while they are in cache. */
static void prepare_rows(void *context, int64_t first, int64_t end, int slot) {
    enum { SOME = 16 };
    const prepare_job *job = context;
    const plsh_model_config *c = &job->model->config;
    const plsh_layer_buffers *b = job->b;
    const plsh_qkv_layout *at = &job->model->qkv;
    (void)slot;
    for (int64_t r = first, rows; r < end; r += rows) {
        rows = end - r < SOME ? end - r : SOME;
        float *qk = b->qk + r * at->width;
        if (b->qk != b->qkv)
            memcpy(qk, b->qkv + r * at->width, sizeof(float) * (size_t)(rows * at->width));
        if (job->layer->q_norm.weight) {
            normalise_heads(&job->layer->q_norm, qk + at->q, c->heads * c->head_dim, rows,
                            at->width);
            normalise_heads(&job->layer->k_norm, qk + at->k, c->kv_heads * c->head_dim, rows,
                            at->width);
        }
        if (job->rotate) rotate_rows(job->model, b->rope + r * c->head_dim, qk, rows, false);
    }
}

void plsh_layer_prepare_qk(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b,
                           bool rotate) {
    prepare_job job = {pass->model, &pass->model->layer[l], b, rotate};
    if (b->qk == b->qkv && !job.layer->q_norm.weight && !rotate) return;
    plsh_thread_rows(pass->model->threads, pass->rows, 8, prepare_rows, &job);
}

typedef struct clamp_job {
    float *x;
    int64_t width;
    float most;
} clamp_job;

static void clamp_rows(void *context, int64_t first, int64_t end, int slot) {
    const clamp_job *job = context;
    (void)slot;
    for (int64_t i = first * job->width; i < end * job->width; i++)
        job->x[i] = fminf(fmaxf(job->x[i], -job->most), job->most);
}

/* q, k and v are clamped as they are projected, before the norms of q and k. */
static void clamp_qkv(const plsh_layer_pass *pass, float *qkv) {
    const plsh_model *model = pass->model;
    clamp_job job = {qkv, model->qkv.width, (float)model->config.clip};
    if (model->config.clip > 0.0) plsh_thread_rows(model->threads, pass->rows, 8, clamp_rows, &job);
}

/* Calls the caller's pause function, which may end the pass. */
static plsh_status pause_pass(const plsh_layer_pass *pass, plsh_error *error) {
    if (!pass->pause.run || pass->pause.run(pass->pause.context)) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_CANCELLED, "the caller ended the pass");
}

/* qkv of x, as projected. */
static void project_qkv(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b,
                        const float *x) {
    const plsh_model *model = pass->model;
    const plsh_layer *layer = &model->layer[l];
    forward_fan_out(pass, l, b, (fan_out){layer->qkv, layer->qkv_count, PLSH_DROPOUT_QKV},
                    pass->rows, (plsh_const_matrix){x, model->config.hidden},
                    (plsh_matrix){b->qkv, model->qkv.width});
    clamp_qkv(pass, b->qkv);
}

/* o = attention(qkv(x)). */
static plsh_status attend(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b,
                          const float *x, plsh_error *error) {
    const plsh_layer_attend *attention = &pass->attend;
    const plsh_model_tap *tap = attention->tap && attention->tap->see ? attention->tap : NULL;
    const bool early = tap && !tap->after_rope;
    project_qkv(pass, l, b, x);
    plsh_model_qkv qkv = qkv_of(pass, l, b->qk);
    plsh_layer_prepare_qk(pass, l, b, attention->rotate && !early);
    if (tap) tap->see(tap->context, &qkv);
    if (attention->rotate && early) plsh_layer_rotate(pass, b->rope, b->qk, false);
    plsh_status status = pause_pass(pass, error);
    if (!status) status = attention->run(attention->context, &qkv, b->o, error);
    return status ? status : pause_pass(pass, error);
}

/* y += dropout(layer(x)), with the probability of hidden dropout. */
static void add_linear(const plsh_layer_pass *pass, int64_t l, plsh_dropout_place place,
                       const plsh_model_linear *linear, int64_t rows, plsh_const_matrix x, float *y,
                       const plsh_layer_buffers *b) {
    const int64_t hidden = pass->model->config.hidden;
    const double p = pass->dropout.hidden;
    plsh_dropout_place inside =
        place == PLSH_DROPOUT_ATTENTION_OUT ? PLSH_DROPOUT_O : PLSH_DROPOUT_DOWN;
    float *to = p > 0.0 ? b->wide : y;
    if (p > 0.0) plsh_rows_clear(pass->model->threads, to, rows * hidden);
    plsh_model_linear_forward(pass->engine, linear, rows, x, (plsh_matrix){to, hidden}, true,
                              pass->dropout.adapter > 0.0 ? NULL : b->rank);
    if (pass->dropout.adapter > 0.0) {
        add_dropped_adapter(pass, l, inside, linear, rows, x, (plsh_matrix){to, hidden}, b);
    }
    if (p == 0.0) return;
    plsh_dropout_apply((plsh_dropout_mask){&pass->dropout, l, place}, rows, hidden,
                       (plsh_const_matrix){to, hidden}, to, pass->model->threads);
    plsh_rows_add(pass->model->threads, y, to, rows * hidden);
}

/* u = up x. */
static void project_up(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b,
                       int64_t rows, const float *x) {
    const plsh_model_config *c = &pass->model->config;
    const plsh_layer *layer = &pass->model->layer[l];
    const int64_t width = c->mlp != PLSH_MLP_PLAIN ? 2 * c->intermediate : c->intermediate;
    forward_fan_out(pass, l, b, (fan_out){layer->up, layer->up_count, PLSH_DROPOUT_UP}, rows,
                    (plsh_const_matrix){x, c->hidden}, (plsh_matrix){b->u, width});
}

/* y += down(act(up x)), in chunks of rows. */
static plsh_status add_mlp(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b,
                           const float *x, float *y, plsh_error *error) {
    const plsh_model_config *c = &pass->model->config;
    const plsh_layer *layer = &pass->model->layer[l];
    bool gated = c->mlp != PLSH_MLP_PLAIN;
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t first = 0; !status && first < pass->rows; first += b->mlp_rows) {
        int64_t left = pass->rows - first, count = left < b->mlp_rows ? left : b->mlp_rows;
        project_up(pass, l, b, count, x + first * c->hidden);
        plsh_activation_forward(c->activation, gated, b->u, b->a, count, c->intermediate,
                                pass->model->threads);
        add_linear(pass, l, PLSH_DROPOUT_MLP_OUT, &layer->down, count,
                   (plsh_const_matrix){b->a, c->intermediate}, y + first * c->hidden, b);
        status = pause_pass(pass, error);
    }
    return status;
}

static void normalise(const plsh_norm *norm, const float *x, float *y, int64_t rows, int threads) {
    plsh_norm_forward(norm, plsh_norm_whole(norm, rows), x, y, threads);
}

/* Rows of x that are normalised to n, and copied to y where that is another array. */
typedef struct norm_copy {
    const plsh_norm *norm;
    const float *x;
    float *n, *y;
} norm_copy;

static void normalise_rows(void *context, int64_t first, int64_t end, int slot) {
    const norm_copy *job = context;
    const int64_t at = first * job->norm->width, numbers = (end - first) * job->norm->width;
    (void)slot;
    normalise(job->norm, job->x + at, job->n + at, end - first, 1);
    if (job->y != job->x) memcpy(job->y + at, job->x + at, sizeof(float) * (size_t)numbers);
}

static void normalise_and_copy(const plsh_norm *norm, const float *x, float *n, float *y,
                               int64_t rows, int threads) {
    norm_copy job = {norm, x, n, y};
    plsh_thread_rows(threads, rows, 8, normalise_rows, &job);
}

plsh_status plsh_layer_forward(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b,
                               plsh_error *error) {
    const plsh_model *model = pass->model;
    const plsh_model_config *c = &model->config;
    const plsh_layer *layer = &model->layer[l];
    const bool post = c->family->post_norm;
    const int64_t rows = pass->rows, numbers = rows * c->hidden;
    if (!post) normalise_and_copy(&layer->attention_norm, b->x, b->n, b->mid, rows, model->threads);
    plsh_status status = attend(pass, l, b, post ? b->x : b->n, error);
    if (status) return status;
    /* x is needed later, but mid may be the same array: it is copied to the memory of q, k and v,
     * which have been read. */
    if (layer->attention_norm_2.weight) plsh_rows_copy(model->threads, b->qkv, b->x, numbers);
    if (post) plsh_rows_copy(model->threads, b->mid, b->x, numbers);
    add_linear(pass, l, PLSH_DROPOUT_ATTENTION_OUT, &layer->attention_out, rows,
               (plsh_const_matrix){b->o, c->heads * c->head_dim}, b->mid, b);
    if (post) {
        normalise(&layer->attention_norm, b->mid, b->mid, rows, model->threads);
    } else if (!c->parallel) {
        normalise_and_copy(&layer->mlp_norm, b->mid, b->n, b->y, rows, model->threads);
    }
    if (layer->attention_norm_2.weight) {
        plsh_rows_add(model->threads, b->mid, b->qkv, numbers);
        normalise(&layer->attention_norm_2, b->mid, b->mid, rows, model->threads);
    }
    if (post) plsh_rows_copy(model->threads, b->n, b->mid, numbers);
    if (post || c->parallel) plsh_rows_copy(model->threads, b->y, b->mid, numbers);
    status = add_mlp(pass, l, b, b->n, b->y, error);
    if (!status && post) normalise(&layer->mlp_norm, b->y, b->y, rows, model->threads);
    return status;
}

void plsh_layer_forward_again(const plsh_layer_pass *pass, int64_t l, const plsh_layer_buffers *b) {
    const plsh_model *model = pass->model;
    const plsh_model_config *c = &model->config;
    const plsh_layer *layer = &model->layer[l];
    const int64_t rows = pass->rows;
    normalise_and_copy(&layer->attention_norm, b->x, b->n, b->mid, rows, model->threads);
    project_qkv(pass, l, b, b->n);
    add_linear(pass, l, PLSH_DROPOUT_ATTENTION_OUT, &layer->attention_out, rows,
               (plsh_const_matrix){b->o, c->heads * c->head_dim}, b->mid, b);
    if (!c->parallel) normalise(&layer->mlp_norm, b->mid, b->n, rows, model->threads);
    project_up(pass, l, b, rows, b->n);
}

/* Position and type are added to a row before its norm; `scratch` holds a row. */
static void finish_embedding(const plsh_model *model, int64_t position, int64_t type, float *row,
                             float *scratch) {
    const int64_t hidden = model->config.hidden;
    if (model->positions) {
        plsh_tensor_to_float(model->positions, position, 1, scratch);
        for (int64_t c = 0; c < hidden; c++) row[c] += scratch[c];
    }
    for (int64_t c = 0; model->types && c < hidden; c++) row[c] += model->types[type * hidden + c];
}

void plsh_layer_token(const plsh_model *model, int32_t id, float *row) {
    const float scale = (float)model->config.embedding_scale;
    plsh_tensor_to_float(model->tokens, id, 1, row);
    for (int64_t c = 0; scale != 1.0f && c < model->config.hidden; c++) row[c] *= scale;
}

void plsh_layer_embed(const plsh_model *model, const int32_t *ids, const int32_t *types,
                      const int64_t *position, int64_t rows, float *x, float *scratch) {
    const int64_t hidden = model->config.hidden;
    for (int64_t r = 0; r < rows; r++) {
        plsh_layer_token(model, ids[r], x + r * hidden);
        finish_embedding(model, position ? position[r] : r, types ? types[r] : 0, x + r * hidden,
                         scratch);
    }
    if (model->tokens_norm.weight) normalise(&model->tokens_norm, x, x, rows, model->threads);
}

typedef struct scale_job {
    float *z;
    const float *scales; /* or NULL */
    int64_t width;
    float scale;
} scale_job;

static void scale_rows(void *context, int64_t first, int64_t end, int slot) {
    const scale_job *job = context;
    (void)slot;
    for (int64_t r = first; r < end; r++) {
        float *row = job->z + r * job->width;
        for (int64_t c = 0; job->scales && c < job->width; c++) row[c] *= job->scales[c];
        for (int64_t c = 0; job->scale != 1.0f && c < job->width; c++) row[c] *= job->scale;
    }
}

void plsh_layer_scale_logits(const plsh_model *model, int64_t rows, float *logits) {
    scale_job job = {logits, model->head_scales, model->config.vocabulary,
                     (float)model->config.logit_scale};
    if (!job.scales && job.scale == 1.0f) return;
    plsh_thread_rows(model->threads, rows, 1, scale_rows, &job);
}

void plsh_layer_logits(const plsh_linear_engine *engine, const plsh_model *model, int64_t rows,
                       const float *x, float *logits, float *rank) {
    const plsh_model_config *c = &model->config;
    plsh_model_linear_forward(engine, &model->head, rows, (plsh_const_matrix){x, c->hidden},
                              (plsh_matrix){logits, c->vocabulary}, false, rank);
    plsh_layer_scale_logits(model, rows, logits);
}

plsh_status plsh_layer_check_ids(const plsh_model *model, const int32_t *ids, int64_t count,
                                 plsh_error *error) {
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] >= 0 && ids[i] < model->config.vocabulary) continue;
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "token %lld is %d; this model has 0 to %lld, so the ids are of another "
                         "tokenizer",
                         (long long)i, (int)ids[i], (long long)model->config.vocabulary - 1);
    }
    return PLSH_STATUS_OK;
}
