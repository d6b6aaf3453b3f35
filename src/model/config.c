/* model: configurations from config.json, of transformers 4 and 5. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "model/config_causal.h"
#include "model/config_fields.h"
#include "model/config_rope.h"

static const plsh_field llama_fields[] = {
    {"hidden_size", FIELD_INTEGER, AT(hidden), true},
    {"intermediate_size", FIELD_INTEGER, AT(intermediate), true},
    {"num_hidden_layers", FIELD_INTEGER, AT(layers), true},
    {"num_attention_heads", FIELD_INTEGER, AT(heads), true},
    {"num_key_value_heads", FIELD_INTEGER, AT(kv_heads), false},
    {"head_dim", FIELD_INTEGER, AT(head_dim), false},
    {"vocab_size", FIELD_INTEGER, AT(vocabulary), true},
    {"max_position_embeddings", FIELD_INTEGER, AT(context), false},
    {"rms_norm_eps", FIELD_NUMBER, AT(norm_eps), false},
    {"hidden_act", FIELD_ACTIVATION, AT(activation), false},
    {"tie_word_embeddings", FIELD_BOOL, AT(tied), false},
    {"attention_bias", FIELD_BOOL, AT(attention_bias), false},
    {"mlp_bias", FIELD_BOOL, AT(mlp_bias), false},
    {"attention_dropout", FIELD_NUMBER, AT(attention_dropout), false},
    {"rope_theta", FIELD_SPECIAL, 0, false},
    {"rope_scaling", FIELD_SPECIAL, 0, false},
    {"rope_parameters", FIELD_SPECIAL, 0, false},
    {"sliding_window", FIELD_SPECIAL, 0, false},
    {"use_sliding_window", FIELD_SPECIAL, 0, false},
    {"max_window_layers", FIELD_SPECIAL, 0, false},
    {"layer_types", FIELD_SPECIAL, 0, false},
    {"rope_interleaved", FIELD_FALSE, 0, false},
    {"is_llama_config", FIELD_ANY, 0, false},
    {"is_decoder", FIELD_ANY, 0, false}}; /* they all are */

static const plsh_field bloom_fields[] = {
    {"is_decoder", FIELD_ANY, 0, false},
    {"hidden_size", FIELD_INTEGER, AT(hidden), false},
    {"n_embed", FIELD_INTEGER, AT(hidden), false},
    {"n_layer", FIELD_INTEGER, AT(layers), false},
    {"num_hidden_layers", FIELD_INTEGER, AT(layers), false},
    {"n_head", FIELD_INTEGER, AT(heads), false},
    {"num_attention_heads", FIELD_INTEGER, AT(heads), false},
    {"vocab_size", FIELD_INTEGER, AT(vocabulary), true},
    {"layer_norm_epsilon", FIELD_NUMBER, AT(norm_eps), false},
    {"hidden_dropout", FIELD_NUMBER, AT(dropout), false},
    {"attention_dropout", FIELD_NUMBER, AT(attention_dropout), false},
    {"tie_word_embeddings", FIELD_BOOL, AT(tied), false},
    {"apply_residual_connection_post_layernorm", FIELD_FALSE, 0, false},
    {"n_inner", FIELD_FALSE, 0, false}};

