/* model: configurations from the metadata of a GGUF. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "model/config_causal.h"
#include "model/config_rope.h"

/* Reads <architecture>.<key>; the first failure ends it. */
typedef struct gguf_reader {
    const plsh_weights *weights;
    const char *architecture;
    plsh_status status;
    plsh_error *error;
} gguf_reader;

static const char *full_key(const gguf_reader *r, const char *key, char out[128]) {
    snprintf(out, 128, "%s.%s", r->architecture, key);
    return out;
}

/* The limit of the fields of config.json, so that a model that is converted into a folder can be
 * opened again. */
static void read_integer(gguf_reader *r, const char *key, int64_t *out) {
    char name[128];
    if (r->status) return;
    r->status = plsh_metadata_integer(r->weights, full_key(r, key, name), 1, INT64_C(1) << 30, out,
                                      r->error);
}

static void read_number(gguf_reader *r, const char *key, double *out) {
    char name[128];
    if (r->status) return;
    r->status = plsh_metadata_number(r->weights, full_key(r, key, name), out, r->error);
}

/* Checks a key that must be absent or have this value. */
static void expect_number(gguf_reader *r, const char *key, double right) {
    char name[128];
    double value = right;
    read_number(r, key, &value);
    if (r->status || value == right) return;
    r->status = plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED, "%s: %s is %g; %g is supported",
                          plsh_weights_path(r->weights), full_key(r, key, name), value, right);
}

static bool string_is(plsh_string string, const char *text) {
    return string.length == strlen(text) && memcmp(string.bytes, text, string.length) == 0;
}

/* The factor of cosines and sines is attn_factor (1 + 0.1 ln(factor)) as in llama.cpp, divided by 1
 * + 0.1 m ln(factor) if the file has the multiplier m of the logarithm. */
static void read_yarn(gguf_reader *r, plsh_model_config *config) {
    plsh_rope_config *rope = &config->rope;
    double multiplier = 0.0;
    rope->scaling = PLSH_ROPE_YARN;
    rope->beta_fast = 32.0;
    rope->beta_slow = rope->attention = 1.0;
    rope->rounded = true;
    rope->original_context = config->context;
    read_number(r, "rope.scaling.yarn_beta_fast", &rope->beta_fast);
    read_number(r, "rope.scaling.yarn_beta_slow", &rope->beta_slow);
    read_number(r, "rope.scaling.attn_factor", &rope->attention);
    read_number(r, "rope.scaling.yarn_log_multiplier", &multiplier);
    read_integer(r, "rope.scaling.original_context_length", &rope->original_context);
    expect_number(r, "rope.scaling.yarn_ext_factor", 1.0);
    rope->attention *= plsh_rope_yarn_attention(rope->factor, 1.0);
    if (multiplier != 0.0) rope->attention /= plsh_rope_yarn_attention(rope->factor, multiplier);
    if (!r->status && !plsh_rope_yarn_is_valid(rope))
        r->status = plsh_fail(r->error, PLSH_STATUS_FORMAT,
                              "%s: %s.rope.scaling.type is yarn, which needs 0 < yarn_beta_slow < "
                              "yarn_beta_fast, a positive attn_factor and a context length",
                              plsh_weights_path(r->weights), r->architecture);
}

/* None, yarn, linear, or the linear one that a factor alone means to llama.cpp. */
static void read_scaling(gguf_reader *r, plsh_model_config *config) {
    plsh_rope_config *rope = &config->rope;
    char name[128];
    double old = 0.0;
    plsh_string scaling = {"", 0};
    read_number(r, "rope.scale_linear", &old);
    if (old > 0.0) rope->factor = old;
    read_number(r, "rope.scaling.factor", &rope->factor);
    if (!r->status) {
        r->status = plsh_metadata_string(r->weights, full_key(r, "rope.scaling.type", name),
                                         &scaling, r->error);
    }
    if (r->status) return;
    if (string_is(scaling, "yarn")) {
        read_yarn(r, config);
        return;
    }
    expect_number(r, "rope.scaling.attn_factor", 1.0);
    if (r->status || string_is(scaling, "none")) return;
    if (string_is(scaling, "linear") || scaling.length == 0) {
        rope->scaling = rope->factor == 1.0 ? PLSH_ROPE_DEFAULT : PLSH_ROPE_LINEAR;
        return;
    }
    r->status =
        plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED, "%s: %s is \"%.*s\"; none, linear or yarn",
                  plsh_weights_path(r->weights), full_key(r, "rope.scaling.type", name),
                  (int)(scaling.length < 40 ? scaling.length : 40), scaling.bytes);
}

