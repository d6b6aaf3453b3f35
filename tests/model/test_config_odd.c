/* model: odd configurations: a field that changes a model is supported or refused by name, never
 * ignored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/config.h"
#include "plsh/lm.h"
#include "support/support.h"

/* Fields that are put behind a whole configuration; a part of the message, or NULL: it is taken. */
typedef struct odd {
    const char *fields, *says;
} odd;

static void check_odd(const char *whole, const odd *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char text[2048];
        plsh_model_config config;
        plsh_error error = {0};
        snprintf(text, sizeof text, "{%s, %s}", whole, cases[i].fields);
        const plsh_status status =
            plsh_model_config_json(text, strlen(text), "config.json", &config, &error);
        if (!cases[i].says && status) fail_msg("%s: %s", cases[i].fields, error.message);
        if (!cases[i].says) continue;
        if (!status) fail_msg("taken: %s", cases[i].fields);
        if (!strstr(error.message, cases[i].says))
            fail_msg("%s: \"%s\" says nothing of %s", cases[i].fields, error.message,
                     cases[i].says);
    }
}

#define CHECK_ODD(whole, cases) check_odd(whole, cases, sizeof(cases) / sizeof *(cases))

#define SIZES                                                                                      \
    "\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, "                   \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, \"vocab_size\": 64"

/* What no family has, or what none minds. */
static const odd of_all[] = {
    {"\"add_cross_attention\": true", "add_cross_attention"},
    {"\"add_cross_attention\": false", NULL},
    {"\"is_encoder_decoder\": true", "is_encoder_decoder"},
    {"\"is_encoder_decoder\": false", NULL},
    {"\"tie_encoder_decoder\": true", "tie_encoder_decoder"},
    {"\"pruned_heads\": {\"0\": [1]}", "pruned_heads"},
    {"\"pruned_heads\": {}", NULL},
    {"\"is_decoder\": false", NULL},
    {"\"quantization_config\": {\"bits\": 4}", "quantization_config"},
    {"\"quantization_config\": null", NULL},
    {"\"final_logit_softcapping\": 30.0", "final_logit_softcapping"},
    {"\"attn_logit_softcapping\": 50.0", "attn_logit_softcapping"},
    {"\"num_experts\": 4", "num_experts"},
    {"\"residual_multiplier\": 0.2", "residual_multiplier"},
    {"\"embedding_multiplier\": 12", "embedding_multiplier"},
    {"\"logits_scaling\": 8", "logits_scaling"},
    {"\"partial_rotary_factor\": 0.5", "partial_rotary_factor"},
    {"\"attention_sink\": 4", "attention_sink"},
    {"\"nonsense\": {\"a\": 1}", "nonsense"},
    {"\"torch_dtype\": \"bfloat16\", \"use_cache\": true, \"id2label\": {\"0\": \"a\"}", NULL},
    {"\"_attn_implementation_autoset\": true, \"attn_implementation\": \"sdpa\"", NULL},
};

