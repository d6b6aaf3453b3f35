/* model: what a server needs besides results: pauses in a pass, and bounds of memory. */
#include <stdlib.h>
#include <string.h>

#include "plsh/lm.h"
#include "support/support.h"
#include "support/tiny_model.h"

enum { TOKENS = 600, VOCABULARY = 64, HIDDEN = 32 };

/* A JinaBERT of two layers. */
static const char *tiny_encoder(void) {
    static const char config[] =
        "{\"model_type\": \"bert\", \"hidden_size\": 32, \"intermediate_size\": 64, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"vocab_size\": 64, "
        "\"position_embedding_type\": \"alibi\", \"feed_forward_type\": \"geglu\", "
        "\"type_vocab_size\": 2, \"layer_norm_eps\": 1e-12}";
    static const tiny_tensor tensors[] = {
        {"embeddings.word_embeddings.weight", VOCABULARY, HIDDEN},
        {"embeddings.token_type_embeddings.weight", 2, HIDDEN},
        {"embeddings.LayerNorm.weight", 0, HIDDEN},
        {"embeddings.LayerNorm.bias", 0, HIDDEN},
        {"encoder.layer.%d.attention.self.query.weight", HIDDEN, HIDDEN},
        {"encoder.layer.%d.attention.self.query.bias", 0, HIDDEN},
        {"encoder.layer.%d.attention.self.key.weight", HIDDEN, HIDDEN},
        {"encoder.layer.%d.attention.self.key.bias", 0, HIDDEN},
        {"encoder.layer.%d.attention.self.value.weight", HIDDEN, HIDDEN},
        {"encoder.layer.%d.attention.self.value.bias", 0, HIDDEN},
        {"encoder.layer.%d.attention.output.dense.weight", HIDDEN, HIDDEN},
        {"encoder.layer.%d.attention.output.dense.bias", 0, HIDDEN},
        {"encoder.layer.%d.attention.output.LayerNorm.weight", 0, HIDDEN},
        {"encoder.layer.%d.attention.output.LayerNorm.bias", 0, HIDDEN},
        {"encoder.layer.%d.mlp.gated_layers.weight", 2 * 64, HIDDEN},
        {"encoder.layer.%d.mlp.wo.weight", HIDDEN, 64},
        {"encoder.layer.%d.mlp.wo.bias", 0, HIDDEN},
        {"encoder.layer.%d.mlp.layernorm.weight", 0, HIDDEN},
        {"encoder.layer.%d.mlp.layernorm.bias", 0, HIDDEN},
    };
    return tiny_model_write(config, tensors, sizeof tensors / sizeof *tensors, 2);
}

static void fill_ids(int32_t *ids, int64_t count, int32_t step) {
    for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)((i * step + 5) % VOCABULARY);
}

/* A pause that encodes a short text itself, and ends the pass after `most` calls. */
typedef struct visitor {
    const plsh_model *model;
    int calls, most;
    float hidden[20 * HIDDEN];
} visitor;

static bool visit(void *context) {
    visitor *v = context;
    int32_t ids[20];
    plsh_error error;
    fill_ids(ids, 20, 3);
    const plsh_encoding encoding = {.ids = ids, .count = 20, .hidden = v->hidden};
    assert_ok(plsh_model_encode(v->model, &encoding, &error));
    return ++v->calls < v->most;
}

static void test_pauses_change_nothing(void **state) {
    (void)state;
    plsh_error error;
    plsh_model *model;
    const char *folder = tiny_encoder();
    static int32_t ids[TOKENS];
    static float plain[TOKENS * HIDDEN], paused[TOKENS * HIDDEN], alone[20 * HIDDEN];
    assert_ok(plsh_model_open(&model, folder, NULL, &error));
    visitor v = {.model = model, .most = 1000};
    visit(&v);
    memcpy(alone, v.hidden, sizeof alone);
    fill_ids(ids, TOKENS, 7);
    plsh_encoding encoding = {.ids = ids, .count = TOKENS, .hidden = plain};
    assert_ok(plsh_model_encode(model, &encoding, &error));
    encoding.hidden = paused;
    encoding.pause = (plsh_pause){visit, &v};
    v.calls = 0;
    assert_ok(plsh_model_encode(model, &encoding, &error));
    assert_true(v.calls >= 2 * 5); /* two around attention, three parts of the MLP, two layers */
    assert_memory_equal(plain, paused, sizeof plain);
    assert_memory_equal(alone, v.hidden, sizeof alone);
    v = (visitor){.model = model, .most = 4};
    assert_fails(plsh_model_encode(model, &encoding, &error), PLSH_STATUS_CANCELLED, "ended");
    assert_int_equal(v.calls, 4);
    plsh_model_close(model);
    tiny_model_remove(folder);
}

