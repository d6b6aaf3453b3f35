/* model: configurations from config.json, of transformers 4 and 5. */
#include "model/config.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "formats/json.h"

/* What a field of config.json is to us. */
typedef enum field_kind {
    FIELD_INTEGER, /* int64_t >= 1 */
    FIELD_NUMBER,  /* double */
    FIELD_BOOL,
    FIELD_ACTIVATION,
    FIELD_TRUE,    /* must be true, which it also is where it is absent */
    FIELD_FALSE,   /* must be false (or null, 0, empty), likewise */
    FIELD_SPECIAL, /* looked at elsewhere in this file */
    FIELD_ANY      /* changes no number that a forward pass gives */
} field_kind;

typedef struct field {
    const char *key;
    field_kind kind;
    size_t offset; /* in plsh_model_config */
    bool required;
} field;

#define AT(member) offsetof(plsh_model_config, member)
#define FIELDS(table) table, sizeof(table) / sizeof(*(table))

/* Of every configuration: names, tokens, outputs, generation, dropout, how it was initialised. */
static const char *const harmless[] = {"_name_or_path",
                                       "_attn_implementation",
                                       "_attn_implementation_autoset",
                                       "_commit_hash",
                                       "architectures",
                                       "auto_map",
                                       "attn_implementation",
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
                                       "repetition_penalty",
                                       "return_dict",
                                       "return_dict_in_generate",
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
                                       "summary_type",
                                       "output_past"};

/* Features that are not supported for any family. */
static const field never_fields[] = {{"add_cross_attention", FIELD_FALSE, 0, false},
                                     {"is_encoder_decoder", FIELD_FALSE, 0, false},
                                     {"pruned_heads", FIELD_FALSE, 0, false},
                                     {"tie_encoder_decoder", FIELD_FALSE, 0, false}};

static const field llama_fields[] = {
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

static const field bloom_fields[] = {
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

static const field mpt_fields[] = {
    {"is_decoder", FIELD_ANY, 0, false},
    {"d_model", FIELD_INTEGER, AT(hidden), true},
    {"n_heads", FIELD_INTEGER, AT(heads), true},
    {"n_layers", FIELD_INTEGER, AT(layers), true},
    {"vocab_size", FIELD_INTEGER, AT(vocabulary), true},
    {"max_seq_len", FIELD_INTEGER, AT(context), false},
    {"layer_norm_epsilon", FIELD_NUMBER, AT(norm_eps), false},
    {"resid_pdrop", FIELD_ANY, 0, false}, /* not read by transformers, see read_mpt */
    {"tie_word_embeddings", FIELD_BOOL, AT(tied), false},
    {"no_bias", FIELD_TRUE, 0, false},
    {"logit_scale", FIELD_FALSE, 0, false},
    {"attn_config", FIELD_SPECIAL, 0, false},
    {"expansion_ratio", FIELD_SPECIAL, 0, false},
    {"norm_type", FIELD_SPECIAL, 0, false},
    {"learned_pos_emb", FIELD_ANY, 0, false}, /* transformers has none, whatever it says */
    {"emb_pdrop", FIELD_ANY, 0, false},
    {"embedding_fraction", FIELD_ANY, 0, false}};

static const field mpt_attention_fields[] = {
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

static const field falcon_fields[] = {
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

static const field bert_fields[] = {
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
    {"tie_word_embeddings", FIELD_ANY, 0, false}}; /* of the head, which an encoder does not use */

/* The fields of a family and its defaults where they differ from zero. */
typedef struct reader {
    const char *model_type;
    const field *fields;
    size_t count;
    plsh_model_config defaults;
} reader;

static const reader readers[] = {
    {"llama", FIELDS(llama_fields), {.norm_eps = 1e-6, .context = 2048}},
    {"mistral", FIELDS(llama_fields), {.norm_eps = 1e-6, .kv_heads = 8, .context = 131072}},
    {"qwen3",
     FIELDS(llama_fields),
     {.norm_eps = 1e-6, .kv_heads = 32, .head_dim = 128, .context = 32768}},
    {"bloom",
     FIELDS(bloom_fields),
     {.norm_eps = 1e-5, .tied = true, .attention_bias = true, .mlp_bias = true}},
    {"mpt", FIELDS(mpt_fields), {.norm_eps = 1e-5, .tied = true, .context = 2048}},
    {"falcon",
     FIELDS(falcon_fields),
     {.norm_eps = 1e-5, .tied = true, .multi_query = true, .parallel = true, .context = 2048}},
    {"bert",
     FIELDS(bert_fields),
     {.norm_eps = 1e-12, .attention_bias = true, .mlp_bias = true, .types = 2, .context = 512}},
};

static plsh_status refuse(const char *what, const char *key, const char *why, plsh_error *error) {
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

static bool is_false(const json_t *value) {
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_integer(value) && json_integer_value(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_real(value) && json_real_value(value) == 0.0);
}

static plsh_status read_field(const json_t *object, const field *f, const char *what,
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
        return refuse(what, f->key, "must be true; the rest is not supported", error);
    case FIELD_FALSE:
        if (is_false(value)) return PLSH_STATUS_OK;
        return refuse(what, f->key, "is set, which is not supported", error);
    case FIELD_SPECIAL:
    case FIELD_ANY: break;
    }
    return PLSH_STATUS_OK;
}

static bool is_listed(const char *key, const field *fields, size_t count) {
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

/* One thing under two names, with two values? */
static plsh_status check_same(const json_t *one, const char *one_key, const json_t *other,
                              const char *other_key, const char *what, plsh_error *error) {
    const json_t *a = json_object_get(one, one_key), *b = json_object_get(other, other_key);
    if (!a || !b || json_is_null(a) || json_is_null(b) || json_equal(a, b)) return PLSH_STATUS_OK;
    if (json_is_number(a) && json_is_number(b) && json_number_value(a) == json_number_value(b))
        return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_FORMAT,
                     "%s: \"%s\" and \"%s\" are one thing under two names, and differ", what,
                     one_key, other_key);
}

static plsh_status check_names(const json_t *object, const field *fields, size_t count,
                               const char *what, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i && !status; j++) {
            if (fields[i].kind > FIELD_ACTIVATION || fields[i].offset != fields[j].offset) continue;
            if (fields[i].kind != fields[j].kind) continue;
            status = check_same(object, fields[j].key, object, fields[i].key, what, error);
        }
    }
    return status;
}

/* All fields of a table; every other key of the object must be null, or harmless where a whole
 * configuration (`config`) is read. */
static plsh_status read_fields(const json_t *object, const field *fields, size_t count,
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
            return refuse(what, key, "is a field that plsh does not know for this family", error);
        }
    }
    return PLSH_STATUS_OK;
}

