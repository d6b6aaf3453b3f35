/* model: fields of config.json of single causal families. */
#include "model/config_causal.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

/* ---- MPT, as llm-foundry has it -------------------------------------------------------------- */

static const plsh_field mpt_fields[] = {
    {"is_decoder", FIELD_ANY, 0, false},
    {"d_model", FIELD_INTEGER, AT(hidden), true},
    {"n_heads", FIELD_INTEGER, AT(heads), true},
    {"n_layers", FIELD_INTEGER, AT(layers), true},
    {"head_dim", FIELD_INTEGER, AT(head_dim), false},
    {"vocab_size", FIELD_INTEGER, AT(vocabulary), true},
    {"max_seq_len", FIELD_INTEGER, AT(context), false},
    {"layer_norm_epsilon", FIELD_NUMBER, AT(norm_eps), false},
    {"norm_eps", FIELD_NUMBER, AT(norm_eps), false},
    {"resid_pdrop", FIELD_ANY, 0, false}, /* not read by transformers, see read_mpt_attention */
    {"tie_word_embeddings", FIELD_BOOL, AT(tied), false},
    {"no_bias", FIELD_SPECIAL, 0, false},
    {"attention_bias", FIELD_SPECIAL, 0, false},
    {"logit_scale", FIELD_SPECIAL, 0, false},
    {"attn_config", FIELD_SPECIAL, 0, false},
    {"ffn_config", FIELD_SPECIAL, 0, false},
    {"expansion_ratio", FIELD_SPECIAL, 0, false},
    {"norm_type", FIELD_SPECIAL, 0, false},
    {"learned_pos_emb", FIELD_ANY, 0, false}, /* ALiBi, which is required, switches them off */
    {"emb_pdrop", FIELD_ANY, 0, false},
    {"embedding_fraction", FIELD_NUMBER, AT(embedding_share), false},
    {"fc_type", FIELD_ANY, 0, false}, /* which library multiplies */
    {"use_pad_tok_in_ffn", FIELD_ANY, 0, false},
    {"block_overrides", FIELD_FALSE, 0, false},
    {"final_logit_softcapping", FIELD_FALSE, 0, false}};

static const plsh_field mpt_attention_fields[] = {
    {"alibi", FIELD_TRUE, 0, false},
    {"alibi_bias_max", FIELD_NUMBER, AT(alibi_max), false},
    {"attn_type", FIELD_SPECIAL, 0, false},
    {"clip_qkv", FIELD_NUMBER, AT(clip), false},
    {"prefix_lm", FIELD_FALSE, 0, false},
    {"qk_ln", FIELD_SPECIAL, 0, false},
    {"qk_gn", FIELD_SPECIAL, 0, false},
    {"fused_qkv", FIELD_SPECIAL, 0, false},
    {"kv_n_heads", FIELD_INTEGER, AT(kv_heads), false},
    {"kv_dim", FIELD_FALSE, 0, false},
    {"softmax_scale", FIELD_NUMBER, AT(scale), false},
    {"attn_impl", FIELD_ANY, 0, false},
    {"attn_pdrop", FIELD_NUMBER, AT(attention_dropout), false},
    {"attn_uses_sequence_id", FIELD_FALSE, 0, false},
    {"sliding_window_size", FIELD_SPECIAL, 0, false},
    {"attn_logit_softcapping", FIELD_FALSE, 0, false},
    {"attn_temperature_tuning", FIELD_SPECIAL, 0, false},
    {"rope", FIELD_FALSE, 0, false},
    {"nope", FIELD_FALSE, 0, false},
    {"rope_theta", FIELD_ANY, 0, false}, /* read with rope only, which is refused */
    {"rope_impl", FIELD_ANY, 0, false},
    {"rope_dail_config", FIELD_ANY, 0, false},
    {"rope_hf_config", FIELD_ANY, 0, false}};