static void test_llama(void **state) {
    (void)state;
    static const char whole[] = "\"model_type\": \"llama\", " SIZES;
    static const odd cases[] = {
        {"\"rope_theta\": 1e4, \"rope_parameters\": {\"rope_theta\": 5e5}",
         "\"rope_theta\" beside \"rope_parameters\" and in it differ"},
        {"\"rope_theta\": 500000, \"rope_parameters\": {\"rope_theta\": 5e5}", NULL},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": "
         "{\"rope_type\": \"linear\", \"factor\": 4}",
         "\"rope_scaling\" and \"rope_parameters\""},
        {"\"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"llama3\", \"factor\": 2}",
         "\"type\" and \"rope_type\""},
        {"\"rope_scaling\": {\"type\": \"linear\"}", "\"factor\""},
        {"\"rope_scaling\": {\"rope_type\": \"default\", \"factor\": 2}", "\"factor\""},
        {"\"rope_scaling\": {\"factor\": 2}", "\"factor\""},
        {"\"rope_scaling\": {}", NULL},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.5}", "\"factor\""},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"low_freq_factor\": 1}",
         "low_freq_factor"},
        {"\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}", NULL},
        {"\"rope_scaling\": {\"type\": \"dynamic\"}", "\"factor\""},
        {"\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2, \"beta_fast\": 8}", "beta_fast"},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"attention_factor\": null}", NULL},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"attention_factor\": -1}",
         "a positive attention_factor"},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"beta_fast\": 1}",
         "0 < beta_slow < beta_fast"},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"low_freq_factor\": 1}",
         "low_freq_factor"},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 1e300}", "\"factor\""},
        {"\"rope_scaling\": {\"type\": \"longrope\", \"factor\": 2}", "longrope"},
        {"\"rope_scaling\": {\"rope_type\": \"longrope\", \"long_factor\": [1, 2]}",
         "\"rope_type\" is \"longrope\""},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"attention_factor\": 1.1}",
         "attention_factor"},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"temperature\": 1.1}",
         "temperature"},
        {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
         "\"high_freq_factor\": 1}",
         "low_freq_factor < high_freq_factor"},
        {"\"rope_parameters\": {\"partial_rotary_factor\": 0.5}", "partial_rotary_factor"},
        {"\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e4}}", "full_attention"},
        {"\"rope_scaling\": 4", "rope_scaling"},
        {"\"rope_theta\": -1", "rope_theta"},
        {"\"rope_theta\": \"big\"", "rope_theta"},
        {"\"rope_interleaved\": true", "rope_interleaved"},
        {"\"rope_interleaved\": false, \"is_llama_config\": true", NULL},
        {"\"sliding_window\": 16", "sliding_window"},
        {"\"use_sliding_window\": true", "use_sliding_window"},
        {"\"use_sliding_window\": false, \"max_window_layers\": 21", NULL},
        {"\"layer_types\": [\"full_attention\", \"sliding_attention\"]", "layer_types"},
        {"\"layer_types\": [\"full_attention\", \"full_attention\"]", NULL},
        {"\"layer_types\": [\"full_attention\"]", "layer_types"},
        {"\"hidden_act\": \"quick_gelu\"", "quick_gelu"},
        {"\"hidden_act\": 3", "hidden_act"},
        {"\"rms_norm_eps\": 0", "eps"},
        {"\"n_embd\": 64", "n_embd"},
        {"\"attention_bias\": \"yes\"", "attention_bias"},
        {"\"attention_bias\": true, \"mlp_bias\": true, \"tie_word_embeddings\": true", NULL},
        {"\"qk_layernorm\": true", "qk_layernorm"},
    };
    CHECK_ODD(whole, cases);
    CHECK_ODD(whole, of_all);
}

static void test_mistral_and_qwen(void **state) {
    (void)state;
    static const char mistral[] = "\"model_type\": \"mistral\", " SIZES;
    static const char qwen[] = "\"model_type\": \"qwen3\", " SIZES;
    static const odd of_mistral[] = {
        {"\"sliding_window\": 16, \"use_sliding_window\": false", "use_sliding_window"},
        {"\"sliding_window\": null, \"use_sliding_window\": false", NULL},
        {"\"sliding_window\": 16, \"use_sliding_window\": true", NULL},
        {"\"sliding_window\": 16, \"layer_types\": [\"full_attention\", \"sliding_attention\"]",
         "layer_types"},
        {"\"sliding_window\": 16, \"layer_types\": [\"full_attention\", \"full_attention\"]",
         "layer_types"},
        {"\"sliding_window\": 16, \"layer_types\": [\"sliding_attention\", \"sliding_attention\"]",
         NULL},
        {"\"sliding_window\": null, \"layer_types\": [\"sliding_attention\", "
         "\"sliding_attention\"]",
         "layer_types"},
        {"\"sliding_window\": 0", "sliding_window"},
        {"\"sliding_window\": 1.5", "sliding_window"},
        {"\"llama_4_scaling\": {\"beta\": 0.1}", "llama_4_scaling"},
    };
    static const odd of_qwen[] = {
        {"\"use_sliding_window\": true, \"sliding_window\": 8, \"layer_types\": "
         "[\"sliding_attention\", \"full_attention\"]",
         "layer_types"},
        {"\"use_sliding_window\": false, \"sliding_window\": 8, \"layer_types\": "
         "[\"full_attention\", \"sliding_attention\"]",
         "layer_types"},
        {"\"use_sliding_window\": false, \"sliding_window\": 8, \"max_window_layers\": 1", NULL},
        {"\"layer_types\": [\"linear_attention\", \"full_attention\"]", "layer_types"},
        {"\"decoder_sparse_step\": 1", "decoder_sparse_step"},
        {"\"norm_topk_prob\": true", "norm_topk_prob"},
    };
    CHECK_ODD(mistral, of_all);
    CHECK_ODD(mistral, of_mistral);
    CHECK_ODD(qwen, of_all);
    CHECK_ODD(qwen, of_qwen);
    /* Where Qwen3 asks for a window and does not say how wide, transformers takes 4096. */
    plsh_model_config config;
    plsh_error error;
    static const char asked[] = "{\"model_type\": \"qwen3\", " SIZES
                                ", \"use_sliding_window\": true, \"max_window_layers\": 1}";
    assert_ok(plsh_model_config_json(asked, sizeof asked - 1, "config.json", &config, &error));
    assert_int_equal(config.sliding_window, 4096);
    assert_int_equal(config.sliding_from, 1);
}