static const plsh_field falcon_fields[] = {
    {"is_decoder", FIELD_ANY, 0, false},
    {"hidden_size", FIELD_INTEGER, AT(hidden), false},
    {"n_embed", FIELD_INTEGER, AT(hidden), false},
    {"num_hidden_layers", FIELD_INTEGER, AT(layers), false},
    {"n_layer", FIELD_INTEGER, AT(layers), false},
    {"num_attention_heads", FIELD_INTEGER, AT(heads), false},
    {"n_head", FIELD_INTEGER, AT(heads), false},
    {"num_kv_heads", FIELD_SPECIAL, 0, false},
    {"n_head_kv", FIELD_SPECIAL, 0, false},
    {"vocab_size", FIELD_INTEGER, AT(vocabulary), true},
    {"ffn_hidden_size", FIELD_INTEGER, AT(intermediate), false},
    {"ff_factor", FIELD_SPECIAL, 0, false},
    {"layer_norm_epsilon", FIELD_NUMBER, AT(norm_eps), false},
    {"hidden_dropout", FIELD_NUMBER, AT(dropout), false},
    {"attention_dropout", FIELD_NUMBER, AT(attention_dropout), false},
    {"tie_word_embeddings", FIELD_BOOL, AT(tied), false},
    {"activation", FIELD_ACTIVATION, AT(activation), false},
    {"bias", FIELD_BOOL, AT(attention_bias), false},
    {"multi_query", FIELD_BOOL, AT(multi_query), false},
    {"parallel_attn", FIELD_BOOL, AT(parallel), false},
    {"new_decoder_architecture", FIELD_FALSE, 0, false},
    {"alibi", FIELD_SPECIAL, 0, false},
    {"apply_residual_connection_post_layernorm", FIELD_FALSE, 0, false},
    {"num_ln_in_parallel_attn", FIELD_FALSE, 0, false},
    {"max_position_embeddings", FIELD_INTEGER, AT(context), false},
    {"rope_theta", FIELD_ANY, 0, false}, /* ALiBi has no RoPE */
    {"rope_parameters", FIELD_ANY, 0, false},
    {"rope_scaling", FIELD_ANY, 0, false}};

static const plsh_field bert_fields[] = {
    {"hidden_size", FIELD_INTEGER, AT(hidden), true},
    {"num_hidden_layers", FIELD_INTEGER, AT(layers), true},
    {"num_attention_heads", FIELD_INTEGER, AT(heads), true},
    {"intermediate_size", FIELD_INTEGER, AT(intermediate), true},
    {"vocab_size", FIELD_INTEGER, AT(vocabulary), true},
    {"max_position_embeddings", FIELD_INTEGER, AT(context), false},
    {"layer_norm_eps", FIELD_NUMBER, AT(norm_eps), false},
    {"hidden_act", FIELD_ACTIVATION, AT(activation), false},
    {"type_vocab_size", FIELD_INTEGER, AT(types), false},
    {"is_decoder", FIELD_FALSE, 0, false},
    {"position_embedding_type", FIELD_SPECIAL, 0, false},
    {"feed_forward_type", FIELD_SPECIAL, 0, false},
    {"emb_pooler", FIELD_SPECIAL, 0, false},
    {"directionality", FIELD_SPECIAL, 0, false},
    {"pooler_fc_size", FIELD_ANY, 0, false}, /* of a pooler that transformers does not have */
    {"pooler_num_attention_heads", FIELD_ANY, 0, false},
    {"pooler_num_fc_layers", FIELD_ANY, 0, false},
    {"pooler_size_per_head", FIELD_ANY, 0, false},
    {"pooler_type", FIELD_ANY, 0, false},
    {"alibi_starting_size", FIELD_ANY, 0, false}, /* MosaicBERT: a table that grows, not a limit */
    {"tie_word_embeddings", FIELD_BOOL, AT(tied), false}}; /* of the masked-LM head */

static plsh_status read_bert(const json_t *root, const char *what, plsh_model_config *config,
                             plsh_error *error);

static plsh_status read_llama(const json_t *root, const char *what, plsh_model_config *config,
                              plsh_error *error);

static const plsh_config_reader readers[] = {
    {"llama", NULL, FIELDS(llama_fields), {.norm_eps = 1e-6, .context = 2048}, read_llama},
    {"mistral",
     NULL,
     FIELDS(llama_fields),
     {.norm_eps = 1e-6, .kv_heads = 8, .context = 131072},
     read_llama},
    {"qwen2",
     NULL,
     FIELDS(llama_fields),
     {.norm_eps = 1e-6, .kv_heads = 32, .context = 32768},
     read_llama},
    {"qwen3",
     NULL,
     FIELDS(llama_fields),
     {.norm_eps = 1e-6, .kv_heads = 32, .head_dim = 128, .context = 32768},
     read_llama},
    {"bloom",
     NULL,
     FIELDS(bloom_fields),
     {.norm_eps = 1e-5, .tied = true, .attention_bias = true, .mlp_bias = true},
     NULL},
    {"falcon",
     NULL,
     FIELDS(falcon_fields),
     {.norm_eps = 1e-5, .tied = true, .multi_query = true, .parallel = true, .context = 2048},
     plsh_config_falcon},
    {"bert",
     NULL,
     FIELDS(bert_fields),
     {.norm_eps = 1e-12,
      .attention_bias = true,
      .mlp_bias = true,
      .tied = true,
      .types = 2,
      .context = 512},
     read_bert},
};

