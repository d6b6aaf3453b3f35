/* text: tokenizers against the reference data, frozen cases of the library, and by their rules. */
#include "plsh/tokenizer.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "support/support.h"

static plsh_tokenizer *open_tokenizer(const char *path) {
    plsh_tokenizer *tokenizer;
    plsh_error error;
    assert_ok(plsh_tokenizer_open(&tokenizer, path, &error));
    return tokenizer;
}

static plsh_tokenizer *parse(const char *json) {
    plsh_tokenizer *tokenizer;
    plsh_error error;
    assert_ok(plsh_tokenizer_parse(&tokenizer, json, strlen(json), "x.json", &error));
    return tokenizer;
}

/* ---- cases: {"text", "ids", "decoded", "special", "skip"}, all but the ids optional ---- */

static void check_ids(const plsh_tokenizer *tokenizer, const json_t *text, const json_t *ids,
                      bool special) {
    plsh_token_ids got = {0};
    plsh_error error;
    assert_ok(plsh_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text),
                                    special, &got, &error));
    bool same = got.count == json_array_size(ids);
    for (size_t i = 0; same && i < got.count; i++)
        same = got.ids[i] == json_integer_value(json_array_get(ids, i));
    if (!same)
        fail_msg("\"%.80s\": %zu ids, expected %zu, or others", json_string_value(text), got.count,
                 json_array_size(ids));
    plsh_token_ids_free(&got);
}

static void check_text(const plsh_tokenizer *tokenizer, const json_t *ids, const json_t *decoded,
                       bool skip) {
    const size_t count = json_array_size(ids);
    int32_t *values = malloc((count + 1) * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    plsh_token_text got = {0};
    plsh_error error;
    assert_ok(plsh_tokenizer_decode(tokenizer, values, count, skip, &got, &error));
    assert_int_equal(got.length, json_string_length(decoded));
    if (got.length > 0) assert_memory_equal(got.bytes, json_string_value(decoded), got.length);
    plsh_token_text_free(&got);
    free(values);
}

static int check_cases(const plsh_tokenizer *tokenizer, const char *path) {
    size_t size;
    char *bytes = test_read(path, &size);
    int count = 0;
    for (char *line = bytes, *end; *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        json_t *entry = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, NULL);
        assert_non_null(entry);
        const json_t *text = json_object_get(entry, "text"), *ids = json_object_get(entry, "ids");
        if (text != NULL) check_ids(tokenizer, text, ids, false);
        check_text(tokenizer, ids, json_object_get(entry, "decoded"), false);
        json_decref(entry);
        count++;
    }
    free(bytes);
    return count;
}

static void check_golden(const char *name, int least) {
    char folder[128], file[128];
    static const char *const endings[] = {"", ".nul", ".decode"};
    snprintf(folder, sizeof folder, "data/tokenizers/%s/tokenizer.json", name);
    plsh_tokenizer *tokenizer = open_tokenizer(test_shared(folder));
    int count = 0;
    for (size_t i = 0; i < 3; i++) {
        snprintf(file, sizeof file, "golden/tokenizers/%s%s.jsonl", name, endings[i]);
        count += check_cases(tokenizer, test_shared(file));
    }
    assert_true(count >= least);
    plsh_tokenizer_free(tokenizer);
}

static void test_gpt2(void **state) { (void)state, check_golden("gpt2", 303); }
static void test_qwen3(void **state) { (void)state, check_golden("qwen3", 269); }
static void test_mistral(void **state) { (void)state, check_golden("mistral-v0.1", 313); }
static void test_wikitext(void **state) { (void)state, check_golden("wikitext-bpe-4k", 349); }

static void test_smollm2(void **state) {
    (void)state;
    plsh_tokenizer *tokenizer = open_tokenizer(
        test_shared("data/models/smollm2-135m-q4_1/SmolLM2-135M-Instruct.Q4_1.gguf"));
    assert_int_equal(check_cases(tokenizer, test_shared("golden/smollm2/tokens.jsonl")), 10);
    assert_int_equal(plsh_tokenizer_size(tokenizer), 49152);
    const plsh_token_roles roles = plsh_tokenizer_roles(tokenizer);
    assert_int_equal(roles.end, plsh_tokenizer_find(tokenizer, "<|im_end|>", 10));
    assert_true(plsh_tokenizer_is_special(tokenizer, roles.end));
    plsh_tokenizer_free(tokenizer);
}

