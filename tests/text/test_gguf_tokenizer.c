/* text: tokenizers from GGUF metadata, written here: small ones by their rules, and that of
 * stories260k against its own tokenizer.json. */
#include "plsh/tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/support.h"
#include "text/gguf.h"

static char path[] = "tokenizer-test.gguf";

/* A file of these tokens; kinds and scores may be NULL, `pre` and `merges` too. */
static void write_gguf(const char *model, const char *pre, const plsh_string *tokens,
                       const int32_t *kinds, const float *scores, size_t count,
                       const plsh_string *merges, size_t merge_count) {
    plsh_weights_writer *writer;
    plsh_error error;
    const uint32_t zero = 0;
    assert_ok(plsh_weights_writer_create(&writer, path, PLSH_WEIGHTS_GGUF, &error));
    assert_ok(
        plsh_weights_writer_string(writer, "tokenizer.ggml.model", model, strlen(model), &error));
    if (pre != NULL)
        assert_ok(
            plsh_weights_writer_string(writer, "tokenizer.ggml.pre", pre, strlen(pre), &error));
    assert_ok(plsh_weights_writer_strings(writer, "tokenizer.ggml.tokens", tokens, count, &error));
    if (kinds != NULL)
        assert_ok(plsh_weights_writer_values(writer, "tokenizer.ggml.token_type", PLSH_METADATA_I32,
                                             kinds, count, &error));
    if (scores != NULL)
        assert_ok(plsh_weights_writer_values(writer, "tokenizer.ggml.scores", PLSH_METADATA_F32,
                                             scores, count, &error));
    if (merges != NULL)
        assert_ok(plsh_weights_writer_strings(writer, "tokenizer.ggml.merges", merges, merge_count,
                                              &error));
    assert_ok(plsh_weights_writer_value(writer, "tokenizer.ggml.unknown_token_id",
                                        PLSH_METADATA_U32, &zero, &error));
    assert_ok(plsh_weights_writer_commit(writer, &error));
}

static void check(const plsh_tokenizer *tokenizer, const char *text, bool special,
                  const int32_t *expected, size_t count) {
    plsh_token_ids ids = {0};
    plsh_error error;
    assert_ok(plsh_tokenizer_encode(tokenizer, text, strlen(text), special, &ids, &error));
    assert_int_equal(ids.count, count);
    if (count > 0) assert_memory_equal(ids.ids, expected, count * sizeof *expected);
    plsh_token_ids_free(&ids);
}

/* Two tokenizers give the same ids, with and without special tokens. */
static void check_equal(const plsh_tokenizer *one, const plsh_tokenizer *other) {
    static const char *const texts[] = {"Once upon a time, there was a little girl named Lily.",
                                        "  two  spaces <s> and\n\té 漢字 😀",
                                        "",
                                        " ",
                                        "<unk>x",
                                        "ab11<e> abab1",
                                        "Biases! BIASESes x",
                                        "don't  3.14159\r\n\r\n<|im_start|>user<|im_end|>"};
    plsh_error error;
    for (size_t i = 0; i < 2 * sizeof texts / sizeof *texts; i++) {
        const char *text = texts[i / 2];
        plsh_token_ids ids = {0};
        plsh_token_text first = {0}, second = {0};
        assert_ok(plsh_tokenizer_encode(one, text, strlen(text), i % 2 == 0, &ids, &error));
        check(other, text, i % 2 == 0, ids.ids, ids.count);
        assert_ok(plsh_tokenizer_decode(one, ids.ids, ids.count, i % 2 == 0, &first, &error));
        assert_ok(plsh_tokenizer_decode(other, ids.ids, ids.count, i % 2 == 0, &second, &error));
        assert_int_equal(first.length, second.length);
        if (first.length > 0) assert_memory_equal(first.bytes, second.bytes, first.length);
        plsh_token_text_free(&first);
        plsh_token_text_free(&second);
        plsh_token_ids_free(&ids);
    }
}

/* The tokenizer.json that a conversion writes is the tokenizer of the GGUF. */
static void check_json(const plsh_tokenizer *tokenizer, const char *gguf) {
    plsh_weights *weights;
    plsh_error error;
    json_t *root, *config;
    plsh_tokenizer *back;
    assert_ok(plsh_weights_open(&weights, gguf, &error));
    assert_ok(plsh_tokenizer_gguf_json(weights, &root, &config, &error));
    char *text = json_dumps(root, 0);
    assert_ok(plsh_tokenizer_parse(&back, text, strlen(text), "written", &error));
    assert_int_equal(plsh_tokenizer_size(back), plsh_tokenizer_size(tokenizer));
    check_equal(tokenizer, back);
    const plsh_token_roles roles = plsh_tokenizer_roles(tokenizer);
    const char *unknown = json_string_value(json_object_get(config, "unk_token"));
    assert_non_null(unknown);
    assert_int_equal(plsh_tokenizer_find(back, unknown, strlen(unknown)), roles.unknown);
    free(text);
    json_decref(root);
    json_decref(config);
    plsh_tokenizer_free(back);
    plsh_weights_close(weights);
}

#define TOKEN(text)                                                                                \
    { text, sizeof(text) - 1 }

