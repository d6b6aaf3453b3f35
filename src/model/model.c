/* model: opening a model: its configuration, and every tensor in its place. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mapping.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "linear/kernels/bfloat.h"
#include "model/encoder_heads.h"
#include "model/slopes.h"

/* ---- Names ----------------------------------------------------------------------------------- */

/* A GGUF has other names for norms that follow the residual sums. */
static const char *gguf_name(const plsh_model_config *config, plsh_role role) {
    if (config->family->post_norm && role == PLSH_ROLE_ATTENTION_NORM) return "attn_output_norm";
    if (config->family->post_norm && role == PLSH_ROLE_MLP_NORM) return "layer_output_norm";
    return plsh_family_gguf_names[role];
}

/* Is the role's name without the prefix? */
static bool is_bare(const plsh_family *family, plsh_role role) {
    return role == PLSH_ROLE_HEAD || (role == PLSH_ROLE_FINAL_NORM && family->bare_norm);
}

void plsh_model_module_name(const plsh_model_config *config, plsh_role role, int64_t layer,
                            char *out, size_t size) {
    const plsh_family *family = config->family;
    const char *name = family->name_of[role];
    const char *prefix = is_bare(family, role) || !family->causal ? "" : family->prefix;
    if (!name) {
        out[0] = '\0'; /* a separate tensor in a GGUF */
    } else if (role < PLSH_ROLE_LAYER) {
        snprintf(out, size, "%s%s", prefix, name);
    } else {
        snprintf(out, size, "%s%s%lld.%s", prefix, family->layers, (long long)layer, name);
    }
}

void plsh_model_tensor_name(const plsh_model_config *config, bool prefixed, plsh_role role,
                            int64_t layer, const char *part, char *out, size_t size) {
    const plsh_family *family = config->family;
    if (config->gguf && role < PLSH_ROLE_LAYER) {
        snprintf(out, size, "%s.%s", gguf_name(config, role), part);
    } else if (config->gguf) {
        snprintf(out, size, "blk.%lld.%s.%s", (long long)layer, gguf_name(config, role), part);
    } else {
        const char *prefix = prefixed && !is_bare(family, role) ? family->prefix : "";
        if (role < PLSH_ROLE_LAYER) {
            snprintf(out, size, "%s%s.%s", prefix, family->name_of[role], part);
        } else {
            snprintf(out, size, "%s%s%lld.%s.%s", prefix, family->layers, (long long)layer,
                     family->name_of[role], part);
        }
    }
}

/* ---- Binding --------------------------------------------------------------------------------- */

typedef plsh_binder binder;

static bool fail(binder *b, plsh_status status) {
    if (!b->status) b->status = status;
    return false;
}

static void *bind_memory(binder *b, int64_t count, size_t size) {
    plsh_model *model = b->model;
    void *memory = NULL;
    if (model->owned_count == model->owned_capacity) {
        size_t capacity = 2 * model->owned_capacity + 16;
        void **grown = NULL;
        b->status = plsh_allocate((void **)&grown, capacity, sizeof(void *), "model", b->error);
        if (b->status) return NULL;
        if (model->owned_count) {
            memcpy(grown, model->owned, model->owned_count * sizeof(void *));
        }
        plsh_release(model->owned);
        model->owned = grown;
        model->owned_capacity = capacity;
    }
    b->status = plsh_allocate(&memory, (size_t)count, size, "weights of a model", b->error);
    if (!b->status) model->owned[model->owned_count++] = memory;
    return memory;
}

float *plsh_bind_floats(binder *b, int64_t count) { return bind_memory(b, count, sizeof(float)); }

const plsh_tensor *plsh_bind_tensor(binder *b, const char *name, bool required) {
    if (b->status) return NULL;
    plsh_model *model = b->model;
    const plsh_tensor *tensor = plsh_weights_find(model->weights, name);
    if (tensor) {
        model->used[tensor - plsh_weights_at(model->weights, 0)] = true;
    } else if (required) {
        fail(b, plsh_fail(b->error, PLSH_STATUS_FORMAT, "%s: the tensor %s is missing",
                          plsh_weights_path(model->weights), name));
    }
    return tensor;
}

