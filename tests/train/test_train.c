/* train: new weights, texts as tokens, schedules, checkpoints. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plsh/io.h"
#include "plsh/lm.h"
#include "support/support.h"
#include "support/train_cases.h"

/* ---- New weights ---- */

static const char qwen[] =
    "{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"intermediate_size\": 96, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 32, \"vocab_size\": 300, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "
    "\"tie_word_embeddings\": false, \"hidden_act\": \"silu\", \"initializer_range\": 0.05, "
    "\"max_position_embeddings\": 512, \"pad_token_id\": 7, \"dtype\": \"bfloat16\"}";

static void test_initialise(void **state) {
    (void)state;
    plsh_error error;
    plsh_weights *weights, *again;
    test_write("qwen.json", qwen);
    assert_ok(plsh_train_initialise(test_path("qwen.json"), 5, test_path("fresh"), &error));
    assert_ok(plsh_train_initialise(test_path("qwen.json"), 5, test_path("same"), &error));
    assert_ok(plsh_weights_open(&weights, test_path("fresh"), &error));
    assert_ok(plsh_weights_open(&again, test_path("same"), &error));
    assert_int_equal(plsh_weights_count(weights), 3 + 2 * 11);
    double sum = 0, squares = 0;
    int64_t numbers = 0;
    for (size_t i = 0; i < plsh_weights_count(weights); i++) {
        const plsh_tensor *t = plsh_weights_at(weights, i);
        const float *x = t->data;
        const size_t count = t->size / sizeof(float);
        assert_memory_equal(x, plsh_weights_at(again, i)->data, t->size);
        for (size_t k = 0; k < count; k++) {
            if (t->rank == 1) assert_true(x[k] == 1.0f);
            if (t->rank == 2) sum += (double)x[k];
            if (t->rank == 2) squares += (double)x[k] * (double)x[k];
        }
        if (t->rank == 2) numbers += (int64_t)count;
    }
    const double deviation = sqrt(squares / (double)numbers);
    print_message("%lld numbers: mean %.2g, deviation %.5f\n", (long long)numbers,
                  sum / (double)numbers, deviation);
    assert_true(fabs(deviation - 0.05) < 0.05 * 4 / sqrt(2.0 * (double)numbers) + 1e-4);
    assert_true(fabs(sum / (double)numbers) < 0.05 * 4 / sqrt((double)numbers));
    const float *tokens = plsh_weights_find(weights, "model.embed_tokens.weight")->data;
    for (int c = 0; c < 64; c++) assert_true(tokens[7 * 64 + c] == 0.0f && tokens[6 * 64 + c] != 0);
    const float *down = plsh_weights_find(weights, "model.layers.1.mlp.down_proj.weight")->data;
    assert_true(fabs((double)down[0] - 0.00333963404) < 1e-8); /* a seed means the same for ever */
    plsh_weights_close(weights);
    plsh_weights_close(again);
    plsh_model *model;
    assert_ok(plsh_model_open(&model, test_path("fresh"), NULL, &error));
    plsh_model_close(model);
}

/* ---- Texts ---- */

static const char tokenizer[] =
    "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": "
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
    "\"use_regex\": true}, \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"}, "
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"\\u0120\": 3, "
    "\"\\u010a\": 4}, \"merges\": []}}";

static plsh_corpus *open_corpus(const char *text, bool shuffled, uint64_t seed) {
    plsh_corpus *corpus;
    plsh_error error;
    plsh_corpus_options options = {.text = test_path(text),
                                   .tokenizer = test_path("tokenizer.json"),
                                   .tokens = test_path("tokens"),
                                   .shuffle_rows = shuffled,
                                   .seed = seed};
    assert_ok(plsh_corpus_open(&corpus, &options, &error));
    return corpus;
}

static void test_corpus(void **state) {
    (void)state;
    static const int32_t expected[] = {0, 1, 4, 2, 2, 2};
    int32_t ids[6];
    test_write("tokenizer.json", tokenizer);
    test_write("text", "ab\nccc");
    plsh_corpus *corpus = open_corpus("text", false, 0);
    assert_int_equal(plsh_corpus_count(corpus), 6);
    assert_int_equal(plsh_corpus_largest(corpus), 4);
    assert_false(plsh_corpus_reused(corpus));
    assert_memory_equal(plsh_corpus_ids(corpus), expected, sizeof(expected));
    plsh_corpus_windows(corpus, 2, 2, 3, ids); /* the last, and then the first again */
    assert_true(ids[0] == 2 && ids[1] == 2 && ids[2] == 0 && ids[3] == 1 && ids[4] == 4);
    plsh_corpus_close(corpus);
    corpus = open_corpus("text", false, 0);
    assert_true(plsh_corpus_reused(corpus));
    plsh_corpus_close(corpus);
    corpus = open_corpus("tokens", false, 0); /* instead of the text */
    assert_int_equal(plsh_corpus_count(corpus), 6);
    plsh_corpus_close(corpus);
    test_write("text", "ab\nccb");
    corpus = open_corpus("text", false, 0);
    assert_false(plsh_corpus_reused(corpus));
    plsh_corpus_close(corpus);
}