/* An object inside the configuration; *out stays NULL where it is absent. */
static plsh_status find_object(const json_t *root, const char *key, const char *what,
                               const json_t **out, plsh_error *error) {
    const json_t *object = json_object_get(root, key);
    *out = NULL;
    if (!object || json_is_null(object)) return PLSH_STATUS_OK;
    if (!json_is_object(object)) return plsh_config_refuse(what, key, "must be an object", error);
    *out = object;
    return PLSH_STATUS_OK;
}

/* One kv head, some, or as many as heads. */
static plsh_status read_mpt_kv_heads(const json_t *attention, const char *what,
                                     plsh_model_config *config, plsh_error *error) {
    const char *type = "multihead_attention";
    plsh_status status = plsh_weights_json_string(attention, "attn_type", what, &type, error);
    if (status) return status;
    const bool grouped = strcmp(type, "grouped_query_attention") == 0;
    const int64_t right = strcmp(type, "multiquery_attention") == 0  ? 1
                          : strcmp(type, "multihead_attention") == 0 ? config->heads
                                                                     : 0;
    if (!grouped && !right)
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: \"attn_type\" is \"%.40s\"; multihead_attention, "
                         "grouped_query_attention and multiquery_attention are supported",
                         what, type);
    if (grouped && !config->kv_heads)
        return plsh_config_refuse(what, "kv_n_heads",
                                  "is missing, which grouped_query_attention "
                                  "needs",
                                  error);
    if (!grouped && config->kv_heads && config->kv_heads != right)
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: \"kv_n_heads\" is %lld; %s has %lld", what,
                         (long long)config->kv_heads, type, (long long)right);
    if (!grouped) config->kv_heads = right;
    return PLSH_STATUS_OK;
}

/* Switches of features that are not supported: a window of -1 is none, and so is a scale of 0. */
static plsh_status check_mpt_attention(const json_t *attention, const char *what,
                                       plsh_error *error) {
    const json_t *tuning = NULL, *window = json_object_get(attention, "sliding_window_size");
    double scale = 0.0;
    if (window && !json_is_null(window) &&
        !(json_is_integer(window) && json_integer_value(window) == -1))
        return plsh_config_refuse(what, "sliding_window_size", "must be -1: no window", error);
    plsh_status status = find_object(attention, "attn_temperature_tuning", what, &tuning, error);
    if (!status && tuning)
        status = plsh_weights_json_number(tuning, "attn_scale", what, &scale, error);
    if (!status && scale != 0.0)
        status = plsh_config_refuse(what, "attn_temperature_tuning", "must have an attn_scale of 0",
                                    error);
    return status;
}

static plsh_status read_mpt_attention(const json_t *attention, const char *what,
                                      plsh_model_config *config, plsh_error *error) {
    bool whole = false, heads = false, fused = true;
    plsh_status status =
        plsh_config_fields(attention, FIELDS(mpt_attention_fields), what, config, error);
    if (!status) status = read_mpt_kv_heads(attention, what, config, error);
    if (!status) status = check_mpt_attention(attention, what, error);
    if (!status) status = plsh_weights_json_bool(attention, "qk_ln", what, &whole, error);
    if (!status) status = plsh_weights_json_bool(attention, "qk_gn", what, &heads, error);
    if (!status) status = plsh_weights_json_bool(attention, "fused_qkv", what, &fused, error);
    if (!status && whole && heads)
        status = plsh_config_refuse(what, "qk_gn", "and qk_ln exclude each other", error);
    if (whole) config->qk_norm = PLSH_QK_NORM_WHOLE;
    if (heads) config->qk_norm = PLSH_QK_NORM_HEAD;
    if (!fused) config->qkv = PLSH_QKV_SPLIT;
    config->dropout = config->attention_dropout; /* one number for both, as in transformers */
    return status;
}

