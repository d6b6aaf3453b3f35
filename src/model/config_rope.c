/* model: RoPE and sliding windows of a config.json. */
#include "model/config_rope.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

/* ---- RoPE ------------------------------------------------------------------------------------ */

static plsh_status set_scaling(const char *type, const char *what, plsh_rope_config *rope,
                               plsh_error *error) {
    static const char *const names[] = {[PLSH_ROPE_DEFAULT] = "default",
                                        [PLSH_ROPE_LINEAR] = "linear",
                                        [PLSH_ROPE_LLAMA3] = "llama3",
                                        [PLSH_ROPE_YARN] = "yarn",
                                        [PLSH_ROPE_DYNAMIC] = "dynamic"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(type, names[i]) != 0) continue;
        rope->scaling = (plsh_rope_scaling)i;
        return PLSH_STATUS_OK;
    }
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                     "%s: \"rope_type\" is \"%.40s\"; default, linear, llama3, yarn or dynamic",
                     what, type);
}

double plsh_rope_yarn_attention(double factor, double multiplier) {
    return factor <= 1.0 ? 1.0 : 0.1 * multiplier * log(factor) + 1.0;
}

typedef struct number_field {
    const char *name;
    double *to;
} number_field;

static plsh_status read_numbers(const json_t *object, const char *what, const number_field *fields,
                                size_t count, plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; !status && i < count; i++)
        status = plsh_weights_json_number(object, fields[i].name, what, fields[i].to, error);
    return status;
}

/* The fields of YaRN, with the values that transformers takes where they are absent. */
static plsh_status read_yarn(const json_t *object, const char *what, plsh_rope_config *rope,
                             plsh_error *error) {
    double scale = 0.0, scale_all = 0.0, given = 0.0;
    rope->rounded = true;
    const number_field numbers[] = {{"beta_fast", &rope->beta_fast},
                                    {"beta_slow", &rope->beta_slow},
                                    {"attention_factor", &given},
                                    {"mscale", &scale},
                                    {"mscale_all_dim", &scale_all}};
    plsh_status status = plsh_weights_json_bool(object, "truncate", what, &rope->rounded, error);
    if (!status) status = read_numbers(object, what, FIELDS(numbers), error);
    if (rope->beta_fast == 0.0) rope->beta_fast = 32.0;
    if (rope->beta_slow == 0.0) rope->beta_slow = 1.0;
    const bool both = scale != 0.0 && scale_all != 0.0;
    rope->attention = plsh_rope_yarn_attention(rope->factor, both ? scale : 1.0);
    if (both) rope->attention /= plsh_rope_yarn_attention(rope->factor, scale_all);
    const json_t *own = json_object_get(object, "attention_factor");
    if (own && !json_is_null(own)) rope->attention = given;
    return status;
}

/* Fields of every type of scaling. */
#define ROPE_FIELDS                                                                                \
    {"rope_type", FIELD_SPECIAL, 0, false}, {"type", FIELD_SPECIAL, 0, false},                     \
        {"rope_theta", FIELD_SPECIAL, 0, false}, {"factor", FIELD_SPECIAL, 0, false},              \
        {"original_max_position_embeddings", FIELD_SPECIAL, 0, false}, {                           \
        "partial_rotary_factor", FIELD_SPECIAL, 0, false                                           \
    }

