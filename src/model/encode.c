/* model: whole sequences at once: encoders, whose tokens see all of their own, and causal models,
 * whose rows are distributed over ranks. */
#include "base/arena.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/attention.h"
#include "model/layer.h"
#include "model/sequence.h"

enum { MLP_ROWS = 256 }; /* at once, so that the MLP's memory does not grow with the text */

typedef struct encoder {
    const plsh_model *model;
    const plsh_encoding *encoding;
    plsh_range own;                    /* the rows of this rank */
    plsh_sequence_attention attention; /* of the current layer */
    int64_t *position;                 /* of each within its sequence */
} encoder;

static plsh_status check(const plsh_model *model, const plsh_encoding *e, plsh_error *error) {
    const plsh_model_config *c = &model->config;
    if (e->ranks && e->pause.run) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "a pass over ranks has no pauses");
    }
    plsh_range own = plsh_ranks_rows(e->ranks, e->count);
    if (e->count < 1 || !e->ids || (!e->hidden && own.end > own.begin) || e->sequences < 0 ||
        (e->sequences && !e->offsets)) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "encoding %lld ids of %lld sequences; ids, hidden and, for several, "
                         "offsets are needed",
                         (long long)e->count, (long long)e->sequences);
    }
    for (int64_t x = 0; x < (e->offsets ? e->sequences : 1); x++) {
        int64_t begin = e->offsets ? e->offsets[x] : 0;
        int64_t end = e->offsets ? e->offsets[x + 1] : e->count;
        if (begin < 0 || end < begin || end > e->count) {
            return plsh_fail(error, PLSH_STATUS_INVALID, "sequence %lld is %lld to %lld",
                             (long long)x, (long long)begin, (long long)end);
        }
        if (model->positions && end - begin > c->context) {
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "sequence %lld has %lld tokens; this model has %lld positions",
                             (long long)x, (long long)(end - begin), (long long)c->context);
        }
    }
    for (int64_t i = 0; e->types && i < e->count; i++) {
        if (e->types[i] == 0 || (e->types[i] > 0 && e->types[i] < c->types)) continue;
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "token %lld is of type %d; this model has %lld types", (long long)i,
                         (int)e->types[i], (long long)c->types);
    }
    plsh_status status = plsh_layer_check_ids(model, e->ids, e->count, error);
    return status ? status
                  : plsh_model_attention_check(model, e->attention, e->attention_count, error);
}

/* The position of every own token within its sequence; 0 for rows in no sequence. */
static void fill_positions(const encoder *e) {
    const plsh_encoding *from = e->encoding;
    const plsh_range own = e->own;
    if (!from->offsets) {
        for (int64_t i = own.begin; i < own.end; i++) e->position[i - own.begin] = i;
        return;
    }
    for (int64_t x = 0; x < from->sequences; x++) {
        const int64_t begin = from->offsets[x], end = from->offsets[x + 1];
        int64_t i = begin > own.begin ? begin : own.begin;
        for (; i < end && i < own.end; i++) e->position[i - own.begin] = i - begin;
    }
}

/* The angles of every own row; rows in no sequence are not rotated. */
static void fill_angles(const encoder *e, float *rope) {
    const plsh_encoding *from = e->encoding;
    const plsh_range own = e->own;
    const int64_t head_dim = e->model->config.head_dim, count = from->offsets ? from->sequences : 1;
    if (!rope) return;
    for (int64_t r = 0; from->offsets && r < own.end - own.begin; r++)
        plsh_rope_fill(&e->model->rope, 0, 1, 1, rope + r * head_dim);
    for (int64_t x = 0; x < count; x++) {
        const int64_t begin = from->offsets ? from->offsets[x] : 0;
        const int64_t end = from->offsets ? from->offsets[x + 1] : from->count;
        const int64_t first = begin > own.begin ? begin : own.begin;
        const int64_t last = end < own.end ? end : own.end;
        if (first < last)
            plsh_rope_fill(&e->model->rope, first - begin, last - first, end - begin,
                           rope + (first - own.begin) * head_dim);
    }
}

static plsh_status attend_all(void *context, const plsh_model_qkv *qkv, float *o,
                              plsh_error *error) {
    encoder *e = context;
    plsh_forward arrays = {.q = qkv->q, .k = qkv->k, .v = qkv->v, .o = o};
    return plsh_sequence_attention_forward(&e->attention, &arrays, error);
}

