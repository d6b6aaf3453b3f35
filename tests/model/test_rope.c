/* model: RoPE scalings against transformers (make_rope_cases.py): at once, in chunks, and token by
 * token through the cache. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/json.h"
#include "plsh/convert.h"
#include "plsh/lm.h"
#include "support/support.h"

#define FOLDER PLSH_TEST_FOLDER "/rope"

enum { TOKENS = 40, VOCABULARY = 24, HIDDEN = 32 };

static plsh_model *open_case(const json_t *one) {
    plsh_model *model;
    plsh_error error;
    char *config = json_dumps(json_object_get(one, "config"), 0);
    test_write("config.json", config);
    free(config);
    const plsh_model_options options = {.compute = PLSH_COMPUTE_FLOAT32};
    assert_ok(plsh_model_open(&model, test_folder, &options, &error));
    return model;
}

typedef struct run {
    const plsh_model *model;
    const int32_t *ids;
    int64_t first; /* tokens of the first step; the others follow one by one */
    int64_t parts; /* the first step is cut into parts of so many tokens, of one text */
    int64_t chunk;
} run;

static void run_steps(const run *r, float *logits) {
    plsh_session *session;
    plsh_error error;
    float hidden[TOKENS * HIDDEN];
    const plsh_session_options options = {.chunk = r->chunk};
    assert_ok(plsh_session_create(&session, r->model, &options, &error));
    for (int64_t at = 0, count; at < TOKENS; at += count) {
        const int64_t left = r->first - at;
        count = left <= 0 ? 1 : left < r->parts ? left : r->parts;
        plsh_step step = {.ids = r->ids + at,
                          .count = count,
                          .hidden = hidden + at * HIDDEN,
                          .length = left > 0 ? r->first : 0};
        assert_ok(plsh_session_step(session, &step, &error));
    }
    assert_ok(plsh_session_logits(session, hidden, TOKENS, logits, &error));
    plsh_session_destroy(session);
}

/* The limit of other logits, and twice the error of transformers in float32. */
static double limit_of(const json_t *one) {
    return 5e-5 + 2.0 * json_number_value(json_object_get(one, "float32_error"));
}

