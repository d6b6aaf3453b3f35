/* model: what single causal families add to a configuration. */
#include "model/config_causal.h"

#include <string.h>

#include "base/status.h"

static const plsh_field mpt_attention_fields[] = {
    {"alibi", FIELD_TRUE, 0, false},
    {"alibi_bias_max", FIELD_SPECIAL, 0, false},
    {"attn_type", FIELD_SPECIAL, 0, false},
    {"clip_qkv", FIELD_FALSE, 0, false},
    {"prefix_lm", FIELD_FALSE, 0, false},
    {"qk_ln", FIELD_FALSE, 0, false},
    {"softmax_scale", FIELD_NUMBER, AT(scale), false},
    {"attn_impl", FIELD_ANY, 0, false},
    {"attn_pdrop", FIELD_NUMBER, AT(attention_dropout), false},
    {"attn_uses_sequence_id", FIELD_FALSE, 0, false},
    {"rope", FIELD_FALSE, 0, false},
    {"qk_gn", FIELD_FALSE, 0, false},
    {"rope_theta", FIELD_ANY, 0, false}, /* read with rope only, which is refused */
    {"rope_impl", FIELD_ANY, 0, false},
    {"rope_dail_config", FIELD_ANY, 0, false},
    {"rope_hf_config", FIELD_ANY, 0, false}};

plsh_status plsh_config_mpt(const json_t *root, const char *what, plsh_model_config *config,
                            plsh_error *error) {
    int64_t ratio = 4, most = 8;
    plsh_status status =
        plsh_weights_json_integer(root, "expansion_ratio", 4, 4, what, &ratio, error);
    if (!status) {
        status = plsh_config_text(root, "norm_type", what, "low_precision_layernorm", "layernorm",
                                  error);
    }
    const json_t *attention = json_object_get(root, "attn_config");
    if (status || !attention || json_is_null(attention)) return status;
    if (!json_is_object(attention))
        return plsh_config_refuse(what, "attn_config", "must be an object", error);
    status = plsh_weights_json_integer(attention, "alibi_bias_max", 8, 8, what, &most, error);
    if (!status) {
        status = plsh_config_text(attention, "attn_type", what, "multihead_attention", NULL, error);
    }
    if (status) return status;
    status = plsh_config_fields(attention, FIELDS(mpt_attention_fields), what, config, error);
    config->dropout = config->attention_dropout; /* one number for both, as in transformers */
    return status;
}

/* Sizes that transformers reads with the new decoder only, or not at all, must say what is. Under
 * multi_query the files in use give any number of kv heads. */
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
    return check_falcon_sizes(root, what, config, error);
}
