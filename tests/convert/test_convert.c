/* model: conversions there and back, adapters merged, and the same logits from both forms. */
#include "plsh/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plsh/io.h"
#include "plsh/model.h"
#include "plsh/tokenizer.h"
#include "support/support.h"
#include "support/tiny_model.h"

static char folder[] = "convert-XXXXXX";

static const char *in_folder(const char *name) {
    static char paths[8][300];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static plsh_converted convert(const char *model, const char *adapter, plsh_weight_type type,
                              const char *out) {
    plsh_converted converted;
    plsh_error error;
    const plsh_convert_options options = {
        .model = model, .adapter = adapter, .type = type, .out = out};
    assert_ok(plsh_convert(&options, &converted, &error));
    return converted;
}

/* The logits behind the last of `count` ids. */
static void run_model(const char *path, const int32_t *ids, int64_t count, float *logits) {
    plsh_model *model;
    plsh_session *session;
    plsh_error error;
    assert_ok(plsh_model_open(&model, path, NULL, &error));
    assert_ok(plsh_session_create(&session, model, NULL, &error));
    plsh_step step = {.ids = ids, .count = count, .logits = logits};
    assert_ok(plsh_session_step(session, &step, &error));
    plsh_session_destroy(session);
    plsh_model_close(model);
}

static void assert_near(const float *a, const float *b, int count, double allowed) {
    for (int i = 0; i < count; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= allowed))
            fail_msg("logit %d: %g and %g", i, (double)a[i], (double)b[i]);
}

enum { VOCABULARY = 512 };

static void there_and_back(const char *name, int vocabulary) {
    const char *model = test_shared(name), *gguf = in_folder("m.gguf"), *back = in_folder("back");
    static const int32_t ids[] = {1, 17, 200, 45, 33, 7, 300, 99};
    float first[VOCABULARY], second[VOCABULARY], third[VOCABULARY];
    convert(model, NULL, PLSH_WEIGHT_F32, gguf);
    convert(gguf, NULL, PLSH_WEIGHT_F32, back);
    tiny_model_same_weights(model, back);
    run_model(model, ids, 8, first);
    run_model(gguf, ids, 8, second);
    run_model(back, ids, 8, third);
    assert_near(first, second, vocabulary, 2e-5);
    assert_memory_equal(first, third, (size_t)vocabulary * sizeof *first);
}

static void test_qwen2(void **unused) {
    (void)unused;
    const char *gguf = in_folder("m.gguf"), *back = in_folder("back");
    static const int32_t ids[] = {1, 17, 20, 45, 33, 7, 30, 59};
    float first[64], second[64], third[64];
    convert(PLSH_TEST_FOLDER "/qwen2", NULL, PLSH_WEIGHT_F32, gguf);
    convert(gguf, NULL, PLSH_WEIGHT_F32, back);
    tiny_model_same_weights(PLSH_TEST_FOLDER "/qwen2", back);
    run_model(PLSH_TEST_FOLDER "/qwen2", ids, 8, first);
    run_model(gguf, ids, 8, second);
    run_model(back, ids, 8, third);
    assert_memory_equal(first, second, 61 * sizeof *first);
    assert_memory_equal(first, third, 61 * sizeof *first);
}

static void test_there_and_back(void **unused) {
    (void)unused;
    there_and_back("golden/models/llama", 320);
    there_and_back("golden/models/qwen3", 320);
    there_and_back("golden/models/mistral", 320);
    there_and_back("golden/models/bloom", 320);
    there_and_back("golden/models/bloom6", 320);
    there_and_back("golden/models/mpt", 320);
    there_and_back("data/models/stories260k", 512);
}

/* The hidden states of an encoder. */
static void encode(const char *path, const int32_t *ids, int64_t count, float *hidden) {
    plsh_model *model;
    plsh_error error;
    const plsh_encoding encoding = {.ids = ids, .count = count, .hidden = hidden};
    assert_ok(plsh_model_open(&model, path, NULL, &error));
    assert_ok(plsh_model_encode(model, &encoding, &error));
    plsh_model_close(model);
}