static void test_minilm(void **state) {
    (void)state;
    plsh_tokenizer *tokenizer =
        open_tokenizer(test_shared("data/models/minilm-l6-v2-fp16/tokenizer.json"));
    size_t size;
    char *bytes = test_read(test_shared("golden/minilm/sentences.json"), &size);
    json_t *root = json_loadb(bytes, size, 0, NULL);
    const json_t *sentences = json_object_get(root, "sentences"),
                 *ids = json_object_get(root, "ids");
    assert_int_equal(json_array_size(sentences), 8);
    for (size_t i = 0; i < 8; i++)
        check_ids(tokenizer, json_array_get(sentences, i), json_array_get(ids, i), true);
    json_decref(root);
    free(bytes);
    plsh_tokenizer_free(tokenizer);
}

/* Tokenizers with all kinds of parts, and what the library made of texts: make_cases.py. */
static void test_frozen(void **state) {
    (void)state;
    size_t size, tokenizers = 0;
    char *bytes = test_read(PLSH_TEST_FOLDER "/cases.jsonl", &size);
    for (char *line = bytes, *end; *line != '\0'; line = end + 1, tokenizers++) {
        plsh_error error;
        plsh_tokenizer *tokenizer;
        end = strchr(line, '\n');
        json_t *entry = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, NULL);
        char *json = json_dumps(json_object_get(entry, "tokenizer"), 0);
        assert_ok(plsh_tokenizer_parse(&tokenizer, json, strlen(json), "case", &error));
        const json_t *cases = json_object_get(entry, "cases");
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *one = json_array_get(cases, i);
            check_ids(tokenizer, json_object_get(one, "text"), json_object_get(one, "ids"),
                      json_is_true(json_object_get(one, "special")));
            check_text(tokenizer, json_object_get(one, "ids"), json_object_get(one, "decoded"),
                       json_is_true(json_object_get(one, "skip")));
        }
        plsh_tokenizer_free(tokenizer);
        free(json);
        json_decref(entry);
    }
    assert_true(tokenizers >= 40);
    free(bytes);
}

/* ---- by rule ---- */

/* Letters a to e, two merges, bytes for the rest. */
static const char letters[] =
    "{\"added_tokens\": [{\"content\": \"<s>\", \"special\": true, \"normalized\": false}],"
    "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"},"
    "{\"type\": \"Fuse\"}]}, \"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {"
    "\"a\": 0, \"b\": 1, \"ab\": 2, \"abab\": 3, \"<0xC3>\": 4, \"<0xA9>\": 5, \"<0xFF>\": 6},"
    "\"merges\": [\"a b\", [\"ab\", \"ab\"]]}}";

static void encode(const plsh_tokenizer *tokenizer, const char *text, size_t length,
                   plsh_token_ids *ids) {
    plsh_error error;
    ids->count = 0;
    assert_ok(plsh_tokenizer_encode(tokenizer, text, length, false, ids, &error));
}

static void test_million_letters(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    plsh_tokenizer *tokenizer = parse(letters);
    char *text = malloc(N);
    for (size_t i = 0; i < N; i++) text[i] = "ab"[i % 2];
    plsh_token_ids ids = {0};
    encode(tokenizer, text, N, &ids);
    assert_int_equal(ids.count, N / 4);
    for (size_t i = 0; i < ids.count; i++) assert_int_equal(ids.ids[i], 3);
    free(text);
    plsh_token_ids_free(&ids);
    plsh_tokenizer_free(tokenizer);
}

static void test_broken_utf8(void **state) {
    (void)state;
    plsh_tokenizer *tokenizer = parse("{\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"u\","
                                      "\"vocab\": {\"u\": 0, \"a\": 1, \"##\xEF\xBF\xBD\": 2}}}");
    plsh_token_ids ids = {0};
    /* A lone byte, a character that is cut, an overlong one: 1 + 1 + 2 parts. */
    encode(tokenizer, "a\xFF\xE2\x82\xC0\x80", 6, &ids);
    assert_int_equal(ids.count, 5);
    for (size_t i = 1; i < 5; i++) assert_int_equal(ids.ids[i], 2);
    plsh_token_ids_free(&ids);
    plsh_tokenizer_free(tokenizer);
}