static double farthest(const float *a, const float *b) {
    double most = 0;
    for (int i = 0; i < TOKENS * VOCABULARY; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void check_case(const json_t *one, const plsh_weights *expected) {
    const char *name = json_string_value(json_object_get(one, "name"));
    const double limit = limit_of(one);
    const int64_t prompt = json_integer_value(json_object_get(one, "prompt"));
    const plsh_tensor *wanted = plsh_weights_find(expected, name);
    const plsh_tensor *ids = plsh_weights_find(expected, "ids");
    plsh_model *model = open_case(one);
    float logits[TOKENS * VOCABULARY];
    assert_non_null(wanted);
    assert_int_equal(wanted->size, sizeof logits);
    const int64_t first = prompt ? prompt : TOKENS;
    const run runs[] = {{model, ids->data, first, first, 0},
                        {model, ids->data, first, first, 7},
                        {model, ids->data, first, 9, 0}};
    for (size_t i = 0; i < 3; i++) {
        run_steps(&runs[i], logits);
        const double found = farthest(logits, wanted->data);
        print_message("%-16s error %.2g, limit %.2g\n", name, found, limit);
        if (!(found <= limit)) fail_msg("%s, run %zu: error %g above %g", name, i, found, limit);
    }
    plsh_model_close(model);
}

/* The cases, the weights beside config.json. */
static json_t *begin(plsh_weights **expected) {
    json_t *cases = json_load_file(FOLDER "/cases.json", 0, NULL);
    plsh_error error;
    assert_true(json_array_size(cases) >= 7);
    assert_ok(plsh_weights_open(expected, FOLDER "/expected.safetensors", &error));
    return cases;
}

static void test_cases(void **unused) {
    (void)unused;
    plsh_weights *expected;
    json_t *cases = begin(&expected);
    size_t index;
    json_t *one;
    json_array_foreach(cases, index, one) check_case(one, expected);
    json_decref(cases);
    plsh_weights_close(expected);
}

static const json_t *find_case(const json_t *cases, const char *name) {
    size_t index;
    json_t *one;
    json_array_foreach(cases, index, one) {
        if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0) return one;
    }
    fail_msg("no case %s", name);
    return NULL;
}

/* YaRN through a GGUF and back into a folder; dynamic scaling has no place in a GGUF. */
static void test_convert(void **unused) {
    (void)unused;
    plsh_weights *expected;
    plsh_error error;
    json_t *cases = begin(&expected);
    const plsh_tensor *ids = plsh_weights_find(expected, "ids");
    static const char *const names[] = {"yarn", "yarn_mscale"};
    const char *gguf = test_path("yarn.gguf"), *back = test_path("back");
    for (size_t i = 0; i < 2; i++) {
        plsh_model_close(open_case(find_case(cases, names[i])));
        plsh_convert_options options = {.model = test_folder, .out = gguf, .type = PLSH_WEIGHT_F32};
        assert_ok(plsh_convert(&options, NULL, &error));
        options = (plsh_convert_options){.model = gguf, .out = back, .type = PLSH_WEIGHT_F32};
        assert_ok(plsh_convert(&options, NULL, &error));
        for (int form = 0; form < 2; form++) {
            plsh_model *model;
            float logits[TOKENS * VOCABULARY];
            const plsh_model_options open = {.compute = PLSH_COMPUTE_FLOAT32};
            assert_ok(plsh_model_open(&model, form ? back : gguf, &open, &error));
            run_steps(&(run){model, ids->data, TOKENS, TOKENS, 0}, logits);
            const double found = farthest(logits, plsh_weights_find(expected, names[i])->data);
            if (!(found <= limit_of(find_case(cases, names[i]))))
                fail_msg("%s: error %g", names[i], found);
            plsh_model_close(model);
        }
        unlink(gguf);
    }
    plsh_model_close(open_case(find_case(cases, "dynamic")));
    const plsh_convert_options options = {
        .model = test_folder, .out = gguf, .type = PLSH_WEIGHT_F32};
    assert_fails(plsh_convert(&options, NULL, &error), PLSH_STATUS_UNSUPPORTED, "dynamic");
    json_decref(cases);
    plsh_weights_close(expected);
}

/* Sequences of one batch: the frequencies are those of their own lengths. */
static void test_encode(void **unused) {
    (void)unused;
    plsh_weights *expected;
    plsh_error error;
    json_t *cases = begin(&expected);
    const int32_t *ids = plsh_weights_find(expected, "ids")->data;
    plsh_model *model = open_case(find_case(cases, "dynamic"));
    plsh_session *session;
    static float together[2 * TOKENS * HIDDEN], alone[TOKENS * HIDDEN];
    int32_t both[2 * TOKENS];
    memcpy(both, ids, TOKENS * sizeof *both);
    memcpy(both + TOKENS, ids, TOKENS * sizeof *both);
    const int64_t offsets[] = {0, 10, TOKENS + 10};
    const plsh_encoding encoding = {
        .ids = both, .offsets = offsets, .sequences = 2, .count = TOKENS + 10, .hidden = together};
    assert_ok(plsh_model_encode(model, &encoding, &error));
    for (int i = 0; i < 2; i++) {
        const int64_t count = offsets[i + 1] - offsets[i];
        const plsh_step step = {.ids = both + offsets[i], .count = count, .hidden = alone};
        assert_ok(plsh_session_create(&session, model, NULL, &error));
        assert_ok(plsh_session_step(session, &step, &error));
        for (int64_t j = 0; j < count * HIDDEN; j++) {
            const double got = (double)together[offsets[i] * HIDDEN + j];
            assert_true(fabs(got - (double)alone[j]) <= 1e-5);
        }
        plsh_session_destroy(session);
    }
    plsh_model_close(model);
    json_decref(cases);
    plsh_weights_close(expected);
}

static int make_folder(void **state) {
    if (test_folder_make(state) != 0) return -1;
    return symlink(FOLDER "/model.safetensors", test_path("model.safetensors"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_convert),
                                       cmocka_unit_test(test_encode)};
    return cmocka_run_group_tests(tests, make_folder, test_folder_remove);
}
