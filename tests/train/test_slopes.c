/* train: slopes of ALiBi that are learned: their gradients, what is written of them, resuming. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plsh/io.h"
#include "plsh/lm.h"
#include "support/support.h"
#include "support/tiny_model.h"
#include "support/train_cases.h"

enum { CONTEXT = 40, HEADS = 4, LAYERS = 2 };

static const char *model_path;

/* Exact heads, a sigma for each layer and head. */
typedef struct choice {
    plsh_head head[LAYERS * HEADS];
    plsh_layer_attention layer[LAYERS];
} choice;

static void make_choice(choice *c, const double *sigma, plsh_method method) {
    plsh_error error;
    for (int l = 0; l < LAYERS; l++) {
        plsh_head *head = c->head + l * HEADS;
        assert_ok(plsh_heads_alibi(HEADS, method, head, &error));
        for (int h = 0; h < HEADS; h++) {
            head[h].partition.decay = plsh_decay_alibi(sigma[l * HEADS + h]);
        }
        c->layer[l] = (plsh_layer_attention){.head = head, .head_count = HEADS};
    }
}

static const double sigmas[LAYERS * HEADS] = {1.5, 4, 9, 20, 2, 3, 11, 30};

static plsh_trainer *open_trainer(choice *c, const double *sigma, plsh_method method,
                                  plsh_train_options options) {
    plsh_trainer *t;
    plsh_error error;
    make_choice(c, sigma, method);
    options.context = CONTEXT;
    options.batch = 1;
    options.attention = c->layer;
    options.attention_count = LAYERS;
    assert_ok(plsh_trainer_create(&t, model_path, &options, &error));
    return t;
}

static double accumulate(plsh_trainer *t, int64_t step) {
    plsh_error error;
    int32_t ids[CONTEXT];
    double loss;
    train_case_ids(ids, 1, CONTEXT, step);
    assert_ok(plsh_trainer_accumulate(t, ids, CONTEXT, 1, &loss, &error));
    return loss;
}

static double loss_at(const double *sigma) {
    choice c;
    plsh_trainer *t = open_trainer(&c, sigma, PLSH_METHOD_DENSE, (plsh_train_options){0});
    double loss = accumulate(t, 0);
    plsh_trainer_destroy(t);
    return loss;
}

/* Against differences of the loss, whose float32 is good for 1e-6 or so: a step of 4 % in sigma. */
static void test_gradients(void **state) {
    (void)state;
    choice c;
    plsh_train_options learn = {.learn_slopes = true};
    plsh_trainer *t = open_trainer(&c, sigmas, PLSH_METHOD_EXACT, learn);
    accumulate(t, 0);
    plsh_trained slopes = plsh_trainer_at(t, 0);
    assert_string_equal(slopes.name, "log_slopes");
    assert_true(slopes.rows == LAYERS && slopes.columns == HEADS);
    double most = 0, off = 0;
    for (int i = 0; i < LAYERS * HEADS; i++) {
        double up[LAYERS * HEADS], down[LAYERS * HEADS], step = 0.04;
        memcpy(up, sigmas, sizeof(up));
        memcpy(down, sigmas, sizeof(down));
        up[i] *= exp(-step); /* a larger slope */
        down[i] *= exp(step);
        double expected = (loss_at(up) - loss_at(down)) / (2 * step);
        most = fmax(most, fabs(expected));
        off = fmax(off, fabs((double)slopes.gradient[i] - expected));
    }
    print_message("gradients up to %.3g, off by %.2g\n", most, off);
    assert_true(most > 1e-4); /* there is something to compare */
    assert_true(off < 0.01 * most + 1e-5);
    plsh_trainer_destroy(t);
}

static void take_steps(plsh_trainer *t, int64_t first, int64_t end) {
    plsh_error error;
    double norm;
    for (int64_t s = first; s < end; s++) {
        accumulate(t, s);
        plsh_update update = {.learning_rate = 1e-2, .weight_decay = 0.5, .clip = 1.0};
        assert_ok(plsh_trainer_update(t, &update, &norm, &error));
    }
}

/* The same bits for other threads, and after a checkpoint. */
static void check_resumed(plsh_method method, int64_t rank) {
    choice c[3];
    plsh_error error;
    char place[300];
    plsh_checkpoint at = {.step = 3, .window = 3};
    plsh_train_options learn = {.learn_slopes = true, .lora_rank = rank, .threads = 1};
    plsh_trainer *whole = open_trainer(&c[0], sigmas, method, learn);
    learn.threads = 2;
    plsh_trainer *other = open_trainer(&c[1], sigmas, method, learn);
    take_steps(whole, 0, 6);
    take_steps(other, 0, 3);
    assert_ok(plsh_checkpoint_save(other, &at, test_folder, &error));
    assert_ok(plsh_checkpoint_folder(test_folder, 3, place, sizeof(place), &error));
    plsh_trainer *resumed = open_trainer(&c[2], sigmas, method, learn);
    take_steps(resumed, 7, 10); /* as many steps, to other slopes */
    accumulate(resumed, 10);
    assert_ok(plsh_checkpoint_load(resumed, place, &at, &error));
    take_steps(other, 3, 6);
    take_steps(resumed, 3, 6);
    train_case_check_same(whole, other);
    train_case_check_same(whole, resumed);
    plsh_trainer_destroy(whole);
    plsh_trainer_destroy(other);
    plsh_trainer_destroy(resumed);
}