static void test_stream(void **state) {
    (void)state;
    plsh_tokenizer *tokenizer = parse(letters);
    plsh_token_stream *stream;
    plsh_token_text text = {0};
    plsh_error error;
    assert_ok(plsh_token_stream_create(&stream, tokenizer, true, &error));
    static const struct {
        int32_t id;
        const char *so_far;
    } steps[] = {{2, "ab"},   {4, "ab"},   {7, "ab"},  {5, "abé"},
                 {99, "abé"}, {0, "abéa"}, {4, "abéa"}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_ok(plsh_token_stream_next(stream, steps[i].id, &text, &error));
        assert_int_equal(text.length, strlen(steps[i].so_far));
        assert_memory_equal(text.bytes, steps[i].so_far, text.length);
    }
    assert_ok(plsh_token_stream_finish(stream, &text, &error));
    assert_string_equal(text.bytes, "abéa\xEF\xBF\xBD");
    plsh_token_text_free(&text);
    plsh_token_stream_free(stream);
    plsh_tokenizer_free(tokenizer);
}

/* A text that continues another one, with the decoder of SentencePiece models: the blank that
 * begins a text is stripped, the one between the prompt and what follows is not. */
static void test_stream_follow(void **state) {
    (void)state;
    static const char pieces[] =
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": true}],"
        "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\":"
        "{\"String\": \"\u2581\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\":"
        "\"Fuse\"}, {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]},"
        "\"model\": {\"type\": \"BPE\", \"vocab\": {\"<s>\": 0, \"\u2581was\": 1, \"\u2581a\": 2,"
        "\"\u2581little\": 3, \"s\": 4, \"<0xC3>\": 5, \"<0xA9>\": 6}, \"merges\": []}}";
    static const struct {
        int32_t prompt[3];
        size_t prompt_count;
        int32_t next[2];
        const char *text;
    } cases[] = {{{0, 1, 2}, 3, {3, 4}, " littles"}, {{0}, 1, {3, 4}, "littles"},
                 {{0}, 0, {3, 2}, "little a"},       {{1, 2, 0}, 3, {3, 4}, "littles"},
                 {{1, 2}, 2, {4, 3}, "s little"},    {{1, 2}, 2, {5, 6}, "\xC3\xA9"},
                 {{1, 5}, 2, {3, 4}, " littles"}};
    plsh_tokenizer *tokenizer = parse(pieces);
    plsh_token_stream *stream;
    plsh_error error;
    assert_ok(plsh_token_stream_create(&stream, tokenizer, true, &error));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plsh_token_text text = {0};
        assert_ok(plsh_token_stream_follow(stream, cases[i].prompt, cases[i].prompt_count, &error));
        for (size_t k = 0; k < 2; k++)
            assert_ok(plsh_token_stream_next(stream, cases[i].next[k], &text, &error));
        assert_ok(plsh_token_stream_finish(stream, &text, &error));
        assert_string_equal(text.bytes, cases[i].text);
        plsh_token_text_free(&text);
    }
    plsh_token_stream_free(stream);
    plsh_tokenizer_free(tokenizer);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"[]", "must be an object"},
        {"{}", "model: there is none"},
        {"{\"model\": {\"type\": \"Unigram\"}}", "model: \"Unigram\" is not supported"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": [], \"dropout\": 0.1}}",
         "\"dropout\""},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}",
         "\"a\" has no id"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}",
         "number 0"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}, \"normalizer\":"
         "{\"type\": \"Precompiled\"}}",
         "normalizer: \"Precompiled\""},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}, \"pre_tokenizer\":"
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Shuffle\"}]}}",
         "pre_tokenizer: \"Shuffle\""},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}, \"pre_tokenizer\":"
         "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a\"}, \"behavior\": \"Isolated\"}}",
         "a group without its )"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}, \"decoder\":"
         "{\"type\": \"CTC\"}}",
         "decoder: \"CTC\""},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}, \"post_processor\":"
         "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\"}}]}}",
         "lacks \"x\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plsh_error error;
        plsh_tokenizer *tokenizer;
        error.message[0] = '\0';
        assert_int_not_equal(plsh_tokenizer_parse(&tokenizer, cases[i].json, strlen(cases[i].json),
                                                  "x.json", &error),
                             PLSH_STATUS_OK);
        assert_null(tokenizer);
        test_message_holds(error.message, cases[i].message);
    }
}

