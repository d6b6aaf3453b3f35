/* convert: weights between a folder of safetensors and GGUF, row by row. */
#include "convert/items.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mapping.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/path.h"
#include "model/model.h"
#include "model/modules.h"
#include "model/slopes.h"
#include "plsh/io.h"

#define ROPE_FACTORS "rope_freqs.weight"

typedef plsh_conversion conversion;
typedef plsh_convert_item item;
typedef plsh_convert_piece piece;
enum { PIECES = PLSH_CONVERT_PIECES };

/* ---- Formats of input and output ------------------------------------------------------------ */

static bool is_type(const plsh_model_config *config, const char *architecture) {
    return config->family->architecture && strcmp(config->family->architecture, architecture) == 0;
}

/* Refuses values for which the family's config.json has no field: other biases, kv heads, the width
 * of a head. */
static plsh_status check_heads(const conversion *c, plsh_error *error) {
    const plsh_model_config *f = &c->from;
    const int64_t kv = is_type(f, "refact") ? 1 : f->heads;
    const bool usual = f->kv_heads == kv && f->heads * f->head_dim == f->hidden;
    const bool rope = f->family->position == PLSH_POSITION_ROPE && !is_type(f, "baichuan");
    if (!c->to_gguf && rope && f->qkv_bias != f->attention_bias && !f->family->qkv_bias)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: biases of q, k and v without one of the output, or the other way; a "
                         "folder of the family %s has all or none",
                         plsh_weights_path(c->weights), f->family->name);
    if (f->gguf && !c->to_gguf) {
        plsh_status status = plsh_convert_check_folder(f, plsh_weights_path(c->weights), error);
        if (status) return status;
    }
    if (c->to_gguf || usual || rope || is_type(f, "mpt")) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s: %lld heads, %lld kv heads of width %lld; a folder of the family %s has "
                     "as many kv heads as heads, of width %lld / %lld",
                     plsh_weights_path(c->weights), (long long)f->heads, (long long)f->kv_heads,
                     (long long)f->head_dim, f->family->name, (long long)f->hidden,
                     (long long)f->heads);
}

/* The other form of the configuration. A GGUF of Jais holds its scales in its weights, so that its
 * head is no longer the embedding. */
static void change_form(conversion *c) {
    const plsh_model_config *f = &c->from;
    c->to.gguf = c->to_gguf;
    plsh_model_config_family(&c->to, f->family);
    c->to.norm = f->norm;
    c->to.norm_bias = f->norm_bias;
    c->to.qk_norm = f->qk_norm;
    if (!f->family->split_gguf) c->to.mlp = f->mlp;
    if (c->to_gguf && is_type(f, "jais")) c->to.tied = false;
}

/* Opens the model as every command does, so that each tensor has the shape that the configuration
 * gives it: the order of rows below relies on that. */
static plsh_status open_model(conversion *c, plsh_error *error) {
    const plsh_convert_options *o = c->options;
    const plsh_model_options options = {.adapter = o->adapter, .family = o->family};
    plsh_status status = plsh_model_open(&c->model, o->model, &options, error);
    if (status) return status;
    c->weights = c->model->weights;
    c->adapter = c->model->adapter;
    c->from = c->to = c->model->config;
    change_form(c);
    /* In a GGUF, Mistral is a Llama. */
    if (strcmp(c->from.family->model_type, "mistral") == 0) c->to.family = &plsh_families[0];
    if (c->to_gguf && !c->to.family->architecture)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: a GGUF has no place for the family %s", plsh_weights_path(c->weights),
                         c->from.family->name);
    char name[160];
    plsh_model_tensor_name(&c->from, true, PLSH_ROLE_TOKENS, 0, "weight", name, sizeof name);
    c->prefixed = plsh_weights_find(c->weights, name) != NULL;
    return check_heads(c, error);
}

/* Is it a folder of a family whose linear weights are [in, out]? */
static bool is_transposed(const plsh_weights *weights) {
    char *path;
    plsh_mapping mapping;
    plsh_model_config config;
    if (plsh_path_join(&path, plsh_weights_folder(weights), "config.json", NULL)) return false;
    plsh_status status = plsh_mapping_open(&mapping, path, NULL);
    if (!status) {
        status =
            plsh_model_config_json((const char *)mapping.bytes, mapping.size, path, &config, NULL);
        plsh_mapping_close(&mapping);
    }
    plsh_release(path);
    return !status && config.family->transposed;
}

