/* model: files whose configuration and shapes disagree: what opening a model refuses, a conversion
 * refuses with the same words, and nothing is left of its output. Needs no reference data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plsh/convert.h"
#include "plsh/model.h"
#include "support/support.h"
#include "support/tiny_model.h"

enum { LAYERS = 2, MOST_TENSORS = 24 };

/* A model of two layers, hidden 32, 4 heads, vocabulary 64, that opens. */
typedef struct family {
    const char *name, *config;
    tiny_tensor tensors[MOST_TENSORS];
} family;

#define BERT_ATTENTION                                                                             \
    {"embeddings.word_embeddings.weight", 64, 32}, {"embeddings.LayerNorm.weight", 0, 32},         \
        {"embeddings.LayerNorm.bias", 0, 32}, {"embeddings.token_type_embeddings.weight", 2, 32},  \
        {"encoder.layer.%d.attention.self.query.weight", 32, 32},                                  \
        {"encoder.layer.%d.attention.self.query.bias", 0, 32},                                     \
        {"encoder.layer.%d.attention.self.key.weight", 32, 32},                                    \
        {"encoder.layer.%d.attention.self.key.bias", 0, 32},                                       \
        {"encoder.layer.%d.attention.self.value.weight", 32, 32},                                  \
        {"encoder.layer.%d.attention.self.value.bias", 0, 32},                                     \
        {"encoder.layer.%d.attention.output.dense.weight", 32, 32},                                \
        {"encoder.layer.%d.attention.output.dense.bias", 0, 32},                                   \
        {"encoder.layer.%d.attention.output.LayerNorm.weight", 0, 32}, {                           \
        "encoder.layer.%d.attention.output.LayerNorm.bias", 0, 32                                  \
    }

#define LLAMA_LAYER(q, kv)                                                                         \
    {"model.embed_tokens.weight", 64, 32}, {"model.norm.weight", 0, 32},                           \
        {"model.layers.%d.input_layernorm.weight", 0, 32},                                         \
        {"model.layers.%d.post_attention_layernorm.weight", 0, 32},                                \
        {"model.layers.%d.self_attn.q_proj.weight", q, 32},                                        \
        {"model.layers.%d.self_attn.k_proj.weight", kv, 32},                                       \
        {"model.layers.%d.self_attn.v_proj.weight", kv, 32},                                       \
        {"model.layers.%d.self_attn.o_proj.weight", 32, q},                                        \
        {"model.layers.%d.mlp.gate_proj.weight", 48, 32},                                          \
        {"model.layers.%d.mlp.up_proj.weight", 48, 32}, {                                          \
        "model.layers.%d.mlp.down_proj.weight", 32, 48                                             \
    }

