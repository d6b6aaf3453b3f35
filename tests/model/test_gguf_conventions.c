/* model: what GGUF files say besides their tensors, as llama.cpp has it: end tokens, the token that
 * begins a text, files in parts, keys that change nothing. Needs no reference data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plsh/lm.h"
#include "support/support.h"
#include "support/tiny_model.h"

static const char whole[] = "whole.gguf";

/* ---- The tiny Llama as a GGUF, written again with other metadata ---- */

typedef struct edit {
    const char *key; /* in place of the one of that name, or besides */
    plsh_metadata_type type;
    double number;    /* of every type but strings */
    const char *text; /* PLSH_METADATA_STRING */
} edit;

static void put(plsh_weights_writer *writer, const edit *e) {
    plsh_error error;
    if (e->type == PLSH_METADATA_STRING) {
        assert_ok(plsh_weights_writer_string(writer, e->key, e->text, strlen(e->text), &error));
    } else if (e->type == PLSH_METADATA_F32) {
        assert_ok(
            plsh_weights_writer_value(writer, e->key, e->type, &(float){(float)e->number}, &error));
    } else if (e->type == PLSH_METADATA_BOOL) {
        assert_ok(plsh_weights_writer_value(writer, e->key, e->type, &(uint8_t){e->number != 0.0},
                                            &error));
    } else {
        assert_ok(plsh_weights_writer_value(writer, e->key, PLSH_METADATA_U32,
                                            &(uint32_t){(uint32_t)e->number}, &error));
    }
}

static bool is_edited(const char *key, const edit *edits, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(edits[i].key, key) == 0) return true;
    return false;
}

/* The tensors [first, end) of the model; its metadata where `metadata`, and the edits. */
static void write_part(const char *path, size_t first, size_t end, bool metadata, const edit *edits,
                       size_t count) {
    plsh_weights *weights;
    plsh_weights_writer *writer;
    plsh_error error;
    assert_ok(plsh_weights_open(&weights, whole, &error));
    if (end > plsh_weights_count(weights)) end = plsh_weights_count(weights);
    assert_ok(plsh_weights_writer_create(&writer, path, PLSH_WEIGHTS_GGUF, &error));
    for (size_t i = 0; metadata && i < plsh_metadata_count(weights); i++) {
        const plsh_metadata *m = plsh_metadata_at(weights, i);
        if (!is_edited(m->key, edits, count))
            assert_ok(plsh_weights_writer_copy(writer, m, &error));
    }
    for (size_t i = 0; i < count; i++) put(writer, &edits[i]);
    for (size_t i = first; i < end; i++)
        assert_ok(plsh_weights_writer_declare(writer, plsh_weights_at(weights, i), &error));
    for (size_t i = first; i < end; i++) {
        const plsh_tensor *tensor = plsh_weights_at(weights, i);
        assert_ok(plsh_weights_writer_bytes(writer, tensor->data, tensor->size, &error));
    }
    assert_ok(plsh_weights_writer_commit(writer, &error));
    plsh_weights_close(weights);
}

/* The model with one other key: NULL where it opens, else the message. */
static const char *open_with(edit one) {
    static plsh_error error;
    plsh_model *model;
    write_part("edited.gguf", 0, SIZE_MAX, true, &one, 1);
    const plsh_status status = plsh_model_open(&model, "edited.gguf", NULL, &error);
    plsh_model_close(model);
    unlink("edited.gguf");
    return status ? error.message : NULL;
}

/* ---- Keys ---- */