static void test_alibi(void **state) {
    (void)state;
    static const char bloom[] = "\"model_type\": \"bloom\", \"n_embed\": 64, \"n_layer\": 2, "
                                "\"n_head\": 4, \"vocab_size\": 9";
    static const char mpt[] = "\"model_type\": \"mpt\", \"d_model\": 64, \"n_heads\": 4, "
                              "\"n_layers\": 2, \"vocab_size\": 9";
    static const char falcon[] = "\"model_type\": \"falcon\", \"hidden_size\": 64, \"n_layer\": 2, "
                                 "\"n_head\": 4, \"vocab_size\": 9, \"alibi\": true";
    static const odd of_bloom[] = {
        {"\"hidden_size\": 128", "\"hidden_size\" and \"n_embed\""},
        {"\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4", NULL},
        {"\"num_hidden_layers\": 3", "\"n_layer\" and \"num_hidden_layers\""},
        {"\"num_attention_heads\": 8", "\"n_head\" and \"num_attention_heads\""},
        {"\"num_attention_heads\": null", NULL},
        {"\"n_inner\": 100", "n_inner"},
        {"\"hidden_act\": \"relu\"", "hidden_act"},
        {"\"num_key_value_heads\": 2", "num_key_value_heads"},
        {"\"head_dim\": 32", "head_dim"},
        {"\"rope_theta\": 1e4", "rope_theta"},
        {"\"offset_alibi\": 100, \"skip_bias_add\": true, \"slow_but_exact\": false", NULL},
    };
    static const odd of_mpt[] = {
        {"\"no_bias\": false", NULL},
        {"\"no_bias\": 3", "no_bias"},
        {"\"logit_scale\": \"inv_sqrt_d_model\"", NULL},
        {"\"logit_scale\": \"half\"", "logit_scale"},
        {"\"logit_scale\": 0", "scale of its logits"},
        {"\"logit_scale\": 1e300", "scale of its logits"},
        {"\"expansion_ratio\": 2", NULL},
        {"\"expansion_ratio\": 2.5", NULL},
        {"\"expansion_ratio\": 0.01", "expansion_ratio"},
        {"\"expansion_ratio\": 1e18", "expansion_ratio"},
        {"\"expansion_ratio\": -4", "expansion_ratio"},
        {"\"norm_type\": \"rmsnorm\"", NULL},
        {"\"norm_type\": \"triton_rmsnorm\"", "triton_rmsnorm"},
        {"\"norm_eps\": 1e-6", NULL},
        {"\"norm_eps\": 1e-6, \"layer_norm_epsilon\": 1e-5", "norm_eps"},
        {"\"head_dim\": 32", NULL},
        {"\"embedding_fraction\": 2", "embedding_fraction"},
        {"\"block_overrides\": {\"order\": []}", "block_overrides"},
        {"\"attn_config\": {\"alibi_bias_max\": 4}", NULL},
        {"\"attn_config\": {\"alibi_bias_max\": 0}", "alibi_bias_max"},
        {"\"attn_config\": {\"alibi_bias_max\": 1e9}", "alibi_bias_max"},
        {"\"attn_config\": {\"attn_type\": \"multiquery_attention\"}", NULL},
        {"\"attn_config\": {\"attn_type\": \"multiquery_attention\", \"kv_n_heads\": 2}",
         "kv_n_heads"},
        {"\"attn_config\": {\"attn_type\": \"grouped_query_attention\"}", "kv_n_heads"},
        {"\"attn_config\": {\"attn_type\": \"grouped_query_attention\", \"kv_n_heads\": 3}",
         "4 heads over 3 kv heads"},
        {"\"attn_config\": {\"attn_type\": \"mla\"}", "attn_type"},
        {"\"attn_config\": {\"qk_ln\": true}", NULL},
        {"\"attn_config\": {\"qk_gn\": true}", NULL},
        {"\"attn_config\": {\"qk_gn\": true, \"qk_ln\": true}", "qk_gn"},
        {"\"attn_config\": {\"fused_qkv\": false}", NULL},
        {"\"attn_config\": {\"clip_qkv\": 6}", NULL},
        {"\"attn_config\": {\"clip_qkv\": -1}", "clip_qkv"},
        {"\"attn_config\": {\"prefix_lm\": true}", "prefix_lm"},
        {"\"attn_config\": {\"attn_uses_sequence_id\": true}", "attn_uses_sequence_id"},
        {"\"attn_config\": {\"sliding_window_size\": 128}", "sliding_window_size"},
        {"\"attn_config\": {\"sliding_window_size\": -1}", NULL},
        {"\"attn_config\": {\"attn_logit_softcapping\": 30}", "attn_logit_softcapping"},
        {"\"attn_config\": {\"attn_temperature_tuning\": {\"attn_scale\": 0.1}}",
         "attn_temperature_tuning"},
        {"\"attn_config\": {\"nope\": true}", "nope"},
        {"\"attn_config\": {\"softmax_scale\": 0.1}", NULL},
        {"\"attn_config\": {\"softmax_scale\": -0.1}", "scale of scores"},
        {"\"attn_config\": [1]", "attn_config"},
        {"\"ffn_config\": {\"ffn_type\": \"mptglu\"}", NULL},
        {"\"ffn_config\": {\"ffn_type\": \"te_ln_mlp\"}", "te_ln_mlp"},
        {"\"ffn_config\": {\"ffn_act_fn\": {\"name\": \"silu\"}, \"ffn_hidden_size\": 100}", NULL},
        {"\"ffn_config\": {\"ffn_act_fn\": {\"name\": \"mish\"}}", "ffn_act_fn"},
        {"\"ffn_config\": {\"moe_num_experts\": 4}", "moe_num_experts"},
        {"\"hidden_size\": 128", "hidden_size"},
    };
    static const odd of_falcon[] = {
        {"\"n_embed\": 128", "\"hidden_size\" and \"n_embed\""},
        {"\"n_embed\": 64", NULL},
        {"\"num_hidden_layers\": 3", "\"num_hidden_layers\" and \"n_layer\""},
        {"\"multi_query\": false, \"num_kv_heads\": 2", "num_kv_heads"},
        {"\"multi_query\": false, \"n_head_kv\": 2", "n_head_kv"},
        {"\"multi_query\": false, \"num_kv_heads\": 4", NULL},
        {"\"multi_query\": true, \"num_kv_heads\": 71", NULL},
        {"\"ff_factor\": 3", "ff_factor"},
        {"\"ff_factor\": 4", NULL},
        {"\"ffn_hidden_size\": 128, \"ff_factor\": 2", NULL},
        {"\"num_ln_in_parallel_attn\": 2", "num_ln_in_parallel_attn"},
        {"\"new_decoder_architecture\": true", "new_decoder_architecture"},
        {"\"apply_residual_connection_post_layernorm\": true",
         "apply_residual_connection_post_layernorm"},
        {"\"activation\": \"gelu_10\"", "gelu_10"},
        {"\"head_dim\": 32", "head_dim"},
    };
    CHECK_ODD(bloom, of_all);
    CHECK_ODD(bloom, of_bloom);
    CHECK_ODD(mpt, of_all);
    CHECK_ODD(mpt, of_mpt);
    CHECK_ODD(falcon, of_all);
    CHECK_ODD(falcon, of_falcon);
}