/* The family is needed only where names change (between a folder and a GGUF), and to merge an
 * adapter into a GGUF or into weights that are [in, out]. Otherwise an unknown family is converted
 * too: only types change. */
static plsh_status open_input(conversion *c, plsh_error *error) {
    const plsh_convert_options *o = c->options;
    plsh_status status = plsh_weights_open(&c->own_weights, o->model, error);
    if (status) return status;
    const bool from_gguf = plsh_weights_form_of(c->own_weights) == PLSH_WEIGHTS_GGUF;
    if (from_gguf != c->to_gguf || (from_gguf && o->adapter) ||
        (o->adapter && is_transposed(c->own_weights))) {
        plsh_weights_close(c->own_weights);
        c->own_weights = NULL;
        return open_model(c, error);
    }
    c->weights = c->own_weights;
    if (o->adapter) status = plsh_adapter_open(&c->own_adapter, o->adapter, error);
    c->adapter = c->own_adapter;
    return status;
}

/* The weights of the logits in a GGUF: "output", or the embedding where there is none. */
static bool is_head(const conversion *c, const char *name) {
    if (strcmp(name, "output.weight") == 0) return true;
    if (strcmp(name, "token_embd.weight") != 0) return false;
    if (c->model) return c->from.family->causal && c->to.tied;
    return !plsh_weights_find(c->weights, "output.weight") &&
           plsh_weights_find(c->weights, "output_norm.weight");
}

/* A type of blocks of 256 becomes the next better one of blocks of 32 where a row is no whole
 * number of blocks, as in llama.cpp; others become f16. */
static plsh_weight_type fit_columns(plsh_weight_type type, int64_t columns) {
    if (columns % plsh_weight_type_block(type) == 0) return type;
    if (columns % 32 == 0 && type == PLSH_WEIGHT_Q4_K) return PLSH_WEIGHT_Q5_0;
    return columns % 32 == 0 ? PLSH_WEIGHT_Q8_0 : PLSH_WEIGHT_F16;
}

/* The type of the output matrix. Its quantisation errors go straight into the logits: instead of 4
 * bits it gets 6 or 8, as in llama.cpp, unless it has the type asked for already. */
static plsh_weight_type type_of_matrix(const conversion *c, const plsh_tensor *tensor,
                                       const char *name) {
    plsh_weight_type type = c->options->type;
    if (tensor->type != type && is_head(c, name)) {
        if (type == PLSH_WEIGHT_Q4_K) type = PLSH_WEIGHT_Q6_K;
        if (type == PLSH_WEIGHT_Q4_0 || type == PLSH_WEIGHT_Q4_1) type = PLSH_WEIGHT_Q8_0;
    }
    return fit_columns(type, plsh_tensor_columns(tensor));
}

/* Vectors of a GGUF stay float32, and so do position and type embeddings, which llama.cpp adds
 * without conversion. Tensors of integers keep their type. */
static plsh_weight_type type_of(const conversion *c, const plsh_tensor *tensor, const char *name) {
    if (tensor->type >= (plsh_weight_type)PLSH_WEIGHT_COMPUTED) return tensor->type;
    if (!c->to_gguf) return c->options->type;
    if (plsh_convert_is_vector(tensor) || strcmp(name, "token_types.weight") == 0 ||
        strcmp(name, "position_embd.weight") == 0)
        return PLSH_WEIGHT_F32;
    return type_of_matrix(c, tensor, name);
}

/* The tensor `from` as it is, or its pieces (`shape` NULL: its own shape). */
static item *add_shaped(conversion *c, const plsh_tensor *from, const int64_t shape[2],
                        const char *name) {
    item *added = &c->items[c->count++];
    *added = (item){.from = from, .to = *from, .scale = 1.0f};
    snprintf(added->name, sizeof added->name, "%s", name);
    added->to.name = added->name;
    if (shape && from->rank == 2) {
        added->to.shape[0] = shape[0];
        added->to.shape[1] = shape[1];
    } else if (shape) {
        added->to.shape[0] = shape[0];
    }
    added->to.type = type_of(c, &added->to, name);
    if (added->to.type != c->options->type && from->rank >= 2 && added->to.type == PLSH_WEIGHT_F16)
        c->done.as_f16++;
    if (plsh_weight_type_block(c->options->type) == 256 &&
        plsh_weight_type_block(added->to.type) == 32)
        c->done.as_blocks_of_32++;
    return added;
}

