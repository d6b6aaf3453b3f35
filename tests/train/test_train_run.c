/* train: runs: the steps of a hand-written loop, resuming, refusals, skipped steps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plsh/lm.h"
#include "support/support.h"
#include "support/thread_ranks.h"
#include "support/tiny_model.h"
#include "support/train_cases.h"

enum { CONTEXT = 8, BATCH = 2, MICRO_BATCHES = 2, STEPS = 8 };

static const char *model;
static plsh_corpus *corpus;

static const char tokenizer[] =
    "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": "
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
    "\"use_regex\": true}, \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"}, "
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"\\u0120\": 3, "
    "\"\\u010a\": 4}, \"merges\": []}}";

/* Words of a, b and c that do not repeat soon; `name` is the text, and its tokens are beside it. */
static plsh_corpus *make_corpus(const char *name, unsigned seed, size_t length) {
    char text[1000] = "", tokens[64];
    plsh_corpus *made;
    plsh_error error;
    for (size_t i = 0; i < length; i++) {
        seed = seed * 1103515245u + 12345u;
        text[i] = "abc "[seed >> 16 & 3];
    }
    test_write(name, text);
    snprintf(tokens, sizeof(tokens), "%s.tokens", name);
    plsh_corpus_options options = {.text = test_path(name),
                                   .tokenizer = test_path("tokenizer.json"),
                                   .tokens = test_path(tokens)};
    assert_ok(plsh_corpus_open(&made, &options, &error));
    return made;
}

static plsh_trainer *make_trainer(const plsh_ranks *ranks) {
    plsh_trainer *trainer;
    plsh_error error;
    plsh_train_options options = {.context = CONTEXT,
                                  .batch = BATCH,
                                  .seed = 3,
                                  .dropout = 0.1,
                                  .micro_batches = MICRO_BATCHES,
                                  .ranks = ranks};
    assert_ok(plsh_trainer_create(&trainer, model, &options, &error));
    return trainer;
}

static const char *run_folder(const char *name) {
    plsh_error error;
    const char *path = test_path(name);
    assert_ok(plsh_folder_make(path, NULL, &error));
    return path;
}

static const plsh_schedule schedule = {
    .shape = PLSH_SCHEDULE_COSINE, .peak = 1e-2, .warmup = 2, .steps = STEPS};
static const plsh_update every_update = {.weight_decay = 0.01, .clip = 1.0};

static plsh_train_run_options options_in(const char *name) {
    return (plsh_train_run_options){.folder = run_folder(name),
                                    .schedule = schedule,
                                    .update = every_update,
                                    .checkpoint_every = 2};
}

static plsh_train_run *open_run(plsh_trainer *trainer, const plsh_train_run_options *options) {
    plsh_train_run *run;
    plsh_error error;
    assert_ok(plsh_train_run_open(&run, trainer, corpus, options, &error));
    return run;
}

/* A step of this kind. */
static plsh_train_step take_step(plsh_train_run *run, plsh_train_step_kind kind) {
    plsh_train_step step;
    plsh_error error;
    assert_ok(plsh_train_run_next(run, &step, &error));
    assert_int_equal(step.kind, kind);
    return step;
}

/* The loss is not finite as long as a weight is not. */
static plsh_status poisoned_step(plsh_train_run *run, plsh_trainer *trainer, plsh_train_step *step,
                                 plsh_error *error) {
    float *value = plsh_trainer_at(trainer, 0).value;
    const float before = *value;
    *value = NAN;
    plsh_status status = plsh_train_run_next(run, step, error);
    *value = before;
    return status;
}

static bool has_checkpoint(const char *name, int64_t step) {
    return plsh_checkpoint_last(test_path(name), step + 1) == step;
}

/* ---- Steps ---- */

/* Step number `s` as a loop by hand makes it. */
static void step_by_hand(plsh_trainer *trainer, int64_t s, double *loss, double *norm) {
    plsh_update update = every_update;
    plsh_error error;
    *loss = 0;
    for (int64_t a = 0; a < MICRO_BATCHES; a++) {
        int32_t ids[BATCH * CONTEXT];
        double one;
        plsh_corpus_windows(corpus, CONTEXT, (s * MICRO_BATCHES + a) * BATCH, BATCH, ids);
        assert_ok(plsh_trainer_accumulate(trainer, ids, CONTEXT, BATCH, &one, &error));
        *loss += one / MICRO_BATCHES;
    }
    update.learning_rate = plsh_schedule_rate(&schedule, s);
    update.accumulated = MICRO_BATCHES;
    assert_ok(plsh_trainer_update(trainer, &update, norm, &error));
}