static void test_keys(void **unused) {
    (void)unused;
    static const edit harmless[] = {
        {"llama.made_by", PLSH_METADATA_STRING, 0, "somebody"},
        {"llama.some_new_flag", PLSH_METADATA_BOOL, 1, NULL},
        {"llama.attention.layer_norm_epsilon", PLSH_METADATA_F32, 1e-5, NULL},
        {"llama.final_logit_softcapping", PLSH_METADATA_F32, 0, NULL},
        {"llama.logit_scale", PLSH_METADATA_F32, 1, NULL},
        {"llama.use_parallel_residual", PLSH_METADATA_BOOL, 0, NULL},
        {"llama.expert_used_count", PLSH_METADATA_U32, 0, NULL}};
    static const edit deciding[] = {
        {"llama.final_logit_softcapping", PLSH_METADATA_F32, 30, NULL},
        {"llama.logit_scale", PLSH_METADATA_F32, 0.5, NULL},
        {"llama.attention.some_new_thing", PLSH_METADATA_U32, 3, NULL},
        {"llama.rope.scaling.attn_factor", PLSH_METADATA_F32, 1.2, NULL},
        {"llama.expert_shared_count", PLSH_METADATA_U32, 2, NULL},
        {"llama.use_parallel_residual", PLSH_METADATA_BOOL, 1, NULL}};
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        const char *message = open_with(harmless[i]);
        if (message) fail_msg("%s: %s", harmless[i].key, message);
    }
    for (size_t i = 0; i < sizeof deciding / sizeof *deciding; i++) {
        const char *message = open_with(deciding[i]);
        if (!message) fail_msg("%s: not refused", deciding[i].key);
        test_message_holds(message, deciding[i].key);
    }
}