static item *add_item(conversion *c, const plsh_tensor *from, const char *name) {
    return add_shaped(c, from, NULL, name);
}

/* Merging adds B A to floats: the tensor is a matrix of them of that shape. */
static plsh_status check_merge(const conversion *c, const item *it, plsh_error *error) {
    const plsh_adapter_layer *layer = it->adapter;
    const plsh_tensor *from = it->from;
    const int in = it->from_transposed ? 0 : 1;
    if (!layer ||
        (from->type < (plsh_weight_type)PLSH_WEIGHT_COMPUTED && from->rank == 2 &&
         layer->a->shape[1] == from->shape[in] && layer->b->shape[0] == from->shape[1 - in]))
        return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_FORMAT,
                     "%s: the adapter's layer %s, B [%lld, %lld] A [%lld, %lld], does not fit the "
                     "tensor %s, %s [%lld, %lld]",
                     plsh_adapter_path(c->adapter), layer->module, (long long)layer->b->shape[0],
                     (long long)layer->rank, (long long)layer->rank, (long long)layer->a->shape[1],
                     from->name, plsh_weight_type_name(from->type),
                     (long long)plsh_tensor_rows(from), (long long)plsh_tensor_columns(from));
}

static void add_adapter(conversion *c, item *to, const char *module) {
    to->adapter = c->adapter ? plsh_adapter_find(c->adapter, module) : NULL;
    if (to->adapter) c->merged++;
}

/* The tensor of a role in the input; NULL: there is none. */
static const plsh_tensor *find_role(const conversion *c, plsh_role role, int64_t layer,
                                    const char *part) {
    char name[160];
    const bool has_name =
        c->from.gguf ? plsh_family_gguf_names[role] != NULL : c->from.family->name_of[role] != NULL;
    if (!has_name) return NULL;
    plsh_model_tensor_name(&c->from, c->prefixed, role, layer, part, name, sizeof name);
    return plsh_weights_find(c->weights, name);
}

/* Converts the tensor of a role, with its names and order of rows in both files. */
static void add_role(conversion *c, plsh_role role, int64_t layer, const char *part) {
    char name[160], module[160];
    const plsh_tensor *from = find_role(c, role, layer, part);
    if (!c->from.family->name_of[role] || !from) return;
    plsh_model_tensor_name(&c->to, true, role, layer, part, name, sizeof name);
    const bool weight = strcmp(part, "weight") == 0;
    const bool from_transposed = weight && plsh_model_transposed(&c->from, role);
    const bool to_transposed = weight && plsh_model_transposed(&c->to, role);
    const int64_t swapped[2] = {from->shape[1], from->shape[0]};
    item *added = add_shaped(c, from, from_transposed != to_transposed ? swapped : NULL, name);
    added->from_transposed = from_transposed;
    added->to_transposed = to_transposed;
    added->order = plsh_model_gguf_order(c->to.family, role);
    if (c->to_gguf && role == PLSH_ROLE_TOKENS) added->scale = (float)c->from.embedding_scale;
    /* Normalised rows give the same logits whether the reader normalises them again or not; the
     * written format may not say that it has to. */
    if (role == PLSH_ROLE_HEAD) added->normal = c->from.family->normal_head;
    if (c->to_gguf && role == PLSH_ROLE_HEAD && is_type(&c->from, "jais"))
        added->scale = (float)c->from.logit_scale;
    plsh_model_module_name(&c->from, role, layer, module, sizeof module);
    if (weight) add_adapter(c, added, module);
}

/* ---- Tensors that are fused in one format and separate in the other ---- */

typedef enum segment { SEGMENT_Q, SEGMENT_K, SEGMENT_V, SEGMENT_GATE, SEGMENT_UP } segment;

typedef struct place {
    plsh_role role;
    int64_t first, rows;
} place;