static void test_same_as_by_hand(void **state) {
    (void)state;
    plsh_trainer *hand = make_trainer(NULL), *trainer = make_trainer(NULL);
    const plsh_train_run_options options = options_in("whole");
    plsh_train_run *run = open_run(trainer, &options);
    plsh_error error;
    for (int64_t s = 0; s < STEPS; s++) {
        double loss, norm;
        step_by_hand(hand, s, &loss, &norm);
        plsh_train_step step = take_step(run, PLSH_TRAIN_DONE);
        assert_true(step.loss == loss && step.norm == norm);
        assert_true(step.rate == plsh_schedule_rate(&options.schedule, s));
        assert_true(step.number == s + 1 &&
                    step.tokens == (s + 1) * BATCH * MICRO_BATCHES * CONTEXT);
        assert_true(plsh_train_run_is_due(run) == (s == 1 || s == 3 || s == 5));
    }
    train_case_check_same(hand, trainer);
    take_step(run, PLSH_TRAIN_FINISHED);
    assert_int_equal(plsh_train_run_saved(run), 6);
    assert_ok(plsh_train_run_save(run, 99, &error));
    assert_true(has_checkpoint("whole", 8) && has_checkpoint("whole", 6));
    assert_int_equal(plsh_checkpoint_last(test_path("whole"), 6), -1); /* two are kept */
    plsh_train_run_close(run);
    plsh_trainer_destroy(trainer);
    plsh_trainer_destroy(hand);
}

/* ---- Resuming ---- */

static void finish_by_run(plsh_trainer *trainer, const plsh_train_run_options *options,
                          const char *from, const char *expected) {
    plsh_train_run *run = open_run(trainer, options);
    plsh_train_resumed found;
    plsh_error error;
    assert_ok(plsh_train_run_resume(run, from, &found, &error));
    assert_string_equal(found.folder, expected);
    for (int64_t s = plsh_train_run_state(run)->step; s < STEPS; s++) {
        take_step(run, PLSH_TRAIN_DONE);
    }
    take_step(run, PLSH_TRAIN_FINISHED);
    plsh_train_run_close(run);
}

static void test_resume(void **state) {
    (void)state;
    plsh_trainer *hand = make_trainer(NULL);
    plsh_train_run_options options = options_in("parts");
    for (int64_t s = 0; s < STEPS; s++) {
        double loss, norm;
        step_by_hand(hand, s, &loss, &norm);
    }
    plsh_trainer *trainer = make_trainer(NULL);
    plsh_train_run *run = open_run(trainer, &options);
    for (int64_t s = 0; s < 5; s++) take_step(run, PLSH_TRAIN_DONE);
    plsh_train_run_close(run); /* the fifth step is in no checkpoint */
    plsh_trainer_destroy(trainer);
    const char *first = test_path("parts/checkpoint-00000002");
    const char *expected[] = {test_path("parts/checkpoint-00000004"), first, ""};
    options.keep = 9;
    for (int i = 0; i < 3; i++) { /* the newest one, one that is asked for, and none is there */
        trainer = make_trainer(NULL);
        finish_by_run(trainer, &options, i == 1 ? first : NULL, expected[i]);
        train_case_check_same(hand, trainer);
        plsh_trainer_destroy(trainer);
        options.folder = run_folder(i == 0 ? "from" : "empty");
    }
    plsh_trainer_destroy(hand);
}

static void test_damaged_is_passed_over(void **state) {
    (void)state;
    plsh_trainer *trainer = make_trainer(NULL);
    plsh_train_run_options options = options_in("damaged");
    plsh_train_run *run = open_run(trainer, &options);
    plsh_train_resumed found;
    plsh_error error;
    for (int64_t s = 0; s < 5; s++) take_step(run, PLSH_TRAIN_DONE);
    plsh_train_run_close(run);
    test_write("damaged/checkpoint-00000004/config.json", "{}");
    run = open_run(trainer, &options);
    assert_ok(plsh_train_run_resume(run, NULL, &found, &error));
    test_message_holds(found.damage.message, "config.json: damaged");
    assert_int_equal(plsh_train_run_state(run)->step, 2);
    plsh_train_run_close(run);
    plsh_trainer_destroy(trainer);
}