static void test_rows(void **state) {
    (void)state;
    char text[400] = "";
    int seen[3] = {0};
    for (int i = 0; i < 30; i++) strcat(text, i % 3 == 0 ? "a\n" : i % 3 == 1 ? "bb\n \n" : "c\n");
    test_write("rows", text);
    plsh_corpus *one = open_corpus("rows", true, 42);
    int32_t *first = calloc((size_t)plsh_corpus_count(one), sizeof(int32_t));
    memcpy(first, plsh_corpus_ids(one), (size_t)plsh_corpus_count(one) * sizeof(int32_t));
    assert_int_equal(plsh_corpus_count(one), 10 * (2 + 3 + 2) + 29);
    for (int64_t i = 0; i < plsh_corpus_count(one); i++) {
        if (first[i] < 3) seen[first[i]]++;
    }
    assert_true(seen[0] == 10 && seen[1] == 20 && seen[2] == 10);
    plsh_corpus_close(one);
    plsh_corpus *other = open_corpus("rows", true, 43);
    assert_false(plsh_corpus_reused(other));
    assert_memory_not_equal(first, plsh_corpus_ids(other), 99 * sizeof(int32_t));
    plsh_corpus_close(other);
    free(first);
}

/* Files that are none of ours stay; every seed is a seed; tokens are of one order and tokenizer. */
static void test_refused_tokens(void **state) {
    (void)state;
    plsh_corpus *corpus;
    plsh_error error;
    plsh_corpus_options options = {.text = test_path("text"),
                                   .tokenizer = test_path("tokenizer.json"),
                                   .tokens = test_path("rows")};
    assert_int_equal(plsh_corpus_open(&corpus, &options, &error), PLSH_STATUS_INVALID);
    assert_non_null(strstr(error.message, "not overwritten"));
    options.tokens = options.text;
    assert_int_equal(plsh_corpus_open(&corpus, &options, &error), PLSH_STATUS_INVALID);
    plsh_corpus_close(open_corpus("rows", false, 0));
    corpus = open_corpus("rows", true, UINT64_MAX);
    assert_false(plsh_corpus_reused(corpus));
    plsh_corpus_close(corpus);
    assert_true(plsh_corpus_is_tokens(test_path("tokens")));
    assert_false(plsh_corpus_is_tokens(test_path("rows")));
    options = (plsh_corpus_options){.text = test_path("tokens"), .shuffle_rows = true};
    assert_int_equal(plsh_corpus_open(&corpus, &options, &error), PLSH_STATUS_INVALID);
    options =
        (plsh_corpus_options){.text = test_path("tokens"), .tokenizer = test_path("qwen.json")};
    assert_int_equal(plsh_corpus_open(&corpus, &options, &error), PLSH_STATUS_INVALID);
    assert_non_null(strstr(error.message, "not made by"));
}

static void test_damaged_tokens(void **state) {
    (void)state;
    plsh_corpus *corpus;
    plsh_error error;
    plsh_corpus_options options = {.text = test_path("tokens")};
    FILE *file = fopen(test_path("tokens"), "r+b");
    assert_int_equal(fseek(file, 70, SEEK_SET), 0);
    fputc(1, file);
    fclose(file);
    assert_int_equal(plsh_corpus_open(&corpus, &options, &error), PLSH_STATUS_FORMAT);
    assert_non_null(strstr(error.message, "damaged"));
    assert_int_equal(truncate(test_path("tokens"), 71), 0);
    assert_int_equal(plsh_corpus_open(&corpus, &options, &error), PLSH_STATUS_FORMAT);
    assert_int_equal(truncate(test_path("tokens"), 20), 0);
    assert_int_equal(plsh_corpus_open(&corpus, &options, &error), PLSH_STATUS_FORMAT);
}

/* ---- Schedules: numbers of transformers 5 ---- */

