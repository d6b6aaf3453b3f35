/* model: encoders with ALiBi and what follows their layers, against the reference data. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plsh/lm.h"
#include "support/support.h"

/* Of the reference data, for hidden states and logits in float32. */
static const double limit = 5e-5;

static plsh_npy array_of(const char *folder, const char *name) {
    char file[160];
    snprintf(file, sizeof file, "golden/families/%s/%s.npy", folder, name);
    return test_shared_npy(file);
}

static plsh_model *open_file(const char *folder, const char *name) {
    char file[160];
    plsh_model *model;
    plsh_error error;
    snprintf(file, sizeof file, "golden/families/%s/%s", folder, name);
    assert_ok(plsh_model_open(&model, test_shared(file), NULL, &error));
    return model;
}

static double number_at(const plsh_npy *array, size_t i) {
    return array->type == PLSH_DTYPE_FLOAT64 ? ((const double *)array->data)[i]
                                             : (double)((const float *)array->data)[i];
}

static void compare(const char *folder, const char *name, const float *got) {
    plsh_npy expected = array_of(folder, name);
    double most = 0;
    for (size_t i = 0; i < expected.count; i++) {
        const double e = fabs((double)got[i] - number_at(&expected, i));
        if (!(e <= most)) most = e;
    }
    print_message("%-14s %-24s error %.2g, limit %.2g\n", folder, name, most, limit);
    assert_true(most <= limit);
    plsh_npy_free(&expected);
}

static float *make_floats(int64_t count) {
    float *floats = malloc((size_t)count * sizeof *floats);
    assert_non_null(floats);
    return floats;
}

/* The last hidden states of input_ids; the caller frees them. */
static float *encode(const plsh_model *model, const char *folder, int64_t *count) {
    plsh_error error;
    plsh_npy ids = array_of(folder, "input_ids");
    *count = (int64_t)ids.count;
    float *hidden = make_floats(*count * plsh_model_describe(model).hidden);
    plsh_encoding encoding = {.ids = ids.data, .count = *count, .hidden = hidden};
    assert_ok(plsh_model_encode(model, &encoding, &error));
    plsh_npy_free(&ids);
    return hidden;
}

/* Texts of 53, 39 and 9 tokens, packed; the reference has rows of zeros where it pads them. */
static void check_batch(const plsh_model *model, const char *folder, bool classifier) {
    plsh_error error;
    plsh_npy ids = array_of(folder, "batch_ids"), mask = array_of(folder, "batch_mask");
    plsh_npy expected = array_of(folder, "batch_last_hidden_state");
    const int64_t width = plsh_model_describe(model).hidden, n = ids.shape[1];
    int64_t offsets[4] = {0};
    int32_t packed[3 * 53];
    assert_true(ids.count <= sizeof packed / sizeof *packed);
    for (int64_t t = 0; t < 3; t++) {
        offsets[t + 1] = offsets[t];
        for (int64_t i = 0; i < n; i++)
            if (((const int32_t *)mask.data)[t * n + i])
                packed[offsets[t + 1]++] = ((const int32_t *)ids.data)[t * n + i];
    }
    float *hidden = make_floats(offsets[3] * width), logits[9];
    plsh_encoding encoding = {
        .ids = packed, .offsets = offsets, .sequences = 3, .count = offsets[3], .hidden = hidden};
    assert_ok(plsh_model_encode(model, &encoding, &error));
    double most = 0;
    for (int64_t t = 0; t < 3; t++)
        for (int64_t i = 0; i < (offsets[t + 1] - offsets[t]) * width; i++)
            most = fmax(most, fabs((double)hidden[offsets[t] * width + i] -
                                   number_at(&expected, (size_t)(t * n * width + i))));
    print_message("%-14s packed %.2g\n", folder, most);
    assert_true(most <= limit);
    for (int64_t t = 0; classifier && t < 3; t++)
        assert_ok(plsh_model_classify(model, hidden + offsets[t] * width, logits + 3 * t, &error));
    if (classifier) compare(folder, "batch_logits", logits);
    free(hidden);
    plsh_npy_free(&ids);
    plsh_npy_free(&mask);
    plsh_npy_free(&expected);
}

static void check_masked(const char *file) {
    static const char folder[] = "dnabert2_mlm";
    plsh_error error;
    int64_t n;
    plsh_model *model = open_file(folder, file);
    const plsh_model_facts facts = plsh_model_describe(model);
    assert_string_equal(facts.family, "MosaicBERT");
    assert_true(facts.masked && facts.labels == 0 && facts.alibi && !facts.causal);
    float *hidden = encode(model, folder, &n), *logits = make_floats(n * facts.vocabulary);
    compare(folder, "last_hidden_state", hidden);
    assert_ok(plsh_model_token_logits(model, hidden, n, logits, &error));
    compare(folder, "logits", logits);
    check_batch(model, folder, false);
    assert_fails(plsh_model_classify(model, hidden, logits, &error), PLSH_STATUS_UNSUPPORTED,
                 "no classifier");
    free(hidden);
    free(logits);
    plsh_model_close(model);
}

