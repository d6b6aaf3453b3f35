/* model: products in fewer bits: what runs, how far it is off, and that threads do not matter. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plsh/lm.h"
#include "support/support.h"
#include "support/tiny_model.h"

enum { TOKENS = 40, VOCABULARY = 64 };

/* The tiny Llama as a GGUF of this type. Its rows of 48 values become f16. */
static void convert_to(const char *folder, plsh_weight_type type, const char *path) {
    plsh_error error;
    const plsh_convert_options options = {.model = folder, .type = type, .out = path};
    assert_ok(plsh_convert(&options, NULL, &error));
}

static plsh_model *open_as(const char *path, plsh_compute compute, int threads) {
    plsh_model *model;
    plsh_error error;
    const plsh_model_options options = {.threads = threads, .compute = compute};
    assert_ok(plsh_model_open(&model, path, &options, &error));
    return model;
}

/* The logits of the last token of a text that is read in chunks, then token by token. */
static void logits_of(const plsh_model *model, float *logits) {
    plsh_error error;
    plsh_session *session;
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = (i * 29 + 7) % VOCABULARY;
    assert_ok(plsh_session_create(&session, model, NULL, &error));
    assert_ok(plsh_session_step(session, &(plsh_step){.ids = ids, .count = TOKENS - 3}, &error));
    for (int i = TOKENS - 3; i < TOKENS; i++)
        assert_ok(plsh_session_step(
            session, &(plsh_step){.ids = ids + i, .count = 1, .logits = logits}, &error));
    plsh_session_destroy(session);
}

static double distance(const float *a, const float *b) {
    double off = 0.0, size = 0.0;
    for (int i = 0; i < VOCABULARY; i++) {
        off += pow((double)a[i] - (double)b[i], 2.0);
        size += pow((double)b[i], 2.0);
    }
    return sqrt(off / size);
}

static void check_type(const char *folder, plsh_weight_type type) {
    float plain[VOCABULARY], narrow[VOCABULARY], other[VOCABULARY];
    convert_to(folder, type, "tiny.gguf");
    plsh_model *model = open_as("tiny.gguf", PLSH_COMPUTE_FLOAT32, 1);
    assert_int_equal(plsh_model_describe(model).matrices, 15);
    assert_int_equal(plsh_model_describe(model).int8_matrices, 0);
    logits_of(model, plain);
    plsh_model_close(model);
    model = open_as("tiny.gguf", PLSH_COMPUTE_INT8, 1);
    assert_int_equal(plsh_model_describe(model).int8_matrices, 13); /* without `down` */
    logits_of(model, narrow);
    plsh_model_close(model);
    for (int threads = 1; threads <= 3; threads++) {
        model = open_as("tiny.gguf", PLSH_COMPUTE_AUTO, threads);
        logits_of(model, other);
        plsh_model_close(model);
        assert_memory_equal(narrow, other, sizeof other);
    }
    const double off = distance(narrow, plain);
    if (!(off > 0.0 && off < 0.03))
        fail_msg("%s: int8 is off by %g of the logits; 0 to 0.03", plsh_weight_type_name(type),
                 off);
    unlink("tiny.gguf");
}

static void test_types(void **unused) {
    (void)unused;
    const char *folder = tiny_llama();
    check_type(folder, PLSH_WEIGHT_Q8_0);
    check_type(folder, PLSH_WEIGHT_Q4_1);
    tiny_model_remove(folder);
}

/* Plain numbers: auto is float32, int8 is refused. */
static void test_plain(void **unused) {
    (void)unused;
    const char *folder = tiny_llama();
    float a[VOCABULARY], b[VOCABULARY];
    plsh_model *model = open_as(folder, PLSH_COMPUTE_AUTO, 2);
    assert_int_equal(plsh_model_describe(model).int8_matrices, 0);
    logits_of(model, a);
    plsh_model_close(model);
    model = open_as(folder, PLSH_COMPUTE_FLOAT32, 2);
    logits_of(model, b);
    plsh_model_close(model);
    assert_memory_equal(a, b, sizeof a);
    plsh_error error;
    plsh_model_options options = {.compute = PLSH_COMPUTE_INT8};
    assert_fails(plsh_model_open(&model, folder, &options, &error), PLSH_STATUS_UNSUPPORTED,
                 "int8 needs quantised weights");
    options.compute = (plsh_compute)99;
    assert_fails(plsh_model_open(&model, folder, &options, &error), PLSH_STATUS_INVALID,
                 "compute is 99");
    tiny_model_remove(folder);
}

/* bfloat16: of any type, for any number of threads, near float32, and it says so. */
static void check_bfloat(const char *path) {
    float plain[VOCABULARY], narrow[VOCABULARY], other[VOCABULARY];
    plsh_model *model = open_as(path, PLSH_COMPUTE_FLOAT32, 1);
    assert_false(plsh_model_describe(model).bfloat16);
    logits_of(model, plain);
    plsh_model_close(model);
    for (int threads = 1; threads <= 3; threads++) {
        model = open_as(path, PLSH_COMPUTE_BFLOAT16, threads);
        assert_true(plsh_model_describe(model).bfloat16);
        assert_int_equal(plsh_model_describe(model).int8_matrices, 0);
        logits_of(model, threads == 1 ? narrow : other);
        plsh_model_close(model);
        if (threads > 1) assert_memory_equal(narrow, other, sizeof other);
    }
    const double off = distance(narrow, plain);
    if (!(off > 1e-4 && off < 0.02))
        fail_msg("%s: bfloat16 is off by %g of the logits; 1e-4 to 0.02", path, off);
}

static void test_bfloat(void **unused) {
    (void)unused;
    const char *folder = tiny_llama();
    check_bfloat(folder);
    convert_to(folder, PLSH_WEIGHT_Q4_1, "tiny.gguf");
    check_bfloat("tiny.gguf");
    unlink("tiny.gguf");
    tiny_model_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_bfloat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