/* What an encoder does not use (its pooler) is left out of a GGUF. */
static void encoder_there_and_back(const char *name, int hidden) {
    const char *model = test_shared(name), *gguf = in_folder("m.gguf"), *back = in_folder("back");
    static const int32_t ids[] = {101, 17, 200, 45, 33, 7, 150, 102};
    float first[8 * 96], second[8 * 96], third[8 * 96];
    convert(model, NULL, PLSH_WEIGHT_F32, gguf);
    convert(gguf, NULL, PLSH_WEIGHT_F32, back);
    encode(model, ids, 8, first);
    encode(gguf, ids, 8, second);
    encode(back, ids, 8, third);
    assert_memory_equal(first, second, (size_t)(8 * hidden) * sizeof *first);
    assert_memory_equal(first, third, (size_t)(8 * hidden) * sizeof *first);
}

/* A GGUF of JinaBERT for code as converters of 2024 wrote it: the fused layer of the MLP in two,
 * ffn_up its first half, ffn_gate the second one. */
static void split_mlp(const char *from, const char *to) {
    plsh_weights *weights;
    plsh_weights_writer *writer;
    plsh_error error;
    assert_ok(plsh_weights_open(&weights, from, &error));
    assert_ok(plsh_weights_writer_create(&writer, to, PLSH_WEIGHTS_GGUF, &error));
    for (size_t i = 0; i < plsh_metadata_count(weights); i++)
        assert_ok(plsh_weights_writer_copy(writer, plsh_metadata_at(weights, i), &error));
    for (int write = 0; write < 2; write++) {
        for (size_t i = 0; i < plsh_weights_count(weights); i++) {
            plsh_tensor tensor = *plsh_weights_at(weights, i);
            const char *up = strstr(tensor.name, "ffn_up.weight");
            for (int half = 0; half < (up ? 2 : 1); half++) {
                char name[64];
                const size_t size = up ? tensor.size / 2 : tensor.size;
                snprintf(name, sizeof name, "%.*s%s", up ? (int)(up - tensor.name) : 60,
                         tensor.name,
                         !up    ? ""
                         : half ? "ffn_gate.weight"
                                : "ffn_up.weight");
                plsh_tensor part = tensor;
                part.name = name;
                if (up) part.shape[0] /= 2;
                if (!write)
                    assert_ok(plsh_weights_writer_declare(writer, &part, &error));
                else
                    assert_ok(plsh_weights_writer_bytes(
                        writer, (const char *)tensor.data + (size_t)half * size, size, &error));
            }
        }
    }
    assert_ok(plsh_weights_writer_commit(writer, &error));
    plsh_weights_close(weights);
}

static void test_jina_code(void **unused) {
    (void)unused;
    const char *gguf = in_folder("m.gguf"), *old = in_folder("t.gguf");
    const char *model = test_shared("golden/families/jina_code");
    static const int32_t ids[] = {0, 17, 200, 45, 33, 7, 150, 2};
    float first[8 * 54], second[8 * 54];
    convert(model, NULL, PLSH_WEIGHT_F32, gguf);
    split_mlp(gguf, old);
    encode(model, ids, 8, first);
    encode(old, ids, 8, second);
    assert_memory_equal(first, second, sizeof first);
    plsh_weights *weights;
    plsh_error error;
    assert_ok(plsh_weights_open(&weights, gguf, &error));
    static const char *const names[] = {
        "attn_q_norm.bias",        "attn_norm_2.weight", "layer_output_norm.weight",
        "attn_output_norm.weight", "ffn_up.weight",      "ffn_down.bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.1.%s", names[i]);
        assert_non_null(plsh_weights_find(weights, name));
    }
    plsh_weights_close(weights);
}