/* A word without a token, and no token for that. */
static void test_no_unknown(void **state) {
    (void)state;
    plsh_error error;
    plsh_token_ids ids = {0};
    plsh_tokenizer *tokenizer =
        parse("{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}}}");
    assert_fails(plsh_tokenizer_encode(tokenizer, "b", 1, false, &ids, &error), PLSH_STATUS_FORMAT,
                 "[UNK]");
    assert_int_equal(ids.count, 0);
    plsh_token_ids_free(&ids);
    plsh_tokenizer_free(tokenizer);
}

/* Steps that each double what they get: a file of 2 kB may not ask for any memory. */
static char *repeat_part(const char *field, const char *list, int count) {
    static const char part[] =
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aa\"}";
    char *json = malloc(300 + (size_t)count * (sizeof part + 2));
    assert_non_null(json);
    size_t used = (size_t)sprintf(json, "{\"%s\": {\"type\": \"Sequence\", \"%s\": [", field, list);
    for (int i = 0; i < count; i++)
        used += (size_t)sprintf(json + used, "%s%s", i > 0 ? ", " : "", part);
    sprintf(json + used,
            "]}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}");
    return json;
}

static void test_growth(void **state) {
    (void)state;
    plsh_error error;
    plsh_token_ids ids = {0};
    plsh_token_text text = {0};
    for (int count = 8; count <= 64; count += 56) {
        char *json = repeat_part("normalizer", "normalizers", count);
        plsh_tokenizer *tokenizer = parse(json);
        if (count == 8)
            assert_ok(plsh_tokenizer_encode(tokenizer, "aaa", 3, false, &ids, &error));
        else
            assert_fails(plsh_tokenizer_encode(tokenizer, "aaa", 3, false, &ids, &error),
                         PLSH_STATUS_UNSUPPORTED, "more than 1792 bytes of a text of 3");
        plsh_tokenizer_free(tokenizer);
        free(json);
    }
    assert_int_equal(ids.count, 3 * 256);
    plsh_tokenizer *none;
    char *json = repeat_part("normalizer", "normalizers", 65);
    assert_fails(plsh_tokenizer_parse(&none, json, strlen(json), "x.json", &error),
                 PLSH_STATUS_UNSUPPORTED, "more than 64 normalizers");
    free(json);
    json = repeat_part("decoder", "decoders", 32);
    plsh_tokenizer *tokenizer = parse(json);
    assert_fails(plsh_tokenizer_decode(tokenizer, ids.ids, 2, false, &text, &error),
                 PLSH_STATUS_UNSUPPORTED, "more than 1536 bytes of tokens of 2");
    plsh_tokenizer_free(tokenizer);
    free(json);
    plsh_token_text_free(&text);
    plsh_token_ids_free(&ids);
}

static plsh_status whole_life(void *context, plsh_error *error) {
    (void)context;
    static const char json[] =
        "{\"added_tokens\": [{\"content\": \"<s>\", \"special\": true}], \"normalizer\":"
        "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Replace\","
        "\"pattern\": {\"String\": \"x\"}, \"content\": \"b\"}]}, \"pre_tokenizer\": {\"type\":"
        "\"ByteLevel\", \"add_prefix_space\": false}, \"decoder\": {\"type\": \"ByteLevel\"},"
        "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\":"
        "[\"a b\"]}}";
    plsh_tokenizer *tokenizer;
    plsh_token_ids ids = {0};
    plsh_token_text text = {0};
    plsh_status status = plsh_tokenizer_parse(&tokenizer, json, strlen(json), "x.json", error);
    if (status == PLSH_STATUS_OK)
        status = plsh_tokenizer_encode(tokenizer, "ax<s>e\xCC\x81 a\xFF", 12, true, &ids, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_tokenizer_decode(tokenizer, ids.ids, ids.count, false, &text, error);
    plsh_token_ids_free(&ids);
    plsh_token_text_free(&text);
    plsh_tokenizer_free(tokenizer);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    test_every_allocation(whole_life, NULL, 20);
}

/* One tokenizer, several threads: a mistake shows under the thread sanitizer. */
static void *encode_often(void *context) {
    plsh_token_ids ids = {0};
    for (int i = 0; i < 200; i++) {
        ids.count = 0;
        if (plsh_tokenizer_encode(context, "abab<s>abaabé", 14, true, &ids, NULL) !=
                PLSH_STATUS_OK ||
            ids.count != 7)
            return context;
    }
    plsh_token_ids_free(&ids);
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    plsh_tokenizer *tokenizer = parse(letters);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, tokenizer), 0);
    for (size_t i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    plsh_tokenizer_free(tokenizer);
}

