/* train: trainers: making them, and the steps of AdamW. */
#include "train/trainer.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clones.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "model/attention.h"
#include "train/loss.h"

enum {
    CHUNK = 4096
}; /* numbers per partial sum of squares; the partial sums are then added in order */

/* ---- Making ---------------------------------------------------------------------------------- */

static plsh_status check_options(const plsh_train_options *o, plsh_error *error) {
    bool sizes = o->context >= 2 && o->batch >= 1 && o->context <= (INT64_C(1) << 40) / o->batch;
    if (!sizes) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "windows of %lld tokens, %lld at once; at least 2, and 1",
                         (long long)o->context, (long long)o->batch);
    }
    if (o->lora_rank < 0 || o->lora_rank > 65536 || !(o->lora_alpha >= 0.0) ||
        !(o->lora_dropout >= 0.0 && o->lora_dropout < 1.0) || !(o->dropout < 1.0)) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "LoRA of rank %lld, alpha %g, dropout %g, and dropout %g of hidden states",
                         (long long)o->lora_rank, o->lora_alpha, o->lora_dropout, o->dropout);
    }
    if (o->keep_attention && !o->recompute)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "keep_attention without recompute: only what is recomputed can be kept");
    if (o->compute == PLSH_COMPUTE_INT8)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "compute is int8, which has no gradients; float32 or bfloat16");
    for (size_t i = 0; i < o->lora_target_count; i++) {
        if (!o->lora_targets || !o->lora_targets[i]) {
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "lora_target_count is %zu, and %s is NULL; give the names of modules, "
                             "or NULL and 0",
                             o->lora_target_count,
                             o->lora_targets ? "one of them" : "lora_targets");
        }
    }
    return PLSH_STATUS_OK;
}

/* ---- Slopes that are learned ----------------------------------------------------------------- */

static bool has_slope(const plsh_head *head) {
    return head->method != PLSH_METHOD_NONE && head->method != PLSH_METHOD_FIXED;
}

/* The attention of a layer that learns its slopes: the model's own ALiBi becomes a list of heads
 * whose slopes change. */
static plsh_status open_slopes(plsh_trainer *t, int64_t l, plsh_error *error) {
    const plsh_model_config *c = &t->model->config;
    const bool alibi = c->family->position == PLSH_POSITION_ALIBI ||
                       c->family->position == PLSH_POSITION_ALIBI_SCALED;
    if (t->attention[l].original && !alibi) return PLSH_STATUS_OK;
    t->attention[l].original = false;
    for (int64_t h = 0; h < c->heads; h++) {
        const plsh_head *head = &t->heads[l * c->heads + h];
        if (!has_slope(head)) continue;
        if (head->partition.decay.kind != PLSH_DECAY_ALIBI) {
            return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                             "layer %lld, head %lld: slopes are learned of ALiBi alone",
                             (long long)l, (long long)h);
        }
        t->model->slopes[l * c->heads + h] = 1.0 / head->partition.decay.a;
        t->slopes++;
    }
    return PLSH_STATUS_OK;
}

static plsh_status open_all_slopes(plsh_trainer *t, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t l = 0; !status && l < t->model->config.layers; l++) {
        status = open_slopes(t, l, error);
    }
    if (status || t->slopes > 0) return status;
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "there are no slopes to learn: no layer's attention has a bias");
}

void plsh_trainer_apply_slopes(plsh_trainer *t) {
    const plsh_model_config *c = &t->model->config;
    const float *value = t->parameters.value; /* the slopes are the first parameters */
    if (!t->options.learn_slopes) return;
    t->model->slopes_learned = true;
    for (int64_t i = 0; i < c->layers * c->heads; i++) {
        t->model->slopes[i] = exp((double)value[i]);
        bool own = !t->attention[i / c->heads].original && has_slope(&t->heads[i]);
        if (own) t->heads[i].partition.decay.a = 1.0 / t->model->slopes[i];
    }
}

