/* model: the tokens at which a model's text ends, as its folder says. */
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

/* Nothing, where there is no such file, or it does not say. */
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

plsh_status plsh_model_end_tokens(const plsh_model *model, plsh_model_ends *out,
                                  plsh_error *error) {
    static const char *const names[] = {"generation_config.json", "config.json"};
    plsh_status status = PLSH_STATUS_OK;
    *out = (plsh_model_ends){0};
    if (plsh_weights_form_of(model->weights) == PLSH_WEIGHTS_GGUF) return status;
    for (int i = 0; i < 2 && !status && out->count == 0; i++) {
        char *path;
        status = plsh_path_join(&path, plsh_weights_folder(model->weights), names[i], error);
        if (!status) status = read_ends(path, out, error);
        plsh_release(path);
    }
    return status;
}
