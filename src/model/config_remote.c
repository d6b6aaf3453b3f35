/* model: the configurations of families whose code lies beside their weights: Baichuan, Jais, BTLM,
 * Refact. */
#include <string.h>

#include "base/status.h"
#include "model/config_causal.h"
#include "model/config_rope.h"

/* ---- Baichuan -------------------------------------------------------------------------------- */

static const plsh_field baichuan_fields[] = {
    {"hidden_size", FIELD_INTEGER, AT(hidden), true},
    {"intermediate_size", FIELD_INTEGER, AT(intermediate), true},
    {"num_hidden_layers", FIELD_INTEGER, AT(layers), true},
    {"num_attention_heads", FIELD_INTEGER, AT(heads), true},
    {"vocab_size", FIELD_INTEGER, AT(vocabulary), true},
    {"model_max_length", FIELD_INTEGER, AT(context), false},
    {"max_position_embeddings", FIELD_ANY, 0, false}, /* the length it was trained with */
    {"rms_norm_eps", FIELD_NUMBER, AT(norm_eps), false},
    {"hidden_act", FIELD_ACTIVATION, AT(activation), false},
    {"tie_word_embeddings", FIELD_BOOL, AT(tied), false},
    {"z_loss_weight", FIELD_FALSE, 0, false},
    {"rope_theta", FIELD_SPECIAL, 0, false},
    {"rope_scaling", FIELD_SPECIAL, 0, false},
    {"rope_parameters", FIELD_SPECIAL, 0, false},
    {"is_decoder", FIELD_ANY, 0, false}};

enum { VOCABULARY_OF_2 = 125696, HIDDEN_OF_7B = 4096, LAYERS_OF_13B = 40, LAYERS_OF_7B = 32 };

void plsh_config_baichuan(plsh_model_config *config, plsh_baichuan_positions known) {
    static const char *const rules[2][3][2] = {
        {{"RoPE, because its hidden size is 4096; a plain head, because its vocabulary is not "
          "125696",
          "RoPE, because its hidden size is 4096; a normalised head, because its vocabulary is "
          "125696"},
         {"RoPE, because it has 32 layers; a plain head, because its vocabulary is not 125696",
          "RoPE, because it has 32 layers; a normalised head, because its vocabulary is 125696"},
         {"RoPE, by attention.max_alibi_bias; a plain head, because its vocabulary is not 125696",
          "RoPE, by attention.max_alibi_bias; a normalised head, because its vocabulary is "
          "125696"}},
        {{"ALiBi, because its hidden size is not 4096; a plain head, because its vocabulary is not "
          "125696",
          "ALiBi, because its hidden size is not 4096; a normalised head, because its vocabulary "
          "is 125696"},
         {"ALiBi, because it has 40 layers; a plain head, because its vocabulary is not 125696",
          "ALiBi, because it has 40 layers; a normalised head, because its vocabulary is 125696"},
         {"ALiBi, by attention.max_alibi_bias; a plain head, because its vocabulary is not 125696",
          "ALiBi, by attention.max_alibi_bias; a normalised head, because its vocabulary is "
          "125696"}}};
    static const char *const families[2][2] = {{"baichuan-7b", "baichuan2-7b"},
                                               {"baichuan-13b", "baichuan2-13b"}};
    const bool normal = config->vocabulary == VOCABULARY_OF_2;
    const bool counted =
        config->gguf && (config->layers == LAYERS_OF_13B || config->layers == LAYERS_OF_7B);
    const int rule = known != PLSH_BAICHUAN_UNKNOWN ? 2 : counted ? 1 : 0;
    const bool alibi = rule == 2   ? known == PLSH_BAICHUAN_ALIBI
                       : rule == 1 ? config->layers == LAYERS_OF_13B
                                   : config->hidden != HIDDEN_OF_7B;
    plsh_model_config_family(config, plsh_family_find(families[alibi][normal]));
    config->rule = rules[alibi][rule][normal];
}

static plsh_status read_baichuan(const json_t *root, const char *what, plsh_model_config *config,
                                 plsh_error *error) {
    plsh_config_baichuan(config, PLSH_BAICHUAN_UNKNOWN);
    if (config->tied)
        return plsh_config_refuse(what, "tie_word_embeddings", "must be false", error);
    config->head_dim = config->hidden / config->heads;
    if (config->head_dim * config->heads != config->hidden)
        return plsh_config_refuse(what, "num_attention_heads", "does not divide the hidden size",
                                  error);
    /* RoPE of its own family, or of one that is chosen later (plsh_model_config_choose). */
    if (config->head_dim % 2 == 0) return plsh_config_rope(root, what, config, error);
    return PLSH_STATUS_OK;
}