static void check_classifier(const char *file) {
    static const char folder[] = "dnabert2_cls";
    plsh_error error;
    int64_t n;
    plsh_model *model = open_file(folder, file);
    const plsh_model_facts facts = plsh_model_describe(model);
    assert_true(!facts.masked && facts.labels == 3);
    assert_string_equal(plsh_model_label(model, 2), "LABEL_2");
    assert_null(plsh_model_label(model, 3));
    assert_int_equal(plsh_model_problem(model), PLSH_PROBLEM_SINGLE_LABEL);
    float *hidden = encode(model, folder, &n), logits[3];
    compare(folder, "last_hidden_state", hidden);
    assert_ok(plsh_model_classify(model, hidden, logits, &error));
    compare(folder, "logits", logits);
    check_batch(model, folder, true);
    assert_fails(plsh_model_token_logits(model, hidden, 1, logits, &error), PLSH_STATUS_UNSUPPORTED,
                 "no masked-LM head");
    free(hidden);
    plsh_model_close(model);
}

/* Both forms of the files. */
static void test_mosaic(void **unused) {
    (void)unused;
    check_masked("model.safetensors");
    check_masked("pytorch_model.bin");
    check_classifier("model.safetensors");
    check_classifier("pytorch_model.bin");
}

static void test_jina_code(void **unused) {
    (void)unused;
    int64_t n;
    plsh_model *model = open_file("jina_code", "model.safetensors");
    assert_string_equal(plsh_model_describe(model).family, "JinaBERT code");
    float *hidden = encode(model, "jina_code", &n);
    compare("jina_code", "last_hidden_state", hidden);
    plsh_sentence *sentence;
    plsh_error error;
    float *row = make_floats(plsh_model_describe(model).hidden);
    assert_ok(plsh_sentence_open(&sentence, model, PLSH_POOLING_COUNT, &error));
    assert_ok(plsh_sentence_row(sentence, hidden, n, PLSH_NORMALISE_AS_ASKED, row, &error));
    compare("jina_code", "embedding", row);
    plsh_sentence_close(sentence);
    free(row);
    free(hidden);
    plsh_model_close(model);
}

static void test_jina_reranker(void **unused) {
    (void)unused;
    int64_t n;
    plsh_error error;
    plsh_model *model = open_file("jina_reranker", "model.safetensors");
    const plsh_model_facts facts = plsh_model_describe(model);
    assert_string_equal(facts.family, "JinaBERT");
    assert_int_equal(facts.labels, 1);
    assert_int_equal(plsh_model_problem(model), PLSH_PROBLEM_REGRESSION);
    float *hidden = encode(model, "jina_reranker", &n), score;
    compare("jina_reranker", "last_hidden_state", hidden);
    assert_ok(plsh_model_classify(model, hidden, &score, &error));
    compare("jina_reranker", "logits", &score);
    free(hidden);
    plsh_model_close(model);
}

/* Types of tokens: 0 is what there is without them; every token has its own. */
static void test_types(void **unused) {
    (void)unused;
    plsh_error error;
    plsh_model *model = open_file("jina_reranker", "model.safetensors");
    const int64_t width = plsh_model_describe(model).hidden;
    const int32_t ids[3] = {0, 7, 2}, none[3] = {0}, last[3] = {0, 0, 1}, wrong[3] = {0, 2, 0};
    float *rows[3];
    const int32_t *const types[3] = {NULL, none, last};
    for (int i = 0; i < 3; i++) {
        rows[i] = make_floats(3 * width);
        plsh_encoding e = {.ids = ids, .types = types[i], .count = 3, .hidden = rows[i]};
        assert_ok(plsh_model_encode(model, &e, &error));
    }
    assert_memory_equal(rows[0], rows[1], (size_t)(3 * width) * sizeof(float));
    assert_memory_not_equal(rows[0], rows[2], (size_t)(3 * width) * sizeof(float));
    plsh_encoding refused = {.ids = ids, .types = wrong, .count = 3, .hidden = rows[0]};
    assert_fails(plsh_model_encode(model, &refused, &error), PLSH_STATUS_INVALID,
                 "token 1 is of type 2; this model has 2 types");
    for (int i = 0; i < 3; i++) free(rows[i]);
    plsh_model_close(model);
}

/* The same bits for any number of threads. */
static void test_threads(void **unused) {
    (void)unused;
    static const char *const folders[] = {"dnabert2_mlm", "jina_code"};
    for (int i = 0; i < 2; i++) {
        char file[160];
        plsh_model *model;
        plsh_error error;
        int64_t n, again;
        plsh_model *first = open_file(folders[i], "model.safetensors");
        float *one = encode(first, folders[i], &n);
        snprintf(file, sizeof file, "golden/families/%s/model.safetensors", folders[i]);
        const plsh_model_options options = {.threads = 3};
        assert_ok(plsh_model_open(&model, test_shared(file), &options, &error));
        float *three = encode(model, folders[i], &again);
        assert_memory_equal(one, three,
                            (size_t)(n * plsh_model_describe(model).hidden) * sizeof(float));
        free(one);
        free(three);
        plsh_model_close(first);
        plsh_model_close(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mosaic), cmocka_unit_test(test_jina_code),
        cmocka_unit_test(test_jina_reranker), cmocka_unit_test(test_types),
        cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests_name("encoders", tests, NULL, NULL);
}