static const family families[] = {
    {"llama",
     "{\"model_type\": \"llama\", \"hidden_size\": 32, \"intermediate_size\": 48, "
     "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
     "\"head_dim\": 8, \"vocab_size\": 64, \"tie_word_embeddings\": true}",
     {LLAMA_LAYER(32, 16)}},
    {"mistral",
     "{\"model_type\": \"mistral\", \"hidden_size\": 32, \"intermediate_size\": 48, "
     "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
     "\"head_dim\": 8, \"vocab_size\": 64, \"tie_word_embeddings\": true}",
     {LLAMA_LAYER(32, 16)}},
    {"qwen3",
     "{\"model_type\": \"qwen3\", \"hidden_size\": 32, \"intermediate_size\": 48, "
     "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
     "\"head_dim\": 16, \"vocab_size\": 64, \"tie_word_embeddings\": true}",
     {LLAMA_LAYER(64, 32),
      {"model.layers.%d.self_attn.q_norm.weight", 0, 16},
      {"model.layers.%d.self_attn.k_norm.weight", 0, 16}}},
    {"bloom",
     "{\"model_type\": \"bloom\", \"hidden_size\": 32, \"n_layer\": 2, \"n_head\": 4, "
     "\"vocab_size\": 64}",
     {{"transformer.word_embeddings.weight", 64, 32},
      {"transformer.word_embeddings_layernorm.weight", 0, 32},
      {"transformer.word_embeddings_layernorm.bias", 0, 32},
      {"transformer.ln_f.weight", 0, 32},
      {"transformer.ln_f.bias", 0, 32},
      {"transformer.h.%d.input_layernorm.weight", 0, 32},
      {"transformer.h.%d.input_layernorm.bias", 0, 32},
      {"transformer.h.%d.post_attention_layernorm.weight", 0, 32},
      {"transformer.h.%d.post_attention_layernorm.bias", 0, 32},
      {"transformer.h.%d.self_attention.query_key_value.weight", 96, 32},
      {"transformer.h.%d.self_attention.query_key_value.bias", 0, 96},
      {"transformer.h.%d.self_attention.dense.weight", 32, 32},
      {"transformer.h.%d.self_attention.dense.bias", 0, 32},
      {"transformer.h.%d.mlp.dense_h_to_4h.weight", 128, 32},
      {"transformer.h.%d.mlp.dense_h_to_4h.bias", 0, 128},
      {"transformer.h.%d.mlp.dense_4h_to_h.weight", 32, 128},
      {"transformer.h.%d.mlp.dense_4h_to_h.bias", 0, 32}}},
    {"mpt",
     "{\"model_type\": \"mpt\", \"d_model\": 32, \"n_layers\": 2, \"n_heads\": 4, "
     "\"vocab_size\": 64}",
     {{"transformer.wte.weight", 64, 32},
      {"transformer.norm_f.weight", 0, 32},
      {"transformer.blocks.%d.norm_1.weight", 0, 32},
      {"transformer.blocks.%d.norm_2.weight", 0, 32},
      {"transformer.blocks.%d.attn.Wqkv.weight", 96, 32},
      {"transformer.blocks.%d.attn.out_proj.weight", 32, 32},
      {"transformer.blocks.%d.ffn.up_proj.weight", 128, 32},
      {"transformer.blocks.%d.ffn.down_proj.weight", 32, 128}}},
    {"bert",
     "{\"model_type\": \"bert\", \"hidden_size\": 32, \"intermediate_size\": 48, "
     "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"vocab_size\": 64, "
     "\"max_position_embeddings\": 16}",
     {BERT_ATTENTION,
      {"embeddings.position_embeddings.weight", 16, 32},
      {"encoder.layer.%d.intermediate.dense.weight", 48, 32},
      {"encoder.layer.%d.intermediate.dense.bias", 0, 48},
      {"encoder.layer.%d.output.dense.weight", 32, 48},
      {"encoder.layer.%d.output.dense.bias", 0, 32},
      {"encoder.layer.%d.output.LayerNorm.weight", 0, 32},
      {"encoder.layer.%d.output.LayerNorm.bias", 0, 32}}},
    {"jina",
     "{\"model_type\": \"bert\", \"hidden_size\": 32, \"intermediate_size\": 48, "
     "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"vocab_size\": 64, "
     "\"position_embedding_type\": \"alibi\", \"feed_forward_type\": \"geglu\"}",
     {BERT_ATTENTION,
      {"encoder.layer.%d.mlp.gated_layers.weight", 96, 32},
      {"encoder.layer.%d.mlp.wo.weight", 32, 48},
      {"encoder.layer.%d.mlp.wo.bias", 0, 32},
      {"encoder.layer.%d.mlp.layernorm.weight", 0, 32},
      {"encoder.layer.%d.mlp.layernorm.bias", 0, 32}}},
};
enum { FAMILIES = sizeof families / sizeof *families };

static size_t count_of(const family *f) {
    size_t count = 0;
    while (count < MOST_TENSORS && f->tensors[count].name) count++;
    return count;
}

