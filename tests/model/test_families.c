/* model: logits of every family against the reference data: at once, in chunks, token by token. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plsh/lm.h"
#include "support/support.h"

/* The suggested limit of the reference data for float32 logits. */
static const double limit = 5e-5;

static plsh_npy array_of(const char *format, const char *name) {
    char file[160];
    snprintf(file, sizeof(file), format, name);
    return test_shared_npy(file);
}

/* References are float32. */
static plsh_model *open_model(const char *path, const char *adapter) {
    plsh_model *model;
    plsh_error error;
    const plsh_model_options options = {.adapter = adapter, .compute = PLSH_COMPUTE_FLOAT32};
    assert_ok(plsh_model_open(&model, path, &options, &error));
    return model;
}

/* Logits of all tokens, fed in steps of `each`, chunks of `chunk` tokens. */
static float *run_model(const plsh_model *model, const plsh_npy *ids, const plsh_layer_attention *a,
                        int64_t attention_count, int64_t chunk, int64_t each) {
    plsh_error error;
    plsh_session *session;
    plsh_model_facts facts = plsh_model_describe(model);
    int64_t n = (int64_t)ids->count;
    plsh_session_options options = {
        .attention = a, .attention_count = attention_count, .chunk = chunk};
    float *hidden = malloc((size_t)(n * facts.hidden) * sizeof(float));
    float *logits = malloc((size_t)(n * facts.vocabulary) * sizeof(float));
    assert_ok(plsh_session_create(&session, model, &options, &error));
    for (int64_t at = 0; at < n; at += each) {
        plsh_step step = {.ids = (const int32_t *)ids->data + at,
                          .count = n - at < each ? n - at : each,
                          .hidden = hidden + at * facts.hidden};
        assert_ok(plsh_session_step(session, &step, &error));
    }
    assert_int_equal(plsh_session_length(session), n);
    assert_ok(plsh_session_logits(session, hidden, n, logits, &error));
    plsh_session_destroy(session);
    free(hidden);
    return logits;
}

static double largest_difference(const float *got, const plsh_npy *expected) {
    double most = 0;
    for (size_t i = 0; i < expected->count; i++) {
        double e = fabs((double)got[i] - (double)((const float *)expected->data)[i]);
        if (!(e <= most)) most = e;
    }
    return most;
}

static void compare(const char *what, float *got, const plsh_npy *expected, double most) {
    double found = largest_difference(got, expected);
    print_message("%-24s error %.2g, limit %.2g\n", what, found, most);
    if (!(found <= most)) fail_msg("%s: error %g above %g", what, found, most);
    free(got);
}

static void test_families(void **state) {
    (void)state;
    static const char *const names[] = {"qwen3",  "llama", "mistral", "bloom",
                                        "bloom6", "mpt",   "falcon"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        plsh_npy ids = array_of("golden/models/%s/input_ids.npy", names[i]);
        plsh_npy logits = array_of("golden/models/%s/logits.npy", names[i]);
        plsh_model *model =
            open_model(test_shared_folder("golden/models/%s/config.json", names[i]), NULL);
        compare(names[i], run_model(model, &ids, NULL, 0, 0, 48), &logits, limit);
        compare("  in chunks of 7", run_model(model, &ids, NULL, 0, 7, 48), &logits, limit);
        compare("  token by token", run_model(model, &ids, NULL, 0, 0, 1), &logits, limit);
        plsh_model_close(model);
        plsh_npy_free(&ids);
        plsh_npy_free(&logits);
    }
}

/* sigma_h = 2^(8 (h+1) / H). */
static void check_variant(const char *name, const char *variant, plsh_method method, bool drop) {
    char file[160];
    snprintf(file, sizeof(file), "golden/models/%s/variants/%s/logits.npy", name, variant);
    plsh_npy logits = test_shared_npy(file), ids = array_of("golden/models/%s/input_ids.npy", name);
    plsh_model *model = open_model(test_shared_folder("golden/models/%s/config.json", name), NULL);
    plsh_head head[8];
    plsh_error error;
    assert_ok(plsh_model_heads(model, method, 0, head, &error));
    for (int h = 0; h < 4; h++) head[h].block = 16;
    plsh_layer_attention attention = {.drop_rope = drop, .head = head, .head_count = 4};
    compare(variant, run_model(model, &ids, &attention, 1, 0, 48), &logits, limit);
    compare("  token by token", run_model(model, &ids, &attention, 1, 0, 1), &logits, limit);
    plsh_layer_attention each[2] = {attention, attention};
    compare("  layer by layer", run_model(model, &ids, each, 2, 16, 48), &logits, limit);
    plsh_model_close(model);
    plsh_npy_free(&ids);
    plsh_npy_free(&logits);
}

