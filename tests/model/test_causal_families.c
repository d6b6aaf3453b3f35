/* model: logits of the causal families outside transformers, and of Qwen2, against references in
 * float64: at once, in chunks, token by token. What the references have not, against equal models.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plsh/lm.h"
#include "support/support.h"
#include "support/tiny_model.h"

/* The limit of the reference data for logits in float32. */
static const double limit = 5e-5;

static plsh_model *open_model(const char *path, const char *family) {
    plsh_model *model;
    plsh_error error;
    const plsh_model_options options = {.family = family, .compute = PLSH_COMPUTE_FLOAT32};
    assert_ok(plsh_model_open(&model, path, &options, &error));
    return model;
}

/* Logits of all tokens, fed in steps of `each`, chunks of `chunk` tokens, in a session of `length`.
 */
static float *run(const plsh_model *model, const int32_t *ids, int64_t n, int64_t chunk,
                  int64_t each, int64_t length) {
    plsh_error error;
    plsh_session *session;
    const plsh_model_facts facts = plsh_model_describe(model);
    const plsh_session_options options = {.chunk = chunk, .length = length};
    float *hidden = malloc((size_t)(n * facts.hidden) * sizeof(float));
    float *logits = malloc((size_t)(n * facts.vocabulary) * sizeof(float));
    assert_ok(plsh_session_create(&session, model, &options, &error));
    for (int64_t at = 0; at < n; at += each) {
        const plsh_step step = {.ids = ids + at,
                                .count = n - at < each ? n - at : each,
                                .hidden = hidden + at * facts.hidden};
        assert_ok(plsh_session_step(session, &step, &error));
    }
    assert_ok(plsh_session_logits(session, hidden, n, logits, &error));
    plsh_session_destroy(session);
    free(hidden);
    return logits;
}

static void compare(const char *what, float *got, const plsh_npy *expected) {
    double most = 0;
    for (size_t i = 0; i < expected->count; i++) {
        const double e = fabs((double)got[i] - ((const double *)expected->data)[i]);
        if (!(e <= most)) most = e;
    }
    print_message("%-28s error %.2g, limit %.2g\n", what, most, limit);
    if (!(most <= limit)) fail_msg("%s: error %g above %g", what, most, limit);
    free(got);
}

static void check(const char *folder, const char *family, const plsh_npy *ids,
                  const plsh_npy *logits) {
    const int64_t n = (int64_t)ids->count;
    plsh_model *model = open_model(folder, family);
    compare(family ? family : plsh_model_describe(model).family, run(model, ids->data, n, 0, n, n),
            logits);
    compare("  in chunks of 7", run(model, ids->data, n, 7, n, n), logits);
    compare("  token by token", run(model, ids->data, n, 0, 1, n), logits);
    plsh_model_close(model);
}

static const char *shared(const char *name, const char *file) {
    static char paths[4][1024];
    static int next;
    char relative[300], *path = paths[next++ % 4];
    snprintf(relative, sizeof relative, "golden/families/%s/%s", name, file);
    snprintf(path, sizeof paths[0], "%s", test_shared(relative));
    return path;
}

static plsh_npy array(const char *path) {
    plsh_npy npy;
    plsh_error error;
    assert_ok(plsh_npy_read(path, &npy, &error));
    return npy;
}

static void check_golden(const char *name, const char *family, const char *expected) {
    const char *folder = test_shared_folder("golden/families/%s/config.json", name);
    plsh_npy ids = array(shared(name, "input_ids.npy")), logits = array(shared(name, expected));
    print_message("%s\n", name);
    check(folder, family, &ids, &logits);
    plsh_npy_free(&ids);
    plsh_npy_free(&logits);
}

static void test_goldens(void **state) {
    (void)state;
    static const char *const names[] = {"baichuan", "jais13",          "jais_mup", "btlm",
                                        "refact",   "mpt_storywriter", "mpt_gqa",  "mpt_qkln_bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_golden(names[i], NULL, "logits.npy");
}

/* What no file says: by the rule its head is plain; the option takes the other family. */
static void test_chosen(void **state) {
    (void)state;
    check_golden("baichuan2", "baichuan2-13b", "logits.npy");
    check_golden("baichuan2", NULL, "logits_plain_head.npy");
    check_golden("refact", "gpt_refact-rmsnorm", "logits_rmsnorm.npy");
    plsh_model *model;
    plsh_error error;
    const char *folder = test_shared_folder("golden/families/%s/config.json", "refact");
    const plsh_model_options options = {.family = "baichuan-13b"};
    assert_int_equal(plsh_model_open(&model, folder, &options, &error), PLSH_STATUS_INVALID);
    test_message_holds(error.message, "this model is Refact");
}

/* Slopes divided by a factor, or by the length over the trained one. The variants have no weights
 * of their own: a folder with their config.json and the weights of the model. */
static void test_alibi_scaling(void **state) {
    (void)state;
    static const char *const names[] = {"alibi_scaling_factor", "alibi_scaling_dynamic"};
    for (int i = 0; i < 2; i++) {
        char folder[] = "scaled-XXXXXX", file[200], command[4200];
        assert_non_null(mkdtemp(folder));
        snprintf(file, sizeof file, "variants/%s/config.json", names[i]);
        snprintf(command, sizeof command, "cp '%s' '%s' %s/ && chmod u+w %s/*",
                 shared("jais_mup", file), shared("jais_mup", "model.safetensors"), folder, folder);
        assert_int_equal(system(command), 0);
        snprintf(file, sizeof file, "variants/%s/logits.npy", names[i]);
        plsh_npy ids = array(shared("jais_mup", "input_ids.npy")),
                 logits = array(shared("jais_mup", file));
        print_message("%s\n", names[i]);
        check(folder, NULL, &ids, &logits);
        plsh_npy_free(&ids);
        plsh_npy_free(&logits);
        tiny_model_remove(folder);
    }
}

/* Without a length, or within the trained one, a dynamic scale is 1. */
static void test_dynamic_short(void **state) {
    (void)state;
    plsh_model *plain = NULL, *dynamic = NULL;
    char folder[] = "scaled-XXXXXX", command[4200], original[1024];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "cp '%s' '%s' %s/ && chmod u+w %s/*",
             shared("jais_mup", "variants/alibi_scaling_dynamic/config.json"),
             shared("jais_mup", "model.safetensors"), folder, folder);
    assert_int_equal(system(command), 0);
    snprintf(original, sizeof original, "%s", shared("jais_mup", "config.json"));
    *strrchr(original, '/') = '\0';
    plain = open_model(original, NULL);
    dynamic = open_model(folder, NULL);
    assert_int_equal(plsh_model_describe(dynamic).alibi_length, 32);
    plsh_npy ids = array(shared("jais_mup", "input_ids.npy"));
    const size_t bytes = 40 * (size_t)plsh_model_describe(plain).vocabulary * sizeof(float);
    for (int64_t length = 0; length <= 64; length += 32) {
        float *a = run(plain, ids.data, 40, 0, 40, 0),
              *b = run(dynamic, ids.data, 40, 0, 40, length);
        assert_int_equal(memcmp(a, b, bytes) == 0, length <= 32);
        free(a);
        free(b);
    }
    plsh_npy_free(&ids);
    plsh_model_close(plain);
    plsh_model_close(dynamic);
    tiny_model_remove(folder);
}

