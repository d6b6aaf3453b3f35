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
    plsh_model_attention_heads(session->model, attention, layer, session->planned, head);
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

/* What a pass over session->rows rows works in. */
static void lay_out(plsh_session *session, plsh_arena *arena) {
    const plsh_model *model = session->model;
    session->buffers = plsh_layer_buffers_take(arena, model, NULL, session->rows, session->rows);
    session->engine.workspace = plsh_arena_take(arena, plsh_linear_workspace(model->threads), 1);
}

/* Reserves buffers for `rows` rows, at most a chunk. They grow by doubling: a session that only
 * gets single tokens, or that is never the first of a batch, needs little or no memory. */
static plsh_status reserve_buffers(plsh_session *session, int64_t rows, plsh_error *error) {
    if (rows <= session->rows) return PLSH_STATUS_OK;
    plsh_session grown = *session;
    for (grown.rows = 1; grown.rows < rows;) grown.rows *= 2;
    if (grown.rows > session->chunk) grown.rows = session->chunk;
    plsh_arena arena = {0};
    lay_out(&grown, &arena);
    if (arena.overflow) {
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "a chunk of %lld tokens is too long",
                         (long long)session->chunk);
    }
    plsh_status status =
        plsh_allocate((void **)&grown.memory, arena.used, 1, "the activations of a session", error);
    if (status) return status;
    arena = (plsh_arena){.memory = grown.memory};
    lay_out(&grown, &arena);
    plsh_release(session->memory);
    *session = grown;
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
    if (options->chunk < 0 || options->chunk > LONGEST_CHUNK || options->undo < 0 ||
        options->length < 0) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "chunk is %lld, undo %lld and length %lld; 0 to %d, and not negative",
                         (long long)options->chunk, (long long)options->undo,
                         (long long)options->length, LONGEST_CHUNK);
    }
    plsh_session *session;
    plsh_status status = plsh_allocate((void **)&session, 1, sizeof(*session), "session", error);
    if (status) return status;
    session->model = model;
    session->kv = options->kv;
    session->chunk = options->chunk ? options->chunk : DEFAULT_CHUNK;
    session->undo = options->undo;
    session->planned = options->length;
    session->tap = options->tap;
    session->engine = plsh_model_engine(model);
    status = plsh_allocate((void **)&session->cache, (size_t)model->config.layers,
                           sizeof(plsh_cache *), "caches", error);
    if (!status) status = copy_attention(session, options, error);
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
    plsh_release(session->logits);
    plsh_release(session);
}