static void test_variants(void **state) {
    (void)state;
    static const char *const names[] = {"qwen3", "mistral"};
    for (int i = 0; i < 2; i++) {
        check_variant(names[i], "alibi_rope", PLSH_METHOD_EXACT, false);
        check_variant(names[i], "alibi_rope", PLSH_METHOD_DENSE, false);
        check_variant(names[i], "alibi_nope", PLSH_METHOD_EXACT, true);
        check_variant(names[i], "fixed_blocks", PLSH_METHOD_FIXED, false);
    }
}

static void test_lora(void **state) {
    (void)state;
    plsh_npy ids = test_shared_npy("golden/models/mistral/input_ids.npy");
    plsh_npy logits = test_shared_npy("golden/lora/logits.npy");
    const char *adapter = test_shared_folder("golden/%s/adapter_config.json", "lora");
    plsh_model *model =
        open_model(test_shared_folder("golden/models/%s/config.json", "mistral"), adapter);
    compare("mistral with LoRA", run_model(model, &ids, NULL, 0, 0, 48), &logits, limit);
    compare("  token by token", run_model(model, &ids, NULL, 0, 0, 1), &logits, limit);
    plsh_model_close(model);
    plsh_npy_free(&ids);
    plsh_npy_free(&logits);
}

/* The last hidden states of an encoder, alone, and first and last in a batch of three. */
static void check_encoder(const char *name, double most) {
    plsh_error error;
    plsh_npy ids = array_of("golden/%s/input_ids.npy", name);
    plsh_npy expected = array_of("golden/%s/last_hidden_state.npy", name);
    plsh_model *model = open_model(test_shared_folder("golden/%s/config.json", name), NULL);
    int64_t n = (int64_t)ids.count, hidden = plsh_model_describe(model).hidden;
    int64_t offsets[] = {0, n, n + 3, 2 * n + 3};
    int32_t *batch = malloc((size_t)offsets[3] * sizeof(*batch));
    memcpy(batch, ids.data, (size_t)n * sizeof(*batch));
    memcpy(batch + n, ids.data, 3 * sizeof(*batch));
    memcpy(batch + n + 3, ids.data, (size_t)n * sizeof(*batch));
    float *rows = malloc((size_t)(offsets[3] * hidden) * sizeof(float));
    plsh_encoding one = {.ids = ids.data, .count = n, .hidden = rows};
    assert_ok(plsh_model_encode(model, &one, &error));
    double alone = largest_difference(rows, &expected);
    plsh_encoding packed = {
        .ids = batch, .offsets = offsets, .sequences = 3, .count = offsets[3], .hidden = rows};
    assert_ok(plsh_model_encode(model, &packed, &error));
    double first = largest_difference(rows, &expected);
    double last = largest_difference(rows + (n + 3) * hidden, &expected);
    print_message("%-24s error %.2g, packed %.2g and %.2g, limit %.2g\n", name, alone, first, last,
                  most);
    assert_true(alone <= most && first <= most && last <= most);
    free(rows);
    free(batch);
    plsh_model_close(model);
    plsh_npy_free(&ids);
    plsh_npy_free(&expected);
}

static void test_encoders(void **state) {
    (void)state;
    check_encoder("models/bert", 1e-5);
    check_encoder("jina-bert-v2", 2e-5);
    check_encoder("jina-bert-v2/heads12", 2e-5);
}

/* Numbers of an array in a flat JSON file: what follows "key": [ .. ]. */
static int read_numbers(const char *path, const char *key, int32_t *out, int most) {
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    char quoted[64];
    snprintf(quoted, sizeof(quoted), "\"%s\": [", key);
    char *at = strstr(text, quoted);
    assert_non_null(at);
    at += strlen(quoted);
    int count = 0;
    for (char *end; count < most; at = end + strspn(end, ", \n")) {
        long value = strtol(at, &end, 10);
        if (end == at) break;
        out[count++] = (int32_t)value;
    }
    return count;
}

typedef struct greedy_case {
    int32_t prompt[64], made[128];
    int prompt_count, made_count;
} greedy_case;

