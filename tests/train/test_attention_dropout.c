/* train: dropout of attention weights: its gradients, what it depends on, resuming. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/dropout.h"
#include "plsh/lm.h"
#include "support/support.h"
#include "support/tiny_model.h"
#include "support/train_cases.h"

enum { CONTEXT = 40, BATCH = 2 };

static const char *model_path;

static plsh_trainer *open_trainer(plsh_train_options options) {
    plsh_trainer *t;
    plsh_error error;
    options.context = CONTEXT;
    options.batch = BATCH;
    assert_ok(plsh_trainer_create(&t, model_path, &options, &error));
    return t;
}

/* The loss of `windows` windows, all of the same tokens. */
static double accumulate(plsh_trainer *t, int64_t windows) {
    plsh_error error;
    int32_t ids[BATCH * CONTEXT];
    double loss;
    train_case_ids(ids, windows, CONTEXT, 0);
    assert_ok(plsh_trainer_accumulate(t, ids, CONTEXT, windows, &loss, &error));
    return loss;
}

static double first_loss(plsh_train_options options, int64_t windows) {
    plsh_trainer *t = open_trainer(options);
    double loss = accumulate(t, windows);
    plsh_trainer_destroy(t);
    return loss;
}

/* ---- What it depends on ---------------------------------------------------------------------- */

static void assert_apart(double a, double b) {
    if (!(fabs(a - b) > 1e-4)) fail_msg("losses %.9g and %.9g", a, b);
}

/* None where a dropout of hidden states is given; another one for another seed, pass or window. */
static void test_depends(void **state) {
    (void)state;
    const plsh_train_options dropping = {.dropout = -1, .seed = 1}, none = {.seed = 1},
                             other = {.dropout = -1, .seed = 2};
    const double loss = first_loss(dropping, 1), without = first_loss(none, 1);
    assert_true(loss == first_loss(dropping, 1));
    assert_apart(loss, without);
    assert_apart(loss, first_loss(other, 1));
    assert_true(fabs(first_loss(none, 2) - without) < 1e-6);
    assert_apart(loss, first_loss(dropping, 2)); /* unless both windows lost the same */
    plsh_trainer *t = open_trainer(dropping);
    assert_true(accumulate(t, 1) == loss);
    assert_apart(accumulate(t, 1), loss);
    plsh_trainer_destroy(t);
}

/* Steps have seeds, and the heads of all layers numbers of their own. */
static void test_layers(void **state) {
    (void)state;
    const plsh_dropout dropout = {.weights = 0.1, .seed = 5, .step = 3, .group_first = 9};
    plsh_dropout later = dropout;
    later.step = 4;
    const plsh_attention_dropout first = plsh_dropout_of_weights(&dropout, 0, 4),
                                 second = plsh_dropout_of_weights(&dropout, 1, 4),
                                 next = plsh_dropout_of_weights(&later, 0, 4);
    assert_true(first.p == 0.1 && first.query == 9 && first.key == 9);
    assert_true(first.head == 0 && second.head == 4 && first.seed == second.seed);
    assert_true(next.seed != first.seed);
}

/* ---- Gradients ------------------------------------------------------------------------------- */

static void test_gradients(void **state) {
    (void)state;
    plsh_head head[4];
    plsh_error error;
    assert_ok(plsh_heads_alibi(4, PLSH_METHOD_PLSH, head, &error));
    plsh_layer_attention attention = {.head = head, .head_count = 4};
    plsh_train_options options = {.context = CONTEXT, .batch = BATCH, .dropout = -1, .seed = 3};
    train_case_check_gradients(model_path, &options);
    options.seed = 4;
    options.attention = &attention;
    options.attention_count = 1;
    options.recompute = true;
    train_case_check_gradients(model_path, &options);
}

/* ---- Resuming -------------------------------------------------------------------------------- */

static void take_steps(plsh_trainer *t, int64_t first, int64_t end) {
    plsh_error error;
    double norm;
    for (int64_t s = first; s < end; s++) {
        accumulate(t, BATCH);
        accumulate(t, BATCH);
        plsh_update update = {.learning_rate = 1e-2, .clip = 1.0, .accumulated = 2};
        assert_ok(plsh_trainer_update(t, &update, &norm, &error));
    }
}

/* The same bits for other threads, with recomputation, and after a checkpoint. */
static void test_resumed(void **state) {
    (void)state;
    plsh_error error;
    char place[300];
    plsh_checkpoint at = {.step = 2, .window = 8};
    plsh_train_options options = {.dropout = -1, .seed = 6, .threads = 1};
    plsh_trainer *whole = open_trainer(options);
    options.threads = 3;
    options.recompute = options.keep_attention = true;
    plsh_trainer *other = open_trainer(options), *resumed = open_trainer(options);
    take_steps(whole, 0, 4);
    take_steps(other, 0, 2);
    assert_ok(plsh_checkpoint_save(other, &at, test_folder, &error));
    assert_ok(plsh_checkpoint_folder(test_folder, 2, place, sizeof(place), &error));
    assert_ok(plsh_checkpoint_load(resumed, place, &at, &error));
    take_steps(other, 2, 4);
    take_steps(resumed, 2, 4);
    train_case_check_same(whole, other);
    train_case_check_same(whole, resumed);
    plsh_trainer_destroy(whole);
    plsh_trainer_destroy(other);
    plsh_trainer_destroy(resumed);
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void test_refused(void **state) {
    (void)state;
    static const double bad[] = {-0.1, 1.0, 7.0};
    plsh_error error;
    for (int i = 0; i < 3; i++) {
        const char *path = tiny_llama_dropping(bad[i]);
        plsh_train_options options = {.context = CONTEXT, .batch = 1, .dropout = -1};
        plsh_trainer *t;
        assert_fails(plsh_trainer_create(&t, path, &options, &error), PLSH_STATUS_INVALID,
                     "of attention weights; at least 0");
        options.dropout = 0;
        assert_ok(plsh_trainer_create(&t, path, &options, &error));
        plsh_trainer_destroy(t);
        tiny_model_remove(path);
    }
}

static int make_model(void **state) {
    model_path = tiny_llama_dropping(0.1);
    return test_folder_make(state);
}

static int remove_model(void **state) {
    tiny_model_remove(model_path);
    return test_folder_remove(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_depends),   cmocka_unit_test(test_layers),
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_resumed),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