/* Removes what a conversion wrote. */
static void discard(const char *out) {
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", out);
    assert_int_equal(system(command), 0);
}

/* Opens and converts; both say the same, and what was converted opens. Is it refused? */
static bool is_refused(const char *what, const char *model, const char *adapter, const char *out) {
    plsh_model *opened;
    plsh_error error = {0}, other = {0};
    const plsh_model_options as = {.adapter = adapter};
    const plsh_convert_options options = {
        .model = model, .adapter = adapter, .type = PLSH_WEIGHT_F16, .out = out};
    const plsh_status expected = plsh_model_open(&opened, model, &as, &error);
    plsh_model_close(opened);
    const plsh_status status = plsh_convert(&options, NULL, &other);
    if (expected && (status != expected || strcmp(error.message, other.message) != 0))
        fail_msg("%s: opened: %s; converted: %s", what, error.message,
                 status ? other.message : "without an error");
    if (status && access(out, F_OK) == 0) fail_msg("%s: refused, and left %s", what, out);
    if (status) return true;
    if (plsh_model_open(&opened, out, NULL, &error))
        fail_msg("%s: converted, and does not open: %s", what, error.message);
    plsh_model_close(opened);
    discard(out);
    return false;
}

/* A number of the configuration that is another one. */
static void replace(char *out, size_t size, const char *config, const char *key, int value) {
    char field[64];
    snprintf(field, sizeof field, "\"%s\": ", key);
    const char *at = strstr(config, field);
    assert_non_null(at);
    const char *number = at + strlen(field);
    const size_t digits = strspn(number, "0123456789");
    snprintf(out, size, "%.*s%d%s", (int)(number - config), config, value, number + digits);
}

static bool has(const char *config, const char *key) {
    char field[64];
    snprintf(field, sizeof field, "\"%s\"", key);
    return strstr(config, field) != NULL;
}

/* Every number of every family: larger, smaller, 1. */
static void test_folders(void **unused) {
    (void)unused;
    static const char *const keys[] = {"hidden_size",
                                       "intermediate_size",
                                       "num_hidden_layers",
                                       "num_attention_heads",
                                       "head_dim",
                                       "num_key_value_heads",
                                       "vocab_size",
                                       "max_position_embeddings",
                                       "n_layer",
                                       "n_head",
                                       "d_model",
                                       "n_layers",
                                       "n_heads"};
    static const int values[] = {1, 6, 16, 40, 256};
    int tried = 0, refused = 0;
    for (int f = 0; f < FAMILIES; f++) {
        const char *whole = tiny_model_write(families[f].config, families[f].tensors,
                                             count_of(&families[f]), LAYERS);
        assert_false(is_refused(families[f].name, whole, NULL, "hostile.gguf"));
        tiny_model_remove(whole);
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                char config[1024];
                if (!has(families[f].config, keys[k])) continue;
                replace(config, sizeof config, families[f].config, keys[k], values[v]);
                const char *folder =
                    tiny_model_write(config, families[f].tensors, count_of(&families[f]), LAYERS);
                tried++;
                refused += is_refused(config, folder, NULL, "hostile.gguf");
                tiny_model_remove(folder);
            }
        }
    }
    print_message("%d folders, %d refused\n", tried, refused);
    assert_true(refused > tried * 3 / 4);
}

/* Every tensor of every family: one row or column more or less, or transposed. */
static void test_shapes(void **unused) {
    (void)unused;
    static const int changes[][2] = {{1, 0}, {-1, 0}, {0, 1}};
    for (int f = 0; f < FAMILIES; f++) {
        for (size_t t = 0; t < count_of(&families[f]); t++) {
            for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
                family changed = families[f];
                tiny_tensor *tensor = &changed.tensors[t];
                if (tensor->rows == 0 && changes[c][0] != 0) continue;
                tensor->rows += changes[c][0];
                tensor->columns += changes[c][1];
                const char *folder =
                    tiny_model_write(changed.config, changed.tensors, count_of(&changed), LAYERS);
                assert_true(is_refused(tensor->name, folder, NULL, "hostile.gguf"));
                tiny_model_remove(folder);
            }
        }
    }
}