static void test_bert(void **state) {
    (void)state;
    static const char bert[] = "\"model_type\": \"bert\", \"hidden_size\": 64, "
                               "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
                               "\"vocab_size\": 9, \"intermediate_size\": 128";
    static const odd cases[] = {
        {"\"is_decoder\": true", "is_decoder"},
        {"\"position_embedding_type\": \"relative_key_query\"", "position_embedding_type"},
        {"\"position_embedding_type\": \"rotary\"", "position_embedding_type"},
        {"\"feed_forward_type\": \"geglu\"", "feed_forward_type"},
        {"\"position_embedding_type\": \"alibi\", \"feed_forward_type\": \"swiglu\"",
         "feed_forward_type"},
        {"\"position_embedding_type\": \"alibi\", \"feed_forward_type\": \"reglu\"", NULL},
        {"\"emb_pooler\": \"cls\"", "emb_pooler"},
        {"\"directionality\": \"bidi\", \"pooler_type\": \"first_token_transform\", "
         "\"pooler_fc_size\": 768",
         NULL},
        {"\"directionality\": \"left\"", "directionality"},
        {"\"hidden_act\": \"gelu_10\"", "gelu_10"},
        {"\"type_vocab_size\": 0", "type_vocab_size"},
        {"\"embedding_size\": 32", "embedding_size"},
        {"\"num_key_value_heads\": 2", "num_key_value_heads"},
    };
    CHECK_ODD(bert, of_all);
    CHECK_ODD(bert, cases);
}

