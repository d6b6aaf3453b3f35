/* model: configurations: what is read, and what is refused by its name. */
#include <stdio.h>
#include <string.h>

#include "model/config.h"
#include "plsh/lm.h"
#include "support/support.h"
#include "support/tiny_model.h"

static plsh_status read_config(const char *text, plsh_model_config *config, plsh_error *error) {
    return plsh_model_config_json(text, strlen(text), "config.json", config, error);
}

#define LLAMA                                                                                      \
    "\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, "                   \
    "\"num_attention_heads\": 4, \"vocab_size\": 64"
#define BLOOM                                                                                      \
    "\"model_type\": \"bloom\", \"n_embed\": 64, \"n_layer\": 2, \"n_head\": 4, \"vocab_size\": 9"
#define FALCON                                                                                     \
    "\"model_type\": \"falcon\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "                  \
    "\"num_attention_heads\": 4, \"vocab_size\": 9, \"alibi\": true"
#define BERT                                                                                       \
    "\"model_type\": \"bert\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "                    \
    "\"num_attention_heads\": 4, \"vocab_size\": 9, \"intermediate_size\": 128"

#define SIZES                                                                                      \
    "\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "                  \
    "\"vocab_size\": 9, \"intermediate_size\": 128"

/* MosaicBERT and DNABERT-2 are known without a model_type, by either of two signs. */
static void test_mosaic(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{" SIZES ", \"alibi_starting_size\": 512, \"position_embedding_type\": \"absolute\"}",
        "{" SIZES ", \"auto_map\": {\"AutoModel\": \"bert_layers.BertModel\"}}",
        "{" BERT ", \"alibi_starting_size\": 512, \"hidden_act\": \"relu\"}"};
    plsh_error error;
    plsh_model_config c;
    for (int i = 0; i < 3; i++) {
        assert_ok(read_config(texts[i], &c, &error));
        assert_string_equal(c.family->name, "MosaicBERT");
        assert_true(c.activation == PLSH_ACTIVATION_GELU && c.tied);
        assert_int_equal(c.head_activation, i < 2 ? PLSH_ACTIVATION_GELU : PLSH_ACTIVATION_RELU);
    }
    assert_ok(read_config("{" BERT "}", &c, &error));
    assert_string_equal(c.family->name, "BERT");
    assert_fails(read_config("{" SIZES "}", &c, &error), PLSH_STATUS_UNSUPPORTED, "missing");
}

/* Both versions of the way RoPE is written, and their scalings. */
static void test_rope(void **state) {
    (void)state;
    plsh_error error;
    plsh_model_config c;
    assert_ok(
        read_config("{\"model_type\": \"llama\", " LLAMA ", \"rope_theta\": 5e5}", &c, &error));
    assert_true(c.rope.theta == 5e5 && c.rope.scaling == PLSH_ROPE_DEFAULT);
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.head_dim, 8);
    assert_ok(read_config("{\"model_type\": \"llama\", " LLAMA
                          ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}}",
                          &c, &error));
    assert_true(c.rope.scaling == PLSH_ROPE_LINEAR && c.rope.factor == 4.0);
    assert_ok(read_config(
        "{\"model_type\": \"llama\", " LLAMA
        ", \"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 500000.0, \"factor\": "
        "8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
        "\"original_max_position_embeddings\": 8192}}",
        &c, &error));
    assert_true(c.rope.scaling == PLSH_ROPE_LLAMA3 && c.rope.theta == 5e5);
    assert_int_equal(c.rope.original_context, 8192);
    assert_fails(read_config("{\"model_type\": \"llama\", " LLAMA
                             ", \"rope_scaling\": {\"type\": \"longrope\", \"factor\": 4.0}}",
                             &c, &error),
                 PLSH_STATUS_UNSUPPORTED, "default, linear, llama3, yarn or dynamic");
}

/* MPT of transformers reads one dropout, that of attention, for all places. */
static void test_dropout(void **state) {
    (void)state;
    plsh_error error;
    plsh_model_config c;
    assert_ok(
        read_config("{\"model_type\": \"mpt\", \"d_model\": 64, \"n_heads\": 4, \"n_layers\": 2, "
                    "\"vocab_size\": 9, \"resid_pdrop\": 0.5, \"emb_pdrop\": 0.5, "
                    "\"attn_config\": {\"attn_pdrop\": 0.25}}",
                    &c, &error));
    assert_true(c.dropout == 0.25 && c.attention_dropout == 0.25);
    assert_ok(read_config("{" FALCON ", \"hidden_dropout\": 0.5, \"attention_dropout\": 0.25}", &c,
                          &error));
    assert_true(c.dropout == 0.5 && c.attention_dropout == 0.25);
}