/* Makes one choice per layer with heads of its own, so that every head has its own draws. */
static plsh_status copy_attention(plsh_trainer *t, const plsh_train_options *o, plsh_error *error) {
    const plsh_model_config *c = &t->model->config;
    plsh_status status =
        plsh_model_attention_check(t->model, o->attention, o->attention_count, error);
    if (status || (o->attention_count == 0 && !o->learn_slopes)) return status;
    const plsh_layer_attention original = {.original = true};
    status = plsh_allocate((void **)&t->attention, (size_t)c->layers, sizeof(*t->attention),
                           "layers", error);
    if (!status) {
        status = plsh_allocate((void **)&t->heads, (size_t)(c->layers * c->heads),
                               sizeof(*t->heads), "heads", error);
    }
    for (int64_t l = 0; !status && l < c->layers; l++) {
        const plsh_layer_attention *from =
            plsh_model_attention_at(o->attention, o->attention_count, l);
        if (!from) from = &original;
        plsh_model_attention_heads(t->model, from, l, o->context, t->heads + l * c->heads);
        t->attention[l] = *from;
        t->attention[l].head = t->heads + l * c->heads;
        t->attention[l].head_count = c->heads;
    }
    return status;
}

/* The output of attention and its lse. Every layer keeps its own, unless it is recomputed
 * (recompute without keep_attention): then all layers share one. */
static void take_outputs(plsh_arena *arena, const plsh_model *model, size_t n,
                         plsh_layer_buffers *b) {
    const plsh_model_config *c = &model->config;
    b->o = plsh_arena_floats(arena, n * (size_t)(c->heads * c->head_dim));
    b->lse = plsh_arena_floats(arena, n * (size_t)c->heads);
}

/* Buffers that a layer keeps, or, with recomputation, all layers share. */
static void take_kept(plsh_arena *arena, const plsh_model *model, size_t n, plsh_layer_buffers *b) {
    const plsh_model_config *c = &model->config;
    const plsh_layer *layer = &model->layer[0];
    size_t up = 0;
    for (int i = 0; i < layer->up_count; i++) up += (size_t)layer->up[i].base.out;
    b->mid = plsh_arena_floats(arena, n * (size_t)c->hidden);
    b->qkv = plsh_arena_floats(arena, n * (size_t)model->qkv.width);
    b->u = plsh_arena_floats(arena, n * up);
}

/* Is there dropout of hidden states? */
static bool drops_hidden(const plsh_trainer *t) {
    return (t->options.dropout < 0.0 ? t->model->config.dropout : t->options.dropout) > 0.0;
}

/* Buffers that all layers share, one after the other. */
static plsh_layer_buffers take_shared(plsh_arena *arena, const plsh_trainer *t, size_t n) {
    const plsh_model *model = t->model;
    const plsh_model_config *c = &model->config;
    const size_t hidden = (size_t)c->hidden;
    plsh_layer_buffers b = {.n = plsh_arena_floats(arena, n * hidden),
                            .qk = plsh_arena_floats(arena, n * (size_t)model->qkv.width),
                            .a = plsh_arena_floats(arena, n * (size_t)c->intermediate),
                            .rank = plsh_arena_floats(arena, n * (size_t)model->rank_max),
                            .mlp_rows = (int64_t)n};
    if (c->family->position == PLSH_POSITION_ROPE) {
        b.rope = plsh_arena_floats(arena, n * (size_t)c->head_dim);
    }
    size_t widest = hidden > (size_t)c->intermediate ? hidden : (size_t)c->intermediate;
    size_t attention = (size_t)(c->heads * c->head_dim);
    b.wide = plsh_arena_floats(arena, drops_hidden(t) ? n * hidden : 0);
    b.drop = plsh_arena_floats(
        arena, t->options.lora_dropout > 0.0 ? n * (widest > attention ? widest : attention) : 0);
    return b;
}