/* ---- The metadata of a GGUF ---- */

/* A GGUF of these sizes with one key more, a number or a text. */
static void write_gguf(const char *path, const char *key, double value, const char *text) {
    static const char *const sizes[] = {"block_count", "embedding_length", "feed_forward_length",
                                        "attention.head_count"};
    static const uint32_t values[] = {1, 8, 16, 2};
    static const float zeros[4 * 8];
    const plsh_tensor tokens = {
        .name = "token_embd.weight", .type = PLSH_WEIGHT_F32, .rank = 2, .shape = {4, 8}};
    plsh_weights_writer *w;
    plsh_error error;
    char name[128];
    assert_ok(plsh_weights_writer_create(&w, path, PLSH_WEIGHTS_GGUF, &error));
    assert_ok(plsh_weights_writer_string(w, "general.architecture", "llama", 5, &error));
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "llama.%s", sizes[i]);
        assert_ok(plsh_weights_writer_value(w, name, PLSH_METADATA_U32, &values[i], &error));
    }
    snprintf(name, sizeof name, "llama.%s", key);
    assert_ok(text ? plsh_weights_writer_string(w, name, text, strlen(text), &error)
                   : plsh_weights_writer_value(w, name, PLSH_METADATA_F64, &value, &error));
    assert_ok(plsh_weights_writer_declare(w, &tokens, &error));
    assert_ok(plsh_weights_writer_rows(w, zeros, 4, &error));
    assert_ok(plsh_weights_writer_commit(w, &error));
}

