/* weights: files as they are found: the reference data, folders, shards, metadata. */
#include "plsh/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mapping.h"
#include "base/memory.h"
#include "formats/json.h"
#include "support/support.h"

static const char smollm2[] = "data/models/smollm2-135m-q4_1/SmolLM2-135M-Instruct.Q4_1.gguf";

static plsh_weights *open_shared(const char *file) {
    plsh_weights *weights;
    plsh_error error;
    assert_ok(plsh_weights_open(&weights, test_shared(file), &error));
    return weights;
}

static json_t *read_json(const char *path) {
    plsh_mapping mapping;
    json_t *root;
    plsh_error error;
    assert_ok(plsh_mapping_open(&mapping, path, &error));
    assert_ok(
        plsh_weights_json_parse((const char *)mapping.bytes, mapping.size, path, &root, &error));
    plsh_mapping_close(&mapping);
    return root;
}

/* Dequantised values against those of another implementation, exactly. */
static void test_smollm2(void **unused) {
    (void)unused;
    plsh_weights *weights = open_shared(smollm2);
    json_t *golden = read_json(test_shared("golden/smollm2/tensors.json"));
    assert_int_equal(plsh_weights_form_of(weights), PLSH_WEIGHTS_GGUF);
    assert_int_equal(plsh_weights_count(weights), 272);
    size_t index;
    json_t *entry;
    json_array_foreach(golden, index, entry) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        const plsh_tensor *tensor = plsh_weights_find(weights, name);
        assert_non_null(tensor);
        const json_t *shape = json_object_get(entry, "rows_cols");
        assert_int_equal(tensor->rank, json_array_size(shape));
        for (int i = 0; i < tensor->rank; i++)
            assert_int_equal(tensor->shape[i],
                             json_integer_value(json_array_get(shape, (size_t)i)));
        int64_t rows = plsh_tensor_rows(tensor), columns = plsh_tensor_columns(tensor);
        void *row;
        plsh_error error;
        assert_ok(plsh_allocate(&row, (size_t)columns, sizeof(float), "a row", &error));
        const float *x = row;
        double sum = 0.0, squares = 0.0;
        for (int64_t r = 0; r < rows; r++) {
            plsh_tensor_to_float(tensor, r, 1, row);
            for (int64_t c = 0; c < columns; c++) {
                sum += (double)x[c];
                squares += (double)x[c] * (double)x[c];
            }
            const json_t *first = json_object_get(entry, "first8");
            if (!first) first = json_object_get(entry, "first8_gguf_order");
            for (size_t c = 0; r == 0 && c < 8; c++)
                assert_true((double)x[c] == json_number_value(json_array_get(first, c)));
        }
        double wanted = json_number_value(json_object_get(entry, "sum"));
        double wanted_squares = json_number_value(json_object_get(entry, "sum_of_squares"));
        assert_true(fabs(sum - wanted) <= 1e-9 * (fabs(wanted) + wanted_squares));
        assert_true(fabs(squares - wanted_squares) <= 1e-9 * wanted_squares);
        plsh_release(row);
    }
    json_decref(golden);
    plsh_weights_close(weights);
}

static void test_metadata(void **unused) {
    (void)unused;
    plsh_weights *weights = open_shared(smollm2);
    plsh_error error;
    int64_t layers = 0, none = 7;
    double eps = 0.0, theta = 0.0;
    plsh_string name = {0};
    assert_ok(plsh_metadata_integer(weights, "llama.block_count", 1, 1000, &layers, &error));
    assert_ok(plsh_metadata_integer(weights, "llama.no_such_key", 1, 1000, &none, &error));
    assert_ok(plsh_metadata_number(weights, "llama.rope.freq_base", &theta, &error));
    assert_ok(
        plsh_metadata_number(weights, "llama.attention.layer_norm_rms_epsilon", &eps, &error));
    assert_ok(plsh_metadata_string(weights, "general.architecture", &name, &error));
    assert_int_equal(layers, 30);
    assert_int_equal(none, 7);
    assert_true(theta == 100000.0 && eps == (double)9.999999747e-06f);
    assert_true(name.length == 5 && memcmp(name.bytes, "llama", 5) == 0);
    assert_fails(plsh_metadata_integer(weights, "llama.block_count", 1, 29, &layers, &error),
                 PLSH_STATUS_FORMAT, "'llama.block_count' is 30; 1 to 29");
    assert_fails(plsh_metadata_bool(weights, "llama.block_count", &(bool){0}, &error),
                 PLSH_STATUS_FORMAT, "must be a bool");
    size_t count = plsh_metadata_length(weights, "tokenizer.ggml.tokens");
    assert_int_equal(count, 49152);
    plsh_string *tokens = calloc(count, sizeof *tokens);
    int64_t *types = calloc(count, sizeof *types);
    assert_non_null(tokens);
    assert_ok(plsh_metadata_strings(weights, "tokenizer.ggml.tokens", tokens, &error));
    assert_ok(plsh_metadata_integers(weights, "tokenizer.ggml.token_type", types, &error));
    assert_true(tokens[0].length == 13 && memcmp(tokens[0].bytes, "<|endoftext|>", 13) == 0);
    assert_int_equal(types[0], 3);
    assert_fails(plsh_metadata_strings(weights, "no.such.key", tokens, &error), PLSH_STATUS_FORMAT,
                 "missing");
    free(tokens);
    free(types);
    plsh_weights_close(weights);
}

