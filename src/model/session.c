/* model: sessions: the caches of all layers, and steps through them. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/attention.h"
#include "model/layer.h"
#include "model/session.h"

enum {
    /* Tokens per pass: enough rows for linear layers to reach their full speed (256 to 1024 are
     * within 3 % of each other on a model of 135 million weights), few enough to stay in cache. */
    DEFAULT_CHUNK = 512,
    LONGEST_CHUNK = 1 << 16
};

/* ---- Making ---------------------------------------------------------------------------------- */

/* One copy of the choices and of all heads that they name. */
static plsh_status copy_attention(plsh_session *session, const plsh_session_options *options,
                                  plsh_error *error) {
    const plsh_model *model = session->model;
    int64_t count = options->attention_count;
    plsh_status status =
        plsh_model_attention_check(model, options->attention, options->attention_count, error);
    if (status || count == 0) return status;
    size_t heads = (size_t)(count * model->config.heads);
    status = plsh_allocate((void **)&session->attention, (size_t)count, sizeof(*session->attention),
                           "layers", error);
    if (!status) {
        status = plsh_allocate((void **)&session->heads, heads, sizeof(plsh_head), "heads", error);
    }
    for (int64_t i = 0; !status && i < count; i++) {
        const plsh_layer_attention *from = &options->attention[i];
        plsh_layer_attention *to = &session->attention[i];
        plsh_head *head = session->heads + i * model->config.heads;
        *to = *from;
        to->head = head;
        if (!from->original) {
            memcpy(head, from->head, (size_t)from->head_count * sizeof(plsh_head));
        }
    }
    session->attention_count = count;
    return status;
}

static plsh_cache_config cache_config(const plsh_session *session, int64_t layer, plsh_head *head) {
    const plsh_model_config *c = &session->model->config;
    const plsh_layer_attention *attention =
        plsh_model_attention_at(session->attention, session->attention_count, layer);
    plsh_model_attention_heads(session->model, attention, layer, head);
    return (plsh_cache_config){.heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .head_dim = c->head_dim,
                               .dtype = session->kv,
                               .scale = c->scale,
                               .head = head,
                               .head_count = c->heads,
                               .undo = session->undo,
                               .threads = session->model->threads,
                               .isa = session->model->isa};
}

/* What a chunk of rows works in. */
static void lay_out(plsh_session *session, plsh_arena *arena) {
    const plsh_model *model = session->model;
    session->buffers = plsh_layer_buffers_take(arena, model, NULL, session->chunk, session->chunk);
    session->engine.workspace = plsh_arena_take(arena, plsh_linear_workspace(model->threads), 1);
}

static plsh_status make_buffers(plsh_session *session, plsh_error *error) {
    plsh_arena arena = {0};
    lay_out(session, &arena);
    if (arena.overflow) {
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "a chunk of %lld tokens is too long",
                         (long long)session->chunk);
    }
    plsh_status status = plsh_allocate((void **)&session->memory, arena.used, 1,
                                       "the activations of a session", error);
    if (status) return status;
    arena = (plsh_arena){.memory = session->memory};
    lay_out(session, &arena);
    return PLSH_STATUS_OK;
}

/* Everything but the caches. */
static plsh_status begin(plsh_session **out, const plsh_model *model,
                         const plsh_session_options *options, plsh_error *error) {
    const plsh_session_options none = {0};
    if (!options) options = &none;
    *out = NULL;
    if (!model->config.family->causal) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s is an encoder, which has no sessions; it embeds",
                         model->config.family->name);
    }
    if (options->chunk < 0 || options->chunk > LONGEST_CHUNK || options->undo < 0) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "chunk is %lld and undo %lld; 0 to %d, and not negative",
                         (long long)options->chunk, (long long)options->undo, LONGEST_CHUNK);
    }
    plsh_session *session;
    plsh_status status = plsh_allocate((void **)&session, 1, sizeof(*session), "session", error);
    if (status) return status;
    session->model = model;
    session->kv = options->kv;
    session->chunk = options->chunk ? options->chunk : DEFAULT_CHUNK;
    session->undo = options->undo;
    session->tap = options->tap;
    session->engine = (plsh_linear_engine){
        .kernels = model->kernels, .int8 = model->int8, .threads = model->threads};
    status = plsh_allocate((void **)&session->cache, (size_t)model->config.layers,
                           sizeof(plsh_cache *), "caches", error);
    if (!status) status = copy_attention(session, options, error);
    if (!status) status = make_buffers(session, error);
    if (status) {
        plsh_session_destroy(session);
        return status;
    }
    *out = session;
    return PLSH_STATUS_OK;
}