static void test_encoders(void **unused) {
    (void)unused;
    encoder_there_and_back("golden/models/bert", 64);
    encoder_there_and_back("golden/jina-bert-v2", 64);
    encoder_there_and_back("golden/jina-bert-v2/heads12", 96);
    encoder_there_and_back("golden/families/jina_code", 54);
    /* What is added to embeddings stays float32, whatever the type. */
    plsh_weights *weights;
    plsh_error error;
    convert(test_shared("golden/models/bert"), NULL, PLSH_WEIGHT_Q8_0, in_folder("t.gguf"));
    assert_ok(plsh_weights_open(&weights, in_folder("t.gguf"), &error));
    assert_int_equal(plsh_weights_find(weights, "token_types.weight")->type, PLSH_WEIGHT_F32);
    assert_int_equal(plsh_weights_find(weights, "position_embd.weight")->type, PLSH_WEIGHT_F32);
    assert_int_equal(plsh_weights_find(weights, "token_embd.weight")->type, PLSH_WEIGHT_Q8_0);
    plsh_weights_close(weights);
}

/* WordPiece in a GGUF: the same tokens as from tokenizer.json. */
static void test_word_pieces(void **unused) {
    (void)unused;
    static const char text[] = "Unaffable naïve readers, 2 of them: tokenization!";
    plsh_tokenizer *tokenizer[3];
    plsh_token_ids ids[3] = {{0}, {0}, {0}};
    plsh_error error;
    convert(test_shared("data/models/minilm-l6-v2-fp16"), NULL, PLSH_WEIGHT_Q4_1,
            in_folder("t.gguf"));
    assert_ok(
        plsh_tokenizer_open(&tokenizer[0], test_shared("data/models/minilm-l6-v2-fp16"), &error));
    convert(in_folder("t.gguf"), NULL, PLSH_WEIGHT_F16, in_folder("pieces"));
    assert_ok(plsh_tokenizer_open(&tokenizer[1], in_folder("t.gguf"), &error));
    assert_ok(plsh_tokenizer_open(&tokenizer[2], in_folder("pieces"), &error));
    for (int i = 0; i < 3; i++)
        assert_ok(
            plsh_tokenizer_encode(tokenizer[i], text, sizeof text - 1, true, &ids[i], &error));
    for (int i = 1; i < 3; i++) {
        assert_int_equal(ids[0].count, ids[i].count);
        assert_memory_equal(ids[0].ids, ids[i].ids, ids[0].count * sizeof *ids[0].ids);
    }
    for (int i = 0; i < 3; i++) {
        plsh_token_ids_free(&ids[i]);
        plsh_tokenizer_free(tokenizer[i]);
    }
}

/* A window of three tokens, which the logits of eight tell, is kept on both ways. */
static void test_window(void **unused) {
    (void)unused;
    char text[4096], whole[1024], cut[300];
    const char *found;
    snprintf(cut, sizeof cut, "%s", in_folder("windowed"));
    snprintf(whole, sizeof whole, "%s", test_shared("golden/models/mistral"));
    static const int32_t ids[] = {1, 17, 200, 45, 33, 7, 300, 99};
    float first[VOCABULARY], second[VOCABULARY];
    convert(whole, NULL, PLSH_WEIGHT_F32, cut);
    FILE *file = fopen(in_folder("windowed/config.json"), "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_non_null(found = strstr(text, "\"sliding_window\": null"));
    file = fopen(in_folder("windowed/config.json"), "w");
    fprintf(file, "%.*s\"sliding_window\": 3%s", (int)(found - text), text,
            found + strlen("\"sliding_window\": null"));
    fclose(file);
    convert(cut, NULL, PLSH_WEIGHT_F32, in_folder("w.gguf"));
    convert(in_folder("w.gguf"), NULL, PLSH_WEIGHT_F32, in_folder("unwound"));
    run_model(cut, ids, 8, first);
    run_model(in_folder("unwound"), ids, 8, second);
    assert_memory_equal(first, second, 320 * sizeof *first);
    run_model(whole, ids, 8, second);
    assert_true(memcmp(first, second, 320 * sizeof *first) != 0);
}