/* The tensor of a role; NULL where it is absent, which is an error if it is required. */
static const plsh_tensor *find(binder *b, plsh_role role, int64_t layer, const char *part,
                               bool required) {
    char name[160];
    plsh_model_tensor_name(&b->model->config, b->prefixed, role, layer, part, name, sizeof(name));
    return plsh_bind_tensor(b, name, required);
}

bool plsh_bind_shape(binder *b, const plsh_tensor *tensor, int64_t rows, int64_t columns) {
    bool fits = tensor->rank >= 1 && tensor->rank <= 2 &&
                tensor->type < (plsh_weight_type)PLSH_WEIGHT_COMPUTED &&
                plsh_tensor_rows(tensor) == rows && plsh_tensor_columns(tensor) == columns;
    if (fits) return true;
    return fail(b, plsh_fail(b->error, PLSH_STATUS_FORMAT,
                             "%s: the tensor %s is %s [%lld, %lld]; [%lld, %lld] of floats or "
                             "quants is needed",
                             b->in_adapter ? plsh_adapter_path(b->model->adapter)
                                           : plsh_weights_path(b->model->weights),
                             tensor->name, plsh_weight_type_name(tensor->type),
                             (long long)plsh_tensor_rows(tensor),
                             (long long)plsh_tensor_columns(tensor), (long long)rows,
                             (long long)columns));
}

const float *plsh_bind_vector(binder *b, const plsh_tensor *tensor, int64_t count) {
    if (!tensor || !plsh_bind_shape(b, tensor, 1, count)) return NULL;
    if (tensor->type == PLSH_WEIGHT_F32) return tensor->data;
    float *copy = plsh_bind_floats(b, count);
    if (copy) plsh_tensor_to_float(tensor, 0, 1, copy);
    return copy;
}

static const float *bind_vector(binder *b, plsh_role role, int64_t layer, const char *part,
                                int64_t count, bool required) {
    return plsh_bind_vector(b, find(b, role, layer, part, required), count);
}

static plsh_norm bind_norm(binder *b, plsh_role role, int64_t layer, int64_t width) {
    const plsh_model_config *config = &b->model->config;
    plsh_norm norm = {.kind = config->norm, .width = width, .eps = config->norm_eps};
    norm.weight = bind_vector(b, role, layer, "weight", width, true);
    if (config->norm_bias) norm.bias = bind_vector(b, role, layer, "bias", width, true);
    return norm;
}

plsh_row_order plsh_model_gguf_order(const plsh_family *family, plsh_role role) {
    const bool q_or_k = role == PLSH_ROLE_Q || role == PLSH_ROLE_K;
    if (family->permuted_gguf && q_or_k) return PLSH_ROWS_PAIRS;
    const bool fused = family->qkv == PLSH_QKV_INTERLEAVED && role == PLSH_ROLE_QKV;
    return fused ? PLSH_ROWS_STACKED : PLSH_ROWS_SAME;
}

plsh_row_order plsh_model_row_order(const plsh_model_config *config, plsh_role role) {
    return config->gguf ? plsh_model_gguf_order(config->family, role) : PLSH_ROWS_SAME;
}

/* Heads of an odd width have no pairs: their rows keep their order. */
int64_t plsh_model_row_in_folder(const plsh_model_config *config, plsh_row_order order,
                                 int64_t row) {
    if (order == PLSH_ROWS_SAME) return row; /* so that the family need not be known */
    const int64_t dim = config->head_dim, heads = config->heads, in_head = row % dim;
    if (order == PLSH_ROWS_PAIRS && dim % 2 != 0) return row;
    if (order == PLSH_ROWS_PAIRS) return row - in_head + in_head % 2 * (dim / 2) + in_head / 2;
    return (row / dim % heads * 3 + row / dim / heads) * dim + in_head;
}

int64_t plsh_model_row_in_gguf(const plsh_model_config *config, plsh_row_order order, int64_t row) {
    if (order == PLSH_ROWS_SAME || (order == PLSH_ROWS_PAIRS && config->head_dim % 2 != 0))
        return row;
    const int64_t dim = config->head_dim, heads = config->heads, in_head = row % dim;
    const int64_t half = dim / 2;
    if (order == PLSH_ROWS_PAIRS)
        return row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
    return (row / dim % 3 * heads + row / dim / 3) * dim + in_head;
}