static void test_gguf(void **state) {
    (void)state;
    static const struct {
        const char *key, *text;
        double value;
        bool taken;
        plsh_rope_scaling scaling;
    } cases[] = {
        {"rope.scaling.type", "none", 0, true, PLSH_ROPE_DEFAULT},
        {"rope.scaling.type", "yarn", 0, false, PLSH_ROPE_YARN}, /* without a context length */
        {"rope.scaling.type", "longrope", 0, false, PLSH_ROPE_DEFAULT},
        {"rope.scaling.factor", NULL, 4, true, PLSH_ROPE_LINEAR},
        {"rope.scale_linear", NULL, 4, true, PLSH_ROPE_LINEAR},
        {"rope.scaling.attn_factor", NULL, 1.1, false, PLSH_ROPE_DEFAULT},
        {"rope.freq_base", NULL, 5e5, true, PLSH_ROPE_DEFAULT},
        {"attention.value_length", NULL, 8, false, PLSH_ROPE_DEFAULT},
        {"attention.value_length", NULL, 4, true, PLSH_ROPE_DEFAULT},
        {"attention.max_alibi_bias", NULL, 8, false, PLSH_ROPE_DEFAULT},
        {"attention.clamp_kqv", NULL, 6, false, PLSH_ROPE_DEFAULT},
        {"attention.layer_norm_epsilon", NULL, 1e-5, false, PLSH_ROPE_DEFAULT},
        {"attention.scale", NULL, 0.1, false, PLSH_ROPE_DEFAULT},
        {"expert_count", NULL, 8, false, PLSH_ROPE_DEFAULT},
        {"expert_count", NULL, 0, true, PLSH_ROPE_DEFAULT},
        {"logit_scale", NULL, 0.5, false, PLSH_ROPE_DEFAULT},
        {"residual_scale", NULL, 0.2, false, PLSH_ROPE_DEFAULT},
        {"nonsense", "a", 0, true, PLSH_ROPE_DEFAULT},
    };
    char path[64] = "config-odd-XXXXXX.gguf";
    const int made = mkstemps(path, 5);
    assert_true(made >= 0);
    close(made);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plsh_weights *weights;
        plsh_model_config config;
        plsh_error error = {0};
        write_gguf(path, cases[i].key, cases[i].value, cases[i].text);
        assert_ok(plsh_weights_open(&weights, path, &error));
        plsh_status status = plsh_model_config_gguf(weights, path, &config, &error);
        plsh_weights_close(weights);
        if (cases[i].taken != (status == PLSH_STATUS_OK))
            fail_msg("%s: status %d, \"%s\"", cases[i].key, (int)status, error.message);
        if (!cases[i].taken) test_message_holds(error.message, cases[i].key);
        if (cases[i].taken) assert_int_equal(config.rope.scaling, cases[i].scaling);
    }
    remove(path);
}

