/* train: losses and gradients of the causal families outside transformers, and of Qwen2, against
 * references in float64, as `plsh forward --gradients` writes them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plsh/lm.h"
#include "support/support.h"

/* The limits of the reference data: gradients relative to the largest of a tensor. */
static const double limit = 1e-5, loss_limit = 5e-6;

static double worst_of(const char *file, const char *reference) {
    plsh_weights *got, *expected;
    plsh_error error;
    double worst = 0;
    assert_ok(plsh_weights_open(&got, file, &error));
    assert_ok(plsh_weights_open(&expected, reference, &error));
    assert_int_equal(plsh_weights_count(got), plsh_weights_count(expected));
    for (size_t i = 0; i < plsh_weights_count(expected); i++) {
        const plsh_tensor *a = plsh_weights_at(expected, i), *b = plsh_weights_find(got, a->name);
        if (!b) fail_msg("%s has no gradient", a->name);
        assert_int_equal(a->rank, b->rank);
        assert_memory_equal(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape);
        const float *x = a->data, *y = b->data;
        double most = 0, off = 0;
        for (size_t k = 0; k < a->size / sizeof(float); k++) {
            most = fmax(most, fabs((double)x[k]));
            off = fmax(off, fabs((double)x[k] - (double)y[k]));
        }
        /* A constant added to all keys changes nothing: the reference is rounding noise. */
        if (most < 1e-12) {
            assert_true(off < 1e-7);
            continue;
        }
        if (!(off <= limit * most)) print_message("%s: %g of %g\n", a->name, off, most);
        worst = fmax(worst, off / most);
    }
    plsh_weights_close(got);
    plsh_weights_close(expected);
    return worst;
}

static void check(const char *folder, const char *family, const char *ids_file, const char *grads,
                  double expected) {
    plsh_error error;
    plsh_npy ids;
    assert_ok(plsh_npy_read(ids_file, &ids, &error));
    const int64_t n = (int64_t)ids.count;
    for (int recompute = 0; recompute < 2; recompute++) {
        const plsh_train_options options = {
            .context = n, .batch = 1, .recompute = recompute, .family = family};
        plsh_trainer *trainer;
        double loss;
        assert_ok(plsh_trainer_create(&trainer, folder, &options, &error));
        assert_ok(plsh_trainer_accumulate(trainer, ids.data, n, 1, &loss, &error));
        assert_ok(plsh_trainer_save_gradients(trainer, "family-grads.safetensors", &error));
        const double worst = worst_of("family-grads.safetensors", grads);
        print_message("%-40s loss %.7g (%.7g), gradients %.2g\n", folder, loss, expected, worst);
        assert_true(fabs(loss - expected) <= loss_limit);
        assert_true(worst <= limit);
        plsh_trainer_destroy(trainer);
    }
    unlink("family-grads.safetensors");
    plsh_npy_free(&ids);
}

/* The first number behind "loss" in loss.json. */
static double read_loss(const char *path) {
    char text[2048];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *at = strstr(text, "\"loss\":");
    assert_non_null(at);
    return strtod(at + 7, NULL);
}

static void test_goldens(void **state) {
    (void)state;
    static const char *const names[] = {"baichuan",        "baichuan2", "jais13",
                                        "jais_mup",        "btlm",      "refact",
                                        "mpt_storywriter", "mpt_gqa",   "mpt_qkln_bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        static const char *const files[] = {"config.json", "input_ids.npy", "grads.safetensors",
                                            "loss.json"};
        char path[4][1024];
        for (int f = 0; f < 4; f++) {
            char relative[200];
            snprintf(relative, sizeof relative, "golden/families/%s/%s", names[i], files[f]);
            snprintf(path[f], sizeof path[f], "%s", test_shared(relative));
        }
        *strrchr(path[0], '/') = '\0';
        check(path[0], strcmp(names[i], "baichuan2") == 0 ? "baichuan2-13b" : NULL, path[1],
              path[2], read_loss(path[3]));
    }
}

static void test_qwen2(void **state) {
    (void)state;
#define QWEN2 PLSH_TEST_FOLDER "/qwen2"
    check(QWEN2, NULL, QWEN2 "/input_ids.npy", QWEN2 "/grads.safetensors", 5.508082477);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_qwen2),
                                       cmocka_unit_test(test_goldens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
