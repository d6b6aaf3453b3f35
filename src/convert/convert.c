/* convert: weights between a folder of safetensors and GGUF, row by row. */
#include "convert/convert.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/status.h"
#include "formats/path.h"
#include "model/model.h"
#include "model/modules.h"
#include "model/slopes.h"
#include "plsh/io.h"

#define ROPE_FACTORS "rope_freqs.weight"

/* One tensor of the output. */
typedef struct item {
    const plsh_tensor *from;           /* NULL: `values` */
    const float *values;               /* one row, made here */
    plsh_tensor to;                    /* name, type, shape */
    char name[160];                    /* of `to` */
    plsh_row_order order;              /* of rows in a GGUF */
    const plsh_adapter_layer *adapter; /* to be merged; NULL: none */
} item;

typedef struct conversion {
    const plsh_convert_options *options;
    plsh_model *model;         /* NULL: form and names stay, so the family need not be known */
    plsh_weights *own_weights; /* where there is no model */
    plsh_adapter *own_adapter;
    const plsh_weights *weights; /* the model's, or own_weights */
    const plsh_adapter *adapter; /* likewise */
    plsh_model_config from, to;  /* `to` differs in its form, and in the family Mistral */
    bool to_gguf, prefixed;
    bool rope_carried; /* ROPE_FACTORS has become numbers of the configuration */
    item *items;
    size_t count, merged;
    float *rope_factors; /* [head_dim / 2], where the frequencies are scaled as Llama 3's */
    plsh_weights_writer *writer;
    plsh_converted done;
    size_t written;
} conversion;

/* ---- What is converted into what ------------------------------------------------------------ */

/* A folder of these families has no field for kv heads or for the width of a head. */
static plsh_status check_heads(const conversion *c, plsh_error *error) {
    const plsh_model_config *f = &c->from;
    const bool usual = f->kv_heads == f->heads && f->heads * f->head_dim == f->hidden;
    if (c->to_gguf || usual || f->family->position == PLSH_POSITION_ROPE) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s: %lld heads, %lld kv heads of width %lld; a folder of the family %s has "
                     "as many kv heads as heads, of width %lld / %lld",
                     plsh_weights_path(c->weights), (long long)f->heads, (long long)f->kv_heads,
                     (long long)f->head_dim, f->family->name, (long long)f->hidden,
                     (long long)f->heads);
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
    c->to.gguf = c->to_gguf;
    const plsh_model_config *f = &c->from;
    if (f->family->split_gguf || f->family->transposed || f->family->bare_norm || f->clip != 0.0 ||
        f->logit_scale != 1.0 || f->alibi_max != 8.0 ||
        (strcmp(f->family->model_type, "mpt") == 0 &&
         (f->qk_norm || f->norm_bias || f->norm != PLSH_NORM_LAYER || f->qkv_bias ||
          f->qkv == PLSH_QKV_SPLIT || f->mlp != PLSH_MLP_PLAIN)))
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: this configuration of %s is not converted yet",
                         plsh_weights_path(c->weights), f->family->name);
    /* In a GGUF, Mistral is a Llama. */
    if (strcmp(c->from.family->model_type, "mistral") == 0) c->to.family = &plsh_families[0];
    if (!c->to.family->architecture)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: a GGUF has no place for the family %s", plsh_weights_path(c->weights),
                         c->from.family->name);
    char name[160];
    plsh_model_tensor_name(&c->from, true, PLSH_ROLE_TOKENS, 0, "weight", name, sizeof name);
    c->prefixed = plsh_weights_find(c->weights, name) != NULL;
    return check_heads(c, error);
}

/* The family is needed only where names change: between a folder and a GGUF, or for an adapter.
 * Otherwise an unknown family is converted too: only types change. */
static plsh_status open_input(conversion *c, plsh_error *error) {
    const plsh_convert_options *o = c->options;
    plsh_status status = plsh_weights_open(&c->own_weights, o->model, error);
    if (status) return status;
    const bool from_gguf = plsh_weights_form_of(c->own_weights) == PLSH_WEIGHTS_GGUF;
    if (from_gguf != c->to_gguf || (from_gguf && o->adapter)) {
        plsh_weights_close(c->own_weights);
        c->own_weights = NULL;
        return open_model(c, error);
    }
    c->weights = c->own_weights;
    if (o->adapter) status = plsh_adapter_open(&c->own_adapter, o->adapter, error);
    c->adapter = c->own_adapter;
    return status;
}

/* A vector, or a matrix of one row, as some files have biases. */
static bool is_vector(const plsh_tensor *tensor) {
    return tensor->rank < 2 || plsh_tensor_rows(tensor) == 1;
}