/* A cache for every layer: new, or as it was saved. */
static plsh_status make_caches(plsh_session *session, plsh_session_source *source,
                               plsh_error *error) {
    plsh_head *head;
    plsh_status status = plsh_allocate((void **)&head, (size_t)session->model->config.heads,
                                       sizeof(*head), "heads", error);
    for (int64_t l = 0; !status && l < session->model->config.layers; l++) {
        plsh_cache_config config = cache_config(session, l, head);
        if (source) {
            status = plsh_session_source_next(source, &config, &session->cache[l], error);
        } else {
            status = plsh_cache_create(&config, &session->cache[l], error);
        }
    }
    plsh_release(head);
    return status;
}

plsh_status plsh_session_make(plsh_session **out, const plsh_model *model,
                              const plsh_session_options *options, plsh_session_source *source,
                              plsh_error *error) {
    plsh_status status = begin(out, model, options, error);
    if (status) return status;
    if (source) status = plsh_session_source_check(*out, source, error);
    if (!status) status = make_caches(*out, source, error);
    if (status) {
        plsh_session_destroy(*out);
        *out = NULL;
    }
    return status;
}

plsh_status plsh_session_create(plsh_session **out, const plsh_model *model,
                                const plsh_session_options *options, plsh_error *error) {
    return plsh_session_make(out, model, options, NULL, error);
}

void plsh_session_destroy(plsh_session *session) {
    if (!session) return;
    for (int64_t l = 0; session->cache && l < session->model->config.layers; l++) {
        plsh_cache_destroy(session->cache[l]);
    }
    plsh_release(session->cache);
    plsh_release(session->attention);
    plsh_release(session->heads);
    plsh_release(session->memory);
    plsh_release(session->attention_memory);
    plsh_release(session);
}

plsh_status plsh_session_fork(const plsh_session *session, plsh_session **fork, plsh_error *error) {
    plsh_session_options options = {.attention = session->attention,
                                    .attention_count = session->attention_count,
                                    .kv = session->kv,
                                    .chunk = session->chunk,
                                    .undo = session->undo,
                                    .tap = session->tap};
    plsh_status status = begin(fork, session->model, &options, error);
    for (int64_t l = 0; !status && l < session->model->config.layers; l++) {
        status = plsh_cache_fork(session->cache[l], &(*fork)->cache[l], error);
    }
    if (status) {
        plsh_session_destroy(*fork);
        *fork = NULL;
        return status;
    }
    (*fork)->broken = session->broken;
    return PLSH_STATUS_OK;
}

/* ---- A step ---------------------------------------------------------------------------------- */

/* Rows of one pass: some tokens of each of some sessions. */
typedef struct pass {
    plsh_session *const *sessions;
    const plsh_step *steps;
    const int64_t *done; /* tokens of each step that went before; NULL: none */
    int64_t count;
    int64_t each;        /* tokens per session at most */
    plsh_cache **caches; /* [count] and */
    plsh_tokens *tokens; /* [count], for the current layer */
} pass;

static int64_t pass_tokens(const pass *p, int64_t i) {
    int64_t left = p->steps[i].count - (p->done ? p->done[i] : 0);
    return left < p->each ? left : p->each;
}

/* The caches of one layer, all sessions at once. */
static plsh_status attend_caches(void *context, const plsh_model_qkv *qkv, float *o,
                                 plsh_error *error) {
    pass *p = context;
    plsh_session *first = p->sessions[0];
    const plsh_model_config *c = &first->model->config;
    const int64_t width = c->heads * c->head_dim;
    int64_t row = 0;
    for (int64_t i = 0; i < p->count; i++) {
        p->caches[i] = p->sessions[i]->cache[qkv->layer];
        p->tokens[i] = (plsh_tokens){.count = pass_tokens(p, i),
                                     .q = qkv->q + row * qkv->q_layout.row_stride,
                                     .k = qkv->k + row * qkv->k_layout.row_stride,
                                     .v = qkv->v + row * qkv->v_layout.row_stride,
                                     .o = o + row * width,
                                     .q_layout = qkv->q_layout,
                                     .k_layout = qkv->k_layout,
                                     .v_layout = qkv->v_layout,
                                     .o_layout = {.head_stride = c->head_dim, .row_stride = width},
                                     .workspace = first->attention_memory,
                                     .workspace_bytes = first->attention_bytes};
        row += p->tokens[i].count;
    }
    return plsh_cache_step_batch(p->caches, p->tokens, p->count, NULL, error);
}