/* ---- What is refused ---- */

static void check_refused(const plsh_train_run_options *options, const plsh_corpus *text,
                          bool settings_differ, const char *message) {
    plsh_trainer *trainer = make_trainer(NULL), *untouched = make_trainer(NULL);
    plsh_train_run *run;
    plsh_train_resumed found;
    plsh_error error;
    assert_ok(plsh_train_run_open(&run, trainer, text, options, &error));
    assert_true(plsh_train_run_resume(run, NULL, &found, &error) != PLSH_STATUS_OK);
    test_message_holds(error.message, message);
    assert_int_equal(found.settings_differ, settings_differ);
    assert_int_equal(plsh_train_run_state(run)->step, 0);
    train_case_check_same(untouched, trainer);
    plsh_train_run_close(run);
    plsh_trainer_destroy(trainer);
    plsh_trainer_destroy(untouched);
}

static void test_other_settings(void **state) {
    (void)state;
    plsh_trainer *trainer = make_trainer(NULL);
    plsh_train_setting settings[] = {{.name = "labels", .file = test_path("labels"), .shown = "L"},
                                     {.name = "unused"},
                                     {.name = "lr", .value = "0.1"},
                                     {.name = "order", .value = "a b=c"}};
    plsh_train_run_options options = options_in("settings");
    options.settings = settings;
    options.setting_count = sizeof(settings) / sizeof(*settings);
    test_write("labels", "one");
    test_write("copy", "one");
    test_write("other", "two");
    plsh_train_run *run = open_run(trainer, &options);
    for (int64_t s = 0; s < 3; s++) take_step(run, PLSH_TRAIN_DONE);
    plsh_train_run_close(run);
    settings[2].value = "0.2";
    check_refused(&options, corpus, true, "was made with lr=0.1, which is now lr=0.2");
    settings[2].value = "0.1";
    settings[0].file = test_path("other");
    check_refused(&options, corpus, false, "was made with another L: its content has changed");
    settings[0].file = test_path("copy"); /* by its content, not by its name */
    options.schedule.steps = 1;
    check_refused(&options, corpus, false, "damaged: step 2 and window 8; this run has 1 steps");
    options.schedule.steps = STEPS;
    plsh_corpus *text = make_corpus("another", 5, 400);
    check_refused(&options, text, false, "was made with another text: its content has changed");
    plsh_corpus_close(text);
    finish_by_run(trainer, &options, NULL, test_path("settings/checkpoint-00000002"));
    plsh_trainer_destroy(trainer);
}

static void check_not_opened(const plsh_train_run_options *options, const plsh_corpus *text,
                             plsh_status status, const char *message) {
    plsh_trainer *trainer = make_trainer(NULL);
    plsh_train_run *run;
    plsh_error error;
    assert_fails(plsh_train_run_open(&run, trainer, text, options, &error), status, message);
    assert_null(run);
    plsh_trainer_destroy(trainer);
}

static void test_refused_options(void **state) {
    (void)state;
    static char words[5000];
    const plsh_train_run_options good = options_in("refused");
    plsh_train_run_options o = good;
    plsh_train_setting setting = {.name = "long", .value = words};
    memset(words, 'x', sizeof(words) - 1);
    o.settings = &setting;
    o.setting_count = 1;
    check_not_opened(&o, corpus, PLSH_STATUS_INVALID, "too long to be written down");
    setting = (plsh_train_setting){.name = "gone", .file = "nowhere"};
    check_not_opened(&o, corpus, PLSH_STATUS_IO, "nowhere");
    o = good;
    o.schedule.steps = 0;
    check_not_opened(&o, corpus, PLSH_STATUS_INVALID, "a run of 0 steps");
    o.schedule.steps = INT64_MAX / 8;
    check_not_opened(&o, corpus, PLSH_STATUS_OVERFLOW, "more than 2^63 tokens");
    o = good;
    o.folder = NULL;
    check_not_opened(&o, corpus, PLSH_STATUS_INVALID, "needs a folder");
    plsh_corpus *text = make_corpus("short", 1, CONTEXT - 1);
    check_not_opened(&good, text, PLSH_STATUS_INVALID, "7 tokens fill no window of 8");
    plsh_corpus_close(text);
}