/* Where the rows of q, k, v, gate or up lie. */
static place place_of(const plsh_model_config *c, segment what) {
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const bool split = c->qkv == PLSH_QKV_SPLIT, two = c->qkv == PLSH_QKV_Q_AND_KV;
    const bool fused = c->mlp == PLSH_MLP_GATED_FUSED;
    switch (what) {
    case SEGMENT_Q: return (place){split || two ? PLSH_ROLE_Q : PLSH_ROLE_QKV, 0, q};
    case SEGMENT_K:
        return (place){split ? PLSH_ROLE_K
                       : two ? PLSH_ROLE_KV
                             : PLSH_ROLE_QKV,
                       split || two ? 0 : q, kv};
    case SEGMENT_V:
        return (place){split ? PLSH_ROLE_V
                       : two ? PLSH_ROLE_KV
                             : PLSH_ROLE_QKV,
                       split ? 0
                       : two ? kv
                             : q + kv,
                       kv};
    case SEGMENT_GATE: return (place){fused ? PLSH_ROLE_UP : PLSH_ROLE_GATE, 0, c->intermediate};
    default: return (place){PLSH_ROLE_UP, fused ? c->intermediate : 0, c->intermediate};
    }
}

/* Rows of q and k are ordered by pairs in a GGUF of some families. */
static plsh_row_order order_of(const conversion *c, segment what) {
    if (what > SEGMENT_K) return PLSH_ROWS_SAME;
    return plsh_model_gguf_order(c->to.family, what == SEGMENT_Q ? PLSH_ROLE_Q : PLSH_ROLE_K);
}

/* The tensor of a role of the output, from the pieces that the input has of it. */
static void add_joined(conversion *c, plsh_role role, int64_t layer, const char *part) {
    piece pieces[PIECES];
    int count = 0;
    int64_t rows = 0;
    plsh_role first = role;
    for (int what = SEGMENT_Q; what <= SEGMENT_UP; what++) {
        if (place_of(&c->to, (segment)what).role != role) continue;
        const place at = place_of(&c->from, (segment)what);
        const plsh_tensor *from = find_role(c, at.role, layer, part);
        if (!from || count == PIECES) return;
        if (count == 0) first = at.role;
        pieces[count++] = (piece){from, at.first, at.rows, order_of(c, (segment)what)};
        rows += at.rows;
    }
    if (count == 0) return;
    char name[160], module[160];
    plsh_model_tensor_name(&c->to, true, role, layer, part, name, sizeof name);
    const int64_t shape[2] = {rows, pieces[0].from->shape[1]};
    item *added = add_shaped(c, pieces[0].from, shape, name);
    memcpy(added->piece, pieces, sizeof pieces);
    added->pieces = count;
    plsh_model_module_name(&c->from, first, layer, module, sizeof module);
    if (strcmp(part, "weight") != 0 || !c->adapter) return;
    added->adapter = plsh_adapter_find(c->adapter, module);
    if (added->adapter && pieces[0].first == 0) c->merged++; /* once for all of its pieces */
}

static bool is_joined(const conversion *c, plsh_role role) {
    const bool qkv = role == PLSH_ROLE_QKV || role == PLSH_ROLE_Q || role == PLSH_ROLE_K ||
                     role == PLSH_ROLE_V || role == PLSH_ROLE_KV;
    const bool mlp = role == PLSH_ROLE_GATE || role == PLSH_ROLE_UP;
    if (c->from.family->qkv == PLSH_QKV_INTERLEAVED)
        return false; /* handled by the order of rows */
    return (qkv && c->from.qkv != c->to.qkv) || (mlp && c->from.mlp != c->to.mlp);
}

/* The head of a GGUF that must have one. */
static void add_head(conversion *c) {
    const plsh_tensor *tokens = find_role(c, PLSH_ROLE_TOKENS, 0, "weight");
    if (!c->from.tied || c->to.tied || !tokens) return;
    add_item(c, tokens, "output.weight")->scale = (float)c->from.logit_scale;
}

static size_t add_roles(conversion *c) {
    static const char *const parts[] = {"weight", "bias"};
    for (int role = 0; role < PLSH_ROLE_COUNT; role++) {
        if (role == PLSH_ROLE_HEAD && c->from.tied)
            continue; /* a tensor of that name is not used */
        int64_t layers = role < PLSH_ROLE_LAYER ? 1 : c->from.layers;
        for (int64_t l = 0; l < layers; l++)
            for (int p = 0; p < 2; p++)
                (is_joined(c, (plsh_role)role) ? add_joined : add_role)(c, (plsh_role)role, l,
                                                                        parts[p]);
    }
    add_head(c);
    return c->count;
}