/* ---- RoPE ------------------------------------------------------------------------------------ */

static plsh_status set_scaling(const char *type, const char *what, plsh_rope_config *rope,
                               plsh_error *error) {
    static const char *const names[] = {[PLSH_ROPE_DEFAULT] = "default",
                                        [PLSH_ROPE_LINEAR] = "linear",
                                        [PLSH_ROPE_LLAMA3] = "llama3"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(type, names[i]) != 0) continue;
        rope->scaling = (plsh_rope_scaling)i;
        return PLSH_STATUS_OK;
    }
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s: \"rope_type\" is \"%.40s\"; default, linear or llama3", what, type);
}

/* "rope_parameters" of version 5, or "rope_scaling" of version 4. */
static plsh_status read_rope_object(const json_t *object, const char *what, plsh_rope_config *rope,
                                    plsh_error *error) {
    static const field known[] = {{"rope_type", FIELD_SPECIAL, 0, false},
                                  {"type", FIELD_SPECIAL, 0, false},
                                  {"rope_theta", FIELD_SPECIAL, 0, false},
                                  {"factor", FIELD_SPECIAL, 0, false},
                                  {"low_freq_factor", FIELD_SPECIAL, 0, false},
                                  {"high_freq_factor", FIELD_SPECIAL, 0, false},
                                  {"original_max_position_embeddings", FIELD_SPECIAL, 0, false},
                                  {"partial_rotary_factor", FIELD_SPECIAL, 0, false}};
    const char *type = "default";
    double partial = 1.0;
    plsh_status status = check_same(object, "type", object, "rope_type", what, error);
    if (!status) status = plsh_weights_json_string(object, "type", what, &type, error);
    if (!status) status = plsh_weights_json_string(object, "rope_type", what, &type, error);
    /* The type before the fields, which another type has other ones of. */
    if (!status) status = set_scaling(type, what, rope, error);
    if (!status) status = read_fields(object, FIELDS(known), what, NULL, error);
    if (!status) status = plsh_weights_json_number(object, "rope_theta", what, &rope->theta, error);
    if (!status) status = plsh_weights_json_number(object, "factor", what, &rope->factor, error);
    if (!status) {
        status =
            plsh_weights_json_number(object, "low_freq_factor", what, &rope->low_frequency, error);
    }
    if (!status) {
        status = plsh_weights_json_number(object, "high_freq_factor", what, &rope->high_frequency,
                                          error);
    }
    if (!status) {
        status = plsh_weights_json_integer(object, "original_max_position_embeddings", 1,
                                           INT64_C(1) << 40, what, &rope->original_context, error);
    }
    if (!status) {
        status = plsh_weights_json_number(object, "partial_rotary_factor", what, &partial, error);
    }
    if (status) return status;
    if (partial != 1.0) {
        return refuse(what, "partial_rotary_factor", "is not 1, which is not supported", error);
    }
    return PLSH_STATUS_OK;
}

