/* model: the fields of a config.json. */
#include "model/config_fields.h"

#include <string.h>

#include "base/status.h"

/* Of every configuration: names, tokens, outputs, generation, dropout, how it was initialised. */
static const char *const harmless[] = {"_name_or_path",
                                       "_from_model_config",
                                       "_attn_implementation",
                                       "_attn_implementation_autoset",
                                       "_commit_hash",
                                       "architectures",
                                       "auto_map",
                                       "attn_implementation",
                                       "attention_bias_in_fp32",
                                       "attention_dropout",
                                       "attention_probs_dropout_prob",
                                       "attention_softmax_in_fp32",
                                       "bad_words_ids",
                                       "begin_suppress_tokens",
                                       "bias_dropout_fusion",
                                       "bos_token_id",
                                       "chunk_size_feed_forward",
                                       "classifier_dropout",
                                       "cross_attention_hidden_size",
                                       "custom_pipelines",
                                       "decoder_start_token_id",
                                       "diversity_penalty",
                                       "do_sample",
                                       "dtype",
                                       "early_stopping",
                                       "encoder_no_repeat_ngram_size",
                                       "eos_token_id",
                                       "exponential_decay_length_penalty",
                                       "finetuning_task",
                                       "forced_bos_token_id",
                                       "forced_eos_token_id",
                                       "gradient_checkpointing",
                                       "hidden_dropout_prob",
                                       "id2label",
                                       "init_config",
                                       "init_device",
                                       "initializer_range",
                                       "label2id",
                                       "length_penalty",
                                       "masked_softmax_fusion",
                                       "max_length",
                                       "min_length",
                                       "model_max_length",
                                       "model_type",
                                       "no_repeat_ngram_size",
                                       "num_beam_groups",
                                       "num_beams",
                                       "num_return_sequences",
                                       "offset_alibi",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "output_scores",
                                       "pad_token_id",
                                       "prefix",
                                       "pretraining_tp",
                                       "problem_type",
                                       "remove_invalid_values",
                                       "reorder_and_upcast_attn",
                                       "repetition_penalty",
                                       "return_dict",
                                       "return_dict_in_generate",
                                       "scale_attention_softmax_in_fp32",
                                       "sep_token_id",
                                       "seq_length",
                                       "slow_but_exact",
                                       "suppress_tokens",
                                       "task_specific_params",
                                       "temperature",
                                       "tf_legacy_loss",
                                       "tokenizer_class",
                                       "tokenizer_name",
                                       "top_k",
                                       "top_p",
                                       "torch_dtype",
                                       "torchscript",
                                       "transformers_version",
                                       "transformers.js_config",
                                       "typical_p",
                                       "unk_token_id",
                                       "use_bfloat16",
                                       "use_cache",
                                       "verbose",
                                       "skip_bias_add",
                                       "skip_bias_add_qkv",
                                       "bos_token",
                                       "eos_token",
                                       "summary_activation",
                                       "summary_first_dropout",
                                       "summary_proj_to_labels",
                                       "summary_type",
                                       "summary_use_proj",
                                       "output_past"};

/* Features that are not supported for any family. */
static const plsh_field never_fields[] = {{"add_cross_attention", FIELD_FALSE, 0, false},
                                          {"is_encoder_decoder", FIELD_FALSE, 0, false},
                                          {"pruned_heads", FIELD_FALSE, 0, false},
                                          {"tie_encoder_decoder", FIELD_FALSE, 0, false}};

plsh_status plsh_config_refuse(const char *what, const char *key, const char *why,
                               plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s: \"%s\" %s", what, key, why);
}

static plsh_status read_activation(const json_t *object, const char *key, const char *what,
                                   plsh_activation *out, plsh_error *error) {
    static const struct {
        const char *name;
        plsh_activation kind;
    } names[] = {{"silu", PLSH_ACTIVATION_SILU},
                 {"swish", PLSH_ACTIVATION_SILU},
                 {"gelu", PLSH_ACTIVATION_GELU},
                 {"gelu_new", PLSH_ACTIVATION_GELU_TANH},
                 {"gelu_pytorch_tanh", PLSH_ACTIVATION_GELU_TANH},
                 {"gelu_fast", PLSH_ACTIVATION_GELU_TANH},
                 {"relu", PLSH_ACTIVATION_RELU}};
    const char *name = NULL;
    plsh_status status = plsh_weights_json_string(object, key, what, &name, error);
    if (status || !name) return status;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcmp(names[i].name, name) == 0) {
            if (out) *out = names[i].kind;
            return PLSH_STATUS_OK;
        }
    }
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s: \"%s\" is \"%.40s\"; silu, gelu, gelu_new, gelu_pytorch_tanh or relu",
                     what, key, name);
}