static const plsh_config_reader *find_reader(const char *model_type) {
    for (size_t i = 0; i < sizeof(readers) / sizeof(*readers); i++) {
        if (strcmp(readers[i].model_type, model_type) == 0) return &readers[i];
    }
    return plsh_config_find_causal(model_type);
}

void plsh_model_config_family(plsh_model_config *c, const plsh_family *family) {
    const bool split = c->gguf && family->split_gguf;
    c->family = family;
    c->norm = family->norm;
    c->norm_bias = family->norm_bias;
    c->qk_norm = family->qk_norm;
    c->qkv = split                                            ? PLSH_QKV_SPLIT
             : c->gguf && family->qkv == PLSH_QKV_INTERLEAVED ? PLSH_QKV_STACKED
                                                              : family->qkv;
    c->mlp = split ? PLSH_MLP_GATED : family->mlp;
    if (c->alibi_max == 0.0) c->alibi_max = 8.0;
    if (c->alibi_factor == 0.0) c->alibi_factor = 1.0;
    if (c->embedding_scale == 0.0) c->embedding_scale = 1.0;
    if (c->embedding_share == 0.0) c->embedding_share = 1.0;
    if (c->logit_scale == 0.0) c->logit_scale = 1.0;
}

plsh_status plsh_model_config_choose(plsh_model_config *config, const char *name,
                                     plsh_error *error) {
    const plsh_family *family = plsh_family_find(name), *now = config->family;
    const bool kin = family && family->class_name && now->class_name &&
                     strcmp(family->class_name, now->class_name) == 0 &&
                     (config->gguf || family->qkv == now->qkv);
    if (!kin)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "family \"%.40s\": this model is %s, and none of the families that share "
                         "its files has that name; baichuan-13b, baichuan2-13b, baichuan-7b, "
                         "baichuan2-7b; gpt_refact, gpt_refact-rmsnorm",
                         name, now->name);
    if (family == now) return PLSH_STATUS_OK;
    if (family->position == PLSH_POSITION_ROPE && config->head_dim % 2 != 0)
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "family \"%.40s\": RoPE needs heads of an even width; this model's have "
                         "%lld",
                         name, (long long)config->head_dim);
    plsh_model_config_family(config, family);
    config->rule = "its family was given";
    return PLSH_STATUS_OK;
}

/* MosaicBERT's configurations have no field for positions, and DNABERT-2's no model_type either.
 * They are recognised by the size of a table of biases, or by names of classes in bert_layers.py.
 */
static bool is_mosaic(const json_t *root) {
    const char *key;
    json_t *value;
    if (json_object_get(root, "alibi_starting_size")) return true;
    json_object_foreach(json_object_get(root, "auto_map"), key, value) {
        if (json_is_string(value) && strstr(json_string_value(value), "bert_layers.")) return true;
    }
    return false;
}

/* The GLU of MosaicBERT always has GELU; hidden_act is for the masked-LM head. */
static plsh_status read_mosaic(const json_t *root, const char *what, plsh_model_config *config,
                               plsh_error *error) {
    plsh_model_config_family(config, plsh_family_find("mosaic-bert"));
    config->activation = PLSH_ACTIVATION_GELU;
    return plsh_config_text(root, "position_embedding_type", what, "absolute", "alibi", error);
}