/* Greedy tokens after a prompt are those of the reference, and so are the logits. */
static void check_greedy(const char *path, const greedy_case *g, const plsh_npy *logits) {
    plsh_model *model = open_model(path, NULL);
    const int64_t vocabulary = plsh_model_describe(model).vocabulary;
    plsh_session *session, *fork;
    plsh_error error;
    plsh_sampler greedy = {0};
    float *row = malloc((size_t)vocabulary * sizeof(float));
    assert_ok(plsh_session_create(&session, model, NULL, &error));
    plsh_step step = {.ids = g->prompt, .count = g->prompt_count, .logits = row};
    assert_ok(plsh_session_step(session, &step, &error));
    double worst = 0;
    for (int i = 0; i < g->made_count; i++) {
        int32_t token;
        for (int64_t c = 0; logits && c < vocabulary; c++) {
            const float *expected = (const float *)logits->data + i * vocabulary;
            worst = fmax(worst, fabs((double)row[c] - (double)expected[c]));
        }
        assert_ok(plsh_sampler_choose(&greedy, row, vocabulary, (uint64_t)i, &token, &error));
        assert_int_equal(token, g->made[i]);
        if (i == g->made_count / 2) { /* a fork continues where the original was */
            assert_ok(plsh_session_fork(session, &fork, &error));
            plsh_session_destroy(session);
            session = fork;
        }
        plsh_step next = {.ids = &token, .count = 1, .logits = row};
        assert_ok(plsh_session_step(session, &next, &error));
    }
    print_message("%d greedy tokens equal; logits %.2g\n", g->made_count, worst);
    assert_true(worst <= limit);
    free(row);
    plsh_session_destroy(session);
    plsh_model_close(model);
}

static void test_generate(void **state) {
    (void)state;
    static const char *const names[] = {"qwen3", "bloom"};
    for (int i = 0; i < 2; i++) {
        char file[128];
        greedy_case g;
        plsh_npy logits = array_of("golden/generate/%s_logits.npy", names[i]);
        snprintf(file, sizeof(file), "golden/generate/%s.json", names[i]);
        g.prompt_count = read_numbers(test_shared(file), "prompt", g.prompt, 64);
        g.made_count = read_numbers(test_shared(file), "generated", g.made, 128);
        assert_int_equal(g.made_count, 20);
        check_greedy(test_shared_folder("golden/models/%s/config.json", names[i]), &g, &logits);
        plsh_npy_free(&logits);
    }
}

static void test_stories(void **state) {
    (void)state;
    greedy_case g;
    const char *folder = test_shared_folder("data/models/%s/config.json", "stories260k");
    const char *file = test_shared("golden/stories260k/generate.json");
    g.prompt_count = read_numbers(file, "ids", g.prompt, 64);
    g.made_count = read_numbers(file, "greedy", g.made, 128);
    assert_int_equal(g.made_count, 100);
    check_greedy(folder, &g, NULL);
    plsh_npy logits = test_shared_npy("golden/stories260k/logits.npy");
    plsh_npy ids = {.count = (size_t)g.prompt_count, .data = g.prompt};
    plsh_model *model = open_model(folder, NULL);
    compare("stories260k", run_model(model, &ids, NULL, 0, 0, 48), &logits, limit);
    plsh_model_close(model);
    plsh_npy_free(&logits);
}

/* Skipped under sanitizers, where it takes minutes; small models run the same code. */
static void skip_large_models(void) {
#ifdef TEST_SANITIZED
    test_skip("135 million parameters are left to the plain build");
#endif
}

static void test_smollm2(void **state) {
    (void)state;
    skip_large_models();
    greedy_case g = {.prompt = {504, 3575, 282, 4649, 314}, .prompt_count = 5};
    const char *gguf = test_shared("data/models/smollm2-135m-q4_1/SmolLM2-135M-Instruct.Q4_1.gguf");
    g.made_count = read_numbers(test_shared("golden/smollm2/meta.json"), "generated", g.made, 128);
    check_greedy(gguf, &g, NULL);
    plsh_npy ids = test_shared_npy("golden/smollm2/valid_ids_128.npy");
    plsh_npy last = test_shared_npy("golden/smollm2/valid_last_logits.npy");
    plsh_npy best = test_shared_npy("golden/smollm2/valid_argmax.npy");
    plsh_model *model = open_model(gguf, NULL);
    const int64_t vocabulary = plsh_model_describe(model).vocabulary;
    float *logits = run_model(model, &ids, NULL, 0, 0, 128);
    for (int64_t i = 0; i < 128; i++) {
        int64_t top = 0;
        for (int64_t c = 1; c < vocabulary; c++) {
            if (logits[i * vocabulary + c] > logits[i * vocabulary + top]) top = c;
        }
        assert_int_equal(top, ((const int32_t *)best.data)[i]);
    }
    double error_last = largest_difference(logits + 127 * vocabulary, &last);
    print_message("smollm2 %.2g, limit 1e-3\n", error_last);
    assert_true(error_last <= 1e-3);
    free(logits);
    plsh_model_close(model);
    plsh_npy_free(&ids);
    plsh_npy_free(&last);
    plsh_npy_free(&best);
}