/* "rope_parameters" of version 5, or "rope_scaling" of version 4. */
static plsh_status read_rope_object(const json_t *object, const char *what, plsh_rope_config *rope,
                                    plsh_error *error) {
    static const plsh_field plain[] = {ROPE_FIELDS,
                                       {"low_freq_factor", FIELD_SPECIAL, 0, false},
                                       {"high_freq_factor", FIELD_SPECIAL, 0, false}};
    static const plsh_field yarn[] = {ROPE_FIELDS,
                                      {"beta_fast", FIELD_SPECIAL, 0, false},
                                      {"beta_slow", FIELD_SPECIAL, 0, false},
                                      {"attention_factor", FIELD_SPECIAL, 0, false},
                                      {"mscale", FIELD_SPECIAL, 0, false},
                                      {"mscale_all_dim", FIELD_SPECIAL, 0, false},
                                      {"truncate", FIELD_SPECIAL, 0, false}};
    const char *type = "default";
    double partial = 1.0;
    plsh_status status = plsh_config_same(object, "type", object, "rope_type", what, error);
    if (!status) status = plsh_weights_json_string(object, "type", what, &type, error);
    if (!status) status = plsh_weights_json_string(object, "rope_type", what, &type, error);
    /* Which fields there may be depends on the type. */
    if (!status) status = set_scaling(type, what, rope, error);
    const bool is_yarn = rope->scaling == PLSH_ROPE_YARN;
    if (!status && is_yarn) status = plsh_config_fields(object, FIELDS(yarn), what, NULL, error);
    if (!status && !is_yarn) status = plsh_config_fields(object, FIELDS(plain), what, NULL, error);
    const number_field numbers[] = {{"rope_theta", &rope->theta},
                                    {"factor", &rope->factor},
                                    {"low_freq_factor", &rope->low_frequency},
                                    {"high_freq_factor", &rope->high_frequency},
                                    {"partial_rotary_factor", &partial}};
    if (!status) status = read_numbers(object, what, FIELDS(numbers), error);
    if (!status) {
        status = plsh_weights_json_integer(object, "original_max_position_embeddings", 1,
                                           INT64_C(1) << 40, what, &rope->original_context, error);
    }
    if (!status && is_yarn) status = read_yarn(object, what, rope, error);
    if (status) return status;
    if (partial != 1.0) {
        return plsh_config_refuse(what, "partial_rotary_factor", "is not 1, which is not supported",
                                  error);
    }
    return PLSH_STATUS_OK;
}

static plsh_status check_rope(const plsh_rope_config *rope, int64_t head_dim, const char *what,
                              plsh_error *error) {
    bool scaled = rope->scaling != PLSH_ROPE_DEFAULT, stretched = rope->factor != 0.0;
    if (!(rope->theta > 1.0 && rope->theta < 1e15)) {
        return plsh_config_refuse(what, "rope_theta", "must be above 1", error);
    }
    if (head_dim % 2 != 0)
        return plsh_config_refuse(what, "head_dim", "must be even for RoPE", error);
    if (scaled && !(rope->factor >= 1.0 && rope->factor < 1e9)) {
        return plsh_config_refuse(what, "factor",
                                  "of the RoPE scaling must be given, and 1 or more", error);
    }
    if (!scaled && stretched && rope->factor != 1.0) {
        return plsh_config_refuse(what, "factor", "needs a \"rope_type\" that scales", error);
    }
    if (rope->scaling != PLSH_ROPE_LLAMA3 &&
        (rope->low_frequency != 0.0 || rope->high_frequency != 0.0)) {
        return plsh_config_refuse(what, "low_freq_factor",
                                  "and high_freq_factor are for llama3 only", error);
    }
    if (rope->scaling == PLSH_ROPE_LLAMA3 &&
        !(rope->low_frequency > 0.0 && rope->high_frequency > rope->low_frequency &&
          rope->original_context > 0)) {
        return plsh_config_refuse(what, "rope_scaling",
                                  "of type llama3 needs 0 < low_freq_factor < high_freq_factor and "
                                  "original_max_position_embeddings",
                                  error);
    }
    if (rope->scaling == PLSH_ROPE_YARN && !plsh_rope_yarn_is_valid(rope)) {
        return plsh_config_refuse(what, "rope_scaling",
                                  "of type yarn needs 0 < beta_slow < beta_fast, a positive "
                                  "attention_factor and original_max_position_embeddings",
                                  error);
    }
    if (rope->scaling == PLSH_ROPE_DYNAMIC && (rope->original_context <= 0 || head_dim <= 2)) {
        return plsh_config_refuse(what, "rope_scaling",
                                  "of type dynamic needs max_position_embeddings and a head_dim "
                                  "above 2",
                                  error);
    }
    return PLSH_STATUS_OK;
}

bool plsh_rope_yarn_is_valid(const plsh_rope_config *rope) {
    return rope->beta_slow > 0.0 && rope->beta_fast > rope->beta_slow && rope->beta_fast < 1e9 &&
           rope->attention > 0.0 && rope->attention < 1e6 && rope->original_context > 0;
}