/* BERT, or JinaBERT v2 or MosaicBERT, whose model_type is "bert" too. */
static plsh_status read_bert(const json_t *root, const char *what, plsh_model_config *config,
                             plsh_error *error) {
    const char *position = "absolute", *mlp = "original";
    config->head_activation = config->activation;
    if (is_mosaic(root)) return read_mosaic(root, what, config, error);
    plsh_status status =
        plsh_weights_json_string(root, "position_embedding_type", what, &position, error);
    if (!status) {
        status = plsh_weights_json_string(root, "feed_forward_type", what, &mlp, error);
    }
    if (!status) status = plsh_config_text(root, "emb_pooler", what, "mean", NULL, error);
    if (!status) status = plsh_config_text(root, "directionality", what, "bidi", NULL, error);
    if (status) return status;
    bool alibi = strcmp(position, "alibi") == 0, glu = strcmp(mlp, "geglu") == 0;
    if (!alibi && strcmp(position, "absolute") != 0) {
        return plsh_config_refuse(what, "position_embedding_type", "must be absolute or alibi",
                                  error);
    }
    if (strcmp(mlp, "reglu") == 0) {
        config->activation = PLSH_ACTIVATION_RELU;
        glu = true;
    } else if (glu) {
        config->activation = PLSH_ACTIVATION_GELU;
    } else if (strcmp(mlp, "original") != 0) {
        return plsh_config_refuse(what, "feed_forward_type", "must be original, geglu or reglu",
                                  error);
    }
    if (glu && !alibi)
        return plsh_config_refuse(what, "feed_forward_type", "is for alibi positions", error);
    if (alibi)
        plsh_model_config_family(config,
                                 plsh_family_find(glu ? "jina-bert-v2" : "jina-bert-v2-original"));
    return PLSH_STATUS_OK;
}

static plsh_status read_llama(const json_t *root, const char *what, plsh_model_config *config,
                              plsh_error *error) {
    if (!config->head_dim) config->head_dim = config->hidden / config->heads;
    plsh_status status = plsh_config_rope(root, what, config, error);
    return status ? status : plsh_config_sliding(root, what, config, error);
}

static plsh_status check_sizes(const plsh_model_config *config, const char *what,
                               plsh_error *error) {
    if (config->hidden && config->layers && config->heads) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_FORMAT,
                     "%s: the hidden size, the number of layers or of heads is missing", what);
}

/* Numbers that multiply or divide: finite, and not 0. */
static plsh_status check_scales(const plsh_model_config *c, const char *what, plsh_error *error) {
    const struct {
        const char *name;
        double value, least, most;
    } numbers[] = {{"the eps of its norms", c->norm_eps, 1e-30, 1.0},
                   {"the scale of scores", c->scale, 0.0, 1e30},
                   {"the bound of q, k and v (clip_qkv)", c->clip, 0.0, 1e30},
                   {"the largest exponent of its slopes (alibi_bias_max)", c->alibi_max, 1e-3, 64},
                   {"the factor of alibi_scaling", c->alibi_factor, 1.0, 1e9},
                   {"the scale of its embeddings", c->embedding_scale, 1e-30, 1e30},
                   {"embedding_fraction", c->embedding_share, 1e-30, 1.0},
                   {"the scale of its logits", c->logit_scale, 1e-30, 1e30}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].most) continue;
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: %s is %g; %g to %g", what, numbers[i].name,
                         numbers[i].value, numbers[i].least, numbers[i].most);
    }
    return PLSH_STATUS_OK;
}

static plsh_status finish(plsh_model_config *config, const char *what, plsh_error *error) {
    const bool free_width = config->family->position == PLSH_POSITION_ROPE || config->head_dim;
    if (!config->kv_heads) config->kv_heads = config->heads;
    if (!config->head_dim) config->head_dim = config->hidden / config->heads;
    if (!config->intermediate) config->intermediate = 4 * config->hidden;
    if (config->heads % config->kv_heads != 0) {
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: %lld heads over %lld kv heads", what,
                         (long long)config->heads, (long long)config->kv_heads);
    }
    if (config->head_dim < 1 || config->head_dim > 512 ||
        (!free_width && config->head_dim * config->heads != config->hidden)) {
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%s: a hidden size of %lld in %lld heads of %lld: they do not fit", what,
                         (long long)config->hidden, (long long)config->heads,
                         (long long)config->head_dim);
    }
    return check_scales(config, what, error);
}