static bool holds(const item *it, const plsh_tensor *tensor) {
    for (int i = 1; i < it->pieces; i++)
        if (it->piece[i].from == tensor) return true;
    return it->from == tensor;
}

/* Checks that every tensor is converted, or may be left out, such as an extra head in the file of a
 * tied model. */
static plsh_status check_all(const conversion *c, plsh_error *error) {
    char head[160] = "";
    if (c->from.tied && c->from.family->name_of[PLSH_ROLE_HEAD])
        plsh_model_tensor_name(&c->from, c->prefixed, PLSH_ROLE_HEAD, 0, "weight", head,
                               sizeof head);
    for (size_t i = 0; i < plsh_weights_count(c->weights); i++) {
        const plsh_tensor *tensor = plsh_weights_at(c->weights, i);
        size_t at = 0;
        while (at < c->count && !holds(&c->items[at], tensor)) at++;
        if (c->rope_carried && strcmp(tensor->name, ROPE_FACTORS) == 0) continue;
        if (at == c->count && strcmp(tensor->name, head) != 0 &&
            !plsh_family_ignores(c->from.family, tensor->name))
            return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                             "%s: the tensor %s has no place in the other form",
                             plsh_weights_path(c->weights), tensor->name);
    }
    return PLSH_STATUS_OK;
}

static plsh_status add_same(conversion *c) {
    for (size_t i = 0; i < plsh_weights_count(c->weights); i++) {
        const plsh_tensor *tensor = plsh_weights_at(c->weights, i);
        char module[160];
        item *added = add_item(c, tensor, tensor->name);
        snprintf(module, sizeof module, "%s", tensor->name);
        char *end = strrchr(module, '.');
        if (!end || strcmp(end, ".weight") != 0) continue;
        *end = '\0';
        add_adapter(c, added, module);
    }
    return PLSH_STATUS_OK;
}

/* The RoPE factors of a GGUF: copied into another GGUF, written to config.json in a folder. */
static plsh_status carry_rope_factors(conversion *c, plsh_error *error) {
    const plsh_tensor *tensor = plsh_weights_find(c->weights, ROPE_FACTORS);
    const int64_t half = c->from.head_dim / 2;
    if (!tensor || c->from.family->position != PLSH_POSITION_ROPE) return PLSH_STATUS_OK;
    if (c->to_gguf) {
        add_item(c, tensor, tensor->name);
        return PLSH_STATUS_OK;
    }
    if (tensor->type != PLSH_WEIGHT_F32 || tensor->rank != 1 || tensor->shape[0] != half)
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: %s has a wrong shape",
                         plsh_weights_path(c->weights), ROPE_FACTORS);
    c->rope_carried = true;
    return plsh_convert_rope_recover(tensor->data, half, plsh_weights_path(c->weights),
                                     &c->from.rope, error);
}

static plsh_status add_rope_factors(conversion *c, plsh_error *error) {
    const plsh_rope_config *rope = &c->from.rope;
    const int64_t half = c->from.head_dim / 2;
    if (rope->scaling != PLSH_ROPE_LLAMA3) return PLSH_STATUS_OK;
    void *memory;
    plsh_status status = plsh_allocate(&memory, (size_t)half, sizeof(float), "factors", error);
    if (status) return status;
    c->rope_factors = memory;
    plsh_convert_rope_factors(rope, half, c->rope_factors);
    item *added = &c->items[c->count++];
    *added = (item){.values = c->rope_factors,
                    .scale = 1.0f,
                    .to = {.type = PLSH_WEIGHT_F32, .rank = 1, .shape = {half}}};
    strcpy(added->name, ROPE_FACTORS);
    added->to.name = added->name;
    return PLSH_STATUS_OK;
}

