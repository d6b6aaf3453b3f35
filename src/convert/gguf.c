/* convert: the metadata of a GGUF. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "convert/convert.h"
#include "model/config_rope.h"
#include "model/modules.h"

/* Writes <architecture>.<key>; the first failure ends it. */
typedef struct gguf_writer {
    plsh_weights_writer *writer;
    const char *architecture;
    plsh_status status;
    plsh_error *error;
} gguf_writer;

static void put_integer(gguf_writer *w, const char *key, int64_t value) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", w->architecture, key);
    if (!w->status)
        w->status = plsh_weights_writer_value(w->writer, name, PLSH_METADATA_U32,
                                              &(uint32_t){(uint32_t)value}, w->error);
}

static void put_number(gguf_writer *w, const char *key, double value) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", w->architecture, key);
    if (!w->status)
        w->status = plsh_weights_writer_value(w->writer, name, PLSH_METADATA_F32,
                                              &(float){(float)value}, w->error);
}

static void put_bool(gguf_writer *w, const char *key, bool value) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", w->architecture, key);
    if (!w->status)
        w->status = plsh_weights_writer_value(w->writer, name, PLSH_METADATA_BOOL,
                                              &(uint8_t){value}, w->error);
}

static void put_string(gguf_writer *w, const char *key, const char *value) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", w->architecture, key);
    if (!w->status)
        w->status = plsh_weights_writer_string(w->writer, name, value, strlen(value), w->error);
}

/* The last part of a path. */
static const char *name_of(const char *folder, size_t *length) {
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && folder[begin - 1] != '/') begin--;
    *length = end - begin;
    return folder + begin;
}

plsh_status plsh_convert_type_metadata(plsh_weights_writer *writer, plsh_weight_type type,
                                       plsh_error *error) {
    static const uint32_t file_types[] = {
        [PLSH_WEIGHT_F32] = 0,  [PLSH_WEIGHT_F16] = 1,   [PLSH_WEIGHT_BF16] = 32,
        [PLSH_WEIGHT_Q8_0] = 7, [PLSH_WEIGHT_Q4_0] = 2,  [PLSH_WEIGHT_Q4_1] = 3,
        [PLSH_WEIGHT_Q5_0] = 8, [PLSH_WEIGHT_Q4_K] = 14, [PLSH_WEIGHT_Q6_K] = 18};
    plsh_status status = plsh_weights_writer_value(writer, "general.file_type", PLSH_METADATA_U32,
                                                   &file_types[type], error);
    if (status || type <= PLSH_WEIGHT_BF16) return status;
    return plsh_weights_writer_value(writer, "general.quantization_version", PLSH_METADATA_U32,
                                     &(uint32_t){2}, error);
}

static void put_scaling(gguf_writer *w, const plsh_rope_config *rope) {
    const bool yarn = rope->scaling == PLSH_ROPE_YARN;
    if (rope->scaling != PLSH_ROPE_LINEAR && !yarn) return;
    put_string(w, "rope.scaling.type", yarn ? "yarn" : "linear");
    put_number(w, "rope.scaling.factor", rope->factor);
    if (!yarn) return;
    put_integer(w, "rope.scaling.original_context_length", rope->original_context);
    put_number(w, "rope.scaling.yarn_beta_fast", rope->beta_fast);
    put_number(w, "rope.scaling.yarn_beta_slow", rope->beta_slow);
    put_number(w, "rope.scaling.attn_factor",
               rope->attention / plsh_rope_yarn_attention(rope->factor, 1.0));
}

static bool is_type(const plsh_model_config *config, const char *architecture) {
    return strcmp(config->family->architecture, architecture) == 0;
}

/* Scales. Those of Jais are in its weights, except that of scores, which is 1 / head_dim without a
 * key. llama.cpp reads only the clamp. */
static void put_scales(gguf_writer *w, const plsh_model_config *config) {
    const bool jais = is_type(config, "jais");
    const double usual = jais ? 1.0 / (double)config->head_dim : 0.0;
    const double scale = config->scale != 0.0 ? config->scale
                         : jais               ? 1.0 / sqrt((double)config->head_dim)
                                              : 0.0;
    if (config->clip > 0.0) put_number(w, "attention.clamp_kqv", config->clip);
    if ((jais || is_type(config, "mpt")) && fabs(scale - usual) > 1e-9)
        put_number(w, "attention.scale", scale);
    if (!jais && config->logit_scale != 1.0) put_number(w, "logit_scale", config->logit_scale);
}