/* A and B of the adapter's layer, as floats. */
static void bind_adapter(binder *b, plsh_role role, int64_t layer, plsh_model_linear *linear) {
    plsh_model *model = b->model;
    char module[160];
    if (b->status || !model->adapter) return;
    plsh_model_module_name(&model->config, role, layer, module, sizeof(module));
    const plsh_adapter_layer *found = plsh_adapter_find(model->adapter, module);
    if (!found) return;
    int64_t in = linear->base.in, out = linear->base.out, rank = found->rank;
    b->in_adapter = true;
    const bool fits =
        plsh_bind_shape(b, found->a, rank, in) && plsh_bind_shape(b, found->b, out, rank);
    b->in_adapter = false;
    if (!fits) return;
    float *a = plsh_bind_floats(b, rank * in),
          *up = b->status ? NULL : plsh_bind_floats(b, out * rank);
    if (b->status) return;
    plsh_tensor_to_float(found->a, 0, rank, a);
    plsh_tensor_to_float(found->b, 0, out, up);
    const plsh_row_order order = plsh_model_row_order(&model->config, role);
    if (order != PLSH_ROWS_SAME) {
        float *ordered = plsh_bind_floats(b, out * rank);
        if (b->status) return;
        for (int64_t r = 0; r < out; r++)
            memcpy(ordered + plsh_model_row_in_gguf(&model->config, order, r) * rank, up + r * rank,
                   sizeof(float) * (size_t)rank);
        up = ordered;
    }
    linear->a = (plsh_linear){.type = PLSH_WEIGHT_F32, .weight = a, .out = rank, .in = in};
    linear->b = (plsh_linear){.type = PLSH_WEIGHT_F32, .weight = up, .out = out, .in = rank};
    linear->rank = rank;
    linear->scale = found->scale;
    if (rank > model->rank_max) model->rank_max = rank;
}

typedef struct transposition {
    const char *from; /* [in][out], numbers of 2 or 4 bytes, at any address */
    char *to;         /* [out][in] */
    int64_t in, out;
    size_t size;
} transposition;

/* Rows of the copy, 32 at a time: a cache line of the file is read once. */
static void transpose_rows(void *context, int64_t first, int64_t end, int slot) {
    enum { TILE = 32 };
    const transposition *t = context;
    (void)slot;
    for (int64_t o0 = first; o0 < end; o0 += TILE) {
        const int64_t o1 = o0 + TILE < end ? o0 + TILE : end;
        for (int64_t i = 0; i < t->in; i++) {
            const char *from = t->from + (size_t)(i * t->out) * t->size;
            for (int64_t o = o0; t->size == 2 && o < o1; o++)
                memcpy(t->to + 2 * (o * t->in + i), from + 2 * o, 2);
            for (int64_t o = o0; t->size == 4 && o < o1; o++)
                memcpy(t->to + 4 * (o * t->in + i), from + 4 * o, 4);
        }
    }
}

/* Transposes a weight [in, out] to [out, in], in its type; `copy` describes the copy. */
static bool bind_transposed(binder *b, const plsh_tensor *weight, plsh_tensor *copy) {
    const int64_t in = plsh_tensor_rows(weight), out = plsh_tensor_columns(weight);
    const size_t size = plsh_weight_type_bytes(weight->type);
    if (plsh_weight_type_block(weight->type) != 1 || (size != 2 && size != 4))
        return fail(b, plsh_fail(b->error, PLSH_STATUS_UNSUPPORTED,
                                 "%s: the tensor %s is %s; one that is [in, out] is float",
                                 plsh_weights_path(b->model->weights), weight->name,
                                 plsh_weight_type_name(weight->type)));
    char *to = bind_memory(b, in * out, size);
    transposition t = {weight->data, to, in, out, size};
    if (to) plsh_thread_rows(b->model->threads, out, 32, transpose_rows, &t);
    *copy = *weight;
    copy->shape[0] = out;
    copy->shape[1] = in;
    copy->data = to;
    return to != NULL;
}

bool plsh_model_transposed(const plsh_model_config *config, plsh_role role) {
    const bool linear = role >= PLSH_ROLE_QKV && role != PLSH_ROLE_Q_NORM &&
                        role != PLSH_ROLE_K_NORM && role != PLSH_ROLE_ATTENTION_NORM_2 &&
                        role != PLSH_ROLE_MLP_NORM;
    return config->family->transposed && !config->gguf && linear;
}