static void test_bytes_of_an_encoding(void **state) {
    (void)state;
    plsh_error error;
    plsh_model *model;
    const char *folder = tiny_encoder();
    size_t few, many;
    assert_ok(plsh_model_open(&model, folder, NULL, &error));
    plsh_encoding encoding = {.count = TOKENS};
    assert_ok(plsh_model_encode_bytes(model, &encoding, &few, &error));
    assert_true(few > TOKENS * 3 * HIDDEN * sizeof(float)); /* q, k and v at least */
    encoding.count = 8 * TOKENS;
    assert_ok(plsh_model_encode_bytes(model, &encoding, &many, &error));
    assert_true(many > few && many < 8 * few);
    encoding.count = 0;
    assert_fails(plsh_model_encode_bytes(model, &encoding, &many, &error), PLSH_STATUS_INVALID,
                 "at least 1");
    plsh_model_close(model);
    tiny_model_remove(folder);
}

/* The bounds hold for every length, and are not far off for long ones. */
static void test_bytes_of_a_cache(void **state) {
    (void)state;
    plsh_error error;
    plsh_model *model;
    plsh_session *session, *probe;
    const char *folder = tiny_llama();
    int32_t ids[97];
    fill_ids(ids, 97, 7);
    assert_ok(plsh_model_open(&model, folder, NULL, &error));
    plsh_head head = {.method = PLSH_METHOD_EXACT};
    plsh_heads_alibi(1, PLSH_METHOD_EXACT, &head, NULL);
    const plsh_layer_attention exact = {.head = &head, .head_count = 1};
    for (int kind = 0; kind < 2; kind++) {
        const plsh_session_options options = {.attention = &exact, .attention_count = kind};
        assert_ok(plsh_session_create(&probe, model, &options, &error));
        assert_ok(plsh_session_create(&session, model, &options, &error));
        for (int64_t length = 97; length < 5000; length += 97) {
            const plsh_step step = {.ids = ids, .count = 97};
            assert_ok(plsh_session_step(session, &step, &error));
            const size_t bytes = plsh_session_cache_bytes(session);
            assert_true(plsh_session_cache_bytes_at(probe, length) >= bytes);
            if (length > 2000)
                assert_true(plsh_session_cache_bytes_at(probe, length) < bytes + bytes / 4);
        }
        plsh_session_destroy(session);
        plsh_session_destroy(probe);
    }
    plsh_model_close(model);
    tiny_model_remove(folder);
}

/* A session that takes no tokens lends its memory: results do not change. */
static void test_a_host_lends_its_memory(void **state) {
    (void)state;
    plsh_error error;
    plsh_model *model;
    plsh_session *sessions[3], *alone;
    const char *folder = tiny_llama();
    int32_t ids[40];
    float a[VOCABULARY], b[VOCABULARY], single[VOCABULARY];
    size_t bytes;
    fill_ids(ids, 40, 7);
    assert_ok(plsh_model_open(&model, folder, NULL, &error));
    for (int i = 0; i < 3; i++) assert_ok(plsh_session_create(&sessions[i], model, NULL, &error));
    assert_ok(plsh_session_create(&alone, model, NULL, &error));
    plsh_step steps[3] = {{.ids = ids, .count = 40},
                          {.ids = ids, .count = 3, .logits = a},
                          {.ids = ids, .count = 1, .logits = b}};
    assert_ok(plsh_session_step(sessions[0], &steps[0], &error));
    assert_ok(plsh_session_truncate(sessions[0], 0, &error));
    steps[0] = (plsh_step){0};
    assert_ok(plsh_session_step_batch(sessions, steps, 3, &error));
    assert_int_equal(plsh_session_length(sessions[0]), 0);
    assert_int_equal(plsh_session_length(sessions[1]), 3);
    const plsh_step same = {.ids = ids, .count = 3, .logits = single};
    assert_ok(plsh_session_step(alone, &same, &error));
    assert_memory_equal(a, single, sizeof a);
    assert_fails(plsh_session_step(sessions[0], &steps[0], &error), PLSH_STATUS_INVALID,
                 "at least 1");
    assert_ok(plsh_session_step_bytes(sessions[0], 3, &bytes, &error));
    assert_true(bytes > 512 * HIDDEN * sizeof(float));
    for (int i = 0; i < 3; i++) plsh_session_destroy(sessions[i]);
    plsh_session_destroy(alone);
    plsh_model_close(model);
    tiny_model_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pauses_change_nothing), cmocka_unit_test(test_bytes_of_an_encoding),
        cmocka_unit_test(test_bytes_of_a_cache), cmocka_unit_test(test_a_host_lends_its_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