/* Families whose code lies beside their weights. */
static void test_remote(void **state) {
    (void)state;
    static const char baichuan[] =
        "\"model_type\": \"baichuan\", \"hidden_size\": 64, \"intermediate_size\": 96, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"vocab_size\": 9";
    static const char jais[] = "\"model_type\": \"jais\", \"n_embd\": 64, \"n_head\": 4, "
                               "\"n_layer\": 2, \"vocab_size\": 9, \"position_embedding_type\": "
                               "\"alibi\", \"activation_function\": \"swiglu\"";
    static const char learned[] = "\"model_type\": \"btlm\", \"n_embd\": 64, \"n_head\": 4, "
                                  "\"n_layer\": 2, \"vocab_size\": 9";
    static const char refact[] = "\"model_type\": \"gpt_refact\", \"n_embd\": 64, \"n_head\": 4, "
                                 "\"n_layer\": 2, \"vocab_size\": 9";
    static const odd of_baichuan[] = {
        {"\"model_max_length\": 4096, \"gradient_checkpointing\": [false]", NULL},
        {"\"tie_word_embeddings\": true", "tie_word_embeddings"},
        {"\"z_loss_weight\": 0.1", "z_loss_weight"},
        {"\"num_key_value_heads\": 2", "num_key_value_heads"},
        {"\"rms_norm_eps\": 0", "eps"},
        {"\"hidden_act\": \"mish\"", "mish"},
    };
    static const odd of_jais[] = {
        {"\"embeddings_scale\": 14.6, \"width_scale\": 0.11, \"scale_qk_dot_by_d\": true", NULL},
        {"\"mup_embeddings_scale\": 14.6, \"embeddings_scale\": 2", "embeddings_scale"},
        {"\"mup_width_scale\": 0.5, \"mup_output_alpha\": 2.2, \"width_scale\": 3", "width_scale"},
        {"\"mup_scale_qk_dot_by_d\": true, \"scale_qk_dot_by_d\": false", "scale_qk_dot_by_d"},
        {"\"mup_embeddings_scale\": 0", "scale of its embeddings"},
        {"\"mup_output_alpha\": -1", "scale of its logits"},
        {"\"scale_attn_by_inverse_layer_idx\": true", "scale_attn_by_inverse_layer_idx"},
        {"\"n_inner\": null", NULL},
        {"\"alibi_scaling\": null", NULL},
        {"\"alibi_scaling\": {\"type\": \"linear\", \"factor\": 2}", NULL},
        {"\"alibi_scaling\": {\"type\": \"linear\", \"factor\": 0.5}", "alibi_scaling"},
        {"\"alibi_scaling\": {\"type\": \"linear\", \"train_seq_len\": 2048}", NULL},
        {"\"alibi_scaling\": {\"type\": \"linear\", \"train_seq_len\": 0}", "train_seq_len"},
        {"\"alibi_scaling\": {\"type\": \"linear\"}", "alibi_scaling"},
        {"\"alibi_scaling\": {\"type\": \"linear\", \"factor\": 2, \"train_seq_len\": 9}",
         "alibi_scaling"},
        {"\"alibi_scaling\": {\"type\": \"dynamic\", \"factor\": 2}", "dynamic"},
        {"\"alibi_scaling\": {\"factor\": 2}", "\"type\" is missing"},
        {"\"alibi_scaling\": 2", "alibi_scaling"},
    };
    static const odd of_learned[] = {
        {"\"activation_function\": \"swiglu\"", "position_embedding_type"},
        {"\"position_embedding_type\": \"learned\"", "learned"},
        {"\"position_embedding_type\": \"alibi\", \"activation_function\": \"gelu\"", NULL},
        {"\"position_embedding_type\": \"alibi\", \"activation_function\": \"geglu\"", "geglu"},
    };
    static const odd of_refact[] = {
        {"\"multi_query\": true, \"attn_pdrop\": 0.1, \"bos_token_id\": -1", NULL},
        {"\"multi_query\": false", "multi_query"},
    };
    CHECK_ODD(baichuan, of_all);
    CHECK_ODD(baichuan, of_baichuan);
    CHECK_ODD(jais, of_all);
    CHECK_ODD(jais, of_jais);
    CHECK_ODD(learned, of_learned);
    CHECK_ODD(refact, of_all);
    CHECK_ODD(refact, of_refact);
}

/* Which of the four Baichuan it is. */
static void test_baichuan(void **state) {
    (void)state;
    static const struct {
        int64_t hidden, vocabulary;
        const char *family, *rule;
    } cases[] = {{5120, 64000, "Baichuan 13B", "ALiBi, because its hidden size is not 4096"},
                 {5120, 125696, "Baichuan2 13B", "normalised head, because its vocabulary"},
                 {4096, 64000, "Baichuan 7B", "RoPE, because its hidden size is 4096"},
                 {4096, 125696, "Baichuan2 7B", "normalised head, because its vocabulary"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        plsh_model_config config;
        plsh_error error;
        snprintf(text, sizeof text,
                 "{\"model_type\": \"baichuan\", \"hidden_size\": %lld, \"intermediate_size\": "
                 "9, \"num_hidden_layers\": 2, \"num_attention_heads\": 32, \"vocab_size\": %lld}",
                 (long long)cases[i].hidden, (long long)cases[i].vocabulary);
        assert_ok(plsh_model_config_json(text, strlen(text), "config.json", &config, &error));
        assert_string_equal(config.family->name, cases[i].family);
        test_message_holds(config.rule, cases[i].rule);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),    cmocka_unit_test(test_mistral_and_qwen),
        cmocka_unit_test(test_alibi),    cmocka_unit_test(test_remote),
        cmocka_unit_test(test_baichuan), cmocka_unit_test(test_bert),
        cmocka_unit_test(test_gguf)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
