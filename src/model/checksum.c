/* model: a checksum of all that a model computes with: its weights as they are stored (or as a
 * trainer has changed them), adapters, slopes, frequencies. Read once, at about 2.5 GB a second. */
#include "base/checksum.h"
#include "linear/types.h"
#include "model/model.h"

static uint64_t add_bytes(uint64_t h, const void *bytes, size_t size) {
    return bytes ? plsh_checksum_step(h, plsh_checksum(bytes, size)) : h;
}

static uint64_t add_floats(uint64_t h, const float *numbers, int64_t count) {
    return add_bytes(h, numbers, (size_t)count * sizeof(float));
}

/* The embedding of a trainer has another type than its file, whose size it keeps. */
static uint64_t add_tensor(uint64_t h, const plsh_tensor *tensor) {
    size_t size = 0;
    plsh_weight_type_size(tensor->type, tensor->rank, tensor->shape, &size);
    return add_bytes(plsh_checksum_step(h, (uint64_t)tensor->type), tensor->data, size);
}

static uint64_t add_norm(uint64_t h, const plsh_norm *norm) {
    h = add_bytes(h, norm->weight ? &norm->eps : NULL, sizeof(norm->eps));
    return add_floats(add_floats(h, norm->weight, norm->width), norm->bias, norm->width);
}

static uint64_t add_matrix(uint64_t h, const plsh_linear *linear) {
    size_t size = 0;
    plsh_weight_type_size(linear->type, 2, (int64_t[]){linear->out, linear->in}, &size);
    h = plsh_checksum_step(h, (uint64_t)linear->type);
    return add_floats(add_bytes(h, linear->weight, size), linear->bias, linear->out);
}

static uint64_t add_linear(uint64_t h, const plsh_model_linear *linear) {
    h = add_matrix(h, &linear->base);
    if (linear->rank == 0) return h;
    h = add_floats(h, &linear->scale, 1);
    return add_matrix(add_matrix(h, &linear->a), &linear->b);
}

static uint64_t add_layer(uint64_t h, const plsh_layer *layer) {
    const plsh_norm *const norms[] = {&layer->attention_norm, &layer->mlp_norm, &layer->q_norm,
                                      &layer->k_norm};
    for (size_t i = 0; i < sizeof(norms) / sizeof(*norms); i++) h = add_norm(h, norms[i]);
    if (layer->attention_norm_2.weight) h = add_norm(h, &layer->attention_norm_2);
    for (int i = 0; i < layer->qkv_count; i++) h = add_linear(h, &layer->qkv[i]);
    for (int i = 0; i < layer->up_count; i++) h = add_linear(h, &layer->up[i]);
    return add_linear(add_linear(h, &layer->attention_out), &layer->down);
}

uint64_t plsh_model_checksum(const plsh_model *model) {
    const plsh_model_config *c = &model->config;
    uint64_t h = add_tensor(0, model->tokens);
    if (model->positions) h = add_tensor(h, model->positions);
    h = add_floats(h, model->types, c->types * c->hidden);
    h = add_norm(add_norm(h, &model->tokens_norm), &model->final_norm);
    const bool tied = model->head.base.weight == model->tokens->data && model->head.rank == 0;
    if (!tied && model->head.base.weight) h = add_linear(h, &model->head);
    for (int64_t l = 0; l < c->layers; l++) h = add_layer(h, &model->layer[l]);
    h = add_floats(h, model->head_scales, c->vocabulary);
    if (c->clip != 0.0 || c->embedding_scale != 1.0 || c->logit_scale != 1.0 || c->alibi_length) {
        h = add_bytes(h, &c->clip, sizeof c->clip);
        h = add_bytes(h, &c->embedding_scale, sizeof c->embedding_scale);
        h = add_bytes(h, &c->logit_scale, sizeof c->logit_scale);
        h = add_bytes(h, &c->alibi_length, sizeof c->alibi_length);
    }
    h = add_bytes(h, model->rope.frequency, (size_t)(c->head_dim / 2) * sizeof(double));
    if (c->rope.scaling == PLSH_ROPE_YARN)
        h = add_bytes(h, &c->rope.attention, sizeof c->rope.attention);
    if (c->rope.scaling == PLSH_ROPE_DYNAMIC) {
        h = add_bytes(h, &c->rope.factor, sizeof c->rope.factor);
        h = add_bytes(h, &c->rope.original_context, sizeof c->rope.original_context);
    }
    return add_bytes(h, model->slopes, (size_t)(c->layers * c->heads) * sizeof(double));
}

uint64_t plsh_model_fingerprint(const plsh_model *model) {
    if (model->changes) return plsh_model_checksum(model);
    atomic_uint_least64_t *kept = &((plsh_model *)(uintptr_t)model)->fingerprint;
    uint64_t known = atomic_load(kept);
    if (known == 0) atomic_store(kept, known = plsh_model_checksum(model));
    return known;
}