/* One workspace for the caches of every layer, grown to what this pass needs. */
static plsh_status reserve_attention(pass *p, plsh_error *error) {
    plsh_session *first = p->sessions[0];
    size_t most = 0;
    for (int64_t l = 0; l < first->model->config.layers; l++) {
        size_t bytes;
        for (int64_t i = 0; i < p->count; i++) p->caches[i] = p->sessions[i]->cache[l];
        plsh_status status = plsh_cache_workspace(p->caches, p->count, p->each, &bytes, error);
        if (status) return status;
        most = bytes > most ? bytes : most;
    }
    if (most <= first->attention_bytes) return PLSH_STATUS_OK;
    void *memory;
    plsh_status status = plsh_allocate(&memory, most, 1, "the workspace of attention", error);
    if (status) return status;
    plsh_release(first->attention_memory);
    first->attention_memory = memory;
    first->attention_bytes = most;
    return PLSH_STATUS_OK;
}

/* Embeddings and angles of all rows. */
static int64_t fill_rows(const pass *p, const plsh_layer_buffers *b) {
    const plsh_model *model = p->sessions[0]->model;
    const plsh_model_config *c = &model->config;
    int64_t row = 0;
    for (int64_t i = 0; i < p->count; i++) {
        int64_t tokens = pass_tokens(p, i), first = plsh_session_length(p->sessions[i]);
        const int32_t *ids = p->steps[i].ids + (p->done ? p->done[i] : 0);
        plsh_layer_embed(model, ids, NULL, NULL, tokens, b->x + row * c->hidden, b->n);
        if (b->rope) plsh_rope_fill(&model->rope, first, tokens, b->rope + row * c->head_dim);
        row += tokens;
    }
    return row;
}

/* Hidden states and logits to where the steps want them. */
static void hand_out(const pass *p, const plsh_layer_buffers *b) {
    plsh_session *first = p->sessions[0];
    const plsh_model *model = first->model;
    const int64_t hidden = model->config.hidden;
    int64_t row = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const plsh_step *step = &p->steps[i];
        int64_t tokens = pass_tokens(p, i), done = p->done ? p->done[i] : 0;
        if (step->hidden) {
            memcpy(step->hidden + done * hidden, b->n + row * hidden,
                   sizeof(float) * (size_t)(tokens * hidden));
        }
        row += tokens;
        if (step->logits && done + tokens == step->count) {
            plsh_model_linear_forward(&first->engine, &model->head, 1,
                                      (plsh_const_matrix){b->n + (row - 1) * hidden, hidden},
                                      (plsh_matrix){step->logits, model->config.vocabulary}, false,
                                      b->rank);
        }
    }
}

static plsh_status run_pass(pass *p, plsh_error *error) {
    plsh_session *first = p->sessions[0];
    const plsh_model *model = first->model;
    const plsh_layer_buffers *b = &first->buffers;
    plsh_layer_pass layer = {.model = model,
                             .engine = &first->engine,
                             .position = plsh_session_length(first),
                             .rows = fill_rows(p, b),
                             .attend = {.run = attend_caches, .context = p, .tap = &first->tap}};
    plsh_status status = reserve_attention(p, error);
    for (int64_t l = 0; !status && l < model->config.layers; l++) {
        layer.attend.rotate = plsh_model_attention_rotates(
            model, plsh_model_attention_at(first->attention, first->attention_count, l));
        status = plsh_layer_forward(&layer, l, b, error);
    }
    if (status) return status;
    plsh_norm_forward(&model->final_norm, plsh_norm_whole(&model->final_norm, layer.rows), b->x,
                      b->n, model->threads);
    hand_out(p, b);
    return PLSH_STATUS_OK;
}

/* After a failure: restores each session, or marks it as unusable. */
static void go_back(plsh_session *const *sessions, const int64_t *lengths, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        for (int64_t l = 0; l < sessions[i]->model->config.layers; l++) {
            plsh_cache *cache = sessions[i]->cache[l];
            if (plsh_cache_length(cache) != lengths[i] &&
                plsh_cache_truncate(cache, lengths[i], NULL)) {
                sessions[i]->broken = true;
            }
        }
    }
}

static plsh_status check_step(const plsh_session *session, const plsh_step *step,
                              plsh_error *error) {
    if (session->broken) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "an earlier step failed half way; this session cannot continue");
    }
    if (step->count < 1 || !step->ids) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "a step of %lld tokens; at least 1",
                         (long long)step->count);
    }
    return plsh_layer_check_ids(session->model, step->ids, step->count, error);
}

/* One session, chunk after chunk. */
static plsh_status run_alone(plsh_session *session, const plsh_step *step, plsh_cache **caches,
                             plsh_tokens *tokens, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t done = 0; !status && done < step->count; done += session->chunk) {
        pass p = {.sessions = &session,
                  .steps = step,
                  .done = &done,
                  .count = 1,
                  .each = session->chunk,
                  .caches = caches,
                  .tokens = tokens};
        status = run_pass(&p, error);
    }
    return status;
}