static plsh_model_linear bind_linear(binder *b, plsh_role role, int64_t layer, int64_t out,
                                     int64_t in, bool biased) {
    plsh_model_linear linear = {0};
    const plsh_tensor *weight = find(b, role, layer, "weight", true);
    const float *bias = biased ? bind_vector(b, role, layer, "bias", out, true) : NULL;
    plsh_tensor copy;
    const bool transposed = plsh_model_transposed(&b->model->config, role);
    if (b->status || !plsh_bind_shape(b, weight, transposed ? in : out, transposed ? out : in))
        return linear;
    if (transposed && !bind_transposed(b, weight, &copy)) return linear;
    if (transposed) weight = &copy;
    fail(b, plsh_linear_make(&linear.base, weight, bias, out, in, b->error));
    bind_adapter(b, role, layer, &linear);
    return linear;
}

/* ---- Layers ---------------------------------------------------------------------------------- */

static plsh_qkv_layout make_qkv_layout(const plsh_model_config *c) {
    int64_t d = c->head_dim, q = c->heads * d, kv = c->kv_heads * d;
    if (c->qkv == PLSH_QKV_INTERLEAVED) {
        return (plsh_qkv_layout){.width = 3 * q, .q = 0, .k = d, .v = 2 * d, .head_stride = 3 * d};
    }
    return (plsh_qkv_layout){.width = q + 2 * kv, .q = 0, .k = q, .v = q + kv, .head_stride = d};
}

/* The roles of the linear layers of q, k and v, and how many there are. */
int plsh_model_qkv_roles(const plsh_model_config *config, plsh_role roles[3]) {
    const bool split = config->qkv == PLSH_QKV_SPLIT, two = config->qkv == PLSH_QKV_Q_AND_KV;
    roles[0] = split || two ? PLSH_ROLE_Q : PLSH_ROLE_QKV;
    roles[1] = two ? PLSH_ROLE_KV : PLSH_ROLE_K;
    roles[2] = PLSH_ROLE_V;
    return split ? 3 : two ? 2 : 1;
}

int64_t plsh_model_role_rows(const plsh_model_config *c, plsh_role role) {
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const bool fused = c->mlp == PLSH_MLP_GATED_FUSED || c->mlp == PLSH_MLP_UP_GATE_FUSED;
    switch (role) {
    case PLSH_ROLE_TOKENS:
    case PLSH_ROLE_HEAD: return c->vocabulary;
    case PLSH_ROLE_QKV: return q + 2 * kv;
    case PLSH_ROLE_Q: return q;
    case PLSH_ROLE_K:
    case PLSH_ROLE_V: return kv;
    case PLSH_ROLE_KV: return 2 * kv;
    case PLSH_ROLE_GATE: return c->intermediate;
    case PLSH_ROLE_UP: return fused ? 2 * c->intermediate : c->intermediate;
    default: return c->hidden;
    }
}

static void bind_attention(binder *b, int64_t l, plsh_layer *layer) {
    const plsh_model_config *c = &b->model->config;
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const bool whole = c->qk_norm == PLSH_QK_NORM_WHOLE;
    plsh_role roles[3];
    layer->attention_norm = bind_norm(b, PLSH_ROLE_ATTENTION_NORM, l, c->hidden);
    layer->qkv_count = plsh_model_qkv_roles(c, roles);
    for (int i = 0; i < layer->qkv_count; i++)
        layer->qkv[i] =
            bind_linear(b, roles[i], l, plsh_model_role_rows(c, roles[i]), c->hidden, c->qkv_bias);
    if (c->qk_norm != PLSH_QK_NORM_NONE) {
        layer->q_norm = bind_norm(b, PLSH_ROLE_Q_NORM, l, whole ? q : c->head_dim);
        layer->k_norm = bind_norm(b, PLSH_ROLE_K_NORM, l, whole ? kv : c->head_dim);
    }
    layer->attention_out =
        bind_linear(b, PLSH_ROLE_ATTENTION_OUT, l, c->hidden, q, c->attention_bias);
    if (c->family->name_of[PLSH_ROLE_ATTENTION_NORM_2])
        layer->attention_norm_2 = bind_norm(b, PLSH_ROLE_ATTENTION_NORM_2, l, c->hidden);
}