static plsh_status check_rope(const plsh_rope_config *rope, int64_t head_dim, const char *what,
                              plsh_error *error) {
    bool scaled = rope->scaling != PLSH_ROPE_DEFAULT, stretched = rope->factor != 0.0;
    if (!(rope->theta > 1.0 && rope->theta < 1e15)) {
        return refuse(what, "rope_theta", "must be above 1", error);
    }
    if (head_dim % 2 != 0) return refuse(what, "head_dim", "must be even for RoPE", error);
    if (scaled && !(rope->factor >= 1.0 && rope->factor < 1e9)) {
        return refuse(what, "factor", "of the RoPE scaling must be given, and 1 or more", error);
    }
    if (!scaled && stretched && rope->factor != 1.0) {
        return refuse(what, "factor", "needs a \"rope_type\" that scales", error);
    }
    if (rope->scaling != PLSH_ROPE_LLAMA3 &&
        (rope->low_frequency != 0.0 || rope->high_frequency != 0.0)) {
        return refuse(what, "low_freq_factor", "and high_freq_factor are for llama3 only", error);
    }
    if (rope->scaling == PLSH_ROPE_LLAMA3 &&
        !(rope->low_frequency > 0.0 && rope->high_frequency > rope->low_frequency &&
          rope->original_context > 0)) {
        return refuse(what, "rope_scaling",
                      "of type llama3 needs 0 < low_freq_factor < high_freq_factor and "
                      "original_max_position_embeddings",
                      error);
    }
    return PLSH_STATUS_OK;
}

static plsh_status read_rope(const json_t *root, const char *what, plsh_model_config *config,
                             plsh_error *error) {
    plsh_rope_config *rope = &config->rope;
    *rope = (plsh_rope_config){.theta = 10000.0, .original_context = config->context};
    plsh_status status = plsh_weights_json_number(root, "rope_theta", what, &rope->theta, error);
    static const char *const objects[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; !status && i < 2; i++) {
        const json_t *object = json_object_get(root, objects[i]);
        if (!object || json_is_null(object)) continue;
        if (!json_is_object(object)) return refuse(what, objects[i], "must be an object", error);
        if (check_same(root, "rope_theta", object, "rope_theta", what, NULL)) {
            return plsh_fail(error, PLSH_STATUS_FORMAT,
                             "%s: \"rope_theta\" beside \"%s\" and in it differ", what, objects[i]);
        }
        status = read_rope_object(object, what, rope, error);
    }
    if (!status) status = check_same(root, objects[0], root, objects[1], what, error);
    if (status) return status;
    return check_rope(rope, config->head_dim, what, error);
}

/* ---- What single families add ---------------------------------------------------------------- */

/* Layers 0 .. from-1 see everything, the rest the window: what Qwen's layer_types may say. */
static plsh_status read_layer_types(const json_t *types, const char *what,
                                    plsh_model_config *config, plsh_error *error) {
    if (!json_is_array(types) || (int64_t)json_array_size(types) != config->layers) {
        return refuse(what, "layer_types", "must be a list with an entry per layer", error);
    }
    int64_t from = config->layers;
    for (int64_t l = 0; l < config->layers; l++) {
        const char *type = json_string_value(json_array_get(types, (size_t)l));
        bool sliding = type && strcmp(type, "sliding_attention") == 0;
        if (!sliding && !(type && strcmp(type, "full_attention") == 0)) {
            return refuse(what, "layer_types", "knows full_attention and sliding_attention", error);
        }
        if (sliding && from == config->layers) from = l;
        if (!sliding && from < l) {
            return refuse(what, "layer_types", "must have its sliding layers last", error);
        }
    }
    config->sliding_from = from;
    return PLSH_STATUS_OK;
}

