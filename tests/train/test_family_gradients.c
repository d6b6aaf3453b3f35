/* train: losses and gradients of the causal families outside transformers, and of Qwen2, against
 * references in float64, as `plsh forward --gradients` writes them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plsh/lm.h"
#include "support/support.h"
#include "support/tiny_model.h"

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
    for (int recompute = 0; recompute < 3; recompute++) {
        const plsh_train_options options = {.context = n,
                                            .batch = 1,
                                            .recompute = recompute > 0,
                                            .keep_attention = recompute > 1,
                                            .family = family};
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

/* Those of make_qwen2.py and make_mpt.py, with the losses that they print. */
static void test_own(void **state) {
    (void)state;
#define QWEN2 PLSH_TEST_FOLDER "/qwen2"
#define MPT PLSH_TEST_FOLDER "/mpt"
    check(QWEN2, NULL, QWEN2 "/input_ids.npy", QWEN2 "/grads.safetensors", 5.508082477);
    check(MPT, NULL, MPT "/input_ids.npy", MPT "/grads.safetensors", 4.119698476);
}

/* The loss of the first 40 tokens, which all of these vocabularies have. */
static double loss_of(plsh_trainer *trainer) {
    int32_t ids[40];
    double loss;
    plsh_error error;
    for (int i = 0; i < 40; i++) ids[i] = 7 * i % 50;
    assert_ok(plsh_trainer_accumulate(trainer, ids, 40, 1, &loss, &error));
    return loss;
}

static plsh_trainer *open_trainer(const char *folder) {
    const plsh_train_options options = {.context = 40, .batch = 1};
    plsh_trainer *trainer;
    plsh_error error;
    assert_ok(plsh_trainer_create(&trainer, folder, &options, &error));
    return trainer;
}

/* New weights of a configuration are trained for a step and saved: the folder has the same loss. */
static void check_saved(const char *config) {
    plsh_error error;
    double norm;
    assert_ok(plsh_train_initialise(config, 3, "family-fresh", &error));
    plsh_trainer *trainer = open_trainer("family-fresh");
    const double first = loss_of(trainer);
    const plsh_update update = {.learning_rate = 0.01};
    assert_ok(plsh_trainer_update(trainer, &update, &norm, &error));
    assert_int_equal(mkdir("family-saved", 0777), 0);
    assert_ok(plsh_trainer_save(trainer, "family-saved", &error));
    const double second = loss_of(trainer);
    plsh_trainer_destroy(trainer);
    trainer = open_trainer("family-saved");
    assert_true(loss_of(trainer) == second);
    print_message("%s: %.4f, then %.4f\n", config, first, second);
    assert_true(first < 8.0 && second < first);
    plsh_trainer_destroy(trainer);
    tiny_model_remove("family-fresh");
    tiny_model_remove("family-saved");
}

static void test_saved(void **state) {
    (void)state;
    static const char *const names[] = {"baichuan", "jais13", "btlm", "refact", "mpt_qkln_bias"};
    check_saved(QWEN2 "/config.json");
    check_saved(MPT "/config.json");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[200];
        snprintf(file, sizeof file, "golden/families/%s/config.json", names[i]);
        check_saved(test_shared(file));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_own), cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_saved)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