/* Rows [up; gate] of one weight are two layers, in the order in which gate and up are computed. */
static void split_up_gate(binder *b, plsh_layer *layer, int64_t wide) {
    const plsh_model_linear fused = layer->up[0];
    if (b->status) return;
    if (fused.rank > 0) {
        fail(b, plsh_fail(b->error, PLSH_STATUS_UNSUPPORTED,
                          "%s: an adapter of the fused layer of the MLP of %s",
                          plsh_adapter_path(b->model->adapter), b->model->config.family->name));
        return;
    }
    layer->up[0].base = plsh_linear_slice(&fused.base, wide, wide);
    layer->up[1].base = plsh_linear_slice(&fused.base, 0, wide);
    layer->up_count = 2;
}

/* The two halves of a fused weight are one linear layer of twice the width; old GGUFs of JinaBERT
 * have them apart. */
static void bind_mlp(binder *b, int64_t l, plsh_layer *layer) {
    const plsh_model_config *c = &b->model->config;
    int64_t wide = c->intermediate, hidden = c->hidden;
    bool bias = c->mlp_bias, swapped = c->mlp == PLSH_MLP_UP_GATE_FUSED;
    bool fused = swapped || c->mlp == PLSH_MLP_GATED_FUSED;
    bool apart = fused && c->gguf && find(b, PLSH_ROLE_GATE, l, "weight", false);
    if (!c->parallel) layer->mlp_norm = bind_norm(b, PLSH_ROLE_MLP_NORM, l, hidden);
    if (c->mlp == PLSH_MLP_GATED || apart) {
        layer->up[layer->up_count++] =
            bind_linear(b, PLSH_ROLE_GATE, l, wide, hidden, bias && !fused);
    }
    bool whole = fused && !apart;
    layer->up[layer->up_count++] =
        bind_linear(b, PLSH_ROLE_UP, l, whole ? 2 * wide : wide, hidden, bias && !fused);
    if (whole && swapped) split_up_gate(b, layer, wide);
    layer->down = bind_linear(b, PLSH_ROLE_DOWN, l, hidden, wide, bias);
}

/* 1 / max(|row|, 1e-12) of rows of the head. */
static void fill_scales(void *context, int64_t first, int64_t end, int slot) {
    plsh_model *model = context;
    const plsh_linear *head = &model->head.base;
    const plsh_tensor stored = {
        .type = head->type, .rank = 2, .shape = {head->out, head->in}, .data = head->weight};
    float *row = model->head_rows + (size_t)slot * (size_t)head->in;
    for (int64_t r = first; r < end; r++) {
        double sum = 0.0;
        plsh_tensor_to_float(&stored, r, 1, row);
        for (int64_t i = 0; i < head->in; i++) sum += (double)row[i] * (double)row[i];
        model->head_scales[r] = (float)(1.0 / fmax(sqrt(sum), PLSH_HEAD_SHORTEST));
    }
}

void plsh_model_head_scales(plsh_model *model) {
    if (!model->head_scales) return;
    plsh_thread_rows(model->threads, model->head.base.out, 64, fill_scales, model);
}

static void bind_head_scales(binder *b) {
    plsh_model *model = b->model;
    const plsh_model_config *c = &model->config;
    if (model->head.rank > 0) {
        fail(b, plsh_fail(b->error, PLSH_STATUS_UNSUPPORTED,
                          "%s: an adapter of the head of %s, whose rows are normalised",
                          plsh_adapter_path(model->adapter), c->family->name));
        return;
    }
    model->head_scales = plsh_bind_floats(b, c->vocabulary);
    if (!b->status) model->head_rows = plsh_bind_floats(b, model->threads * c->hidden);
    if (!b->status) plsh_model_head_scales(model);
}