static plsh_status open_and_close(void *context, plsh_error *error) {
    const plsh_train_setting setting = {.name = "labels", .file = test_path("tokenizer.json")};
    plsh_train_run_options options = {
        .folder = test_folder, .schedule = schedule, .settings = &setting, .setting_count = 1};
    plsh_train_run *run;
    plsh_status status = plsh_train_run_open(&run, context, corpus, &options, error);
    plsh_train_run_close(run);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    plsh_trainer *trainer = make_trainer(NULL);
    test_every_allocation(open_and_close, trainer, 2);
    plsh_trainer_destroy(trainer);
}

/* ---- Steps that are not finite ---- */

/* It changes no weight, and its windows count: the steps after it are those of a loop that leaves
 * it out. Its number is even: its checkpoint is not due. */
static void test_skipped(void **state) {
    (void)state;
    plsh_trainer *hand = make_trainer(NULL), *trainer = make_trainer(NULL);
    plsh_train_run_options options = options_in("skipped");
    plsh_train_run *run = open_run(trainer, &options);
    const plsh_checkpoint *now = plsh_train_run_state(run);
    plsh_error error;
    for (int64_t s = 0; s < STEPS; s++) {
        double loss, norm;
        plsh_train_step step;
        if (s != 3) {
            step_by_hand(hand, s, &loss, &norm);
            assert_true(take_step(run, PLSH_TRAIN_DONE).loss == loss);
            assert_int_equal(now->in_a_row, 0);
            continue;
        }
        assert_ok(poisoned_step(run, trainer, &step, &error));
        assert_int_equal(step.kind, PLSH_TRAIN_SKIPPED);
        assert_int_equal(step.number, 4);
        test_message_holds(step.reason, "the loss is nan");
        assert_true(now->skipped == 1 && now->in_a_row == 1 && now->window == 16);
        assert_false(plsh_train_run_is_due(run));
    }
    take_step(run, PLSH_TRAIN_FINISHED);
    train_case_check_same(hand, trainer);
    assert_true(has_checkpoint("skipped", 2) && has_checkpoint("skipped", 6));
    assert_int_equal(plsh_checkpoint_last(test_path("skipped"), 6), 2);
    plsh_train_run_close(run);
    plsh_trainer_destroy(trainer);
    plsh_trainer_destroy(hand);
}

/* Steps in a row are counted, over a stop too, and from the beginning after one that was finite. */
static void test_patience(void **state) {
    (void)state;
    plsh_trainer *trainer = make_trainer(NULL);
    plsh_train_run_options options = options_in("patience");
    plsh_train_step step;
    plsh_train_resumed found;
    plsh_error error;
    options.patience = 2;
    plsh_train_run *run = open_run(trainer, &options);
    assert_ok(poisoned_step(run, trainer, &step, &error));
    take_step(run, PLSH_TRAIN_DONE);
    assert_ok(poisoned_step(run, trainer, &step, &error));
    assert_ok(plsh_train_run_save(run, 0, &error));
    plsh_train_run_close(run);
    run = open_run(trainer, &options);
    assert_ok(plsh_train_run_resume(run, NULL, &found, &error));
    assert_fails(poisoned_step(run, trainer, &step, &error), PLSH_STATUS_NOT_FINITE,
                 "2 steps in a row were not finite");
    assert_true(step.kind == PLSH_TRAIN_SKIPPED && step.number == 4);
    assert_int_equal(plsh_train_run_state(run)->skipped, 3);
    plsh_train_run_close(run);
    plsh_trainer_destroy(trainer);
}