/* A bad number is blamed on its own key. */
static void test_messages(void **unused) {
    (void)unused;
    static const struct {
        edit with;
        const char *message;
    } cases[] = {
        {{"llama.attention.head_count_kv", PLSH_METADATA_U32, 3, NULL},
         "head_count_kv is 3, which does not divide attention.head_count, 4"},
        {{"llama.attention.key_length", PLSH_METADATA_U32, 1024, NULL},
         "key_length is 1024; 1 to 512"},
        {{"llama.block_count", PLSH_METADATA_U32, 3e6, NULL}, "block_count is 3000000; 1 to"},
        {{"llama.rope.freq_base", PLSH_METADATA_F32, 0, NULL},
         "freq_base is 0; it has to be above 1"},
        {{"llama.rope.scaling.factor", PLSH_METADATA_F32, 0.5, NULL}, "scaling.factor is 0.5"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *message = open_with(cases[i].with);
        if (!message) fail_msg("%s: not refused", cases[i].with.key);
        test_message_holds(message, cases[i].message);
    }
}

/* ---- Tokens ---- */

static const char *const special[] = {"<s>", "</s>", "<|im_end|>", "<|eot_id|>", "<tool>"};
enum { SPECIAL = sizeof special / sizeof *special, VOCABULARY = 64 };

/* The model with a byte-level tokenizer: five special tokens, then letters. */
static void write_tokenizer(const char *path, const edit *edits, size_t count) {
    plsh_weights *weights;
    plsh_weights_writer *writer;
    plsh_error error;
    char letters[VOCABULARY][2] = {{0}};
    plsh_string tokens[VOCABULARY];
    int32_t types[VOCABULARY];
    for (int i = 0; i < VOCABULARY; i++) {
        letters[i][0] = (char)('0' + i);
        tokens[i] = i < SPECIAL ? (plsh_string){special[i], strlen(special[i])}
                                : (plsh_string){letters[i], 1};
        types[i] = i < SPECIAL ? 3 : 1;
    }
    assert_ok(plsh_weights_open(&weights, whole, &error));
    assert_ok(plsh_weights_writer_create(&writer, path, PLSH_WEIGHTS_GGUF, &error));
    for (size_t i = 0; i < plsh_metadata_count(weights); i++) {
        const plsh_metadata *m = plsh_metadata_at(weights, i);
        if (strncmp(m->key, "tokenizer.", 10) != 0)
            assert_ok(plsh_weights_writer_copy(writer, m, &error));
    }
    assert_ok(plsh_weights_writer_string(writer, "tokenizer.ggml.model", "gpt2", 4, &error));
    assert_ok(
        plsh_weights_writer_strings(writer, "tokenizer.ggml.tokens", tokens, VOCABULARY, &error));
    assert_ok(plsh_weights_writer_values(writer, "tokenizer.ggml.token_type", PLSH_METADATA_I32,
                                         types, VOCABULARY, &error));
    for (size_t i = 0; i < count; i++) put(writer, &edits[i]);
    tiny_model_copy_tensors(writer, weights);
    plsh_weights_close(weights);
}

static bool is_end(const plsh_model_ends *ends, int32_t id) {
    for (int64_t i = 0; i < ends->count; i++)
        if (ends->ids[i] == id) return true;
    return false;
}

/* eos, eot and eom by their keys, <|im_end|> and <|eot_id|> by their text; each once. */
static void test_ends(void **unused) {
    (void)unused;
    static const edit keys[] = {{"tokenizer.ggml.eos_token_id", PLSH_METADATA_U32, 1, NULL},
                                {"tokenizer.ggml.eot_token_id", PLSH_METADATA_U32, 2, NULL},
                                {"tokenizer.ggml.eom_token_id", PLSH_METADATA_U32, 4, NULL}};
    plsh_model *model;
    plsh_model_ends ends;
    plsh_error error;
    for (size_t count = 0; count <= 3; count += 3) {
        write_tokenizer("tokens.gguf", keys, count);
        assert_ok(plsh_model_open(&model, "tokens.gguf", NULL, &error));
        assert_ok(plsh_model_end_tokens(model, &ends, &error));
        assert_int_equal(ends.count, count ? 4 : 2);
        assert_true(is_end(&ends, 2) && is_end(&ends, 3));
        assert_int_equal(is_end(&ends, 1) && is_end(&ends, 4), count > 0);
        assert_false(is_end(&ends, 0));
        plsh_model_close(model);
    }
    unlink("tokens.gguf");
}

/* What comes before a text: what add_bos_token says, else what the kind of tokenizer has. */
static void test_begin(void **unused) {
    (void)unused;
    static const edit bos = {"tokenizer.ggml.bos_token_id", PLSH_METADATA_U32, 0, NULL};
    static const struct {
        const char *pre;
        int add; /* -1: the file does not say */
        size_t begins;
    } cases[] = {{"gpt-2", -1, 0},  {"gpt-2", 1, 1},     {"llama-bpe", -1, 1},
                 {"tekken", -1, 1}, {"llama-bpe", 0, 0}, {"qwen2", -1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plsh_tokenizer *tokenizer;
        plsh_token_ids ids = {0};
        plsh_error error;
        const edit edits[] = {
            bos,
            {"tokenizer.ggml.pre", PLSH_METADATA_STRING, 0, cases[i].pre},
            {"tokenizer.ggml.add_bos_token", PLSH_METADATA_BOOL, cases[i].add, NULL}};
        write_tokenizer("tokens.gguf", edits, cases[i].add < 0 ? 2 : 3);
        assert_ok(plsh_tokenizer_open(&tokenizer, "tokens.gguf", &error));
        assert_ok(plsh_tokenizer_begin(tokenizer, &ids, &error));
        assert_int_equal(ids.count, cases[i].begins);
        if (ids.count > 0) assert_int_equal(ids.ids[0], 0);
        plsh_token_ids_free(&ids);
        plsh_tokenizer_free(tokenizer);
    }
    unlink("tokens.gguf");
}

/* ---- Files in parts ---- */

static void write_split(const char *path, size_t first, size_t end, int number, int count,
                        int tensors) {
    const edit edits[] = {{"split.no", PLSH_METADATA_U32, number, NULL},
                          {"split.count", PLSH_METADATA_U32, count, NULL},
                          {"split.tensors.count", PLSH_METADATA_U32, tensors, NULL}};
    write_part(path, first, end, number == 0, edits, 3);
}

static void test_split(void **unused) {
    (void)unused;
    enum { TENSORS = 20 };
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                        "m-00003-of-00003.gguf"};
    static const size_t cuts[] = {0, 5, 12, TENSORS};
    plsh_model *model, *one;
    plsh_weights *weights;
    plsh_error error;
    for (int i = 0; i < 3; i++) write_split(names[i], cuts[i], cuts[i + 1], i, 3, TENSORS);
    assert_ok(plsh_model_open(&one, whole, NULL, &error));
    assert_int_equal(plsh_weights_count(plsh_model_weights(one)), TENSORS);
    for (int i = 0; i < 3; i++) { /* any part leads to all */
        assert_ok(plsh_model_open(&model, names[i], NULL, &error));
        assert_int_equal(plsh_model_checksum(model), plsh_model_checksum(one));
        plsh_model_close(model);
    }
    plsh_model_close(one);
    /* Converted, it is one file that does not say that it is split. */
    const plsh_convert_options options = {
        .model = names[0], .type = PLSH_WEIGHT_F32, .out = "joined.gguf"};
    assert_ok(plsh_convert(&options, NULL, &error));
    assert_ok(plsh_weights_open(&weights, "joined.gguf", &error));
    assert_null(plsh_metadata_find(weights, "split.count"));
    assert_int_equal(plsh_weights_count(weights), TENSORS);
    plsh_weights_close(weights);
    unlink("joined.gguf");

    write_split(names[1], 5, 12, 0, 3, TENSORS);
    assert_fails(plsh_model_open(&model, names[0], NULL, &error), PLSH_STATUS_FORMAT,
                 "m-00002-of-00003.gguf: key 'split.no' is 0; 1 is needed");
    write_split(names[1], 5, 12, 1, 2, TENSORS);
    assert_fails(plsh_model_open(&model, names[0], NULL, &error), PLSH_STATUS_FORMAT,
                 "'split.count' is 2; 3 is needed");
    write_split(names[1], 5, 11, 1, 3, TENSORS);
    assert_fails(plsh_model_open(&model, names[0], NULL, &error), PLSH_STATUS_FORMAT,
                 "'split.tensors.count' is 20; 19 is needed");
    write_split(names[1], 4, 12, 1, 3, TENSORS);
    assert_fails(plsh_model_open(&model, names[0], NULL, &error), PLSH_STATUS_FORMAT, "twice");
    unlink(names[1]);
    assert_fails(plsh_model_open(&model, names[2], NULL, &error), PLSH_STATUS_IO, names[1]);
    assert_int_equal(rename(names[0], "renamed.gguf"), 0);
    assert_fails(plsh_model_open(&model, "renamed.gguf", NULL, &error), PLSH_STATUS_FORMAT,
                 "does not end in -00001-of-00003.gguf");
    unlink("renamed.gguf");
    unlink(names[2]);
}

/* With Q4_1 the weights of the logits, here the embedding, have 8 bits; the rest has 4. */
static void test_head(void **unused) {
    (void)unused;
    plsh_weights *weights;
    plsh_error error;
    plsh_convert_options options = {
        .model = whole, .type = PLSH_WEIGHT_Q4_1, .out = "quantised.gguf"};
    assert_ok(plsh_convert(&options, NULL, &error));
    assert_ok(plsh_weights_open(&weights, options.out, &error));
    assert_int_equal(plsh_weights_find(weights, "token_embd.weight")->type, PLSH_WEIGHT_Q8_0);
    assert_int_equal(plsh_weights_find(weights, "blk.0.attn_q.weight")->type, PLSH_WEIGHT_Q4_1);
    plsh_weights_close(weights);
    const char *folder = tiny_llama();
    options.model = folder;
    assert_ok(plsh_convert(&options, NULL, &error));
    tiny_model_remove(folder);
    assert_ok(plsh_weights_open(&weights, options.out, &error));
    assert_int_equal(plsh_weights_find(weights, "token_embd.weight")->type, PLSH_WEIGHT_Q8_0);
    plsh_weights_close(weights);
    unlink(options.out);
}

static int enter_folder(void **unused) {
    (void)unused;
    static char folder[] = "conventions-XXXXXX";
    plsh_error error;
    if (!mkdtemp(folder) || chdir(folder) != 0) return 1;
    const char *model = tiny_llama();
    const plsh_convert_options options = {.model = model, .type = PLSH_WEIGHT_F32, .out = whole};
    const plsh_status status = plsh_convert(&options, NULL, &error);
    tiny_model_remove(model);
    return status;
}

static int leave_folder(void **unused) {
    (void)unused;
    char path[4096];
    unlink(whole);
    if (!getcwd(path, sizeof path) || chdir("..") != 0) return 1;
    return rmdir(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),  cmocka_unit_test(test_messages), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_begin), cmocka_unit_test(test_split),    cmocka_unit_test(test_head),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