static void put_positions(gguf_writer *w, const plsh_model_config *config) {
    const plsh_family *family = config->family;
    if (config->sliding_window && config->sliding_from == 0)
        put_integer(w, "attention.sliding_window", config->sliding_window);
    /* BLOOM, JinaBERT and Refact always have the standard slopes; the others have a key for them.
     * llama.cpp decides by the number of layers whether a Baichuan has ALiBi. */
    const bool baichuan = is_type(config, "baichuan");
    const bool alibi = family->position == PLSH_POSITION_ALIBI;
    if (baichuan) put_string(w, "tensor_data_layout", "Meta AI original pth");
    if (baichuan || is_type(config, "mpt") || is_type(config, "jais"))
        put_number(w, "attention.max_alibi_bias", alibi ? config->alibi_max : 0.0);
    if (baichuan || family->position == PLSH_POSITION_ROPE)
        put_integer(w, "rope.dimension_count", config->head_dim);
    if (family->position != PLSH_POSITION_ROPE) return;
    put_number(w, "rope.freq_base", config->rope.theta);
    put_scaling(w, &config->rope);
}

enum { UNKNOWN_CONTEXT = 2048 }; /* BLOOM has no such field; llama.cpp requires the key */

/* Refuses fields of a configuration for which a GGUF has no key. */
static plsh_status check_keys(const plsh_model_config *config, const char *folder,
                              plsh_error *error) {
    const char *what = NULL;
    if (config->sliding_window && config->sliding_from != 0)
        what = "sliding_window from a later layer on";
    if (config->activation != config->family->activation) what = "another activation";
    if (config->rope.scaling == PLSH_ROPE_DYNAMIC) what = "RoPE scaling of type dynamic";
    if (config->rope.scaling == PLSH_ROPE_YARN && !config->rope.rounded)
        what = "\"truncate\": false of yarn";
    if (config->scale != 0.0 && !is_type(config, "mpt") && !is_type(config, "jais"))
        what = "a scale of scores";
    if (config->alibi_factor != 1.0 || config->alibi_length > 0) what = "alibi_scaling";
    if (config->mlp == PLSH_MLP_GATED && is_type(config, "mpt")) what = "a gated MLP";
    if (config->mlp == PLSH_MLP_PLAIN && is_type(config, "jais")) what = "an MLP without a gate";
    if (!what) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_UNSUPPORTED, "%s: %s has no place in a GGUF of %s", folder,
                     what, config->family->name);
}

plsh_status plsh_convert_model_metadata(plsh_weights_writer *writer,
                                        const plsh_model_config *config, const char *folder,
                                        plsh_pooling pooling, plsh_weight_type type,
                                        plsh_error *error) {
    gguf_writer w = {writer, "general", PLSH_STATUS_OK, error};
    const char *architecture = config->family->architecture;
    size_t length;
    const char *name = name_of(folder, &length);
    put_string(&w, "architecture", architecture);
    if (!w.status)
        w.status = plsh_weights_writer_string(writer, "general.name", name, length, error);
    if (!w.status) w.status = plsh_convert_type_metadata(writer, type, error);
    w.architecture = architecture;
    put_integer(&w, "block_count", config->layers);
    put_integer(&w, "context_length", config->context ? config->context : UNKNOWN_CONTEXT);
    put_integer(&w, "embedding_length", config->hidden);
    put_integer(&w, "feed_forward_length", config->intermediate);
    put_integer(&w, "attention.head_count", config->heads);
    put_integer(&w, "attention.head_count_kv", config->kv_heads);
    put_integer(&w, "attention.key_length", config->head_dim);
    put_integer(&w, "attention.value_length", config->head_dim);
    /* Refact has LayerNorm; llama.cpp asks for the other key. */
    const bool rms = config->norm == PLSH_NORM_RMS || is_type(config, "refact");
    put_number(&w, rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
               config->norm_eps);
    put_integer(&w, "vocab_size", config->vocabulary);
    put_positions(&w, config);
    put_scales(&w, config);
    if (!config->family->causal) put_bool(&w, "attention.causal", false);
    if (pooling != PLSH_POOLING_COUNT)
        put_integer(&w, "pooling_type", plsh_pooling_gguf_type(pooling));
    w.architecture = "tokenizer.ggml";
    if (config->types) put_integer(&w, "token_type_count", config->types);
    return w.status ? w.status : check_keys(config, folder, error);
}
