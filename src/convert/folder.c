/* convert: config.json, and the files that lie beside weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mapping.h"
#include "base/memory.h"
#include "base/status.h"
#include "convert/convert.h"
#include "formats/json.h"
#include "formats/path.h"
#include "model/modules.h"
#include "model/slopes.h"
#include "plsh/io.h"
#include "text/gguf.h"

static const char *dtype_of(plsh_weight_type type) {
    return type == PLSH_WEIGHT_F16 ? "float16" : type == PLSH_WEIGHT_BF16 ? "bfloat16" : "float32";
}

/* 15 digits: 1e-05 stays 1e-05. */
static plsh_status save_json(const json_t *root, const char *path, plsh_error *error) {
    char *dump = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    if (!dump) return plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory for its text", path);
    plsh_status status = plsh_file_save(path, dump, strlen(dump), error);
    free(dump);
    return status;
}

/* ---- From the metadata of a GGUF ------------------------------------------------------------ */

static void set_token(json_t *root, const char *field, const plsh_weights *weights,
                      const char *key) {
    int64_t id = -1;
    if (plsh_metadata_integer(weights, key, 0, INT32_MAX, &id, NULL) == PLSH_STATUS_OK && id >= 0)
        json_object_set_new(root, field, json_integer(id));
}

static json_t *make_bloom_config(const plsh_model_config *c, plsh_weight_type type) {
    return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:f, s:b, s:s}", "architectures",
                     "BloomForCausalLM", "model_type", "bloom", "hidden_size",
                     (json_int_t)c->hidden, "n_layer", (json_int_t)c->layers, "n_head",
                     (json_int_t)c->heads, "vocab_size", (json_int_t)c->vocabulary,
                     "layer_norm_epsilon", c->norm_eps, "tie_word_embeddings", (int)c->tied,
                     "torch_dtype", dtype_of(type));
}

/* As llm-foundry reads it. */
static json_t *make_mpt_config(const plsh_model_config *c, plsh_weight_type type) {
    const bool grouped = c->kv_heads != c->heads;
    const double ratio = (double)c->intermediate / (double)c->hidden;
    json_t *root = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:b, s:s, s:{s:b, s:f, s:s, s:b, s:b}, "
        "s:s}",
        "architectures", c->family->class_name, "model_type", "mpt", "d_model",
        (json_int_t)c->hidden, "n_layers", (json_int_t)c->layers, "n_heads", (json_int_t)c->heads,
        "vocab_size", (json_int_t)c->vocabulary, "max_seq_len",
        (json_int_t)(c->context ? c->context : 2048), "layer_norm_epsilon", c->norm_eps, "no_bias",
        !c->mlp_bias, "tie_word_embeddings", (int)c->tied, "norm_type",
        c->norm == PLSH_NORM_RMS ? "rmsnorm" : "layernorm", "attn_config", "alibi", 1,
        "alibi_bias_max", c->alibi_max, "attn_type",
        grouped ? "grouped_query_attention" : "multihead_attention", "qk_ln",
        c->qk_norm == PLSH_QK_NORM_WHOLE, "qk_gn", c->qk_norm == PLSH_QK_NORM_HEAD, "torch_dtype",
        dtype_of(type));
    json_t *attention = root ? json_object_get(root, "attn_config") : NULL;
    if (!root) return NULL;
    if (c->intermediate != 4 * c->hidden)
        json_object_set_new(root, "expansion_ratio", json_real(ratio));
    if (c->heads * c->head_dim != c->hidden)
        json_object_set_new(root, "head_dim", json_integer(c->head_dim));
    if (c->qkv_bias != c->mlp_bias)
        json_object_set_new(root, "attention_bias", json_boolean(c->qkv_bias));
    if (c->logit_scale != 1.0) json_object_set_new(root, "logit_scale", json_real(c->logit_scale));
    if (grouped) json_object_set_new(attention, "kv_n_heads", json_integer(c->kv_heads));
    if (c->clip > 0.0) json_object_set_new(attention, "clip_qkv", json_real(c->clip));
    if (c->scale > 0.0) json_object_set_new(attention, "softmax_scale", json_real(c->scale));
    return root;
}