/* Every type, and vectors that stay float32 in a GGUF; 172 columns are no blocks of 32. */
static void test_types(void **unused) {
    (void)unused;
    const char *model = test_shared("data/models/stories260k");
    static const plsh_weight_type types[] = {PLSH_WEIGHT_F16, PLSH_WEIGHT_BF16, PLSH_WEIGHT_Q8_0,
                                             PLSH_WEIGHT_Q4_1, PLSH_WEIGHT_Q4_0};
    static const int32_t ids[] = {1, 403, 407, 261, 378};
    float exact[VOCABULARY], rough[VOCABULARY];
    run_model(model, ids, 5, exact);
    for (int i = 0; i < 5; i++) {
        plsh_converted done = convert(model, NULL, types[i], in_folder("t.gguf"));
        assert_int_equal(done.as_f16, i < 2 ? 0 : 5);
        run_model(in_folder("t.gguf"), ids, 5, rough);
        assert_near(exact, rough, VOCABULARY, i >= 3 ? 8.0 : 0.5);
        plsh_weights *weights;
        plsh_error error;
        assert_ok(plsh_weights_open(&weights, in_folder("t.gguf"), &error));
        assert_int_equal(plsh_weights_find(weights, "output_norm.weight")->type, PLSH_WEIGHT_F32);
        assert_int_equal(plsh_weights_find(weights, "blk.0.attn_q.weight")->type, types[i]);
        assert_int_equal(plsh_metadata_length(weights, "tokenizer.ggml.tokens"), 512);
        plsh_weights_close(weights);
    }
    /* From a GGUF to another one: metadata stays. */
    plsh_converted done = convert(in_folder("t.gguf"), NULL, PLSH_WEIGHT_F16, in_folder("u.gguf"));
    plsh_weights *weights;
    plsh_error error;
    int64_t type = -1;
    assert_ok(plsh_weights_open(&weights, in_folder("u.gguf"), &error));
    assert_int_equal(plsh_weights_count(weights), done.tensors);
    assert_ok(plsh_metadata_integer(weights, "general.file_type", 0, 100, &type, &error));
    assert_int_equal(type, 1);
    assert_int_equal(plsh_metadata_length(weights, "tokenizer.ggml.tokens"), 512);
    plsh_weights_close(weights);
}

/* Rows of 64 are no whole blocks of 256: blocks of 32 instead, and f16 where those do not fit
 * either; the head gets more bits. */
static void test_fallbacks(void **unused) {
    (void)unused;
    const char *model = test_shared("data/models/stories260k");
    static const plsh_weight_type asked[] = {PLSH_WEIGHT_Q4_K, PLSH_WEIGHT_Q6_K, PLSH_WEIGHT_Q4_0};
    static const plsh_weight_type layer[] = {PLSH_WEIGHT_Q5_0, PLSH_WEIGHT_Q8_0, PLSH_WEIGHT_Q4_0};
    for (int i = 0; i < 3; i++) {
        plsh_converted done = convert(model, NULL, asked[i], in_folder("f.gguf"));
        plsh_weights *weights;
        plsh_error error;
        assert_int_equal(done.as_f16, 5);
        assert_int_equal(done.as_blocks_of_32 > 0, i < 2);
        assert_ok(plsh_weights_open(&weights, in_folder("f.gguf"), &error));
        assert_int_equal(plsh_weights_find(weights, "token_embd.weight")->type, PLSH_WEIGHT_Q8_0);
        assert_int_equal(plsh_weights_find(weights, "blk.0.attn_q.weight")->type, layer[i]);
        assert_int_equal(plsh_weights_find(weights, "blk.0.ffn_down.weight")->type,
                         PLSH_WEIGHT_F16);
        plsh_weights_close(weights);
    }
}