static void read_rope(gguf_reader *r, plsh_model_config *config) {
    plsh_rope_config *rope = &config->rope;
    int64_t dimensions = config->head_dim;
    *rope = (plsh_rope_config){.theta = 10000.0, .factor = 1.0};
    read_number(r, "rope.freq_base", &rope->theta);
    read_integer(r, "rope.dimension_count", &dimensions);
    read_scaling(r, config);
    if (r->status) return;
    if (dimensions != config->head_dim || config->head_dim % 2 != 0) {
        r->status = plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED,
                              "%s: RoPE over %lld of %lld dimensions; all of them, an even number",
                              plsh_weights_path(r->weights), (long long)dimensions,
                              (long long)config->head_dim);
    } else if (!(rope->theta > 1.0 && rope->theta < 1e15)) {
        r->status = plsh_fail(r->error, PLSH_STATUS_FORMAT,
                              "%s: %s.rope.freq_base is %g; it has to be above 1 and below 1e15",
                              plsh_weights_path(r->weights), r->architecture, rope->theta);
    } else if (!(rope->factor >= 1.0 && rope->factor < 1e9)) {
        r->status = plsh_fail(r->error, PLSH_STATUS_FORMAT,
                              "%s: %s.rope.scaling.factor is %g; it has to be 1 or more, below 1e9",
                              plsh_weights_path(r->weights), r->architecture, rope->factor);
    }
}

static bool is_arch(const gguf_reader *r, const char *architecture) {
    return strcmp(r->architecture, architecture) == 0;
}

/* MPT without the key max_alibi_bias has no ALiBi. A Baichuan may have RoPE. Files of llama.cpp do
 * not say whether it has; those of plsh convert have the key. Others always have ALiBi. */
static void read_alibi(gguf_reader *r, plsh_model_config *config) {
    char name[128];
    const bool mpt = is_arch(r, "mpt"), baichuan = is_arch(r, "baichuan");
    double most = mpt ? 0.0 : baichuan ? -1.0 : 8.0;
    if (config->family->position != PLSH_POSITION_ALIBI) return;
    read_number(r, "attention.max_alibi_bias", &most);
    if (r->status) return;
    if (baichuan)
        plsh_config_baichuan(config, most < 0.0    ? PLSH_BAICHUAN_UNKNOWN
                                     : most == 0.0 ? PLSH_BAICHUAN_ROPE
                                                   : PLSH_BAICHUAN_ALIBI);
    if (baichuan && most <= 0.0) return;
    if (most >= 1e-3 && most <= 64.0)
        config->alibi_max = most;
    else
        r->status =
            plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED,
                      "%s: %s is %g; 0.001 to 64 are supported: without ALiBi the family "
                      "%s is not",
                      plsh_weights_path(r->weights), full_key(r, "attention.max_alibi_bias", name),
                      most, config->family->name);
}

/* Scales and bounds that MPT and Jais may have. Jais divides scores by the width of a head. */
static void read_scales(gguf_reader *r, plsh_model_config *config) {
    static const char *const keys[] = {"attention.clamp_kqv", "attention.scale", "logit_scale"};
    double *const numbers[] = {&config->clip, &config->scale, &config->logit_scale};
    char name[128];
    if (is_arch(r, "jais")) config->scale = 1.0 / (double)config->head_dim;
    for (int i = 0; i < 3 && (is_arch(r, "mpt") || is_arch(r, "jais")); i++) {
        read_number(r, keys[i], numbers[i]);
        if (r->status || (*numbers[i] >= 0.0 && *numbers[i] < 1e30)) continue;
        r->status =
            plsh_fail(r->error, PLSH_STATUS_FORMAT, "%s: %s is %g; 0 or more, below 1e30",
                      plsh_weights_path(r->weights), full_key(r, keys[i], name), *numbers[i]);
    }
    if (config->logit_scale == 0.0) config->logit_scale = 1.0;
}

/* The epsilon of the family's norm. A file that has only the key of the other norm is refused.
 * Exceptions: MPT has either norm. Refact's norm is a LayerNorm without bias, but llama.cpp takes
 * it for RMSNorm and writes that key: its number is used. */