/* {"name": "gelu", "approximate": "none"}: a function of torch.nn.functional. */
static plsh_status read_mpt_activation(const json_t *ffn, const char *what,
                                       plsh_model_config *config, plsh_error *error) {
    static const plsh_field fields[] = {{"name", FIELD_SPECIAL, 0, true},
                                        {"approximate", FIELD_SPECIAL, 0, false}};
    const json_t *object;
    const char *name = "gelu", *approximate = "none";
    plsh_status status = find_object(ffn, "ffn_act_fn", what, &object, error);
    if (status || !object) return status;
    status = plsh_config_fields(object, FIELDS(fields), what, NULL, error);
    if (!status) status = plsh_weights_json_string(object, "name", what, &name, error);
    if (!status)
        status = plsh_weights_json_string(object, "approximate", what, &approximate, error);
    if (status) return status;
    const bool tanh = strcmp(approximate, "tanh") == 0;
    if (strcmp(name, "gelu") == 0 && (tanh || strcmp(approximate, "none") == 0))
        config->activation = tanh ? PLSH_ACTIVATION_GELU_TANH : PLSH_ACTIVATION_GELU;
    else if (strcmp(name, "silu") == 0)
        config->activation = PLSH_ACTIVATION_SILU;
    else if (strcmp(name, "relu") == 0)
        config->activation = PLSH_ACTIVATION_RELU;
    else
        status = plsh_config_refuse(what, "ffn_act_fn", "must be gelu, silu or relu", error);
    return status;
}

static plsh_status read_mpt_ffn(const json_t *ffn, const char *what, plsh_model_config *config,
                                plsh_error *error) {
    static const plsh_field fields[] = {{"ffn_type", FIELD_SPECIAL, 0, false},
                                        {"ffn_act_fn", FIELD_SPECIAL, 0, false},
                                        {"ffn_hidden_size", FIELD_INTEGER, AT(intermediate), false},
                                        {"fc_type", FIELD_ANY, 0, false}};
    const char *type = "mptmlp";
    plsh_status status = plsh_config_fields(ffn, FIELDS(fields), what, config, error);
    if (!status) status = plsh_weights_json_string(ffn, "ffn_type", what, &type, error);
    if (!status) status = plsh_config_text(ffn, "ffn_type", what, "mptmlp", "mptglu", error);
    if (!status && strcmp(type, "mptglu") == 0) config->mlp = PLSH_MLP_GATED;
    return status ? status : read_mpt_activation(ffn, what, config, error);
}

/* A number, or the text "inv_sqrt_d_model". */
static plsh_status read_mpt_logit_scale(const json_t *root, const char *what,
                                        plsh_model_config *config, plsh_error *error) {
    const json_t *value = json_object_get(root, "logit_scale");
    if (!json_is_string(value))
        return plsh_weights_json_number(root, "logit_scale", what, &config->logit_scale, error);
    config->logit_scale = 1.0 / sqrt((double)config->hidden);
    return plsh_config_text(root, "logit_scale", what, "inv_sqrt_d_model", NULL, error);
}

/* Unless it is given, the inner width is d_model times the ratio, which must be whole. */
static plsh_status read_mpt_width(const json_t *root, const char *what, plsh_model_config *config,
                                  plsh_error *error) {
    double ratio = 4.0;
    plsh_status status = plsh_weights_json_number(root, "expansion_ratio", what, &ratio, error);
    if (status || config->intermediate) return status;
    const double wide = ratio * (double)config->hidden;
    if (!(wide >= 1.0 && wide <= 1073741824.0 && wide == floor(wide)))
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%s: \"expansion_ratio\" is %g, which gives an inner width of %g; a whole "
                         "number from 1 to 2^30",
                         what, ratio, wide);
    config->intermediate = (int64_t)wide;
    return PLSH_STATUS_OK;
}

/* "no_bias" is for all layers and norms, "attention_bias" for q, k and v before it. */
static plsh_status read_mpt_biases(const json_t *root, const char *what, plsh_model_config *config,
                                   plsh_error *error) {
    bool none = true;
    plsh_status status = plsh_weights_json_bool(root, "no_bias", what, &none, error);
    config->attention_bias = config->mlp_bias = config->qkv_bias = !none;
    config->norm_bias = !none && config->norm == PLSH_NORM_LAYER;
    if (!status)
        status = plsh_weights_json_bool(root, "attention_bias", what, &config->qkv_bias, error);
    return status;
}