static void test_gpt2(void **state) {
    (void)state;
    const plsh_string tokens[] = {TOKEN("<e>"), TOKEN("a"), TOKEN("b"),
                                  TOKEN("ab"),  TOKEN("1"), TOKEN("11")};
    const plsh_string merges[] = {TOKEN("a b"), TOKEN("1 1")};
    const int32_t kinds[] = {3, 1, 1, 1, 1, 1};
    plsh_tokenizer *tokenizer;
    plsh_error error;
    write_gguf("gpt2", "smollm", tokens, kinds, NULL, 6, merges, 2);
    assert_ok(plsh_tokenizer_open(&tokenizer, path, &error));
    check(tokenizer, "ab11<e>", false, (int32_t[]){3, 4, 4, 0}, 4); /* digits one by one */
    check_json(tokenizer, path);
    plsh_tokenizer_free(tokenizer);
    write_gguf("gpt2", "gpt-2", tokens, kinds, NULL, 6, merges, 2);
    assert_ok(plsh_tokenizer_open(&tokenizer, path, &error));
    check(tokenizer, "ab11<e>", false, (int32_t[]){3, 5, 0}, 3);
    check_json(tokenizer, path);
    plsh_tokenizer_free(tokenizer);
    write_gguf("gpt2", "nonsense", tokens, kinds, NULL, 6, merges, 2);
    assert_fails(plsh_tokenizer_open(&tokenizer, path, &error), PLSH_STATUS_UNSUPPORTED,
                 "\"nonsense\" is not supported");
    write_gguf("rwkv", NULL, tokens, kinds, NULL, 6, NULL, 0);
    assert_fails(plsh_tokenizer_open(&tokenizer, path, &error), PLSH_STATUS_UNSUPPORTED,
                 "\"rwkv\" is not supported");
    unlink(path);
}

static void test_bert(void **state) {
    (void)state;
    const plsh_string tokens[] = {TOKEN("[UNK]"), TOKEN("[CLS]"), TOKEN("[SEP]"),
                                  TOKEN("▁bias"), TOKEN("es"),    TOKEN("▁!")};
    plsh_tokenizer *tokenizer;
    plsh_error error;
    write_gguf("bert", NULL, tokens, (int32_t[]){2, 3, 3, 1, 1, 1}, NULL, 6, NULL, 0);
    assert_ok(plsh_tokenizer_open(&tokenizer, path, &error));
    check(tokenizer, "Biases! x", true, (int32_t[]){1, 3, 4, 5, 0, 2}, 6);
    check_json(tokenizer, path);
    plsh_tokenizer_free(tokenizer);
    unlink(path);
}

/* Of two ways to begin, the better score; of equal ones, the left. */
static void test_scores(void **state) {
    (void)state;
    const plsh_string tokens[] = {TOKEN("<unk>"), TOKEN("▁"),  TOKEN("a"),
                                  TOKEN("b"),     TOKEN("ab"), TOKEN("ba")};
    plsh_tokenizer *tokenizer;
    plsh_error error;
    write_gguf("llama", NULL, tokens, (int32_t[]){2, 1, 1, 1, 1, 1},
               (float[]){0, -1, -2, -3, -5, -4}, 6, NULL, 0);
    assert_ok(plsh_tokenizer_open(&tokenizer, path, &error));
    check(tokenizer, "aba", false, (int32_t[]){1, 2, 5}, 3);
    check_json(tokenizer, path);
    plsh_tokenizer_free(tokenizer);
    write_gguf("llama", NULL, tokens, (int32_t[]){2, 1, 1, 1, 1, 1},
               (float[]){0, -1, -2, -3, -5, -5}, 6, NULL, 0);
    assert_ok(plsh_tokenizer_open(&tokenizer, path, &error));
    check(tokenizer, "aba", false, (int32_t[]){1, 4, 2}, 3);
    plsh_tokenizer_free(tokenizer);
    unlink(path);
}

static void test_stories(void **state) {
    (void)state;
    const char *file = test_shared("data/models/stories260k/tokenizer.json");
    json_t *root = json_load_file(file, 0, NULL), *id;
    json_t *vocabulary = json_object_get(json_object_get(root, "model"), "vocab");
    const size_t count = json_object_size(vocabulary);
    plsh_string *tokens = calloc(count, sizeof *tokens);
    int32_t *kinds = calloc(count, sizeof *kinds);
    float *scores = calloc(count, sizeof *scores);
    const char *token;
    json_object_foreach(vocabulary, token, id) {
        const size_t i = (size_t)json_integer_value(id);
        tokens[i] = (plsh_string){token, strlen(token)};
        kinds[i] = i == 0 ? 2 : i < 3 ? 3 : strncmp(token, "<0x", 3) == 0 ? 6 : 1;
        scores[i] = -(float)i;
    }
    write_gguf("llama", NULL, tokens, kinds, scores, count, NULL, 0);
    plsh_tokenizer *json, *gguf;
    plsh_error error;
    assert_ok(plsh_tokenizer_open(&json, file, &error));
    assert_ok(plsh_tokenizer_open(&gguf, path, &error));
    check_equal(json, gguf);
    check_json(gguf, path);
    plsh_tokenizer_free(json);
    plsh_tokenizer_free(gguf);
    free(tokens);
    free(kinds);
    free(scores);
    json_decref(root);
    unlink(path);
}

static void test_smollm2(void **state) {
    (void)state;
    plsh_tokenizer *tokenizer;
    plsh_error error;
    const char *gguf = test_shared("data/models/smollm2-135m-q4_1/SmolLM2-135M-Instruct.Q4_1.gguf");
    assert_ok(plsh_tokenizer_open(&tokenizer, gguf, &error));
    check_json(tokenizer, gguf);
    plsh_tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2), cmocka_unit_test(test_bert), cmocka_unit_test(test_scores),
        cmocka_unit_test(test_smollm2), cmocka_unit_test(test_stories)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
