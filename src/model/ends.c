/* model: the tokens at which a model's text ends, from its files. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "formats/json.h"
#include "formats/path.h"
#include "model/model.h"
#include "plsh/model.h"

static plsh_status add_end(const json_t *value, const char *path, plsh_model_ends *out,
                           plsh_error *error) {
    const json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < INT32_MIN || id > INT32_MAX ||
        out->count == PLSH_MODEL_ENDS_MOST) {
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%s: \"eos_token_id\" must be a token, or a list of at most %d", path,
                         (int)PLSH_MODEL_ENDS_MOST);
    }
    out->ids[out->count++] = (int32_t)id;
    return PLSH_STATUS_OK;
}

/* Adds nothing if there is no such file, or it has no such field. */
static plsh_status read_ends(const char *path, plsh_model_ends *out, plsh_error *error) {
    json_t *root;
    if (!plsh_path_exists(path)) return PLSH_STATUS_OK;
    plsh_status status = plsh_weights_json_read(path, &root, error);
    if (status) return status;
    const json_t *value = json_object_get(root, "eos_token_id");
    if (json_is_array(value)) {
        for (size_t i = 0; !status && i < json_array_size(value); i++)
            status = add_end(json_array_get(value, i), path, out, error);
    } else if (value && !json_is_null(value)) {
        status = add_end(value, path, out, error);
    }
    json_decref(root);
    return status;
}

/* ---- Of a GGUF ---- */

static plsh_status add_id(int64_t id, plsh_model_ends *out, plsh_error *error) {
    for (int64_t i = 0; i < out->count; i++)
        if (out->ids[i] == id) return PLSH_STATUS_OK;
    if (out->count == PLSH_MODEL_ENDS_MOST)
        return plsh_fail(error, PLSH_STATUS_FORMAT, "more than %d end tokens",
                         (int)PLSH_MODEL_ENDS_MOST);
    out->ids[out->count++] = (int32_t)id;
    return PLSH_STATUS_OK;
}

/* The texts by which llama.cpp knows the tokens that end a generation (llama-vocab.cpp). */
static bool is_end_text(plsh_string token) {
    static const char *const texts[] = {
        "<|eot_id|>",    "<|eom_id|>",    "<|im_end|>",           "<|end|>",
        "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",      "<end_of_utterance>",
        "<EOT>",         "_<EOT>",        "<|return|>",           "<|call|>",
        "<|flush|>",     "<|calls|>",     "<｜end▁of▁sentence｜>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (token.length == strlen(texts[i]) && memcmp(token.bytes, texts[i], token.length) == 0)
            return true;
    return false;
}

static plsh_status read_end_texts(const plsh_weights *weights, plsh_model_ends *out,
                                  plsh_error *error) {
    static const char key[] = "tokenizer.ggml.tokens";
    const size_t count = plsh_metadata_length(weights, key);
    void *memory;
    if (count == 0 || count > INT32_MAX) return PLSH_STATUS_OK;
    plsh_status status = plsh_allocate(&memory, count, sizeof(plsh_string), "tokens", error);
    if (status) return status;
    const plsh_string *tokens = memory;
    status = plsh_metadata_strings(weights, key, memory, error);
    for (size_t i = 0; i < count && !status; i++)
        if (is_end_text(tokens[i])) status = add_id((int64_t)i, out, error);
    plsh_release(memory);
    return status;
}

static plsh_status read_gguf_ends(const plsh_weights *weights, plsh_model_ends *out,
                                  plsh_error *error) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    plsh_status status = PLSH_STATUS_OK;
    for (int i = 0; i < 3 && !status; i++) {
        int64_t id = -1;
        status = plsh_metadata_integer(weights, keys[i], 0, INT32_MAX, &id, error);
        if (!status && id >= 0) status = add_id(id, out, error);
    }
    return status ? status : read_end_texts(weights, out, error);
}

plsh_status plsh_model_end_tokens(const plsh_model *model, plsh_model_ends *out,
                                  plsh_error *error) {
    static const char *const names[] = {"generation_config.json", "config.json"};
    plsh_status status = PLSH_STATUS_OK;
    *out = (plsh_model_ends){0};
    if (plsh_weights_form_of(model->weights) == PLSH_WEIGHTS_GGUF)
        return read_gguf_ends(model->weights, out, error);
    for (int i = 0; i < 2 && !status && out->count == 0; i++) {
        char *path;
        status = plsh_path_join(&path, plsh_weights_folder(model->weights), names[i], error);
        if (!status) status = read_ends(path, out, error);
        plsh_release(path);
    }
    return status;
}