/* One plan serves all layers with the same attention. */
static plsh_status make_attention(encoder *e, int64_t l, plsh_error *error) {
    const plsh_encoding *from = e->encoding;
    if (l > 0 && from->attention_count <= 1 && l != e->model->config.sliding_from) {
        return PLSH_STATUS_OK;
    }
    plsh_sequences sequences = {.rows = from->count,
                                .count = from->offsets ? from->sequences : 0,
                                .offsets = from->offsets,
                                .ranks = from->ranks,
                                .own = e->own};
    plsh_sequence_attention_clear(&e->attention);
    return plsh_sequence_attention_make(
        &e->attention, e->model, plsh_model_attention_at(from->attention, from->attention_count, l),
        l, &sequences, false, error);
}

static void finish(const encoder *e, const plsh_layer_buffers *b) {
    const plsh_model *model = e->model;
    plsh_norm_forward(&model->final_norm,
                      plsh_norm_whole(&model->final_norm, e->own.end - e->own.begin), b->x, b->x,
                      model->threads);
}

static plsh_status run_layers(encoder *e, const plsh_layer_buffers *b,
                              const plsh_linear_engine *engine, plsh_error *error) {
    const plsh_model *model = e->model;
    const plsh_encoding *from = e->encoding;
    plsh_layer_pass pass = {.model = model,
                            .engine = engine,
                            .rows = e->own.end - e->own.begin,
                            .attend = {.run = attend_all, .context = e},
                            .pause = from->pause};
    plsh_layer_embed(model, from->ids + e->own.begin,
                     from->types ? from->types + e->own.begin : NULL, e->position, pass.rows, b->x,
                     b->n);
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t l = 0; !status && l < model->config.layers; l++) {
        status = make_attention(e, l, error);
        pass.attend.rotate = plsh_model_attention_rotates(
            model, plsh_model_attention_at(from->attention, from->attention_count, l));
        if (!status) status = plsh_layer_forward(&pass, l, b, error);
    }
    plsh_sequence_attention_clear(&e->attention);
    if (!status && model->config.family->causal) finish(e, b);
    return status;
}

/* The layers work in place, in the caller's array of hidden states. */
static plsh_layer_buffers lay_out(encoder *e, plsh_arena *arena, plsh_linear_engine *engine) {
    int64_t rows = e->own.end - e->own.begin;
    e->position = plsh_arena_take(arena, (size_t)rows, sizeof(int64_t));
    engine->workspace = plsh_arena_take(arena, plsh_linear_workspace(engine->threads), 1);
    return plsh_layer_buffers_take(arena, e->model, e->encoding->hidden, rows,
                                   rows < MLP_ROWS ? rows : MLP_ROWS);
}

/* The preparation, which may fail on one rank alone. */
static plsh_status prepare_encoder(encoder *e, plsh_layer_buffers *b, plsh_linear_engine *engine,
                                   char **memory, plsh_error *error) {
    plsh_status status = check(e->model, e->encoding, error);
    if (status) return status;
    plsh_arena arena = {0};
    lay_out(e, &arena, engine);
    if (arena.overflow) {
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "%lld tokens are too many",
                         (long long)e->encoding->count);
    }
    status = plsh_allocate((void **)memory, arena.used, 1, "activations", error);
    if (status) return status;
    arena = (plsh_arena){.memory = *memory};
    *b = lay_out(e, &arena, engine);
    fill_positions(e);
    fill_angles(e, b->rope);
    return PLSH_STATUS_OK;
}

plsh_status plsh_model_encode(const plsh_model *model, const plsh_encoding *encoding,
                              plsh_error *error) {
    encoder e = {.model = model,
                 .encoding = encoding,
                 .own = plsh_ranks_rows(encoding->ranks, encoding->count)};
    plsh_linear_engine engine = plsh_model_engine(model);
    plsh_layer_buffers b = {0};
    char *memory = NULL;
    plsh_status status = prepare_encoder(&e, &b, &engine, &memory, error);
    status = plsh_ranks_agree_group(encoding->ranks, status, error);
    if (!status) status = run_layers(&e, &b, &engine, error);
    plsh_release(memory);
    return status;
}

/* The plan of the first layer: those of the others have the same shape. */
plsh_status plsh_model_encode_bytes(const plsh_model *model, const plsh_encoding *encoding,
                                    size_t *bytes, plsh_error *error) {
    encoder e = {.model = model, .encoding = encoding, .own = {0, encoding->count}};
    plsh_linear_engine engine = {.threads = model->threads};
    plsh_arena arena = {0};
    if (encoding->count < 1) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "encoding %lld ids; at least 1",
                         (long long)encoding->count);
    }
    lay_out(&e, &arena, &engine);
    plsh_status status = make_attention(&e, 0, error);
    if (status) return status;
    plsh_arena_take(&arena, plsh_plan_workspace(e.attention.plan), 1);
    plsh_sequence_attention_clear(&e.attention);
    if (arena.overflow) {
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "%lld tokens are too many",
                         (long long)encoding->count);
    }
    *bytes = arena.used;
    return PLSH_STATUS_OK;
}