static void read_eps(gguf_reader *r, plsh_model_config *config) {
    static const char *const keys[] = {"attention.layer_norm_epsilon",
                                       "attention.layer_norm_rms_epsilon"};
    const bool rms = config->norm == PLSH_NORM_RMS;
    char name[128], wrong[128];
    double own = -1.0, other = -1.0;
    read_number(r, keys[rms], &own);
    read_number(r, keys[!rms], &other);
    if (own != -1.0) config->norm_eps = own;
    if (r->status || own != -1.0 || other == -1.0) return;
    if (is_arch(r, "mpt")) config->norm = PLSH_NORM_RMS;
    if (is_arch(r, "mpt") || is_arch(r, "refact")) {
        config->norm_eps = other;
        return;
    }
    r->status = plsh_fail(r->error, PLSH_STATUS_FORMAT, "%s: %s is missing; it has %s",
                          plsh_weights_path(r->weights), full_key(r, keys[rms], name),
                          full_key(r, keys[!rms], wrong));
}

/* A required number, at most as large as given. */
static void need(gguf_reader *r, const char *key, int64_t value, int64_t most) {
    char name[128];
    if (r->status || (value >= 1 && value <= most)) return;
    full_key(r, key, name);
    if (value == 0)
        r->status = plsh_fail(r->error, PLSH_STATUS_FORMAT, "%s: %s is missing",
                              plsh_weights_path(r->weights), name);
    else
        r->status =
            plsh_fail(r->error, PLSH_STATUS_FORMAT, "%s: %s is %lld; 1 to %lld",
                      plsh_weights_path(r->weights), name, (long long)value, (long long)most);
}

static void check_sizes(gguf_reader *r, const plsh_model_config *c) {
    need(r, "block_count", c->layers, 1 << 20);
    need(r, "embedding_length", c->hidden, INT64_C(1) << 30);
    need(r, "feed_forward_length", c->intermediate, INT64_C(1) << 30);
    need(r, "attention.head_count", c->heads, INT64_C(1) << 30);
    if (!r->status && c->vocabulary == 0)
        r->status = plsh_fail(r->error, PLSH_STATUS_FORMAT,
                              "%s: the tensor token_embd.weight is missing, or empty",
                              plsh_weights_path(r->weights));
    if (!r->status && c->head_dim == 0)
        r->status = plsh_fail(
            r->error, PLSH_STATUS_FORMAT,
            "%s: %s.embedding_length is %lld, too small for %lld heads (attention.head_count)",
            plsh_weights_path(r->weights), r->architecture, (long long)c->hidden,
            (long long)c->heads);
    need(r, "attention.key_length", c->head_dim, 512);
    need(r, "attention.head_count_kv", c->kv_heads, INT64_C(1) << 30);
    if (!r->status && c->heads % c->kv_heads != 0)
        r->status = plsh_fail(r->error, PLSH_STATUS_FORMAT,
                              "%s: %s.attention.head_count_kv is %lld, which does not divide "
                              "attention.head_count, %lld",
                              plsh_weights_path(r->weights), r->architecture,
                              (long long)c->kv_heads, (long long)c->heads);
}

static void read_sizes(gguf_reader *r, plsh_model_config *config) {
    const plsh_tensor *tokens = plsh_weights_find(r->weights, "token_embd.weight");
    read_integer(r, "block_count", &config->layers);
    read_integer(r, "embedding_length", &config->hidden);
    read_integer(r, "feed_forward_length", &config->intermediate);
    read_integer(r, "attention.head_count", &config->heads);
    config->kv_heads = config->heads;
    read_integer(r, "attention.head_count_kv", &config->kv_heads);
    config->head_dim = config->heads ? config->hidden / config->heads : 0;
    read_integer(r, "attention.key_length", &config->head_dim);
    read_integer(r, "context_length", &config->context);
    read_integer(r, "attention.sliding_window", &config->sliding_window);
    read_eps(r, config);
    config->vocabulary = tokens ? plsh_tensor_rows(tokens) : 0;
    check_sizes(r, config);
}