static json_t *make_baichuan_config(const plsh_model_config *c, plsh_weight_type type) {
    return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:b, s:s}",
                     "architectures", c->family->class_name, "model_type", "baichuan",
                     "hidden_size", (json_int_t)c->hidden, "intermediate_size",
                     (json_int_t)c->intermediate, "num_hidden_layers", (json_int_t)c->layers,
                     "num_attention_heads", (json_int_t)c->heads, "vocab_size",
                     (json_int_t)c->vocabulary, "model_max_length",
                     (json_int_t)(c->context ? c->context : 4096), "rms_norm_eps", c->norm_eps,
                     "hidden_act", "silu", "tie_word_embeddings", 0, "torch_dtype", dtype_of(type));
}

static bool is_near(double is, double right) { return fabs(is - right) <= 1e-6 * right; }

/* The scales of embeddings and logits are in the weights of a GGUF. */
static json_t *make_jais_config(const plsh_model_config *c, plsh_weight_type type) {
    const bool by_d = is_near(c->scale, 1.0 / (double)c->head_dim);
    const bool scaled = c->head_dim == 1 || !is_near(c->scale, 1.0);
    json_t *root = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:s, s:f, s:f, s:f, s:b, s:b, s:s}",
        "architectures", c->family->class_name, "model_type", c->family->model_type, "n_embd",
        (json_int_t)c->hidden, "n_layer", (json_int_t)c->layers, "n_head", (json_int_t)c->heads,
        "n_inner", (json_int_t)c->intermediate, "n_positions",
        (json_int_t)(c->context ? c->context : 2048), "vocab_size", (json_int_t)c->vocabulary,
        "layer_norm_epsilon", c->norm_eps, "activation_function", "swiglu",
        "position_embedding_type", "alibi", "mup_embeddings_scale", 1.0, "mup_output_alpha", 1.0,
        "mup_width_scale", c->logit_scale, "mup_scale_qk_dot_by_d", (int)by_d,
        "tie_word_embeddings", (int)c->tied, "torch_dtype", dtype_of(type));
    if (root && !scaled) json_object_set_new(root, "scale_attn_weights", json_false());
    return root;
}

static json_t *make_refact_config(const plsh_model_config *c, plsh_weight_type type) {
    return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:b, s:s}", "architectures",
                     c->family->class_name, "model_type", "gpt_refact", "n_embd",
                     (json_int_t)c->hidden, "n_layer", (json_int_t)c->layers, "n_head",
                     (json_int_t)c->heads, "n_positions",
                     (json_int_t)(c->context ? c->context : 4096), "vocab_size",
                     (json_int_t)c->vocabulary, "layer_norm_epsilon", c->norm_eps, "multi_query", 1,
                     "tie_word_embeddings", (int)c->tied, "torch_dtype", dtype_of(type));
}

/* BERT, and JinaBERT, whose own code tells it by its fields. */
static json_t *make_bert_config(const plsh_model_config *c, plsh_weight_type type) {
    const bool jina = c->family->position == PLSH_POSITION_ALIBI;
    json_t *root = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:s}", "architectures",
        jina ? "JinaBertModel" : "BertModel", "model_type", "bert", "hidden_size",
        (json_int_t)c->hidden, "num_hidden_layers", (json_int_t)c->layers, "num_attention_heads",
        (json_int_t)c->heads, "intermediate_size", (json_int_t)c->intermediate, "vocab_size",
        (json_int_t)c->vocabulary, "max_position_embeddings",
        (json_int_t)(c->context ? c->context : 512), "type_vocab_size", (json_int_t)c->types,
        "layer_norm_eps", c->norm_eps, "hidden_act", "gelu", "torch_dtype", dtype_of(type));
    if (!root || !jina) return root;
    json_object_set_new(root, "position_embedding_type", json_string("alibi"));
    json_object_set_new(root, "feed_forward_type", json_string("geglu"));
    json_object_set_new(root, "emb_pooler", json_string("mean"));
    if (c->qk_norm) /* other programs recognise the model by this field, plsh by its tensors */
        json_object_set_new(root, "_name_or_path", json_string("jinaai/jina-bert-v2-qk-post-norm"));
    return root;
}