plsh_status plsh_session_fork(const plsh_session *session, plsh_session **fork, plsh_error *error) {
    plsh_session_options options = {.attention = session->attention,
                                    .attention_count = session->attention_count,
                                    .kv = session->kv,
                                    .chunk = session->chunk,
                                    .undo = session->undo,
                                    .length = session->planned,
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

/* Rows of a pass: the next `tokens` tokens of step number `step`. */
typedef struct pass_part {
    int64_t step, tokens;
} pass_part;

/* The steps of a call, and the current pass: some tokens of some of the steps. */
typedef struct batch {
    plsh_session *const *sessions;
    const plsh_step *steps;
    int64_t count;
    int64_t *lengths;    /* [count]: of the sessions before the call */
    int64_t *done;       /* [count]: tokens of each step that went through the layers */
    pass_part *parts;    /* [count] at most: the pass */
    int64_t part_count;  /* of the pass, */
    int64_t rows;        /* and its tokens */
    plsh_session *first; /* of its sessions */
    plsh_session *host;  /* the one with the most memory: the pass works in it */
    plsh_cache **caches; /* [part_count] and */
    plsh_tokens *tokens; /* [part_count], for the current layer */
} batch;

/* The caches of one layer, all sessions at once. */
static plsh_status attend_caches(void *context, const plsh_model_qkv *qkv, float *o,
                                 plsh_error *error) {
    batch *b = context;
    const plsh_model_config *c = &b->first->model->config;
    const int64_t width = c->heads * c->head_dim;
    int64_t row = 0;
    for (int64_t i = 0; i < b->part_count; i++) {
        b->caches[i] = b->sessions[b->parts[i].step]->cache[qkv->layer];
        b->tokens[i] = (plsh_tokens){.count = b->parts[i].tokens,
                                     .q = qkv->q + row * qkv->q_layout.row_stride,
                                     .k = qkv->k + row * qkv->k_layout.row_stride,
                                     .v = qkv->v + row * qkv->v_layout.row_stride,
                                     .o = o + row * width,
                                     .q_layout = qkv->q_layout,
                                     .k_layout = qkv->k_layout,
                                     .v_layout = qkv->v_layout,
                                     .o_layout = {.head_stride = c->head_dim, .row_stride = width},
                                     .workspace = b->host->attention_memory,
                                     .workspace_bytes = b->host->attention_bytes};
        row += b->tokens[i].count;
    }
    return plsh_cache_step_batch(b->caches, b->tokens, b->part_count, NULL, error);
}

/* Bytes of workspace that the caches of a session need for a step of `tokens` tokens, whatever the
 * layer. They do not depend on the length of the caches, so they are computed once for single
 * tokens and once for the longest step. */
static plsh_status attention_bytes(plsh_session *session, int64_t tokens, size_t *bytes,
                                   plsh_error *error) {
    const int kind = tokens > 1;
    size_t most = 0;
    for (int64_t l = 0; tokens > session->need[kind].tokens && l < session->model->config.layers;
         l++) {
        plsh_status status = plsh_cache_workspace(&session->cache[l], 1, tokens, bytes, error);
        if (status) return status;
        most = *bytes > most ? *bytes : most;
    }
    if (tokens > session->need[kind].tokens) {
        session->need[kind].tokens = tokens;
        session->need[kind].bytes = most;
    }
    *bytes = session->need[kind].bytes;
    return PLSH_STATUS_OK;
}

/* One workspace for the caches of every layer, grown to what this pass needs. */
static plsh_status reserve_attention(const batch *b, plsh_error *error) {
    plsh_session *host = b->host;
    size_t total = 0;
    for (int64_t i = 0; i < b->part_count; i++) {
        size_t bytes;
        plsh_status status =
            attention_bytes(b->sessions[b->parts[i].step], b->parts[i].tokens, &bytes, error);
        if (status) return status;
        if (!plsh_add(total, bytes, &total)) {
            return plsh_fail(error, PLSH_STATUS_OVERFLOW, "the workspace of a step overflows");
        }
    }
    if (total <= host->attention_bytes) return PLSH_STATUS_OK;
    void *memory;
    plsh_status status = plsh_allocate(&memory, total, 1, "the workspace of attention", error);
    if (status) return status;
    plsh_release(host->attention_memory);
    host->attention_memory = memory;
    host->attention_bytes = total;
    return PLSH_STATUS_OK;
}

/* The length of the text that a part belongs to, with all tokens of the step. */
static int64_t text_length(const batch *b, pass_part part, int64_t position) {
    const plsh_step *step = &b->steps[part.step];
    const int64_t end = position + step->count - b->done[part.step];
    return step->length > end ? step->length : end;
}

/* Embeddings and angles of all rows. */
static void fill_rows(const batch *b, const plsh_layer_buffers *to) {
    const plsh_model *model = b->first->model;
    const plsh_model_config *c = &model->config;
    int64_t row = 0;
    for (int64_t i = 0; i < b->part_count; i++) {
        const pass_part part = b->parts[i];
        const int64_t position = plsh_session_length(b->sessions[part.step]);
        const int32_t *ids = b->steps[part.step].ids + b->done[part.step];
        plsh_layer_embed(model, ids, NULL, NULL, part.tokens, to->x + row * c->hidden, to->n);
        if (to->rope) {
            plsh_rope_fill(&model->rope, position, part.tokens, text_length(b, part, position),
                           to->rope + row * c->head_dim);
        }
        row += part.tokens;
    }
}

/* Are logits of the last token of the part asked for? */
static bool wants_logits(const batch *b, pass_part part) {
    const plsh_step *step = &b->steps[part.step];
    return step->logits && b->done[part.step] + part.tokens == step->count;
}

/* The output matrix is read once for the logits of several steps; these rows of hidden states and
 * of logits lie side by side, PLSH_SESSION_LOGITS at a time. */
static plsh_status reserve_logits(const batch *b, plsh_error *error) {
    plsh_session *host = b->host;
    const plsh_model_config *c = &host->model->config;
    int64_t count = 0;
    for (int64_t i = 0; i < b->part_count; i++) count += wants_logits(b, b->parts[i]);
    if (count < 2 || host->logits) return PLSH_STATUS_OK;
    return plsh_allocate((void **)&host->logits, PLSH_SESSION_LOGITS,
                         sizeof(float) * (size_t)(c->hidden + c->vocabulary), "logits", error);
}

/* Logits of the rows of hidden states at these numbers. */
static void write_logits(const batch *b, const plsh_layer_buffers *from, const int64_t *rows,
                         float *const *to, int64_t count) {
    plsh_session *host = b->host;
    const plsh_model *model = host->model;
    const int64_t hidden = model->config.hidden, vocabulary = model->config.vocabulary;
    const bool one = count == 1;
    float *x = one ? from->n + rows[0] * hidden : host->logits;
    float *y = one ? to[0] : host->logits + PLSH_SESSION_LOGITS * hidden;
    for (int64_t i = 0; !one && i < count; i++) {
        memcpy(x + i * hidden, from->n + rows[i] * hidden, sizeof(float) * (size_t)hidden);
    }
    plsh_layer_logits(&host->engine, model, count, x, y, from->rank);
    for (int64_t i = 0; !one && i < count; i++) {
        memcpy(to[i], y + i * vocabulary, sizeof(float) * (size_t)vocabulary);
    }
}

/* Copies hidden states and logits to the arrays of the steps. */
static void hand_out(const batch *b, const plsh_layer_buffers *from) {
    const int64_t hidden = b->first->model->config.hidden;
    int64_t row = 0, rows[PLSH_SESSION_LOGITS], count = 0;
    float *to[PLSH_SESSION_LOGITS];
    for (int64_t i = 0; i < b->part_count; i++) {
        const pass_part part = b->parts[i];
        const plsh_step *step = &b->steps[part.step];
        if (step->hidden) {
            memcpy(step->hidden + b->done[part.step] * hidden, from->n + row * hidden,
                   sizeof(float) * (size_t)(part.tokens * hidden));
        }
        row += part.tokens;
        if (wants_logits(b, part)) {
            rows[count] = row - 1;
            to[count++] = step->logits;
        }
        if (count == PLSH_SESSION_LOGITS || (count > 0 && i == b->part_count - 1)) {
            write_logits(b, from, rows, to, count);
            count = 0;
        }
    }
}

static plsh_status run_pass(batch *b, plsh_error *error) {
    plsh_session *first = b->first, *host = b->host;
    const plsh_model *model = first->model;
    plsh_status status = reserve_buffers(host, b->rows, error);
    if (!status) status = reserve_attention(b, error);
    if (!status) status = reserve_logits(b, error);
    if (status) return status;
    const plsh_layer_buffers *buffers = &host->buffers;
    plsh_layer_pass layer = {.model = model,
                             .engine = &host->engine,
                             .position = plsh_session_length(first),
                             .rows = b->rows,
                             .attend = {.run = attend_caches, .context = b, .tap = &first->tap}};
    fill_rows(b, buffers);
    for (int64_t l = 0; !status && l < model->config.layers; l++) {
        layer.attend.rotate = plsh_model_attention_rotates(
            model, plsh_model_attention_at(first->attention, first->attention_count, l));
        status = plsh_layer_forward(&layer, l, buffers, error);
    }
    if (status) return status;
    plsh_norm_forward(&model->final_norm, plsh_norm_whole(&model->final_norm, b->rows), buffers->x,
                      buffers->n, model->threads);
    hand_out(b, buffers);
    for (int64_t i = 0; i < b->part_count; i++) b->done[b->parts[i].step] += b->parts[i].tokens;
    return PLSH_STATUS_OK;
}

/* Can the rows of two sessions go through the layers together? A tap sees one session at a time,
 * and RoPE applies to all rows of a layer or to none. */
static bool can_join(const plsh_session *a, const plsh_session *b) {
    if (a->tap.see || b->tap.see) return false;
    for (int64_t l = 0; l < a->model->config.layers; l++) {
        const plsh_layer_attention *of_a =
            plsh_model_attention_at(a->attention, a->attention_count, l);
        const plsh_layer_attention *of_b =
            plsh_model_attention_at(b->attention, b->attention_count, l);
        if (plsh_model_attention_rotates(a->model, of_a) !=
            plsh_model_attention_rotates(b->model, of_b)) {
            return false;
        }
    }
    return true;
}

/* The session with the most memory for activations, of those that may have it for this pass. */
static void choose_host(batch *b) {
    b->host = b->first;
    for (int64_t i = 0; b->first && i < b->count; i++) {
        const plsh_session *session = b->sessions[i];
        if (session->rows > b->host->rows && session->chunk >= b->first->chunk) {
            b->host = b->sessions[i];
        }
    }
}

/* The next pass: tokens of the steps in their order, up to a chunk of the first session. */
static void fill_pass(batch *b) {
    int64_t room = 0;
    b->first = NULL;
    b->part_count = b->rows = 0;
    for (int64_t i = 0; i < b->count && (!b->first || room > 0); i++) {
        const int64_t left = b->steps[i].count - b->done[i];
        if (left == 0 || (b->first && !can_join(b->first, b->sessions[i]))) continue;
        if (!b->first) {
            b->first = b->sessions[i];
            room = b->first->chunk;
        }
        const int64_t tokens = left < room ? left : room;
        b->parts[b->part_count++] = (pass_part){i, tokens};
        b->rows += tokens;
        room -= tokens;
    }
    choose_host(b);
}

static plsh_status run_batch(batch *b, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (fill_pass(b); !status && b->first; fill_pass(b)) status = run_pass(b, error);
    return status;
}

/* After a failure: restores each session, or marks it as unusable. */
static void go_back(const batch *b) {
    for (int64_t i = 0; i < b->count; i++) {
        for (int64_t l = 0; l < b->sessions[i]->model->config.layers; l++) {
            plsh_cache *cache = b->sessions[i]->cache[l];
            if (plsh_cache_length(cache) != b->lengths[i] &&
                plsh_cache_truncate(cache, b->lengths[i], NULL)) {
                b->sessions[i]->broken = true;
            }
        }
    }
}

static plsh_status check_head(const plsh_model *model, plsh_error *error) {
    if (model->head.base.weight) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s: no logits: the file has no output matrix, as those of embedders",
                     plsh_weights_path(model->weights));
}

static plsh_status check_step(const plsh_session *session, const plsh_step *step, bool lends,
                              plsh_error *error) {
    if (session->broken) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "an earlier step failed half way; this session cannot continue");
    }
    if (step->count == 0 && lends) return PLSH_STATUS_OK;
    if (step->count < 1 || !step->ids) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "a step of %lld tokens; at least 1",
                         (long long)step->count);
    }
    plsh_status status = step->logits ? check_head(session->model, error) : PLSH_STATUS_OK;
    return status ? status : plsh_layer_check_ids(session->model, step->ids, step->count, error);
}