/* ---- pairs ---- */

#define LETTERS                                                                                    \
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"<s>\": 2, \"</s>\": 3}, "    \
    "\"merges\": []}"

static void check_pair(const char *post, const int32_t *ids, const int32_t *types, size_t count,
                       size_t most) {
    char json[1024];
    plsh_error error;
    plsh_token_ids got = {0}, kinds = {0};
    snprintf(json, sizeof json, "{\"post_processor\": %s, " LETTERS "}", post);
    plsh_tokenizer *tokenizer = parse(json);
    const plsh_string first = {"ab", 2}, second = {"bba", 3};
    assert_ok(plsh_tokenizer_encode_pair(tokenizer, first, second, most, &got, &kinds, &error));
    assert_int_equal(got.count, count);
    assert_int_equal(kinds.count, count);
    assert_memory_equal(got.ids, ids, count * sizeof *ids);
    assert_memory_equal(kinds.ids, types, count * sizeof *types);
    assert_ok(plsh_tokenizer_encode_pair(tokenizer, first, second, most, &got, NULL, &error));
    assert_int_equal(got.count, 2 * count);
    plsh_token_ids_free(&got);
    plsh_token_ids_free(&kinds);
    plsh_tokenizer_free(tokenizer);
}

/* The templates of RoBERTa, of BERT, and one in full; the end of the second text is cut. */
static void test_pairs(void **unused) {
    (void)unused;
    static const char roberta[] = "{\"type\": \"RobertaProcessing\", \"sep\": [\"</s>\", 3], "
                                  "\"cls\": [\"<s>\", 2]}";
    static const char bert[] = "{\"type\": \"BertProcessing\", \"sep\": [\"</s>\", 3], "
                               "\"cls\": [\"<s>\", 2]}";
    static const char template[] =
        "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\", "
        "\"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}, "
        "{\"SpecialToken\": {\"id\": \"x\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", "
        "\"type_id\": 0}}], \"special_tokens\": {\"x\": {\"id\": \"x\", \"ids\": [3, 2], "
        "\"tokens\": [\"</s>\", \"<s>\"]}}}";
    check_pair(roberta, (int32_t[]){2, 0, 1, 3, 3, 1, 1, 0, 3}, (int32_t[9]){0}, 9, 0);
    check_pair(roberta, (int32_t[]){2, 0, 1, 3, 3, 1, 3}, (int32_t[7]){0}, 7, 7);
    check_pair(bert, (int32_t[]){2, 0, 1, 3, 1, 1, 0, 3}, (int32_t[]){0, 0, 0, 0, 1, 1, 1, 1}, 8,
               9);
    check_pair(template, (int32_t[]){1, 1, 0, 3, 2, 0, 1}, (int32_t[]){1, 1, 1, 0, 0, 0, 0}, 7, 0);
    plsh_tokenizer *none = parse("{" LETTERS "}");
    plsh_error error;
    plsh_token_ids ids = {0};
    const plsh_string text = {"ab", 2};
    assert_fails(plsh_tokenizer_encode_pair(none, text, text, 0, &ids, NULL, &error),
                 PLSH_STATUS_UNSUPPORTED, "no template for pairs");
    plsh_tokenizer_free(none);
    char json[512];
    snprintf(json, sizeof json, "{\"post_processor\": %s, " LETTERS "}", roberta);
    none = parse(json);
    assert_fails(plsh_tokenizer_encode_pair(none, text, text, 5, &ids, NULL, &error),
                 PLSH_STATUS_INVALID, "are 6 tokens; at most 5");
    assert_int_equal(ids.count, 0);
    plsh_token_ids_free(&ids);
    plsh_tokenizer_free(none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),          cmocka_unit_test(test_qwen3),
        cmocka_unit_test(test_mistral),       cmocka_unit_test(test_wikitext),
        cmocka_unit_test(test_smollm2),       cmocka_unit_test(test_minilm),
        cmocka_unit_test(test_frozen),        cmocka_unit_test(test_million_letters),
        cmocka_unit_test(test_broken_utf8),   cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_follow), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_unknown),    cmocka_unit_test(test_growth),
        cmocka_unit_test(test_memory),        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