static void test_nothing_learned(void **state) {
    (void)state;
    plsh_trainer *trainer = make_trainer(NULL);
    plsh_train_run_options options = options_in("nothing");
    plsh_train_step step;
    plsh_error error;
    options.schedule.steps = 2;
    plsh_train_run *run = open_run(trainer, &options);
    assert_ok(poisoned_step(run, trainer, &step, &error));
    assert_ok(poisoned_step(run, trainer, &step, &error));
    assert_fails(plsh_train_run_next(run, &step, &error), PLSH_STATUS_NOT_FINITE,
                 "no step was finite");
    plsh_train_run_close(run);
    options.schedule = (plsh_schedule){.peak = 1e39, .steps = 2}; /* an update that overflows */
    run = open_run(trainer, &options);
    assert_fails(plsh_train_run_next(run, &step, &error), PLSH_STATUS_NOT_FINITE, "step 1: ");
    assert_int_equal(step.kind, PLSH_TRAIN_SKIPPED);
    assert_int_equal(plsh_checkpoint_last(test_path("nothing"), -1), -1);
    plsh_train_run_close(run);
    plsh_trainer_destroy(trainer);
}

/* ---- Ranks ---- */

/* What each rank saw; cmocka's assertions belong to the main thread. */
typedef struct seen {
    const char *folder, *value[2];
    plsh_status status[2];
    int64_t step[2];
    double loss[2];
    plsh_error error[2];
} seen;

static void run_on_rank(const plsh_ranks *ranks, void *context) {
    seen *s = context;
    const int64_t r = ranks->rank;
    plsh_train_setting setting = {.name = "lr", .value = s->value[r]};
    plsh_train_options make = {.context = CONTEXT,
                               .batch = BATCH,
                               .micro_batches = MICRO_BATCHES,
                               .ranks = ranks,
                               .threads = 1};
    plsh_train_run_options options = {.folder = s->folder,
                                      .schedule = {.peak = 1e-2, .steps = STEPS},
                                      .checkpoint_every = 2,
                                      .settings = &setting,
                                      .setting_count = 1};
    plsh_trainer *trainer = NULL;
    plsh_train_run *run = NULL;
    plsh_train_resumed found;
    plsh_train_step step = {0};
    plsh_error *error = &s->error[r];
    plsh_status status = plsh_trainer_create(&trainer, model, &make, error);
    if (!status) status = plsh_train_run_open(&run, trainer, corpus, &options, error);
    if (!status) status = plsh_train_run_resume(run, NULL, &found, error);
    if (!status) s->step[r] = plsh_train_run_state(run)->step;
    for (int i = 0; !status && i < 3; i++) status = plsh_train_run_next(run, &step, error);
    s->status[r] = status;
    s->loss[r] = step.loss;
    plsh_train_run_close(run);
    plsh_trainer_destroy(trainer);
}

/* All ranks resume from the first rank's checkpoint; if one refuses it, all do. */
static void test_ranks(void **state) {
    (void)state;
    seen s = {.folder = run_folder("ranks"), .value = {"1", "1"}};
    for (int part = 0; part < 2; part++) {
        test_ranks_run(1, 2, run_on_rank, &s);
        for (int r = 0; r < 2; r++) {
            if (s.status[r]) fail_msg("rank %d: %s", r, s.error[r].message);
            assert_int_equal(s.step[r], part == 0 ? 0 : 2);
        }
        assert_true(s.loss[0] == s.loss[1]);
    }
    s.value[1] = "2";
    test_ranks_run(1, 2, run_on_rank, &s);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(s.status[r], PLSH_STATUS_INVALID);
        test_message_holds(s.error[r].message, "lr=1, which is now lr=2");
    }
}

static int make_folder(void **state) {
    if (test_folder_make(state) != 0) return -1;
    model = tiny_llama();
    test_write("tokenizer.json", tokenizer);
    corpus = make_corpus("text", 1, 400);
    return 0;
}

static int remove_folder(void **state) {
    plsh_corpus_close(corpus);
    tiny_model_remove(model);
    return test_folder_remove(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_by_hand),
                                       cmocka_unit_test(test_resume),
                                       cmocka_unit_test(test_damaged_is_passed_over),
                                       cmocka_unit_test(test_other_settings),
                                       cmocka_unit_test(test_refused_options),
                                       cmocka_unit_test(test_no_memory),
                                       cmocka_unit_test(test_skipped),
                                       cmocka_unit_test(test_patience),
                                       cmocka_unit_test(test_nothing_learned),
                                       cmocka_unit_test(test_ranks)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
