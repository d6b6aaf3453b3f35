/* model: encoders: whole sequences at once, every token sees all of its own. */
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
    plsh_sequence_attention attention; /* of the layer at hand */
    int64_t *position;
} encoder;

static plsh_status check(const plsh_model *model, const plsh_encoding *e, plsh_error *error) {
    const plsh_model_config *c = &model->config;
    if (c->family->causal) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s is no encoder; it has sessions instead", c->family->name);
    }
    if (e->count < 1 || !e->ids || !e->hidden || e->sequences < 0 ||
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
    plsh_status status = plsh_layer_check_ids(model, e->ids, e->count, error);
    return status ? status
                  : plsh_model_attention_check(model, e->attention, e->attention_count, error);
}

/* The position of every token within its sequence. */
static void fill_positions(const plsh_encoding *e, int64_t *position) {
    if (!e->offsets) {
        for (int64_t i = 0; i < e->count; i++) position[i] = i;
        return;
    }
    for (int64_t x = 0; x < e->sequences; x++) {
        for (int64_t i = e->offsets[x]; i < e->offsets[x + 1]; i++) position[i] = i - e->offsets[x];
    }
}

static plsh_status attend_all(void *context, const plsh_model_qkv *qkv, float *o,
                              plsh_error *error) {
    encoder *e = context;
    return plsh_sequence_attention_forward(&e->attention, qkv, o, NULL, error);
}

static plsh_status run(encoder *e, const plsh_layer_buffers *b, const plsh_linear_engine *engine,
                       plsh_error *error) {
    const plsh_model *model = e->model;
    const plsh_encoding *from = e->encoding;
    plsh_sequences sequences = {.rows = from->count,
                                .count = from->offsets ? from->sequences : 0,
                                .offsets = from->offsets};
    plsh_layer_pass pass = {.model = model,
                            .engine = engine,
                            .rows = from->count,
                            .attend = {.run = attend_all, .context = e}};
    plsh_layer_embed(model, from->ids, e->position, from->count, b->x, b->n);
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t l = 0; !status && l < model->config.layers; l++) {
        if (!e->attention.plan || from->attention_count > 1) {
            plsh_sequence_attention_clear(&e->attention);
            status = plsh_sequence_attention_make(
                &e->attention, model,
                plsh_model_attention_at(from->attention, from->attention_count, l), l, &sequences,
                false, error);
        }
        if (!status) {
            status = plsh_layer_forward(&pass, l, b, error);
        }
    }
    plsh_sequence_attention_clear(&e->attention);
    return status;
}

/* The stream of the layers is the caller's array of hidden states. */
static plsh_layer_buffers lay_out(encoder *e, plsh_arena *arena, plsh_linear_engine *engine) {
    int64_t rows = e->encoding->count;
    e->position = plsh_arena_take(arena, (size_t)rows, sizeof(int64_t));
    engine->workspace = plsh_arena_take(arena, plsh_linear_workspace(engine->threads), 1);
    return plsh_layer_buffers_take(arena, e->model, e->encoding->hidden, rows,
                                   rows < MLP_ROWS ? rows : MLP_ROWS);
}

plsh_status plsh_model_encode(const plsh_model *model, const plsh_encoding *encoding,
                              plsh_error *error) {
    plsh_status status = check(model, encoding, error);
    if (status) return status;
    encoder e = {.model = model, .encoding = encoding};
    plsh_linear_engine engine = {.kernels = model->kernels, .threads = model->threads};
    plsh_arena arena = {0};
    lay_out(&e, &arena, &engine);
    if (arena.overflow) {
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "%lld tokens are too many",
                         (long long)encoding->count);
    }
    char *memory;
    status = plsh_allocate((void **)&memory, arena.used, 1, "activations", error);
    if (status) return status;
    arena = (plsh_arena){.memory = memory};
    plsh_layer_buffers b = lay_out(&e, &arena, &engine);
    fill_positions(encoding, e.position);
    status = run(&e, &b, &engine, error);
    plsh_release(memory);
    return status;
}