static void bind_embeddings(binder *b) {
    plsh_model *model = b->model;
    const plsh_model_config *c = &model->config;
    model->tokens = find(b, PLSH_ROLE_TOKENS, 0, "weight", true);
    if (model->tokens) plsh_bind_shape(b, model->tokens, c->vocabulary, c->hidden);
    if (c->family->position == PLSH_POSITION_LEARNED) {
        model->positions = find(b, PLSH_ROLE_POSITIONS, 0, "weight", true);
        if (model->positions) plsh_bind_shape(b, model->positions, c->context, c->hidden);
    }
    if (c->types) {
        const plsh_tensor *types = find(b, PLSH_ROLE_TYPES, 0, "weight", true);
        if (types && plsh_bind_shape(b, types, c->types, c->hidden)) {
            model->types = plsh_bind_floats(b, c->types * c->hidden);
            if (model->types) plsh_tensor_to_float(types, 0, c->types, model->types);
        }
    }
    if (c->family->tokens_norm)
        model->tokens_norm = bind_norm(b, PLSH_ROLE_TOKENS_NORM, 0, c->hidden);
    if (!c->family->causal) return;
    model->final_norm = bind_norm(b, PLSH_ROLE_FINAL_NORM, 0, c->hidden);
    /* A file of the class without a head (an embedder) has names without the prefix. */
    bool wanted = !c->tied && !c->gguf;
    bool own_head = find(b, PLSH_ROLE_HEAD, 0, "weight", wanted && b->prefixed) != NULL;
    if (own_head && !c->tied) {
        model->head = bind_linear(b, PLSH_ROLE_HEAD, 0, c->vocabulary, c->hidden, false);
    } else if (model->tokens && !b->status && !wanted) {
        fail(b, plsh_linear_make(&model->head.base, model->tokens, NULL, c->vocabulary, c->hidden,
                                 b->error));
    }
    if (c->family->normal_head && !b->status) bind_head_scales(b);
}

/* Checks that every tensor in the file is used, or is known to be unused. */
static plsh_status check_all_used(const plsh_model *model, plsh_error *error) {
    for (size_t i = 0; i < plsh_weights_count(model->weights); i++) {
        const char *name = plsh_weights_at(model->weights, i)->name;
        if (model->used[i] || plsh_family_ignores(model->config.family, name)) continue;
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: the tensor %s has no place in a model of the family %s",
                         plsh_weights_path(model->weights), name, model->config.family->name);
    }
    return PLSH_STATUS_OK;
}

/* Fails if the adapter has layers that the model lacks. */
static plsh_status check_adapter(const plsh_model *model, plsh_error *error) {
    size_t used = 0;
    for (int64_t l = 0; l < model->config.layers; l++) {
        const plsh_layer *layer = &model->layer[l];
        for (int i = 0; i < layer->qkv_count; i++) used += layer->qkv[i].rank > 0;
        for (int i = 0; i < layer->up_count; i++) used += layer->up[i].rank > 0;
        used += (layer->attention_out.rank > 0) + (layer->down.rank > 0);
    }
    used += model->head.rank > 0;
    size_t count = model->adapter ? plsh_adapter_count(model->adapter) : 0;
    if (used == count) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s: the adapter has %zu layers, of which this model has %zu linear layers",
                     plsh_adapter_path(model->adapter), count, used);
}

/* A GGUF may give the factors of its frequencies (Llama 3). */
static plsh_status make_rope(binder *b) {
    plsh_model *model = b->model;
    const plsh_model_config *c = &model->config;
    const float *factors = NULL;
    const plsh_tensor *tensor = plsh_weights_find(model->weights, "rope_freqs.weight");
    if (c->gguf && tensor) {
        if (tensor->type != PLSH_WEIGHT_F32 || !plsh_bind_shape(b, tensor, 1, c->head_dim / 2)) {
            return plsh_fail(b->error, PLSH_STATUS_FORMAT,
                             "%s: rope_freqs.weight has a wrong shape",
                             plsh_weights_path(model->weights));
        }
        model->used[tensor - plsh_weights_at(model->weights, 0)] = true;
        factors = tensor->data;
    }
    bool adjacent = c->gguf && c->family->permuted_gguf;
    return plsh_rope_make(&model->rope, &c->rope, c->head_dim, adjacent, factors, b->error);
}