/* Checks the steps; each session may have one. */
static plsh_status check_steps(plsh_session *const *sessions, const plsh_step *steps, int64_t count,
                               plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    int64_t marked = 0;
    for (; !status && marked < count; marked++) {
        plsh_session *session = sessions[marked];
        if (session->stepping) {
            status = plsh_fail(error, PLSH_STATUS_INVALID, "step %lld is of a session that has one",
                               (long long)marked);
            break;
        }
        session->stepping = true;
        status = check_step(session, &steps[marked], count > 1, error);
        if (!status && session->model != sessions[0]->model) {
            status = plsh_fail(error, PLSH_STATUS_INVALID,
                               "session %lld has another model than the first", (long long)marked);
        }
    }
    while (marked-- > 0) sessions[marked]->stepping = false;
    return status;
}

static void take_batch(plsh_arena *arena, batch *b) {
    const size_t count = (size_t)b->count;
    b->lengths = plsh_arena_take(arena, count, sizeof(int64_t));
    b->done = plsh_arena_take(arena, count, sizeof(int64_t));
    b->parts = plsh_arena_take(arena, count, sizeof(pass_part));
    b->caches = plsh_arena_take(arena, count, sizeof(plsh_cache *));
    b->tokens = plsh_arena_take(arena, count, sizeof(plsh_tokens));
}