static plsh_status read_root(const json_t *root, const char *what, plsh_model_config *config,
                             plsh_error *error) {
    const char *type = NULL;
    if (!json_is_object(root)) return plsh_config_refuse(what, "model_type", "is missing", error);
    plsh_status status = plsh_weights_json_string(root, "model_type", what, &type, error);
    if (status) return status;
    if (!type && is_mosaic(root)) type = "bert";
    const plsh_config_reader *r = type ? find_reader(type) : NULL;
    if (!r) {
        if (!type) return plsh_config_refuse(what, "model_type", "is missing", error);
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: \"model_type\" is \"%.40s\"; llama, mistral, qwen2, qwen3, bloom, "
                         "mpt, falcon, baichuan, jais, btlm, gpt_refact or bert",
                         what, type);
    }
    *config = r->defaults;
    plsh_model_config_family(config, plsh_family_find(r->family ? r->family : type));
    config->activation = config->family->activation;
    status = plsh_config_never(root, what, error);
    if (!status) status = plsh_config_fields(root, r->fields, r->count, what, config, error);
    if (!status) status = check_sizes(config, what, error);
    config->qkv_bias = config->attention_bias || config->family->qkv_bias;
    if (!status && r->finish) status = r->finish(root, what, config, error);
    return status ? status : finish(config, what, error);
}

/* The weight of this name in layer 0, with or without the family's prefix; NULL: there is none. */
static const plsh_tensor *find_tensor(const plsh_model_config *config, const plsh_weights *weights,
                                      const char *name) {
    char full[160];
    const plsh_family *family = config->family;
    for (int prefixed = 0; prefixed < 2; prefixed++) {
        if (config->gguf)
            snprintf(full, sizeof full, "blk.0.%s.weight", name);
        else
            snprintf(full, sizeof full, "%s%s0.%s.weight", prefixed ? family->prefix : "",
                     family->layers, name);
        const plsh_tensor *found = plsh_weights_find(weights, full);
        if (found) return found;
    }
    return NULL;
}

void plsh_model_config_tensors(plsh_model_config *config, const plsh_weights *weights) {
    const char *type = config->family->model_type;
    if (strcmp(type, "jina-bert-v2") == 0 &&
        find_tensor(config, weights, config->gguf ? "attn_q_norm" : "attention.self.layer_norm_q"))
        plsh_model_config_family(config, plsh_family_find("jina-bert-v2-code"));
    if (strcmp(type, "bert") == 0 && !config->gguf &&
        find_tensor(config, weights, "attention.self.Wqkv")) {
        plsh_model_config_family(config, plsh_family_find("mosaic-bert"));
        config->activation = PLSH_ACTIVATION_GELU;
    }
    if (strcmp(type, "gpt_refact") == 0 && !config->gguf) {
        const plsh_tensor *up = find_tensor(config, weights, "mlp.gate_up_proj");
        const plsh_tensor *gate = find_tensor(config, weights, "mlp.linear_1");
        if (!up && gate) plsh_model_config_family(config, plsh_family_find("gpt_refact-2023"));
        const int64_t wide = up ? plsh_tensor_rows(up) / 2 : gate ? plsh_tensor_rows(gate) : 0;
        if (wide > 0) config->intermediate = wide;
    }
}

/* Does config.json of the family call the number of layers "n_layer", as GPT-2 does? */
static bool has_n_layer(const plsh_family *family) { return strcmp(family->layers, "h.") == 0; }

plsh_status plsh_model_config_fits(const plsh_model_config *config, const plsh_weights *weights,
                                   plsh_error *error) {
    const size_t count = plsh_weights_count(weights);
    if ((uint64_t)config->layers <= count) return PLSH_STATUS_OK;
    const char *type = config->family->model_type, *path = plsh_weights_path(weights);
    const char *key = config->gguf                  ? "block_count"
                      : strcmp(type, "mpt") == 0    ? "n_layers"
                      : has_n_layer(config->family) ? "n_layer"
                                                    : "num_hidden_layers";
    return plsh_fail(
        error, PLSH_STATUS_FORMAT,
        "%s%s: \"%s\" is %lld; the weights are %zu tensors, too few for so many layers",
        config->gguf ? path : plsh_weights_folder(weights), config->gguf ? "" : "/config.json", key,
        (long long)config->layers, count);
}

plsh_status plsh_model_config_json(const char *text, size_t length, const char *what,
                                   plsh_model_config *config, plsh_error *error) {
    json_t *root;
    plsh_status status = plsh_weights_json_parse(text, length, what, &root, error);
    if (status) return status;
    status = read_root(root, what, config, error);
    json_decref(root);
    return status;
}