/* Finds out from the tensors which biases and token types the model has. */
static void look_at_tensors(const plsh_weights *weights, plsh_model_config *config) {
    const plsh_tensor *norm = plsh_weights_find(weights, "blk.0.attn_q_norm.weight");
    const plsh_tensor *types = plsh_weights_find(weights, "token_types.weight");
    config->types = types ? plsh_tensor_rows(types) : 0;
    config->tied = !plsh_weights_find(weights, "output.weight");
    config->qkv_bias = plsh_weights_find(weights, "blk.0.attn_q.bias") ||
                       plsh_weights_find(weights, "blk.0.attn_qkv.bias");
    config->attention_bias = plsh_weights_find(weights, "blk.0.attn_output.bias") != NULL;
    config->mlp_bias = plsh_weights_find(weights, "blk.0.ffn_down.bias") != NULL;
    if (strcmp(config->family->model_type, "mpt") == 0) {
        const bool whole = norm && plsh_tensor_columns(norm) != config->head_dim;
        config->qk_norm = !norm   ? PLSH_QK_NORM_NONE
                          : whole ? PLSH_QK_NORM_WHOLE
                                  : PLSH_QK_NORM_HEAD;
        config->norm_bias = plsh_weights_find(weights, "blk.0.attn_norm.bias") != NULL;
        /* llama.cpp's converter writes 4 times the hidden size, whatever the ratio is. */
        const plsh_tensor *up = plsh_weights_find(weights, "blk.0.ffn_up.weight");
        if (up && plsh_tensor_rows(up) > 0) config->intermediate = plsh_tensor_rows(up);
    }
    if (strcmp(config->family->model_type, "jais") == 0 &&
        !plsh_weights_find(weights, "blk.0.ffn_gate.weight")) {
        config->mlp = PLSH_MLP_PLAIN;
        config->activation = PLSH_ACTIVATION_GELU_TANH;
    }
}

/* <architecture>.<key>: keys that are read above, keys that must have one value, and keys that do
 * not affect results. */
static const char *const rope_keys[] = {"rope.freq_base",
                                        "rope.dimension_count",
                                        "rope.scale_linear",
                                        "rope.scaling.factor",
                                        "rope.scaling.type",
                                        "rope.scaling.original_context_length",
                                        "rope.scaling.finetuned",
                                        "rope.scaling.attn_factor",
                                        "rope.scaling.yarn_ext_factor",
                                        "rope.scaling.yarn_beta_fast",
                                        "rope.scaling.yarn_beta_slow",
                                        "rope.scaling.yarn_log_multiplier"};
static const char *const known_keys[] = {
    "block_count",       "embedding_length",         "feed_forward_length",
    "context_length",    "attention.head_count",     "attention.head_count_kv",
    "vocab_size",        "attention.key_length",     "attention.value_length",
    "expert_count",      "attention.clamp_kqv",      "attention.max_alibi_bias",
    "expert_used_count", "attention.sliding_window", "attention.causal",
    "pooling_type",      "tensor_data_layout"};

static bool is_among(const char *key, const char *const *keys, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(key, keys[i]) == 0) return true;
    }
    return false;
}

static bool is_known(const char *key, const plsh_family *family) {
    static const char *const scales[] = {"attention.scale", "logit_scale"};
    const bool rope =
        family->position == PLSH_POSITION_ROPE || strcmp(family->architecture, "baichuan") == 0;
    if (strcmp(family->architecture, "mpt") == 0 || strcmp(family->architecture, "jais") == 0)
        if (is_among(key, scales, 2)) return true;
    return is_among(key, known_keys, sizeof known_keys / sizeof *known_keys) ||
           (rope && is_among(key, rope_keys, sizeof rope_keys / sizeof *rope_keys)) ||
           strcmp(key, "attention.layer_norm_epsilon") == 0 ||
           strcmp(key, "attention.layer_norm_rms_epsilon") == 0;
}

/* Keys of llama.cpp that change what a model computes: a beginning that ends in a dot or an
 * underscore stands for all that follows. Keys that are in no list do not affect the results of
 * these families.
 */
static const char *const deciding_keys[] = {"attention.",
                                            "rope.",
                                            "expert_",
                                            "ssm.",
                                            "wkv.",
                                            "time_",
                                            "token_shift_",
                                            "shortconv.",
                                            "altup.",
                                            "activation_",
                                            "logit_scale",
                                            "residual_scale",
                                            "embedding_scale",
                                            "attn_logit_softcapping",
                                            "final_logit_softcapping",
                                            "router_logit_softcapping",
                                            "use_parallel_residual",
                                            "swin_norm",
                                            "rescale_every_n_layers",
                                            "leading_dense_block_count",
                                            "interleave_moe_layer_step",
                                            "full_attention_interval",
                                            "nextn_predict_layers"};