/* A folder with model.safetensors, and one with a single other name. */
static void test_folders(void **unused) {
    (void)unused;
    plsh_weights *weights = open_shared("data/models/stories260k");
    const plsh_tensor *embedding = plsh_weights_find(weights, "model.embed_tokens.weight");
    assert_non_null(embedding);
    assert_int_equal(embedding->shape[0], 512);
    assert_int_equal(embedding->shape[1], 64);
    assert_int_equal(plsh_metadata_count(weights), 0);
    assert_null(plsh_metadata_find(weights, "general.architecture"));
    plsh_weights_close(weights);
    weights = open_shared("data/models/minilm-l6-v2-fp16");
    assert_non_null(plsh_weights_find(weights, "embeddings.LayerNorm.weight"));
    plsh_weights_close(weights);
}

static void test_adapter(void **unused) {
    (void)unused;
    plsh_adapter *adapter;
    plsh_error error;
    assert_ok(plsh_adapter_open(&adapter, test_shared("golden/lora"), &error));
    assert_int_equal(plsh_adapter_count(adapter), 8);
    const plsh_adapter_layer *q = plsh_adapter_find(adapter, "model.layers.1.self_attn.q_proj");
    assert_non_null(q);
    assert_true(q->scale == 2.0f && q->rank == 16);
    assert_int_equal(q->a->shape[0], 16);
    assert_int_equal(q->b->shape[1], 16);
    assert_null(plsh_adapter_find(adapter, "model.layers.1.mlp.up_proj"));
    plsh_adapter_close(adapter);
}

/* Every q type, from a file of gguf-py (make_gguf_types.py): its values to the bit, but for the
 * sign of a zero: d (q - 8) with d < 0 is -0 there and 0 here. */
static void test_types(void **unused) {
    (void)unused;
    plsh_weights *weights;
    plsh_error error;
    int found = 0;
    assert_ok(plsh_weights_open(&weights, PLSH_TEST_FOLDER "/gguf_types.gguf", &error));
    for (int type = PLSH_WEIGHT_Q8_0; type < PLSH_WEIGHT_COMPUTED; type++, found++) {
        const char *name = plsh_weight_type_name((plsh_weight_type)type);
        char bits[32], values[32];
        float x[256];
        snprintf(bits, sizeof bits, "%s.bits", name);
        snprintf(values, sizeof values, "%s.values", name);
        const plsh_tensor *stored = plsh_weights_find(weights, bits);
        const plsh_tensor *wanted = plsh_weights_find(weights, values);
        assert_non_null(stored);
        assert_non_null(wanted);
        assert_int_equal(stored->type, type);
        assert_int_equal(plsh_tensor_columns(stored), 256);
        assert_int_equal(wanted->size, sizeof x);
        plsh_tensor_to_float(stored, 0, 1, x);
        for (int i = 0; i < 256; i++)
            if (x[i] != ((const float *)wanted->data)[i]) fail_msg("%s, value %d differs", name, i);
    }
    assert_int_equal(plsh_weights_count(weights), 2 * found);
    plsh_weights_close(weights);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2),  cmocka_unit_test(test_types),
        cmocka_unit_test(test_metadata), cmocka_unit_test(test_folders),
        cmocka_unit_test(test_adapter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