static void test_schedules(void **state) {
    (void)state;
    plsh_schedule s = {.shape = PLSH_SCHEDULE_LINEAR, .peak = 5e-4, .warmup = 2, .steps = 20};
    static const double linear[] = {0, 2.5e-4, 5e-4, 5e-4 * 17 / 18};
    for (int i = 0; i < 4; i++) assert_true(fabs(plsh_schedule_rate(&s, i) - linear[i]) < 1e-15);
    assert_true(plsh_schedule_rate(&s, 20) == 0.0 && plsh_schedule_rate(&s, 30) == 0.0);
    s.shape = PLSH_SCHEDULE_COSINE;
    assert_true(fabs(plsh_schedule_rate(&s, 11) - 2.5e-4) < 1e-15);
    assert_true(fabs(plsh_schedule_rate(&s, 5) - 4.665063509461097e-4) < 1e-15);
    s.shape = PLSH_SCHEDULE_CONSTANT;
    assert_true(plsh_schedule_rate(&s, 1) == 2.5e-4 && plsh_schedule_rate(&s, 19) == 5e-4);
    s.warmup = 0;
    assert_true(plsh_schedule_rate(&s, 0) == 5e-4);
}

/* ---- Checkpoints ---- */

static plsh_trainer *make_trainer(int64_t rank) {
    plsh_trainer *trainer;
    plsh_error error;
    plsh_train_options options = {
        .context = 16, .batch = 1, .seed = 3, .dropout = 0.1, .lora_rank = rank};
    assert_ok(plsh_trainer_create(&trainer, test_path("fresh"), &options, &error));
    return trainer;
}

static double accumulate(plsh_trainer *trainer, int step) {
    plsh_error error;
    double loss;
    int32_t ids[16];
    for (int i = 0; i < 16; i++) ids[i] = (step * 37 + i * i) % 300;
    assert_ok(plsh_trainer_accumulate(trainer, ids, 16, 1, &loss, &error));
    return loss;
}

static void train_steps(plsh_trainer *trainer, int from, int to) {
    plsh_error error;
    for (int s = from; s < to; s++) {
        double norm;
        accumulate(trainer, s);
        assert_ok(
            plsh_trainer_update(trainer, &(plsh_update){.learning_rate = 1e-2}, &norm, &error));
    }
}

static void check_resumed(int64_t rank) {
    plsh_trainer *whole = make_trainer(rank), *first = make_trainer(rank);
    plsh_trainer *second = make_trainer(rank);
    plsh_checkpoint saved = {.step = 3, .window = 6, .skipped = 1, .in_a_row = 1, .log_bytes = 99},
                    read;
    plsh_error error;
    strcpy(saved.settings, "lr=1");
    train_steps(whole, 0, 6);
    train_steps(first, 0, 3);
    assert_ok(plsh_checkpoint_save(first, &saved, test_folder, &error));
    train_steps(second, 7, 9);
    accumulate(second, 9); /* what it had learned, and was about to, is gone */
    assert_ok(plsh_checkpoint_load(second, test_path("checkpoint-00000003"), &read, &error));
    assert_true(read.step == 3 && read.window == 6 && read.skipped == 1 && read.in_a_row == 1);
    assert_true(read.log_bytes == 99);
    assert_string_equal(read.settings, "lr=1");
    train_steps(second, 3, 6);
    train_case_check_same(whole, second);
    plsh_trainer_destroy(whole);
    plsh_trainer_destroy(first);
    plsh_trainer_destroy(second);
}

static void test_checkpoints(void **state) {
    (void)state;
    check_resumed(0);
    check_resumed(4);
}

/* A count of module names without the names; keep_attention without recompute. */
static void test_refused_options(void **state) {
    (void)state;
    static const char *const names[] = {"q_proj", NULL};
    plsh_trainer *trainer;
    plsh_error error;
    plsh_train_options options = {
        .context = 16, .batch = 1, .lora_rank = 4, .lora_target_count = 2};
    assert_fails(plsh_trainer_create(&trainer, test_path("fresh"), &options, &error),
                 PLSH_STATUS_INVALID, "lora_target_count is 2, and lora_targets is NULL");
    options.lora_targets = names;
    assert_fails(plsh_trainer_create(&trainer, test_path("fresh"), &options, &error),
                 PLSH_STATUS_INVALID, "one of them is NULL");
    options = (plsh_train_options){.context = 16, .batch = 1, .keep_attention = true};
    assert_fails(plsh_trainer_create(&trainer, test_path("fresh"), &options, &error),
                 PLSH_STATUS_INVALID, "keep_attention without recompute");
}

/* A refused call changes nothing: the dropout mask of the next pass is the same. */
static void test_refused_pass(void **state) {
    (void)state;
    plsh_trainer *trainer = make_trainer(0), *other = make_trainer(0);
    plsh_error error;
    double loss;
    const int32_t ids[16] = {1, 300};
    assert_fails(plsh_trainer_accumulate(trainer, ids, 16, 1, &loss, &error), PLSH_STATUS_INVALID,
                 "token 1 is 300");
    assert_true(accumulate(trainer, 0) == accumulate(other, 0));
    plsh_trainer_destroy(trainer);
    plsh_trainer_destroy(other);
}

/* A trainer whose parameters an update made not finite refuses to save; loading a checkpoint
 * repairs it. */