/* The most rows of a pass: those of the first rank, which never has fewer than others. */
static int64_t most_rows(const plsh_trainer *t) {
    const plsh_ranks *ranks = t->options.ranks;
    const int64_t groups = ranks ? ranks->groups : 1, count = ranks ? ranks->ranks : 1;
    const int64_t windows = (t->options.batch + groups - 1) / groups;
    return (windows * t->options.context + count - 1) / count;
}

static void lay_out(plsh_trainer *t, plsh_arena *arena) {
    const plsh_model *model = t->model;
    const plsh_model_config *c = &model->config;
    const size_t n = (size_t)most_rows(t), hidden = (size_t)c->hidden;
    plsh_trainer_buffers *b = &t->buffers;
    t->engine.workspace = plsh_arena_take(arena, plsh_linear_workspace(model->threads), 1);
    b->layer = plsh_arena_take(arena, (size_t)c->layers, sizeof(*b->layer));
    b->x = plsh_arena_floats(arena, ((size_t)c->layers + 1) * n * hidden);
    plsh_layer_buffers shared = take_shared(arena, t, n);
    const bool again = t->options.recompute, all = again && !t->options.keep_attention;
    if (again) take_kept(arena, model, n, &shared);
    if (all) take_outputs(arena, model, n, &shared);
    for (int64_t l = 0; l < c->layers; l++) {
        if (!again) take_kept(arena, model, n, &shared);
        if (!all) take_outputs(arena, model, n, &shared);
        shared.x = b->x ? b->x + (size_t)l * n * hidden : NULL;
        shared.y = b->x ? b->x + (size_t)(l + 1) * n * hidden : NULL;
        if (b->layer) b->layer[l] = shared;
    }
    b->backward = plsh_backward_buffers_take(arena, model, (int64_t)n, drops_hidden(t));
    b->h = plsh_arena_floats(arena, n * hidden);
    b->scratch = plsh_arena_floats(arena, model->tokens_norm.weight ? n * hidden : hidden);
    b->logits =
        plsh_arena_floats(arena, (size_t)plsh_loss_rows(c->vocabulary) * (size_t)c->vocabulary);
    b->target = plsh_arena_take(arena, n, sizeof(int32_t));
    b->offsets = plsh_arena_take(arena, (size_t)t->options.batch + 1, sizeof(int64_t));
    t->partial = plsh_arena_take(arena, t->parameters.numbers / CHUNK + 1, sizeof(double));
}

static plsh_status make_buffers(plsh_trainer *t, plsh_error *error) {
    plsh_arena arena = {0};
    lay_out(t, &arena);
    if (arena.overflow) {
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "batches of %lld windows of %lld tokens",
                         (long long)t->options.batch, (long long)t->options.context);
    }
    plsh_status status =
        plsh_allocate((void **)&t->memory, arena.used, 1, "the activations of a batch", error);
    if (status) return status;
    arena = (plsh_arena){.memory = t->memory};
    lay_out(t, &arena);
    return PLSH_STATUS_OK;
}

/* The dropout of the configuration is checked only if the options do not override it. */
static plsh_status check_dropout(const plsh_model_config *c, const plsh_train_options *options,
                                 plsh_error *error) {
    const double hidden = c->dropout, weights = c->attention_dropout;
    if (options->dropout >= 0.0 ||
        (hidden >= 0.0 && hidden < 1.0 && weights >= 0.0 && weights < 1.0)) {
        return PLSH_STATUS_OK;
    }
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "the configuration drops %g of hidden states and %g of attention weights; at "
                     "least 0, and less than 1; or give a dropout of 0 or more",
                     hidden, weights);
}

