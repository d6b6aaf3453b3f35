/* convert: the causal families outside transformers, folder to GGUF and back, files as llama.cpp's
 * converter writes them, and adapters merged into both forms. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plsh/convert.h"
#include "plsh/lm.h"
#include "support/support.h"
#include "support/tiny_model.h"

enum { TOKENS = 24, MOST = 256 };
static const int32_t ids[TOKENS] = {1,  17, 100, 45, 33, 7,  150, 99, 3,  8,   61, 120,
                                    44, 90, 12,  5,  77, 31, 160, 2,  19, 180, 66, 101};

/* The logits behind the last token. */
static int run_model(const char *path, const char *family, const char *adapter, float *logits) {
    plsh_model *model;
    plsh_session *session;
    plsh_error error;
    const plsh_model_options options = {.family = family, .adapter = adapter};
    assert_ok(plsh_model_open(&model, path, &options, &error));
    assert_ok(plsh_session_create(&session, model, NULL, &error));
    const plsh_step step = {.ids = ids, .count = TOKENS, .logits = logits};
    assert_ok(plsh_session_step(session, &step, &error));
    const int vocabulary = (int)plsh_model_describe(model).vocabulary;
    plsh_session_destroy(session);
    plsh_model_close(model);
    assert_true(vocabulary <= MOST);
    return vocabulary;
}

static void assert_near(const char *what, const float *a, const float *b, int count) {
    double worst = 0;
    for (int i = 0; i < count; i++) worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    print_message("%-40s %.2g\n", what, worst);
    if (!(worst <= 5e-5)) fail_msg("%s: %g", what, worst);
}

static void convert(const char *model, const char *family, const char *adapter,
                    plsh_weight_type type, const char *out) {
    plsh_error error;
    const plsh_convert_options options = {
        .model = model, .family = family, .adapter = adapter, .type = type, .out = out};
    assert_ok(plsh_convert(&options, NULL, &error));
}

static const char *shared(const char *name) {
    static char path[1024];
    char file[200];
    snprintf(file, sizeof file, "golden/families/%s/config.json", name);
    snprintf(path, sizeof path, "%s", test_shared(file));
    *strrchr(path, '/') = '\0';
    return path;
}