static plsh_status read_sliding(const json_t *root, const char *what, plsh_model_config *config,
                                plsh_error *error) {
    const char *type = config->family->model_type;
    const bool mistral = strcmp(type, "mistral") == 0, qwen = strcmp(type, "qwen3") == 0;
    const json_t *given = json_object_get(root, "sliding_window");
    /* Where they are absent, as transformers has them. */
    int64_t window = given || !(mistral || qwen) ? 0 : 4096, from = qwen ? 28 : 0;
    bool used = mistral;
    if (!mistral && !qwen && !is_false(given)) {
        return refuse(what, "sliding_window", "is not known for Llama", error);
    }
    plsh_status status =
        plsh_weights_json_integer(root, "sliding_window", 1, INT64_MAX / 2, what, &window, error);
    if (!status) status = plsh_weights_json_bool(root, "use_sliding_window", what, &used, error);
    if (!status) {
        status = plsh_weights_json_integer(root, "max_window_layers", 0, INT64_C(1) << 30, what,
                                           &from, error);
    }
    if (status) return status;
    if (!qwen && used != mistral && !(mistral && window == 0)) {
        return refuse(what, "use_sliding_window", "is Qwen3's; others have a window or none",
                      error);
    }
    config->sliding_window = used ? window : 0;
    config->sliding_from = qwen ? from : 0;
    const json_t *types = json_object_get(root, "layer_types");
    if (!types || json_is_null(types)) return PLSH_STATUS_OK;
    status = read_layer_types(types, what, config, error);
    if (!status && config->sliding_from < config->layers && config->sliding_window == 0) {
        return refuse(what, "layer_types", "asks for a sliding_window, which is not given", error);
    }
    if (!status && mistral && config->sliding_window > 0 && config->sliding_from > 0) {
        return refuse(what, "layer_types", "must be sliding_attention with a sliding_window",
                      error);
    }
    return status;
}

static plsh_status check_text(const json_t *object, const char *key, const char *what,
                              const char *right, const char *other, plsh_error *error) {
    const char *text = right;
    plsh_status status = plsh_weights_json_string(object, key, what, &text, error);
    if (status || strcmp(text, right) == 0 || (other && strcmp(text, other) == 0)) return status;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s: \"%s\" is \"%.40s\"; \"%s\" is supported",
                     what, key, text, right);
}

static plsh_status read_mpt(const json_t *root, const char *what, plsh_model_config *config,
                            plsh_error *error) {
    int64_t ratio = 4, most = 8;
    plsh_status status =
        plsh_weights_json_integer(root, "expansion_ratio", 4, 4, what, &ratio, error);
    if (!status) {
        status = check_text(root, "norm_type", what, "low_precision_layernorm", "layernorm", error);
    }
    const json_t *attention = json_object_get(root, "attn_config");
    if (status || !attention || json_is_null(attention)) return status;
    if (!json_is_object(attention)) return refuse(what, "attn_config", "must be an object", error);
    status = plsh_weights_json_integer(attention, "alibi_bias_max", 8, 8, what, &most, error);
    if (!status) {
        status = check_text(attention, "attn_type", what, "multihead_attention", NULL, error);
    }
    if (status) return status;
    status = read_fields(attention, FIELDS(mpt_attention_fields), what, config, error);
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

static plsh_status read_falcon(const json_t *root, const char *what, plsh_model_config *config,
                               plsh_error *error) {
    bool alibi = false;
    plsh_status status = plsh_weights_json_bool(root, "alibi", what, &alibi, error);
    if (status) return status;
    if (!alibi) {
        return refuse(what, "alibi", "must be true; Falcon with RoPE is not supported", error);
    }
    config->mlp_bias = config->attention_bias;
    config->kv_heads = config->multi_query ? 1 : config->heads;
    return check_falcon_sizes(root, what, config, error);
}

static const plsh_family *find_family(const char *model_type) {
    for (size_t i = 0; i < plsh_family_count; i++) {
        if (strcmp(plsh_families[i].model_type, model_type) == 0) return &plsh_families[i];
    }
    return NULL;
}

/* BERT, or JinaBERT v2, whose model_type is "bert" too. */
static plsh_status read_bert(const json_t *root, const char *what, plsh_model_config *config,
                             plsh_error *error) {
    const char *position = "absolute", *mlp = "original";
    plsh_status status =
        plsh_weights_json_string(root, "position_embedding_type", what, &position, error);
    if (!status) {
        status = plsh_weights_json_string(root, "feed_forward_type", what, &mlp, error);
    }
    if (!status) status = check_text(root, "emb_pooler", what, "mean", NULL, error);
    if (!status) status = check_text(root, "directionality", what, "bidi", NULL, error);
    if (status) return status;
    bool alibi = strcmp(position, "alibi") == 0, glu = strcmp(mlp, "geglu") == 0;
    if (!alibi && strcmp(position, "absolute") != 0) {
        return refuse(what, "position_embedding_type", "must be absolute or alibi", error);
    }
    if (strcmp(mlp, "reglu") == 0) {
        config->activation = PLSH_ACTIVATION_RELU;
        glu = true;
    } else if (glu) {
        config->activation = PLSH_ACTIVATION_GELU;
    } else if (strcmp(mlp, "original") != 0) {
        return refuse(what, "feed_forward_type", "must be original, geglu or reglu", error);
    }
    if (glu && !alibi) return refuse(what, "feed_forward_type", "is for alibi positions", error);
    if (alibi) config->family = find_family(glu ? "jina-bert-v2" : "jina-bert-v2-original");
    return PLSH_STATUS_OK;
}

static plsh_status check_sizes(const plsh_model_config *config, const char *what,
                               plsh_error *error) {
    if (config->hidden && config->layers && config->heads) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_FORMAT,
                     "%s: the hidden size, the number of layers or of heads is missing", what);
}