plsh_status plsh_convert_check_folder(const plsh_model_config *c, const char *what,
                                      plsh_error *error) {
    const char *architecture = c->family->architecture, *lost = NULL;
    const bool baichuan = strcmp(architecture, "baichuan") == 0;
    const bool jais = strcmp(architecture, "jais") == 0, mpt = strcmp(architecture, "mpt") == 0;
    const double d = (double)c->head_dim;
    if (!mpt && c->alibi_max != 8.0) lost = "attention.max_alibi_bias other than 8";
    if (!mpt && c->clip > 0.0) lost = "attention.clamp_kqv";
    if (jais && !is_near(c->scale, 1.0 / d) && !is_near(c->scale, 1.0 / sqrt(d)) &&
        !is_near(c->scale, 1.0))
        lost = "attention.scale";
    if (baichuan && (c->family->position == PLSH_POSITION_ROPE) != (c->hidden == 4096))
        lost = "RoPE or ALiBi, which a folder tells by a hidden size of 4096,";
    if (!lost) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s: %s has no place in a folder of %s", what,
                     lost, c->family->name);
}

static json_t *make_config(const plsh_weights *weights, const plsh_model_config *c,
                           plsh_weight_type type) {
    if (!c->family->causal) return make_bert_config(c, type);
    if (strcmp(c->family->model_type, "bloom") == 0) return make_bloom_config(c, type);
    if (strcmp(c->family->model_type, "mpt") == 0) return make_mpt_config(c, type);
    if (strcmp(c->family->architecture, "baichuan") == 0) return make_baichuan_config(c, type);
    if (strcmp(c->family->architecture, "jais") == 0) return make_jais_config(c, type);
    if (strcmp(c->family->architecture, "refact") == 0) return make_refact_config(c, type);
    const bool qwen = strncmp(c->family->model_type, "qwen", 4) == 0;
    const bool mistral = !qwen && c->sliding_window > 0; /* a Llama has no window */
    json_t *root =
        json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:b, s:s, s:s}",
                  "architectures", mistral ? "MistralForCausalLM" : c->family->class_name,
                  "model_type", mistral ? "mistral" : c->family->model_type, "hidden_size",
                  (json_int_t)c->hidden, "intermediate_size", (json_int_t)c->intermediate,
                  "num_hidden_layers", (json_int_t)c->layers, "num_attention_heads",
                  (json_int_t)c->heads, "num_key_value_heads", (json_int_t)c->kv_heads, "head_dim",
                  (json_int_t)c->head_dim, "vocab_size", (json_int_t)c->vocabulary,
                  "max_position_embeddings", (json_int_t)(c->context ? c->context : 2048),
                  "rms_norm_eps", c->norm_eps, "rope_theta", c->rope.theta, "tie_word_embeddings",
                  (int)c->tied, "hidden_act", "silu", "torch_dtype", dtype_of(type));
    if (!root) return NULL;
    if (!c->family->qkv_bias)
        json_object_set_new(root, "attention_bias", json_boolean(c->attention_bias));
    if (!qwen) json_object_set_new(root, "mlp_bias", json_boolean(c->mlp_bias));
    if (c->sliding_window > 0)
        json_object_set_new(root, "sliding_window", json_integer(c->sliding_window));
    if (qwen && c->sliding_window > 0) {
        json_object_set_new(root, "use_sliding_window", json_true());
        json_object_set_new(root, "max_window_layers", json_integer(c->sliding_from));
    }
    if (c->rope.scaling == PLSH_ROPE_LINEAR)
        json_object_set_new(
            root, "rope_scaling",
            json_pack("{s:s, s:f}", "rope_type", "linear", "factor", c->rope.factor));
    if (c->rope.scaling == PLSH_ROPE_YARN)
        json_object_set_new(root, "rope_scaling",
                            json_pack("{s:s, s:f, s:f, s:f, s:f, s:I}", "rope_type", "yarn",
                                      "factor", c->rope.factor, "beta_fast", c->rope.beta_fast,
                                      "beta_slow", c->rope.beta_slow, "attention_factor",
                                      c->rope.attention, "original_max_position_embeddings",
                                      (json_int_t)c->rope.original_context));
    if (c->rope.scaling == PLSH_ROPE_LLAMA3)
        json_object_set_new(root, "rope_scaling",
                            json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor",
                                      c->rope.factor, "low_freq_factor", c->rope.low_frequency,
                                      "high_freq_factor", c->rope.high_frequency,
                                      "original_max_position_embeddings",
                                      (json_int_t)c->rope.original_context));
    set_token(root, "bos_token_id", weights, "tokenizer.ggml.bos_token_id");
    set_token(root, "eos_token_id", weights, "tokenizer.ggml.eos_token_id");
    return root;
}