/* q, k and v that were kept of a layer, as float16, and how far what the model has is from them. */
typedef struct kept_layer {
    int64_t layer;
    plsh_npy q, k, v;
    int64_t seen;
    double worst;
} kept_layer;

/* In a GGUF of a Llama the pairs that RoPE turns lie side by side, in the arrays in two halves. */
static int64_t place_of(int64_t c, int64_t dim, bool pairs) {
    return pairs ? c % 2 * (dim / 2) + c / 2 : c;
}

static void compare_rows(kept_layer *kept, const plsh_npy *array, bool pairs, const float *rows,
                         plsh_layout layout, int64_t first, int64_t count) {
    const int64_t heads = array->shape[0], n = array->shape[1], dim = array->shape[2];
    for (int64_t i = 0; i < heads * count * dim; i++) {
        const int64_t h = i / (count * dim), r = i / dim % count, c = i % dim;
        const double is = (double)rows[h * layout.head_stride + r * layout.row_stride + c];
        const double was =
            (double)((const float *)
                         array->data)[(h * n + first + r) * dim + place_of(c, dim, pairs)];
        /* half a unit of float16's last place is 2^-11 of the number, 2^-25 at the least */
        const double off = fabs(is - was) - fmax(fabs(was) / 2048, 0x1p-25);
        if (!(off <= kept->worst)) kept->worst = off;
    }
}

static void see_kept(void *context, const plsh_model_qkv *seen) {
    kept_layer *kept = context;
    if (seen->layer != kept->layer) return;
    compare_rows(kept, &kept->q, true, seen->q, seen->q_layout, seen->position, seen->count);
    compare_rows(kept, &kept->k, true, seen->k, seen->k_layout, seen->position, seen->count);
    compare_rows(kept, &kept->v, false, seen->v, seen->v_layout, seen->position, seen->count);
    kept->seen += seen->count;
}

static plsh_npy kept_array(char name, const char *layer, const char *ending) {
    char file[128];
    plsh_error error;
    snprintf(file, sizeof file, "data/qkv/smollm2-layer%s/%c%s.npy", layer, name, ending);
    plsh_npy array = test_shared_npy(file);
    assert_ok(plsh_npy_to_float32(&array, &error));
    return array;
}

static void check_kept(const plsh_model *model, const plsh_token_ids *ids, const char *layer,
                       bool after_rope) {
    plsh_error error;
    plsh_session *session;
    const char *ending = after_rope ? "_rope" : "";
    kept_layer kept = {.layer = strtol(layer, NULL, 10),
                       .q = kept_array('q', layer, ending),
                       .k = kept_array('k', layer, ending),
                       .v = kept_array('v', layer, "")};
    plsh_session_options options = {
        .chunk = 80, .tap = {.see = see_kept, .context = &kept, .after_rope = after_rope}};
    plsh_step step = {.ids = ids->ids, .count = 192};
    assert_ok(plsh_session_create(&session, model, &options, &error));
    assert_ok(plsh_session_step(session, &step, &error));
    print_message("smollm2 layer %s%s: %.2g from the kept arrays beyond their float16\n", layer,
                  ending, kept.worst);
    assert_int_equal(kept.seen, step.count);
    assert_true(kept.worst <= 2e-4);
    plsh_session_destroy(session);
    plsh_npy_free(&kept.q);
    plsh_npy_free(&kept.k);
    plsh_npy_free(&kept.v);
}

/* The first tokens of the text whose q, k and v are kept in data/qkv. */
static void test_tap(void **state) {
    (void)state;
    skip_large_models();
    static char text[4096];
    plsh_error error;
    plsh_tokenizer *tokenizer;
    plsh_token_ids ids = {0};
    FILE *file = fopen(test_shared("data/wikitext-raw/wiki.test.raw"), "rb");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text, file), sizeof text);
    fclose(file);
    const char *gguf = test_shared("data/models/smollm2-135m-q4_1/SmolLM2-135M-Instruct.Q4_1.gguf");
    assert_ok(plsh_tokenizer_open(&tokenizer, gguf, &error));
    assert_ok(plsh_tokenizer_encode(tokenizer, text, sizeof text, false, &ids, &error));
    plsh_model *model = open_model(gguf, NULL);
    for (int after_rope = 0; after_rope < 2; after_rope++) {
        check_kept(model, &ids, "00", after_rope == 1);
        check_kept(model, &ids, "15", after_rope == 1);
    }
    plsh_model_close(model);
    plsh_token_ids_free(&ids);
    plsh_tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families), cmocka_unit_test(test_variants),
        cmocka_unit_test(test_lora),     cmocka_unit_test(test_encoders),
        cmocka_unit_test(test_generate), cmocka_unit_test(test_stories),
        cmocka_unit_test(test_smollm2),  cmocka_unit_test(test_tap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