/* ---- Jais and BTLM --------------------------------------------------------------------------- */

/* Fields that Jais, BTLM and Refact have from GPT-2. */
#define GPT2_FIELDS                                                                                \
    {"n_embd", FIELD_INTEGER, AT(hidden), true}, {"n_layer", FIELD_INTEGER, AT(layers), true},     \
        {"n_head", FIELD_INTEGER, AT(heads), true},                                                \
        {"n_inner", FIELD_INTEGER, AT(intermediate), false},                                       \
        {"n_positions", FIELD_INTEGER, AT(context), false},                                        \
        {"vocab_size", FIELD_INTEGER, AT(vocabulary), true},                                       \
        {"layer_norm_epsilon", FIELD_NUMBER, AT(norm_eps), false},                                 \
        {"scale_attn_weights", FIELD_SPECIAL, 0, false},                                           \
        {"scale_attn_by_inverse_layer_idx", FIELD_FALSE, 0, false},                                \
        {"resid_pdrop", FIELD_NUMBER, AT(dropout), false},                                         \
        {"attn_pdrop", FIELD_NUMBER, AT(attention_dropout), false},                                \
        {"embd_pdrop", FIELD_ANY, 0, false}, {"tie_word_embeddings", FIELD_BOOL, AT(tied), false}, \
    {                                                                                              \
        "is_decoder", FIELD_ANY, 0, false                                                          \
    }

static const plsh_field jais_fields[] = {
    GPT2_FIELDS,
    {"activation_function", FIELD_SPECIAL, 0, false},
    {"position_embedding_type", FIELD_SPECIAL, 0, false},
    {"embeddings_scale", FIELD_NUMBER, AT(embedding_scale), false},
    {"mup_embeddings_scale", FIELD_NUMBER, AT(embedding_scale), false},
    {"width_scale", FIELD_SPECIAL, 0, false},
    {"mup_width_scale", FIELD_SPECIAL, 0, false},
    {"mup_output_alpha", FIELD_SPECIAL, 0, false},
    {"scale_qk_dot_by_d", FIELD_SPECIAL, 0, false},
    {"mup_scale_qk_dot_by_d", FIELD_SPECIAL, 0, false},
    {"alibi_scaling", FIELD_SPECIAL, 0, false}};

/* "width_scale" of Jais-13B, or the product of two numbers of the others. */
static plsh_status read_logit_scale(const json_t *root, const char *what, plsh_model_config *config,
                                    plsh_error *error) {
    const bool old = json_object_get(root, "width_scale") != NULL;
    double width = 1.0, alpha = 1.0, whole = 1.0;
    plsh_status status = plsh_weights_json_number(root, "mup_width_scale", what, &width, error);
    if (!status) status = plsh_weights_json_number(root, "mup_output_alpha", what, &alpha, error);
    if (!status) status = plsh_weights_json_number(root, "width_scale", what, &whole, error);
    if (!status && old && width * alpha != 1.0 && width * alpha != whole)
        return plsh_config_refuse(
            what, "width_scale", "and mup_output_alpha * mup_width_scale are one thing, and differ",
            error);
    config->logit_scale = old ? whole : width * alpha;
    return status;
}

/* Scores are divided by d, by sqrt(d), or not. */
static plsh_status read_score_scale(const json_t *root, const char *what, plsh_model_config *config,
                                    plsh_error *error) {
    bool by_d = false, scaled = true;
    plsh_status status =
        plsh_config_same(root, "scale_qk_dot_by_d", root, "mup_scale_qk_dot_by_d", what, error);
    if (!status) status = plsh_weights_json_bool(root, "scale_qk_dot_by_d", what, &by_d, error);
    if (!status) status = plsh_weights_json_bool(root, "mup_scale_qk_dot_by_d", what, &by_d, error);
    if (!status) status = plsh_weights_json_bool(root, "scale_attn_weights", what, &scaled, error);
    if (!scaled)
        config->scale = 1.0;
    else if (by_d)
        config->scale = (double)config->heads / (double)config->hidden;
    return status;
}

