/* train: gradients of every family and 20 steps of AdamW against the reference data; gradients of a
 * shape that it does not have, against differences. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plsh/lm.h"
#include "support/support.h"
#include "support/tiny_model.h"
#include "support/train_cases.h"

static plsh_trainer *make(const char *path, const plsh_train_options *options) {
    plsh_trainer *trainer;
    plsh_error error;
    assert_ok(plsh_trainer_create(&trainer, path, options, &error));
    return trainer;
}

/* The largest error of a tensor divided by its largest entry, over all tensors. */
static double worst_gradient(const plsh_trainer *trainer, const char *file) {
    plsh_weights *expected;
    plsh_error error;
    double worst = 0;
    assert_ok(plsh_weights_open(&expected, test_shared(file), &error));
    for (size_t i = 0; i < plsh_trainer_count(trainer); i++) {
        plsh_trained p = plsh_trainer_at(trainer, i);
        const plsh_tensor *tensor = plsh_weights_find(expected, p.name);
        if (!tensor) fail_msg("%s has no reference", p.name);
        int64_t count = (p.rows ? p.rows : 1) * p.columns;
        float *values = malloc((size_t)count * sizeof(float));
        plsh_tensor_to_float(tensor, 0, plsh_tensor_rows(tensor), values);
        double most = 0, off = 0;
        for (int64_t x = 0; x < count; x++) {
            most = fmax(most, fabs((double)values[x]));
            off = fmax(off, fabs((double)values[x] - (double)p.gradient[x]));
        }
        if (!(off <= 1e-5 * most)) print_message("%s: %g of %g\n", p.name, off, most);
        worst = fmax(worst, off / most);
        free(values);
    }
    assert_int_equal(plsh_trainer_count(trainer), plsh_weights_count(expected));
    plsh_weights_close(expected);
    return worst;
}

static void check(const char *name, const char *grads, const plsh_train_options *options,
                  const char *what) {
    char file[160];
    double loss;
    plsh_error error;
    plsh_trainer *trainer = make(test_shared_folder("golden/models/%s/config.json", name), options);
    snprintf(file, sizeof(file), "golden/models/%s/input_ids.npy", name);
    plsh_npy ids = test_shared_npy(file);
    assert_ok(plsh_trainer_accumulate(trainer, ids.data, 48, 1, &loss, &error));
    double worst = worst_gradient(trainer, grads);
    print_message("%-8s %-14s loss %.7g, gradients %.2g, limit 1e-5\n", name, what, loss, worst);
    assert_true(worst <= 1e-5);
    plsh_trainer_destroy(trainer);
    plsh_npy_free(&ids);
}

static void test_families(void **state) {
    (void)state;
    static const char *const names[] = {"qwen3",  "llama", "mistral", "bloom",
                                        "bloom6", "mpt",   "falcon"};
    plsh_train_options options = {.context = 48, .batch = 1};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char file[160];
        snprintf(file, sizeof(file), "golden/models/%s/grads.safetensors", names[i]);
        options.recompute = false;
        check(names[i], file, &options, "");
        options.recompute = true;
        check(names[i], file, &options, "recomputed");
        options.keep_attention = true;
        check(names[i], file, &options, "except o");
        options.keep_attention = false;
    }
}

static void test_variants(void **state) {
    (void)state;
    static const struct {
        const char *name;
        plsh_method method;
        bool drop;
    } variants[] = {{"alibi_rope", PLSH_METHOD_EXACT, false},
                    {"alibi_nope", PLSH_METHOD_EXACT, true},
                    {"fixed_blocks", PLSH_METHOD_FIXED, false}};
    static const char *const names[] = {"qwen3", "mistral"};
    for (int i = 0; i < 6; i++) {
        char file[160];
        plsh_head head[4];
        plsh_error error;
        assert_ok(plsh_heads_alibi(4, variants[i % 3].method, head, &error));
        for (int h = 0; h < 4; h++) head[h].block = 16;
        plsh_layer_attention attention = {
            .drop_rope = variants[i % 3].drop, .head = head, .head_count = 4};
        plsh_train_options options = {
            .context = 48, .batch = 1, .attention = &attention, .attention_count = 1};
        snprintf(file, sizeof(file), "golden/models/%s/variants/%s/grads.safetensors", names[i / 3],
                 variants[i % 3].name);
        check(names[i / 3], file, &options, variants[i % 3].name);
    }
}

static void test_lora(void **state) {
    (void)state;
    double loss;
    plsh_error error;
    plsh_train_options options = {.context = 48,
                                  .batch = 1,
                                  .lora_rank = 16,
                                  .adapter =
                                      test_shared_folder("golden/%s/adapter_config.json", "lora")};
    plsh_trainer *trainer =
        make(test_shared_folder("golden/models/%s/config.json", "mistral"), &options);
    plsh_npy ids = test_shared_npy("golden/models/mistral/input_ids.npy");
    assert_ok(plsh_trainer_accumulate(trainer, ids.data, 48, 1, &loss, &error));
    double worst = worst_gradient(trainer, "golden/lora/grads.safetensors");
    print_message("lora: loss %.7g, gradients %.2g\n", loss, worst);
    assert_true(worst <= 1e-5);
    plsh_trainer_destroy(trainer);
    plsh_npy_free(&ids);
}