/* The weights of the logits in a GGUF: "output", or the embedding where there is none. */
static bool is_head(const conversion *c, const char *name) {
    if (strcmp(name, "output.weight") == 0) return true;
    if (strcmp(name, "token_embd.weight") != 0) return false;
    if (c->model) return c->from.family->causal && c->from.tied;
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

/* Quantisation errors of the output matrix go straight into the logits: with 4 bits it gets 6 or 8,
 * as in llama.cpp, unless it already has the type asked for, to which more bits would add
 * nothing. */
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
    if (is_vector(tensor) || strcmp(name, "token_types.weight") == 0 ||
        strcmp(name, "position_embd.weight") == 0)
        return PLSH_WEIGHT_F32;
    return type_of_matrix(c, tensor, name);
}

static item *add_item(conversion *c, const plsh_tensor *from, const char *name) {
    item *added = &c->items[c->count++];
    *added = (item){.from = from, .to = *from};
    snprintf(added->name, sizeof added->name, "%s", name);
    added->to.name = added->name;
    added->to.type = type_of(c, from, name);
    if (added->to.type != c->options->type && from->rank >= 2 && added->to.type == PLSH_WEIGHT_F16)
        c->done.as_f16++;
    if (plsh_weight_type_block(c->options->type) == 256 &&
        plsh_weight_type_block(added->to.type) == 32)
        c->done.as_blocks_of_32++;
    return added;
}

/* Merging adds B A to floats: the tensor is a matrix of them of that shape. */
static plsh_status check_merge(const conversion *c, const item *it, plsh_error *error) {
    const plsh_adapter_layer *layer = it->adapter;
    const plsh_tensor *from = it->from;
    if (!layer || (from->type < (plsh_weight_type)PLSH_WEIGHT_COMPUTED && from->rank == 2 &&
                   layer->a->shape[1] == from->shape[1] && layer->b->shape[0] == from->shape[0]))
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

/* The tensor of a role, under its names on both sides; and its rows' order. */
static bool add_role(conversion *c, plsh_role role, int64_t layer, const char *part) {
    char name[160], module[160];
    bool has_name =
        c->from.gguf ? plsh_family_gguf_names[role] != NULL : c->from.family->name_of[role] != NULL;
    if (!has_name || !c->from.family->name_of[role]) return false;
    plsh_model_tensor_name(&c->from, c->prefixed, role, layer, part, name, sizeof name);
    const plsh_tensor *from = plsh_weights_find(c->weights, name);
    if (!from) return false;
    plsh_model_tensor_name(&c->to, true, role, layer, part, name, sizeof name);
    item *added = add_item(c, from, name);
    added->order = plsh_model_gguf_order(c->to.family, role);
    plsh_model_module_name(&c->from, role, layer, module, sizeof module);
    if (strcmp(part, "weight") == 0) add_adapter(c, added, module);
    return true;
}

static size_t add_roles(conversion *c) {
    static const char *const parts[] = {"weight", "bias"};
    for (int role = 0; role < PLSH_ROLE_COUNT; role++) {
        if (role == PLSH_ROLE_HEAD && c->from.tied) continue; /* what lies there is not used */
        int64_t layers = role < PLSH_ROLE_LAYER ? 1 : c->from.layers;
        for (int64_t l = 0; l < layers; l++)
            for (int p = 0; p < 2; p++) add_role(c, (plsh_role)role, l, parts[p]);
    }
    return c->count;
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
        while (at < c->count && c->items[at].from != tensor) at++;
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
                    .to = {.type = PLSH_WEIGHT_F32, .rank = 1, .shape = {half}}};
    strcpy(added->name, ROPE_FACTORS);
    added->to.name = added->name;
    return PLSH_STATUS_OK;
}

static plsh_status list_items(conversion *c, plsh_error *error) {
    const bool from_gguf = plsh_weights_form_of(c->weights) == PLSH_WEIGHTS_GGUF;
    void *memory;
    plsh_status status = plsh_allocate(&memory, plsh_weights_count(c->weights) + 1, sizeof(item),
                                       "the tensors to convert", error);
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

/* ---- Rows ----------------------------------------------------------------------------------- */

/* An adapter's layer as floats. */
typedef struct merge {
    float *a, *b; /* [rank][in], one row of B */
    float scale;
} merge;

static plsh_status begin_merge(merge *m, const item *it, plsh_error *error) {
    const plsh_adapter_layer *layer = it->adapter;
    *m = (merge){0};
    if (!layer) return PLSH_STATUS_OK;
    int64_t in = plsh_tensor_columns(it->from);
    void *memory;
    size_t count = (size_t)(layer->rank * in + layer->rank);
    plsh_status status = plsh_allocate(&memory, count, sizeof(float), "an adapter", error);
    if (status) return status;
    m->a = memory;
    m->b = m->a + layer->rank * in;
    m->scale = layer->scale;
    plsh_tensor_to_float(layer->a, 0, layer->rank, m->a);
    return PLSH_STATUS_OK;
}

/* row += scale B[at] A */
static void merge_row(const merge *m, const item *it, int64_t at, float *row) {
    const int64_t in = plsh_tensor_columns(it->from);
    plsh_tensor_to_float(it->adapter->b, at, 1, m->b);
    for (int64_t k = 0; k < in; k++) {
        float sum = 0.0f;
        for (int64_t r = 0; r < it->adapter->rank; r++) sum += m->b[r] * m->a[r * in + k];
        row[k] += m->scale * sum;
    }
}

static plsh_status show_progress(conversion *c, size_t more, plsh_error *error) {
    c->written += more;
    const plsh_convert_options *o = c->options;
    if (!o->progress || o->progress(o->context, c->written, plsh_weights_writer_size(c->writer)))
        return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_IO, "stopped before the end");
}