plsh_status plsh_convert_write_config(const plsh_weights *weights, const plsh_model_config *config,
                                      plsh_weight_type type, const char *out, plsh_error *error) {
    char *path;
    plsh_status status = plsh_path_join(&path, out, "config.json", error);
    if (status) return status;
    json_t *root = make_config(weights, config, type);
    status = root ? save_json(root, path, error)
                  : plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory for it", path);
    json_decref(root);
    plsh_release(path);
    return status;
}

static plsh_status save_in(const json_t *root, const char *folder, const char *name,
                           plsh_error *error) {
    char *path;
    plsh_status status = plsh_path_join(&path, folder, name, error);
    if (!status) status = save_json(root, path, error);
    plsh_release(path);
    return status;
}

plsh_status plsh_convert_write_tokenizer(const plsh_weights *weights, const char *out,
                                         plsh_error *error) {
    json_t *tokenizer, *config;
    plsh_status status = plsh_tokenizer_gguf_json(weights, &tokenizer, &config, error);
    if (!status && tokenizer) status = save_in(tokenizer, out, "tokenizer.json", error);
    if (!status && config) status = save_in(config, out, "tokenizer_config.json", error);
    json_decref(tokenizer);
    json_decref(config);
    return status;
}

static json_t *make_pooling(plsh_pooling pooling, int64_t hidden) {
    return json_pack("{s:I, s:b, s:b, s:b}", "word_embedding_dimension", (json_int_t)hidden,
                     "pooling_mode_cls_token", pooling == PLSH_POOLING_CLS,
                     "pooling_mode_mean_tokens", pooling == PLSH_POOLING_MEAN,
                     "pooling_mode_lasttoken", pooling == PLSH_POOLING_LASTTOKEN);
}

/* Rows of a GGUF are normalised, so the folder says so. */
static json_t *make_modules(void) {
    return json_pack("[{s:i, s:s, s:s, s:s}, {s:i, s:s, s:s, s:s}, {s:i, s:s, s:s, s:s}]", "idx", 0,
                     "name", "0", "path", "", "type", "sentence_transformers.models.Transformer",
                     "idx", 1, "name", "1", "path", PLSH_POOLING_FOLDER, "type",
                     "sentence_transformers.models.Pooling", "idx", 2, "name", "2", "path",
                     "2_Normalize", "type", "sentence_transformers.models.Normalize");
}

static plsh_status make_pooling_folder(const char *out, plsh_error *error) {
    char *path;
    plsh_status status = plsh_path_join(&path, out, PLSH_POOLING_FOLDER, error);
    if (!status) status = plsh_folder_make(path, NULL, error);
    plsh_release(path);
    return status;
}

plsh_status plsh_convert_write_pooling(const plsh_weights *weights, const plsh_model_config *config,
                                       const char *out, plsh_error *error) {
    plsh_modules read;
    plsh_status status = plsh_modules_read(weights, config, &read, error);
    const plsh_pooling pooling = read.pooling;
    if (status || pooling == PLSH_POOLING_COUNT) return status;
    plsh_modules_free(&read);
    json_t *pooling_json = make_pooling(pooling, config->hidden), *modules = make_modules();
    status = pooling_json && modules
                 ? make_pooling_folder(out, error)
                 : plsh_fail(error, PLSH_STATUS_NO_MEMORY, "no memory for a pooling");
    if (!status) status = save_in(pooling_json, out, PLSH_POOLING_FILE, error);
    if (!status && pooling != PLSH_POOLING_NONE)
        status = save_in(modules, out, PLSH_MODULES_FILE, error);
    json_decref(pooling_json);
    json_decref(modules);
    return status;
}

/* ---- From another folder -------------------------------------------------------------------- */