static plsh_status build(plsh_trainer *t, const char *path, const plsh_train_options *options,
                         plsh_error *error) {
    plsh_model_options open = {
        .adapter = options->adapter,
        .threads = options->threads,
        .isa = options->isa,
        .family = options->family,
        .compute = options->compute == PLSH_COMPUTE_AUTO ? PLSH_COMPUTE_FLOAT32 : options->compute};
    plsh_status status = check_options(options, error);
    if (!status) status = plsh_model_open(&t->model, path, &open, error);
    if (status) return status;
    t->model->changes = true;
    if (!t->model->config.family->causal) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s: encoders are not trained here",
                         t->model->config.family->name);
    }
    if (!t->model->head.base.weight) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: the file has no output matrix, as those of embedders; the loss needs "
                         "one",
                         path);
    }
    if (options->lora_rank == 0 && t->model->config.gguf) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: all weights are trained in a folder of safetensors (plsh convert "
                         "makes one); a GGUF takes adapters",
                         path);
    }
    if (t->model->config.gguf && t->model->config.family->split_gguf) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: a GGUF of %s has layers apart that its adapters join; train in a "
                         "folder of safetensors (plsh convert makes one)",
                         path, t->model->config.family->name);
    }
    status = check_dropout(&t->model->config, options, error);
    if (status) return status;
    t->options = *options;
    t->engine = plsh_model_engine(t->model);
    status = plsh_allocate((void **)&t->layer, (size_t)t->model->config.layers, sizeof(*t->layer),
                           "layers", error);
    if (!status) status = copy_attention(t, options, error);
    if (!status && options->learn_slopes) status = open_all_slopes(t, error);
    if (!status) status = plsh_parameters_make(&t->parameters, t->model, options, error);
    if (!status) status = make_buffers(t, error);
    if (!status) plsh_trainer_apply_slopes(t);
    return status;
}

plsh_status plsh_trainer_create(plsh_trainer **out, const char *path,
                                const plsh_train_options *options, plsh_error *error) {
    plsh_trainer *t;
    *out = NULL;
    plsh_status status = plsh_allocate((void **)&t, 1, sizeof(*t), "trainer", error);
    if (!status) status = build(t, path, options, error);
    status = plsh_ranks_agree(options->ranks, status, error);
    if (status) {
        plsh_trainer_destroy(t);
        return status;
    }
    *out = t;
    return PLSH_STATUS_OK;
}

void plsh_trainer_destroy(plsh_trainer *t) {
    if (!t) return;
    for (int64_t l = 0; t->layer && l < t->model->config.layers; l++) {
        plsh_sequence_attention_clear(&t->layer[l]);
    }
    plsh_release(t->layer);
    plsh_parameters_clear(&t->parameters);
    plsh_release(t->attention);
    plsh_release(t->heads);
    plsh_release(t->memory);
    plsh_model_close(t->model);
    plsh_release(t);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

void plsh_trainer_drop_gradients(plsh_trainer *t) {
    memset(t->parameters.gradient, 0, t->parameters.numbers * sizeof(float));
    t->micro_batches = 0;
}

int64_t plsh_trainer_micro_batches(const plsh_trainer *t) {
    return t->options.micro_batches > 0 ? t->options.micro_batches : 1;
}

static plsh_status check_ranks(const plsh_trainer *t, int64_t windows, plsh_error *error) {
    const plsh_ranks *ranks = t->options.ranks;
    if (ranks && windows < ranks->groups) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld windows for %lld groups of ranks; one for each, at least",
                         (long long)windows, (long long)ranks->groups);
    }
    if (ranks && t->micro_batches >= plsh_trainer_micro_batches(t)) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "micro-batch %lld of a step; micro_batches is %lld: ranks add up their "
                         "gradients in the last",
                         (long long)t->micro_batches + 1, (long long)plsh_trainer_micro_batches(t));
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_trainer_accumulate(plsh_trainer *t, const int32_t *ids, int64_t context,
                                    int64_t windows, double *loss, plsh_error *error) {
    if (context < 2 || windows < 1 || context > t->options.context || windows > t->options.batch) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%lld windows of %lld tokens; 1 to %lld, of 2 to %lld", (long long)windows,
                         (long long)context, (long long)t->options.batch,
                         (long long)t->options.context);
    }
    plsh_status status = check_ranks(t, windows, error);
    if (status) return status;
    status = plsh_layer_check_ids(t->model, ids, context * windows, error);
    if (status) return status;
    status = plsh_trainer_pass(t, ids, context, windows, loss, error);
    if (status)
        plsh_trainer_drop_gradients(t);
    else
        t->micro_batches++;
    return status;
}