/* The GGUF again, with one number of its metadata changed. */
static void rewrite(const char *from, const char *to, const char *ending, uint32_t value) {
    plsh_weights *weights;
    plsh_weights_writer *writer;
    plsh_error error;
    assert_ok(plsh_weights_open(&weights, from, &error));
    assert_ok(plsh_weights_writer_create(&writer, to, PLSH_WEIGHTS_GGUF, &error));
    for (size_t i = 0; i < plsh_metadata_count(weights); i++) {
        const plsh_metadata *m = plsh_metadata_at(weights, i);
        const char *dot = strchr(m->key, '.');
        if (dot && strcmp(dot + 1, ending) == 0) {
            assert_ok(plsh_weights_writer_value(writer, m->key, PLSH_METADATA_U32, &value, &error));
        } else {
            assert_ok(plsh_weights_writer_copy(writer, m, &error));
        }
    }
    tiny_model_copy_tensors(writer, weights);
    plsh_weights_close(weights);
}

/* Every number of a GGUF, converted into a folder. */
static void test_ggufs(void **unused) {
    (void)unused;
    static const char *const keys[] = {"attention.key_length", "attention.value_length",
                                       "attention.head_count", "attention.head_count_kv",
                                       "embedding_length",     "feed_forward_length",
                                       "rope.dimension_count", "block_count",
                                       "context_length"};
    static const uint32_t values[] = {1, 6, 16, 24, 256, UINT32_C(1) << 31};
    plsh_error error;
    int tried = 0, refused = 0;
    for (int f = 0; f < FAMILIES; f++) {
        const char *folder = tiny_model_write(families[f].config, families[f].tensors,
                                              count_of(&families[f]), LAYERS);
        const plsh_convert_options options = {
            .model = folder, .type = PLSH_WEIGHT_F32, .out = "hostile-whole.gguf"};
        assert_ok(plsh_convert(&options, NULL, &error));
        tiny_model_remove(folder);
        assert_false(is_refused(families[f].name, "hostile-whole.gguf", NULL, "hostile-folder"));
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                rewrite("hostile-whole.gguf", "hostile.gguf", keys[k], values[v]);
                tried++;
                refused += is_refused(keys[k], "hostile.gguf", NULL, "hostile-folder");
            }
        }
    }
    print_message("%d GGUFs, %d refused\n", tried, refused);
    assert_true(refused > tried / 2);
    unlink("hostile-whole.gguf");
    unlink("hostile.gguf");
}

/* A BLOOM of fewer kv heads opens as a GGUF (its rows are stacked), and has no form as a folder. */
static void test_kv_heads(void **unused) {
    (void)unused;
    plsh_error error;
    family bloom = families[3];
    const char *folder = tiny_model_write(bloom.config, bloom.tensors, count_of(&bloom), LAYERS);
    plsh_convert_options options = {
        .model = folder, .type = PLSH_WEIGHT_F32, .out = "hostile-whole.gguf"};
    assert_ok(plsh_convert(&options, NULL, &error));
    tiny_model_remove(folder);
    plsh_weights *weights;
    plsh_weights_writer *writer;
    assert_ok(plsh_weights_open(&weights, options.out, &error));
    assert_ok(plsh_weights_writer_create(&writer, "hostile.gguf", PLSH_WEIGHTS_GGUF, &error));
    for (size_t i = 0; i < plsh_metadata_count(weights); i++) {
        const plsh_metadata *m = plsh_metadata_at(weights, i);
        if (strcmp(m->key, "bloom.attention.head_count_kv") == 0) {
            assert_ok(plsh_weights_writer_value(writer, m->key, PLSH_METADATA_U32, &(uint32_t){2},
                                                &error));
        } else {
            assert_ok(plsh_weights_writer_copy(writer, m, &error));
        }
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < plsh_weights_count(weights); i++) {
            plsh_tensor tensor = *plsh_weights_at(weights, i);
            if (strstr(tensor.name, "attn_qkv")) { /* 64 of its 96 rows */
                tensor.shape[0] = 64;
                tensor.size = tensor.size / 96 * 64;
            }
            if (pass == 0) assert_ok(plsh_weights_writer_declare(writer, &tensor, &error));
            if (pass == 1)
                assert_ok(plsh_weights_writer_bytes(writer, tensor.data, tensor.size, &error));
        }
    }
    assert_ok(plsh_weights_writer_commit(writer, &error));
    plsh_weights_close(weights);
    options = (plsh_convert_options){
        .model = "hostile.gguf", .type = PLSH_WEIGHT_F32, .out = "hostile-folder"};
    assert_fails(plsh_convert(&options, NULL, &error), PLSH_STATUS_UNSUPPORTED, "2 kv heads");
    unlink("hostile-whole.gguf");
    unlink("hostile.gguf");
}