static plsh_status finish(plsh_model_config *config, const char *what, plsh_error *error) {
    if (!config->kv_heads) config->kv_heads = config->heads;
    if (!config->head_dim) config->head_dim = config->hidden / config->heads;
    if (!config->intermediate) config->intermediate = 4 * config->hidden;
    if (config->heads % config->kv_heads != 0) {
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: %lld heads over %lld kv heads", what,
                         (long long)config->heads, (long long)config->kv_heads);
    }
    if (config->head_dim < 1 || config->head_dim > 512 ||
        (config->family->position != PLSH_POSITION_ROPE &&
         config->head_dim * config->heads != config->hidden)) {
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%s: a hidden size of %lld in %lld heads of %lld: they do not fit", what,
                         (long long)config->hidden, (long long)config->heads,
                         (long long)config->head_dim);
    }
    if (!(config->norm_eps > 0.0 && config->norm_eps < 1.0)) {
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: the eps of its norms is %g", what,
                         config->norm_eps);
    }
    if (!(config->scale >= 0.0 && config->scale < 1e30)) {
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: the scale of scores is %g", what,
                         config->scale);
    }
    return PLSH_STATUS_OK;
}

static plsh_status read_root(const json_t *root, const char *what, plsh_model_config *config,
                             plsh_error *error) {
    const char *type = NULL;
    if (!json_is_object(root)) return refuse(what, "model_type", "is missing", error);
    plsh_status status = plsh_weights_json_string(root, "model_type", what, &type, error);
    if (status) return status;
    const reader *r = NULL;
    for (size_t i = 0; type && i < sizeof(readers) / sizeof(*readers); i++) {
        if (strcmp(readers[i].model_type, type) == 0) r = &readers[i];
    }
    if (!r) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: \"model_type\" is \"%.40s\"; llama, mistral, qwen3, bloom, mpt, "
                         "falcon or bert",
                         what, type ? type : "missing");
    }
    *config = r->defaults;
    config->family = find_family(type);
    config->activation = config->family->activation;
    for (size_t i = 0; !status && i < sizeof(never_fields) / sizeof(*never_fields); i++) {
        status = read_field(root, &never_fields[i], what, config, error);
    }
    if (!status) status = read_fields(root, r->fields, r->count, what, config, error);
    if (!status) status = check_sizes(config, what, error);
    if (!status && strcmp(type, "mpt") == 0) status = read_mpt(root, what, config, error);
    if (!status && strcmp(type, "falcon") == 0) status = read_falcon(root, what, config, error);
    if (!status && strcmp(type, "bert") == 0) status = read_bert(root, what, config, error);
    if (!status) status = finish(config, what, error);
    if (!status && r->fields == llama_fields) {
        status = read_rope(root, what, config, error);
        if (!status) status = read_sliding(root, what, config, error);
    }
    return status;
}

plsh_status plsh_model_config_fits(const plsh_model_config *config, const plsh_weights *weights,
                                   plsh_error *error) {
    const size_t count = plsh_weights_count(weights);
    if ((uint64_t)config->layers <= count) return PLSH_STATUS_OK;
    const char *type = config->family->model_type, *path = plsh_weights_path(weights);
    const char *key = config->gguf                 ? "block_count"
                      : strcmp(type, "mpt") == 0   ? "n_layers"
                      : strcmp(type, "bloom") == 0 ? "n_layer"
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