static plsh_status list_items(conversion *c, plsh_error *error) {
    const bool from_gguf = plsh_weights_form_of(c->weights) == PLSH_WEIGHTS_GGUF;
    void *memory;
    plsh_status status = plsh_allocate(&memory, PIECES * plsh_weights_count(c->weights) + 2,
                                       sizeof(item), "the tensors to convert", error);
    c->items = memory;
    if (status) return status;
    for (size_t i = 0; i < plsh_weights_count(c->weights); i++) {
        const plsh_tensor *tensor = plsh_weights_at(c->weights, i);
        if (strlen(tensor->name) >= sizeof c->items->name)
            return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                             "the tensor %.100s..: its name is long", tensor->name);
    }
    if (!c->model) {
        add_same(c);
    } else {
        add_roles(c);
        if (from_gguf) status = carry_rope_factors(c, error);
        if (!status) status = check_all(c, error);
        if (!status && c->to_gguf && !from_gguf) status = add_rope_factors(c, error);
    }
    for (size_t i = 0; i < c->count && !status; i++) status = check_merge(c, &c->items[i], error);
    if (!status && c->adapter && c->merged != plsh_adapter_count(c->adapter))
        status = plsh_fail(error, PLSH_STATUS_FORMAT,
                           "%s: %zu of the adapter's %zu layers are not in the model",
                           c->options->adapter, plsh_adapter_count(c->adapter) - c->merged,
                           plsh_adapter_count(c->adapter));
    return status;
}

/* ---- Files ---------------------------------------------------------------------------------- */

/* From a GGUF to another one: all metadata except those that depend on the types. */
static plsh_status copy_metadata(conversion *c, plsh_error *error) {
    static const char *const changed[] = {"general.file_type", "general.quantization_version",
                                          "general.alignment", "split.no",
                                          "split.count",       "split.tensors.count"};
    enum { CHANGED = sizeof changed / sizeof *changed };
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < plsh_metadata_count(c->weights) && !status; i++) {
        const plsh_metadata *metadata = plsh_metadata_at(c->weights, i);
        size_t k = 0;
        while (k < CHANGED && strcmp(metadata->key, changed[k]) != 0) k++;
        if (k == CHANGED) status = plsh_weights_writer_copy(c->writer, metadata, error);
    }
    return status ? status : plsh_convert_type_metadata(c->writer, c->options->type, error);
}

static plsh_status write_metadata(conversion *c, plsh_error *error) {
    if (!c->to_gguf) return PLSH_STATUS_OK;
    if (plsh_weights_form_of(c->weights) == PLSH_WEIGHTS_GGUF) return copy_metadata(c, error);
    const char *folder = plsh_weights_folder(c->weights);
    plsh_modules modules;
    plsh_status status = plsh_modules_read(c->weights, &c->from, &modules, error);
    if (status) return status;
    /* The default of an encoder is the mean. */
    const bool guessed = modules.pooling == PLSH_POOLING_COUNT && !c->to.family->causal;
    const plsh_pooling pooling = guessed ? PLSH_POOLING_MEAN : modules.pooling;
    plsh_modules_free(&modules);
    status =
        plsh_convert_model_metadata(c->writer, &c->to, folder, pooling, c->options->type, error);
    return status ? status : plsh_convert_tokenizer(c->writer, &c->to, folder, error);
}

static plsh_status write_weights(conversion *c, const char *path, plsh_error *error) {
    plsh_status status = plsh_weights_writer_create(
        &c->writer, path, c->to_gguf ? PLSH_WEIGHTS_GGUF : PLSH_WEIGHTS_SAFETENSORS, error);
    if (status) return status;
    status = write_metadata(c, error);
    for (size_t i = 0; i < c->count && !status; i++)
        status = plsh_weights_writer_declare(c->writer, &c->items[i].to, error);
    c->done.bytes = plsh_weights_writer_size(c->writer);
    c->done.tensors = c->count;
    for (size_t i = 0; i < c->count && !status; i++)
        status = plsh_convert_write_item(c, &c->items[i], error);
    if (!status) {
        status = plsh_weights_writer_commit(c->writer, error);
    } else {
        plsh_weights_writer_abandon(c->writer);
    }
    return status;
}

static plsh_status fill_folder(conversion *c, plsh_error *error) {
    const char *out = c->options->out;
    plsh_status status = PLSH_STATUS_OK;
    const bool from_gguf = plsh_weights_form_of(c->weights) == PLSH_WEIGHTS_GGUF;
    char *path;
    if (from_gguf) status = plsh_convert_write_tokenizer(c->weights, out, error);
    if (!status) status = plsh_path_join(&path, out, "model.safetensors", error);
    if (status) return status;
    status = write_weights(c, path, error);
    plsh_release(path);
    if (status) return status;
    status = from_gguf
                 ? plsh_convert_write_config(c->weights, &c->from, c->options->type, out, error)
                 : plsh_convert_copy_files(plsh_weights_folder(c->weights), c->options->type, out,
                                           error);
    if (!status && from_gguf) status = plsh_convert_write_pooling(c->weights, &c->from, out, error);
    if (!status && !from_gguf)
        status = plsh_convert_copy_learned(plsh_weights_folder(c->weights), out, error);
    if (status || !c->options->adapter) return status;
    return plsh_convert_copy_learned(c->options->adapter, out, error);
}