/* {"type": "linear", "factor": f}, or {"type": "linear", "train_seq_len": n}. */
static plsh_status read_alibi_scaling(const json_t *root, const char *what,
                                      plsh_model_config *config, plsh_error *error) {
    static const plsh_field fields[] = {{"type", FIELD_SPECIAL, 0, true},
                                        {"factor", FIELD_NUMBER, AT(alibi_factor), false},
                                        {"train_seq_len", FIELD_INTEGER, AT(alibi_length), false}};
    const json_t *object = json_object_get(root, "alibi_scaling");
    if (!object || json_is_null(object)) return PLSH_STATUS_OK;
    if (!json_is_object(object))
        return plsh_config_refuse(what, "alibi_scaling", "must be an object", error);
    plsh_status status = plsh_config_fields(object, FIELDS(fields), what, config, error);
    if (!status) status = plsh_config_text(object, "type", what, "linear", NULL, error);
    const json_t *factor = json_object_get(object, "factor");
    if (!status && (factor && !json_is_null(factor)) == (config->alibi_length > 0))
        status = plsh_config_refuse(what, "alibi_scaling",
                                    "must have either a factor or a train_seq_len", error);
    return status;
}

/* With any activation but swiglu the MLP has no gate, as in GPT-2. */
static plsh_status read_jais_mlp(const json_t *root, const char *what, plsh_model_config *config,
                                 plsh_error *error) {
    static const plsh_field plain[] = {
        {"activation_function", FIELD_ACTIVATION, AT(activation), false}};
    const char *name = "gelu_new";
    plsh_status status = plsh_weights_json_string(root, "activation_function", what, &name, error);
    if (status || strcmp(name, "swiglu") == 0) return status;
    config->mlp = PLSH_MLP_PLAIN;
    config->activation = PLSH_ACTIVATION_GELU_TANH;
    return plsh_config_field(root, plain, what, config, error);
}

static plsh_status read_jais(const json_t *root, const char *what, plsh_model_config *config,
                             plsh_error *error) {
    const char *position = "learned";
    plsh_status status =
        plsh_weights_json_string(root, "position_embedding_type", what, &position, error);
    if (!status && strcmp(position, "alibi") != 0)
        status = plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                           "%s: \"position_embedding_type\" is \"%.40s\"; \"alibi\" is supported",
                           what, position);
    if (!status) status = read_jais_mlp(root, what, config, error);
    if (!status) status = read_logit_scale(root, what, config, error);
    if (!status) status = read_score_scale(root, what, config, error);
    return status ? status : read_alibi_scaling(root, what, config, error);
}

/* ---- Refact ---------------------------------------------------------------------------------- */

static const plsh_field refact_fields[] = {
    GPT2_FIELDS,
    {"activation_function", FIELD_ANY, 0, false}, /* ignored: it is always SwiGLU */
    {"multi_query", FIELD_TRUE, 0, false},
    {"inference_runner", FIELD_ANY, 0, false},
    {"max_batch_size", FIELD_ANY, 0, false},
    {"max_sequence_length", FIELD_ANY, 0, false},
    {"pre_allocate_kv_cache", FIELD_ANY, 0, false},
    {"validate_runner_input", FIELD_ANY, 0, false}};

/* The width is 2/3 of the usual one, rounded up to 256; weights show it (config.c). */
static plsh_status read_refact(const json_t *root, const char *what, plsh_model_config *config,
                               plsh_error *error) {
    enum { STEP = 256 };
    const int64_t usual = config->intermediate ? config->intermediate : 4 * config->hidden;
    config->intermediate = (2 * usual / 3 + STEP - 1) / STEP * STEP;
    config->kv_heads = 1;
    bool scaled = true;
    plsh_status status = plsh_weights_json_bool(root, "scale_attn_weights", what, &scaled, error);
    if (!scaled) config->scale = 1.0;
    return status;
}

/* ---- Readers --------------------------------------------------------------------------------- */

static const plsh_config_reader readers[] = {
    {"baichuan",
     "baichuan-13b",
     FIELDS(baichuan_fields),
     {.norm_eps = 1e-6, .context = 4096},
     read_baichuan},
    {"jais",
     NULL,
     FIELDS(jais_fields),
     {.norm_eps = 1e-5, .tied = true, .attention_bias = true, .mlp_bias = true, .context = 1024},
     read_jais},
    {"btlm",
     NULL,
     FIELDS(jais_fields),
     {.norm_eps = 1e-5, .tied = true, .attention_bias = true, .mlp_bias = true, .context = 1024},
     read_jais},
    {"gpt_refact", NULL, FIELDS(refact_fields), {.norm_eps = 1e-5, .context = 1024}, read_refact}};

const plsh_config_reader *plsh_config_find_remote(const char *model_type) {
    for (size_t i = 0; i < sizeof(readers) / sizeof(*readers); i++) {
        if (strcmp(readers[i].model_type, model_type) == 0) return &readers[i];
    }
    return NULL;
}