static plsh_status bind(plsh_model *model, plsh_error *error) {
    const plsh_model_config *c = &model->config;
    char name[160];
    binder b = {.model = model, .error = error};
    plsh_model_tensor_name(c, true, PLSH_ROLE_TOKENS, 0, "weight", name, sizeof(name));
    b.prefixed = plsh_weights_find(model->weights, name) != NULL;
    b.status = plsh_allocate((void **)&model->used, plsh_weights_count(model->weights) + 1,
                             sizeof(bool), "tensors", error);
    if (!b.status) {
        b.status = plsh_allocate((void **)&model->layer, (size_t)c->layers, sizeof(plsh_layer),
                                 "layers", error);
    }
    if (!b.status) bind_embeddings(&b);
    for (int64_t l = 0; !b.status && l < c->layers; l++) {
        bind_attention(&b, l, &model->layer[l]);
        bind_mlp(&b, l, &model->layer[l]);
    }
    if (!b.status && c->family->position == PLSH_POSITION_ROPE) b.status = make_rope(&b);
    if (!b.status && !c->family->causal) plsh_encoder_heads_bind(&b);
    if (!b.status) b.status = check_all_used(model, error);
    if (!b.status) b.status = check_adapter(model, error);
    return b.status;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static plsh_status read_config(plsh_model *model, plsh_error *error) {
    if (plsh_weights_form_of(model->weights) == PLSH_WEIGHTS_GGUF) {
        return plsh_model_config_gguf(model->weights, plsh_weights_path(model->weights),
                                      &model->config, error);
    }
    char path[4096];
    int length =
        snprintf(path, sizeof(path), "%s/config.json", plsh_weights_folder(model->weights));
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "the path of config.json is too long");
    }
    plsh_mapping mapping;
    plsh_status status = plsh_mapping_open(&mapping, path, error);
    if (status) return status;
    status = plsh_model_config_json((const char *)mapping.bytes, mapping.size, path, &model->config,
                                    error);
    plsh_mapping_close(&mapping);
    if (!status) plsh_model_config_tensors(&model->config, model->weights);
    return status;
}

static void count_matrix(plsh_model_facts *facts, const plsh_model *model,
                         const plsh_model_linear *linear) {
    facts->matrices++;
    if (model->int8 && plsh_linear_in_int8(&linear->base)) facts->int8_matrices++;
}

static void count_matrices(plsh_model_facts *facts, const plsh_model *model) {
    for (int64_t l = 0; l < model->config.layers; l++) {
        const plsh_layer *layer = &model->layer[l];
        for (int i = 0; i < layer->qkv_count; i++) count_matrix(facts, model, &layer->qkv[i]);
        for (int i = 0; i < layer->up_count; i++) count_matrix(facts, model, &layer->up[i]);
        count_matrix(facts, model, &layer->attention_out);
        count_matrix(facts, model, &layer->down);
    }
    if (model->config.family->causal) count_matrix(facts, model, &model->head);
}

static plsh_status choose_compute(plsh_model *model, const plsh_model_options *options,
                                  plsh_error *error) {
    if (options->compute == PLSH_COMPUTE_FLOAT32) return PLSH_STATUS_OK;
    if (options->compute == PLSH_COMPUTE_BFLOAT16)
        return plsh_bfloat_kernels_choose(&model->bfloat, options->isa, error);
    if (options->compute != PLSH_COMPUTE_AUTO && options->compute != PLSH_COMPUTE_INT8)
        return plsh_fail(error, PLSH_STATUS_INVALID, "compute is %d; it must be a plsh_compute",
                         (int)options->compute);
    plsh_status status = plsh_int8_kernels_choose(&model->int8, options->isa, error);
    plsh_model_facts facts = {0};
    if (!status) count_matrices(&facts, model);
    if (!status && options->compute == PLSH_COMPUTE_INT8 && facts.int8_matrices == 0)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: compute int8 needs quantised weights (q8_0, q4_0, ..); its linear "
                         "layers are of type %s: compute float32, bfloat16 or auto",
                         plsh_weights_path(model->weights),
                         plsh_weight_type_name(model->layer[0].attention_out.base.type));
    return status;
}

static plsh_status build(plsh_model *model, const char *path, const plsh_model_options *options,
                         plsh_error *error) {
    plsh_status status = plsh_weights_open(&model->weights, path, error);
    if (!status) status = read_config(model, error);
    if (!status && options->family)
        status = plsh_model_config_choose(&model->config, options->family, error);
    if (!status) status = plsh_model_config_fits(&model->config, model->weights, error);
    if (status) return status;
    model->threads = plsh_thread_count(options->threads);
    model->qkv = make_qkv_layout(&model->config);
    status = plsh_linear_kernels_choose(&model->kernels, options->isa, error);
    if (!status && options->isa) {
        model->isa = strdup(options->isa);
        if (!model->isa) status = plsh_fail(error, PLSH_STATUS_NO_MEMORY, "no memory for a model");
    }
    if (!status && options->adapter) {
        status = plsh_adapter_open(&model->adapter, options->adapter, error);
    }
    if (!status) status = plsh_slopes_make(model, options->adapter, error);
    if (!status) status = bind(model, error);
    if (!status) status = choose_compute(model, options, error);
    return status;
}