/* The number of a step in a list of the trace. */
static double traced(const char *text, const char *list, int step) {
    char key[64];
    snprintf(key, sizeof(key), "\"%s\": [", list);
    const char *at = strstr(text, key);
    assert_non_null(at);
    at = strchr(at, '[');
    for (int i = 0; i < step; i++) at = strchr(at + 1, ',');
    return strtod(at + 1, NULL);
}

static void assert_near(double is, double expected, double limit, const char *what, int step) {
    if (!(fabs(is - expected) <= limit * expected))
        fail_msg("step %d: %s is %.9g, not %.9g", step, what, is, expected);
}

/* The weights after the last step: the largest difference, and the root of their mean square. */
static void check_weights(const plsh_trainer *trainer) {
    plsh_error error;
    plsh_weights *final;
    assert_ok(plsh_weights_open(&final, test_shared("golden/adamw/final.safetensors"), &error));
    double worst = 0, squares = 0;
    int64_t total = 0;
    for (size_t i = 0; i < plsh_trainer_count(trainer); i++) {
        plsh_trained p = plsh_trainer_at(trainer, i);
        const plsh_tensor *tensor = plsh_weights_find(final, p.name);
        assert_non_null(tensor);
        int64_t count = (p.rows ? p.rows : 1) * p.columns;
        for (int64_t x = 0; x < count; x++) {
            double off = fabs((double)((const float *)tensor->data)[x] - (double)p.value[x]);
            worst = fmax(worst, off);
            squares += off * off;
        }
        total += count;
    }
    const double rms = sqrt(squares / (double)total);
    print_message("20 steps: weights within %.2g, %.2g rms\n", worst, rms);
    assert_true(worst <= 1e-5 && rms <= 2e-7);
    plsh_weights_close(final);
}

static void test_adamw(void **state) {
    (void)state;
    static char text[1 << 14];
    plsh_error error;
    plsh_train_options options = {.context = 48, .batch = 1};
    plsh_trainer *trainer =
        make(test_shared_folder("golden/models/%s/config.json", "qwen3"), &options);
    plsh_npy batches = test_shared_npy("golden/adamw/batches.npy");
    FILE *file = fopen(test_shared("golden/adamw/trace.json"), "r");
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    const plsh_schedule schedule = {
        .shape = PLSH_SCHEDULE_LINEAR, .peak = 5e-4, .warmup = 2, .steps = 20};
    for (int t = 0; t < 20; t++) {
        double loss, norm;
        const int32_t *ids = (const int32_t *)batches.data + t * 48;
        assert_ok(plsh_trainer_accumulate(trainer, ids, 48, 1, &loss, &error));
        plsh_update update = {
            .learning_rate = plsh_schedule_rate(&schedule, t), .weight_decay = 0.01, .clip = 1.0};
        assert_ok(plsh_trainer_update(trainer, &update, &norm, &error));
        assert_near(update.learning_rate, traced(text, "learning_rate", t), 1e-12, "the rate", t);
        assert_near(loss, traced(text, "loss", t), 1e-5, "the loss", t);
        assert_near(norm, traced(text, "grad_norm_before_clip", t), 1e-4, "the norm", t);
    }
    check_weights(trainer);
    plsh_trainer_destroy(trainer);
    plsh_npy_free(&batches);
}

/* Heads that are wider than the hidden states: what norms work in has to be as wide. 80 rows: more
 * than one block of them. */
static void test_wide_heads(void **state) {
    (void)state;
    static const char config[] =
        "{\"model_type\": \"qwen3\", \"hidden_size\": 16, \"intermediate_size\": 24, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
        "\"head_dim\": 64, \"vocab_size\": 64, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "
        "\"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"max_position_embeddings\": "
        "128}";
    static const tiny_tensor tensors[] = {
        {"model.embed_tokens.weight", 64, 16},
        {"model.norm.weight", 0, 16},
        {"model.layers.%d.input_layernorm.weight", 0, 16},
        {"model.layers.%d.post_attention_layernorm.weight", 0, 16},
        {"model.layers.%d.self_attn.q_proj.weight", 128, 16},
        {"model.layers.%d.self_attn.k_proj.weight", 64, 16},
        {"model.layers.%d.self_attn.v_proj.weight", 64, 16},
        {"model.layers.%d.self_attn.o_proj.weight", 16, 128},
        {"model.layers.%d.self_attn.q_norm.weight", 0, 64},
        {"model.layers.%d.self_attn.k_norm.weight", 0, 64},
        {"model.layers.%d.mlp.gate_proj.weight", 24, 16},
        {"model.layers.%d.mlp.up_proj.weight", 24, 16},
        {"model.layers.%d.mlp.down_proj.weight", 16, 24}};
    const char *path = tiny_model_write(config, tensors, sizeof(tensors) / sizeof(*tensors), 2);
    const plsh_train_options options = {.context = 40, .batch = 2};
    train_case_check_gradients(path, &options);
    tiny_model_remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families),
                                       cmocka_unit_test(test_variants), cmocka_unit_test(test_lora),
                                       cmocka_unit_test(test_adamw),
                                       cmocka_unit_test(test_wide_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