/* For a row to be written: its row number in the adapter (in the order of a folder), and in the
 * file that is read. */
static int64_t folder_row_of(const conversion *c, const item *it, int64_t row) {
    return c->to_gguf ? plsh_model_row_in_folder(&c->from, it->order, row) : row;
}

static int64_t from_row_of(const conversion *c, const item *it, int64_t row) {
    const int64_t in_folder = folder_row_of(c, it, row);
    return c->from.gguf ? plsh_model_row_in_gguf(&c->from, it->order, in_folder) : in_folder;
}

static void make_row(const conversion *c, const item *it, const merge *m, int64_t row, float *to) {
    plsh_tensor_to_float(it->from, from_row_of(c, it, row), 1, to);
    if (it->adapter) merge_row(m, it, folder_row_of(c, it, row), to);
}

/* A bias: its numbers have the order of the rows of its weight. */
static plsh_status write_ordered_vector(conversion *c, const item *it, plsh_error *error) {
    const int64_t count = plsh_tensor_columns(it->from);
    void *memory;
    plsh_status status = plsh_allocate(&memory, (size_t)count, 2 * sizeof(float), "a bias", error);
    if (status) return status;
    float *from = memory, *to = from + count;
    plsh_tensor_to_float(it->from, 0, 1, from);
    for (int64_t i = 0; i < count; i++) to[i] = from[from_row_of(c, it, i)];
    status = plsh_weights_writer_rows(c->writer, to, 1, error);
    plsh_release(memory);
    return status ? status : show_progress(c, (size_t)count * sizeof(float), error);
}

static plsh_status write_rows(conversion *c, const item *it, const merge *m, plsh_error *error) {
    enum { AT_ONCE = 1 << 18 }; /* values, or one row */
    const int64_t rows = plsh_tensor_rows(it->from), columns = plsh_tensor_columns(it->from);
    const int64_t step = columns > 0 && columns < AT_ONCE ? AT_ONCE / columns : 1;
    if (rows == 0 || columns == 0) return PLSH_STATUS_OK;
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, (size_t)(step * columns), sizeof(float), "rows", error);
    float *values = memory;
    for (int64_t r = 0; r < rows && !status; r += step) {
        const int64_t some = rows - r < step ? rows - r : step;
        for (int64_t i = 0; i < some; i++) make_row(c, it, m, r + i, values + i * columns);
        status = plsh_weights_writer_rows(c->writer, values, some, error);
        size_t bytes = (size_t)(some * columns / plsh_weight_type_block(it->to.type)) *
                       plsh_weight_type_bytes(it->to.type);
        if (!status) status = show_progress(c, bytes, error);
    }
    plsh_release(memory);
    return status;
}

static plsh_status write_item(conversion *c, const item *it, plsh_error *error) {
    if (it->values) return plsh_weights_writer_rows(c->writer, it->values, 1, error);
    const bool reordered = it->order != PLSH_ROWS_SAME && c->from.gguf != c->to_gguf;
    const bool as_is = it->to.type == it->from->type && !it->adapter && !reordered;
    if (as_is) {
        plsh_status status =
            plsh_weights_writer_bytes(c->writer, it->from->data, it->from->size, error);
        return status ? status : show_progress(c, it->from->size, error);
    }
    if (reordered && is_vector(it->from)) return write_ordered_vector(c, it, error);
    merge m;
    plsh_status status = begin_merge(&m, it, error);
    if (!status) status = write_rows(c, it, &m, error);
    plsh_release(m.a);
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
    /* Of an encoder the mean where nothing is said. */
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
    for (size_t i = 0; i < c->count && !status; i++) status = write_item(c, &c->items[i], error);
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

/* Before anything is written. */
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