plsh_status plsh_session_step_batch(plsh_session *const *sessions, const plsh_step *steps,
                                    int64_t count, plsh_error *error) {
    plsh_status status = check_steps(sessions, steps, count, error);
    if (status) return status;
    batch b = {.sessions = sessions, .steps = steps, .count = count};
    plsh_arena arena = {0};
    take_batch(&arena, &b);
    char *memory;
    status = plsh_allocate((void **)&memory, arena.used, 1, "a step of several sessions", error);
    if (status) return status;
    arena = (plsh_arena){.memory = memory};
    take_batch(&arena, &b);
    for (int64_t i = 0; i < count; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the arena was measured */
        b.lengths[i] = plsh_session_length(sessions[i]);
        b.done[i] = 0;
    }
    status = run_batch(&b, error);
    if (status) go_back(&b);
    plsh_release(memory);
    return status;
}

plsh_status plsh_session_step(plsh_session *session, const plsh_step *step, plsh_error *error) {
    return plsh_session_step_batch(&session, step, 1, error);
}

plsh_status plsh_session_logits(plsh_session *session, const float *hidden, int64_t rows,
                                float *logits, plsh_error *error) {
    const plsh_model *model = session->model;
    if (rows < 0 || (rows > 0 && (!hidden || !logits))) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "logits of %lld rows, from or to NULL",
                         (long long)rows);
    }
    plsh_status status = check_head(model, error);
    if (!status)
        status = reserve_buffers(session, rows < session->chunk ? rows : session->chunk, error);
    if (status) return status;
    for (int64_t r = 0; r < rows; r += session->chunk) {
        int64_t count = rows - r < session->chunk ? rows - r : session->chunk;
        plsh_layer_logits(&session->engine, model, count, hidden + r * model->config.hidden,
                          logits + r * model->config.vocabulary, session->buffers.rank);
    }
    return PLSH_STATUS_OK;
}