plsh_status plsh_model_open(plsh_model **out, const char *path, const plsh_model_options *options,
                            plsh_error *error) {
    plsh_model *model;
    const plsh_model_options none = {0};
    *out = NULL;
    plsh_status status = plsh_allocate((void **)&model, 1, sizeof(*model), "model", error);
    if (status) return status;
    status = build(model, path, options ? options : &none, error);
    if (status) {
        plsh_model_close(model);
        return status;
    }
    *out = model;
    return PLSH_STATUS_OK;
}

void plsh_model_close(plsh_model *model) {
    if (!model) return;
    for (size_t i = 0; i < model->owned_count; i++) plsh_release(model->owned[i]);
    plsh_release(model->owned);
    plsh_release(model->used);
    plsh_release(model->layer);
    plsh_release(model->slopes);
    plsh_encoder_heads_free(model->encoder_heads);
    plsh_rope_clear(&model->rope);
    plsh_adapter_close(model->adapter);
    plsh_weights_close(model->weights);
    free(model->isa);
    plsh_release(model);
}

/* ---- Facts ----------------------------------------------------------------------------------- */

/* How llama.cpp computes a GGUF of the family differently; NULL: no difference is known. */
static const char *differs_from_others(const plsh_model_config *c) {
    const char *architecture = c->family->architecture;
    if (!c->gguf || !architecture) return NULL;
    if (strcmp(architecture, "refact") == 0 && c->norm == PLSH_NORM_LAYER)
        return "LayerNorm without bias, as the model was trained; llama.cpp computes RMSNorm";
    if (strcmp(architecture, "jina-bert-v2") == 0 && c->mlp == PLSH_MLP_UP_GATE_FUSED)
        return "GELU on the second half of ffn_up, as the model was trained; llama.cpp takes the "
               "first half of a fused one";
    if (strcmp(architecture, "baichuan") == 0 && c->family->position == PLSH_POSITION_ALIBI &&
        c->layers != 40)
        return "ALiBi; llama.cpp has it for a Baichuan of exactly 40 layers";
    if (strcmp(architecture, "baichuan") == 0 && c->family->normal_head)
        return "a normalised head; llama.cpp takes it as it is stored";
    if (strcmp(architecture, "jais") == 0 && c->scale != 1.0 / (double)c->head_dim)
        return "a scale of scores of its own; llama.cpp divides them by the width of a head";
    if (strcmp(architecture, "mpt") == 0 && (c->scale != 0.0 || c->logit_scale != 1.0))
        return "a scale of scores or logits of its own, which llama.cpp ignores";
    return NULL;
}

plsh_model_facts plsh_model_describe(const plsh_model *model) {
    const plsh_model_config *c = &model->config;
    plsh_model_facts facts = {.family = c->family->name,
                              .rule = c->rule,
                              .differs = differs_from_others(c),
                              .alibi_length = c->alibi_length,
                              .layers = c->layers,
                              .hidden = c->hidden,
                              .heads = c->heads,
                              .kv_heads = c->kv_heads,
                              .head_dim = c->head_dim,
                              .intermediate = c->intermediate,
                              .vocabulary = c->vocabulary,
                              .context = c->context,
                              .causal = c->family->causal,
                              .rope = c->family->position == PLSH_POSITION_ROPE,
                              .alibi = c->family->position == PLSH_POSITION_ALIBI ||
                                       c->family->position == PLSH_POSITION_ALIBI_SCALED,
                              .slopes_learned = model->slopes_learned,
                              .masked = plsh_encoder_heads_masked(model->encoder_heads),
                              .labels = plsh_encoder_heads_labels(model->encoder_heads),
                              .bytes = plsh_weights_bytes(model->weights)};
    for (size_t i = 0; i < plsh_weights_count(model->weights); i++) {
        const plsh_tensor *tensor = plsh_weights_at(model->weights, i);
        facts.parameters += plsh_tensor_rows(tensor) * plsh_tensor_columns(tensor);
    }
    count_matrices(&facts, model);
    facts.bfloat16 = model->bfloat != NULL;
    facts.emulated = facts.bfloat16 && !model->bfloat->native;
    return facts;
}

const plsh_weights *plsh_model_weights(const plsh_model *model) { return model->weights; }