static const char *write_adapter(int64_t rank, int64_t in, int64_t out) {
    static char folder[] = "hostile-adapter-XXXXXX";
    plsh_error error;
    float *zeros = calloc((size_t)(rank * (in + out)), sizeof *zeros);
    const plsh_tensor a = {.name = "a",
                           .rank = 2,
                           .shape = {rank, in},
                           .data = zeros,
                           .size = (size_t)(rank * in) * sizeof *zeros},
                      b = {.name = "b",
                           .rank = 2,
                           .shape = {out, rank},
                           .data = zeros,
                           .size = (size_t)(out * rank) * sizeof *zeros};
    const plsh_adapter_layer layer = {
        .module = "model.layers.0.self_attn.q_proj", .a = &a, .b = &b, .rank = rank};
    static const char *const targets[] = {"q_proj"};
    const plsh_adapter_settings settings = {
        .targets = targets, .target_count = 1, .rank = rank, .alpha = 1.0};
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    assert_non_null(zeros);
    assert_non_null(mkdtemp(folder));
    assert_ok(plsh_adapter_save(folder, &settings, &layer, 1, &error));
    free(zeros);
    return folder;
}

/* Adapters of other shapes, merged into a folder and into a GGUF. */
static void test_adapters(void **unused) {
    (void)unused;
    static const int64_t shapes[][2] = {{32, 32}, {31, 32}, {32, 33}, {32, 4096}, {1, 1}};
    const char *folder = tiny_llama();
    for (int i = 0; i < 5; i++) {
        const char *adapter = write_adapter(2, shapes[i][0], shapes[i][1]);
        assert_int_equal(is_refused("adapter", folder, adapter, "hostile.gguf"), i > 0);
        plsh_error error;
        const plsh_convert_options options = {
            .model = folder, .adapter = adapter, .type = PLSH_WEIGHT_F16, .out = "hostile-folder"};
        if (i == 0) {
            assert_ok(plsh_convert(&options, NULL, &error));
            discard("hostile-folder");
        } else {
            assert_fails(plsh_convert(&options, NULL, &error), PLSH_STATUS_FORMAT, "does not fit");
            assert_int_not_equal(access("hostile-folder", F_OK), 0);
        }
        tiny_model_remove(adapter);
    }
    tiny_model_remove(folder);
}

static int enter_folder(void **unused) {
    (void)unused;
    static char folder[] = "hostile-XXXXXX";
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : 1;
}

static int leave_folder(void **unused) {
    (void)unused;
    char path[4096];
    if (!getcwd(path, sizeof path) || chdir("..") != 0) return 1;
    return rmdir(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders),  cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_ggufs),    cmocka_unit_test(test_kv_heads),
        cmocka_unit_test(test_adapters),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