plsh_status plsh_config_rope(const json_t *root, const char *what, plsh_model_config *config,
                             plsh_error *error) {
    plsh_rope_config *rope = &config->rope;
    *rope = (plsh_rope_config){.theta = 10000.0, .original_context = config->context};
    plsh_status status = plsh_weights_json_number(root, "rope_theta", what, &rope->theta, error);
    static const char *const objects[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; !status && i < 2; i++) {
        const json_t *object = json_object_get(root, objects[i]);
        if (!object || json_is_null(object)) continue;
        if (!json_is_object(object))
            return plsh_config_refuse(what, objects[i], "must be an object", error);
        if (plsh_config_same(root, "rope_theta", object, "rope_theta", what, NULL)) {
            return plsh_fail(error, PLSH_STATUS_FORMAT,
                             "%s: \"rope_theta\" beside \"%s\" and in it differ", what, objects[i]);
        }
        status = read_rope_object(object, what, rope, error);
    }
    if (!status) status = plsh_config_same(root, objects[0], root, objects[1], what, error);
    if (status) return status;
    /* transformers: dynamic scaling begins after max_position_embeddings */
    if (rope->scaling == PLSH_ROPE_DYNAMIC) rope->original_context = config->context;
    return check_rope(rope, config->head_dim, what, error);
}

/* ---- Sliding windows ------------------------------------------------------------------------- */

/* Qwen's layer_types: layers 0 .. from - 1 must have full attention, the others the window. */
static plsh_status read_layer_types(const json_t *types, const char *what,
                                    plsh_model_config *config, plsh_error *error) {
    if (!json_is_array(types) || (int64_t)json_array_size(types) != config->layers) {
        return plsh_config_refuse(what, "layer_types", "must be a list with an entry per layer",
                                  error);
    }
    int64_t from = config->layers;
    for (int64_t l = 0; l < config->layers; l++) {
        const char *type = json_string_value(json_array_get(types, (size_t)l));
        bool sliding = type && strcmp(type, "sliding_attention") == 0;
        if (!sliding && !(type && strcmp(type, "full_attention") == 0)) {
            return plsh_config_refuse(what, "layer_types",
                                      "knows full_attention and sliding_attention", error);
        }
        if (sliding && from == config->layers) from = l;
        if (!sliding && from < l) {
            return plsh_config_refuse(what, "layer_types", "must have its sliding layers last",
                                      error);
        }
    }
    config->sliding_from = from;
    return PLSH_STATUS_OK;
}

plsh_status plsh_config_sliding(const json_t *root, const char *what, plsh_model_config *config,
                                plsh_error *error) {
    const char *type = config->family->model_type;
    const bool mistral = strcmp(type, "mistral") == 0, qwen = strncmp(type, "qwen", 4) == 0;
    const json_t *given = json_object_get(root, "sliding_window");
    /* Where they are absent, as transformers has them. */
    int64_t window = given || !(mistral || qwen) ? 0 : 4096, from = qwen ? 28 : 0;
    bool used = mistral;
    if (!mistral && !qwen && !plsh_config_is_false(given)) {
        return plsh_config_refuse(what, "sliding_window", "is not known for Llama", error);
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
        return plsh_config_refuse(what, "use_sliding_window",
                                  "is of Qwen2 and Qwen3; others have a window or none", error);
    }
    config->sliding_window = used ? window : 0;
    config->sliding_from = qwen ? from : 0;
    const json_t *types = json_object_get(root, "layer_types");
    if (!types || json_is_null(types)) return PLSH_STATUS_OK;
    status = read_layer_types(types, what, config, error);
    if (!status && config->sliding_from < config->layers && config->sliding_window == 0) {
        return plsh_config_refuse(what, "layer_types",
                                  "asks for a sliding_window, which is not given", error);
    }
    if (!status && mistral && config->sliding_window > 0 && config->sliding_from > 0) {
        return plsh_config_refuse(what, "layer_types",
                                  "must be sliding_attention with a sliding_window", error);
    }
    return status;
}