static plsh_status copy_bytes(const plsh_mapping *mapping, const char *to, plsh_error *error) {
    return plsh_file_save(to, mapping->bytes, mapping->size, error);
}

static plsh_status copy_with_type(const plsh_mapping *mapping, const char *from, const char *to,
                                  plsh_weight_type type, plsh_error *error) {
    json_t *root;
    plsh_status status =
        plsh_weights_json_parse((const char *)mapping->bytes, mapping->size, from, &root, error);
    if (status) return status;
    const char *field = json_object_get(root, "dtype") ? "dtype" : "torch_dtype";
    const char *now = json_string_value(json_object_get(root, field));
    if (now && strcmp(now, dtype_of(type)) == 0) {
        status = copy_bytes(mapping, to, error);
    } else {
        json_object_set_new(root, field, json_string(dtype_of(type)));
        status = save_json(root, to, error);
    }
    json_decref(root);
    return status;
}

plsh_status plsh_convert_copy_config(const char *from, const char *to, plsh_weight_type type,
                                     plsh_error *error) {
    plsh_mapping mapping;
    plsh_status status = plsh_mapping_open(&mapping, from, error);
    if (status) return status;
    status = copy_with_type(&mapping, from, to, type, error);
    plsh_mapping_close(&mapping);
    return status;
}

static plsh_status copy_file(const char *from, const char *to, const char *name,
                             plsh_weight_type type, plsh_error *error) {
    plsh_mapping mapping;
    if (!plsh_path_exists(from)) return PLSH_STATUS_OK;
    if (strcmp(name, "config.json") == 0) return plsh_convert_copy_config(from, to, type, error);
    plsh_status status = plsh_mapping_open(&mapping, from, error);
    if (status) return status;
    status = copy_bytes(&mapping, to, error);
    plsh_mapping_close(&mapping);
    return status;
}

/* The attention that plsh train used, as it recorded it. */
static const char attention_file[] = "attention.txt";

/* The file of that name, where the folder has it. */
static plsh_status copy_named(const char *folder, const char *out, const char *name,
                              plsh_weight_type type, plsh_error *error) {
    char *from = NULL, *to = NULL;
    plsh_status status = plsh_path_join(&from, folder, name, error);
    if (!status) status = plsh_path_join(&to, out, name, error);
    if (!status) status = copy_file(from, to, name, type, error);
    plsh_release(from);
    plsh_release(to);
    return status;
}

plsh_status plsh_convert_copy_learned(const char *folder, const char *out, plsh_error *error) {
    plsh_status status = copy_named(folder, out, PLSH_SLOPES_FILE, PLSH_WEIGHT_F32, error);
    return status ? status : copy_named(folder, out, attention_file, PLSH_WEIGHT_F32, error);
}

/* Copies the files beside the weights. */
static const char *const beside[] = {
    "config.json",     "generation_config.json",  "tokenizer.json",  "tokenizer_config.json",
    "vocab.json",      "special_tokens_map.json", "merges.txt",      "vocab.txt",
    "tokenizer.model", "chat_template.jinja",     PLSH_SLOPES_FILE,  PLSH_MODULES_FILE,
    PLSH_POOLING_FILE, PLSH_SENTENCE_FILE,        PLSH_PROMPTS_FILE,
};

static void remove_in(const char *folder, const char *name) {
    char *path;
    if (plsh_path_join(&path, folder, name, NULL) == PLSH_STATUS_OK) remove(path);
    plsh_release(path);
}

void plsh_convert_remove_folder(const char *out) {
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) remove_in(out, beside[i]);
    remove_in(out, PLSH_POOLING_FOLDER);
    remove_in(out, "model.safetensors");
    remove(out);
}

plsh_status plsh_convert_copy_files(const char *folder, plsh_weight_type type, const char *out,
                                    plsh_error *error) {
    char *pooling;
    plsh_status status = plsh_path_join(&pooling, folder, PLSH_POOLING_FILE, error);
    if (!status && plsh_path_exists(pooling)) status = make_pooling_folder(out, error);
    plsh_release(pooling);
    for (size_t i = 0; i < sizeof beside / sizeof *beside && !status; i++)
        status = copy_named(folder, out, beside[i], type, error);
    return status;
}