/* Weights that a GGUF scales or normalises do not come back as they were. */
static void test_there_and_back(void **state) {
    (void)state;
    static const struct {
        const char *name, *family;
        bool same;
    } cases[] = {{"baichuan", NULL, true},        {"baichuan2", "baichuan2-13b", false},
                 {"jais13", NULL, false},         {"jais_mup", NULL, false},
                 {"btlm", NULL, false},           {"refact", NULL, true},
                 {"mpt_storywriter", NULL, true}, {"mpt_gqa", NULL, true},
                 {"mpt_qkln_bias", NULL, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float first[MOST], other[MOST];
        const char *path = shared(cases[i].name);
        print_message("%s\n", cases[i].name);
        const int count = run_model(path, cases[i].family, NULL, first);
        convert(path, cases[i].family, NULL, PLSH_WEIGHT_F32, "family.gguf");
        run_model("family.gguf", NULL, NULL, other);
        assert_near("  as a GGUF", first, other, count);
        convert("family.gguf", NULL, NULL, PLSH_WEIGHT_F32, "family-back");
        run_model("family-back", NULL, NULL, other);
        assert_near("  and back", first, other, count);
        if (cases[i].same) tiny_model_same_weights(path, "family-back");
        tiny_model_remove("family-back");
        unlink("family.gguf");
    }
}

/* ---- Files as llama.cpp's converter writes them: without keys that only plsh writes ---- */

static bool is_ours(const char *key) {
    static const char *const ours[] = {".attention.key_length", ".attention.value_length",
                                       ".vocab_size"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strstr(key, ours[i])) return true;
    if (strncmp(key, "baichuan.", 9) == 0 && strstr(key, "max_alibi_bias")) return true;
    return strncmp(key, "jais.", 5) == 0 && strstr(key, "head_count_kv");
}

static void strip(const char *from, const char *to) {
    plsh_weights *weights;
    plsh_weights_writer *writer;
    plsh_error error;
    assert_ok(plsh_weights_open(&weights, from, &error));
    assert_ok(plsh_weights_writer_create(&writer, to, PLSH_WEIGHTS_GGUF, &error));
    for (size_t i = 0; i < plsh_metadata_count(weights); i++) {
        const plsh_metadata *metadata = plsh_metadata_at(weights, i);
        if (!is_ours(metadata->key)) assert_ok(plsh_weights_writer_copy(writer, metadata, &error));
    }
    tiny_model_copy_tensors(writer, weights);
    plsh_weights_close(weights);
}

static void test_stripped(void **state) {
    (void)state;
    static const char *const names[] = {"baichuan", "jais13", "refact", "mpt_gqa"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        float first[MOST], other[MOST];
        const char *path = shared(names[i]);
        const int count = run_model(path, NULL, NULL, first);
        convert(path, NULL, NULL, PLSH_WEIGHT_F32, "family.gguf");
        strip("family.gguf", "stripped.gguf");
        run_model("stripped.gguf", NULL, NULL, other);
        assert_near(names[i], first, other, count);
        unlink("family.gguf");
        unlink("stripped.gguf");
    }
}

/* The remarks on files that llama.cpp computes differently, and the rule by which a family was
 * found. */
static void test_remarks(void **state) {
    (void)state;
    static const struct {
        const char *name, *differs, *rule;
    } cases[] = {{"refact", "llama.cpp computes RMSNorm", NULL},
                 {"baichuan", "exactly 40 layers", "ALiBi, by attention.max_alibi_bias"},
                 {"jais13", NULL, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plsh_model *model;
        plsh_error error;
        convert(shared(cases[i].name), NULL, NULL, PLSH_WEIGHT_F32, "family.gguf");
        assert_ok(plsh_model_open(&model, "family.gguf", NULL, &error));
        const plsh_model_facts facts = plsh_model_describe(model);
        if (cases[i].differs) test_message_holds(facts.differs, cases[i].differs);
        if (cases[i].rule) test_message_holds(facts.rule, cases[i].rule);
        if (!cases[i].differs) assert_null(facts.differs);
        plsh_model_close(model);
        unlink("family.gguf");
    }
}

/* A value for which a GGUF has no key is refused. */
static void test_refused(void **state) {
    (void)state;
    char command[4200], path[1024];
    plsh_error error;
    snprintf(path, sizeof path, "%s", shared("jais_mup"));
    snprintf(command, sizeof command,
             "mkdir -p scaled && cp '%s/variants/alibi_scaling_factor/config.json' "
             "'%s/model.safetensors' scaled/ && chmod u+w scaled/*",
             path, path);
    assert_int_equal(system(command), 0);
    const plsh_convert_options options = {
        .model = "scaled", .type = PLSH_WEIGHT_F32, .out = "family.gguf"};
    assert_int_equal(plsh_convert(&options, NULL, &error), PLSH_STATUS_UNSUPPORTED);
    test_message_holds(error.message, "alibi_scaling");
    assert_int_not_equal(access("family.gguf", F_OK), 0);
    tiny_model_remove("scaled");
}

/* An adapter that was trained for a step: run beside the model, and merged into either form. */
static void test_adapters(void **state) {
    (void)state;
    static const char *const names[] = {"jais13", "baichuan", "refact", "mpt_gqa"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        float plain[MOST], first[MOST], other[MOST];
        const char *path = shared(names[i]);
        const plsh_train_options options = {.context = TOKENS, .batch = 1, .lora_rank = 3};
        const plsh_update update = {.learning_rate = 0.05};
        plsh_trainer *trainer;
        plsh_error error;
        double loss, norm;
        assert_ok(plsh_trainer_create(&trainer, path, &options, &error));
        for (int step = 0; step < 2; step++) {
            assert_ok(plsh_trainer_accumulate(trainer, ids, TOKENS, 1, &loss, &error));
            assert_ok(plsh_trainer_update(trainer, &update, &norm, &error));
        }
        assert_int_equal(system("mkdir -p family-adapter"), 0);
        assert_ok(plsh_trainer_save(trainer, "family-adapter", &error));
        plsh_trainer_destroy(trainer);
        const bool transposed = strcmp(names[i], "jais13") == 0;
        assert_int_equal(system("grep -q '\"fan_in_fan_out\": true' family-adapter/*.json") == 0,
                         transposed);
        const int count = run_model(path, NULL, NULL, plain);
        run_model(path, NULL, "family-adapter", first);
        double change = 0;
        for (int k = 0; k < count; k++)
            change = fmax(change, fabs((double)plain[k] - (double)first[k]));
        assert_true(change > 0.01);
        print_message("%s\n", names[i]);
        convert(path, NULL, "family-adapter", PLSH_WEIGHT_F32, "family.gguf");
        run_model("family.gguf", NULL, NULL, other);
        assert_near("  merged into a GGUF", first, other, count);
        convert(path, NULL, "family-adapter", PLSH_WEIGHT_F32, "family-back");
        run_model("family-back", NULL, NULL, other);
        assert_near("  merged into a folder", first, other, count);
        tiny_model_remove("family-back");
        tiny_model_remove("family-adapter");
        unlink("family.gguf");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_stripped),
        cmocka_unit_test(test_remarks), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_adapters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