static void test_windows(void **state) {
    (void)state;
    plsh_error error;
    plsh_model_config c;
    assert_ok(read_config("{\"model_type\": \"mistral\", " LLAMA
                          ", \"num_key_value_heads\": 2, \"sliding_window\": 7}",
                          &c, &error));
    assert_int_equal(c.sliding_window, 7);
    assert_ok(read_config("{\"model_type\": \"mistral\", " LLAMA
                          ", \"num_key_value_heads\": 2, \"sliding_window\": null}",
                          &c, &error));
    assert_int_equal(c.sliding_window, 0);
    assert_ok(read_config("{\"model_type\": \"qwen3\", " LLAMA
                          ", \"num_key_value_heads\": 2, \"head_dim\": 8, \"sliding_window\": 7, "
                          "\"use_sliding_window\": true, \"max_window_layers\": 1}",
                          &c, &error));
    assert_int_equal(c.sliding_window, 7);
    assert_int_equal(c.sliding_from, 1);
    assert_ok(read_config("{\"model_type\": \"qwen3\", " LLAMA
                          ", \"num_key_value_heads\": 2, \"head_dim\": 8, \"sliding_window\": 7, "
                          "\"use_sliding_window\": true}",
                          &c, &error));
    assert_int_equal(c.sliding_from, 28);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[1]", "model_type"},
        {"{\"model_type\": \"gpt2\"}", "gpt2"},
        {"{\"model_type\": \"llama\"}", "\"hidden_size\" is missing"},
        {"{\"model_type\": \"llama\", " LLAMA ", \"attn_logit_softcapping\": 5}",
         "attn_logit_softcapping"},
        {"{\"model_type\": \"llama\", " LLAMA ", \"hidden_act\": \"mish\"}", "mish"},
        {"{\"model_type\": \"llama\", " LLAMA ", \"num_key_value_heads\": 3}", "4 heads over 3"},
        {"{\"model_type\": \"llama\", " LLAMA ", \"quantization_config\": {\"bits\": 4}}",
         "quantization_config"},
        {"{" BLOOM ", \"apply_residual_connection_post_layernorm\": true}",
         "apply_residual_connection_post_layernorm"},
        {"{" FALCON ", \"new_decoder_architecture\": true}", "new_decoder_architecture"},
        {"{\"model_type\": \"falcon\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "
         "\"num_attention_heads\": 4, \"vocab_size\": 9}",
         "\"alibi\" must be true"},
        {"{" BERT ", \"position_embedding_type\": \"relative_key\"}", "position_embedding_type"},
        {"{" BERT ", \"is_decoder\": true}", "is_decoder"},
        {"{\"model_type\": \"mpt\", \"d_model\": 64, \"n_heads\": 4, \"n_layers\": 2, "
         "\"vocab_size\": 9, \"attn_config\": {\"alibi\": false}}",
         "\"alibi\" must be true"},
        {"{\"model_type\": \"mpt\", \"d_model\": 64, \"n_heads\": 4, \"n_layers\": 2, "
         "\"vocab_size\": 9, \"attn_config\": {\"clip_qkv\": -6}}",
         "clip_qkv"},
        {"{\"model_type\": \"mpt\", \"d_model\": 64, \"n_heads\": 4, \"n_layers\": 2, "
         "\"vocab_size\": 9, \"attn_config\": {\"kv_n_heads\": 2}}",
         "kv_n_heads"},
        {"{\"model_type\": \"mpt\", \"d_model\": 64, \"n_heads\": 4, \"n_layers\": 2, "
         "\"vocab_size\": 9, \"attn_config\": {\"rope\": true}}",
         "rope"},
        {"{\"model_type\": \"llama\", \"hidden_size\": -4}", "-4"},
        {"{\"model_type\": \"llama\", \"hidden_size\": \"x\"}", "whole number"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        plsh_model_config c;
        plsh_error error = {0};
        if (!read_config(cases[i].text, &c, &error)) fail_msg("taken: %s", cases[i].text);
        test_message_holds(error.message, cases[i].says);
    }
}

static void test_conventions(void **state) {
    (void)state;
    plsh_error error;
    plsh_model_config c;
    assert_ok(
        read_config("{" FALCON ", \"multi_query\": false, \"parallel_attn\": false}", &c, &error));
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.family->position, PLSH_POSITION_ALIBI_SCALED);
    assert_ok(read_config("{" FALCON "}", &c, &error)); /* what transformers takes it for */
    assert_int_equal(c.kv_heads, 1);
    assert_true(c.parallel);
    assert_ok(read_config("{" BERT "}", &c, &error));
    assert_string_equal(c.family->name, "BERT");
    assert_ok(read_config("{" BERT ", \"position_embedding_type\": \"alibi\", "
                          "\"feed_forward_type\": \"geglu\"}",
                          &c, &error));
    assert_string_equal(c.family->name, "JinaBERT");
    assert_ok(read_config("{" BERT ", \"position_embedding_type\": \"alibi\", "
                          "\"feed_forward_type\": \"original\"}",
                          &c, &error));
    assert_int_equal(c.family->mlp, PLSH_MLP_PLAIN);
}

/* A tensor too many, one too few, one of another shape. */
static void test_tensors(void **state) {
    (void)state;
    tiny_tensor tensors[16];
    plsh_model *model;
    plsh_error error;
    memcpy(tensors, tiny_llama_tensors, tiny_llama_count * sizeof(*tensors));
    const char *folder = tiny_model_write(tiny_llama_config, tensors, tiny_llama_count - 1, 2);
    assert_fails(plsh_model_open(&model, folder, NULL, &error), PLSH_STATUS_FORMAT,
                 "model.layers.0.mlp.down_proj.weight is missing");
    assert_null(model);
    tiny_model_remove(folder);
    tensors[tiny_llama_count] = (tiny_tensor){"model.layers.0.self_attn.sinks", 0, 4};
    folder = tiny_model_write(tiny_llama_config, tensors, tiny_llama_count + 1, 2);
    assert_fails(plsh_model_open(&model, folder, NULL, &error), PLSH_STATUS_UNSUPPORTED, "sinks");
    tiny_model_remove(folder);
    tensors[4].rows = 31;
    folder = tiny_model_write(tiny_llama_config, tensors, tiny_llama_count, 2);
    assert_fails(plsh_model_open(&model, folder, NULL, &error), PLSH_STATUS_FORMAT, "[31, 32]");
    tiny_model_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mosaic),  cmocka_unit_test(test_rope),
        cmocka_unit_test(test_dropout), cmocka_unit_test(test_windows),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_conventions),
        cmocka_unit_test(test_tensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