/* References that make_qwen2.py and make_mpt.py made. */
static void check_own(const char *folder) {
    char path[1024];
    snprintf(path, sizeof path, "%s/input_ids.npy", folder);
    plsh_npy ids = array(path);
    snprintf(path, sizeof path, "%s/logits.npy", folder);
    plsh_npy logits = array(path);
    check(folder, NULL, &ids, &logits);
    plsh_npy_free(&ids);
    plsh_npy_free(&logits);
}

static void test_qwen2(void **state) {
    (void)state;
    check_own(PLSH_TEST_FOLDER "/qwen2");
}

static void test_mpt(void **state) {
    (void)state;
    check_own(PLSH_TEST_FOLDER "/mpt");
}

/* ---- Refact as its files were in 2023: k and v apart, gate and up apart ---- */

typedef struct apart {
    const char *name, *first, *second; /* of the tensor of two, and of its halves */
} apart;

static const apart parts[] = {{"attn.kv.", "attn.k.", "attn.v."},
                              {"mlp.gate_up_proj.", "mlp.linear_1.", "mlp.linear_3."}};

/* One half of a tensor, or all of it under its name: `half` 0 or 1, or -1. */
static plsh_tensor take_half(const plsh_tensor *tensor, int half, char name[128]) {
    plsh_tensor out = *tensor;
    out.name = name;
    snprintf(name, 128, "%s", tensor->name);
    for (int p = 0; p < 2 && half >= 0; p++) {
        const char *at = strstr(tensor->name, parts[p].name);
        if (!at) continue;
        snprintf(name, 128, "%.*s%sweight", (int)(at - tensor->name), tensor->name,
                 half ? parts[p].second : parts[p].first);
        out.shape[0] /= 2;
        out.size /= 2;
        out.data = (const char *)tensor->data + (size_t)half * out.size;
    }
    return out;
}

static bool is_double(const plsh_tensor *tensor) {
    return strstr(tensor->name, parts[0].name) || strstr(tensor->name, parts[1].name);
}

static void write_halves(const char *from, const char *to) {
    plsh_weights *weights;
    plsh_weights_writer *writer;
    plsh_error error;
    char name[128];
    assert_ok(plsh_weights_open(&weights, from, &error));
    assert_ok(plsh_weights_writer_create(&writer, to, PLSH_WEIGHTS_SAFETENSORS, &error));
    for (int writing = 0; writing < 2; writing++) {
        for (size_t i = 0; i < plsh_weights_count(weights); i++) {
            const plsh_tensor *tensor = plsh_weights_at(weights, i);
            for (int half = is_double(tensor) ? 0 : -1; half < (is_double(tensor) ? 2 : 0);
                 half++) {
                const plsh_tensor out = take_half(tensor, half, name);
                assert_ok(writing ? plsh_weights_writer_bytes(writer, out.data, out.size, &error)
                                  : plsh_weights_writer_declare(writer, &out, &error));
            }
        }
    }
    assert_ok(plsh_weights_writer_commit(writer, &error));
    plsh_weights_close(weights);
}

static void test_refact_2023(void **state) {
    (void)state;
    char folder[] = "refact-XXXXXX", path[64], command[2200];
    plsh_npy ids = array(shared("refact", "input_ids.npy")),
             logits = array(shared("refact", "logits.npy"));
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "cp '%s' %s/ && chmod u+w %s/*",
             shared("refact", "config.json"), folder, folder);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    write_halves(shared("refact", "model.safetensors"), path);
    check(folder, NULL, &ids, &logits);
    plsh_npy_free(&ids);
    plsh_npy_free(&logits);
    tiny_model_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qwen2),        cmocka_unit_test(test_mpt),
        cmocka_unit_test(test_refact_2023),  cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_chosen),       cmocka_unit_test(test_alibi_scaling),
        cmocka_unit_test(test_dynamic_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