static void test_resumed(void **state) {
    (void)state;
    check_resumed(PLSH_METHOD_EXACT, 0);
    check_resumed(PLSH_METHOD_PLSH, 0);
    check_resumed(PLSH_METHOD_EXACT, 4);
}

static void check_reopened(const char *model, const char *adapter, const plsh_trainer *t) {
    plsh_model *reopened;
    plsh_error error;
    plsh_model_options options = {.adapter = adapter};
    assert_ok(plsh_model_open(&reopened, model, &options, &error));
    assert_true(plsh_model_describe(reopened).slopes_learned);
    plsh_trained learned = plsh_trainer_at(t, 0);
    double moved = 0;
    for (int i = 0; i < LAYERS * HEADS; i++) {
        double slope = plsh_model_slope(reopened, i / HEADS, i % HEADS);
        assert_true(fabs(slope / exp((double)learned.value[i]) - 1.0) < 1e-6);
        moved = fmax(moved, fabs(slope * sigmas[i] - 1.0));
    }
    assert_true(moved > 0.01); /* and weight decay alone did not do it, which would take all to 1 */
    plsh_head head[HEADS];
    assert_ok(plsh_model_heads(reopened, PLSH_METHOD_EXACT, 1, head, &error));
    double expected = exp(-(double)learned.value[HEADS + 2]);
    assert_true(fabs(head[2].partition.decay.a / expected - 1.0) < 1e-6);
    plsh_model_close(reopened);
}

/* A folder, and an adapter that is merged: slopes.npy goes along, but not into a GGUF. */
static void test_written(void **state) {
    (void)state;
    choice c;
    plsh_error error;
    char merged[300], gguf[300];
    plsh_train_options learn = {.learn_slopes = true};
    plsh_trainer *t = open_trainer(&c, sigmas, PLSH_METHOD_EXACT, learn);
    take_steps(t, 0, 4);
    assert_ok(plsh_trainer_save(t, test_folder, &error));
    check_reopened(test_folder, NULL, t);
    plsh_trainer_destroy(t);
    learn.lora_rank = 2;
    t = open_trainer(&c, sigmas, PLSH_METHOD_EXACT, learn);
    take_steps(t, 0, 4);
    assert_ok(plsh_trainer_save(t, test_folder, &error));
    check_reopened(model_path, test_folder, t);
    snprintf(merged, sizeof(merged), "%s/merged", test_folder);
    snprintf(gguf, sizeof(gguf), "%s/merged.gguf", test_folder);
    plsh_convert_options convert = {.model = model_path, .adapter = test_folder, .out = merged};
    assert_ok(plsh_convert(&convert, NULL, &error));
    check_reopened(merged, NULL, t);
    convert.out = gguf;
    assert_fails(plsh_convert(&convert, NULL, &error), PLSH_STATUS_UNSUPPORTED, "learned slopes");
    plsh_trainer_destroy(t);
}

static void test_refused(void **state) {
    (void)state;
    plsh_trainer *t;
    plsh_error error;
    plsh_model *model;
    choice c;
    char path[300];
    plsh_train_options learn = {.context = CONTEXT, .batch = 1, .learn_slopes = true};
    assert_fails(plsh_trainer_create(&t, model_path, &learn, &error), PLSH_STATUS_INVALID,
                 "no slopes to learn");
    make_choice(&c, sigmas, PLSH_METHOD_EXACT);
    c.head[5].partition.decay = (plsh_decay){.kind = PLSH_DECAY_TRIANGLE, .a = 8.0};
    learn.attention = c.layer;
    learn.attention_count = LAYERS;
    assert_fails(plsh_trainer_create(&t, model_path, &learn, &error), PLSH_STATUS_UNSUPPORTED,
                 "layer 1, head 1");
    const float bad[LAYERS * HEADS] = {1, 1, 1, -1};
    const int64_t shape[2] = {LAYERS, HEADS}, other[2] = {HEADS, LAYERS};
    plsh_model_options options = {.adapter = test_folder}; /* that of test_written */
    snprintf(path, sizeof(path), "%s/slopes.npy", test_folder);
    assert_ok(plsh_npy_write(path, PLSH_DTYPE_FLOAT32, 2, shape, bad, &error));
    assert_fails(plsh_model_open(&model, model_path, &options, &error), PLSH_STATUS_FORMAT,
                 "slope 3 is -1");
    assert_ok(plsh_npy_write(path, PLSH_DTYPE_FLOAT32, 2, other, bad, &error));
    assert_fails(plsh_model_open(&model, model_path, &options, &error), PLSH_STATUS_FORMAT,
                 "[2, 4]");
}

static int make_model(void **state) {
    model_path = tiny_llama();
    return test_folder_make(state);
}

static int remove_model(void **state) {
    tiny_model_remove(model_path);
    return test_folder_remove(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_resumed),
        cmocka_unit_test(test_written), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