/* ---- Accessors ------------------------------------------------------------------------------- */

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

size_t plsh_session_cache_bytes_at(const plsh_session *session, int64_t length) {
    size_t bytes = 0;
    for (int64_t l = 0; l < session->model->config.layers; l++) {
        bytes += plsh_cache_bytes_at(session->cache[l], length);
    }
    return bytes;
}

plsh_status plsh_session_step_bytes(plsh_session *session, int64_t count, size_t *bytes,
                                    plsh_error *error) {
    const plsh_model_config *c = &session->model->config;
    size_t single, chunk;
    plsh_session whole = *session;
    whole.rows = session->chunk;
    plsh_arena arena = {0};
    lay_out(&whole, &arena);
    plsh_arena_take(&arena, PLSH_SESSION_LOGITS,
                    sizeof(float) * (size_t)(c->hidden + c->vocabulary));
    plsh_status status = attention_bytes(session, 1, &single, error);
    if (!status) status = attention_bytes(session, session->chunk, &chunk, error);
    if (status) return status;
    plsh_arena_take(&arena, (size_t)count, single > chunk ? single : chunk);
    if (arena.overflow || count < 1) {
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "steps of %lld sessions", (long long)count);
    }
    *bytes = arena.used;
    return PLSH_STATUS_OK;
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