static void test_lost(void **state) {
    (void)state;
    plsh_trainer *trainer = make_trainer(0);
    plsh_checkpoint saved = {.step = 3}, read;
    plsh_error error;
    double loss, norm;
    const int32_t ids[16] = {1, 2, 3};
    assert_ok(plsh_checkpoint_save(trainer, &saved, test_folder, &error));
    assert_ok(plsh_trainer_accumulate(trainer, ids, 16, 1, &loss, &error));
    assert_int_equal(
        plsh_trainer_update(trainer, &(plsh_update){.learning_rate = 1e39}, &norm, &error),
        PLSH_STATUS_NOT_FINITE);
    assert_true(plsh_trainer_lost(trainer));
    saved.step = 4;
    assert_int_equal(plsh_checkpoint_save(trainer, &saved, test_folder, &error),
                     PLSH_STATUS_NOT_FINITE);
    assert_int_equal(plsh_trainer_save(trainer, test_path("fresh"), &error),
                     PLSH_STATUS_NOT_FINITE);
    assert_int_equal(plsh_checkpoint_last(test_folder, -1), 3);
    assert_ok(plsh_checkpoint_load(trainer, test_path("checkpoint-00000003"), &read, &error));
    assert_false(plsh_trainer_lost(trainer));
    train_steps(trainer, 0, 1);
    plsh_trainer_destroy(trainer);
}

/* Every file of a checkpoint, damaged in turn, is named. */
static void test_damaged_checkpoint(void **state) {
    (void)state;
    static const char *const names[] = {"model.safetensors", "moments.safetensors", "config.json",
                                        "state.json"};
    plsh_trainer *trainer = make_trainer(0);
    plsh_checkpoint saved = {.step = 8}, read;
    plsh_error error;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char name[64];
        assert_ok(plsh_checkpoint_save(trainer, &saved, test_folder, &error));
        snprintf(name, sizeof(name), "checkpoint-00000008/%s", names[i]);
        FILE *file = fopen(test_path(name), "r+b");
        assert_int_equal(fseek(file, -5, SEEK_END), 0);
        fputc('#', file);
        fclose(file);
        assert_int_equal(plsh_checkpoint_check(test_path("checkpoint-00000008"), &read, &error),
                         PLSH_STATUS_FORMAT);
        assert_non_null(strstr(error.message, names[i]));
        unlink(test_path(name));
        assert_true(plsh_checkpoint_check(test_path("checkpoint-00000008"), &read, &error) != 0);
        assert_non_null(strstr(error.message, names[i]));
    }
    assert_int_equal(plsh_checkpoint_last(test_folder, -1), 8);
    assert_int_equal(plsh_checkpoint_last(test_folder, 8), 3);
    assert_int_equal(plsh_checkpoint_last(test_folder, 3), -1);
    assert_ok(plsh_checkpoint_prune(test_folder, 8, 1, &error));
    assert_int_equal(plsh_checkpoint_last(test_folder, 8), -1);
    saved.step = 5; /* gone on from an earlier one: what was later is no more */
    assert_ok(plsh_checkpoint_save(trainer, &saved, test_folder, &error));
    assert_ok(plsh_checkpoint_prune(test_folder, 5, 1, &error));
    assert_int_equal(plsh_checkpoint_last(test_folder, -1), 5);
    plsh_trainer_destroy(trainer);
}

/* A plain file of a checkpoint's name is passed over, and kept. */
static void test_plain_file(void **state) {
    (void)state;
    plsh_trainer *trainer = make_trainer(0);
    plsh_checkpoint saved = {.step = 11}, read;
    plsh_error error;
    int64_t step, passed;
    assert_ok(plsh_checkpoint_save(trainer, &saved, test_folder, &error));
    test_write("checkpoint-00000012", "notes");
    assert_ok(plsh_checkpoint_newest(test_folder, &step, &read, &passed, &error));
    assert_int_equal(step, 11);
    assert_int_equal(passed, 0);
    assert_ok(plsh_checkpoint_prune(test_folder, 11, 1, &error));
    assert_int_equal(access(test_path("checkpoint-00000012"), R_OK), 0);
    assert_int_equal(plsh_checkpoint_last(test_folder, -1), 11);
    plsh_trainer_destroy(trainer);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_initialise),
                                       cmocka_unit_test(test_corpus),
                                       cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_refused_tokens),
                                       cmocka_unit_test(test_damaged_tokens),
                                       cmocka_unit_test(test_schedules),
                                       cmocka_unit_test(test_checkpoints),
                                       cmocka_unit_test(test_refused_pass),
                                       cmocka_unit_test(test_refused_options),
                                       cmocka_unit_test(test_lost),
                                       cmocka_unit_test(test_damaged_checkpoint),
                                       cmocka_unit_test(test_plain_file)};
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