/* The sum of the squares, in partial sums that are added in order. */
PLSH_CLONES static double squares(const float *x, size_t count) {
    enum { SUMS = 16 };
    double sum[SUMS] = {0}, all = 0.0;
    size_t i = 0;
    for (; i + SUMS <= count; i += SUMS) {
        for (size_t j = 0; j < SUMS; j++) sum[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (size_t j = 0; i < count; i++, j++) sum[j] += (double)x[i] * (double)x[i];
    for (size_t j = 0; j < SUMS; j++) all += sum[j];
    return all;
}

static void sum_squares(void *context, int64_t chunk, int slot) {
    const plsh_trainer *t = context;
    const plsh_parameters *p = &t->parameters;
    const size_t first = (size_t)chunk * CHUNK, left = p->numbers - first;
    (void)slot;
    t->partial[chunk] = squares(p->gradient + first, left < CHUNK ? left : CHUNK);
}

/* The norm of all gradients: sums of chunks, added in order. */
static double gradient_norm(plsh_trainer *t, double divisor) {
    const int64_t chunks = (int64_t)((t->parameters.numbers + CHUNK - 1) / CHUNK);
    double total = 0.0;
    plsh_thread_run(t->engine.threads, chunks, sum_squares, t);
    for (int64_t c = 0; c < chunks; c++) total += t->partial[c];
    return sqrt(total) / divisor;
}

/* One step of AdamW on every number, see plsh_update. */
typedef struct rates {
    float scale;                      /* of gradients */
    float keep;                       /* 1 - rate * decay */
    float beta1, rest1, beta2, rest2; /* rest = 1 - beta */
    float step, root, eps;
} rates;

/* Are all of them finite afterwards? */
PLSH_CLONES static bool update_numbers(float *restrict value, float *restrict gradient,
                                       float *restrict m, float *restrict v, size_t count,
                                       rates r) {
    int bad = 0;
    for (size_t i = 0; i < count; i++) {
        float g = gradient[i] * r.scale;
        m[i] = r.beta1 * m[i] + r.rest1 * g;
        v[i] = r.beta2 * v[i] + r.rest2 * g * g;
        value[i] = value[i] * r.keep - r.step * m[i] / (sqrtf(v[i]) * r.root + r.eps);
        gradient[i] = 0.0f;
        bad |= !(fabsf(value[i]) <= FLT_MAX) | !(v[i] <= FLT_MAX);
    }
    return !bad;
}

/* The arguments of an update, which all chunks share. */
typedef struct update {
    const plsh_parameters *p;
    rates decayed, plain;
    bool decay_matrices_only;
    atomic_bool lost;
} update;

enum { UPDATE = 4 * CHUNK }; /* numbers of a chunk: 460 KiB read and written */

/* The numbers of one chunk, parameter by parameter. */
static void update_chunk(void *context, int64_t chunk, int slot) {
    update *u = context;
    const plsh_parameters *p = u->p;
    const size_t begin = (size_t)chunk * UPDATE, end = begin + UPDATE;
    (void)slot;
    for (size_t i = 0; i < p->count; i++) {
        const plsh_parameter *which = &p->list[i];
        const size_t first = which->first > begin ? which->first : begin;
        const size_t last = which->first + which->count < end ? which->first + which->count : end;
        if (first >= last) continue;
        const bool bare = which->not_a_weight || (u->decay_matrices_only && !which->matrix);
        if (!update_numbers(p->value + first, p->gradient + first, p->m + first, p->v + first,
                            last - first, bare ? u->plain : u->decayed))
            atomic_store(&u->lost, true);
    }
}

static double beta1_of(const plsh_update *u) { return u->beta1 > 0.0 ? u->beta1 : 0.9; }
static double beta2_of(const plsh_update *u) { return u->beta2 > 0.0 ? u->beta2 : 0.999; }

static rates make_rates(const plsh_trainer *t, const plsh_update *u, double scale) {
    const double beta1 = beta1_of(u), beta2 = beta2_of(u);
    const double step = (double)(t->steps + 1);
    return (rates){.scale = (float)scale,
                   .keep = (float)(1.0 - u->learning_rate * u->weight_decay),
                   .beta1 = (float)beta1,
                   .rest1 = (float)(1.0 - beta1),
                   .beta2 = (float)beta2,
                   .rest2 = (float)(1.0 - beta2),
                   .step = (float)(u->learning_rate / (1.0 - pow(beta1, step))),
                   .root = (float)(1.0 / sqrt(1.0 - pow(beta2, step))),
                   .eps = (float)(u->eps > 0.0 ? u->eps : 1e-8)};
}

plsh_status plsh_trainer_update(plsh_trainer *t, const plsh_update *u, double *norm,
                                plsh_error *error) {
    const plsh_parameters *p = &t->parameters;
    const double divisor = u->accumulated > 0 ? (double)u->accumulated : 1.0;
    if (!((float)beta1_of(u) < 1.0f && (float)beta2_of(u) < 1.0f)) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "the betas of AdamW are %g and %g; below 1, also as float32", beta1_of(u),
                         beta2_of(u));
    }
    if (t->options.ranks && t->micro_batches != plsh_trainer_micro_batches(t)) {
        return plsh_fail(
            error, PLSH_STATUS_INVALID,
            "an update after %lld micro-batches; micro_batches is %lld: ranks have not added up "
            "their gradients",
            (long long)t->micro_batches, (long long)plsh_trainer_micro_batches(t));
    }
    *norm = gradient_norm(t, divisor);
    t->micro_batches = 0;
    if (!isfinite(*norm)) {
        plsh_trainer_drop_gradients(t);
        return plsh_fail(error, PLSH_STATUS_NOT_FINITE, "the norm of the gradients is %g",
                         fabs(*norm)); /* prints nan, not -nan */
    }
    double clip = u->clip > 0.0 ? fmin(1.0, u->clip / (*norm + 1e-6)) : 1.0;
    update all = {.p = p,
                  .decayed = make_rates(t, u, clip / divisor),
                  .decay_matrices_only = u->decay_matrices_only};
    all.plain = all.decayed;
    all.plain.keep = 1.0f;
    plsh_thread_run(t->engine.threads, (int64_t)((p->numbers + UPDATE - 1) / UPDATE), update_chunk,
                    &all);
    t->steps++;
    plsh_trainer_apply_slopes(t);
    if (!atomic_load(&all.lost)) return PLSH_STATUS_OK;
    t->lost = true;
    return plsh_fail(error, PLSH_STATUS_NOT_FINITE,
                     "weights or moments are not finite after the update");
}

/* ---- Accessors ------------------------------------------------------------------------------- */

const plsh_model *plsh_trainer_model(const plsh_trainer *t) { return t->model; }
int64_t plsh_trainer_steps(const plsh_trainer *t) { return t->steps; }
bool plsh_trainer_lost(const plsh_trainer *t) { return t->lost; }
size_t plsh_trainer_count(const plsh_trainer *t) { return t->parameters.count; }

plsh_trained plsh_trainer_at(const plsh_trainer *t, size_t index) {
    const plsh_parameters *p = &t->parameters;
    const plsh_parameter *which = &p->list[index];
    return (plsh_trained){.name = which->name,
                          .rows = which->rows,
                          .columns = which->columns,
                          .value = p->value + which->first,
                          .gradient = p->gradient + which->first,
                          .m = p->m + which->first,
                          .v = p->v + which->first};
}