/* A failed conversion removes the folder that it made. */
static plsh_status write_folder(conversion *c, plsh_error *error) {
    const bool there = plsh_path_exists(c->options->out);
    plsh_status status = plsh_folder_make(c->options->out, NULL, error);
    if (status) return status;
    status = fill_folder(c, error);
    if (status && !there) plsh_convert_remove_folder(c->options->out);
    return status;
}

/* A GGUF cannot store learned slopes. */
static plsh_status refuse_slopes(const char *folder, plsh_error *error) {
    char *path;
    plsh_status status = plsh_path_join(&path, folder, PLSH_SLOPES_FILE, error);
    if (!status && plsh_path_exists(path)) {
        status = plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                           "%s: a GGUF has no place for learned slopes; write a folder", path);
    }
    plsh_release(path);
    return status;
}

static plsh_status write_gguf(conversion *c, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    if (c->options->adapter) status = refuse_slopes(c->options->adapter, error);
    if (!status && plsh_weights_form_of(c->weights) != PLSH_WEIGHTS_GGUF)
        status = refuse_slopes(plsh_weights_folder(c->weights), error);
    return status ? status : write_weights(c, c->options->out, error);
}

static plsh_status check_options(const plsh_convert_options *options, bool to_gguf,
                                 plsh_error *error) {
    const plsh_weight_type type = options->type;
    bool plain = type <= PLSH_WEIGHT_BF16;
    struct stat model, out;
    if (stat(options->model, &model) == 0 && stat(options->out, &out) == 0 &&
        model.st_dev == out.st_dev && model.st_ino == out.st_ino) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%s is the model itself, which would be overwritten; write it elsewhere",
                         options->out);
    }
    const bool quantised = type == PLSH_WEIGHT_Q8_0 || type == PLSH_WEIGHT_Q4_0 ||
                           type == PLSH_WEIGHT_Q4_1 || type == PLSH_WEIGHT_Q5_0 ||
                           type == PLSH_WEIGHT_Q4_K || type == PLSH_WEIGHT_Q6_K;
    if (plain || (to_gguf && quantised)) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID, "type %s: a %s is written in %s",
                     plsh_weight_type_name(type), to_gguf ? "GGUF" : "folder",
                     to_gguf ? "f32, f16, bf16, q8_0, q6_k, q5_0, q4_k, q4_1 or q4_0"
                             : "f32, f16 or bf16");
}

/* Checks the modules of a folder of sentence-transformers before anything is written. */
static plsh_status check_modules(const conversion *c, plsh_error *error) {
    plsh_modules modules;
    if (plsh_weights_form_of(c->weights) == PLSH_WEIGHTS_GGUF) return PLSH_STATUS_OK;
    plsh_status status = plsh_modules_read(c->weights, &c->from, &modules, error);
    if (status) return status;
    status =
        plsh_modules_check_convert(&modules, plsh_weights_folder(c->weights), c->to_gguf, error);
    plsh_modules_free(&modules);
    return status;
}

plsh_status plsh_convert(const plsh_convert_options *options, plsh_converted *converted,
                         plsh_error *error) {
    conversion c = {.options = options, .to_gguf = plsh_path_ends(options->out, ".gguf")};
    plsh_status status = check_options(options, c.to_gguf, error);
    if (!status) status = open_input(&c, error);
    if (!status) status = check_modules(&c, error);
    if (!status) status = list_items(&c, error);
    if (!status) status = c.to_gguf ? write_gguf(&c, error) : write_folder(&c, error);
    if (!status && converted) *converted = c.done;
    plsh_release(c.items);
    plsh_release(c.rope_factors);
    plsh_adapter_close(c.own_adapter);
    plsh_weights_close(c.own_weights);
    plsh_model_close(c.model);
    return status;
}