plsh_status plsh_session_step(plsh_session *session, const plsh_step *step, plsh_error *error) {
    return plsh_session_step_batch(&session, step, 1, error);
}

static plsh_status run_batch(plsh_session *const *sessions, const plsh_step *steps, int64_t count,
                             plsh_cache **caches, plsh_tokens *tokens, plsh_error *error) {
    int64_t chunk = sessions[0]->chunk;
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t i = 0; !status && i < count;) {
        int64_t single = i;
        while (single < count && steps[single].count == 1 && single - i < chunk) single++;
        if (single > i) {
            pass p = {.sessions = sessions + i,
                      .steps = steps + i,
                      .count = single - i,
                      .each = 1,
                      .caches = caches,
                      .tokens = tokens};
            status = run_pass(&p, error);
            i = single;
        } else {
            status = run_alone(sessions[i], &steps[i], caches, tokens, error);
            i++;
        }
    }
    return status;
}

typedef struct batch_memory {
    int64_t *lengths;
    plsh_cache **caches;
    plsh_tokens *tokens;
} batch_memory;

static batch_memory take_batch(plsh_arena *arena, int64_t count) {
    return (batch_memory){.lengths = plsh_arena_take(arena, (size_t)count, sizeof(int64_t)),
                          .caches = plsh_arena_take(arena, (size_t)count, sizeof(plsh_cache *)),
                          .tokens = plsh_arena_take(arena, (size_t)count, sizeof(plsh_tokens))};
}

plsh_status plsh_session_step_batch(plsh_session *const *sessions, const plsh_step *steps,
                                    int64_t count, plsh_error *error) {
    for (int64_t i = 0; i < count; i++) {
        plsh_status status = check_step(sessions[i], &steps[i], error);
        if (status) return status;
        if (sessions[i]->model != sessions[0]->model) {
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "session %lld has another model than the first", (long long)i);
        }
    }
    plsh_arena arena = {0};
    take_batch(&arena, count);
    char *memory;
    plsh_status status =
        plsh_allocate((void **)&memory, arena.used, 1, "a step of several sessions", error);
    if (status) return status;
    arena = (plsh_arena){.memory = memory};
    batch_memory b = take_batch(&arena, count);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the arena was measured */
    for (int64_t i = 0; i < count; i++) b.lengths[i] = plsh_session_length(sessions[i]);
    status = run_batch(sessions, steps, count, b.caches, b.tokens, error);
    if (status) go_back(sessions, b.lengths, count);
    plsh_release(memory);
    return status;
}

plsh_status plsh_session_logits(plsh_session *session, const float *hidden, int64_t rows,
                                float *logits, plsh_error *error) {
    const plsh_model *model = session->model;
    if (rows < 0 || (rows > 0 && (!hidden || !logits))) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "logits of %lld rows, from or to NULL",
                         (long long)rows);
    }
    for (int64_t r = 0; r < rows; r += session->chunk) {
        int64_t count = rows - r < session->chunk ? rows - r : session->chunk;
        plsh_model_linear_forward(
            &session->engine, &model->head, count,
            (plsh_const_matrix){hidden + r * model->config.hidden, model->config.hidden},
            (plsh_matrix){logits + r * model->config.vocabulary, model->config.vocabulary}, false,
            session->buffers.rank);
    }
    return PLSH_STATUS_OK;
}

/* ---- What it holds --------------------------------------------------------------------------- */

int64_t plsh_session_length(const plsh_session *session) {
    return plsh_cache_length(session->cache[0]);
}

size_t plsh_session_cache_bytes(const plsh_session *session) {
    size_t bytes = 0;
    for (int64_t l = 0; l < session->model->config.layers; l++) {
        bytes += plsh_cache_bytes(session->cache[l]);
    }
    return bytes;
}

plsh_status plsh_session_truncate(plsh_session *session, int64_t length, plsh_error *error) {
    int64_t layers = session->model->config.layers, earliest = 0;
    for (int64_t l = 0; l < layers; l++) {
        int64_t own = plsh_cache_earliest(session->cache[l]);
        earliest = own > earliest ? own : earliest;
    }
    if (length < earliest || length > plsh_session_length(session)) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "truncating to %lld tokens; %lld to %lld",
                         (long long)length, (long long)earliest,
                         (long long)plsh_session_length(session));
    }
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t l = 0; !status && l < layers; l++) {
        status = plsh_cache_truncate(session->cache[l], length, error);
    }
    return status;
}