static plsh_status read_mpt_norm(const json_t *root, const char *what, plsh_model_config *config,
                                 plsh_error *error) {
    static const char *const names[] = {"layernorm", "low_precision_layernorm", "rmsnorm",
                                        "low_precision_rmsnorm"};
    const char *type = names[0];
    plsh_status status = plsh_weights_json_string(root, "norm_type", what, &type, error);
    if (status) return status;
    for (int i = 0; i < 4; i++) {
        if (strcmp(type, names[i]) != 0) continue;
        config->norm = i < 2 ? PLSH_NORM_LAYER : PLSH_NORM_RMS;
        return PLSH_STATUS_OK;
    }
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s: \"norm_type\" is \"%.40s\"; layernorm, rmsnorm and their "
                     "low_precision_ forms are supported",
                     what, type);
}

static plsh_status read_mpt(const json_t *root, const char *what, plsh_model_config *config,
                            plsh_error *error) {
    const json_t *attention = NULL, *ffn = NULL;
    plsh_status status = read_mpt_norm(root, what, config, error);
    if (!status) status = read_mpt_biases(root, what, config, error);
    if (!status) status = read_mpt_logit_scale(root, what, config, error);
    if (!status) status = find_object(root, "attn_config", what, &attention, error);
    if (!status && attention) status = read_mpt_attention(attention, what, config, error);
    if (!status) status = find_object(root, "ffn_config", what, &ffn, error);
    if (!status && ffn) status = read_mpt_ffn(ffn, what, config, error);
    return status ? status : read_mpt_width(root, what, config, error);
}

/* ---- Falcon ---------------------------------------------------------------------------------- */

/* Fields that transformers reads for the new decoder only, or not at all, must agree with the sizes
 * of the model. With multi_query any number is accepted, because published files give various ones.
 */
static plsh_status check_falcon_sizes(const json_t *root, const char *what,
                                      const plsh_model_config *config, plsh_error *error) {
    static const char *const keys[] = {"num_kv_heads", "n_head_kv", "ff_factor"};
    const int64_t wide = config->intermediate ? config->intermediate : 4 * config->hidden;
    for (size_t i = 0; i < 3; i++) {
        int64_t value = i < 2 ? config->kv_heads : wide / config->hidden;
        const int64_t right = value;
        plsh_status status =
            plsh_weights_json_integer(root, keys[i], 1, INT64_C(1) << 30, what, &value, error);
        if (status) return status;
        if (value == right || (i < 2 && config->multi_query)) continue;
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s: \"%s\" is %lld; %lld is supported",
                         what, keys[i], (long long)value, (long long)right);
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_config_falcon(const json_t *root, const char *what, plsh_model_config *config,
                               plsh_error *error) {
    bool alibi = false;
    plsh_status status = plsh_weights_json_bool(root, "alibi", what, &alibi, error);
    if (status) return status;
    if (!alibi) {
        return plsh_config_refuse(what, "alibi", "must be true; Falcon with RoPE is not supported",
                                  error);
    }
    config->mlp_bias = config->attention_bias;
    config->kv_heads = config->multi_query ? 1 : config->heads;
    if (config->multi_query) config->qkv = PLSH_QKV_STACKED;
    return check_falcon_sizes(root, what, config, error);
}

/* ---- Readers --------------------------------------------------------------------------------- */

static const plsh_config_reader mpt_reader = {
    "mpt", NULL, FIELDS(mpt_fields), {.norm_eps = 1e-5, .tied = true, .context = 2048}, read_mpt};

const plsh_config_reader *plsh_config_find_causal(const char *model_type) {
    if (strcmp(model_type, mpt_reader.model_type) == 0) return &mpt_reader;
    return plsh_config_find_remote(model_type);
}