static bool decides(const char *key) {
    for (size_t i = 0; i < sizeof deciding_keys / sizeof *deciding_keys; i++) {
        const char *listed = deciding_keys[i];
        const size_t length = strlen(listed);
        const bool beginning = listed[length - 1] == '.' || listed[length - 1] == '_';
        if (beginning ? strncmp(key, listed, length) == 0 : strcmp(key, listed) == 0) return true;
    }
    return false;
}

/* 0 or false switches such a feature off; a factor of 1 does too. */
static bool is_off(const gguf_reader *r, const char *key) {
    const size_t length = strlen(key);
    const bool factor = length > 6 && strcmp(key + length - 6, "_scale") == 0;
    double number = -1.0;
    bool on = true;
    if (plsh_metadata_number(r->weights, key, &number, NULL) == PLSH_STATUS_OK)
        return number == 0.0 || (factor && number == 1.0);
    return plsh_metadata_bool(r->weights, key, &on, NULL) == PLSH_STATUS_OK && !on;
}

static void check_keys(gguf_reader *r, const plsh_model_config *config) {
    const plsh_family *family = config->family;
    const size_t length = strlen(r->architecture);
    bool causal = family->causal;
    char name[128];
    expect_number(r, "attention.value_length", (double)config->head_dim);
    if (!is_arch(r, "mpt") && !is_arch(r, "jais")) expect_number(r, "attention.clamp_kqv", 0.0);
    if (family->position != PLSH_POSITION_ALIBI) expect_number(r, "attention.max_alibi_bias", 0);
    expect_number(r, "expert_count", 0.0);
    if (!r->status) {
        r->status = plsh_metadata_bool(r->weights, full_key(r, "attention.causal", name), &causal,
                                       r->error);
    }
    if (!r->status && causal != family->causal) {
        r->status = plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED, "%s: %s is %s; %s is supported",
                              plsh_weights_path(r->weights), name, causal ? "true" : "false",
                              causal ? "false" : "true");
    }
    for (size_t i = 0; !r->status && i < plsh_metadata_count(r->weights); i++) {
        const char *key = plsh_metadata_at(r->weights, i)->key;
        if (strncmp(key, r->architecture, length) != 0 || key[length] != '.') continue;
        const char *rest = key + length + 1;
        if (is_known(rest, family) || !decides(rest) || is_off(r, key)) continue;
        r->status = plsh_fail(r->error, PLSH_STATUS_UNSUPPORTED,
                              "%s: %.80s changes what the model computes, and plsh does not have "
                              "it for the family %s",
                              plsh_weights_path(r->weights), key, family->name);
    }
}

plsh_status plsh_model_config_gguf(const plsh_weights *weights, const char *what,
                                   plsh_model_config *config, plsh_error *error) {
    plsh_string name = {"", 0};
    plsh_status status = plsh_metadata_string(weights, "general.architecture", &name, error);
    if (status) return status;
    *config = (plsh_model_config){.gguf = true, .norm_eps = 1e-5};
    for (size_t i = 0; i < plsh_family_count; i++) {
        const char *architecture = plsh_families[i].architecture;
        if (!config->family && architecture && string_is(name, architecture))
            plsh_model_config_family(config, &plsh_families[i]);
    }
    if (!config->family) {
        return plsh_fail(error, PLSH_STATUS_UNSUPPORTED,
                         "%s: general.architecture is \"%.*s\"; llama, qwen2, qwen3, bloom, mpt, "
                         "baichuan, jais, refact, bert or jina-bert-v2",
                         what, (int)(name.length < 40 ? name.length : 40), name.bytes);
    }
    plsh_model_config_tensors(config, weights);
    config->activation = config->family->activation;
    gguf_reader r = {weights, config->family->architecture, PLSH_STATUS_OK, error};
    read_sizes(&r, config);
    if (!r.status) read_alibi(&r, config);
    if (!r.status) read_scales(&r, config);
    if (!r.status && is_arch(&r, "jais") && !plsh_weights_find(weights, "output.weight"))
        r.status = plsh_fail(error, PLSH_STATUS_FORMAT,
                             "%s: the tensor output.weight is missing, and token_embd.weight has "
                             "another scale; convert the folder again, with plsh convert",
                             what);
    check_keys(&r, config);
    const bool rope = config->family->position == PLSH_POSITION_ROPE || is_arch(&r, "baichuan");
    if (rope && !r.status && (config->head_dim % 2 == 0 || !config->rule)) read_rope(&r, config);
    look_at_tensors(weights, config);
    return r.status;
}