bool plsh_config_is_false(const json_t *value) {
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_integer(value) && json_integer_value(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_real(value) && json_real_value(value) == 0.0);
}

static plsh_status read_field(const json_t *object, const plsh_field *f, const char *what,
                              plsh_model_config *config, plsh_error *error) {
    void *member = config ? (char *)config + f->offset : NULL; /* NULL: nothing to be kept */
    const json_t *value = json_object_get(object, f->key);
    if (f->required && (!value || json_is_null(value))) {
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: \"%s\" is missing", what, f->key);
    }
    switch (f->kind) {
    case FIELD_INTEGER:
        return plsh_weights_json_integer(object, f->key, 1, INT64_C(1) << 30, what, member, error);
    case FIELD_NUMBER: return plsh_weights_json_number(object, f->key, what, member, error);
    case FIELD_BOOL: return plsh_weights_json_bool(object, f->key, what, member, error);
    case FIELD_ACTIVATION: return read_activation(object, f->key, what, member, error);
    case FIELD_TRUE:
        if (!value || json_is_null(value) || json_is_true(value)) return PLSH_STATUS_OK;
        return plsh_config_refuse(what, f->key, "must be true; the rest is not supported", error);
    case FIELD_FALSE:
        if (plsh_config_is_false(value)) return PLSH_STATUS_OK;
        return plsh_config_refuse(what, f->key, "is set, which is not supported", error);
    case FIELD_SPECIAL:
    case FIELD_ANY: break;
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_config_field(const json_t *object, const plsh_field *field, const char *what,
                              plsh_model_config *config, plsh_error *error) {
    return read_field(object, field, what, config, error);
}

static bool is_listed(const char *key, const plsh_field *fields, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i].key, key) == 0) return true;
    }
    return false;
}

static bool is_harmless(const char *key) {
    for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++) {
        if (strcmp(harmless[i], key) == 0) return true;
    }
    return is_listed(key, FIELDS(never_fields));
}

plsh_status plsh_config_same(const json_t *one, const char *one_key, const json_t *other,
                             const char *other_key, const char *what, plsh_error *error) {
    const json_t *a = json_object_get(one, one_key), *b = json_object_get(other, other_key);
    if (!a || !b || json_is_null(a) || json_is_null(b) || json_equal(a, b)) return PLSH_STATUS_OK;
    if (json_is_number(a) && json_is_number(b) && json_number_value(a) == json_number_value(b))
        return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_FORMAT,
                     "%s: \"%s\" and \"%s\" are one thing under two names, and differ", what,
                     one_key, other_key);
}

static plsh_status check_names(const json_t *object, const plsh_field *fields, size_t count,
                               const char *what, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i && !status; j++) {
            if (fields[i].kind > FIELD_ACTIVATION || fields[i].offset != fields[j].offset) continue;
            if (fields[i].kind != fields[j].kind) continue;
            status = plsh_config_same(object, fields[j].key, object, fields[i].key, what, error);
        }
    }
    return status;
}

plsh_status plsh_config_fields(const json_t *object, const plsh_field *fields, size_t count,
                               const char *what, plsh_model_config *config, plsh_error *error) {
    plsh_status status = check_names(object, fields, count, what, error);
    for (size_t i = 0; i < count && !status; i++) {
        status = read_field(object, &fields[i], what, config, error);
    }
    if (status) return status;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (json_is_null(value) || is_listed(key, fields, count)) continue;
        if (!config || !is_harmless(key)) {
            return plsh_config_refuse(what, key,
                                      "is a field that plsh does not know for this family", error);
        }
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_config_text(const json_t *object, const char *key, const char *what,
                             const char *right, const char *other, plsh_error *error) {
    const char *text = right;
    plsh_status status = plsh_weights_json_string(object, key, what, &text, error);
    if (status || strcmp(text, right) == 0 || (other && strcmp(text, other) == 0)) return status;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s: \"%s\" is \"%.40s\"; \"%s\" is supported",
                     what, key, text, right);
}

plsh_status plsh_config_never(const json_t *object, const char *what, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; !status && i < sizeof(never_fields) / sizeof(*never_fields); i++) {
        status = read_field(object, &never_fields[i], what, NULL, error);
    }
    return status;
}