/* The adapter of the reference data, merged into a folder, a GGUF, and into that GGUF. */
static void test_adapter(void **unused) {
    (void)unused;
    const char *model = test_shared("golden/models/mistral"), *lora = test_shared("golden/lora");
    plsh_npy ids = test_shared_npy("golden/models/mistral/input_ids.npy");
    plsh_npy merged = test_shared_npy("golden/lora/logits_merged.npy");
    const float *golden = (const float *)merged.data + 47 * 320;
    float logits[VOCABULARY];
    convert(model, lora, PLSH_WEIGHT_F32, in_folder("merged"));
    run_model(in_folder("merged"), ids.data, 48, logits);
    assert_near(golden, logits, 320, 5e-5);
    convert(model, lora, PLSH_WEIGHT_F32, in_folder("m.gguf"));
    run_model(in_folder("m.gguf"), ids.data, 48, logits);
    assert_near(golden, logits, 320, 5e-5);
    convert(model, NULL, PLSH_WEIGHT_F32, in_folder("t.gguf"));
    convert(in_folder("t.gguf"), lora, PLSH_WEIGHT_F32, in_folder("u.gguf"));
    run_model(in_folder("u.gguf"), ids.data, 48, logits);
    assert_near(golden, logits, 320, 5e-5);
    plsh_npy_free(&ids);
    plsh_npy_free(&merged);
}

static bool stop(void *context, size_t done, size_t total) {
    (void)context;
    return done < total / 2;
}

static void test_refused(void **unused) {
    (void)unused;
    plsh_error error;
    plsh_convert_options options = {.model = test_shared("golden/models/falcon"),
                                    .type = PLSH_WEIGHT_F32,
                                    .out = in_folder("r.gguf")};
    assert_fails(plsh_convert(&options, NULL, &error), PLSH_STATUS_UNSUPPORTED, "Falcon");
    options.type = PLSH_WEIGHT_Q4_1;
    options.out = in_folder("r");
    assert_fails(plsh_convert(&options, NULL, &error), PLSH_STATUS_INVALID, "f32, f16 or bf16");
    options.type = PLSH_WEIGHT_Q5_1;
    options.out = in_folder("r.gguf");
    assert_fails(plsh_convert(&options, NULL, &error), PLSH_STATUS_INVALID, "q5_1");
    options.model = test_shared("golden/models/qwen3");
    options.type = PLSH_WEIGHT_F16;
    options.adapter = test_shared("golden/lora");
    assert_fails(plsh_convert(&options, NULL, &error), PLSH_STATUS_FORMAT, "is needed");
    options.adapter = NULL;
    options.progress = stop;
    assert_fails(plsh_convert(&options, NULL, &error), PLSH_STATUS_IO, "stopped");
    assert_int_not_equal(access(in_folder("r.gguf"), F_OK), 0);
    options.progress = NULL;
    options.model = "no/such/model";
    assert_fails(plsh_convert(&options, NULL, &error), PLSH_STATUS_IO, "no/such/model");
}

typedef struct paths {
    const char *model, *out;
} paths;

static plsh_status convert_once(void *context, plsh_error *error) {
    const paths *p = context;
    const plsh_convert_options options = {
        .model = p->model, .type = PLSH_WEIGHT_F16, .out = p->out};
    return plsh_convert(&options, NULL, error);
}

static void test_allocations(void **unused) {
    (void)unused;
    paths p = {test_shared("golden/models/llama"), in_folder("t.gguf")};
    test_every_allocation(convert_once, &p, 20);
}

static int make_folder(void **unused) {
    (void)unused;
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **unused) {
    (void)unused;
    char command[300];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_window),         cmocka_unit_test(test_encoders),
        cmocka_unit_test(test_jina_code),      cmocka_unit_test(test_word_pieces),
        cmocka_unit_test(test_types),          cmocka_unit_test(test_fallbacks),
        cmocka_unit_test(test_adapter),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
