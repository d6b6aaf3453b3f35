/* fuzz: options of models, sessions, steps, samplers and encodings: every field from the input, on
 * one small model. What is accepted runs; what is refused changes nothing. */
#include "fuzz/model_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HIDDEN = 8, HEADS = 2, VOCABULARY = 8, MOST_LAYERS = 3, MOST_TOKENS = 40 };

typedef struct bytes {
    const uint8_t *at;
    size_t left;
} bytes;

static uint64_t take(bytes *in, size_t width) {
    uint64_t value = 0;
    if (width > in->left) width = in->left;
    memcpy(&value, in->at, width);
    in->at += width;
    in->left -= width;
    return value;
}

/* Small numbers, large ones, and those that overflow. */
static int64_t take_integer(bytes *in) {
    const uint64_t kind = take(in, 1);
    if (kind < 200) return (int64_t)(kind % 50) - 5;
    return (int64_t)take(in, kind < 230 ? 3 : 8);
}

static double take_real(bytes *in) {
    const uint64_t kind = take(in, 1), word = take(in, kind < 200 ? 1 : 8);
    double value;
    if (kind < 200) return (double)(int64_t)(word % 64) / 4.0 - 1.0;
    memcpy(&value, &word, sizeof value);
    return value;
}

static char folder[128]; /* of the model; empty: not written yet */

static void remove_model(void) { nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

/* A Llama of one layer, written once. */
static const char *model_path(void) {
    static const struct {
        const char *name;
        int64_t rows, columns;
    } tensors[] = {{"model.embed_tokens.weight", VOCABULARY, HIDDEN},
                   {"model.norm.weight", 0, HIDDEN},
                   {"model.layers.0.input_layernorm.weight", 0, HIDDEN},
                   {"model.layers.0.post_attention_layernorm.weight", 0, HIDDEN},
                   {"model.layers.0.self_attn.q_proj.weight", HIDDEN, HIDDEN},
                   {"model.layers.0.self_attn.k_proj.weight", HIDDEN / 2, HIDDEN},
                   {"model.layers.0.self_attn.v_proj.weight", HIDDEN / 2, HIDDEN},
                   {"model.layers.0.self_attn.o_proj.weight", HIDDEN, HIDDEN},
                   {"model.layers.0.mlp.gate_proj.weight", HIDDEN, HIDDEN},
                   {"model.layers.0.mlp.up_proj.weight", HIDDEN, HIDDEN},
                   {"model.layers.0.mlp.down_proj.weight", HIDDEN, HIDDEN}};
    enum { COUNT = sizeof tensors / sizeof *tensors };
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 8, \"intermediate_size\": 8, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
        "\"vocab_size\": 8, \"tie_word_embeddings\": true}";
    static float numbers[HIDDEN * HIDDEN];
    plsh_tensor made[COUNT];
    plsh_error error;
    char path[256];
    if (folder[0]) return folder;
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.100s/plsh-fuzz-XXXXXX", root ? root : "/tmp");
    fail_if(!mkdtemp(folder) || atexit(remove_model) != 0);
    for (int i = 0; i < HIDDEN * HIDDEN; i++) numbers[i] = (float)(i * 7 % 13) / 13.0f - 0.4f;
    for (int i = 0; i < COUNT; i++) {
        const int64_t rows = tensors[i].rows, columns = tensors[i].columns;
        made[i] = (plsh_tensor){.name = tensors[i].name,
                                .rank = rows ? 2 : 1,
                                .shape = {rows ? rows : columns, rows ? columns : 0},
                                .data = numbers,
                                .size = (size_t)((rows ? rows : 1) * columns) * sizeof(float)};
    }
    snprintf(path, sizeof path, "%.120s/model.safetensors", folder);
    fail_if(plsh_safetensors_save(path, made, COUNT, &error) != PLSH_STATUS_OK);
    snprintf(path, sizeof path, "%.120s/config.json", folder);
    fail_if(plsh_file_save(path, config, sizeof config - 1, &error) != PLSH_STATUS_OK);
    return folder;
}

static plsh_head take_head(bytes *in) {
    return (plsh_head){.method = (plsh_method)(take(in, 1) % 12),
                       .partition = {.scheme = (plsh_scheme)(take(in, 1) % 8),
                                     .design = (plsh_design)(take(in, 1) % 4),
                                     .decay = {.kind = (plsh_decay_kind)(take(in, 1) % 6),
                                               .a = take_real(in),
                                               .b = take_real(in),
                                               .limit = take_real(in)},
                                     .samples = take_integer(in),
                                     .seed = take(in, 2),
                                     .head = (uint32_t)take(in, 1)},
                       .eps = take_real(in),
                       .window = take_integer(in),
                       .block = take_integer(in)};
}

static void step_session(bytes *in, plsh_session *session) {
    int32_t ids[MOST_TOKENS];
    float hidden[MOST_TOKENS * HIDDEN], logits[VOCABULARY];
    const int64_t before = plsh_session_length(session), count = take_integer(in) % MOST_TOKENS;
    for (int i = 0; i < MOST_TOKENS; i++) ids[i] = (int32_t)(take(in, 1) % 10) - 1;
    const plsh_step step = {.ids = ids, .count = count, .hidden = hidden, .logits = logits};
    const plsh_status status = plsh_session_step(session, &step, NULL);
    fail_if(plsh_session_length(session) != before + (status == PLSH_STATUS_OK ? count : 0));
    const plsh_sampler sampler = {.temperature = take_real(in),
                                  .top_k = take_integer(in),
                                  .top_p = take_real(in),
                                  .seed = take(in, 1)};
    int32_t token = -1;
    if (status == PLSH_STATUS_OK && count > 0 &&
        plsh_sampler_choose(&sampler, logits, VOCABULARY, take(in, 1), &token, NULL) ==
            PLSH_STATUS_OK)
        fail_if(token < 0 || token >= VOCABULARY);
    if (take(in, 1) % 4 == 0) plsh_session_truncate(session, take_integer(in), NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const isas[] = {NULL, "", "scalar", "avx2", "nothing"};
    bytes in = {data, size};
    plsh_model *model;
    plsh_session *session;
    plsh_head heads[MOST_LAYERS * HEADS];
    plsh_layer_attention attention[MOST_LAYERS];
    const plsh_model_options options = {.threads = (int)take_integer(&in) % 3,
                                        .isa = isas[take(&in, 1) % 5]};
    if (plsh_model_open(&model, model_path(), &options, NULL) != PLSH_STATUS_OK) return 0;
    for (int i = 0; i < MOST_LAYERS * HEADS; i++) heads[i] = take_head(&in);
    for (int i = 0; i < MOST_LAYERS; i++)
        attention[i] = (plsh_layer_attention){.original = take(&in, 1) % 4 == 0,
                                              .drop_rope = take(&in, 1) % 2,
                                              .head = take(&in, 1) % 8 ? heads + i * HEADS : NULL,
                                              .head_count = (int64_t)(take(&in, 1) % 3)};
    const plsh_session_options with = {.attention = take(&in, 1) % 8 ? attention : NULL,
                                       .attention_count = (int64_t)(take(&in, 1) % 4),
                                       .kv = (plsh_dtype)(take(&in, 1) % 14),
                                       .chunk = take_integer(&in),
                                       .undo = take_integer(&in)};
    if (plsh_session_create(&session, model, &with, NULL) == PLSH_STATUS_OK) {
        for (int i = 0; i < 3; i++) step_session(&in, session);
        plsh_session_destroy(session);
    }
    plsh_model_close(model);
    return 0;
}
